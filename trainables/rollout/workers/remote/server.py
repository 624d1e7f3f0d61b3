"""The process of a rollout worker: its answers, and how it sends samples.

Episodes are sent after their sample, so that a child that is slow to send them delays no other. The
child keeps them until they are requested, also in its state, so that each is sent once, whatever
fails. Observations may be compressed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from trainables.core import rng
from trainables.core.processes.child import ChildProcess, Patience
from trainables.policies.acting.actor import Weights
from trainables.rollout.batch import PackedSample, Sample
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.workers import access
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec


class WorkerServer:
    """The object in a rollout worker's process, whose methods the trainer calls.

    Creating it seeds the process's global random streams and makes the worker.
    """

    #: Class of the worker, unless the spec names one.
    worker_class: ClassVar[type[RolloutWorker]] = RolloutWorker

    def __init__(self, spec: WorkerSpec) -> None:
        # Environments may draw from the global streams, which in a child are the worker's own.
        rng.seed_global(spec.seed, "worker", spec.index, "global")
        self.worker = (spec.worker_class or self.worker_class)(spec)
        self._compress = spec.sampling.compress_observations
        self._unsent_episodes: list[RolloutMetrics] = []

    def sample(self) -> Any:
        """Return a sample, compressed if so set, whose episodes are kept for `take_metrics`.

        Episodes stay in a sample with `Sample.trajectories`, as a callback may still write into
        them. Anything but a sample is returned as it is, for the trainer to refuse.
        """
        sample: object = self.worker.sample()
        if not isinstance(sample, Sample):
            return sample
        if not any(sample.trajectories):
            self._unsent_episodes += sample.episodes
            sample = replace(sample, episodes=[])
        return self._compressed(sample)

    def sample_on(
        self,
        version: int,
        global_vars: Mapping[str, Any],
        weights: Weights,
        filters: Mapping[str, Any],
    ) -> Any:
        """Load weights, filters and variables, and return a sample collected with them.

        It has its episodes and the `version` of the weights, and is compressed if so set. Anything
        but a sample is returned as it is, for the trainer to refuse.
        """
        self.worker.set_global_vars(global_vars)
        self.worker.sync(weights, filters)
        sample: object = self.worker.sample()
        if not isinstance(sample, Sample):
            return sample
        return self._compressed(replace(sample, version=version))

    def sample_on_with_state(self, *arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Return the result of `sample_on` with these arguments, and the state after it."""
        return self.sample_on(*arguments), self.get_state()

    def _compressed(self, sample: Sample) -> Sample | PackedSample:
        """Return the sample, compressed if the settings say so."""
        return sample.compress(self._compress == "bulk") if self._compress else sample

    def sample_with_state(self) -> tuple[Any, dict[str, Any]]:
        """Return the result of `sample`, and the worker's state after it."""
        return self.sample(), self.get_state()

    def take_metrics(self) -> list[RolloutMetrics]:
        """Return the episodes that were not sent yet, in the order of their end; each only once."""
        ended, self._unsent_episodes = self._unsent_episodes, []
        return ended

    def change_policies(
        self, changes: Mapping[str, Any], filter_states: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Call `AgentsWorker.change_policies`, and return the worker's state after it."""
        self.worker.change_policies(changes, filter_states)
        return self.get_state()

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Load the learner's weights and the merged filters."""
        self.worker.sync(weights, filters)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Store the trainer's variables, and pass them to the policy."""
        self.worker.set_global_vars(global_vars)

    def apply_packed(self, packed: bytes) -> bytes:
        """Call a pickled function with the worker, and return its pickled result or error."""
        return access.apply_packed(self.worker, packed)

    def get_state(self) -> dict[str, Any]:
        """Return the worker's state, ``unsent`` (episodes not sent yet) and ``global_streams``."""
        state = {**self.worker.get_state(), "unsent": as_data(self._unsent_episodes)}
        return {**state, "global_streams": rng.capture_global()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned, with the process's global random streams."""
        self._unsent_episodes = [RolloutMetrics(**one) for one in state["unsent"]]
        self.worker.set_state(state)
        rng.restore_global(state["global_streams"])

    def end(self) -> None:
        """Close the worker before the process ends."""
        self.worker.close()


def start_worker(
    spec: WorkerSpec, patience: Patience, server: type[WorkerServer] = WorkerServer
) -> ChildProcess:
    """Start and return the child process of the worker that `spec` describes.

    The process makes the worker at its first request. `patience` is the longest time that a message
    to or from it may be stuck half sent, `server` the class of the object in the process.
    """
    name = f"rollout worker {spec.index}"
    return ChildProcess(name, server, (spec,), patience, spec.resources, spec.logs)


def as_data(episodes: list[RolloutMetrics]) -> list[dict[str, Any]]:
    """Return field → value of each episode as plain data, for a checkpoint.

    Episodes of one agent lack ``agent_rewards``.
    """
    return [
        {
            **{name: value for name, value in one._asdict().items() if name != "agent_rewards"},
            "custom_metrics": one.custom_metrics and dict(one.custom_metrics),
            "hist_data": one.hist_data and dict(one.hist_data),
            **({"agent_rewards": dict(one.agent_rewards)} if one.agent_rewards else {}),
        }
        for one in episodes
    ]
