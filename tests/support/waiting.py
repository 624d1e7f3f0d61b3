"""Waiting for events, not for seconds."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as `condition` holds; fail when it does not within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.01)
