"""Counters since a trial's beginning, and the window of episodes over which means are taken.

Metrics arrive with the samples in which they were measured, or late with a later one. A result has
the episodes of its iteration under ``hist_stats``; means are taken over the latest episodes.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from trainables.core.settings import LONGEST_WAIT_S, Section
from trainables.rollout.episodes.metrics import (
    RolloutMetrics,
    histories,
    summarise,
    summarise_custom,
    summarise_policies,
)
from trainables.rollout.media import files as media

# Times of a sampler's parts, per tick (one step of all environments). No two runs give the same:
# results hold them under ``sampler_perf``, which no comparison reads; no checkpoint holds them.
PARTS = ("raw_obs_processing", "inference", "action_processing", "env_wait")
"""Names of the parts of a step whose times are measured, in their order.

They are: from observations to the filter's output; the policy; preparing the actions; the
environments.
"""
#: Prefix under which a worker reports the times of its connectors, in addition to `PARTS`.
PREFIX = "connector_metrics/"


class PerfConfig(Section):
    """Settings of the averages of the sampler's times."""

    sampler_perf_stats_ema_coef: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Weight of the newest step in moving averages of the sampler's times "
        "(sampler_perf); null: means over all steps.",
    )


class PerfStats:
    """Mean durations of the parts of a worker's ticks; a tick is one step of all environments."""

    def __init__(self, config: PerfConfig) -> None:
        self._coefficient = config.sampler_perf_stats_ema_coef
        self._ticks = 0
        self._sums = [0.0] * len(PARTS)
        """Seconds of each of `PARTS`: sums over all ticks, or moving averages."""
        self._rendering: float | None = None
        """Seconds of drawing, a sum or moving average as `_sums`; None if nothing was drawn.

        An episode's last picture is also in env_wait.
        """

    def add(
        self, began: float, processed: float, decided: float, adapted: float, stepped: float
    ) -> None:
        """Add the durations of one step of all environments to the means.

        The arguments are times of `time.perf_counter`: when the step began, and when each of
        `PARTS` ended.
        """
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

    def add_deciding(self, seconds: float, ticks: int) -> None:
        """Add to the policy's time `seconds` that served the latest `ticks` steps together.

        Log-probabilities and values of many steps may be computed at once. In a moving average each
        of these steps counts its share of the seconds, as if it had been given to `add`.
        """
        if self._coefficient is not None:
            earlier = (1.0 - self._coefficient) ** ticks if self._ticks > ticks else 0.0
            seconds *= (1.0 - earlier) / ticks
        self._sums[PARTS.index("inference")] += seconds

    def add_rendering(self, seconds: float) -> None:
        """Add the seconds that rendering took in the latest step."""
        if self._coefficient is None or self._rendering is None:
            self._rendering = (self._rendering or 0.0) + seconds
        else:
            self._rendering += self._coefficient * (seconds - self._rendering)

    def connectors(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return ``connector_metrics/<connector>_ms`` → mean milliseconds per step.

        `seconds` is connector → total seconds in all steps so far, so these are never moving
        averages.
        """
        each = 1e3 / max(1, self._ticks)
        return {f"{PREFIX}{name}_ms": total * each for name, total in seconds.items()}

    def means(self) -> dict[str, float]:
        """Return ``mean_<part>_ms`` → mean milliseconds per step for each of `PARTS`.

        They are moving averages if ``sampler_perf_stats_ema_coef`` is set. If pictures were
        rendered, there is ``mean_env_render_ms`` too. Empty before the first step.
        """
        if self._ticks == 0:
            return {}
        ticks = self._ticks if self._coefficient is None else 1
        sums = dict(zip(PARTS, self._sums, strict=True))
        if self._rendering is not None:
            sums["env_render"] = self._rendering
        return {f"mean_{part}_ms": 1e3 * total / ticks for part, total in sums.items()}


def mean_perf(workers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return name → mean over workers of a time; a worker without the name counts as 0."""
    names = dict.fromkeys(name for one in workers for name in one)
    return {name: sum(one.get(name, 0.0) for one in workers) / len(workers) for name in names}


class MetricsConfig(Section):
    """Settings of the summary of episodes."""

    metrics_smoothing_episodes: int = Field(
        default=100,
        gt=0,
        description="Number of latest episodes over which episode results are averaged.",
    )
    classic_results: bool = Field(
        default=False,
        description="Also report results under the names of older RLlib versions, where these "
        "differ (docs/metrics.md); a sweep sets this itself if its metric, objectives, "
        "constraints or stop use such a name.",
    )
    collect_metrics_timeout: float = Field(
        default=180.0,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Seconds to wait for child processes to report finished episodes. Later "
        "reports count in the next iteration and in num_late_metrics, and make the trial not "
        "bit-exact.",
    )


class Progress:
    """Counters of steps and episodes since the trial's beginning, and the latest episodes.

    The trainer counts each sample, and reads the keys of an iteration's result with `collect`.
    """

    def __init__(self, config: MetricsConfig) -> None:
        self.timesteps = 0
        """Environment steps sampled by all workers."""
        self.episodes = 0
        """Number of finished episodes that were not faulty."""
        self._window: deque[RolloutMetrics] = deque(maxlen=config.metrics_smoothing_episodes)
        self._sampled: dict[int, int] = {}
        """Worker → environment steps of this iteration."""
        self.late = 0
        """Number of samples so far whose metrics arrived too late to count with them; the trainer
        counts them here."""
        self._late_before = 0
        self._ages: list[int] = []
        """For each sample of this iteration, the number of updates since its weights were sent."""
        self._ended: list[RolloutMetrics] = []
        """Episodes that ended in this iteration."""
        self._perf: dict[int, Mapping[str, float]] = {}
        """Worker → mean times of its latest sample."""

    def begin_iteration(self) -> None:
        """Reset the counters of the iteration; totals, latest episodes and workers' times stay."""
        self._sampled = {}
        self._ended = []
        self._ages = []
        self._late_before = self.late

    def count(
        self,
        worker: int,
        timesteps: int,
        episodes: Iterable[RolloutMetrics],
        perf: Mapping[str, float],
    ) -> None:
        """Count one sample of the worker with index `worker`.

        `timesteps` are its environment steps, `episodes` those that ended, `perf` the worker's mean
        times by name in milliseconds, which replace its earlier ones. Faulty episodes enter neither
        the total nor the window of latest episodes.
        """
        counted = [one._replace(worker_index=worker) for one in episodes]
        whole = [one for one in counted if not one.faulty]
        self.timesteps += timesteps
        self.episodes += len(whole)
        self._window.extend(one._replace(media=None) for one in whole)
        self._sampled[worker] = self._sampled.get(worker, 0) + timesteps
        self._ended += counted
        self._perf[worker] = perf

    def count_ages(self, ages: Sequence[int]) -> None:
        """Note how old the weights of samples were: for each, the updates since they were sent."""
        self._ages += ages

    @property
    def timesteps_this_iteration(self) -> int:
        """Environment steps sampled since `begin_iteration`, all workers."""
        return sum(self._sampled.values())

    def collect(self, workers: Container[int] | None = None) -> dict[str, Any]:
        """Return the keys of this iteration's result about episodes, steps and times.

        - over the latest episodes: the keys of `summarise` and `summarise_policies`, and
          ``custom_metrics``
        - of this iteration: ``hist_stats``, ``media``, ``num_faulty_episodes``,
          ``num_late_metrics``, ``weights_age``, ``timesteps_this_iter``, ``episodes_this_iter``
        - totals: ``timesteps_total``, ``episodes_total``
        - mean times of the workers' latest samples: ``sampler_perf``, ``connector_metrics``

        Only workers with these indices are included (None for all), but totals, late metrics and
        ages of weights include all workers. Without episodes their means are absent, as are
        empty dicts and numbers of faulty episodes and late metrics that are 0.
        """

        def chosen(index: int) -> bool:
            """Return whether the worker with this index is asked."""
            return workers is None or index in workers

        ended = [one for one in self._ended if chosen(one.worker_index)]
        whole = [one for one in ended if not one.faulty]
        perf = mean_perf([p for index, p in self._perf.items() if chosen(index)])
        more = {
            "num_faulty_episodes": len(ended) - len(whole),
            "num_late_metrics": self.late - self._late_before,
            "hist_stats": histories(whole),
            "media": media.latest(one.media for one in whole),
            "weights_age": self._weights_age(),
            "sampler_perf": {n: ms for n, ms in perf.items() if not n.startswith(PREFIX)},
            "connector_metrics": {
                n.removeprefix(PREFIX): ms for n, ms in perf.items() if n.startswith(PREFIX)
            },
        }
        latest = [one for one in self._window if chosen(one.worker_index)]
        custom = summarise_custom(latest)
        return {
            **summarise(latest),
            **summarise_policies(latest),
            **({"custom_metrics": custom} if custom else {}),
            **{key: value for key, value in more.items() if value},
            "timesteps_total": self.timesteps,
            "timesteps_this_iter": sum(n for i, n in self._sampled.items() if chosen(i)),
            "episodes_total": self.episodes,
            "episodes_this_iter": len(whole),
        }

    def _weights_age(self) -> dict[str, float]:
        """Return ``mean`` and ``max`` of the weights' ages, in updates; empty if all are 0."""
        ages = self._ages
        return {"mean": float(np.mean(ages)), "max": float(max(ages))} if any(ages) else {}

    def get_state(self) -> dict[str, Any]:
        """Return the totals ``timesteps``, ``episodes`` and ``late``, and ``window``.

        ``window`` has the latest episodes as columns, the oldest first: arrays ``rewards``,
        ``lengths`` and ``workers``, a list of dicts ``custom_metrics`` (empty if all of them are)
        and, with several agents, a list of dicts ``agent_rewards``.
        """
        latest = list(zip(*self._window, strict=True)) or [()] * len(RolloutMetrics._fields)
        rewards, lengths, _, workers, custom, _, agents, _ = latest
        return {
            "timesteps": self.timesteps,
            "episodes": self.episodes,
            "late": self.late,
            "window": {
                "rewards": np.array(rewards),
                "lengths": np.array(lengths, dtype=np.int64),
                "workers": np.array(workers, dtype=np.int64),
                # a hundred empty dicts would be half of what there is to pack and to check
                "custom_metrics": [dict(one or {}) for one in custom] if any(custom) else [],
                **({"agent_rewards": [dict(a or {}) for a in agents]} if any(agents) else {}),
            },
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned.

        Of the iteration's counters only that of late metrics is reset.
        """
        self.timesteps = int(state["timesteps"])
        self.episodes = int(state["episodes"])
        self.late = self._late_before = int(state["late"])
        window = state["window"]
        columns = [np.asarray(window[n]).tolist() for n in ("rewards", "lengths", "workers")]
        custom = window["custom_metrics"] or [{}] * len(columns[0])
        by_agent = window.get("agent_rewards") or [None] * len(columns[0])
        self._window.clear()
        self._window.extend(
            RolloutMetrics(float(r), int(n), False, int(w), dict(own), agent_rewards=of_agents)
            for r, n, w, own, of_agents in zip(*columns, custom, by_agent, strict=True)
        )
