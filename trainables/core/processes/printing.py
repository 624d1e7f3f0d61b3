"""Standard output and error that ignore a full disk.

A trial prints into its log file. On a full disk, `print` would raise inside whatever code called
it, for example an environment's step, although training itself is fine.
"""

import errno
import io
import sys
from typing import Any, Final

#: Error numbers of a full or failing disk, or of a terminal that is gone.
_DISK_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE}
)


class _Output(io.FileIO):
    """A standard output that drops what a full disk does not take, instead of raising."""

    def write(self, data: Any, /) -> int:
        """Write `data`; returns its full length even if a full disk drops it."""
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            return memoryview(data).nbytes


def ignore_full_disk() -> None:
    """Replace this process's standard output and error by ones that ignore a full disk.

    Text is dropped without a message if the disk is full, read-only or failing, or the terminal is
    gone. Text that is buffered now is written first, which may still raise OSError. A stream for
    which a program has set another kind of object stays.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            raw = _Output(number, "wb", closefd=False)
            replacement = io.TextIOWrapper(
                raw if stream.write_through else io.BufferedWriter(raw),  # as Python makes them
                stream.encoding,
                stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, replacement)
