"""The trainer's side of data-parallel learning: children that sample and learn together.

The group fails as a whole: when a rank fails all are ended at once, so that none waits for it. With
`recreate_failed_workers` a new group restores the state from before the request, and the request is
repeated: the learning curve is that of an uninterrupted run. Times are seconds.
"""

import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from trainables.core.processes.child import ChildProcess, Patience
from trainables.errors import ExchangeError, TrainableError, WorkerError
from trainables.rollout.batch import Sample
from trainables.rollout.workers.ranks.rank import Learnt, RankServer
from trainables.rollout.workers.remote.recovery import (
    MAX_WORKER_FAILURE_RETRIES,
    RecoveryConfig,
    checked,
)
from trainables.rollout.workers.remote.server import start_worker
from trainables.rollout.workers.worker_set import (
    Arguments,
    WorkerSet,
    constant_args,
    require_as_many,
)
from trainables.rollout.workers.worker_spec import WorkerSpec

#: Seconds that each rank is asked for its error when another rank reports a failed exchange.
CAUSE_S = 1.0
#: Requests that only send something to the ranks and are answered at once.
QUICK = ("load_policy", "sync", "set_global_vars")
#: Requests that are repeated for a new group.
RESTORING = ("set_state", *QUICK)
#: Request → type of its answer, for requests whose answers are checked.
KINDS: Mapping[str, type] = {"iterate": Learnt, "iterate_with_state": tuple}

logger = logging.getLogger(__name__)


class RankGroup(WorkerSet):
    """Child processes that sample and learn with averaged gradients, ranks 0 … k-1.

    `specs` has one specification for each. A rank waits at most `timeout_s` seconds for the others
    in one exchange. Creating the object starts the processes and joins them to a group.
    """

    def __init__(
        self, specs: Sequence[WorkerSpec], recovery: RecoveryConfig, timeout_s: float
    ) -> None:
        self._specs = list(specs)
        self._recovery = recovery
        self._timeout_s = timeout_s
        self.restarts = 0
        self._processes: list[ChildProcess] = []
        self._restoring_args: dict[str, Arguments] = {}
        try:
            self._start()
        except BaseException:
            self._kill()
            raise

    def sample_and_learn(self, *request: Any) -> list[Learnt]:
        """Let each rank sample and learn with the arguments `request` of `Rank.sample_and_learn`.

        Returns the ranks' results by index. Raises TrainableError if a rank failed for good, and
        WorkerError if the ranks' weights are no longer equal; all ranks are killed before.
        """
        if not self._recovery.recreate_failed_workers:
            learnt = list(self._ask("iterate", constant_args(*request)).values())
        else:
            answers = self._ask("iterate_with_state", constant_args(*request)).values()
            learnt = [one for one, _ in answers]
            states = [state for _, state in answers]
            self._restoring_args["set_state"] = lambda index: (states[index],)
        if len({one.digest for one in learnt}) > 1:
            self._kill()
            raise WorkerError(
                "ranks have diverged: their weights differ after an iteration ("
                + ", ".join(f"rank {i}: {one.digest[:12]}" for i, one in enumerate(learnt))
                + "); the trial has to continue from its last checkpoint"
            )
        self._restoring_args["load_policy"] = constant_args(learnt[0].policy)
        return learnt

    def load_policy(self, state: Mapping[str, Any]) -> None:
        """Load a policy's `state`, a result of `Policy.get_state`, in every rank's learner."""
        self._ask("load_policy", constant_args(state))

    def sample(self) -> list[Sample]:
        """Return one sample of each rank, by index, without learning from it.

        Raises WorkerError if a rank's sample has not the size and shapes that were requested.
        """
        samples = self._ask("sample", constant_args())
        return [checked(one, self._specs[index]) for index, one in samples.items()]

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore the states that `get_state` returned; a group that has ended is started again.

        Raises ConfigError unless there is one state for each rank.
        """
        require_as_many(states, len(self._specs))
        if not self._processes:
            self._start()
        super().set_state(states)

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Call ``method(*args(rank))`` in each rank, and return the answers by rank.

        If a rank fails, the group is restarted and the call repeated, as far as the settings allow;
        each restart is counted in `restarts` and logged as a warning. Raises TrainableError if a
        rank failed, and the group may not be restarted or failed again. All ranks are killed before
        any exception is raised.
        """
        first: TrainableError | None = None
        for attempt in range(MAX_WORKER_FAILURE_RETRIES + 1):
            try:
                if attempt:
                    self._restart()
                answers = self._ask_once(method, args)
            except TrainableError as error:
                self._kill()
                first = first or error
                if not self._recovery.allows(attempt, self.restarts):
                    break
                self.restarts += 1
                logger.warning(
                    "a rank failed; the group of %d is restarted, %d of at most %d times",
                    len(self._specs),
                    self.restarts,
                    self._recovery.max_worker_restarts,
                    exc_info=error,
                )
            except BaseException:
                # Some ranks may have been asked and others not: they would wait for each other.
                self._kill()
                raise
            else:
                if method in RESTORING:
                    self._restoring_args[method] = args
                return answers
        assert first is not None  # noqa: S101 for mypy
        raise self._with_advice(first)

    def _ask_once(self, method: str, args: Arguments) -> dict[int, Any]:
        """Call ``method(*args(rank))`` in each rank, and return the answers by rank.

        Raises the error of a rank that fails, or WorkerError if the group has ended or an answer is
        not of the type that `KINDS` names.
        """
        if not self._processes:
            raise WorkerError("the group of ranks has ended; restore the trainer to continue")
        for index, rank in enumerate(self._processes):
            rank.send(method, *args(index))
        waiting = dict(enumerate(self._processes))
        answers: dict[int, Any] = {}
        patience = self._patience(method)
        while waiting:
            index = _first_ready(waiting, patience.seconds)
            try:
                answers[index] = waiting.pop(index).receive(patience)
            except ExchangeError as error:
                raise _cause(error, waiting) from error
        for index, answer in answers.items():
            if not isinstance(answer, KINDS.get(method, object)):
                raise WorkerError(
                    f"rollout worker {index} returned garbage instead of what it learnt: a "
                    f"{type(answer).__name__}"
                )
        return dict(sorted(answers.items()))

    def _patience(self, method: str) -> Patience:
        """Return the time limit for the answer to a call of `method`.

        It is ``sample_timeout_s``; if that is not set, ``data_parallel_timeout_s`` for calls that
        only send something, and none for others.
        """
        if self._recovery.sample_timeout_s is None and method in QUICK:
            return Patience(self._timeout_s, "data_parallel_timeout_s")
        return Patience(self._recovery.sample_timeout_s, "sample_timeout_s")

    def _start(self) -> None:
        """Start the processes, and join them to a torch process group that meets over a file.

        A port could be taken by another program. The file's temporary folder is deleted afterwards.
        """
        self._processes = []
        for spec in self._specs:
            self._processes.append(start_worker(spec, self._patience(QUICK[0]), RankServer))
        # All have imported before any waits for another.
        self._ask_once("get_state", constant_args())
        folder = tempfile.mkdtemp(prefix="ranks-")
        try:
            url = (Path(folder) / "meeting").as_uri()
            group = (len(self._specs), "gloo", self._timeout_s)
            self._ask_once("setup_torch_data_parallel", lambda index: (url, index, *group))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _restart(self) -> None:
        """Start a new group in the state from before the call that failed."""
        self._start()
        for method in RESTORING:
            if method in self._restoring_args:
                self._ask_once(method, self._restoring_args[method])

    def _kill(self) -> None:
        """Kill the processes of all ranks; none is left in `_processes`."""
        for rank in self._processes:
            rank.kill()
        self._processes = []

    def _with_advice(self, error: TrainableError) -> TrainableError:
        """Return a copy of a WorkerError with advice about restarts; another error unchanged."""
        if not isinstance(error, WorkerError):
            return error
        advice = (
            f"recovery has failed after {self.restarts} restart(s)"
            if self._recovery.recreate_failed_workers
            else "recreate_failed_workers: true restarts all ranks from their last state"
        )
        advised = WorkerError(f"{error}\n{advice}")
        advised.__cause__ = error.__cause__ or error
        return advised


def _first_ready(waiting: Mapping[int, ChildProcess], timeout_s: float | None) -> int:
    """Wait until a rank of `waiting` (rank → process) answers or dies, and return the lowest such.

    Returns the lowest rank of all after `timeout_s` seconds; None waits without limit.
    """
    owner = {end: index for index, rank in waiting.items() for end in rank.ends}
    rank = next(iter(waiting.values()))
    ready = connection.wait(list(owner), rank.seconds_left(timeout_s))
    return min((owner[end] for end in ready), default=min(waiting))


def _cause(error: ExchangeError, waiting: dict[int, ChildProcess]) -> TrainableError:
    """Return the error of a rank in `waiting` that failed, if any, or else `error` itself.

    An ExchangeError of one rank is often only the consequence of another rank's death. Each rank's
    answer is waited for up to `CAUSE_S` seconds, and read.
    """
    for rank in waiting.values():
        if not connection.wait(rank.ends, CAUSE_S):
            continue
        try:
            rank.receive(Patience(CAUSE_S))
        except ExchangeError:
            continue
        except TrainableError as cause:
            return cause
    return error
