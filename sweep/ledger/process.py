"""Check whether a process that has written down its number still runs.

Each container counts its own processes. So a number says something in its pid namespace alone, and
in another one it is some other process, or none.
"""

import os
from pathlib import Path


def namespace() -> str:
    """The pid namespace of this process; empty: it is not known."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def runs(pid: int, within: str) -> bool | None:
    """Return whether process `pid` of the namespace `within` runs; None if unknown here."""
    if within != namespace() or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    except OverflowError:  # no system has such a number
        return None
    return True
