"""Rollout workers in child processes; one that failed is replaced, or left out, if so set.

Whatever they return stands in the order of their indices, never of arrival.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from trainables.errors import ConfigError, TrainableError, WorkerError
from trainables.policies.actor import Weights
from trainables.rollout import access
from trainables.rollout.batch import Sample
from trainables.rollout.metrics import RolloutMetrics
from trainables.rollout.remote.recovery import RecoveryConfig, SupervisedWorker
from trainables.rollout.worker import RolloutWorker
from trainables.rollout.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ChildWorkers:
    """Workers in child processes, indices 0 … k-1.

    Those that failed and were left out have no answers and no state (None in `get_state`).

    Args:
        specs: one per worker, by index.
        recovery: what happens when one fails.
        metrics_timeout_s: how long all together are waited for when they tell their metrics.
    """

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        recovery: RecoveryConfig | None = None,
        metrics_timeout_s: float = 180.0,
    ) -> None:
        self._metrics_timeout_s = metrics_timeout_s
        self._recovery = recovery or RecoveryConfig()
        self._specs = specs
        self._children: list[SupervisedWorker] = []
        try:
            self._start(specs)
        except BaseException:
            self.close()
            raise

    def sample(self) -> list[Sample]:
        """One sample of each, collected at the same time.

        Its episodes are told after it, so that a child that is slow to tell them holds up nobody;
        late ones come with the next sample.
        """
        samples: dict[int, Sample] = self._ask("sample", lambda _: ())
        for child in self._children:
            child.send("tell_metrics")
        until = time.monotonic() + self._metrics_timeout_s
        told = self._answers(lambda child: child.metrics(max(0.0, until - time.monotonic())))
        return [_with_metrics(one, told.get(index, [])) for index, one in samples.items()]

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to each worker."""
        self._ask("sync", lambda _: (weights, filters))

    def get_state(self) -> list[dict[str, Any] | None]:
        """The state of each worker; None for one that was left out."""
        states = self._ask("get_state", lambda _: ())
        return [states.get(index) for index in range(len(self._specs))]

    def set_state(self, states: Sequence[Mapping[str, Any] | None]) -> None:
        """Take back what `get_state` gave, with as many workers as there were then.

        Those that had been left out are left out again, those that were left out since come back.
        """
        require_as_many(states, len(self._specs))
        for child in [c for c in self._children if states[c.spec.index] is None]:
            self._leave_out(child)
        there = {child.spec.index for child in self._children}
        back = [s for s in self._specs if states[s.index] is not None and s.index not in there]
        self._start(back)
        self._ask("set_state", lambda index: (states[index],))

    def healthy(self) -> int:
        """Child processes that answered last."""
        return len(self._children)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tell each worker and its policy."""
        self._ask("set_global_vars", lambda _: (global_vars,))

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """``function(worker)`` of each, at the same time, in worker order."""
        packed = access.pack(function)
        answers = self._ask("apply_packed", lambda _: (packed,))
        return [access.unpack(index, answer) for index, answer in answers.items()]

    def pids(self) -> list[int]:
        """Of the children, by index."""
        return [child.pid for child in self._children]

    def close(self) -> None:
        """End them all, at the same time."""
        for child in self._children:
            child.ask_to_end()
        for child in self._children:
            child.close()

    def _start(self, specs: Iterable[WorkerSpec]) -> None:
        """Add children, each of which is ours as soon as it is there."""
        for spec in specs:
            self._children.append(SupervisedWorker(spec, self._recovery))
        self._children.sort(key=lambda child: child.spec.index)

    def _ask(self, method: str, args: Callable[[int], tuple[Any, ...]]) -> dict[int, Any]:
        """Index → answer, in worker order; all are read before an error is raised."""
        if not self._children:
            raise self._none_left(None)
        for child in self._children:
            child.send(method, *args(child.spec.index))
        return self._answers(SupervisedWorker.receive)

    def _answers(self, receive: Callable[[SupervisedWorker], Any]) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        failed: dict[int, Exception] = {}
        for child in list(self._children):
            try:
                answers[child.spec.index] = receive(child)
            except TrainableError as error:
                failed[child.spec.index] = error
        if failed:
            self._judge(failed)
        return answers

    def _judge(self, failed: Mapping[int, Exception]) -> None:
        """Leave out those that failed, or raise the first one's error."""
        first = next(iter(failed.values()))
        if not self._recovery.ignore_worker_failures:
            raise self._advised(first)
        for child in [c for c in self._children if c.spec.index in failed]:
            logger.warning(
                "rollout worker %d (pid %d) failed; training goes on without it, %d of %d are left",
                child.spec.index,
                child.pid,
                len(self._children) - 1,
                len(self._specs),
                exc_info=failed[child.spec.index],
            )
            self._leave_out(child)
        if not self._children:
            raise self._none_left(first)

    def _leave_out(self, child: SupervisedWorker) -> None:
        child.kill()
        self._children.remove(child)

    def _none_left(self, first: Exception | None) -> WorkerError:
        advice = "set recreate_failed_workers: true, which replaces them"
        if self._recovery.recreate_failed_workers:
            advice = f"raise max_worker_restarts: {self._recovery.max_worker_restarts}"
        error = WorkerError(
            f"none of {len(self._specs)} rollout worker(s) is left to go on with; mend what made "
            f"them fail, or {advice}" + (f"; one of them: {first}" if first else "")
        )
        error.__cause__ = first
        return error

    def _advised(self, error: Exception) -> Exception:
        if not isinstance(error, WorkerError):
            return error
        advice = "ignore_worker_failures: true goes on without this worker"
        if not self._recovery.recreate_failed_workers:
            advice += ", recreate_failed_workers: true replaces it"
        told = str(error)
        advised = type(error)(f"{told}\n{advice}" if "\n" in told else f"{told}; {advice}")
        advised.__cause__ = error.__cause__
        return advised


def _with_metrics(sample: Sample, episodes: list[RolloutMetrics] | None) -> Sample:
    if episodes is None:
        return replace(sample, late=True)
    return replace(sample, episodes=[*episodes, *sample.episodes])


def require_as_many(states: Sequence[Any], workers: int) -> None:
    """Refuse states of more or fewer workers than there are: some would be lost or begin anew.

    Args:
        states: of the workers of a checkpoint.
        workers: child processes; 0: there is the trainer's own worker.

    Raises:
        ConfigError: the setting is not that of the checkpoint.
    """
    if len(states) != max(1, workers):
        raise ConfigError(
            "num_workers",
            workers,
            f"{len(states)}, as in the checkpoint",
            "each worker goes on where it was",
        )
