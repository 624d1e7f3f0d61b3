"""Files of results: each result is appended at once as a line, so that it is not computed again."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

#: Environment variables that set the number of threads, read when numpy is imported.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines; a line that was truncated by a kill is skipped."""
    if not path.exists():
        return []
    rows = (_parse(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row is not None]


def _parse(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def append_results(
    path: Path, function: Callable[..., dict[str, Any]], calls: Sequence[tuple[Any, ...]], jobs: int
) -> None:
    """Append the result of each call to a file, in the order in which the calls end.

    The calls run in `jobs` processes, each with one thread for numpy's linear algebra, because
    threads of several processes would wait for each other.
    """
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    spawn, own = get_context("spawn"), (os.getpid(),)
    with ProcessPoolExecutor(jobs, spawn, initializer=_end_with_parent, initargs=own) as pool:
        futures = [pool.submit(function, *call) for call in calls]
        append(path, (future.result() for future in as_completed(futures)), len(calls))


def append(path: Path, results: Iterable[dict[str, Any]], count: int) -> None:
    """Append each of `count` results to a file as soon as it is computed, and show the progress."""
    path.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with path.open("a+", encoding="utf-8") as file:
        if is_truncated(path):
            file.write("\n")
        for number, result in enumerate(results, 1):
            file.write(json.dumps(result) + "\n")
            file.flush()
            minutes = (time.monotonic() - began) / number * (count - number) / 60
            sys.stderr.write(f"\r\033[K{number} of {count}, {minutes:.0f} min left ")
    if count:
        sys.stderr.write("\n")


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has ended; a killed parent cannot end its children."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def is_truncated(path: Path) -> bool:
    """Return whether the last line of the file lacks its newline."""
    return path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
