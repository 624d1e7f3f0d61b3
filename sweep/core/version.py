"""The version of the package, and the check of the operating system."""

import sys

__version__ = "1.0.0"


def unsupported() -> str:
    """Return a line on why sweep cannot run on this operating system; empty if it can."""
    system: str = sys.platform
    if system.startswith("linux"):
        return ""
    return (
        f"this system is {system}, but sweep needs Linux, whose kernel ends its child processes; "
        "use a container (docker/) or, on Windows, WSL 2"
    )
