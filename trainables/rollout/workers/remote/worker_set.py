"""Rollout workers in child processes, which are replaced or left out when they fail."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainables.core.processes.child import ChildProcess
from trainables.errors import TrainableError, WorkerError
from trainables.rollout.batch import Sample
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.workers.remote.recovery import RecoveryConfig, SupervisedWorker
from trainables.rollout.workers.worker_set import (
    Arguments,
    WorkerSet,
    constant_args,
    require_as_many,
)
from trainables.rollout.workers.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)


class ChildWorkers(WorkerSet):
    """Workers in child processes, indices 0 … k-1, each with its specification.

    Workers that failed and were left out have no answers and no state (None in `get_state`). The
    episodes of all workers together are waited for at most `metrics_timeout_s` seconds. Creating
    the object starts the processes.
    """

    def __init__(
        self, specs: Sequence[WorkerSpec], recovery: RecoveryConfig, metrics_timeout_s: float
    ) -> None:
        self._metrics_timeout_s = metrics_timeout_s
        self._recovery = recovery
        self._specs = specs
        self._children: list[SupervisedWorker] = []
        try:
            self._start(specs)
        except BaseException:
            self.close()
            raise

    @property
    def _processes(self) -> Sequence[ChildProcess]:  # type: ignore[override]  # as they are now
        """The current child processes, by index."""
        return [child.process for child in self._children]

    def sample(self) -> list[Sample]:
        """Return one sample of each worker that was not left out, collected at the same time.

        Episodes arrive after the samples, so that a child that is slow to send them delays no
        other; if they are late, the sample has `is_late`, and the next one has them.
        """
        samples: dict[int, Sample] = self._ask("sample", constant_args())
        for child in self._children:
            child.send("take_metrics")
        until = time.monotonic() + self._metrics_timeout_s
        ended = self._answers(lambda child: child.metrics(max(0.0, until - time.monotonic())))
        return [_with_metrics(one, ended.get(index, [])) for index, one in samples.items()]

    def get_state(self) -> list[Any]:
        """Return the state of each worker; None for a worker that was left out."""
        states = self._ask("get_state", constant_args())
        return [states.get(index) for index in range(len(self._specs))]

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore the states that `get_state` returned, with the same number of workers.

        Workers without a state are killed and left out; workers that were left out since are
        started again. Raises ConfigError for another number of states.
        """
        require_as_many(states, len(self._specs))
        for child in [c for c in self._children if states[c.spec.index] is None]:
            self._leave_out(child)
        there = {child.spec.index for child in self._children}
        back = [s for s in self._specs if states[s.index] is not None and s.index not in there]
        self._start(back)
        super().set_state(states)

    def change_policies(self, changes: Mapping[str, Any], filter_states: Mapping[str, Any]) -> None:
        """Continue with other policies in all workers, and in those that are started later.

        `changes` is field of the specification → new value. `filter_states` is policy to be created
        anew → (``observation`` and ``reward`` → state of this filter).
        """
        super().change_policies(changes, filter_states)
        self._specs = [replace(one, **changes) for one in self._specs]

    def _start(self, specs: Iterable[WorkerSpec]) -> None:
        """Start a child for each specification, and add it to `_children`, sorted by index."""
        for spec in specs:
            self._children.append(SupervisedWorker(spec, self._recovery))
        self._children.sort(key=lambda child: child.spec.index)

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Call ``method(*args(index))`` in all children at the same time; return index → answer.

        Raises the first error of a child if failures are not ignored, and WorkerError if no child
        is left.
        """
        if not self._children:
            raise self._no_worker_error(None)
        for child in self._children:
            child.send(method, *args(child.spec.index))
        return self._answers(SupervisedWorker.receive)

    def _answers(
        self,
        receive: Callable[[SupervisedWorker], Any],
        children: Sequence[SupervisedWorker] | None = None,
    ) -> dict[int, Any]:
        """Receive with `receive` the answer of each of `children` (None for all), asked before.

        Returns index → answer; a child that failed and is left out has none. All answers are read
        before an error is raised, which is so if failures are not ignored or no child is left.
        """
        answers: dict[int, Any] = {}
        failed: dict[int, Exception] = {}
        for child in list(self._children if children is None else children):
            try:
                answers[child.spec.index] = receive(child)
            except TrainableError as error:
                failed[child.spec.index] = error
        if failed:
            self._handle_failures(failed)
        return answers

    def _handle_failures(self, failed: Mapping[int, Exception]) -> None:
        """Leave out children that failed (index → error) if ``ignore_worker_failures`` is set.

        Each is killed, and logged as a warning. Otherwise the first error is raised. Raises
        WorkerError if no child is left.
        """
        first = next(iter(failed.values()))
        if not self._recovery.ignore_worker_failures:
            raise self._with_advice(first)
        for child in [c for c in self._children if c.spec.index in failed]:
            logger.warning(
                "rollout worker %d (pid %d) failed; training continues without it, "
                "%d of %d are left",
                *(child.spec.index, child.process.pid),
                *(len(self._children) - 1, len(self._specs)),
                exc_info=failed[child.spec.index],
            )
            self._leave_out(child)
        if not self._children:
            raise self._no_worker_error(first)

    def _leave_out(self, child: SupervisedWorker) -> None:
        """Kill a child, and continue without it."""
        child.process.kill()
        self._children.remove(child)

    def _no_worker_error(self, first: Exception | None) -> WorkerError:
        """Return an error which says that no child is left, with advice about settings.

        `first` is the first child's error; None if it is unknown.
        """
        advice = "set recreate_failed_workers: true, which replaces them"
        if self._recovery.recreate_failed_workers:
            advice = f"raise max_worker_restarts, which is {self._recovery.max_worker_restarts}"
        error = WorkerError(
            (
                f"none of {len(self._specs)} rollout worker(s) is left; correct the cause of "
                f"their failures, or {advice}"
            )
            + (f"; one of them: {first}" if first else "")
        )
        error.__cause__ = first
        return error

    def _with_advice(self, error: Exception) -> Exception:
        """Return a copy of a WorkerError with advice about settings; another error unchanged."""
        if not isinstance(error, WorkerError):
            return error
        advice = "ignore_worker_failures: true continues without this worker"
        if not self._recovery.recreate_failed_workers:
            advice += ", recreate_failed_workers: true replaces it"
        text = str(error)
        advised = type(error)(f"{text}\n{advice}" if "\n" in text else f"{text}; {advice}")
        advised.__cause__ = error.__cause__
        return advised


def _with_metrics(sample: Sample, episodes: list[RolloutMetrics] | None) -> Sample:
    """Return the sample with these episodes before its own; None marks the sample as late."""
    if episodes is None:
        return replace(sample, is_late=True)
    return replace(sample, episodes=[*episodes, *sample.episodes])
