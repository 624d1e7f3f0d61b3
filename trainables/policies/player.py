"""A policy that plays: raw observations in, the environment's actions out; nothing is learnt.

Evaluation, `Trainer.compute_action` and the exported model all do the same: flatten, filter without
update, act, map back. N rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.preprocessors import ActionAdapter, flatten
from trainables.filters import Filter
from trainables.policies.actor import Actor

Array = NDArray[Any]


class Player:
    """Plays with an actor's weights and a filter's statistics, both shared with their owner.

    Args:
        actor: holds the weights.
        observation_filter: frozen here.
        spaces_: of one environment.
        clip_actions: to the action space's bounds.
    """

    def __init__(
        self, actor: Actor, observation_filter: Filter, spaces_: EnvSpaces, clip_actions: bool
    ) -> None:
        self.actor = actor
        self._filter = observation_filter
        self._size = spaces_.observation_size
        self._adapt = ActionAdapter(spaces_.action, clip_actions)

    def prepare(self, observations: Array) -> Array:
        """(N, *O) raw → (N, D) as the networks want them."""
        return self._filter(flatten(observations, self._size, "player"), update=False)

    def act(self, observations: Array, stream: np.random.Generator | None) -> Array:
        """Actions (N, *A) for raw observations (N, *O): drawn from `stream`, greedy without one."""
        rows = self.prepare(observations)
        if stream is None:
            return self._adapt(self.actor.act_greedily(rows))
        return self._adapt(self.actor.act(rows, stream).actions)

    def act_each(self, observations: Array, streams: Sequence[np.random.Generator | None]) -> Array:
        """Likewise, each row by itself: its action does not depend on the others to the bit."""
        return self._adapt(self.actor.act_each(self.prepare(observations), streams))
