"""What the process of a rollout worker answers, and how its samples travel.

Their episodes travel after them: a child that is slow to send them holds up nobody. The child keeps
them until it is asked for them, also in its state, so that they are sent once whatever becomes of
it. Observations may be compressed with LZ4; what is expanded equals what was compressed, to the
bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import lz4.frame
import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.core.child import ChildProcess, Patience
from trainables.policies.actor import Weights
from trainables.rollout.batch import Sample
from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.workers import access
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec

Array = NDArray[Any]


class WorkerServer:
    """All that a rollout worker's process can be asked for."""

    worker_class: ClassVar[type[RolloutWorker]] = RolloutWorker

    def __init__(self, spec: WorkerSpec) -> None:
        # Environments may draw from the global streams; in a child these are the worker's own.
        rng.seed_global(spec.seed, "worker", spec.index, "global")
        self.worker = (spec.worker_class or self.worker_class)(spec)
        self._compress = spec.sampling.compress_observations
        self._ended: list[RolloutMetrics] = []

    def sample(self) -> Any:
        """A sample without episodes; anything else as it is, for the parent to refuse.

        Where the trainer's callbacks will write into the episodes, they stay with their rows.
        """
        sample: object = self.worker.sample()
        if not isinstance(sample, Sample):
            return sample
        if not any(sample.trajectories):
            self._ended += sample.episodes
            sample = replace(sample, episodes=[])
        return self._packed(sample)

    def sample_on(
        self,
        version: int,
        global_vars: Mapping[str, Any],
        weights: Weights,
        filters: Mapping[str, Any],
    ) -> Any:
        """A sample with these weights, which says their version, and with its episodes."""
        self.worker.set_global_vars(global_vars)
        self.worker.sync(weights, filters)
        sample: object = self.worker.sample()
        if not isinstance(sample, Sample):
            return sample
        return self._packed(replace(sample, version=version))

    def sample_on_with_state(self, *given: Any) -> tuple[Any, dict[str, Any]]:
        """What `sample_on` gives, and the state after it."""
        return self.sample_on(*given), self.get_state()

    def _packed(self, sample: Sample) -> "Sample | PackedSample":
        return pack(sample, self._compress == "bulk") if self._compress else sample

    def sample_with_state(self) -> tuple[Any, dict[str, Any]]:
        """A sample, and the state after it."""
        return self.sample(), self.get_state()

    def take_metrics(self) -> list[RolloutMetrics]:
        """The episodes that have not been sent yet, in the order of their end."""
        ended, self._ended = self._ended, []
        return ended

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to the worker."""
        self.worker.sync(weights, filters)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Give variables to the worker and its policy."""
        self.worker.set_global_vars(global_vars)

    def apply_packed(self, packed: bytes) -> bytes:
        """The answer of a function of the worker."""
        return access.apply_packed(self.worker, packed)

    def get_state(self) -> dict[str, Any]:
        """The worker's state; ``untold``, the episodes not sent yet; ``global_streams``."""
        state = {**self.worker.get_state(), "untold": as_data(self._ended)}
        return {**state, "global_streams": rng.capture_global()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._ended = [RolloutMetrics(**one) for one in state["untold"]]
        self.worker.set_state(state)
        rng.restore_global(state["global_streams"])

    def end(self) -> None:
        """Close the worker; the process ends."""
        self.worker.close()


def start_worker(
    spec: WorkerSpec, patience: Patience, server: type[WorkerServer] = WorkerServer
) -> ChildProcess:
    """A process that answers for the worker of this spec."""
    name = f"rollout worker {spec.index}"
    return ChildProcess(name, server, (spec,), patience, spec.resources, spec.logs)


def as_data(episodes: list[RolloutMetrics]) -> list[dict[str, Any]]:
    """Episodes as plain data."""
    return [
        {
            **{name: value for name, value in one._asdict().items() if name != "agent_rewards"},
            "custom_metrics": one.custom_metrics and dict(one.custom_metrics),
            "hist_data": one.hist_data and dict(one.hist_data),
            **({"agent_rewards": dict(one.agent_rewards)} if one.agent_rewards else {}),
        }
        for one in episodes
    ]


class Packed(NamedTuple):
    """A compressed array."""

    dtype: str
    shape: tuple[int, ...]
    frames: list[bytes]
    """LZ4 frames that make its bytes, one after the other."""


@dataclass(frozen=True)
class PackedSample:
    """A sample, and the observations of each fragment in place of its own."""

    sample: Sample
    observations: list[Packed]


def pack(sample: Sample, bulk: bool) -> PackedSample:
    """Compress the observations of every fragment, each as a whole (`bulk`) or row by row."""
    none = np.zeros((0, 0, 0), dtype=np.float32)
    emptied = [replace(fragment, observations=none) for fragment in sample.fragments]
    packed = [_packed(fragment.observations, bulk) for fragment in sample.fragments]
    return PackedSample(replace(sample, fragments=emptied), packed)


def unpack(answer: Any) -> Any:
    """The sample with its observations again; anything but a `PackedSample` as it is."""
    if not isinstance(answer, PackedSample):
        return answer
    pairs = zip(answer.sample.fragments, answer.observations, strict=True)
    fragments = [replace(fragment, observations=_unpacked(one)) for fragment, one in pairs]
    return replace(answer.sample, fragments=fragments)


def _packed(array: Array, bulk: bool) -> Packed:
    parts = [array] if bulk else array.reshape(-1, *array.shape[2:])
    frames = [lz4.frame.compress(part.tobytes()) for part in parts]
    return Packed(array.dtype.str, array.shape, frames)


def _unpacked(packed: Packed) -> Array:
    # A bytearray, because torch wants arrays that may be written.
    data = bytearray(b"".join(lz4.frame.decompress(frame) for frame in packed.frames))
    return np.frombuffer(data, dtype=packed.dtype).reshape(packed.shape)
