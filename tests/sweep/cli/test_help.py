"""Help in a terminal of 80 columns: whole lines, whole sentences."""

import sys

import pytest

from sweep.cli.main import commands, main


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_every_command_is_listed_once_with_a_whole_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    for name in commands.commands:
        (line,) = [line for line in listed if line.split()[0] == name]
        assert line.endswith(".")
        assert not line.endswith("...")


@pytest.mark.parametrize("arguments", [[], *([name] for name in commands.commands)])
def test_help_fits_80_columns(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: sweep")
    assert max(len(line) for line in out.splitlines()) <= 80


def test_another_system_is_refused_in_one_line_that_says_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["ls"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sweep: this system is darwin, but sweep needs Linux")
