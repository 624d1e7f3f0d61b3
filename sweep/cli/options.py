"""Options and output functions that several commands share.

Large modules are imported inside the commands, so that ``--help`` is quick.
"""

import atexit
import contextlib
import csv
import io
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from sweep.ledger.folder import Folder
    from sweep.spec import Override, SweepSpec

F = TypeVar("F", bound=Callable[..., Any])
#: ``answer(data, renderer)`` prints data as JSON or as the renderer's text.
Answer = Callable[[Any, Callable[[Any], Any]], None]


def check_waitable(
    _context: click.Context, _option: click.Parameter, value: float | None
) -> float | None:
    """Check an option's number of seconds, as a callback of click, and return it; None is allowed.

    Raises BadParameter if timers do not accept it, since it is too large or NaN.
    """
    if value is not None and not value <= threading.TIMEOUT_MAX:  # FloatRange accepts NaN
        longest = f"at most {threading.TIMEOUT_MAX:.0f}"
        raise click.BadParameter(f"cannot wait {value:g} seconds; give {longest} seconds.")
    return value


def check_parent(_context: click.Context, _option: object, value: Path | None) -> Path | None:
    """Check that the folder of a file to write exists, as a callback of click; return the file.

    None is allowed. Raises BadParameter if the folder does not exist.
    """
    if value is not None and not value.parent.is_dir():
        raise click.BadParameter(f"there is no folder {str(value.parent)!r}; create it first.")
    return value


root_option = click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("sweeps"),
    metavar="DIR",
    help="Folder of all sweeps; default: ./sweeps.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead."
)


csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")


def sweep_options(command: F) -> F:
    """Add the options ``--root`` and ``--json``, after all others; a decorator of commands."""
    return root_option(json_option(command))


jobs_option = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="SLOTS",
    help="Number of concurrent trials; default: as in the sweep's last run, or as many as the "
    "cores can take.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    callback=check_waitable,
    metavar="SECONDS",
    help="Save and stop after this time; the sweep can be resumed.",
)


def wait_option(seconds: float, subject: str) -> Callable[[F], F]:
    """Return the option ``--wait`` with the default `seconds`; its help names the `subject`."""
    return click.option(
        "--wait",
        type=click.FloatRange(min=0),
        callback=check_waitable,
        default=seconds,
        metavar="SECONDS",
        help=f"How long to wait for {subject}; default: {seconds:g}.",
    )


def pool_options(command: F) -> F:
    """Add the options ``--pool`` and ``--address``; a decorator of commands.

    `pool` combines their values.
    """
    for option in (
        click.option(
            "--address",
            metavar="ADDRESS",
            help="Address of the cluster's scheduler, such as tls://node-1:8786 (dask) or "
            "node-1:6379 (ray); default: as in the last run.",
        ),
        click.option(
            "--pool",
            metavar="NAME",
            help="Pool in which trials run: loky (several processes), inline (this process), "
            "stack (one program that trains several trials), dask or ray (a cluster, see "
            "--address) or your own pool; default: as in the last run, or loky.",
        ),
    ):
        command = option(command)
    return command


def pool(options_given: dict[str, Any]) -> str | None:
    """Combine the values of ``--pool`` and ``--address`` to ``NAME@ADDRESS`` or ``NAME``.

    Returns None if neither was given; ``@ADDRESS`` if only the address was given. Raises BadConfig
    if one of them is empty, for example because of an unset shell variable.
    """
    from sweep.core.errors import BadConfig

    for key, allowed in (("pool", "the name of a pool"), ("address", "an address")):
        if options_given[key] is not None and not options_given[key].strip():
            raise BadConfig(f"--{key}", options_given[key], allowed, f"or leave --{key} out")
    return (
        f"{options_given['pool'] or ''}@{options_given['address']}"
        if options_given["address"]
        else options_given["pool"]
    )


def service_options(command: F) -> F:
    """Add the options ``--tracking-uri``, ``--storage`` and ``--checkpoints``; a decorator."""
    for option in (
        click.option(
            "--checkpoints",
            metavar="URL",
            help="A folder in object storage for the checkpoints, such as s3://bucket/prefix.",
        ),
        click.option(
            "--storage",
            metavar="URL",
            envvar="SWEEP_STORAGE",
            help="PostgreSQL database for the sweep's records instead of a file, as "
            "postgresql+psycopg://HOST/DATABASE; also read from the environment variable "
            "SWEEP_STORAGE.",
        ),
        click.option(
            "--tracking-uri",
            metavar="URI",
            envvar="SWEEP_TRACKING_URI",
            help="MLflow server instead of ROOT/mlflow.db; also read from the environment "
            "variable SWEEP_TRACKING_URI.",
        ),
    ):
        command = option(command)
    return command


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a setting in the file, such as config.gamma=0.9.",
)
budget_option = click.option(
    "--budget",
    "budget",
    multiple=True,
    metavar="KEY=NUMBER",
    help="Change a value in the budget, such as time_s=7200.",
)
max_disk_option = click.option(
    "--max-disk", metavar="SIZE", help="Change the size limit for checkpoints, such as 40GB."
)


def override_options(command: F) -> F:
    """Add the options that change keys of a spec, such as ``--set``; a decorator of commands."""
    for option in (
        click.option("--trials", type=int, metavar="N", help="Total number of trials."),
        click.option("--seed", type=int, metavar="S", help="Seed of all random numbers."),
        click.option("--name", metavar="NAME", help="Name of the sweep."),
        set_option,
    ):
        command = option(command)
    return command


class SpaceCommand(click.Command):
    """Class of commands with a search space as argument; their help lists the shipped ones."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the shipped search spaces after the options."""
        names = sorted(file.name for file in resources.files("search_spaces").iterdir())
        with formatter.section("Shipped search spaces"):
            shipped = [name for name in names if name.endswith(".yaml")]
            formatter.write_text(", ".join(name.removesuffix(".yaml") for name in shipped))
        super().format_epilog(ctx, formatter)


def overrides(options_given: dict[str, Any]) -> "list[Override]":
    """Return the overrides from the options of `override_options`, those of ``--set`` first.

    Raises BadConfig if one of ``--set`` is not ``KEY=VALUE`` with a value in YAML.
    """
    from sweep.spec import Override

    named = [
        (key, options_given[key])
        for key in ("trials", "seed", "name")
        if options_given[key] is not None
    ]
    settings = [Override.parse(text) for text in options_given["settings"]]
    return [*settings, *(Override.of_option(key, value) for key, value in named)]


def read_once(texts: Sequence[str], option: str, example: str) -> dict[str, Any]:
    """Parse values of an option that are ``KEY=VALUE``; return key → value.

    `option` and `example` are for messages. Raises BadConfig if one is not ``KEY=VALUE`` with a
    value in YAML, and click.UsageError if a key is given twice.
    """
    from sweep.spec import Override

    read: dict[str, Any] = {}
    for override in (Override.parse(text, option, example) for text in texts):
        if override.path in read:
            raise click.UsageError(f"{override.path} is given twice; give each key once")
        read[override.path] = override.value
    return read


def read_stop(texts: Sequence[str]) -> dict[str, Any]:
    """Parse the values of the option ``--stop``, such as ``timesteps_total=200000``.

    Returns criterion → new value; it is not checked that the criterion exists. Raises BadConfig for
    a text that is not ``KEY=VALUE`` with a value in YAML, and click.UsageError if a key is given
    twice.
    """
    return read_once(texts, "--stop", "timesteps_total=200000")


def read_budget(options_given: dict[str, Any]) -> dict[str, Any]:
    """Parse the options ``--budget`` and ``--max-disk``, as fields of `Launch`.

    They are ``budget``, key → new value, and ``max_disk``, bytes or None. Raises BadConfig for an
    invalid value, and click.UsageError if a key is given twice.
    """
    from sweep.core.errors import Place, Source
    from sweep.spec import Budget, CheckpointPolicy
    from sweep.spec.validation import validate

    changes = read_once(options_given["budget"], "--budget", "time_s=7200")
    said = Source(marks={(): Place("--budget")})
    Budget().with_changes(changes, said)
    size = {"max_disk": options_given["max_disk"]}
    policy = validate(CheckpointPolicy, size, Source(marks={(): Place("--max-disk")}))
    return {"budget": changes, "max_disk": policy.max_disk}


@contextlib.contextmanager
def open_answer(
    as_json: bool, as_csv: bool = False, columns: Sequence[str] = ()
) -> Iterator[Answer]:
    """Yield the function ``answer(data, renderer)``, which prints the command's answer.

    It prints JSON, CSV or the renderer's text. With JSON, all other output goes to standard error
    until then, also that of child processes and of libraries in C. With JSON or CSV, so does the
    output at the exit. In JSON, NaN and infinity are null. If a renderer returns a string, its
    lines are not wrapped.

    Args:
        columns: first columns of the CSV, even without rows.

    Raises:
        UsageError: JSON and CSV were both requested.
        StorageError: the answer cannot be written, for any reason except a closed pipe.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be used together; give only one of them")
    from sweep.cli.terminal import Terminal, unwrapped
    from sweep.core.errors import StorageError, with_remedy
    from trainables.errors import printable

    stream, until_answered = sys.stdout, contextlib.ExitStack()

    def answer(data: Any, renderer: Callable[[Any], Any]) -> None:
        """Print a command's data in the chosen form; `renderer` makes a table of it."""
        until_answered.close()
        terminal = Terminal(stream)
        if as_json or as_csv:
            if as_csv:
                written = csv_text(data, columns)
            else:  # NaN and infinity become null
                written = json.dumps(_finite(data), allow_nan=False, indent=2)
            if terminal.is_terminal:  # control characters in the data must not reach a terminal
                written = "\n".join(map(printable, written.split("\n")))
            terminal.file.write(written.rstrip("\n") + "\n")
            terminal.file.flush()
            atexit.register(_divert_output)  # this runs before what a trainable has registered
        else:
            shown = renderer(data)
            terminal.show(unwrapped(shown) if isinstance(shown, str) else shown)
        if terminal.failure is not None and not isinstance(terminal.failure, BrokenPipeError):
            failed = with_remedy(terminal.failure)
            raise StorageError(f"the answer could not be written to standard output: {failed}")

    aside = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with aside, until_answered:
        if as_json:
            until_answered.enter_context(_redirect_descriptor(stream))
        yield answer


@contextlib.contextmanager
def _redirect_descriptor(stream: TextIO) -> Iterator[None]:
    """Redirect descriptor 1, which child processes inherit, to standard error inside the block.

    `stream` is the standard output.
    """
    stream.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # text in its buffer is not part of the answer
            stream.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _divert_output() -> None:
    """Redirect all further output of this process to standard error; runs at its exit.

    Does nothing if one of the two is closed.
    """
    with contextlib.suppress(OSError, ValueError):  # one of them is closed
        sys.stdout.flush()
        os.dup2(2, 1)


def _finite(data: Any) -> Any:
    """Return nested data with None in place of each number that is not finite; tuples as lists."""
    from sweep.views import formatting

    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return formatting.finite(data)


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Return rows as CSV with a header; nested mappings become columns ``outer/inner``.

    Columns named in `columns` come first, and exist even without rows. A column ``outer`` is left
    out if it has no values, and there are columns ``outer/…``. Lists and booleans are written as
    JSON, missing values are empty.
    """
    flat = [dict(_flatten(row)) for row in rows]
    names = dict.fromkeys(itertools.chain(columns, *flat))
    outer = {name[:end] for name in names for end, sign in enumerate(name) if sign == "/"}
    empty = {name for name in outer if all(row.get(name) is None for row in flat)}
    head = [name for name in names if name not in empty]
    text = io.StringIO()
    writer = csv.DictWriter(text, head, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flatten(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield column and value of each cell of a row; nested values have columns with ``/``.

    `before` is the beginning of the columns, empty at the top. Lists and booleans become JSON.
    """
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{before}{key}/")
        elif isinstance(value, list | bool):
            yield before + key, json.dumps(value)
        else:
            yield before + key, value


def say(text: str) -> None:
    """Print a message on standard error, if that is still open; errors of output are ignored."""
    with contextlib.suppress(OSError):
        click.echo(f"sweep: {text}", err=True)


#: Seconds between two lines of progress, and between two updates of the line on a terminal.
_EVERY_S, _REDRAWN_EVERY_S = 2.0, 0.5


@contextlib.contextmanager
def progress() -> Iterator[tuple[Callable[[str], None], float]]:
    """Yield a function that shows a text about progress, and the seconds to wait between calls.

    On a terminal the text is one line on standard error that is replaced, and removed after the
    block; otherwise each text is a line on standard error.
    """
    from rich.text import Text

    from sweep.cli.terminal import Terminal
    from trainables.errors import printable

    console = Terminal(sys.stderr)
    if not console.is_live:
        yield lambda text: say(printable(text)), _EVERY_S
        return
    with console.status("") as status:
        yield lambda text: status.update(Text(printable(text))), _REDRAWN_EVERY_S


#: Seconds after which a running import is reported.
IMPORT_S = 1.0


@contextlib.contextmanager
def announcing_imports(
    parsed: "Callable[[SweepSpec], None]" = lambda _spec: None,
) -> "Iterator[Callable[[SweepSpec], None]]":
    """Yield a function to call with the parsed spec, before its trainable is imported.

    It calls `parsed` with the spec. If the block has not ended `IMPORT_S` seconds later, a message
    on standard error says that packages are being imported.
    """
    timers: list[threading.Timer] = []

    def begin(spec: "SweepSpec") -> None:
        """Pass on the parsed spec; if the import takes `IMPORT_S` seconds, say so."""
        parsed(spec)
        said = f"importing {spec.trainable} and the packages that it needs"
        timer = threading.Timer(IMPORT_S, say, [said])
        timer.daemon = True
        timers.append(timer)
        timer.start()

    try:
        yield begin
    finally:
        for timer in timers:
            timer.cancel()


def find_sweep(root: Path, name: str) -> "Folder":
    """Return the folder of an existing sweep in `root`.

    Raises UnknownName if there is none of this name, and UsageError if one of its own files is a
    link or no regular file.
    """
    from sweep.ledger import folder

    return folder.find(root, name)
