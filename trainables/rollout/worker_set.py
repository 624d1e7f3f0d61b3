"""All rollout workers of a trainer, in its own process or in children, behind one interface.

Whatever they return stands in the order of their indices, never of arrival.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import Field

from trainables.policies.actor import Weights
from trainables.rollout.process import WorkerProcess, start
from trainables.rollout.worker import RolloutWorker, Sample, WorkerSpec
from trainables.settings import Section


class WorkersConfig(Section):
    """Where experience is collected."""

    num_workers: int = Field(
        default=0,
        ge=0,
        description="Child processes that collect; 0: the trainer's own process does.",
    )


class WorkerSet(Protocol):
    """What a trainer asks of its workers."""

    def sample(self) -> list[Sample]:
        """One sample of each worker."""

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to each worker."""

    def get_state(self) -> list[dict[str, Any]]:
        """The state of each worker."""

    def set_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take back what `get_state` gave."""

    def healthy(self) -> int:
        """Child processes that are alive."""

    def close(self) -> None:
        """End them all."""


class LocalWorkers:
    """The one worker with index 0, in this process."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.worker = RolloutWorker(spec)

    def sample(self) -> list[Sample]:
        """One sample; its arrays are written again by the next call."""
        return [self.worker.sample()]

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to the worker."""
        self.worker.sync(weights, filters)

    def get_state(self) -> list[dict[str, Any]]:
        """The worker's state."""
        return [self.worker.get_state()]

    def set_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take back what `get_state` gave."""
        self.worker.set_state(states[0])

    def healthy(self) -> int:
        """No children, so 0."""
        return 0

    def close(self) -> None:
        """Close its environments."""
        self.worker.close()


class ChildWorkers:
    """Workers in child processes, indices 0 … k-1."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        self._children = start(specs)

    def sample(self) -> list[Sample]:
        """One sample of each, collected at the same time."""
        return self._ask("sample", lambda _: ())

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to each worker."""
        self._ask("sync", lambda _: (weights, filters))

    def get_state(self) -> list[dict[str, Any]]:
        """The state of each worker."""
        return self._ask("get_state", lambda _: ())

    def set_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take back what `get_state` gave."""
        self._ask("set_state", lambda index: (states[index],))

    def healthy(self) -> int:
        """Child processes that are alive."""
        return sum(child.alive for child in self._children)

    def pids(self) -> list[int]:
        """Of the children, by index."""
        return [child.pid for child in self._children]

    def close(self) -> None:
        """End them all."""
        for child in self._children:
            child.close()

    def _ask(self, method: str, args: Callable[[int], tuple[Any, ...]]) -> list[Any]:
        for child in self._children:
            child.send(method, *args(child.index))
        return _receive_all(self._children)


def _receive_all(children: Sequence[WorkerProcess]) -> list[Any]:
    """Answers in worker order; all are read before an error is raised: none stays in a pipe."""
    answers: list[Any] = []
    first_error: Exception | None = None
    for child in children:
        try:
            answers.append(child.receive())
        except Exception as error:  # noqa: BLE001 raised again below, after the others' answers
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return answers


def make_workers(spec: WorkerSpec, config: WorkersConfig) -> LocalWorkers | ChildWorkers:
    """The workers that the settings ask for, made from `spec` but for their index."""
    if config.num_workers == 0:
        return LocalWorkers(spec)
    return ChildWorkers([replace(spec, index=i) for i in range(config.num_workers)])
