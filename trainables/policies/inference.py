"""A policy that plays: preprocessed observations in, the environment's actions out; it learns not.

Evaluation, `Trainer.compute_action` and the exported model all do the same: reshape, filter without
update, act, map back. N rows, M numbers of memory.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionAdapter, unflattener
from trainables.envs.spaces.masks import require_valid
from trainables.envs.spaces.observations import Rows
from trainables.policies.actor import Acted, Actor
from trainables.policies.filters import Filter

Array = NDArray[Any]


class InferencePolicy:
    """Plays with an actor's weights and a filter's statistics, both shared with their owner.

    The filter is frozen here; actions are clipped to the action space's bounds if so set.
    """

    def __init__(
        self, actor: Actor, observation_filter: Filter, spaces: EnvSpaces, clip_actions: bool
    ) -> None:
        self.actor = actor
        self.observation_filter = observation_filter
        self.spaces = spaces
        self.clip_actions = clip_actions
        self._rows = Rows(spaces.observation, "player")
        self._adapt = ActionAdapter(spaces.action, clip_actions)

    def clipping(self, clip_actions: bool) -> Self:
        """A copy whose actions are clipped to the action space's bounds, or are not."""
        return type(self)(self.actor, self.observation_filter, self.spaces, clip_actions)

    def prepare(self, observations: Array) -> Array:
        """(N, *O) as environments hand them over → rows as the networks want them."""
        return self.observation_filter(self._rows(observations), update=False)

    def initial_memory(self) -> Array:
        """(M,) with which an episode begins."""
        memory: Array = self.actor.initial_memory(1)[0]
        return memory

    def split_state(self, memory: Array) -> list[Array]:
        """The parts of a memory (M,), as callers keep them."""
        parts = self.actor.state_parts
        return list(np.split(memory, parts)) if parts else []

    def join_state(self, state: Sequence[Any]) -> Array:
        """(M,) from what `split_state` gave.

        Raises:
            ValueError: another number of parts than the policy's, or another shape of one.
        """
        expected = self.split_state(self.initial_memory())
        if len(state) != len(expected):
            raise ValueError(
                f"a state of {len(state)} part(s), where this policy has {len(expected)}: give "
                "what get_initial_state() or the last answer gave"
            )
        parts = [np.asarray(part, dtype=np.float32) for part in state]
        shapes, known = [p.shape for p in parts], [p.shape for p in expected]
        if shapes != known:
            raise ValueError(f"a state of shapes {shapes}, where this policy's has {known}")
        return np.concatenate([np.zeros(0, dtype=np.float32), *parts])

    def decide(
        self, observations: Array, memory: Array, stream: np.random.Generator | None
    ) -> tuple[Array, Acted]:
        """Actions (N, *A) for preprocessed observations (N, *O), and how they were chosen.

        They are drawn from the stream; without one they are the most probable ones.
        """
        acted = self.actor.act(self.prepare(observations), memory, stream)
        return self._adapt(acted.actions), acted

    def answer(
        self, obs: Any, memory: Array, stream: np.random.Generator | None
    ) -> tuple[Any, Array, dict[str, float]]:
        """One raw observation, seen with the memory (M,); see `answer_all`."""
        actions, following, fetches = self.answer_all([obs], memory[None], stream)
        return actions[0], following[0], {key: float(each[0]) for key, each in fetches.items()}

    def answer_all(
        self, observations: Sequence[Any], memory: Array, stream: np.random.Generator | None
    ) -> tuple[list[Any], Array, dict[str, Array]]:
        """N raw observations, seen with the memories (N, M).

        Returns:
            The actions as the environment wants them, the memories for the next observations, and
            `Actor.fetches`, each (N,).
        """
        preprocess, unflatten = self.spaces.preprocessor(), unflattener(self.spaces.action)
        rows = np.stack([preprocess(one) for one in observations])
        if self.spaces.masks:
            require_valid(rows, self.spaces.layout)
        sent, acted = self.decide(rows, memory, stream)
        fetches = {key: acted.columns[name] for key, name in self.actor.fetches.items()}
        return [unflatten(one) for one in sent], acted.memory, fetches

    def rewarded(self, observation: Any, memory: Array) -> None:
        """Take note of what agents were rewarded with in a step that led to this observation."""

    def agent_rewards(self, memory: Array) -> dict[str, list[Any]] | None:
        """Agent → its policy and the sum of its rewards, where there are several."""
        return None

    def act_each(
        self,
        observations: Array,
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[Array, Array]:
        """Actions and the next memory, each row by itself: others change nothing, to the bit."""
        actions, following = self.actor.act_each(self.prepare(observations), memory, streams)
        return self._adapt(actions), following
