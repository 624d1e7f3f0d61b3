"""A program in any language as a trainable: it gets settings and prints lines of JSON.

    trainable: command
    config: {command: [julia, train.jl], settings: arguments}

The program is started in the current folder with the trial's settings: as ``--lr=0.01`` after the
command (``arguments``; with ``booleans: flag`` a true value as ``--use-bn``), as ``lr=0.01``
(``overrides``, for Hydra), as variables ``SWEEP_lr`` (``environment``), or as one line of JSON on
its standard input (``stdin``). Nested names are joined by dots; values that are not text are
written as JSON. ``SWEEP_SEED`` is the trial's seed; ``seed_as`` names a setting that gets it, too.
``SWEEP_FOLDER`` is the trial's folder.

Each line of its standard output that is a JSON mapping is the result of one iteration, and so is
each line in which ``pattern`` is found; other lines are copied to the trial's log. A result with
an entry ``checkpoint`` lets the trial be paused and continued there: the entry is data, or ``true``
for all files in the folder ``SWEEP_SAVE``. A program that continues gets the variable
``SWEEP_CHECKPOINT``, the folder with those files or with the data as ``checkpoint.json``; a new
program does not have this variable. After each checkpoint the program is sent an empty line; a
program that saves files must wait for it before it changes them. Exit code 0 ends the trial.
"""

import array
import codecs
import contextlib
import errno
import fcntl
import io
import json
import os
import re
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

from pydantic import AfterValidator, BeforeValidator, Field

from trainables.checkpoint.opaque import temporary_folder
from trainables.core import settings as settings_
from trainables.core.processes.ending import kill_family
from trainables.core.processes.starting import guard_command
from trainables.core.settings import Settings
from trainables.errors import ConfigError, NoResult, TrainableError, printable, shorten
from trainables.function import FunctionTrainable, get_checkpoint, get_context, report

#: Number of last lines of a failed program's error output in the message, longest such line in
#: characters, and number of last bytes that are kept.
_LAST_LINES, _LONGEST_LINE, _LONGEST_END = 10, 200, 8192
#: Largest number of bytes of output read at once.
_MOST_BYTES = 65536
#: Environment variable with which Python programs send each line when they print it.
_SOON = {"PYTHONUNBUFFERED": "1"}
#: Exit code of argparse, click and most other programs for arguments that they do not accept.
_USAGE_ERROR = 2
#: Environment variables that sweep sets itself, so that no setting may have their names.
_OWN_VARIABLES = frozenset({"SWEEP_SEED", "SWEEP_SAVE", "SWEEP_FOLDER", "SWEEP_CHECKPOINT"})
#: Longest wait for the end of the error output, seconds.
_ERRORS_S = 1.0


def _split_command(command: Any) -> Any:
    """Return a command as a tuple of words; text is split as a shell does.

    Values that are neither text nor list are returned unchanged. Raises ValueError for text with a
    quote that is not closed.
    """
    if isinstance(command, str):
        return tuple(shlex.split(command))
    return tuple(command) if isinstance(command, list) else command


def _check_pattern(pattern: str) -> str:
    """Return a regular expression that has named groups; WrongKey if it has none, or is invalid."""
    try:
        names = re.compile(pattern).groupindex
    except re.error as error:
        problem = f"{shorten(pattern)} is not a regular expression: {error}"
        raise settings_.WrongKey((), pattern, problem=problem) from error
    if not names:
        problem = f"{shorten(pattern)} has no named groups, which become results"
        hint = "name them, for example loss=(?P<loss>\\S+)"
        raise settings_.WrongKey((), pattern, hint=hint, problem=problem)
    return pattern


class CommandConfig(Settings):
    """Settings of a trial that is an external program; all other settings are the program's own."""

    command: Annotated[
        tuple[str, ...],
        BeforeValidator(_split_command, json_schema_input_type=str | tuple[str, ...]),
    ] = Field(
        min_length=1,
        description="Program and its arguments, as a list or in the syntax of a shell.",
    )
    settings: Literal["arguments", "overrides", "environment", "stdin"] = Field(
        "arguments",
        description="Form in which the program receives the trial's settings: arguments --lr=0.1, "
        "overrides lr=0.1 (as Hydra reads them), variables SWEEP_lr of the environment, or a line "
        "of JSON on standard input.",
    )
    booleans: Literal["value", "flag", "flag_or_no"] = Field(
        "value",
        description="With arguments, form of booleans: --use-bn=true (value); --use-bn or nothing "
        "(flag), as argparse's store_true; --use-bn or --no-use-bn (flag_or_no).",
    )

    seed_as: str | None = Field(
        None,
        min_length=1,
        description="Name under which the program also receives the trial's seed as a setting, a "
        "number below 2**31.",
    )
    pattern: Annotated[str, AfterValidator(_check_pattern)] | None = Field(
        None,
        description="Regular expression with named groups. Each line of output that contains it is "
        "a result: the number in group NAME is the result NAME.",
    )
    checkpoints: bool | None = Field(
        None,
        description="False if the program never reports a checkpoint: its trials can then be ended "
        "at any result, by schedulers that pause none. Default: false with pattern, else true.",
    )

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "CommandConfig":
        """Return the part of a trial's settings that says how to run its program.

        Raises ConfigError if ``command`` is missing, invalid, or names no program on this machine,
        and for settings whose names cannot be passed as variables.
        """
        own = {key: config[key] for key in cls.model_fields if key in config}
        if "command" not in own:
            hint = "set it to a program and its arguments, for example [python, train.py]"
            raise ConfigError("command", None, hint=hint, problem="is missing")
        found = settings_.parse(cls, own)
        if shutil.which(found.command[0]) is None:
            problem = f"there is no program {shorten(found.command[0])} that can be run"
            hint = "give its path, or install it in a folder of PATH"
            raise ConfigError("command", found.command[0], hint=hint, problem=problem)
        if found.settings == "environment":
            _check_variables(_own_settings(config))
        return found


def _train(config: dict[str, Any]) -> None:
    """Run the program, and report each result that it prints as an iteration.

    A training function: blocks until the program ends, and pauses at each report. The entry
    ``checkpoint`` of a result is data, or True for the files in the folder ``SWEEP_SAVE``. Lines
    that are no results are printed to the trial's log; after each checkpoint the program is sent an
    empty line. Raises TrainableError if the program failed, and
    NoResult if it ended without a result.
    """
    reports, logdir, pattern = 0, get_context().logdir, config.get("pattern")
    other = ""  # the last line that is no result
    with (
        temporary_folder(logdir) as before,
        temporary_folder(logdir) as folder,
        _running_program(config, Path(folder), _unpack_checkpoint(Path(before))) as (
            process,
            errors,
        ),
        contextlib.closing(_lines(process)) as lines,
    ):
        assert process.stdin is not None  # noqa: S101 it is a pipe
        for line in lines:
            result = _result(line)
            if result is None and pattern is not None:
                result = _named_numbers(re.search(pattern, line))
            if result is None:
                print(line, end="", flush=True)  # noqa: T201 into the trial's log
                other = line.strip() or other
                continue
            reports += 1
            saved = result.pop("checkpoint", None)
            report(result, checkpoint=folder if saved is True else saved or None)
            if saved:
                with contextlib.suppress(OSError):  # the program may have closed its input
                    process.stdin.write("\n")
                    process.stdin.flush()
        code = process.wait()
    name = shorten(config["command"])
    if code:
        hint = _hint_at_booleans(config, code)
        raise TrainableError(f"{name} {_describe_end(code)}{hint}{errors.last_lines()}")
    if not reports:
        raise NoResult(f"{name} {_no_result(pattern, other)}{errors.lines_below()}")


def _lines(process: "subprocess.Popen[str]") -> Generator[str, None, None]:
    """Yield the lines that a program prints, up to its end.

    Blocks until there is one. Each ends with a newline, except perhaps the last. Processes that the
    program leaves behind may keep its output open, so the end of the program ends the lines, as the
    end of the output does.
    """
    assert process.stdout is not None  # noqa: S101 it is a pipe
    output, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder("utf-8")("replace"), translate=True
    )
    poll, partial, is_over = select.poll(), "", False
    poll.register(output, select.POLLIN)
    poll.register(ended, select.POLLIN)
    try:
        while not is_over:
            ready = {descriptor for descriptor, _ in poll.poll()}
            # After the program's end, all of its remaining output is in the pipe.
            most = _count_readable(output) if ended in ready else _MOST_BYTES
            written = os.read(output, most) if most and (output in ready) else b""
            is_over = ended in ready or not written
            *whole, partial = (partial + decoder.decode(written, final=is_over)).split("\n")
            yield from (f"{line}\n" for line in whole)
        if partial:
            yield partial
    finally:
        os.close(ended)


def _count_readable(pipe: int) -> int:
    """Return the number of bytes that can be read from a pipe now."""
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def _describe_end(code: int) -> str:
    """Return how the program ended, in words, for an error message.

    A negative `code` is that of a signal.
    """
    if code < 0:
        with contextlib.suppress(ValueError):  # a signal that has no name
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _no_result(pattern: str | None, last: str) -> str:
    """Return the words for a program that succeeded without printing a result.

    `last` is the last line of its output that is not empty; "" without one.
    """
    if not last:
        return "ended without a result: it printed nothing"
    wanted = "is a JSON object"
    if pattern is not None:
        wanted = f"has numbers where pattern {shorten(pattern, 200)} has groups"
    return (
        f"ended without a result: no line of its output {wanted}; the last line is {shorten(last)}"
    )


def _hint_at_booleans(config: Mapping[str, Any], code: int) -> str:
    """Return a hint at the setting ``booleans``, if a program's exit code points to a refused flag.

    Returns "" otherwise.
    """
    program = CommandConfig.of(config)
    if code != _USAGE_ERROR or (program.settings, program.booleans) != ("arguments", "value"):
        return ""
    passed = _arguments(_own_settings(config), program.booleans)
    argument = next((word for word in passed if word.endswith(("=true", "=false"))), "")
    if not argument:
        return ""
    return (
        f" (it got {argument}; if that is a flag without a value, set booleans: flag, or "
        "flag_or_no for --no-…)"
    )


class _ErrorOutput:
    """A thread that copies a program's standard error to the trial's log, and keeps the last bytes.

    Processes that the program leaves behind may keep the pipe open, so nothing waits for its end.
    """

    def __init__(self) -> None:
        self._last_bytes = b""
        self._reads, self.writes = os.pipe()
        self._log = os.dup(2)
        self._thread = threading.Thread(target=self._copy, name="standard error", daemon=True)

    def follow(self) -> None:
        """Start the thread that copies, and close this process's copy of the program's end.

        To be called once, after the program's start.
        """
        os.close(self.writes)
        self._thread.start()

    def close(self) -> None:
        """Close all files, in place of `follow`, if the program did not start."""
        for file in (self._reads, self.writes, self._log):
            os.close(file)

    def _copy(self) -> None:
        """Copy the standard error to the log, up to its end; the thread's main function.

        Keeps the last `_LONGEST_END` bytes.
        """
        try:
            while written := os.read(self._reads, 65536):
                self._last_bytes = (self._last_bytes + written)[-_LONGEST_END:]
                with contextlib.suppress(OSError):  # the disk is full
                    os.write(self._log, written)
        finally:
            os.close(self._reads)
            os.close(self._log)

    def last_lines(self) -> str:
        """Return the end of an error message: the very last line, then `lines_below`.

        Returns a hint to the log if there are none. To be called after the program's end.
        """
        below = self.lines_below()
        last = below.rpartition("\n")[2].strip()
        return f": {last}{below}" if below else "; see the trial's log"

    def lines_below(self) -> str:
        """Return the last lines that the program wrote, below a heading; empty if there are none.

        At most `_LAST_LINES`, without empty ones. Waits up to `_ERRORS_S` seconds for the end of
        the error output; to be called after the program's end.
        """
        self._thread.join(_ERRORS_S)
        lines = self._last_bytes.decode(errors="replace").splitlines()
        kept = [printable(line.rstrip()[:_LONGEST_LINE]) for line in lines if line.strip()]
        below = "".join(f"\n  {line}" for line in kept[-_LAST_LINES:])
        return f"\nThe last lines of its error output:{below}" if kept else ""


class Command(FunctionTrainable):
    """A Trainable whose iterations are results that an external program prints as JSON lines."""

    function = staticmethod(_train)  # type: ignore[assignment]  # mypy thinks it is bound
    saves = True
    exactness = "as the command saves"
    config_class = CommandConfig

    @classmethod
    def can_save(cls, config: Mapping[str, Any] | None = None) -> bool:
        """Return whether the program may report checkpoints, by the setting ``checkpoints``.

        If that is not set, True unless ``pattern`` is.
        """
        said = (config or {}).get("checkpoints")
        return (config or {}).get("pattern") is None if said is None else bool(said)

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for a command that is missing, invalid, or not on this machine."""
        CommandConfig.of(config)


def _unpack_checkpoint(folder: Path) -> dict[str, str]:
    """Return the environment variable that tells the program the folder of its last checkpoint.

    The result is empty without a checkpoint. A checkpoint that is data is written to `folder`.
    """
    saved = get_checkpoint()
    if saved is None:
        return {}
    if isinstance(saved, str):
        return {"SWEEP_CHECKPOINT": saved}
    (folder / "checkpoint.json").write_text(json.dumps(saved), encoding="utf-8")
    return {"SWEEP_CHECKPOINT": str(folder)}


@contextlib.contextmanager
def _running_program(
    config: Mapping[str, Any], folder: Path, variables: Mapping[str, str]
) -> Iterator[tuple["subprocess.Popen[str]", _ErrorOutput]]:
    """Start the program of a trial; kill it and its descendants at the end of the block.

    Yields the process and its standard error, which a thread copies to the log. The program gets
    its settings in the form that the spec names, and runs in a session of its own. `folder` is for
    the program's checkpoints, `variables` are further environment variables. Raises ConfigError if
    the command cannot be run, or not with these settings.
    """
    program = CommandConfig.of(config)
    words = [str(shutil.which(program.command[0])), *program.command[1:]]
    settings, first, context = _own_settings(config), "", get_context()
    env = {**_SOON, **os.environ, "SWEEP_SEED": str(context.seed), "SWEEP_SAVE": str(folder)}
    env["SWEEP_FOLDER"] = str(context.logdir or Path.cwd())
    if program.seed_as is not None:
        settings[program.seed_as] = context.seed % 2**31
    if program.settings == "arguments":
        words += _arguments(settings, program.booleans)
    elif program.settings == "overrides":
        words += [f"{name}={_quoted(value)}" for name, value in _flatten(settings)]
    elif program.settings == "environment":
        env |= {_variable(name): _to_text(value) for name, value in _flatten(settings)}
    else:
        first = json.dumps(settings) + "\n"
    errors = _ErrorOutput()
    try:
        process = subprocess.Popen(  # noqa: S603 the program that the spec names
            guard_command(words),
            env={**env, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors.writes,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C must reach the driver only, which lets trials save
        )
    except (OSError, ValueError) as error:
        errors.close()
        if isinstance(error, OSError) and error.errno != errno.E2BIG:  # as without memory
            raise
        reason = getattr(error, "strerror", None) or error
        problem = f"the program cannot be started with these settings: {reason}"
        hint = "set settings: stdin, which sends them to the program as JSON"
        given = list(program.command)
        raise ConfigError("command", given, hint=hint, problem=problem) from error
    try:
        errors.follow()
        assert process.stdin is not None  # noqa: S101 it is a pipe
        with contextlib.suppress(OSError):
            process.stdin.write(first)
            process.stdin.flush()
        yield process, errors
    finally:
        kill_family(process.pid)
        with contextlib.suppress(OSError):
            process.__exit__(None, None, None)


def _own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the program's own settings, without those of `CommandConfig`."""
    return {key: value for key, value in config.items() if key not in CommandConfig.model_fields}


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of all settings, with dots in the names of nested ones.

    `prefix` begins all names: that of the mapping that contains them, with a dot; empty at the top.
    An empty mapping is a value itself.
    """
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _variable(name: str) -> str:
    """Return the environment variable for a setting with this dotted name."""
    return f"SWEEP_{name.replace('.', '_')}"


def _check_variables(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a setting whose environment variable is sweep's, or another's."""
    hint = "rename it, or pass the settings in another way: settings: arguments"
    taken: dict[str, str] = {}
    for name, value in _flatten(settings):
        variable = _variable(name)
        if variable in _OWN_VARIABLES:
            problem = f"cannot be passed as the variable {variable}, which sweep sets itself"
            raise ConfigError(name, value, hint=hint, problem=problem)
        if variable in taken:
            problem = f"cannot be passed as the variable {variable}, which {taken[variable]} uses"
            raise ConfigError(name, value, hint=hint, problem=problem)
        taken[variable] = name


def _to_text(value: Any) -> str:
    """Return text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


#: Pattern of text that Hydra reads as it is, except `_WORDS`.
_BARE = re.compile(r"[A-Za-z_/][\w./-]*")
#: Words that Hydra does not read as text.
_WORDS = frozenset({"true", "false", "null", "none", "nan", "inf", "yes", "no", "on", "off"})


def _quoted(value: Any) -> str:
    """Return a value for Hydra's overrides: text, quoted where Hydra needs it, else JSON."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _BARE.fullmatch(value) and value.lower() not in _WORDS:
        return value
    doubled = re.sub(r"(\\+)(?='|$)", r"\1\1", value)  # backslashes before a quote
    return "'" + doubled.replace("'", "\\'") + "'"


def _arguments(config: Mapping[str, Any], booleans: str) -> Iterator[str]:
    """Yield the settings as arguments of a command line: ``--name=value``, dotted if nested.

    `booleans` is the setting for the form of bools: ``value`` as other values, ``flag`` as
    ``--name`` for True and nothing for False, ``flag_or_no`` as ``--name`` and ``--no-name``.
    """
    for name, value in _flatten(config):
        if booleans == "value" or not isinstance(value, bool):
            yield f"--{name}={_to_text(value)}"
        elif value:
            yield f"--{name}"
        elif booleans == "flag_or_no":
            yield f"--no-{name}"


def _named_numbers(match: re.Match[str] | None) -> dict[str, Any] | None:
    """Return name → number of the groups of a match that are numbers; None if there are none.

    Groups of digits alone are ints, others floats, perhaps NaN or infinite.
    """
    numbers: dict[str, Any] = {}
    for name, text in (match.groupdict() if match else {}).items():
        with contextlib.suppress(ValueError):  # a group that is not a number, or absent
            numbers[name] = int(text) if (text or "").isdecimal() else float(text or "")
    return numbers or None


def _result(line: str) -> dict[str, Any] | None:
    """Return the JSON object in a line that the program printed; None for any other line."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return None
    return found if isinstance(found, dict) else None
