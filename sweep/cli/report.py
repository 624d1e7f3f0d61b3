"""The commands that draw a sweep: a page to look at and to send, and curves in the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import completion, options

if TYPE_CHECKING:
    from sweep.ledger.folder import Folder
    from sweep.views.lookup import Sweep

#: Least seconds between two pages of a sweep that runs; more where making one takes long.
WATCH_S = 10.0


@click.command()
@completion.name_argument
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it; default: ./NAME.html.",
)
@click.option("--watch", is_flag=True, help="Write it anew until the sweep stops.")
@options.root_option
def report(name: str, out: Path | None, watch: bool, root: Path) -> None:
    """Write one HTML file: curves, importance, reasons."""
    import contextlib

    from sweep.report import page

    folder = options.find_sweep(root, name)
    path = out or Path(f"{name}.html")
    sweep, seconds = _write(folder, path, watch)
    click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    with contextlib.suppress(KeyboardInterrupt):
        while watch and page.runs(sweep):
            _wait(folder, max(WATCH_S, 5 * seconds))
            sweep, seconds = _write(folder, path, watch)
        return
    _write(folder, path, watch=False)  # nobody renews it any more


def _wait(folder: "Folder", seconds: float) -> None:
    """Wait so long, or until nobody drives the sweep."""
    import time

    from sweep.views import lookup

    until = time.monotonic() + seconds
    while time.monotonic() < until and lookup.is_driven(folder):
        time.sleep(0.5)


@click.command()
@completion.name_argument
@click.option(
    "--top", type=click.IntRange(1, 6), default=6, metavar="K", help="How many are in colour."
)
@options.sweep_options
def curves(name: str, top: int, root: Path, as_json: bool) -> None:
    """Draw the learning curves in the terminal, the best in colour."""
    from dataclasses import asdict

    from sweep.cli import tables
    from sweep.cli.terminal import terminal
    from sweep.report.curves import curves as curves_of
    from sweep.views import lookup

    with options.answering(as_json) as answer:
        sweep = lookup.read(options.find_sweep(root, name))
        found, objective = curves_of(sweep, top), sweep.history.objective
        named = {"name": name, "metric": objective.metric, "time_attr": objective.time_attr}
        screen = terminal()
        size = (min(screen.width, 120), screen.height) if screen.is_terminal else (80, 24)
        answer({**named, **asdict(found)}, lambda data: tables.curves(data, found, size))


def _write(folder: "Folder", path: Path, watch: bool) -> "tuple[Sweep, float]":
    """Write the page once; the sweep that it shows, and how long that took."""
    import time

    from sweep.report import page
    from sweep.views import lookup

    began = time.monotonic()
    sweep = lookup.read(folder)
    reload_s = WATCH_S if watch and page.runs(sweep) else 0.0
    page.write(path, page.build(sweep, time.time(), reload_s))
    return sweep, time.monotonic() - began
