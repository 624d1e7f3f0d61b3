"""Evaluation in child processes: distribution of episodes, and replacement of failed children.

Children have no state between evaluations: each request contains the policy, the plan and the seed.
So a child that died, hung or returned garbage is replaced by a new one, which plays the same
episodes with the same numbers to the bit.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from trainables.core import rng
from trainables.core.logs import LogConfig, use_level
from trainables.core.processes.child import ChildProcess, Patience
from trainables.core.resources import ResourcesConfig
from trainables.errors import TrainableError, WorkerError
from trainables.evaluation.config import EvaluationConfig
from trainables.evaluation.play import Plan, Played, play
from trainables.policies.acting.inference import InferencePolicy
from trainables.rollout.workers.remote.recovery import MAX_WORKER_FAILURE_RETRIES

logger = logging.getLogger(__name__)
#: Player, plan, the evaluation's seed, indices of episodes.
Request: TypeAlias = tuple[InferencePolicy, Plan, int, Sequence[int]]


class EvaluationServer:
    """The child's side of an evaluation process: each method answers one request.

    It has no state. Creating it seeds the process's global random streams.
    """

    def __init__(self, seed: int, index: int) -> None:
        rng.seed_global(seed, "worker", index, "global")

    def play(
        self, inference: InferencePolicy, plan: Plan, seed: int, indices: Sequence[int]
    ) -> list[Played]:
        """Play the episodes with these indices, and return them in that order.

        It raises what `trainables.evaluation.play.play` raises, which the parent then receives.
        """
        return play(inference, plan, seed, indices)

    def end(self) -> None:
        """Do nothing before the process ends: nothing is open between two requests."""


class Evaluators:
    """The processes that play evaluations; the first evaluation starts the child processes.

    `seed` is the seed of the global streams in children.
    """

    def __init__(
        self, config: EvaluationConfig, seed: int, resources: ResourcesConfig, logs: LogConfig
    ) -> None:
        self._config = config
        self._seed = seed
        self._resources = resources
        self._logs = logs
        self._patience = Patience(config.evaluation_timeout_s, "evaluation_timeout_s")
        self._children: dict[int, ChildProcess] = {}

    def play(self, inference: InferencePolicy, plan: Plan, seed: int) -> list[Played]:
        """Play ``evaluation_num_episodes`` episodes, divided among processes; return them by index.

        Blocks until all have ended. Without children they are played in this process, else children
        that do not run are started, and kept for the next evaluation. Raises WorkerError if a child
        failed too often in a row, and what `trainables.evaluation.play.play` raises; all children
        are killed after any exception.
        """
        count = self._config.evaluation_num_episodes
        children = min(self._config.evaluation_num_workers, count)
        if children == 0:
            with use_level(self._logs):
                return play(inference, plan, seed, range(count))
        requests = {i: (inference, plan, seed, range(i, count, children)) for i in range(children)}
        played: dict[int, Played] = {}
        try:
            for child, request in requests.items():
                self._send(child, request)
            for child, request in requests.items():
                played.update(zip(request[-1], self._receive(child, request), strict=True))
        except BaseException:
            # Answers that are still to come must not be taken for the next evaluation's.
            self._end(ChildProcess.kill)
            raise
        return [played[index] for index in range(count)]

    def pids(self) -> list[int]:
        """Return the process ids of the children that were started and not ended, by index."""
        return [self._children[index].pid for index in sorted(self._children)]

    def close(self) -> None:
        """End the children, killing those that do not respond; a second call does nothing."""
        for child in self._children.values():
            child.ask_to_end()
        self._end(ChildProcess.close)

    def _end(self, end: Callable[[ChildProcess], None]) -> None:
        """Call `end`, a way to end a process, with each child; then forget them all."""
        for child in self._children.values():
            end(child)
        self._children = {}

    def _send(self, index: int, request: Request) -> None:
        """Request episodes of the child with this index, which is started if necessary.

        Does not wait, and ignores a child that is gone. Raises TrainableError if a part of the
        request cannot be pickled.
        """
        if index not in self._children:
            self._children[index] = ChildProcess(
                f"evaluation worker {index}",
                EvaluationServer,
                (self._seed, index),
                self._patience,
                self._resources,
                self._logs,
            )
        try:
            self._children[index].send("play", *request)
        except WorkerError:
            return
        except Exception as error:
            raise TrainableError(
                f"the policy, its filter, callbacks or the environment's settings cannot be sent "
                f"to an evaluating child: {error}; set evaluation_num_workers: 0"
            ) from error

    def _receive(self, index: int, request: Request) -> list[Played]:
        """Wait for the episodes of a request; a child that failed is replaced, and asked again.

        Raises WorkerError if the child and its replacements failed too often in a row. An error of
        `NAMED_ERRORS` that `play` raised in the child, such as EnvError, is raised at once; any
        other counts as a failure.
        """
        failures = 0
        while True:
            child = self._children[index]
            try:
                return _check_count(child.receive(self._patience), request[-1])
            except WorkerError as error:
                failures += 1
                if failures > MAX_WORKER_FAILURE_RETRIES:
                    raise WorkerError(
                        f"evaluation worker {index} failed {failures} times in a row: {error}"
                    ) from error
                logger.warning(
                    "evaluation worker %d (pid %d) failed and is replaced; its episodes are "
                    "played again",
                    *(index, child.pid),
                    exc_info=error,
                )
                self._children.pop(index).kill()
                self._send(index, request)


def _check_count(episodes: Any, indices: Sequence[int]) -> list[Played]:
    """Return `episodes` if there are as many as `indices`; raises WorkerError otherwise."""
    if not isinstance(episodes, list) or len(episodes) != len(indices):
        raise WorkerError(f"returned garbage instead of {len(indices)} episodes: {episodes!r:.80}")
    return episodes
