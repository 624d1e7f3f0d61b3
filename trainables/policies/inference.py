"""A policy that plays: preprocessed observations in, the environment's actions out; it learns not.

Evaluation, `Trainer.compute_action` and the exported model all go through the policy's connectors,
with the filter frozen. N rows; a memory (N, M) is the actor's, then what the connectors carry.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainables.envs.external.calling import AGENT
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.envs.spaces.masks import require_valid
from trainables.errors import ConfigError
from trainables.policies.acting.actor import Acted, Actor

Array = NDArray[Any]
#: (row, agent, its action as the policy chose it, the memory after it, what gives the outputs of
#: the decision): takes note of a decision.
Note: TypeAlias = Callable[[int, str, Array, Array, Callable[[], Mapping[str, float]]], None]


class InferencePolicy:
    """Plays with an actor's weights and a filter's statistics, both shared with their owner."""

    def __init__(self, actor: Actor, spaces: EnvSpaces, connectors: Connectors) -> None:
        self.actor = actor
        self.spaces = spaces
        self.connectors = connectors

    def clipping(self, clip_actions: bool) -> Self:
        """A copy whose actions are clipped to the action space's bounds, or are not."""
        return type(self)(self.actor, self.spaces, self.connectors.clipping(clip_actions))

    def prepare(self, observations: Array, memory: Array) -> tuple[Array, Array, Array]:
        """(N, *O) as environments hand them over, seen with a memory.

        Returns:
            Rows as the networks want them, their memory, and what the connectors carry on.
        """
        own, carried = self.split(memory)
        seen, carried = self.connectors.observe(self.connectors.rows(observations), carried)
        return seen, own, carried

    def split(self, memory: Array) -> tuple[Array, Array]:
        """The actor's part of memories (…, M), and what the connectors carry."""
        size = self.actor.memory_size
        return memory[..., :size], memory[..., size:]

    def follow(self, actions: Array, own: Array, carried: Array) -> Array:
        """(N, M) for the observations after these actions."""
        return np.concatenate([own, self.connectors.acted(carried, actions)], axis=1)

    def initial_memory(self) -> Array:
        """(M,) with which an episode begins."""
        memory: Array = np.concatenate(
            [self.actor.initial_memory(1)[0], self.connectors.initial(1)[0]]
        )
        return memory

    def begin(self, seed: int) -> Array:
        """Memory (M,) at the start of an episode; `seed` is for what is drawn once for it."""
        return self.initial_memory()

    def split_state(self, memory: Array) -> list[Array]:
        """The parts of a memory (M,), as callers keep them; last what the connectors carry."""
        own, carried = self.split(memory)
        parts = self.actor.state_parts
        return [*(np.split(own, parts) if parts else ()), *([carried] if carried.size else ())]

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

    def with_previous(self, memory: Array, action: Any, reward: float | None) -> Array:
        """A memory (M,) with another last action and reward, as the environment knows them."""
        own, carried = self.split(memory)
        return np.concatenate([own, self.connectors.previous(carried, action, reward)])

    def decide(
        self, observations: Array, memory: Array, stream: np.random.Generator | None
    ) -> tuple[Array, Acted]:
        """Actions (N, *A) for preprocessed observations (N, *O), and how they were chosen.

        They are drawn from the stream; without one they are the most probable ones.
        """
        seen, own, carried = self.prepare(observations, memory)
        acted = self.actor.act(seen, own, stream)
        following = self.follow(acted.actions, acted.memory, carried)
        return self.connectors.send(acted.actions), acted._replace(memory=following)

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
        at_env = self.connectors.at_env
        rows = at_env.observe_all(observations)
        if self.spaces.masks:
            require_valid(rows, self.spaces.layout)
        sent, acted = self.decide(rows, memory, stream)
        fetches = {key: acted.columns[name] for key, name in self.actor.fetches.items()}
        return [at_env.act(one) for one in sent], acted.memory, fetches

    def rewarded(
        self, observation: Any, memory: Array, reward: float, is_over: bool = False
    ) -> None:
        """Take note in a memory (M,) of the reward of a step that led to this observation.

        `is_over` says that the step has ended the episode.
        """
        _, carried = self.split(memory)
        carried[:] = self.connectors.rewarded(carried[None], np.array([reward]))[0]

    def agent_rewards(self, memory: Array) -> dict[str, list[Any]] | None:
        """Agent → its policy and the sum of its rewards, where there are several."""
        return None

    def act_each(
        self,
        observations: Array,
        memory: Array,
        streams: Sequence[np.random.Generator | None],
        note: Note | None = None,
    ) -> tuple[Array, Array]:
        """Actions and the next memory, each row by itself: others change nothing, to the bit.

        Args:
            observations: (N, *O) as environments hand them over.
            memory: (N, M) with which they are seen.
            streams: N, from which actions are drawn; None: the most probable one.
            note: is called with each decision, where somebody looks at them.
        """
        seen, own, carried = self.prepare(observations, memory)
        actions, following = self.actor.act_each(seen, own, streams)
        after = self.follow(actions, following, carried)
        if note is not None:
            self._show(note, seen, own, actions, after)
        return self.connectors.send(actions), after

    def _show(self, note: Note, seen: Array, own: Array, actions: Array, after: Array) -> None:
        for i in range(len(actions)):
            row = slice(i, i + 1)
            outputs = partial(self._outputs, seen[row].copy(), own[row].copy(), actions[row].copy())
            note(i, AGENT, actions[i], after[i], outputs)

    def _outputs(self, seen: Array, memory: Array, actions: Array) -> dict[str, float]:
        """Return `Actor.fetches` of one row; without what its exploration cannot say."""
        columns: dict[str, Array] = {}
        if "logp" in self.actor.fetches.values():
            with suppress(ConfigError):
                columns["logp"] = self.actor.likelihood(seen, memory, actions)
        if self.actor.judged:
            columns |= self.actor.judge(seen, memory)
        known = {key: name for key, name in self.actor.fetches.items() if name in columns}
        return {key: float(columns[name][0]) for key, name in known.items()}
