"""The program: commands, exit codes and error messages.

Exit codes: 0 done, or ended by `--timeout` or `sweep stop`, resumable · 1 some trials failed, or
none has a score at the end · 2 the user's mistake, or a problem that `doctor` found · 3 the sweep
is active elsewhere · 4 a disk or database failed · 5 our own error · 6 something is damaged · 129,
130, 143 ended by SIGHUP, SIGINT, SIGTERM, resumable.
"""

import atexit
import contextlib
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
from sweep.core.version import __version__, unsupported

MISTAKE, STORAGE_FAILED, OWN_ERROR, INTERRUPTED = 2, 4, 5, 130
#: New objects between two garbage collections. Imported code and the history stay until the end,
#: and collecting after every 700 objects takes a tenth of the start's time.
GARBAGE_AFTER = 50_000


#: Purpose → its commands, as listed by ``--help``.
_PURPOSES = {
    "Train": (train.init, train.run, train.resume, check.validate, check.schema, check.check_env),
    "Show": (
        *(results.ls, results.status, results.results, results.best, results.show),
        *(results.explain, results.report, results.curves, export.play, export.ui),
    ),
    "Control a running sweep": (
        *(control.stop, control.pause, control.unpause),
        *(control.clone, control.suggest, control.set_, control.mcp_),
    ),
    "Export": (export.export_model, results.export_schedule),
    "Maintain": (
        *(check.doctor, check.verify, check.sync, disk.gc, disk.rm, export.trust),
        completion.completion,
    ),
}


#: Name of a command in other programs → our command.
_OTHER_NAMES = {
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


#: Phrase in click's messages → plainer phrase.
_PLAIN_WORDS = {
    "a valid integer range": "a whole number",
    "a valid integer": "a whole number",
    "a valid float range": "a number",
    "a valid float": "a number",
}


class _GroupedCommands(click.Group):
    """The group of all commands, whose help lists them by purpose."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command in `args`; an error names ours if the name is another program's."""
        if args[0] in _OTHER_NAMES:
            ctx.fail(f"No such command '{args[0]}'; use `sweep {_OTHER_NAMES[args[0]]}`")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each purpose below a heading."""
        width = max(map(len, self.commands))
        for purpose, members in _PURPOSES.items():
            room = formatter.width - width - 6
            with formatter.section(purpose):
                formatter.write_dl(
                    [(f"{c.name:<{width}}", c.get_short_help_str(room)) for c in members]
                )


@click.group(
    cls=_GroupedCommands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Find the settings with which a trainer learns best. Every sweep can be killed and resumed."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in itertools.chain(*_PURPOSES.values()):
    commands.add_command(command)


def entry() -> int:
    """Run `main` as a process that ends as soon as its exit handlers have run; return its code.

    The memory of libraries is not freed piece by piece, which takes a second after MLflow and
    torch. Makes garbage collections rarer, and sets OPENBLAS_NUM_THREADS to 1 unless it is set.
    """
    gc.set_threshold(GARBAGE_AFTER)
    # Training in this process (`--pool inline`) uses one thread, as workers do, so it rounds like
    # them. numpy's other threads would poll for work on the core where the first worker starts.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # joblib warns at import if there are no semaphores; code that needs one raises an error.
    warnings.filterwarnings("ignore", ".*joblib will operate in serial mode", UserWarning)
    codes: list[int] = []
    atexit.register(_exit_at_once, codes)  # handlers are called in reverse order, so this is last
    codes.append(main())
    return codes[0]


def _exit_at_once(codes: Sequence[int]) -> None:
    """Flush the output, and end the process with the exit code in `codes`, if there is one.

    If the output cannot be flushed, the process is left to the interpreter, which reports that.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # the interpreter reports it
    if codes:
        os._exit(codes[0])


def _with_help(error: click.ClickException) -> str:
    """Return an error's message in plain words, with the --help command to run, if known."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    for words, plain in _PLAIN_WORDS.items():
        message = message.replace(words, plain)
    if not context:
        return message
    help_command = f"{context.command_path} --help"
    if message.endswith("?"):
        return f"{message} See {help_command}"
    return f"{message.removesuffix('.')}; see {help_command}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments`, by default those of the process; return the exit code.

    Every error is printed on standard error and becomes an exit code; none is raised.
    """
    with _open_streams():
        if why := unsupported():
            return _print_error(why, MISTAKE)
        try:
            code = commands.main(
                None if arguments is None else list(arguments), "sweep", standalone_mode=False
            )
            sys.stdout.flush()  # an error at the interpreter's exit would change the exit code
            return code if isinstance(code, int) else 0
        except click.ClickException as error:
            return _print_error(_with_help(error), MISTAKE)
        except (KeyboardInterrupt, click.Abort):
            return _print_error("interrupted", INTERRUPTED)
        except BrokenPipeError:
            _silence_if_lost()
            return 0
        except Exception as error:  # noqa: BLE001 every error becomes an exit code
            if isinstance(error, OSError):
                _silence_if_lost()
            return _report_error(error)


@contextlib.contextmanager
def _open_streams() -> Iterator[None]:
    """Make standard output and error accept any character; open the null device if closed.

    A stream that was closed (None) is None again after the block.
    """
    with contextlib.ExitStack() as until:
        for name, number in (("stdout", 1), ("stderr", 2)):
            if getattr(sys, name) is None:
                file = os.fdopen(_open_null(number), "w", encoding="utf-8")
                setattr(sys, name, until.enter_context(file))
                until.callback(setattr, sys, name, None)
            reconfigure = getattr(getattr(sys, name), "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        yield


def _open_null(number: int) -> int:
    """Open the null device for writing, and return its descriptor: `number` if that is closed.

    If `number` stayed closed, the next opened file would get it, and with it all output.
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
    """Discard buffered output if it cannot be written, before the interpreter fails on it."""
    from sweep.cli.terminal import silence

    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)


def _report_error(error: Exception) -> int:
    """Print one line for an expected error, a traceback for any other; return the exit code.

    Of several mistakes in one error, each gets a line, and the highest exit code is returned.
    """
    from sweep.core.errors import Mistakes, SweepError, remedy
    from trainables.errors import ConfigError, TrainableError

    if isinstance(error, Mistakes):
        return max(_print_error(str(mistake), mistake.exit_code) for mistake in error.mistakes)
    if isinstance(error, SweepError):
        return _print_error(str(error), error.exit_code)
    if isinstance(error, ConfigError):
        return max(_print_error(str(mistake), MISTAKE) for mistake in error.mistakes)
    if isinstance(error, TrainableError):
        return _print_error(str(error), MISTAKE)
    if isinstance(error, PermissionError) and error.filename is not None:
        return _print_error(_describe_permission(os.fsdecode(error.filename)), STORAGE_FAILED)
    if isinstance(error, OSError):
        todo = remedy(error)
        return _print_error(f"{error}; {todo}" if todo else str(error), STORAGE_FAILED)
    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    said = f"internal error: {type(error).__name__}: {error}; report it with the traceback above"
    return _print_error(said, OWN_ERROR)


def _describe_permission(path: str) -> str:
    """Return a message about a path that may not be used, with its owner and a remedy."""
    import pwd

    existing = Path(path).absolute()
    while not os.path.exists(existing):  # noqa: PTH110 Path.exists raises where nobody may look
        existing = existing.parent
    number = existing.stat().st_uid
    if number == os.getuid():
        return f"{path}: permission denied; {existing} is yours, so run `chmod u+rwX` on it"
    try:
        owner = pwd.getpwuid(number).pw_name
    except KeyError:  # a user of another machine, or outside of this container
        owner = f"user {number}"
    return (
        f"{path}: permission denied; {existing} belongs to {owner}; run this as {owner}, or ask "
        f"them for write permission"
    )


def _print_error(message: str, code: int) -> int:
    """Print a message as one line on standard error, if that is still open, and return `code`."""
    from sweep.core.errors import shorten_message
    from trainables.errors import printable

    with contextlib.suppress(OSError):
        click.echo(f"sweep: {shorten_message(printable(' '.join(message.split())))}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(entry())
