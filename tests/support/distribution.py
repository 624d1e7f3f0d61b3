"""Build wheel and source archive, check what is in them, and use them where they are installed.

    python -m tests.support.distribution [--out dist] [--install] [--python PATH …]

Both are built from the files that git knows, with the setuptools of this environment. `--install`
also installs the wheel from the package index into empty environments, by pip and by uv, for each
Python from 3.11 to 3.13 that is found, and runs the commands of a first day there. That takes some
minutes and 2 to 8 GB for each, which are deleted again.
"""

import argparse
import email
import email.message
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("search_spaces", "sweep", "trainables")
#: What the source archive has beside the packages and `docs`.
BESIDE = {
    *("LICENSE", "MANIFEST.in", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("constraints.txt", "pyproject.toml"),
}
#: What setuptools adds to it.
ADDED = re.compile(r"PKG-INFO|setup\.cfg|sweep_rl\.egg-info/.*")
PYTHONS = ("3.11", "3.12", "3.13")
HOOK = "import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
#: Commands of a first day in an empty folder → a file that each leaves there.
FIRST_DAY = (
    (("--version",), ""),
    (("run", "quickstart", "--trials", "2", "--jobs", "2", "--name", "first"), "sweeps/first"),
    (("ls",), "sweeps/first/sweep.db"),
    (("results", "first"), ""),
    (("report", "first"), "first.html"),
    (("schema",), ""),
    (("init", "mine"), "mine"),
    (("doctor",), ""),
)
#: Arguments that run what `sweep init` wrote.
MINE = ("space.yaml", "--trials", "2", "--jobs", "2")
#: Script that prints where the packages were imported from.
FOUND = """
import search_spaces, sweep, trainables
print(search_spaces.__file__, sweep.__file__, trainables.__file__)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, check and say what was found. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="folder of the files")
    parser.add_argument("--install", action="store_true", help="install into empty environments")
    parser.add_argument("--python", nargs="+", default=[], help="interpreters; default: all found")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    for old in (*given.out.glob("sweep_rl-*.whl"), *given.out.glob("sweep_rl-*.tar.gz")):
        old.unlink()
    wheel, archive = build(given.out)
    problems = [*wheel_problems(wheel), *archive_problems(archive), *metadata_problems(wheel)]
    with tempfile.TemporaryDirectory() as place:
        if contents(wheel) != contents(from_archive(archive, Path(place))):
            problems.append(f"{archive.name} builds another wheel")
    for file in (wheel, archive):
        say(f"{file}: {file.stat().st_size / 1e6:.1f} MB")
    for problem in problems:
        say(f"wrong: {problem}")
    if given.install and not problems:
        problems += [found for found in installed(wheel, given.python) if found]
    return 1 if problems else 0


# ---- build --------------------------------------------------------------------------------------


def known() -> list[str]:
    """Return the files of the repository that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return sorted(name for name in told.stdout.splitlines() if (REPOSITORY / name).is_file())


def build(out: Path) -> tuple[Path, Path]:
    """Return wheel and source archive, built in `out` from a copy of the repository's files."""
    with tempfile.TemporaryDirectory() as place:
        for name in known():
            copy = Path(place) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, copy)
        _hook("wheel", Path(place), out)
        _hook("sdist", Path(place), out)
    (wheel,), (archive,) = out.glob("sweep_rl-*.whl"), out.glob("sweep_rl-*.tar.gz")
    return wheel, archive


def from_archive(archive: Path, place: Path) -> Path:
    """Return the wheel that a source archive builds, in a folder `place`."""
    with tarfile.open(archive) as opened:
        opened.extractall(place / "source", filter="data")
    (source,) = (place / "source").iterdir()
    _hook("wheel", source, place)
    (wheel,) = place.glob("*.whl")
    return wheel


def _hook(kind: str, source: Path, out: Path) -> None:
    """Build as pip does, but with the setuptools that is here."""
    command = [sys.executable, "-c", HOOK.format(kind=kind), str(out.resolve())]
    done = subprocess.run(
        command, cwd=source, env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the {kind} was not built: {done.stderr[-2000:]}")


def _environment() -> dict[str, str]:
    """Return an environment in which nothing of the repository is imported."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "SWEEP_ATTACH": "later"}


# ---- check --------------------------------------------------------------------------------------


def contents(wheel: Path) -> dict[str, bytes]:
    """Return name → bytes of the files in a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def wheel_problems(wheel: Path) -> Iterator[str]:
    """Yield what a wheel lacks of the packages' files, and what else is in it."""
    found = {name for name in contents(wheel) if ".dist-info/" not in name}
    wanted = {name for name in known() if name.partition("/")[0] in PACKAGES}
    yield from _compare(wheel, wanted, found)


def archive_problems(archive: Path) -> Iterator[str]:
    """Yield what a source archive lacks, and what else is in it."""
    with tarfile.open(archive) as opened:
        names = [one.name.partition("/")[2] for one in opened.getmembers() if one.isfile()]
    found = {name for name in names if not ADDED.fullmatch(name)}
    folders = {*PACKAGES, "docs"}
    wanted = BESIDE | {name for name in known() if name.partition("/")[0] in folders}
    yield from _compare(archive, wanted, found)


def _compare(file: Path, wanted: set[str], found: set[str]) -> Iterator[str]:
    for name in sorted(wanted - found):
        yield f"{file.name} lacks {name}"
    for name in sorted(found - wanted):
        yield f"{file.name} has {name}, which nobody needs"


def metadata(wheel: Path) -> email.message.Message:
    """Return the metadata of a wheel."""
    (told,) = (text for name, text in contents(wheel).items() if name.endswith("/METADATA"))
    return email.message_from_bytes(told)


def metadata_problems(wheel: Path) -> Iterator[str]:
    """Yield what is missing or wrong in what a package index shows."""
    told = metadata(wheel)
    wanted = {
        "Name": "sweep-rl",
        "License-Expression": "MIT",
        "License-File": "LICENSE",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
    }
    for key, value in wanted.items():
        if told[key] != value:
            yield f"{key} is {told[key]}, not {value}"
    for key in ("Summary", "Author", "Keywords", "Classifier"):
        if not told[key]:
            yield f"{key} is missing"
    text = str(told.get_payload())
    for link in re.findall(r"\]\((?!https?://)([^)]*)\)", text):
        yield f"the description links to {link}, which is only in the repository"
    wanted_by_name = {f"Programming Language :: Python :: {version}" for version in PYTHONS}
    if missing := wanted_by_name - set(told.get_all("Classifier", [])):
        yield f"classifiers are missing: {sorted(missing)}"


# ---- use ----------------------------------------------------------------------------------------


def first_day(python: Path, folder: Path) -> str:
    """Return why the commands do not work in an empty folder; empty if they do.

    Args:
        python: interpreter of the environment in which the wheel is installed.
        folder: empty; the commands write there.
    """
    prefix = python.parents[1]
    where = _run([str(python), "-c", FOUND], folder)
    if any(not path.startswith(str(prefix)) for path in where.stdout.split()) or where.returncode:
        return f"imported from elsewhere: {where.stdout}{where.stderr}"
    for words, left in FIRST_DAY:
        done = _run([str(python.with_name("sweep")), *words], folder)
        if done.returncode:
            return f"sweep {' '.join(words)}: exit code {done.returncode}: {done.stderr[-2000:]}"
        if not (folder / left).exists():
            return f"sweep {' '.join(words)} left no {left}"
    mine = _run([str(python.with_name("sweep")), "run", *MINE], folder / "mine")
    return mine.stderr[-2000:] if mine.returncode else ""


def _run(command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )


def installed(wheel: Path, pythons: Sequence[str]) -> Iterator[str]:
    """Install a wheel into empty environments, and yield for each what is wrong; empty if nothing.

    The exact version of torch comes first, as our pages advise.
    """
    lock = (REPOSITORY / "constraints.txt").read_text().splitlines()
    (torch,) = (line for line in lock if line.startswith("torch=="))
    for python in pythons or _pythons():
        for tool in ("pip", "uv"):
            with tempfile.TemporaryDirectory(prefix="sweep-dist-") as place:
                problem = _install(tool, python, torch, wheel, Path(place))
            say(f"{python} by {tool}: {problem or 'works'}")
            yield "" if problem.startswith("skipped") else problem


def _pythons() -> Iterator[str]:
    """Yield the interpreters of `PYTHONS` that run here."""
    for version in PYTHONS:
        name = f"python{version}"
        found = shutil.which(name)
        works = found and subprocess.run([name, "-c", ""], capture_output=True, check=False)
        if works and works.returncode == 0:
            yield name
        else:
            say(f"{name} is not on this machine: skipped")


def _install(tool: str, python: str, torch: str, wheel: Path, place: Path) -> str:
    """Install by one tool into `place`, use it, and return what is wrong."""
    inside = place / "env" / "bin" / "python"
    make = [[python, "-m", "venv", str(place / "env")]]
    command = [str(inside), "-m", "pip", "install", "--quiet"]
    if tool == "uv":
        if (uv := shutil.which("uv")) is None:
            return "skipped, as uv is not on this machine (pip install uv)"
        make = [[uv, "venv", "--quiet", "--python", python, str(place / "env")]]
        command = [uv, "pip", "install", "--quiet", "--python", str(inside)]
    (place / "empty").mkdir()
    for step in (*make, [*command, torch], [*command, str(wheel)]):
        done = _run(step, place)
        if done.returncode:
            return f"{' '.join(step)}: {done.stderr[-2000:]}"
    return first_day(inside, place / "empty")


def say(text: str) -> None:
    """Print a line of progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
