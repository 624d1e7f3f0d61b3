"""Where a sampler's time goes: mean milliseconds per tick of its parts.

Times of a machine, so no two runs give the same: results hold them under ``sampler_perf``, which no
comparison looks at, and no checkpoint holds them. A tick is one step of all lanes.
"""

from collections.abc import Mapping, Sequence

from pydantic import Field

from trainables.settings import Section

PARTS = ("raw_obs_processing", "inference", "action_processing", "env_wait")
"""Observations to the filter's output, the policy, what is sent, the environments."""


class PerfConfig(Section):
    """How the sampler's times are averaged."""

    sampler_perf_stats_ema_coef: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Weight of the newest tick in moving averages; null: the mean over all ticks.",
    )


class PerfStats:
    """Mean times of one worker.

    Args:
        config: over which ticks.
    """

    def __init__(self, config: PerfConfig) -> None:
        self._coefficient = config.sampler_perf_stats_ema_coef
        self._ticks = 0
        self._sums = [0.0] * len(PARTS)
        """Seconds: sums over all ticks, or moving averages."""
        self._rendering: float | None = None
        """Likewise, of pictures; that of an episode's last observation lies in env_wait as well."""

    def add(
        self, began: float, processed: float, decided: float, adapted: float, stepped: float
    ) -> None:
        """Count one tick: when it began and when each of `PARTS` ended, `time.perf_counter`."""
        self._ticks += 1
        sums = self._sums
        if self._coefficient is not None and self._ticks > 1:
            times = (processed - began, decided - processed, adapted - decided, stepped - adapted)
            weight = self._coefficient
            self._sums = [(1.0 - weight) * a + weight * b for a, b in zip(sums, times, strict=True)]
            return
        # Unrolled: this runs in every tick.
        sums[0] += processed - began
        sums[1] += decided - processed
        sums[2] += adapted - decided
        sums[3] += stepped - adapted

    def add_rendering(self, seconds: float) -> None:
        """Count the pictures of the latest tick."""
        if self._coefficient is None or self._rendering is None:
            self._rendering = (self._rendering or 0.0) + seconds
        else:
            self._rendering += self._coefficient * (seconds - self._rendering)

    def means(self) -> dict[str, float]:
        """``mean_<part>_ms``, where anything was drawn also of ``env_render``.

        Empty before the first tick.
        """
        if self._ticks == 0:
            return {}
        ticks = self._ticks if self._coefficient is None else 1
        sums = dict(zip(PARTS, self._sums, strict=True))
        if self._rendering is not None:
            sums["env_render"] = self._rendering
        return {f"mean_{part}_ms": 1e3 * total / ticks for part, total in sums.items()}


def mean_perf(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over workers of what each told."""
    names = dict.fromkeys(name for one in told for name in one)
    return {name: sum(one.get(name, 0.0) for one in told) / len(told) for name in names}
