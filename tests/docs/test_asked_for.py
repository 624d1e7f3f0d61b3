"""What docs/asked-for.md says is true: its commands are run, and the tests that it names exist."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweep.cli.main import main
from tests.support import scripts

HERE = Path(__file__).parents[2]
PAGE = (HERE / "docs/asked-for.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
(PREPARATION,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
THREAD = re.compile(r"\[([\w-]+)#(\d+)\]\(https://github\.com/[\w.-]+/([\w.-]+)/issues/(\d+)\)")
#: Short names on the page → names of repositories that differ from them.
REPOSITORIES = {
    "SB3": "stable-baselines3",
    "rl-zoo": "rl-baselines3-zoo",
    "RapidFire": "rapidfireai",
}
#: Words of commands that train, which this test does in its own process.
TRAIN = {"run", "resume", "--test-seeds"}


@dataclass(frozen=True)
class Row:
    """One row of the page's tables."""

    wish: str
    """The threads and the wish."""
    commands: list[str]
    """Command lines that show what sweep does, in their order."""
    told: list[str]
    """Texts that the last command prints."""
    tests: list[tuple[str, str]]
    """Files and names of tests that show what sweep does."""


def rows() -> list[Row]:
    """Return the rows of all tables with the column *shown by*."""
    lines = [re.split(r" ?\| ?", line)[1:-1] for line in PAGE.splitlines() if line[:3] == "| ["]
    return [row(cells[0], cells[3]) for cells in lines if len(cells) == 4]


def row(wish: str, shown_by: str) -> Row:
    """Return the row with the cells `wish` and `shown_by`."""
    commands, _, told = shown_by.partition(" prints ")
    return Row(
        wish=wish,
        commands=re.findall(r"`(sweep [^`]+)`", commands),
        told=re.findall(r"`([^`]+)`", told),
        tests=[(path, name) for name, path in re.findall(r"\[`(\w+)`\]\(\.\./([^)]+)\)", shown_by)],
    )


def test_there_are_at_least_thirty_wishes_and_each_is_shown() -> None:
    assert len(rows()) >= 30
    assert not [row.wish for row in rows() if not row.commands and not row.tests]
    assert not [row.wish for row in rows() if bool(row.commands) != bool(row.told)]


def test_each_thread_is_named_by_its_repository_and_number() -> None:
    threads = THREAD.findall(PAGE)
    assert len(threads) == PAGE.count("](https://github.com/")
    for name, number, repository, linked in threads:
        assert (REPOSITORIES.get(name, name).lower(), number) == (repository.lower(), linked)


def test_the_tests_that_it_names_are_there() -> None:
    for path, name in {named for row in rows() for named in row.tests}:
        assert re.search(rf"^def {name}\(", (HERE / path).read_text("utf-8"), re.MULTILINE), name


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files and the sweeps of the page; the test runs in it."""
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for number, line in enumerate(PREPARATION.splitlines()):
        command, _, fate = line.partition("  # ")
        if fate:
            points = {
                "SWEEP_FAILPOINT": "recorded:4:self",
                "SWEEP_FAILPOINT_FILE": f"count{number}",
            }
            words = ["-m", "sweep.cli.main", *shlex.split(command)[1:]]
            assert scripts.python(words, tmp_path, points).returncode == -9
        else:
            assert run(command) == 0
    return tmp_path


def run(command: str) -> int:
    """Run a command line of the page in this process and return its exit code."""
    words = shlex.split(command)[1:]
    return main([*words, "--pool", "inline"] if TRAIN & set(words) else words)


@pytest.mark.usefixtures("desk")
def test_every_command_works_in_its_order_and_prints_what_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for row in rows():
        printed = ""
        for command in row.commands:
            capsys.readouterr()
            code = run(command)
            captured = capsys.readouterr()
            printed = captured.out + captured.err
            assert code == 0, f"{command}\n{printed}"
        assert not [text for text in row.told if text not in printed], f"{row}\n{printed}"
