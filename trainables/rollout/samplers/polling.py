"""Sampling from environments in processes of their own, without waiting for the slowest each time.

A round: whatever environment is ready is decided for and sent on; the others go on with the step
they are in. Each environment fills its own column of the fragment, row after row, and waits for the
others at its end. So rows and their order within an environment are what they are everywhere else,
and between two fragments everything is at rest. How many decisions are made at once, and with which
of the drawn numbers, depends on the clock: nothing here is exact to the bit. T rows, N
environments, M numbers of memory.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.observations import require_finite
from trainables.envs.vector.base import Step
from trainables.envs.vector.remote import RemoteVectorEnv
from trainables.rollout.batch import Fragment
from trainables.rollout.metrics import RolloutMetrics, without_lost_lives
from trainables.rollout.samplers.fragments import Sampler

Array = NDArray[Any]


class PollingSampler(Sampler):
    """Steps those of N environments that are ready and writes fragments of a fixed length.

    Its environments are `RemoteVectorEnv`.
    """

    def collect(self, fragment: Fragment, stream: np.random.Generator) -> list[RolloutMetrics]:
        """Fill `fragment`; returns the episodes that ended, in the order in which it was heard."""
        envs = self.envs
        assert isinstance(envs, RemoteVectorEnv)  # noqa: S101 as the worker makes it
        size, finished = len(fragment.valid), []
        at, begun = np.zeros((2, envs.count), dtype=np.int64)
        """(N,) rows: the next one of each environment, and the first one of its running episode."""
        idle = np.arange(envs.count)
        while at.min() < size:
            began = time.perf_counter()
            clock = self._decide(fragment, at, idle, stream) if len(idle) else (began,) * 3
            heard, step = envs.poll()
            self.perf.add(began - self._observing, *clock, time.perf_counter())
            finished += self._take(fragment, (at, begun), heard, step)
            idle = heard[at[heard] < size]
        self._close(fragment)
        return finished

    def _decide(
        self, fragment: Fragment, at: Array, idle: Array, stream: np.random.Generator
    ) -> tuple[float, float, float]:
        """Choose, write down and send the actions of these environments; returns the times."""
        where = at[idle], idle
        observations, memory = self.observations[idle], self.memory[idle]
        self.recent.append(observations)
        filtered = self._filter(observations)
        processed = time.perf_counter()
        acted = self.actor.act(filtered, memory, stream)
        decided = time.perf_counter()
        self.envs.send(idle.tolist(), self._sent(acted.actions))  # type: ignore[attr-defined]  # remote
        adapted = time.perf_counter()
        fragment.observations[where] = filtered
        if memory.size:
            fragment.declared["memory"][where] = memory
        fragment.actions[where] = acted.actions
        for name, column in acted.columns.items():
            fragment.declared[name][where] = column
        self.memory[idle] = acted.memory
        if not self.latest:
            self.latest = {"policy inputs": filtered, "policy outputs": acted}
        return processed, decided, adapted

    def _take(
        self, fragment: Fragment, rows: tuple[Array, Array], heard: Array, step: Step
    ) -> list[RolloutMetrics]:
        """Write what these environments answered; returns the episodes that ended, in order."""
        at, begun = rows
        where = at[heard], heard
        rewards = np.asarray(step.rewards, dtype=np.float64)
        require_finite(rewards, f"{self.name}, environment", "reward")
        ended = step.terminated | step.truncated
        ended[list(step.faults)] = True
        fragment.rewards[where] = self._learnt_rewards(rewards, ended, step.waiting)[heard]
        fragment.terminated[where] = step.terminated[heard]
        fragment.truncated[where] = (ended & ~step.terminated)[heard]
        finals = self._judged_finals(step, self.memory)
        for name in self.actor.judged:
            fragment.declared[f"final_{name}"][where] = finals[name][heard] if finals else 0.0
        if self._requested:
            self._write_requested(fragment.declared, step, ended, at[heard], heard)
        fragment.valid[where] = True
        for env_index, info in step.infos.items():
            fragment.valid[at[env_index], env_index] = bool(info.get("training_enabled", True))
        for env_index in step.faults:
            fragment.valid[begun[env_index] : at[env_index] + 1, env_index] = False
        self._carry(self.memory, ended)
        written = self.watch.after_step(step, at) if self.watch else None
        over = ended if step.metric_ends is None else ended | step.metric_ends
        over = without_lost_lives(over, step)
        finished = self.episodes.step(step.rewards, over, (step.faults, step.waiting), written)
        begun[ended] = at[ended] + 1
        at[heard] += 1
        began = time.perf_counter()
        self.observe(step.observations)
        self._observing = time.perf_counter() - began
        return finished
