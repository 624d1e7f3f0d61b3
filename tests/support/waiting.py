"""Waiting for events, not for seconds."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Return as soon as `condition` holds; fail when it does not within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.01)


class Deadline:
    """The end of the time in which a loop has to come to its end."""

    def __init__(self, seconds: float = 120.0) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def waits(self, is_missing: bool) -> bool:
        """Return `is_missing`; fail where something is, and the time is over."""
        late = is_missing and time.monotonic() >= self._end
        assert not late, f"it did not happen within {self._seconds} s"
        return is_missing
