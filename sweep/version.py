"""Which release this is, and on which systems it runs."""

import sys

__version__ = "0.1.0"


def unsupported() -> str:
    """Why it cannot run here, as one line; empty: it can."""
    system: str = sys.platform
    if system.startswith("linux"):
        return ""
    return (
        f"this is {system}, and sweep runs on Linux, whose kernel ends its processes for it; "
        "use a container (docker/) or, on Windows, WSL 2"
    )
