"""Output of a process that costs it nothing where the disk is full.

A trial prints into its log. On a disk that is full that would be an error of whatever called
`print`, an environment's step for example, though nothing of the training is wrong.
"""

import errno
import io
import sys
from typing import Any, Final

#: Errors of a disk, or of a terminal that is gone.
_NOT_TAKEN: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE}
)


class _Output(io.FileIO):
    """A descriptor that forgets what is not taken."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _NOT_TAKEN:
                raise
            return memoryview(data).nbytes


def lose_what_is_not_taken() -> None:
    """Let `print`, and what else writes to this process's standard output and error, go on."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            raw = _Output(number, "wb", closefd=False)
            made = io.TextIOWrapper(
                raw if stream.write_through else io.BufferedWriter(raw),  # as Python makes them
                stream.encoding,
                stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, made)
