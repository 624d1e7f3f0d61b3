"""The command line as a person uses it: in this process, or as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.cli.main import main
from tests.support import processes
from tests.support.sweeps import QUADRATIC

REPOSITORY = Path(__file__).resolve().parents[2]


def write_spec(folder: Path, **changes: Any) -> Path:
    """A spec file without trackers, which take seconds; None removes a key. JSON is YAML."""
    given = {**QUADRATIC, "trackers": [], **changes}
    raw = {key: value for key, value in given.items() if value is not None}
    path = folder / "spec.yaml"
    path.write_text(json.dumps(raw, indent=1))
    return path


class Here:
    """Runs commands in this process."""

    def __init__(self, captured: pytest.CaptureFixture[str], root: Path) -> None:
        self._captured = captured
        self.root = root

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, standard output and standard error; ``--root`` is added where it exists."""
        self._captured.readouterr()
        words = [str(argument) for argument in arguments]
        if words:
            words += ["--root", str(self.root)]
        code = main(words)
        out, err = self._captured.readouterr()
        return code, out, err

    def json(self, *arguments: object) -> Any:
        """The one JSON document that a command prints."""
        code, out, _ = self(*arguments, "--json")
        assert code == 0
        return json.loads(out)


def start(
    *arguments: object,
    cwd: Path,
    program: Sequence[str] = ("-m", "sweep.cli.main"),
    **options: Any,
) -> "subprocess.Popen[str]":
    """Start a process of its own, with its output in pipes, which ends with the test."""
    command = [sys.executable, *program, *(str(argument) for argument in arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return processes.start(command, cwd=cwd, env=environment(), text=True, **pipes)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}
