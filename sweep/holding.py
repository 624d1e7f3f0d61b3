"""Holding a sweep: nobody else drives, mends or sends it, and its tables are today's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweep import schema
from sweep.folder import Folder

Say = Callable[[str], None]


@contextmanager
def hold(folder: Folder, say: Say) -> Iterator[None]:
    """Hold the sweep in `folder`; an older ledger is brought to today's tables first.

    Raises:
        NotOurs: somebody else holds it.
        UsageError: its ledger is of a newer program.
        OutsideError: the disk or the database refused.
    """
    with folder.lock():
        if schema.is_old(folder.ledger):
            say(schema.upgrade(folder.ledger))
        yield


def upgrade(folder: Folder, say: Say) -> None:
    """Bring an older ledger to today's tables, before what is only read of it is read.

    Raises:
        As `hold`.
    """
    if schema.is_old(folder.ledger):
        with hold(folder, say):
            return
