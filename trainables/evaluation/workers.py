"""Evaluation in child processes: which child plays which episodes, and what if one fails.

Children keep nothing between evaluations: each request brings the policy, the plan and the seed. So
a child that died, hung or returned garbage is replaced by a fresh one and asked for the same
episodes again, with the same numbers to the bit.
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
from trainables.policies.inference import InferencePolicy
from trainables.rollout.workers.remote.recovery import MAX_WORKER_FAILURE_RETRIES

logger = logging.getLogger(__name__)
#: Player, plan, the evaluation's seed, indices of episodes.
Request: TypeAlias = tuple[InferencePolicy, Plan, int, Sequence[int]]


class EvaluationServer:
    """All that an evaluating process can be asked for; it has no state."""

    def __init__(self, seed: int, index: int) -> None:
        rng.seed_global(seed, "worker", index, "global")

    def play(
        self, inference: InferencePolicy, plan: Plan, seed: int, indices: Sequence[int]
    ) -> list[Played]:
        """The episodes with these indices, in their order."""
        return play(inference, plan, seed, indices)

    def end(self) -> None:
        """Nothing is open between two requests."""


class Evaluators:
    """The processes that evaluate; children are started by the first evaluation."""

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
        """All episodes of one evaluation, in the order of their indices."""
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
            # What is still to come of this evaluation must not be taken for the next one's.
            self._end(ChildProcess.kill)
            raise
        return [played[index] for index in range(count)]

    def pids(self) -> list[int]:
        """Of the children that were started, by index."""
        return [self._children[index].pid for index in sorted(self._children)]

    def close(self) -> None:
        """End the children, gently if they are listening; a second call does nothing."""
        for child in self._children.values():
            child.ask_to_end()
        self._end(ChildProcess.close)

    def _end(self, how: Callable[[ChildProcess], None]) -> None:
        for child in self._children.values():
            how(child)
        self._children = {}

    def _send(self, index: int, request: Request) -> None:
        """Ask for episodes; a child that is gone is noticed by `_receive`."""
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
        """The episodes asked for, if need be of a replacement."""
        failures = 0
        while True:
            child = self._children[index]
            try:
                return _checked(child.receive(self._patience), request[-1])
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


def _checked(episodes: Any, indices: Sequence[int]) -> list[Played]:
    """`episodes` if they are as many as were asked for."""
    if not isinstance(episodes, list) or len(episodes) != len(indices):
        raise WorkerError(f"returned garbage instead of {len(indices)} episodes: {episodes!r:.80}")
    return episodes
