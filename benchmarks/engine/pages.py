"""Measure the loading times of large sweeps' pages, report and MLflow, in a real Chromium.

    python -m benchmarks.engine.pages [--trials 500 5000] [--tracked 500 2000] [--pictures DIR]

The report's time ends when its first visible plots are drawn, and, in a second measurement, when
all plots are drawn one below the other. MLflow's times end when the table of trials, the parallel
coordinates and the curves are drawn. `--pictures` stores a screenshot of each. The sweeps have 100
results per trial and were never trained.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.engine import large
from sweep.driver.tracking import sync
from sweep.ledger.folder import Folder
from sweep.operations.report import page
from sweep.trackers._shared.mlflow_view import AT_FIRST
from sweep.views import lookup
from tests.support import browser
from tests.support.browser import Browser
from tests.support.command_line import environment
from tests.support.mlflow_server import await_health
from tests.support.ports import free_port

RESULTS = 100
"""Results of each trial."""
#: JavaScript that is true when the first plot of a report is drawn, and when all are.
FIRST = "document.querySelectorAll('.js-plotly-plot svg.main-svg').length"
ALL = "Number(document.documentElement?.dataset.drawn || 0)"
#: JavaScript for the number of curves that MLflow's page has drawn.
LINES = "document.querySelectorAll('.scatterlayer .trace').length"

Line = tuple[str, str]
"""A measurement and its result, both as text."""


def main() -> None:
    """Measure, and print each line as soon as its result is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--trials", type=int, nargs="*", default=[500, 5_000], help="trials of each report"
    )
    parser.add_argument(
        "--tracked", type=int, nargs="*", default=[500, 2_000], help="trials of each MLflow page"
    )
    parser.add_argument("--pictures", type=Path, help="folder for screenshots of the pages")
    given = parser.parse_args()
    program = browser.path()
    if program is None:
        parser.error("Chromium is not installed (apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="sweep-pages-") as place:
        for trials in given.trials:
            for line in report(program, Path(place), trials, given.pictures):
                print_line(line)
        for trials in given.tracked:
            for line in tracked(program, Path(place), trials, given.pictures):
                print_line(line)


def print_line(line: Line) -> None:
    """Print a row of the table."""
    sys.stdout.write(f"| {line[0]:75} | {line[1]:24} |\n")
    sys.stdout.flush()


def report(program: str, place: Path, trials: int, pictures: Path | None) -> Iterator[Line]:
    """Yield the times of creating a report, of drawing its first plots, and of drawing all."""
    folder = large.make(place, trials, RESULTS, name=f"report-{trials}")
    file = place / f"{folder.name}.html"
    began = time.perf_counter()
    text = page.build(lookup.read(folder), 0.0)
    built = time.perf_counter() - began
    page.write(file, text)
    label = f"report of {trials:,} trials, {trials * RESULTS:,} results"
    yield f"{label}: made", f"{built:.1f} s, {len(text) / 1e6:.1f} MB"
    with browser.opened(program, "--host-resolver-rules=MAP * ~NOTFOUND") as window:
        window.go("about:blank")
        for event, anchor, drawn in (("opened", "", FIRST), ("every picture", "#all", ALL)):
            window.go("about:blank")
            watch = _Watch()
            window.go(f"{file.as_uri()}{anchor}")
            window.until(drawn)
            yield f"{label}: {event}", watch.times
            _screenshot(window, pictures, f"report-{trials}{'-all' if anchor else ''}")


def tracked(program: str, place: Path, trials: int, pictures: Path | None) -> Iterator[Line]:
    """Yield the times of sending trials to MLflow and of drawing its page of them."""
    folder = large.make(place, trials, RESULTS, name=f"mlflow-{trials}", trackers=["mlflow"])
    began = time.process_time()
    sync.send(folder, lambda _message: None, 600.0)
    sent = time.process_time() - began
    label = f"MLflow, {trials:,} trials, {trials * RESULTS:,} results"
    yield f"{label}: sent", f"CPU {sent / trials * 1e3:.1f} ms per trial"
    with served(folder) as url, browser.opened(program, size=(1500, 1000)) as window:
        watch = _Watch()
        window.go(url)
        window.until("document.body && document.body.innerText.includes('trial 1')")
        yield f"{label}: trials listed", watch.times
        window.until("document.querySelectorAll('.dimension').length > 2")
        yield f"{label}: settings beside scores drawn", watch.times
        window.until(f"{LINES} >= {min(trials, AT_FIRST)}")
        yield f"{label}: curves drawn", watch.times
        _screenshot(window, pictures, f"mlflow-{trials}")


class _Watch:
    """Stopwatch of wall time and of the CPU time of all child processes.

    On a busy machine, CPU time is more informative.
    """

    def __init__(self) -> None:
        self._began, self._cpu_before = time.perf_counter(), _cpu_of_children()

    @property
    def times(self) -> str:
        """Both times since the stopwatch was created, as text."""
        wall, cpu = time.perf_counter() - self._began, _cpu_of_children() - self._cpu_before
        return f"{wall:.1f} s, CPU {cpu:.1f} s"


def _cpu_of_children() -> float:
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system
    return total


@contextmanager
def served(folder: Folder) -> Iterator[str]:
    """Run `sweep ui` for a sweep; yield the address that the command prints."""
    port = free_port()
    words = ["ui", folder.name, "--root", str(folder.root), "--port", str(port), "--no-open"]
    process = subprocess.Popen(  # noqa: S603 ours
        [sys.executable, "-m", "sweep.cli.main", *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        await_health(process, port)
        assert process.stdout is not None  # noqa: S101 it is a pipe
        yield process.stdout.readline().decode().split()[0]
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()


def _screenshot(window: Browser, pictures: Path | None, name: str) -> None:
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        time.sleep(1.0)  # until animations have ended
        window.screenshot(pictures / f"{name}.png")


if __name__ == "__main__":
    main()
