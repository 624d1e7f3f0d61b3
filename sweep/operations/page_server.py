"""Runs a server as a group of its own that ends with the process that wanted it.

python -m sweep.operations.page_server PARENT COMMAND…

A server forks workers that know nothing of who wanted it. This process leads their group; it ends
the whole group as soon as PARENT is gone, however that ended.
"""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parent, *command = arguments
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)  # it waits for the server's end
    threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()
    return subprocess.call(command)  # noqa: S603 ours


def _watch(parent: int) -> None:
    try:
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([descriptor], [], [])
    except ProcessLookupError:
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
