"""A child that collects, and its replacement when it dies, hangs, raises or returns garbage.

A replacement has the index and the streams of the child before it. With `recreate_failed_workers`
the trainer stores the state that comes with each sample (no extra request is made for it), sends it
to the replacement and repeats the request. If environments have an exact state, the answer is the
one that the lost child would have given, to the bit. Times are seconds.
"""

import contextlib
import logging
from dataclasses import replace
from multiprocessing import connection
from typing import Any

from pydantic import Field

from trainables.core.processes.child import ChildProcess, Patience
from trainables.core.settings import LONGEST_WAIT_S, Section
from trainables.envs.state.replay import steps_to_replay
from trainables.errors import TrainableError, WorkerError, type_of
from trainables.rollout.agents import worker as agents_worker
from trainables.rollout.agents.worker import AgentsSpec, MultiAgentBatch
from trainables.rollout.batch import PackedSample, Sample
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.external.workers import ExternalSpec
from trainables.rollout.workers.remote.server import as_data, start_worker
from trainables.rollout.workers.worker_spec import WorkerSpec

#: Maximum number of replacements for one request; more failures show that replacing does not help.
MAX_WORKER_FAILURE_RETRIES = 3

#: Requests for samples.
SAMPLING = ("sample", "sample_on")

#: Requests that are repeated for a replacement: a child's state lacks weights, filters, variables.
RESTORING = ("set_state", "sync", "set_global_vars")

logger = logging.getLogger(__name__)


class RecoveryConfig(Section):
    """Settings for a child that dies, hangs, raises or returns garbage while it collects."""

    ignore_worker_failures: bool = Field(
        default=False,
        description="If a child process fails, continue without it; batches are then smaller.",
    )
    recreate_failed_workers: bool = Field(
        default=False,
        description="Replace a failed child process with a new one, which takes over its index, "
        "random streams and last state.",
    )
    max_worker_restarts: int = Field(
        default=1000,
        ge=0,
        description="Maximum number of replacements of each child process.",
    )
    sample_timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Seconds after which a child process that has not answered counts as failed; "
        "null: no limit.",
    )

    def allows(self, in_a_row: int, restarts: int) -> bool:
        """Return whether one more replacement is allowed.

        It needs `recreate_failed_workers`, fewer than `MAX_WORKER_FAILURE_RETRIES` in a row, and
        fewer than `max_worker_restarts` in all.

        Args:
            in_a_row: number of replacements made for the current request.
            restarts: number of replacements made during the trainer's life.
        """
        few = in_a_row < MAX_WORKER_FAILURE_RETRIES and restarts < self.max_worker_restarts
        return self.recreate_failed_workers and few


class SupervisedWorker:
    """The child process of one worker; it is replaced when it fails, if the settings say so.

    Each request is `send`, then `receive` or `metrics`. Creating the object starts the process.
    """

    def __init__(self, spec: WorkerSpec, config: RecoveryConfig) -> None:
        self.spec = spec
        self.config = config
        self.restarts = 0
        self.process = self._start_child()
        """The current child process."""
        self._request: tuple[str, tuple[Any, ...]] = ("", ())
        self._restoring_args: dict[str, tuple[Any, ...]] = {}
        self._late_episodes: list[
            RolloutMetrics
        ] = []  # episodes received too late and not returned yet
        self._is_late = False  # True while an answer to take_metrics is late

    def send(self, method: str, *args: Any) -> None:
        """Ask the child for ``worker.method(*args)`` without waiting.

        No error is raised if the child is gone: `receive` notices that. If its metrics are late,
        they are received first, and the episodes kept for the next `metrics`.
        """
        if self._is_late:
            self._is_late = False
            with contextlib.suppress(TrainableError):  # which this request will meet as well
                self._late_episodes += self.receive()
        self._request = (method, args)
        with contextlib.suppress(WorkerError):
            self._ask()

    def receive(self) -> Any:
        """Wait for the answer to the request and return it, from a replacement if necessary.

        A sample is decompressed, and refused if it has not the requested size. Raises
        TrainableError if the child failed and may not be replaced, or not again.
        """
        try:
            return self._answer()
        except TrainableError as error:
            if not self.config.recreate_failed_workers:
                raise
            return self._answer_of_replacement(error)

    def seconds_left(self) -> float | None:
        """Return the seconds that the answer may still take; None if there is no limit."""
        return self.process.seconds_left(self._patience(*self._request).seconds)

    def metrics(self, timeout_s: float) -> list[RolloutMetrics] | None:
        """Wait for the answer to the request ``take_metrics``: the episodes that have ended.

        Episodes that arrived late before come first. Returns None if the answer does not arrive in
        `timeout_s` seconds; a warning is logged.

        Raises TrainableError if the child failed and may not be replaced, or not again.
        """
        if not connection.wait(self.process.ends, timeout_s):
            logger.warning(
                "rollout worker %d (pid %d) has not sent its metrics in time "
                "(collect_metrics_timeout); they count in a later iteration, and the trial is not "
                "bit-exact",
                *(self.spec.index, self.process.pid),
            )
            self._is_late = True
            return None
        now: list[RolloutMetrics] = self.receive()
        late, self._late_episodes = self._late_episodes, []
        return late + now

    def _answer_of_replacement(self, first: TrainableError) -> Any:
        """Replace the child, which failed with `first`, until a replacement answers; return that.

        Each replacement is counted in `restarts` and logged as a warning. Raises WorkerError if no
        more are allowed.
        """
        error, before = first, self.restarts
        while self.config.allows(self.restarts - before, self.restarts):
            self.restarts += 1
            logger.warning(
                "rollout worker %d (pid %d) failed and is replaced, %d of at most %d times",
                *(
                    self.spec.index,
                    self.process.pid,
                    self.restarts,
                    self.config.max_worker_restarts,
                ),
                exc_info=error,
            )
            try:
                self._replace()
                return self._answer()
            except TrainableError as again:
                error = again
        raise WorkerError(
            f"rollout worker {self.spec.index} failed again after {self.restarts} replacement(s) "
            f"(max_worker_restarts: {self.config.max_worker_restarts}; at most "
            f"{MAX_WORKER_FAILURE_RETRIES} in a row); recovery has failed: {error}"
        ) from first

    def _replace(self) -> None:
        """Kill the child, start a new one in the state from before the request, and ask again.

        Raises TrainableError if the new one fails before it is asked.
        """
        self.process.kill()
        self.process = self._start_child()
        method, _ = self._request
        for again in RESTORING:
            if again in self._restoring_args and method not in ("set_state", again):
                self.process.send(again, *self._restoring_args[again])
                self.process.receive(self._patience(again, *self._restoring_args[again]))
        self._ask()

    def _start_child(self) -> ChildProcess:
        """Start and return a process of the worker."""
        return start_worker(self.spec, self._patience())

    def _ask(self) -> None:
        """Send the request to the child.

        With `recreate_failed_workers` a sample is asked for together with the state after it.
        Raises WorkerError if the child is gone.
        """
        method, args = self._request
        keeps = method in SAMPLING and self.config.recreate_failed_workers
        self.process.send(f"{method}_with_state" if keeps else method, *args)

    def _answer(self) -> Any:
        """Wait for and return the child's answer to the request; a sample is decompressed, checked.

        Stores what a replacement would need. A state also gets the late episodes as ``unsent``,
        ``set_state`` drops them, and ``change_policies`` changes `spec`. Raises TrainableError if
        the child failed.
        """
        method, args = self._request
        answer = self.process.receive(self._patience(method, *args))
        if method == "get_state":
            return {**answer, "unsent": [*as_data(self._late_episodes), *answer["unsent"]]}
        if method == "set_state":
            self._late_episodes = []
        if method == "change_policies":
            self.spec = replace(self.spec, **args[0])
        if not self.config.recreate_failed_workers:
            return checked(_decompress(answer), self.spec) if method in SAMPLING else answer
        return self._store_for_replacement(method, args, answer)

    def _patience(self, method: str = "", *args: Any) -> Patience:
        """Return the time limit for the answer to ``method(*args)``, from ``sample_timeout_s``.

        A ``set_state`` that replays episodes may take longer, in proportion to their steps.
        """
        timeout_s = self.config.sample_timeout_s
        if timeout_s is not None and method == "set_state":
            timeout_s *= 1 + steps_to_replay(args[0]) / self.spec.steps
        return Patience(timeout_s, "sample_timeout_s")

    def _store_for_replacement(self, method: str, args: tuple[Any, ...], answer: Any) -> Any:
        """Store of a request and its answer what a replacement would need; return the plain answer.

        The state that came with a sample is taken out of the answer.
        """
        if method in SAMPLING:
            sample, state = answer
            answer, self._restoring_args["set_state"] = (
                checked(_decompress(sample), self.spec),
                (state,),
            )
        elif method == "take_metrics" and "set_state" in self._restoring_args:
            self._restoring_args["set_state"] = (
                {**self._restoring_args["set_state"][0], "unsent": []},
            )
        elif method in RESTORING:
            self._restoring_args[method] = args
        elif method == "change_policies":  # weights of other policies follow
            self._restoring_args = {**self._restoring_args, "set_state": (answer,)}
            self._restoring_args.pop("sync", None)
        return answer


def _decompress(answer: Any) -> Any:
    """Return a sample without compression; anything else as it is, for `checked` to refuse."""
    return answer.decompress() if isinstance(answer, PackedSample) else answer


def checked(sample: Any, spec: WorkerSpec) -> Sample:
    """Return a child's sample unchanged if it has the steps and shapes that `spec` requires.

    It needs exactly `spec.steps` steps, or at least so many with whole episodes, several agents and
    environments that call. Raises WorkerError if it is not a sample, or does not fit.
    """
    subject = f"rollout worker {spec.index} returned garbage instead of a sample"
    if not isinstance(sample, Sample):
        raise WorkerError(f"{subject}: {type_of(sample)}")
    if isinstance(sample, MultiAgentBatch) and isinstance(spec, AgentsSpec):
        return agents_worker.checked(sample, spec)
    steps = sum(fragment.valid.size for fragment in sample.fragments)
    complete = spec.sampling.batch_mode == "complete_episodes"
    called = isinstance(spec, ExternalSpec)
    if called:
        steps, complete = sample.count, True
    if steps < spec.steps or (steps > spec.steps and not complete):
        least = "at least " if complete else ""
        raise WorkerError(
            f"{subject}: {len(sample.fragments)} fragments with {steps} steps; expected "
            f"{least}{spec.steps}"
        )
    fixed = spec.sampling.rollout_fragment_length, spec.sampling.num_envs_per_worker
    for fragment in sample.fragments:
        expected = (len(fragment.valid), 1) if complete else fixed
        if called:
            expected = (len(fragment.valid), fragment.valid[0].size)
        columns = {name: column.shape[:2] for name, column in fragment.columns.items()}
        wrong = {name: shape for name, shape in columns.items() if shape != expected}
        if wrong:
            raise WorkerError(f"{subject}: shapes {wrong}; expected {expected}")
    return sample
