"""Random actions of one environment; only valid ones, if it gives action masks."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.kinds.agents import AgentsSpace
from trainables.envs.spaces.actions import ActionAdapter, layout_of, rows_of, unflattener
from trainables.envs.spaces.masks import MASK, MaskedObservation, column_starts
from trainables.envs.vector.base import VectorEnv

Array = NDArray[Any]


class RandomActions:
    """Draws random actions of one environment, or of each agent if there are several.

    With action masks, only valid ones are drawn.

    Args:
        observation: the environment's own observation space.
        action: its own action space; a copy is used.
        as_rows: True to return a masked Tuple or Dict action as a row of numbers, as vector
            environments take it; unmasked ones are samples of `action`.
    """

    def __init__(
        self,
        observation: spaces.Space[Any],
        action: spaces.Space[Any],
        seed: int,
        as_rows: bool = False,
    ) -> None:
        self._action = copy.deepcopy(action)
        self._action.seed(seed)
        self._agents: dict[str, RandomActions] = {}
        self._masks = observation.choices if isinstance(observation, MaskedObservation) else 0
        self._as_rows = as_rows
        if isinstance(observation, AgentsSpace) and isinstance(self._action, AgentsSpace):
            each = np.random.SeedSequence(seed).generate_state(len(observation.of))
            for (agent, one), own in zip(observation.of.items(), each.tolist(), strict=True):
                space = self._action.of[agent]
                self._agents[agent] = RandomActions(one, space, own, as_rows)

    @property
    def are_masked(self) -> bool:
        """True if the environment gives action masks."""
        return bool(self._masks) or any(one.are_masked for one in self._agents.values())

    def draw(self, observation: Any) -> Any:
        """Return the next action; `observation` is the latest one, whose mask is obeyed.

        With None, any action may be drawn. With several agents it is agent → action, for all of
        them.
        """
        if self._agents:
            shown = observation["observations"] if isinstance(observation, Mapping) else {}
            return {agent: one.draw(shown.get(agent)) for agent, one in self._agents.items()}
        action = self._action.sample()
        if not self._masks or observation is None:
            return action
        given = (
            observation[MASK]
            if isinstance(observation, Mapping)
            else np.ravel(observation)[-self._masks :]
        )
        return self._as_sent(self._valid(action, np.ravel(given)))

    def _valid(self, action: Any, mask: Array) -> Array:
        """Return an action as a row, (1,) or (1, K), with invalid choices drawn again.

        `mask` (A,) has an entry for each choice of all columns. A column without a valid choice
        stays as it is.
        """
        layout = layout_of(self._action)
        row = rows_of(self._action, [action])
        columns = row.reshape(1, -1)
        starts = column_starts(layout).tolist()
        for column, first in zip(layout.choice_columns, starts, strict=True):
            valid = np.flatnonzero(mask[first : first + layout.sizes[column]])
            if len(valid) and columns[0, column] not in valid:
                columns[0, column] = self._action.np_random.choice(valid)
        return columns[:, 0] if layout.scalar else columns

    def _as_sent(self, rows: Array) -> Any:
        """Return the action of one row, (1,) or (1, K), as `draw` returns it.

        It is in the environment's form, or with `as_rows` a Tuple or Dict action is a row.
        """
        sent = ActionAdapter(self._action, clip=False)(rows)[0]
        return sent if self._as_rows else unflattener(self._action)(sent)


def actions_for_one(envs: VectorEnv, seed: int) -> RandomActions:
    """Return a RandomActions for one of the environments `envs`, in the form that they take.

    `seed` is the seed of the draws.
    """
    observation, action = envs.own_spaces
    masked = RandomActions(observation, action, seed, as_rows=True)
    return masked if masked.are_masked else RandomActions(observation, envs.action_space, seed)
