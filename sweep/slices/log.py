"""A trial's log: the output of its slices, rotated when it has grown too large.

The newest part is the file `LOG`, the part before it `OLDER_LOG`, and anything older is deleted.
Processes started by the trial have the file open too, so it is copied and truncated, never renamed:
writers append, so they continue at the new end. Output written between copy and truncation is lost.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from sweep.ledger.folder import LOG, OLDER_LOG
from trainables.checkpoint import disk

#: Seconds between two checks of a log's size.
LOOK_S = 1.0
#: Bytes copied at a time.
_PIECE = 2**20


@contextlib.contextmanager
def open_log(folder: Path, limit: int | None) -> Iterator[int]:
    """Open a trial's log for appending, and yield its descriptor, which is closed at the end.

    If `limit` is given, a thread rotates the log when it has more bytes than that; so do the
    beginning and the end of the block. Raises OSError if the log cannot be opened.
    """
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log = disk.open_file(folder / LOG, appending, mode=0o600)
    ended = threading.Event()
    watching = threading.Thread(
        target=_watch, args=(folder, log, limit, ended), name="log", daemon=True
    )
    if limit is not None:
        _rotate(folder, log, limit)
        watching.start()
    try:
        yield log
    finally:
        ended.set()
        if limit is not None:
            watching.join()
            _rotate(folder, log, limit)
        os.close(log)


@contextlib.contextmanager
def redirected_into(folder: Path, limit: int | None) -> Iterator[None]:
    """Write the output of this process and its children into a trial's log inside the block.

    The log is rotated above `limit` bytes; None for no limit. Raises OSError if it cannot be
    opened.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with open_log(folder, limit) as log:
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


def _watch(folder: Path, log: int, limit: int, ended: threading.Event) -> None:
    """Rotate the log every `LOOK_S` seconds if it is too large, until `ended` is set."""
    while not ended.wait(LOOK_S):
        _rotate(folder, log, limit)


def _rotate(folder: Path, log: int, limit: int) -> None:
    """Rotate a log of more than `limit` bytes: its newest `limit` bytes become the older part.

    The log itself is emptied. `log` is its open descriptor. Errors of the disk are ignored.
    """
    with contextlib.suppress(OSError, disk.NotRegular):  # the disk refuses; the next try may work
        if (size := os.fstat(log).st_size) <= limit:
            return
        with contextlib.suppress(OSError, disk.NotRegular):  # the disk is full: truncate anyway
            _copy(folder, size - limit, size)
        os.ftruncate(log, 0)


def _copy(folder: Path, begin: int, end: int) -> None:
    """Replace the older part of the log by the bytes from `begin` to `end` of the newest part."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        disk.open_regular_file(folder / LOG) as (source, _),
        disk.closing(disk.open_file(folder / OLDER_LOG, flags, mode=0o600)) as copy,
    ):
        while begin < end and (piece := os.pread(source, min(_PIECE, end - begin), begin)):
            os.write(copy, piece)
            begin += len(piece)
