"""The command line: commands, exit codes and error messages.

Exit codes: 0 done, or ended by `--timeout` or `sweep stop`, resumable · 1 some trials failed, or
none has a score at the end · 2 the user's mistake, one line, or what `doctor` found · 3 the sweep
is active elsewhere · 4 a disk or database failed · 5 our own error · 6 something is damaged · 129,
130, 143 ended by SIGHUP, SIGINT, SIGTERM, resumable.
"""

import atexit
import contextlib
import errno
import gc
import itertools
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from sweep.cli import check, completion, control, disk, export, results, train
from sweep.version import __version__, unsupported

MISTAKE, OUTSIDE, OWN_ERROR, INTERRUPTED = 2, 4, 5, 130
#: New objects after which Python looks for garbage in a command: what is imported and what a
#: history holds stays until the end, and to look after every 700 takes a tenth of the start's time.
GARBAGE_AFTER = 50_000


#: What a person wants to do → the commands for it.
_BY_PURPOSE = {
    "Train": (train.init, train.run, train.resume, check.validate, check.schema, check.check_env),
    "Look": (
        *(results.ls, results.status, results.results, results.best, results.show),
        *(results.explain, results.report, results.curves, export.play, export.ui),
    ),
    "Steer a running sweep": (
        *(control.stop, control.pause, control.unpause),
        *(control.clone, control.suggest, control.set_),
    ),
    "Take away": (export.export_model, results.export_schedule),
    "Look after": (
        *(check.doctor, check.verify, check.sync, disk.gc, disk.rm, export.trust),
        completion.completion,
    ),
}


#: What other programs call a command → ours.
_ELSEWHERE = {
    "watch": "status --watch",
    "runs": "ls",
    "trials": "results",
    "log": "show NAME TRIAL --log",
    "logs": "show NAME TRIAL --log",
    "plot": "curves",
    "retry": "resume NAME --retry-failed",
    "remove": "rm",
    "list": "ls",
    "start": "run",
    "kill": "stop",
    "delete": "rm",
    "dashboard": "ui",
}


#: Words of click's → what a person says.
_PLAINLY = {
    "a valid integer range": "a whole number",
    "a valid integer": "a whole number",
    "a valid float range": "a number",
    "a valid float": "a number",
}


class _ByPurpose(click.Group):
    """Lists its commands by what a person wants to do."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'; here it is `sweep {_ELSEWHERE[args[0]]}`")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for purpose, members in _BY_PURPOSE.items():
            room = formatter.width - width - 6
            with formatter.section(purpose):
                formatter.write_dl(
                    [(f"{c.name:<{width}}", c.get_short_help_str(room)) for c in members]
                )


@click.group(
    cls=_ByPurpose,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Find the settings with which a trainer learns best. Everything can be killed and resumed."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in itertools.chain(*_BY_PURPOSE.values()):
    commands.add_command(command)


def entry() -> int:
    """`main` as a process of its own, which ends when everything in it has ended.

    What is registered to be called at the end is called. What libraries left in memory is not freed
    piece by piece: after MLflow and torch that takes a second, and the system does it at once.
    """
    gc.set_threshold(GARBAGE_AFTER)
    # A command computes nothing large, and what trains in its process (`--pool inline`) has the one
    # thread that workers have, and so rounds as they do. numpy's threads, started with it, look for
    # work for a tenth of a second, on the core on which the first worker starts.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Where joblib finds no semaphores it says so at its import; who needs one meets an error.
    warnings.filterwarnings("ignore", ".*joblib will operate in serial mode", UserWarning)
    codes: list[int] = []
    atexit.register(_leave, codes)  # the first to be registered is the last to be called
    codes.append(main())
    return codes[0]


def _leave(codes: Sequence[int]) -> None:
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # the interpreter has its own answer to that
    if codes:
        os._exit(codes[0])


def _with_help(error: click.ClickException) -> str:
    """The message; behind what click itself finds, the command that says what is possible."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    for words, plain in _PLAINLY.items():
        message = message.replace(words, plain)
    return f"{message.removesuffix('.')}; see {context.command_path} --help" if context else message


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    with _open_streams():
        if why := unsupported():
            return _complain(why, MISTAKE)
        try:
            code = commands.main(
                None if arguments is None else list(arguments), "sweep", standalone_mode=False
            )
            sys.stdout.flush()  # an error at the interpreter's end would have no exit code of ours
            return code if isinstance(code, int) else 0
        except click.ClickException as error:
            return _complain(_with_help(error), MISTAKE)
        except (KeyboardInterrupt, click.Abort):
            return _complain("interrupted", INTERRUPTED)
        except BrokenPipeError:
            _silence_if_lost()
            return 0
        except Exception as error:  # noqa: BLE001 every error becomes an exit code
            if isinstance(error, OSError):
                _silence_if_lost()
            return _explain(error)


@contextlib.contextmanager
def _open_streams() -> Iterator[None]:
    """Standard output and error that take any character; those that are closed go nowhere."""
    with contextlib.ExitStack() as until:
        for name, number in (("stdout", 1), ("stderr", 2)):
            if getattr(sys, name) is None:
                file = os.fdopen(_nowhere(number), "w", encoding="utf-8")
                setattr(sys, name, until.enter_context(file))
                until.callback(setattr, sys, name, None)
            reconfigure = getattr(getattr(sys, name), "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        yield


def _nowhere(number: int) -> int:
    """A descriptor of the null device: `number` if it is free, which workers then inherit.

    Otherwise the next file that is opened would get it, and prints would go into that file.
    """
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_WRONLY)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        return number
    return os.open(os.devnull, os.O_WRONLY)


def _silence_if_lost() -> None:
    """Discard what cannot be written to standard output, or the interpreter fails on it again."""
    from sweep.cli.terminal import silence

    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)


def _explain(error: Exception) -> int:
    """One line for errors that were foreseen, a traceback for ours."""
    from sweep.errors import Mistakes, SweepError
    from trainables.errors import ConfigError, TrainableError

    if isinstance(error, Mistakes):
        return max(_complain(str(mistake), mistake.exit_code) for mistake in error.mistakes)
    if isinstance(error, SweepError):
        return _complain(str(error), error.exit_code)
    if isinstance(error, ConfigError):
        return max(_complain(str(mistake), MISTAKE) for mistake in error.all)
    if isinstance(error, TrainableError):
        return _complain(str(error), MISTAKE)
    if isinstance(error, PermissionError) and error.filename is not None:
        return _complain(_forbidden(os.fsdecode(error.filename)), OUTSIDE)
    if isinstance(error, OSError):
        return _complain(f"{error}{_remedy(error)}", OUTSIDE)
    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    return _complain(f"internal error: {type(error).__name__}: {error}", OWN_ERROR)


def _remedy(error: OSError) -> str:
    """Return the remedy of a system error whose text names none; empty if none is known."""
    is_short = error.errno in (errno.EMFILE, errno.ENFILE) and "ulimit" not in str(error)
    return "; allow more with `ulimit -n 1024`, or give fewer --jobs" if is_short else ""


def _forbidden(path: str) -> str:
    """Return words for a path that may not be used: its owner, and the remedy."""
    import pwd

    there = Path(path).absolute()
    while not os.path.exists(there):  # noqa: PTH110 Path.exists raises where nobody may look
        there = there.parent
    number = there.stat().st_uid
    if number == os.getuid():
        return f"{path}: you may not use it, but {there} is yours; `chmod u+rwX` on it helps"
    try:
        owner = pwd.getpwuid(number).pw_name
    except KeyError:  # of another machine, or of a container's outside
        owner = f"user {number}"
    return (
        f"{path}: you may not use it, as {there} belongs to {owner}; run this as {owner}, or let "
        f"them give you the right to write there"
    )


def _complain(message: str, code: int) -> int:
    from sweep.errors import brief
    from trainables.errors import printable

    with contextlib.suppress(OSError):
        click.echo(f"sweep: {brief(printable(' '.join(message.split())))}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(entry())
