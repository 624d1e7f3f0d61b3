"""A program in any language as a trainable: settings go in, lines of JSON come out.

    trainable: command
    config: {command: [julia, train.jl], settings: arguments}

It is started in the current folder with the trial's settings: as ``--lr=0.01`` behind the command
(``arguments``), as variables ``SWEEP_lr`` (``environment``), or as one line of JSON on its standard
input (``stdin``). Dots stand for what is nested; what is no text is JSON. ``SWEEP_SEED`` is the
trial's seed.

Each line of its standard output that is a mapping of JSON is one iteration's result; all else goes
into the trial's log. With an entry ``checkpoint`` the trial can be paused and continued there: that
is data, or ``true`` for all files in the folder ``SWEEP_SAVE``. A program that goes on finds the
folder ``SWEEP_CHECKPOINT``, with those files, or the data as ``checkpoint.json``; at first there is
no such variable. After each checkpoint it is sent an empty line: one that writes files waits for it
before it touches them again. Exit code 0 ends the trial.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainables.checkpoint.opaque import temporary_folder
from trainables.core import settings as settings_
from trainables.core.processes.ending import kill_family
from trainables.core.processes.starting import guarded
from trainables.core.settings import Settings
from trainables.errors import ConfigError, TrainableError, shorten
from trainables.function import FunctionTrainable, get_checkpoint, get_context, report


def _words(given: Any) -> Any:
    """A command as its words; of one that is text they are split as a shell does."""
    if isinstance(given, str):
        return tuple(shlex.split(given))
    return tuple(given) if isinstance(given, list) else given


class CommandConfig(Settings):
    """What is run; all other settings are the program's own."""

    command: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        min_length=1, description="The program and its arguments, as a list or as in a shell."
    )
    settings: Literal["arguments", "environment", "stdin"] = Field(
        "arguments", description="How the program is given the settings of the trial."
    )

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "CommandConfig":
        """Those of a trial; ConfigError where there is no such program."""
        own = {key: config[key] for key in cls.model_fields if key in config}
        if "command" not in own:
            raise ConfigError("command", None, "a program and its arguments", "[python, train.py]")
        found = settings_.parse(cls, own)
        if shutil.which(found.command[0]) is None:
            allowed = "a program that can be run, by its path or found on PATH"
            raise ConfigError("command", found.command[0], allowed)
        return found


def _train(config: dict[str, Any]) -> None:
    """Run the program, and report what it prints."""
    reports, logdir = 0, get_context().logdir
    with (
        temporary_folder(logdir) as before,
        temporary_folder(logdir) as folder,
        _running(config, Path(folder), _restored(Path(before))) as process,
    ):
        assert process.stdin is not None  # noqa: S101 both are pipes
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            result = _result(line)
            if result is None:
                print(line, end="", flush=True)  # noqa: T201 into the trial's log
                continue
            reports += 1
            saved = result.pop("checkpoint", None)
            report(result, checkpoint=folder if saved is True else saved or None)
            if saved:
                with contextlib.suppress(OSError):  # it need not read it
                    process.stdin.write("\n")
                    process.stdin.flush()
        code = process.wait()
    if code or not reports:
        what = f"ended with exit code {code}" if code else "ended without a result"
        raise TrainableError(f"{shorten(config['command'])} {what}; see the trial's log")


class Command(FunctionTrainable):
    """Results of a program as iterations."""

    function = staticmethod(_train)  # type: ignore[assignment]  # mypy thinks it is bound
    saves = True
    exactness = "as the command saves"

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for a command that cannot be run."""
        CommandConfig.of(config)


def _restored(folder: Path) -> dict[str, str]:
    """The variable that says where the last checkpoint lies, and the checkpoint in its place."""
    saved = get_checkpoint()
    if saved is None:
        return {}
    if isinstance(saved, str):
        return {"SWEEP_CHECKPOINT": saved}
    (folder / "checkpoint.json").write_text(json.dumps(saved), encoding="utf-8")
    return {"SWEEP_CHECKPOINT": str(folder)}


@contextlib.contextmanager
def _running(
    config: Mapping[str, Any], folder: Path, variables: Mapping[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """The program of a trial, which ends with its thread and is killed when it is left."""
    how = CommandConfig.of(config)
    words = [str(shutil.which(how.command[0])), *how.command[1:]]
    own = {key: value for key, value in config.items() if key not in CommandConfig.model_fields}
    flat, first = dict(_flat(own)), ""
    env = {**os.environ, "SWEEP_SEED": str(get_context().seed), "SWEEP_SAVE": str(folder)}
    if how.settings == "arguments":
        words += [f"--{name}={value}" for name, value in flat.items()]
    elif how.settings == "environment":
        env |= {f"SWEEP_{name.replace('.', '_')}": value for name, value in flat.items()}
    else:
        first = json.dumps(own) + "\n"
    process = subprocess.Popen(  # noqa: S603 the program that the spec names
        guarded(words),
        env={**env, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the driver, which lets trials save
    )
    try:
        assert process.stdin is not None  # noqa: S101 it is a pipe
        with contextlib.suppress(OSError):
            process.stdin.write(first)
            process.stdin.flush()
        yield process
    finally:
        kill_family(process.pid)
        with contextlib.suppress(OSError):
            process.__exit__(None, None, None)


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Name with dots → value as text."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value if isinstance(value, str) else json.dumps(value)


def _result(line: str) -> dict[str, Any] | None:
    """The result in a line; None: it holds none."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
