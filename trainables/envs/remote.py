"""Lanes whose environments run in processes of their own, stepped at the same time.

`step` waits for all of them, so no result depends on which is ready first: with the same seeds it
is what the same environments would have given in the worker's process, to the bit, but for those
that draw from global streams, which are here each process's own. Times are seconds.
"""

import math
import time
from collections.abc import Iterable, Sequence
from functools import partial
from multiprocessing import connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables import rng
from trainables.envs.contract import Breach, Outcome
from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig, for_children
from trainables.envs.remote_seat import RemoteSeat
from trainables.envs.replay import make_unit
from trainables.envs.restarts import Fault
from trainables.envs.separate import SeparateLanes, standing
from trainables.envs.vector import Place, Step


class RemoteLanes(SeparateLanes):
    """One process per lane.

    Args:
        environment: what to make.
        num_envs: N.
        config: horizon, restarts and the time a step may take.
        place: of the worker.
    """

    def __init__(
        self, environment: EnvironmentConfig, num_envs: int, config: LanesConfig, place: Place
    ) -> None:
        timeout_s, is_remade = config.env_step_timeout_s, config.restart_failed_sub_environments
        self._wait_s = config.remote_env_batch_wait_ms / 1e3
        self._asked: set[int] = set()
        every = standing(for_children(environment), num_envs, place, remote=True)
        self._remote = [
            RemoteSeat(partial(make_unit, *one), f"{place.worker}-{i}", timeout_s, is_remade)
            for i, one in enumerate(every)
        ]
        try:
            for lane, seat in enumerate(self._remote):
                seat.start(rng.integer(place.seed, "env", place.worker, lane, "global"))
            env_spaces = [seat.finish_start() for seat in self._remote]
            super().__init__(self._remote, env_spaces, config, place)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [seat.pid for seat in self._remote]

    def close(self) -> None:
        """End the processes; a second call does nothing."""
        for seat in self._remote:
            seat.begin_end()
        for seat in self._remote:
            seat.end()

    def send(self, lanes: Sequence[int], actions: Iterable[Any]) -> None:
        """Ask these lanes for a step; what they do is heard by `poll`."""
        for lane, action in zip(lanes, actions, strict=True):
            self._remote[lane].send_step(action)
            self._asked.add(lane)

    def poll(self) -> tuple[NDArray[np.int64], Step]:
        """Which lanes have done what they were asked for, and their step.

        Waits for all that were asked until `remote_env_batch_wait_ms` are over, then until there is
        one at least.
        """
        ready = self._ready()
        self._asked.difference_update(ready)
        self._ends.count(ready)
        waiting = np.ones(self.count, dtype=np.bool_)
        waiting[ready] = False
        heard = [_heard(self._remote[lane]) for lane in ready]
        return np.array(ready), self._stepped(ready, heard, waiting)

    def _ready(self) -> list[int]:
        """Lanes whose environments have answered, died or run out of time."""
        until = time.monotonic() + self._wait_s
        ready = {lane for lane in self._asked if not self._remote[lane].ends}
        while waiting := sorted(self._asked - ready):
            limit = min(self._remote[lane].deadline for lane in waiting)
            if ready or time.monotonic() < until:
                limit = min(limit, until)
            left = None if limit == math.inf else max(0.0, limit - time.monotonic())
            owner = {end: lane for lane in waiting for end in self._remote[lane].ends}
            ready |= {owner[end] for end in connection.wait(list(owner), left)}
            now = time.monotonic()
            ready |= {lane for lane in waiting if self._remote[lane].deadline <= now}
            if ready and now >= until:
                break
        return sorted(ready)

    def _outcomes(self, actions: Iterable[Any]) -> Iterable[Outcome | Exception]:
        for seat, action in zip(self._remote, actions, strict=True):
            seat.send_step(action)
        # All are heard before one of them is acted on: no answer is left for the next request.
        return [_heard(seat) for seat in self._remote]


def _heard(seat: RemoteSeat) -> Outcome | Exception:
    try:
        return seat.receive_step()
    except (Fault, Breach) as error:
        return error
