"""What a narrow terminal shows: nothing that is pasted or parsed is cut or folded by us."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sweep.cli.main import main
from sweep.cli.options import open_answer
from tests.support.command_line import write_spec

Screen = Callable[..., str]


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Screen:
    """Runs a command on a terminal of so many columns; what it is sent, without styles."""

    def shown(columns: int, *arguments: object) -> str:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        tty = _Tty()
        with monkeypatch.context() as on_screen:
            on_screen.setattr("sys.stdout", tty)
            words = [*map(str, arguments), "--root", str(tmp_path / "a root with a long name")]
            assert main(words) == 0
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", tty.getvalue())

    return shown


@pytest.fixture
def long(screen: Screen, tmp_path: Path) -> str:
    """A finished sweep `demo` with a long setting `shape`; its value."""
    words = "one two three four five six seven eight nine ten eleven"
    space = {"lr": {"loguniform": [1e-3, 0.9]}, "shape": {"choice": [words]}}
    screen(40, "run", write_spec(tmp_path, space=space, trials=2), "--pool", "inline")
    return words


def test_settings_that_are_pasted_are_whole(screen: Screen, long: str) -> None:
    assert parsed(screen(40, "best", "demo"))["config"]["shape"] == long
    assert f'  shape: "{long}"\n' in screen(40, "show", "demo", 0)


def test_a_schedule_that_is_pasted_is_whole(screen: Screen, long: str) -> None:
    printed = screen(40, "export-schedule", "demo")
    assert long in printed
    assert parsed(printed)


def test_names_and_settings_can_be_read(screen: Screen, tmp_path: Path) -> None:
    words = "one two three four five six seven eight nine ten eleven"
    spec = write_spec(tmp_path, space={"lr": 0.1, "shape": {"choice": [words]}}, trials=1)
    screen(80, "run", spec, "--pool", "inline")
    title, _, name, row = screen(36, "ls").splitlines()
    assert (title, name) == ("sweep", "demo")
    assert row.startswith("  finish")
    shown = screen(40, "results", "demo")
    assert f"  shape={words[:26]}" in shown
    assert "\nsweep" not in screen(80, "ls")


@pytest.mark.parametrize(
    ("kind", "shown"),
    [(_Tty, "why\n\\x1b]0;owned\\x07\n"), (io.StringIO, "why\n\x1b]0;owned\x07\n")],
)
def test_csv_cannot_steer_a_terminal_and_is_as_it_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], shown: str
) -> None:
    stream = kind()
    monkeypatch.setattr("sys.stdout", stream)
    with open_answer(as_json=False, as_csv=True) as answer:
        answer([{"why": "\x1b]0;owned\x07"}], str)
    assert stream.getvalue() == shown


def parsed(text: str) -> Any:
    return YAML(typ="safe").load(text)


def test_commands_that_are_pasted_are_whole(screen: Screen, tmp_path: Path) -> None:
    root = f"--root '{tmp_path / 'a root with a long name'}'"
    spec = write_spec(tmp_path, trials=2)
    assert "`sweep run quickstart`\n" in screen(40, "ls")
    assert f"sweep report demo {root}\n" in screen(40, "run", spec, "--pool", "inline")
    assert f"; `sweep resume demo {root}` starts one, which" in screen(
        40, "clone", "demo", 0, "--wait", 0
    )
