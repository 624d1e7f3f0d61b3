"""What is installed is called what messages and pages say, and brings its types."""

import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from sweep import __version__
from sweep.driver.start.creation import provenance
from tests.support import distribution
from tests.support.processes import run_python
from trainables.trainable import Trainable

HERE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
#: Files in which people read what to install.
TEXTS = sorted(
    path
    for place in ("sweep", "trainables", "search_spaces", "docs", "README.md", "CHANGELOG.md")
    for path in [HERE / place, *(HERE / place).rglob("*")]
    if path.suffix in (".py", ".md", ".yaml")
)
RECOMMENDED = re.compile(r"pip install (?P<quote>['\"]?)(?P<name>[\w-]+)\[(?P<extras>[\w,]+)\]")
#: Others' distributions, which a page about others recommends.
OTHERS = {"ray"}


def test_every_extra_that_is_recommended_is_one_of_this_distribution() -> None:
    """In quotes: some shells take the brackets for a pattern."""
    found = [its for path in TEXTS for its in RECOMMENDED.finditer(path.read_text())]
    ours = [its for its in found if its["name"] not in OTHERS]
    assert len(ours) >= 5
    assert {its["name"] for its in ours} == {PROJECT["name"]}
    assert all(its["quote"] for its in ours)
    named = {extra for its in ours for extra in its["extras"].split(",")}
    assert named <= PROJECT["optional-dependencies"].keys()


def test_the_distribution_is_not_called_as_somebody_elses_on_the_public_index() -> None:
    assert PROJECT["name"] == "sweep-rl"
    (own,) = (d for d in PROJECT["optional-dependencies"]["dev"] if d.startswith("sweep"))
    assert own.startswith("sweep-rl[")


def test_users_may_install_what_we_run_with_and_more() -> None:
    """Each dependency has a lowest version, none is pinned, and the lock lies within."""
    lines = (HERE / "constraints.txt").read_text().splitlines()
    lock = {name.lower(): version for name, version in (line.split("==") for line in lines)}
    extras = PROJECT["optional-dependencies"]
    users = [d for extra in extras if extra != "dev" for d in extras[extra]]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *users]):
        operators = {part.operator for part in requirement.specifier}
        assert ">=" in operators, requirement
        assert operators <= {">=", "<"}, requirement
        assert lock[requirement.name.lower()] in requirement.specifier, requirement


def test_no_sql_numbers_the_parameters_of_a_sequence() -> None:
    """The sqlite3 of early releases of Python 3.12 warns of it."""
    sources = [
        path for package in ("sweep", "trainables") for path in HERE.glob(f"{package}/**/*.py")
    ]
    numbered = [str(path) for path in sources if re.search(r"[ (=,]\?\d\b", path.read_text())]
    assert numbered == []


def test_the_version_is_known_however_the_program_was_installed() -> None:
    """A folder on the import path is enough: no other distribution's number is taken for it."""
    script = """
import importlib.metadata as metadata
found = metadata.version
def version(name):
    if name.startswith("sweep"):
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.version = version
from sweep.cli.main import commands
commands(["--version"])
"""
    assert run_python(script) == f"{__version__}\n"
    assert provenance.current(Trainable)["versions"]["sweep"] == __version__


def test_the_version_stands_in_one_place_and_in_the_changelog() -> None:
    assert "version" in PROJECT["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert f"\n## {__version__}" in (HERE / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive."""
    return distribution.build(tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
def test_wheel_and_source_archive_hold_what_they_need_and_nothing_else(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, archive = built
    assert wheel.name == f"sweep_rl-{__version__}-py3-none-any.whl"
    assert [*distribution.wheel_problems(wheel), *distribution.archive_problems(archive)] == []
    assert [*distribution.metadata_problems(wheel)] == []
    again = distribution.from_archive(archive, tmp_path)
    assert distribution.contents(again) == distribution.contents(wheel)


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_folder_and_a_fresh_environment(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """Other packages come from this environment; `make dist` with --install takes an empty one."""
    python = tmp_path / "env" / "bin" / "python"
    make = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    for command in (make, [*pip, "--no-deps", "--no-index", str(built[0])]):
        subprocess.run(command, check=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (tmp_path / "empty").mkdir()
    assert distribution.first_day(python, tmp_path / "empty") == ""


@pytest.mark.parametrize("package", ["sweep", "trainables"])
def test_the_packages_say_that_they_have_types(package: str) -> None:
    assert (resources.files(package) / "py.typed").is_file()
    setuptools = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "py.typed" in setuptools["package-data"][package]


def test_every_file_of_the_packages_that_is_no_code_is_shipped() -> None:
    setuptools = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, patterns in setuptools["package-data"].items():
        root = HERE / package
        shipped = {path for pattern in patterns for path in root.glob(pattern)}
        there = {
            path for path in root.rglob("*") if path.is_file() and "__pycache__" not in str(path)
        }
        code = {path for path in there if path.suffix == ".py" and path.parent.name != "templates"}
        assert there - code == {path for path in shipped if path.is_file()}
