"""Rollout workers in child processes that sample while the trainer learns.

Each worker has at most one sample that it is collecting or that waits to be received, which bounds
the memory, and the age of the weights if the learner is slower. The clock decides which samples
arrive first, so nothing here is exact to the bit.
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
    """Workers whose samples are used in the order of their arrival.

    When a child's sample is received, the child is asked for the next one with the current weights.
    Before any other request all children finish their sample; these samples are returned first
    afterwards. A checkpoint holds the children's state after them but not the samples, which are
    counted only when they are learnt from. Episodes arrive with the sample in which they ended.
    `sample` returns at least `batch_size` rows.
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
        self._sampling_children: list[SupervisedWorker] = []
        """Children that are sampling, in the order in which they were asked."""
        self._early_samples: list[Sample] = []
        """Samples that were received so that another request could be made, not returned yet."""
        super().__init__(specs, recovery, metrics_timeout_s)

    def sample(self) -> list[Sample]:
        """Wait for samples, of any workers, with at least `batch_size` rows, and return them.

        They are in the order of arrival; samples of before the latest other request come first.
        Afterwards each idle child is asked for another sample, with the current weights. Raises
        TrainableError if a child failed and is neither replaced nor left out, or none is left.
        """
        samples: list[Sample] = []
        rows = 0
        while rows < self._batch_size:
            self._request_samples()
            for one in self._next_samples():
                samples.append(one)
                rows += sum(fragment.valid.size for fragment in one.fragments)
        self._request_samples()
        return samples

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Store weights and filters, which a worker receives when it is asked for a sample.

        The version of the weights is incremented.
        """
        self._weights = weights, filters
        self.version += 1

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Store variables, which a worker receives when it is asked for a sample."""
        self._global_vars = global_vars

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore the states that `get_state` returned, and drop samples not returned yet."""
        super().set_state(states)
        self._early_samples = []

    def close(self) -> None:
        """End all children at the same time; their running samples are dropped.

        Waits some seconds for each to finish its sample; one that does not end in time is killed.
        """
        for process in self._processes:
            process.ask_to_end()
        for process in self._processes:
            with contextlib.suppress(TrainableError):
                # A child could never finish sending a sample that is not received.
                process.receive_answer(Patience(STOP_TIMEOUT_S))
        super().close()

    def _request_samples(self) -> None:
        """Send the current weights, filters and variables to each child that is not sampling.

        The child is asked for a sample at the same time, without waiting.
        """
        for child in self._children:
            if child not in self._sampling_children:
                self._sampling_children.append(child)
                child.send("sample_on", self.version, self._global_vars, *self._weights)

    def _next_samples(self) -> list[Sample]:
        """Return a list of one sample: a stored one, or else the next that arrives.

        The list is empty if the child failed and is left out. Raises the child's error if failures
        are not ignored.
        """
        if self._early_samples:
            return [self._early_samples.pop(0)]
        return list(self._answers(SupervisedWorker.receive, [self._first_ready()]).values())

    def _first_ready(self) -> SupervisedWorker:
        """Wait until a sampling child answers, dies or exceeds its time limit, and return it.

        Of several, it is the one that was asked first.
        """
        ends = {end: child for child in self._sampling_children for end in child.process.ends}
        lefts = [child.seconds_left() for child in self._sampling_children]
        least = min((left for left in lefts if left is not None), default=None)
        ready = {id(ends[end]) for end in connection.wait(list(ends), least)}
        late = [
            child
            for child, left in zip(self._sampling_children, lefts, strict=True)
            if left == least
        ]
        return next((child for child in self._sampling_children if id(child) in ready), late[0])

    def _answers(
        self,
        receive: Callable[[SupervisedWorker], Any],
        children: Sequence[SupervisedWorker] | None = None,
    ) -> dict[int, Any]:
        """Return index → answer of these children (None for all), as `ChildWorkers._answers`.

        They no longer count as sampling.
        """
        asked = list(self._children if children is None else children)
        try:
            return super()._answers(receive, asked)
        finally:
            self._sampling_children = [
                child for child in self._sampling_children if child not in asked
            ]

    def _leave_out(self, child: SupervisedWorker) -> None:
        """Kill a child, whose sample is not waited for any more, and continue without it."""
        super()._leave_out(child)
        self._sampling_children = [one for one in self._sampling_children if one is not child]

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Call a method of each worker after all have finished their samples.

        Those samples are stored for the next `sample`. Returns index → answer.
        """
        if self._sampling_children:
            self._early_samples += self._answers(
                SupervisedWorker.receive, self._sampling_children
            ).values()
        return super()._ask(method, args)
