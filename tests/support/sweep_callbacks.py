"""Callbacks of a sweep that write down what they are told, raise, hang or die."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

#: The variable that names the file in which calls are written down.
CALLS = "CALLS_FILE"


def _write(method: str, *arguments: Any) -> None:
    with Path(os.environ[CALLS]).open("a") as file:
        file.write(json.dumps([method, *arguments]) + "\n")


class Noting:
    """Writes every call down."""

    def on_trial_start(self, trial: dict[str, Any]) -> None:
        _write("on_trial_start", trial)

    def on_trial_result(self, trial: dict[str, Any], result: dict[str, Any]) -> None:
        _write("on_trial_result", trial, result)

    def on_checkpoint(self, trial: dict[str, Any], checkpoint: dict[str, Any]) -> None:
        _write("on_checkpoint", trial, checkpoint)

    def on_trial_complete(self, trial: dict[str, Any]) -> None:
        _write("on_trial_complete", trial)

    def on_trial_error(self, trial: dict[str, Any], error: str) -> None:
        _write("on_trial_error", trial, error)

    def on_sweep_end(self, sweep: dict[str, Any]) -> None:
        _write("on_sweep_end", sweep)


class Talkative:
    def on_sweep_end(self, sweep: dict[str, Any]) -> None:
        sys.stdout.write("printed by a callback\n")


class Raising:
    def on_trial_result(self, trial: dict[str, Any], result: dict[str, Any]) -> None:
        raise ValueError("no \x1b[31mchannel")

    def on_trial_complete(self, trial: dict[str, Any]) -> None:
        sys.exit(3)

    def on_sweep_end(self, sweep: dict[str, Any]) -> None:
        _write("on_sweep_end", sweep)


class Hanging:
    def on_trial_start(self, trial: dict[str, Any]) -> None:
        _write("on_trial_start", os.getpid())
        time.sleep(3600)


class Dying:
    def on_trial_start(self, trial: dict[str, Any]) -> None:
        _write("on_trial_start", trial)
        os._exit(9)

    def on_sweep_end(self, sweep: dict[str, Any]) -> None:
        _write("on_sweep_end", sweep)


class DyingOnce:
    def on_trial_start(self, trial: dict[str, Any]) -> None:
        _write("on_trial_start", trial)
        if trial["number"] == 0:
            os._exit(9)


class Unmade:
    def __init__(self) -> None:
        raise RuntimeError("no token")

    def on_sweep_end(self, sweep: dict[str, Any]) -> None: ...


class Misspelt:
    def on_trial_results(self, trial: dict[str, Any], result: dict[str, Any]) -> None: ...


class Silent:
    def other(self) -> None: ...


def no_class() -> None: ...
