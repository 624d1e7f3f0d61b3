"""Measures how soon the pages of large sweeps are there in a real Chromium: report and MLflow.

    python -m benchmarks.engine.pages [--trials 500 5000] [--tracked 500] [--pictures DIR]

A page counts as there when its pictures are drawn: of the report the first ones that are seen, and
all of them one below the other; of MLflow the table of trials and the parallel coordinates. With
`--pictures` a picture of each is kept. Sweeps have 100 results a trial and were never trained.
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
from sweep.driver import sync
from sweep.ledger.folder import Folder
from sweep.report import page
from sweep.views import lookup
from tests.support import browser
from tests.support.browser import Browser
from tests.support.command_line import environment
from tests.support.mlflow_server import await_health
from tests.support.ports import free_port

RESULTS = 100
#: What is true of a report when its first picture stands there, and when all of them do.
FIRST = "document.querySelectorAll('.js-plotly-plot svg.main-svg').length"
ALL = "Number(document.documentElement?.dataset.drawn || 0)"

Line = tuple[str, str]


def main() -> None:
    """Measure, and print a line for each thing as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="*", default=[500, 5_000], help="of reports")
    parser.add_argument("--tracked", type=int, default=500, help="trials in MLflow; 0: none")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of what was seen")
    given = parser.parse_args()
    program = browser.path()
    if program is None:
        parser.error("Chromium is not installed (apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="sweep-pages-") as place:
        for trials in given.trials:
            for line in report(program, Path(place), trials, given.pictures):
                show(line)
        if given.tracked:
            for line in tracked(program, Path(place), given.tracked, given.pictures):
                show(line)


def show(line: Line) -> None:
    """Print a row of the table."""
    sys.stdout.write(f"| {line[0]:58} | {line[1]:24} |\n")
    sys.stdout.flush()


def report(program: str, place: Path, trials: int, pictures: Path | None) -> Iterator[Line]:
    """Yield the times of a report of so many trials: to be made, seen, and drawn whole."""
    folder = large.make(place, trials, RESULTS, name=f"report-{trials}")
    file = place / f"{folder.name}.html"
    began = time.perf_counter()
    text = page.build(lookup.read(folder), 0.0)
    built = time.perf_counter() - began
    page.write(file, text)
    what = f"report of {trials:,} trials, {trials * RESULTS:,} results"
    yield f"{what}: made", f"{built:.1f} s, {len(text) / 1e6:.1f} MB"
    with browser.opened(program, "--host-resolver-rules=MAP * ~NOTFOUND") as seen:
        seen.go("about:blank")
        for where, anchor, drawn in (("opened", "", FIRST), ("every picture", "#all", ALL)):
            seen.go("about:blank")
            watch = _Watch()
            seen.go(f"{file.as_uri()}{anchor}")
            seen.until(drawn)
            yield f"{what}: {where}", watch.said
            _keep(seen, pictures, f"report-{trials}{'-all' if anchor else ''}")


def tracked(program: str, place: Path, trials: int, pictures: Path | None) -> Iterator[Line]:
    """Yield the times of MLflow's page of so many trials, from its address to its pictures."""
    folder = large.make(place, trials, RESULTS, name=f"mlflow-{trials}", trackers=["mlflow"])
    began = time.process_time()
    sync.send(folder, lambda _said: None, 600.0)
    sent = time.process_time() - began
    what = f"MLflow, {trials:,} trials, {trials * RESULTS:,} results"
    yield f"{what}: sent", f"CPU {sent / trials * 1e3:.1f} ms per trial"
    with served(folder) as url, browser.opened(program, size=(1500, 1000)) as seen:
        watch = _Watch()
        seen.go(url)
        seen.until("document.body && document.body.innerText.includes('trial 1')")
        yield f"{what}: trials listed", watch.said
        seen.until("document.querySelectorAll('.dimension').length > 2")
        yield f"{what}: charts drawn", watch.said
        _keep(seen, pictures, f"mlflow-{trials}")


class _Watch:
    """Wall time, and the CPU time of all child processes: on a busy machine it says more."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), _used()

    @property
    def said(self) -> str:
        """Both, until now."""
        wall, used = time.perf_counter() - self._began, _used() - self._used
        return f"{wall:.1f} s, CPU {used:.1f} s"


def _used() -> float:
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system
    return total


@contextmanager
def served(folder: Folder) -> Iterator[str]:
    """`sweep ui` of a sweep; yields the address that it prints."""
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


def _keep(seen: Browser, pictures: Path | None, name: str) -> None:
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        time.sleep(1.0)  # what fades in
        seen.screenshot(pictures / f"{name}.png")


if __name__ == "__main__":
    main()
