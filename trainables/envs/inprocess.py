"""Separate environments in this process, one after another."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from trainables.envs.contract import Outcome
from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig
from trainables.envs.replay import make_unit
from trainables.envs.seat import Seat
from trainables.envs.separate import SeparateLanes, standing
from trainables.envs.vector import Place


class InProcessLanes(SeparateLanes):
    """One environment object per lane, in this process.

    Args:
        environment: what to make.
        num_envs: N.
        config: horizon and restarts.
        place: of the worker.
    """

    def __init__(
        self, environment: EnvironmentConfig, num_envs: int, config: LanesConfig, place: Place
    ) -> None:
        self._local = [
            Seat(partial(make_unit, made, context))
            for made, context in standing(environment, num_envs, place)
        ]
        env_spaces = [(one.env.observation_space, one.env.action_space) for one in self._local]
        super().__init__(self._local, env_spaces, config, place)

    @property
    def units(self) -> list[Any]:
        """The environments."""
        return [seat.env for seat in self._local]

    def _outcomes(self, actions: Iterable[Any]) -> Iterable[Outcome | Exception]:
        for seat, action in zip(self._local, actions, strict=True):
            try:
                outcome: Outcome | Exception = seat.step(action)
            except Exception as error:  # noqa: BLE001 an environment may raise anything
                outcome = error
            yield outcome
