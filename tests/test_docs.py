"""What the README and the pages in docs/ say is true: every block in them is run."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep import spec as specs
from tests.support import processes, scripts
from tests.support.command_line import start, write_spec
from tests.support.ports import free_port
from tests.support.waiting import wait_until

HERE = Path(__file__).parents[1]
PAGES = [HERE / "README.md", HERE / "CONTRIBUTING.md", *sorted((HERE / "docs").rglob("*.md"))]
BIN = Path(sys.executable).parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[str]:
    return [line for body in blocks(page, "sh") for line in body.splitlines() if line.strip()]


README = commands(HERE / "README.md")
#: Checks specs one after the other, and prints a line with the exit code of each.
DRY_RUNS = """
import sys
from sweep.cli.main import main
for name in sys.argv[1:]:
    print(main(["run", name, "--dry-run"]))
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HERE)))
def test_every_yaml_block_is_a_spec(page: Path) -> None:
    for body in blocks(page, "yaml"):
        assert specs.parse(body, str(page)).trials >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "yaml")],
    ids=lambda page: str(page.relative_to(HERE)),
)
def test_what_every_yaml_block_trains_takes_its_settings(page: Path, tmp_path: Path) -> None:
    """Beside the page's other files; what trains with a library that is not here is passed over."""
    for _, body in FENCE.findall(page.read_text()):
        if name := re.match(r"# (\S+)\n", body):
            (tmp_path / name[1]).write_text(body)
    names = []
    for number, body in enumerate(blocks(page, "yaml")):
        names.append(f"block{number}.yaml")
        (tmp_path / names[-1]).write_text(body)
    done = scripts.python(["-c", DRY_RUNS, *names], tmp_path)
    codes = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    assert len(codes) == len(names), done.stderr
    missing = done.stderr.count("which is not installed")
    assert len([code for code in codes if code != 0]) == missing, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HERE)))
def test_every_make_command_is_a_target(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (HERE / "Makefile").read_text(), re.MULTILINE))
    for command in commands(page):
        if command.startswith("make "):
            assert command.split()[1] in targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HERE)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.fixture(scope="module")
def handler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README shows, in which its commands run in their order."""
    folder = tmp_path_factory.mktemp("desk")
    for language in ("python", "yaml"):
        for body in blocks(HERE / "README.md", language):
            name = re.match(r"# (\S+)\n", body)
            assert name is not None, "each file in the README is headed by its name"
            (folder / name[1]).write_text(body)
    shutil.copytree(HERE / "search_spaces", folder / "search_spaces")
    return folder


def call(handler: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        words,
        cwd=handler,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.slow
def test_every_command_of_the_readme_works_in_its_order(handler: Path) -> None:
    """The long one is only prepared, and the page is opened by the test below."""
    for command in README:
        words = command.split()
        if words[0] == "make" or words[1] == "ui":
            continue
        done = call(handler, [*words, "--dry-run"] if "cartpole_ppo" in words else words)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    assert (handler / "winner" / "policy.onnx").is_file()


@pytest.fixture
def page_of_all_sweeps(tmp_path: Path) -> Iterator[str]:
    spec = write_spec(tmp_path, trials=1, trackers=["mlflow"])
    sweep = start("run", spec, "--pool", "inline", cwd=tmp_path)
    _, told = sweep.communicate(timeout=240)
    assert sweep.returncode == 0, told
    port = free_port()
    process = processes.start(
        [str(BIN / "sweep"), "ui", "--port", str(port)],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    yield f"http://127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=120)


@pytest.mark.slow
def test_the_page_opens(page_of_all_sweeps: str) -> None:
    def answers() -> bool:
        try:
            with urllib.request.urlopen(page_of_all_sweeps, timeout=30) as answer:  # noqa: S310
                return bool(answer.status == 200 and b"MLflow" in answer.read())
        except OSError:
            return False

    wait_until(answers)


def test_the_pages_that_are_rendered_say_what_the_code_says() -> None:
    module = importlib.util.spec_from_file_location("render_spec", HERE / "docs/render_spec.py")
    assert module is not None
    assert module.loader is not None
    rendering = importlib.util.module_from_spec(module)
    module.loader.exec_module(rendering)
    old = [path.name for path, text in rendering.pages().items() if path.read_text() != text]
    assert not old, f"run `python docs/render_spec.py`, which writes what {old} lack"
