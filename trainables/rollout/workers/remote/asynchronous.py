"""Rollout workers in child processes that sample on while the trainer learns.

Each has one sample in the making or waiting to be taken: that bounds the memory and the age of the
weights where the learner is the slower one. Which samples come first is up to the clock: nothing
here is exact to the bit.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from typing import Any

from trainables.core.processes.child import STOP_TIMEOUT_S, Patience
from trainables.errors import TrainableError
from trainables.policies.acting.actor import Weights
from trainables.rollout.batch import Sample
from trainables.rollout.workers.remote.recovery import RecoveryConfig, SupervisedWorker
from trainables.rollout.workers.remote.worker_set import ChildWorkers
from trainables.rollout.workers.worker_set import Arguments
from trainables.rollout.workers.worker_spec import WorkerSpec


class AsyncWorkers(ChildWorkers):
    """Workers whose samples are taken in the order in which they come.

    A child is asked for its next sample when one is taken from it, with the weights of that
    moment. For any other request all come to rest; what they have sampled by then is given first
    afterwards. A checkpoint holds the children as they are at rest, without such samples, which are
    counted only when they are learnt from.

    Args:
        specs: one of each worker.
        recovery: what becomes of one that fails.
        metrics_timeout_s: not read: episodes come with the sample in which they ended.
        batch_size: environment steps that are given at once, at least.
    """

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        recovery: RecoveryConfig,
        metrics_timeout_s: float,
        batch_size: int,
    ) -> None:
        self._batch_size = batch_size
        self._weights: tuple[Weights, Mapping[str, Any]] = ({}, {})
        self._global_vars: Mapping[str, Any] = {}
        self._asked: list[SupervisedWorker] = []
        """Those that sample, the one that was asked first before the others."""
        self._taken: list[Sample] = []
        """While all were at rest."""
        super().__init__(specs, recovery, metrics_timeout_s)

    def sample(self) -> list[Sample]:
        """Samples of as many steps as a batch has, at least, whoever they are of."""
        samples: list[Sample] = []
        rows = 0
        while rows < self._batch_size:
            self._ask_on()
            for one in self._take():
                samples.append(one)
                rows += sum(fragment.valid.size for fragment in one.fragments)
        self._ask_on()
        return samples

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give weights and filters to each worker with its next request."""
        self._weights = weights, filters
        self.version += 1

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Give variables to each worker with its next request."""
        self._global_vars = global_vars

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave; samples that wait never happened."""
        super().set_state(states)
        self._taken = []

    def close(self) -> None:
        """End them all, at the same time; what they still say is not read."""
        for process in self._processes:
            process.ask_to_end()
        for process in self._processes:
            with contextlib.suppress(TrainableError):
                # A child whose sample nobody takes would never come to the end of sending it.
                process.receive_answer(Patience(STOP_TIMEOUT_S))
        super().close()

    def _ask_on(self) -> None:
        """Let those that are at rest sample."""
        for child in self._children:
            if child not in self._asked:
                self._asked.append(child)
                child.send("sample_on", self.version, self._global_vars, *self._weights)

    def _take(self) -> list[Sample]:
        """Return a sample taken before the workers paused, or the first to arrive, or none."""
        if self._taken:
            return [self._taken.pop(0)]
        return list(self._answers(SupervisedWorker.receive, [self._first()]).values())

    def _first(self) -> SupervisedWorker:
        """Whose answer has come; else the one that has died or had its time."""
        ends = {end: child for child in self._asked for end in child.process.ends}
        lefts = [child.seconds_left() for child in self._asked]
        least = min((left for left in lefts if left is not None), default=None)
        ready = {id(ends[end]) for end in connection.wait(list(ends), least)}
        late = [child for child, left in zip(self._asked, lefts, strict=True) if left == least]
        return next((child for child in self._asked if id(child) in ready), late[0])

    def _answers(
        self,
        receive: Callable[[SupervisedWorker], Any],
        of: Sequence[SupervisedWorker] | None = None,
    ) -> dict[int, Any]:
        asked = list(self._children if of is None else of)
        try:
            return super()._answers(receive, asked)
        finally:
            self._asked = [child for child in self._asked if child not in asked]

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Every worker's answer, when all have come to rest."""
        if self._asked:
            self._taken += self._answers(SupervisedWorker.receive, self._asked).values()
        return super()._ask(method, args)
