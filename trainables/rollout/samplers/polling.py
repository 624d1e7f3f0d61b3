"""Sampling from environments in other processes without waiting for the slowest in each tick.

A round decides for the environments that are ready and sends their actions, while the others are
still in their step. Each environment fills its own column of the fragment, row after row, and waits
for the others at its end. So the rows and their order within an environment are as in any other
sampler, and between two fragments no environment is in a step. The clock decides how many decisions
are made at once and which random numbers each one gets, so nothing here is exact to the bit. T
rows, N environments, M numbers of memory.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.vector.remote import RemoteVectorEnv
from trainables.rollout.batch import Fragment
from trainables.rollout.episodes.episode import Trajectory
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.samplers.fragments import Collected, Sampler

Array = NDArray[Any]


class PollingSampler(Sampler):
    """Steps those of N environments that are ready, and writes fragments of a fixed length.

    Its environments are a `RemoteVectorEnv`.
    """

    def sample(self, stream: np.random.Generator) -> Collected:
        """Fill the fragments and return them, with episodes in the order of their ends.

        The next call writes into the same arrays. Blocks until every environment has filled its
        column. Raises NotFiniteError for an observation or reward that is not finite.
        """
        self.recent.clear()
        episodes: list[RolloutMetrics] = []
        trajectories: list[list[Trajectory]] = []
        for fragment in self._fragments:
            episodes += self._collect(fragment, stream)
            trajectories += self._finish(fragment)
        return Collected(self._fragments, episodes, self._recent_rows(), trajectories)

    def _collect(self, fragment: Fragment, stream: np.random.Generator) -> list[RolloutMetrics]:
        """Fill one fragment, stepping the environments that are ready; return ended episodes.

        Draws actions from `stream`, and calls the callbacks. Returns when no environment is in a
        step any more.
        """
        envs = self.envs
        assert isinstance(envs, RemoteVectorEnv)  # noqa: S101 as the worker makes it
        size = len(fragment.valid)
        finished: list[RolloutMetrics] = []
        rows: Array = np.zeros(envs.count, dtype=np.int64)
        """(N,) next row of each environment."""
        idle = np.arange(envs.count)
        self._reset_flags(fragment)
        while rows.min() < size:
            began = time.perf_counter()
            clock = self._decide(fragment, rows, idle, stream) if len(idle) else (began,) * 3
            heard, step = envs.poll()
            self.carried[heard] = self.connectors.after_rewards(
                self.carried[heard], step.rewards[heard]
            )
            self.perf.add(began - self._observe_seconds, *clock, time.perf_counter())
            ended = self._write_step(fragment, rows, step, self.memory, step.waiting, heard)
            self._carry(self.memory, ended)
            finished += self._count(step, rows, ended, step.waiting)[0]
            rows[heard] += 1
            self.observe(step.observations)
            idle = heard[rows[heard] < size]
        return finished

    def _decide(
        self, fragment: Fragment, rows: Array, idle: Array, stream: np.random.Generator
    ) -> tuple[float, float, float]:
        """Choose, store and send actions for the environments with indices `idle`.

        Draws from `stream`, and adds the observations to the filter's statistics. `rows` (N,) is
        each environment's next time index in the fragment. Returns the times of `time.perf_counter`
        at which observations were processed, actions chosen and sent.
        """
        observations, memory = self.observations[idle], self.memory[idle]
        self.recent.append(observations)
        filtered, observed, carried = self._through_connectors(
            observations, self.carried[idle], counted=True
        )
        processed = time.perf_counter()
        acted = self.actor.act(filtered, memory, stream)
        decided = time.perf_counter()
        self.envs.send(idle.tolist(), self.connectors.send(acted.actions))  # type: ignore[attr-defined]  # remote
        adapted = time.perf_counter()
        self._write_decision(fragment, (rows[idle], idle), observed, memory, acted)
        if self.watch:
            self._show_decision(idle.tolist(), acted, carried)
        self.memory[idle] = acted.memory
        self.carried[idle] = self.connectors.after_actions(carried, acted.actions)
        if not self.latest:
            self.latest = {"policy inputs": filtered, "policy outputs": acted}
        return processed, decided, adapted
