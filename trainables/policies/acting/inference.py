"""A policy that acts and does not learn: preprocessed observations in, environment actions out.

Evaluation, `Trainer.compute_action` and the exported model all go through the policy's connectors,
with frozen filters. N rows, *O the shape of a preprocessed observation. A memory (N, M) holds the
actor's memory and then that of the connectors.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainables.envs.external.polled import AGENT
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.envs.spaces.masks import require_valid
from trainables.errors import ConfigError
from trainables.policies.acting.actor import Acted, Actor

Array = NDArray[Any]
#: Function that is called with each decision: index of the row, agent, action as the policy chose
#: it, memory (M,) after it, and a function that returns the outputs of the decision by name.
Note: TypeAlias = Callable[[int, str, Array, Array, Callable[[], Mapping[str, float]]], None]


class InferencePolicy:
    """A policy that acts with a trainer's weights and frozen filter statistics, and never learns.

    A state (M,) is the policy's recurrent state, then that of connectors, such as stacked frames.
    """

    def __init__(self, actor: Actor, spaces: EnvSpaces, connectors: Connectors) -> None:
        self.actor = actor
        self.spaces = spaces
        self.connectors = connectors

    def clipping(self, clip_actions: bool) -> Self:
        """Return a copy, with the same actor, that clips sent actions to their bounds, or not."""
        return type(self)(self.actor, self.spaces, self.connectors.clipping(clip_actions))

    def prepare(self, observations: Array, memory: Array) -> tuple[Array, Array, Array]:
        """Run connectors and filter on preprocessed observations (N, *O) with states (N, M).

        Returns observations for the networks (N, *S), the actor's recurrent states, and the
        connectors' states after the observations. Filter statistics are not updated.
        """
        own, carried = self.split(memory)
        seen, carried = self.connectors.observe(self.connectors.rows(observations), carried)
        return seen, own, carried

    def split(self, memory: Array) -> tuple[Array, Array]:
        """Return the actor's part and the connectors' part of states (…, M), as views."""
        size = self.actor.memory_size
        return memory[..., :size], memory[..., size:]

    def next_memories(self, actions: Array, after: Array, carried: Array) -> Array:
        """Return the states (N, M) for the next observations.

        Args:
            actions: actions that the policy chose, (N, …).
            after: recurrent states of the actor after these actions.
            carried: states of the connectors before these actions.
        """
        return np.concatenate([after, self.connectors.after_actions(carried, actions)], axis=1)

    def initial_memory(self) -> Array:
        """Return the state (M,) at the start of an episode."""
        memory: Array = np.concatenate(
            [self.actor.initial_memory(1)[0], self.connectors.initial(1)[0]]
        )
        return memory

    def begin(self, seed: int) -> Array:
        """Return the state (M,) for a new episode; `seed` is ignored here.

        With several agents it decides which policy an agent gets.
        """
        return self.initial_memory()

    def split_state(self, memory: Array) -> list[Array]:
        """Return a state (M,) as a list of arrays, as `Trainer.compute_action` takes them.

        The connectors' state is the last one, if there is any.
        """
        own, carried = self.split(memory)
        parts = self.actor.state_parts
        return [*(np.split(own, parts) if parts else ()), *([carried] if carried.size else ())]

    def join_state(self, state: Sequence[Any]) -> Array:
        """Return the state (M,) of a list of arrays that `split_state` returned.

        Raises ValueError if the number of arrays or the shape of one is not that of the policy.
        """
        expected = self.split_state(self.initial_memory())
        if len(state) != len(expected):
            raise ValueError(
                f"the state is a list of length {len(state)}; expected length {len(expected)} for "
                "this policy: pass what get_initial_state() or the last call returned"
            )
        parts = [np.asarray(part, dtype=np.float32) for part in state]
        shapes, known = [p.shape for p in parts], [p.shape for p in expected]
        if shapes != known:
            raise ValueError(f"the state has the shapes {shapes}; expected {known} for this policy")
        return np.concatenate([np.zeros(0, dtype=np.float32), *parts])

    def with_previous(self, memory: Array, action: Any, reward: float | None) -> Array:
        """Return a copy of a state (M,) with another previous action and reward in it.

        They are in the environment's form; None leaves one as it is. Nothing changes without
        connectors that prepend them to observations.
        """
        own, carried = self.split(memory)
        return np.concatenate([own, self.connectors.previous(carried, action, reward)])

    def decide(
        self, observations: Array, memory: Array, stream: np.random.Generator | None
    ) -> tuple[Array, Acted]:
        """Choose actions for preprocessed observations (N, *O) with states (N, M).

        Without a stream, or if the actor's `explore` is False, they are the most probable ones.
        Returns actions (N, *A) for the environment, and the actor's outputs with the next states.
        """
        seen, own, carried = self.prepare(observations, memory)
        acted = self.actor.act(seen, own, stream)
        following = self.next_memories(acted.actions, acted.memory, carried)
        return self.connectors.send(acted.actions), acted._replace(memory=following)

    def answer(
        self, obs: Any, memory: Array, stream: np.random.Generator | None
    ) -> tuple[Any, Array, dict[str, float]]:
        """Choose an action for one raw observation with the state (M,), as `answer_all` for many.

        Without a stream it is the most probable one. Raises EnvError if the observation's action
        mask forbids all choices.

        Returns:
            The action for the environment, the next state, and the outputs by name.
        """
        actions, following, fetches = self.answer_all([obs], memory[None], stream)
        return actions[0], following[0], {key: float(each[0]) for key, each in fetches.items()}

    def answer_all(
        self, observations: Sequence[Any], memory: Array, stream: np.random.Generator | None
    ) -> tuple[list[Any], Array, dict[str, Array]]:
        """Choose actions for N raw observations of the environment with states (N, M).

        Without a stream they are the most probable ones. Raises EnvError if an action mask forbids
        all choices.

        Returns:
            The actions for the environment, the states for the next observations, and the outputs
            named in `Actor.fetches`, each (N,).
        """
        at_env = self.connectors.at_env
        rows = at_env.observe_all(observations)
        if self.spaces.masks:
            require_valid(rows, self.spaces.layout)
        sent, acted = self.decide(rows, memory, stream)
        fetches = {key: acted.columns[name] for key, name in self.actor.fetches.items()}
        return [at_env.act(one) for one in sent], acted.memory, fetches

    def add_reward(
        self, observation: Any, memory: Array, reward: float, is_over: bool = False
    ) -> None:
        """Update the connectors' part of a state (M,) with a step's reward, in place.

        Nothing changes without a connector that prepends the last reward. `observation`, to which
        the step led, and `is_over` are ignored here.
        """
        _, carried = self.split(memory)
        if not carried.size:
            return
        carried[:] = self.connectors.after_rewards(carried[None], np.array([reward]))[0]

    def agent_rewards(self, memory: Array) -> dict[str, list[Any]] | None:
        """Return agent → [policy, sum of rewards] so far; None here, with only one agent."""
        return None

    def act_each(
        self,
        observations: Array,
        memory: Array,
        streams: Sequence[np.random.Generator | None],
        note: Note | None = None,
    ) -> tuple[Array, Array]:
        """Choose the action of each preprocessed observation (N, *O) as if it were alone.

        No bit of an action depends on other rows. A row whose stream is None gets the most probable
        action. `note`, if given, is called for each row in order, as `_note_decisions` does.
        Returns actions (N, *A) for the environment, and the next states (N, M).
        """
        seen, own, carried = self.prepare(observations, memory)
        actions, following = self.actor.act_each(seen, own, streams)
        after = self.next_memories(actions, following, carried)
        if note is not None:
            self._note_decisions(note, seen, own, actions, after)
        return self.connectors.send(actions), after

    def _note_decisions(
        self, note: Note, observations: Array, memories: Array, actions: Array, after: Array
    ) -> None:
        """Call `note` once per row: (row, agent, action, next state, function → outputs by name).

        Actions are those that the policy chose, before they are converted for the environment.
        """
        for i in range(len(actions)):
            row = slice(i, i + 1)
            outputs = partial(
                self._outputs, observations[row].copy(), memories[row].copy(), actions[row].copy()
            )
            note(i, AGENT, actions[i], after[i], outputs)

    def _outputs(self, observation: Array, memory: Array, actions: Array) -> dict[str, float]:
        """Return name → number of the outputs in `Actor.fetches` for one decision.

        These are log-probabilities and values, computed anew. Other outputs are left out, as are
        log-probabilities where the exploration has none.
        """
        columns: dict[str, Array] = {}
        if "logp" in self.actor.fetches.values():
            with suppress(ConfigError):
                columns["logp"] = self.actor.likelihood(observation, memory, actions)
        if self.actor.value_names:
            columns |= self.actor.value_columns(observation, memory)
        known = {key: name for key, name in self.actor.fetches.items() if name in columns}
        return {key: float(columns[name][0]) for key, name in known.items()}
