"""Check whether a process whose pid was recorded still runs.

Each container counts its own processes, so a pid is valid only in its pid namespace; in another
namespace the same number is another process, or none.
"""

import os
from pathlib import Path


def namespace() -> str:
    """Return the name of this process's pid namespace, such as ``pid:[4026531836]``.

    Returns an empty text if unknown.
    """
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def runs(pid: int, pid_namespace: str) -> bool | None:
    """Return whether process `pid` of a pid namespace still runs.

    Returns None if this process is in another namespace, or for an impossible pid.
    """
    if pid_namespace != namespace() or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process belongs to another user
        return True
    except OverflowError:  # larger than any pid
        return None
    return True
