"""Metrics that are told apart from their sample: a child that is slow to tell them holds up nobody.

The child keeps the episodes of its samples until it is asked for them, also in its state, so that
they are told once whatever becomes of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.sample import Sample
from trainables.rollout.worker import RolloutWorker


class MetricsApart:
    """A worker in a child, whose samples come without their episodes.

    Args:
        worker: does everything else.
    """

    def __init__(self, worker: RolloutWorker) -> None:
        self._worker = worker
        self._untold: list[RolloutMetrics] = []

    def sample(self) -> Any:
        """A sample without episodes; anything else as it is, for the parent to refuse.

        Where the trainer's callbacks will write into the episodes, they stay with their rows.
        """
        sample: object = self._worker.sample()
        if not isinstance(sample, Sample) or any(sample.trajectories):
            return sample
        self._untold += sample.episodes
        return replace(sample, episodes=[])

    def tell_metrics(self) -> list[RolloutMetrics]:
        """The episodes that have not been told yet, in the order of their end."""
        told, self._untold = self._untold, []
        return told

    def get_state(self) -> dict[str, Any]:
        """The worker's state and entry ``untold``, the episodes that have not been told yet."""
        return {**self._worker.get_state(), "untold": as_data(self._untold)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._untold = [RolloutMetrics(**one) for one in state["untold"]]
        self._worker.set_state(state)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the worker can be asked for."""
        return getattr(self._worker, name)


def as_data(episodes: list[RolloutMetrics]) -> list[dict[str, Any]]:
    """Episodes as plain data."""
    return [
        {
            **one._asdict(),
            "custom_metrics": one.custom_metrics and dict(one.custom_metrics),
            "hist_data": one.hist_data and dict(one.hist_data),
        }
        for one in episodes
    ]
