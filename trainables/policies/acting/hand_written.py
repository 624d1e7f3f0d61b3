"""Actors around a policy class that a user wrote, as the classic trainers know them.

It learns nothing.
    class Heuristic:
        def __init__(self, observation_space, action_space, config): ...
        def compute_actions(self, obs_batch, state_batches=None, **more):
            return actions, state_outs, extra_fetches

N observations, preprocessed and filtered. Actions are those that the environment takes.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import rows_of
from trainables.errors import ConfigError, WorkerError, shorten, type_of
from trainables.policies.acting.actor import Acted, Actor, Weights
from trainables.policies.acting.dense import Array
from trainables.policies.exploration.actions import StochasticSampling

#: Function of an observation space, an action space and settings that returns a policy.
Maker = Callable[[spaces.Space[Any], spaces.Space[Any], Mapping[str, Any]], Any]
#: Description of such a class for error messages.
ALLOWED = (
    "a class that is made of an observation space, an action space and settings, and has "
    "compute_actions(obs_batch, …) -> (actions, state_outs, extra_fetches), or make_actor()"
)


def make_actor(source: Any, env_spaces: EnvSpaces, config: Mapping[str, Any], seed: int) -> Actor:
    """Create an object of a user's policy class, and return an actor that calls it.

    If the object has ``make_actor()``, its actor is returned, with the object's weights. Otherwise
    a second object is made and called once with an observation of zeros, to find out which outputs
    there are beside the actions.

    Args:
        source: the class, or any callable of observation space, action space and settings.
        env_spaces: spaces of the environment, or of one agent in it.
        config: settings that the class gets.
        seed: seed of the action space that the class gets.

    Raises:
        ConfigError: the class cannot be called with these arguments, its object is not a policy, or
            its initial recurrent states are not zeros.
        WorkerError: the call for a try returned something invalid.
    """
    if not callable(source):
        raise ConfigError("policy", source, ALLOWED)

    def make() -> Any:
        """Return a new policy of the user; raise ConfigError if that fails."""
        action = copy.deepcopy(env_spaces.action)
        action.seed(seed)
        try:
            return source(env_spaces.network_input, action, dict(config))
        except Exception as error:
            problem = f"{shorten(source)} raised {type(error).__name__}: {error}"
            raise ConfigError("policy", source, ALLOWED, problem=problem) from error

    policy = make()
    if callable(own := getattr(policy, "make_actor", None)):
        actor: Actor = own()
        actor.load(policy.acting_weights())
        return actor
    if not callable(getattr(policy, "compute_actions", None)):
        problem = f"{shorten(source)} returned {type_of(policy)}, which is not a policy"
        raise ConfigError("policy", source, ALLOWED, problem=problem)
    # A second object is called once to find which columns it returns in addition to its actions.
    probe = HandWritten(make(), env_spaces, None)
    blank = np.zeros((1, *env_spaces.observation_shape), env_spaces.observation_dtype)
    said = probe.ask(blank, probe.initial_memory(1)).columns
    columns = {name: (one.shape[1:], one.dtype) for name, one in said.items()}
    return HandWritten(policy, env_spaces, columns)


class HandWritten(Actor):
    """An actor that calls a policy object written by a user.

    Args:
        policy: object with ``compute_actions``; ``get_initial_state``, ``set_weights`` and
            ``get_weights`` are called if it has them.
        env_spaces: spaces of the environment, or of one agent in it.
        columns: name → shape and dtype of each output that it returns in addition to its actions;
            None if they are not known yet.

    Raises:
        ConfigError: the initial recurrent states of the policy are not zeros.
    """

    def __init__(
        self, policy: Any, env_spaces: EnvSpaces, columns: Mapping[str, Any] | None
    ) -> None:
        self.policy = policy
        self._knows_columns, columns = columns is not None, columns or {}
        self.exploration = StochasticSampling(env_spaces.layout)
        self.explore = True
        self.global_timestep = 0
        self.columns = dict(columns)  # type: ignore[misc]  # differs between objects
        self.value_names = ()  # type: ignore[misc]  # there is no critic
        self.fetches = {name: name for name, (shape, _) in columns.items() if not shape}  # type: ignore[misc]
        self._action, self._observation_shape = env_spaces.action, env_spaces.network_input.shape
        first: Sequence[Any] = getattr(policy, "get_initial_state", list)()
        self._initial_states = [np.asarray(part, dtype=np.float32) for part in first]
        if any(part.any() for part in self._initial_states):
            name = type(policy).__name__
            problem = f"get_initial_state() of {name} is not zeros, but episodes begin with zeros"
            hint = "return zeros, and let the policy itself add its initial state"
            raise ConfigError("policy", name, hint=hint, problem=problem)
        self._state_ends = np.cumsum(
            [part.size for part in self._initial_states], dtype=np.int64
        ).tolist()
        self.memory_size = sum(part.size for part in self._initial_states)
        self.state_parts = self._state_ends[:-1] or len(self._initial_states)
        takes = inspect.signature(policy.compute_actions).parameters.values()
        self._accepts_all_keywords = any(one.kind is one.VAR_KEYWORD for one in takes)
        self._parameter_names = {one.name for one in takes}
        self._accepts_state = len([one for one in takes if one.kind in _POSITIONAL_KINDS]) > 1
        self._layers = []  # the base class restores them in a copy

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Return the policy's actions, outputs and next states, as `ask` does.

        `stream` is ignored, since the policy draws its own random numbers.
        """
        return self.ask(observations, memory)

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """Call the policy once per row; return the actions (N, …) and next states (N, M).

        `streams` are ignored, since the policy draws its own random numbers.
        """
        rows = [slice(i, i + 1) for i in range(len(observations))]
        asked = [self.ask(observations[one], memory[one]) for one in rows]
        actions = np.concatenate([one.actions for one in asked])
        return actions, np.concatenate([one.memory for one in asked])

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """Raise ConfigError, since a policy written by hand has no networks that could be run.

        So do `values` and `likelihood`, which need its outputs.
        """
        name = type(self.policy).__name__
        problem = f"{name} has only compute_actions, which gives no values or probabilities"
        raise ConfigError("policy", name, hint="give it a method make_actor()", problem=problem)

    def ask(self, observations: NDArray[Any], memory: Array) -> Acted:
        """Call the user's `compute_actions` for N filtered observations and states (N, M).

        Returns its actions as rows, its other outputs as columns, and its next recurrent states.
        `explore` and the number of environment steps (``timestep``) are passed to it if it accepts
        them.

        Raises:
            WorkerError: the result is no tuple of three, it has not one action and one row of each
                output per observation, its outputs have other names than those of the first call,
                or its states differ in number or size from the initial ones.
        """
        count = len(observations)
        given: dict[str, Any] = {"explore": self.explore, "timestep": self.global_timestep}
        named = (
            given
            if self._accepts_all_keywords
            else {k: v for k, v in given.items() if k in self._parameter_names}
        )
        states = [
            part.reshape(count, *own.shape)
            for part, own in zip(
                np.split(memory, self._state_ends[:-1], axis=1) if self._initial_states else (),
                self._initial_states,
                strict=True,
            )
        ]
        rows = observations.reshape(count, *self._observation_shape)
        answer = self.policy.compute_actions(
            rows, *([states] if self._accepts_state else []), **named
        )
        if not isinstance(answer, tuple) or len(answer) != 3:
            raise self._invalid_result(
                f"{shorten(answer)}, not (actions, state_outs, extra_fetches)"
            )
        actions, following, said = answer
        if len(actions) != count:
            raise self._invalid_result(f"{len(actions)} actions for {count} observations")
        following = () if following is None else following  # which may be an array
        if len(following) != len(self._initial_states):
            raise self._invalid_result(
                f"{len(following)} states, but get_initial_state() returned "
                f"{len(self._initial_states)}"
            )
        parts = [np.asarray(part, np.float32).reshape(count, -1) for part in following]
        after = np.hstack([np.zeros((count, 0), np.float32), *parts])
        if after.shape != memory.shape:
            raise self._invalid_result(
                f"states of {after.shape[1]} numbers, but get_initial_state() returned "
                f"{memory.shape[1]}"
            )
        columns = {name: np.asarray(one) for name, one in (said or {}).items()}
        if wrong := [name for name, one in columns.items() if len(one) != count]:
            raise self._invalid_result(
                f"{', '.join(wrong)} with another number of rows than {count}, the number of "
                "observations"
            )
        if self._knows_columns and columns.keys() != self.columns.keys():
            gave, expected = (", ".join(one) or "none" for one in (columns, self.columns))
            raise self._invalid_result(
                f"the further outputs {gave}; in the first call, they were {expected}"
            )
        return Acted(rows_of(self._action, list(actions)), columns, after)

    def _invalid_result(self, gave: str) -> WorkerError:
        """Return an error which says that the policy returned something invalid, `gave`."""
        return WorkerError(f"{type(self.policy).__name__}.compute_actions returned {gave}")

    def load(self, weights: Weights) -> None:
        """Pass weights to the policy's `set_weights`, if it has one and they are not empty."""
        if weights and callable(adopt := getattr(self.policy, "set_weights", None)):
            adopt(weights)

    def weights(self) -> dict[str, Any]:
        """Return a dict of what the policy's `get_weights` returns; empty if that is no mapping.

        Also empty if the policy has no such method.
        """
        found: Any = getattr(self.policy, "get_weights", dict)()
        return dict(found) if isinstance(found, Mapping) else {}


#: Kinds of parameters that can be given by position.
_POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
