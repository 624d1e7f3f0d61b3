"""What a narrow terminal shows: nothing that is pasted or parsed is cut or folded by us."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sweep.cli.main import main
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


def parsed(text: str) -> Any:
    return YAML(typ="safe").load(text)


def test_commands_that_are_pasted_are_whole(screen: Screen, tmp_path: Path) -> None:
    root = f"--root '{tmp_path / 'a root with a long name'}'"
    spec = write_spec(tmp_path, trials=2)
    assert "`sweep run quickstart`\n" in screen(40, "ls")
    assert f"sweep report demo {root}\n" in screen(40, "run", spec, "--pool", "inline")
    assert f"{root}` begins with this\n" in screen(40, "clone", "demo", 0, "--wait", 0)
