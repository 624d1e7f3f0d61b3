"""A program in any language as a trainable: settings go in, lines of JSON come out.

    trainable: command
    config: {command: [julia, train.jl], settings: arguments}

It is started in the current folder with the trial's settings: as ``--lr=0.01`` behind the command
(``arguments``; with ``booleans: flag`` what is true as ``--use-bn``), as variables ``SWEEP_lr``
(``environment``), or as one line of JSON on its standard input (``stdin``). Dots stand for what is
nested; what is no text is JSON. ``SWEEP_SEED`` is the trial's seed.

Each line of its standard output that is a mapping of JSON is one iteration's result; all else goes
into the trial's log. With an entry ``checkpoint`` the trial can be paused and continued there: that
is data, or ``true`` for all files in the folder ``SWEEP_SAVE``. A program that goes on finds the
folder ``SWEEP_CHECKPOINT``, with those files, or the data as ``checkpoint.json``; at first there is
no such variable. After each checkpoint it is sent an empty line: one that writes files waits for it
before it touches them again. Exit code 0 ends the trial.
"""

import array
import codecs
import contextlib
import fcntl
import io
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import termios
import threading
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainables.checkpoint.opaque import temporary_folder
from trainables.core import settings as settings_
from trainables.core.processes.ending import kill_family
from trainables.core.processes.starting import guard_command
from trainables.core.settings import Settings
from trainables.errors import ConfigError, TrainableError, printable, shorten
from trainables.function import FunctionTrainable, get_checkpoint, get_context, report

#: Lines of the end of its error output that are told of a program that fails, and their longest.
_LAST_LINES, _LONGEST_LINE, _LONGEST_END = 10, 200, 8192
#: Bytes of its output that are read at once.
_MOST_BYTES = 65536
#: Seconds for which they are waited for.
_ERRORS_S = 1.0


def _words(given: Any) -> Any:
    """A command as its words; of one that is text they are split as a shell does."""
    if isinstance(given, str):
        return tuple(shlex.split(given))
    return tuple(given) if isinstance(given, list) else given


class CommandConfig(Settings):
    """The program to run; all other settings are the program's own."""

    command: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        min_length=1, description="The program and its arguments, as a list or as in a shell."
    )
    settings: Literal["arguments", "environment", "stdin"] = Field(
        "arguments", description="How the program is given the settings of the trial."
    )

    booleans: Literal["value", "flag", "flag_or_no"] = Field(
        "value",
        description="With arguments, how true and false are given: --use-bn=true (value); --use-bn "
        "or nothing (flag), as argparse's store_true; --use-bn or --no-use-bn (flag_or_no).",
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
        _running(config, Path(folder), _restored(Path(before))) as (process, said),
        contextlib.closing(_lines(process)) as lines,
    ):
        assert process.stdin is not None  # noqa: S101 it is a pipe
        for line in lines:
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
        raise TrainableError(f"{shorten(config['command'])} {_end(code)}{said.last_lines()}")


def _lines(process: "subprocess.Popen[str]") -> Generator[str, None, None]:
    """Return the lines that a program prints, up to its end.

    What it leaves behind may hold its output for ever, so the end of the output is not waited for.
    """
    assert process.stdout is not None  # noqa: S101 it is a pipe
    output, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("replace"), translate=True
    )
    poll, rest, is_over = select.poll(), "", False
    poll.register(output, select.POLLIN)
    poll.register(ended, select.POLLIN)
    try:
        while not is_over:
            ready = {descriptor for descriptor, _ in poll.poll()}
            # Of a program that has ended, all that it has printed is in the pipe.
            most = _waiting(output) if ended in ready else _MOST_BYTES
            written = os.read(output, most) if most and (output in ready) else b""
            is_over = ended in ready or not written
            *whole, rest = (rest + decoder.decode(written, final=is_over)).split("\n")
            yield from (f"{line}\n" for line in whole)
        if rest:
            yield rest
    finally:
        os.close(ended)


def _waiting(pipe: int) -> int:
    """Return how many bytes can be read from a pipe at once."""
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def _end(code: int) -> str:
    """Return the words for an end of the program that is an error."""
    if code < 0:
        with contextlib.suppress(ValueError):  # a signal that has no name
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" if code else "ended without a result"


class _Errors:
    """The standard error of a program: copied into the trial's log, its last bytes kept.

    Processes that the program leaves behind may hold the pipe, so nobody waits for them.
    """

    def __init__(self) -> None:
        self._end = b""
        self._reads, self.writes = os.pipe()
        self._log = os.dup(2)
        self._thread = threading.Thread(target=self._copy, name="standard error", daemon=True)

    def follow(self) -> None:
        """Begin with what is written: the program has been started."""
        os.close(self.writes)
        self._thread.start()

    def _copy(self) -> None:
        try:
            while written := os.read(self._reads, 65536):
                self._end = (self._end + written)[-_LONGEST_END:]
                with contextlib.suppress(OSError):  # the disk is full
                    os.write(self._log, written)
        finally:
            os.close(self._reads)
            os.close(self._log)

    def last_lines(self) -> str:
        """The very last line, and those before it below; to be asked when the program has ended."""
        self._thread.join(_ERRORS_S)
        lines = self._end.decode(errors="replace").splitlines()
        kept = [printable(line.rstrip()[:_LONGEST_LINE]) for line in lines if line.strip()]
        if not kept:
            return "; see the trial's log"
        below = "".join(f"\n  {line}" for line in kept[-_LAST_LINES:])
        return f": {kept[-1].strip()}\nThe last lines of its error output:{below}"


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
) -> Iterator[tuple["subprocess.Popen[str]", _Errors]]:
    """The program of a trial, which ends with its thread and is killed when it is left."""
    how = CommandConfig.of(config)
    words = [str(shutil.which(how.command[0])), *how.command[1:]]
    own = {key: value for key, value in config.items() if key not in CommandConfig.model_fields}
    first = ""
    env = {**os.environ, "SWEEP_SEED": str(get_context().seed), "SWEEP_SAVE": str(folder)}
    if how.settings == "arguments":
        words += _arguments(own, how.booleans)
    elif how.settings == "environment":
        env |= {f"SWEEP_{name.replace('.', '_')}": _text(value) for name, value in _flat(own)}
    else:
        first = json.dumps(own) + "\n"
    said = _Errors()
    process = subprocess.Popen(  # noqa: S603 the program that the spec names
        guard_command(words),
        env={**env, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said.writes,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the driver, which lets trials save
    )
    try:
        said.follow()
        assert process.stdin is not None  # noqa: S101 it is a pipe
        with contextlib.suppress(OSError):
            process.stdin.write(first)
            process.stdin.flush()
        yield process, said
    finally:
        kill_family(process.pid)
        with contextlib.suppress(OSError):
            process.__exit__(None, None, None)


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Name with dots → value."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _arguments(config: Mapping[str, Any], booleans: str) -> Iterator[str]:
    """The settings as arguments of a command line."""
    for name, value in _flat(config):
        if booleans == "value" or not isinstance(value, bool):
            yield f"--{name}={_text(value)}"
        elif value:
            yield f"--{name}"
        elif booleans == "flag_or_no":
            yield f"--no-{name}"


def _result(line: str) -> dict[str, Any] | None:
    """The result in a line; None: it holds none."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
