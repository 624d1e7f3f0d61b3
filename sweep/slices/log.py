"""A trial's log: what its slices print, turned over when it has grown too large.

The newest part is `LOG`, what came before it `OLDER_LOG`, and what came before that is gone. What a
trial has started holds the file open, too, so it is copied and then emptied, never renamed: whoever
writes appends, and goes on at the new end. What is printed just between the two is lost.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from sweep.ledger.folder import LOG, OLDER_LOG
from trainables.checkpoint import disk

#: Seconds between two looks at a log's size.
LOOK_S = 1.0
#: Bytes that are copied at a time.
_PIECE = 2**20


@contextlib.contextmanager
def opened(folder: Path, most: int | None) -> Iterator[int]:
    """Give the descriptor of a trial's log, which is turned over at `most` bytes; None: never."""
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log = disk.open_file(folder / LOG, appending, mode=0o600)
    over = threading.Event()
    watching = threading.Thread(
        target=_watch, args=(folder, log, most, over), name="log", daemon=True
    )
    if most is not None:
        _turn_over(folder, log, most)
        watching.start()
    try:
        yield log
    finally:
        over.set()
        if most is not None:
            watching.join()
            _turn_over(folder, log, most)
        os.close(log)


@contextlib.contextmanager
def led_into(folder: Path, most: int | None) -> Iterator[None]:
    """Lead this process's output, and that of its children, into a trial's log; see `opened`."""
    sys.stdout.flush()
    sys.stderr.flush()
    with opened(folder, most) as log:
        kept = [os.dup(1), os.dup(2)]
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)


def _watch(folder: Path, log: int, most: int, over: threading.Event) -> None:
    while not over.wait(LOOK_S):
        _turn_over(folder, log, most)


def _turn_over(folder: Path, log: int, most: int) -> None:
    """Keep the newest `most` bytes of a log that has grown larger as the older part."""
    with contextlib.suppress(OSError, disk.NotRegular):  # a disk that refuses; the next look may
        if (size := os.fstat(log).st_size) <= most:
            return
        with contextlib.suppress(
            OSError, disk.NotRegular
        ):  # a full disk: room is made all the same
            _copy(folder, size - most, size)
        os.ftruncate(log, 0)


def _copy(folder: Path, begin: int, end: int) -> None:
    anew = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        disk.reading(folder / LOG) as (source, _),
        disk.closing(disk.open_file(folder / OLDER_LOG, anew, mode=0o600)) as copy,
    ):
        while begin < end and (piece := os.pread(source, min(_PIECE, end - begin), begin)):
            os.write(copy, piece)
            begin += len(piece)
