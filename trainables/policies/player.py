"""A policy that plays: preprocessed observations in, the environment's actions out; it learns not.

Evaluation, `Trainer.compute_action` and the exported model all do the same: reshape, filter without
update, act, map back. N rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.actions import ActionAdapter, unflattener
from trainables.envs.make import EnvSpaces
from trainables.envs.preprocessors import Rows, make_preprocessor
from trainables.filters import Filter
from trainables.policies.actor import Acted, Actor

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
        self._rows = Rows(spaces_.observation, "player")
        self._spaces = spaces_
        self._adapt = ActionAdapter(spaces_.action, clip_actions)

    def prepare(self, observations: Array) -> Array:
        """(N, *O) as lanes hand them over → rows as the networks want them."""
        return self._filter(self._rows(observations), update=False)

    def decide(
        self, observations: Array, stream: np.random.Generator | None
    ) -> tuple[Array, Acted]:
        """Actions (N, *A) for the lanes, and how they were chosen.

        Args:
            observations: (N, *O) preprocessed.
            stream: actions are drawn from it; the most probable ones without.
        """
        acted = self.actor.act(self.prepare(observations), stream)
        return self._adapt(acted.actions), acted

    def answer(self, obs: Any, stream: np.random.Generator | None) -> tuple[Any, dict[str, float]]:
        """One raw observation: the action as the environment wants it, its logp and the value."""
        sent, acted = self.decide(make_preprocessor(self._spaces.raw)(obs)[None], stream)
        fetches = {"logp": float(acted.logp[0]), "value": float(acted.values[0])}
        return unflattener(self._spaces.action)(sent[0]), fetches

    def act(self, observations: Array, stream: np.random.Generator | None) -> Array:
        """The actions alone."""
        return self.decide(observations, stream)[0]

    def act_each(self, observations: Array, streams: Sequence[np.random.Generator | None]) -> Array:
        """Likewise, each row by itself: its action does not depend on the others to the bit."""
        return self._adapt(self.actor.act_each(self.prepare(observations), streams))
