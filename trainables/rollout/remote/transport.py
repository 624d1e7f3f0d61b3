"""What changes on the way from a child to its trainer: metrics sent later, rows compressed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import lz4.frame
import numpy as np
from numpy.typing import NDArray

from trainables.rollout.batch import Sample
from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.worker import RolloutWorker

if TYPE_CHECKING:
    from trainables.rollout.batch import Sample


# -------------------------------------------------------------------------------------------------
# Metrics that are told apart from their sample: a child that is slow to tell them holds up
# nobody.
#
# The child keeps the episodes of its samples until it is asked for them, also in its state, so
# that they are told once whatever becomes of it.


class DeferredMetrics:
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


# -------------------------------------------------------------------------------------------------
# Observations compressed with LZ4 while a sample travels from a child to its trainer.
#
# What is expanded equals what was compressed, to the bit.

Array = NDArray[Any]


class Packed(NamedTuple):
    """A compressed array."""

    dtype: str
    shape: tuple[int, ...]
    frames: list[bytes]
    """LZ4 frames that make its bytes, one after the other."""


@dataclass(frozen=True)
class PackedSample:
    """A sample whose observations stand beside it."""

    sample: "Sample"
    """Its fragments hold no observations."""
    observations: list[Packed]
    """Of each fragment."""


class PackingWorker:
    """A worker in a child, whose samples it packs.

    Args:
        worker: does everything else.
        bulk: compress each fragment's observations as a whole, not row by row.
    """

    def __init__(self, worker: "DeferredMetrics", bulk: bool) -> None:
        self._worker = worker
        self._bulk = bulk

    def sample(self) -> PackedSample:
        """A sample, packed."""
        return pack(self._worker.sample(), self._bulk)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the worker can be asked for."""
        return getattr(self._worker, name)


def pack(sample: "Sample", bulk: bool) -> PackedSample:
    """Compress the observations of every fragment, each as a whole (`bulk`) or row by row."""
    packed = [_packed(fragment.observations, bulk) for fragment in sample.fragments]
    none = np.zeros((0, 0, 0), dtype=np.float32)
    emptied = [replace(fragment, observations=none) for fragment in sample.fragments]
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
