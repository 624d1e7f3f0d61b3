"""Completion: what a real shell offers after `sweep completion`, and what it costs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import environment
from tests.support.sweeps import make


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with a sweep of three trials, and a command `sweep` on the path."""
    folder = make(tmp_path / "sweeps")
    for number in (0, 1, 10):
        folder.make_trial(number)
    command = tmp_path / "bin" / "sweep"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m sweep.cli.main "$@"\n')
    command.chmod(0o755)
    return tmp_path


def offered(begun: Path, *words: str) -> list[str]:
    """What bash offers for the last of `words`."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    array = " ".join(f"'{word}'" for word in ("sweep", *words))
    program = (
        f'eval "$(sweep completion bash)"; COMP_WORDS=({array}); COMP_CWORD={len(words)}; '
        '_sweep_completion sweep; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{begun / 'bin'}:{environment()['PATH']}"
    done = subprocess.run(
        [bash, "-c", program],
        cwd=begun,
        env={**environment(), "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_shell_offers_commands_sweeps_and_trials(begun: Path) -> None:
    assert sorted(offered(begun, "resu")) == ["results", "resume"]
    assert offered(begun, "show", "d") == ["demo"]
    assert offered(begun, "show", "demo", "1") == ["1", "10"]
    assert offered(begun, "show", "--root", "elsewhere", "") == []


def test_a_folder_that_is_no_trials_is_not_offered(begun: Path) -> None:
    (begun / "sweeps" / "demo" / "trials" / "3x").mkdir()
    assert offered(begun, "show", "demo", "") == ["0", "1", "10"]


def test_a_shell_offers_the_shipped_search_spaces(begun: Path) -> None:
    assert offered(begun, "run", "quick") == ["quickstart"]


def test_a_shell_offers_files_beside_the_shipped_search_spaces(begun: Path) -> None:
    for name in ("quick.yaml", ".quick.yaml", "quick one.yaml", "slow.yaml"):
        (begun / name).touch()
    (begun / "quickly").mkdir()
    assert offered(begun, "run", "quick") == ["quickstart", "quick.yaml", "quickly/"]


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _sweep_completion sweep"),
        ("zsh", "#compdef sweep"),
        ("fish", "complete --no-files --command sweep"),
    ],
)
def test_the_text_for_each_shell_is_in_its_language(shell: str, line: str, begun: Path) -> None:
    done = subprocess.run(
        [begun / "bin" / "sweep", "completion", shell],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_SWEEP_COMPLETE" in done.stdout
    assert line in done.stdout
