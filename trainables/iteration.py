"""How long one iteration is: rounds of sampling and learning until it is long enough."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import Field

from trainables.settings import Section


class IterationConfig(Section):
    """What one iteration reaches at least; every iteration has one round of sampling and learning.

    More steps or more time mean fewer results, never another way of learning.
    """

    min_iter_time_s: float = Field(
        default=0.0,
        ge=0,
        description="Seconds that an iteration lasts at least. Above 0 a clock decides, so that no "
        "two runs are bit-equal.",
    )
    timesteps_per_iteration: int = Field(
        default=0, ge=0, description="Environment steps of an iteration, at least."
    )


class IterationLength:
    """Whether one iteration, which begins when this is made, is long enough.

    Args:
        config: what it has to reach.
    """

    def __init__(self, config: IterationConfig) -> None:
        self._config = config
        self._began = time.monotonic()

    def reached(self, timesteps: int) -> bool:
        """Whether it may end after so many environment steps."""
        if timesteps < self._config.timesteps_per_iteration:
            return False
        return time.monotonic() - self._began >= self._config.min_iter_time_s


@contextmanager
def timed(timers: dict[str, float], name: str) -> Iterator[None]:
    """Add the milliseconds that the block takes to ``timers[name]``."""
    started = time.perf_counter()
    yield
    timers[name] = timers.get(name, 0.0) + 1e3 * (time.perf_counter() - started)
