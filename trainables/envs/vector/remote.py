"""Environments in their own processes, stepped at the same time.

`step` waits for all of them, so no result depends on which is ready first: with the same seeds the
results equal those of the same environments in the worker's process, to the bit, except for
environments that draw from global streams, of which each process has its own. Times are in seconds.
"""

import math
import time
from collections.abc import Iterable, Sequence
from functools import partial
from multiprocessing import connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.calls.contract import EnvContractError, Outcome
from trainables.envs.calls.faults import Fault
from trainables.envs.make import EnvironmentConfig, importable_config
from trainables.envs.state.replay import make_sub_env
from trainables.envs.vector.base import Step, WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.remote_slot import RemoteEnvSlot
from trainables.envs.vector.separate import SeparateVectorEnv, environment_contexts


class RemoteVectorEnv(SeparateVectorEnv):
    """N environments, each in a process of its own.

    Creating the object starts the processes, and waits until each has made its environment.
    """

    def __init__(
        self,
        environment: EnvironmentConfig,
        num_envs: int,
        config: VectorConfig,
        place: WorkerContext,
    ) -> None:
        timeout_s, is_remade = config.env_step_timeout_s, config.restart_failed_sub_environments
        self._wait_s = config.remote_env_batch_wait_ms / 1e3
        self._asked: set[int] = set()
        every = environment_contexts(importable_config(environment), num_envs, place, remote=True)
        self._remote = [
            RemoteEnvSlot(
                partial(make_sub_env, *one), one[0], f"{place.worker}-{i}", timeout_s, is_remade
            )
            for i, one in enumerate(every)
        ]
        try:
            for env_index, slot in enumerate(self._remote):
                slot.start(rng.integer(place.seed, "env", place.worker, env_index, "global"))
            for slot in self._remote:
                slot.finish_start()
            super().__init__(self._remote, config, place)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the environments."""
        return [slot.pid for slot in self._remote]

    def close(self) -> None:
        """End the processes and wait for their end; a second call does nothing."""
        for slot in self._remote:
            slot.begin_end()
        for slot in self._remote:
            slot.end()

    def send(self, envs: Sequence[int], actions: Iterable[Any]) -> None:
        """Request a step of the environments with these indices, without waiting.

        `poll` returns it.
        """
        for env_index, action in zip(envs, actions, strict=True):
            self._remote[env_index].send_step(action)
            self._asked.add(env_index)

    def poll(self) -> tuple[NDArray[np.int64], Step]:
        """Return the indices of environments that have made their requested step, and that step.

        Waits for all that were requested until `remote_env_batch_wait_ms` is over, then for at
        least one. The others are flagged in `Step.waiting`. Ended episodes are reset and failed
        environments replaced; raises EnvError if that is not allowed.
        """
        ready = self._ready()
        self._asked.difference_update(ready)
        self._ends.count(ready)
        waiting = np.ones(self.count, dtype=np.bool_)
        waiting[ready] = False
        return np.array(ready), self._stepped(ready, self._receive_all(ready), waiting)

    def _ready(self) -> list[int]:
        """Wait for requested steps as `poll` does.

        Return the sorted indices of environments that have answered, died or run out of time.
        """
        until = time.monotonic() + self._wait_s
        ready = {env_index for env_index in self._asked if not self._remote[env_index].wait_handles}
        while waiting := sorted(self._asked - ready):
            limit = min(self._remote[env_index].deadline for env_index in waiting)
            if ready or time.monotonic() < until:
                limit = min(limit, until)
            left = None if limit == math.inf else max(0.0, limit - time.monotonic())
            owner = {end: i for i in waiting for end in self._remote[i].wait_handles}
            ready |= {owner[end] for end in connection.wait(list(owner), left)}
            now = time.monotonic()
            ready |= {env_index for env_index in waiting if self._remote[env_index].deadline <= now}
            if ready and now >= until:
                break
        return sorted(ready)

    def step(self, actions: Any) -> Step:
        """Make one step of every environment with actions (N, …), and wait for all of them.

        Ended episodes are reset and failed environments replaced; raises EnvError if that is not
        allowed.
        """
        self._ends.count()
        for slot, action in zip(self._remote, actions, strict=True):
            slot.send_step(action)
        return self._stepped(range(self.count), self._receive_all(range(self.count)))

    def _receive_all(self, envs: Iterable[int]) -> list[Outcome | Exception]:
        """Read the answers of these environments, and store their observations.

        A fault is returned in the place of an answer, so that all are read before any restart.
        """
        heard: list[Outcome | Exception] = []
        for env_index in envs:
            try:
                outcome = self._remote[env_index].receive_step()
            except (Fault, EnvContractError) as error:
                heard.append(error)
            else:
                self._rows.put(env_index, outcome[0])
                heard.append(outcome)
        return heard
