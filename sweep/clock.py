"""The time of events: a date whose differences are durations.

It is the wall clock of when this process began, and from there on the time since the machine was
started. So a wall clock that is set meanwhile, forwards or back, changes no duration.
"""

import time

_BEGAN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def now() -> float:
    """Seconds since 1970."""
    return _BEGAN + time.clock_gettime(time.CLOCK_BOOTTIME)
