"""A policy written by hand, as those of the classic trainers are: it acts, and nothing is learnt.

    class Heuristic:
        def __init__(self, observation_space, action_space, config): ...
        def compute_actions(self, obs_batch, state_batches=None, **more):
            return actions, state_outs, extra_fetches

N observations, as they come out of the preprocessor and the filter. Actions are what the
environment takes.
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
from trainables.errors import ConfigError, WorkerError, shorten
from trainables.policies.acting.actor import Acted, Actor, Weights
from trainables.policies.acting.dense import Array
from trainables.policies.exploration.actions import StochasticSampling

#: Makes a policy of an observation space, an action space and settings.
Maker = Callable[[spaces.Space[Any], spaces.Space[Any], Mapping[str, Any]], Any]
ALLOWED = (
    "a class that is made of an observation space, an action space and settings, and has "
    "compute_actions(obs_batch, …) -> (actions, state_outs, extra_fetches), or make_actor()"
)


def make_actor(source: Any, of: EnvSpaces, config: Mapping[str, Any], seed: int) -> Actor:
    """Return what acts: the policy that a class makes for these spaces, or that policy's actor.

    Args:
        source: the class.
        of: spaces of the environment, or of an agent in it.
        config: settings of the policy.
        seed: of what the action space draws that the policy is given.

    Raises:
        ConfigError: the class makes no policy.
    """
    if not callable(source):
        raise ConfigError("policy", source, ALLOWED)

    def make() -> Any:
        action = copy.deepcopy(of.action)
        action.seed(seed)
        try:
            return source(of.seen, action, dict(config))
        except Exception as error:
            hint = f"it raised {type(error).__name__}: {error}"
            raise ConfigError("policy", source, ALLOWED, hint) from error

    made = make()
    if callable(own := getattr(made, "make_actor", None)):
        actor: Actor = own()
        actor.load(made.acting_weights())
        return actor
    if not callable(getattr(made, "compute_actions", None)):
        hint = f"it made a {type(made).__name__}"
        raise ConfigError("policy", source, ALLOWED, hint)
    # What it says beside actions needs a place in fragments: another one is asked for that.
    probe = HandWritten(make(), of, {})
    blank = np.zeros((1, *of.observation_shape), of.observation_dtype)
    said = probe.ask(blank, probe.initial_memory(1)).columns
    columns = {name: (one.shape[1:], one.dtype) for name, one in said.items()}
    return HandWritten(made, of, columns)


class HandWritten(Actor):
    """Asks a policy that was written by hand.

    Args:
        policy: is asked.
        of: the spaces that it acts in.
        columns: name → shape and type of a row, of what it says beside its actions.
    """

    def __init__(self, policy: Any, of: EnvSpaces, columns: Mapping[str, Any]) -> None:
        self.policy = policy
        self.exploration = StochasticSampling(of.layout)
        self.explore = True
        self.global_timestep = 0
        self.columns = dict(columns)  # type: ignore[misc]  # what each of them says
        self.judged = ()  # type: ignore[misc]  # nothing is valued
        self.fetches = {name: name for name, (shape, _) in columns.items() if not shape}  # type: ignore[misc]
        self._action, self._seen = of.action, of.seen.shape
        first: Sequence[Any] = getattr(policy, "get_initial_state", list)()
        self._parts = [np.asarray(part, dtype=np.float32) for part in first]
        if any(part.any() for part in self._parts):
            allowed = "a policy whose get_initial_state() is zeros"
            hint = "episodes begin with zeros; let the policy add what it begins with"
            raise ConfigError("policy", type(policy).__name__, allowed, hint)
        self._ends = np.cumsum([part.size for part in self._parts], dtype=np.int64).tolist()
        self.memory_size = sum(part.size for part in self._parts)
        self.state_parts = self._ends[:-1] or len(self._parts)
        takes = inspect.signature(policy.compute_actions).parameters.values()
        self._takes_all = any(one.kind is one.VAR_KEYWORD for one in takes)
        self._takes = {one.name for one in takes}
        self._takes_state = len([one for one in takes if one.kind in _BY_PLACE]) > 1

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Return what the policy does; what it draws, it draws by itself.

        Raises:
            WorkerError: not as many actions, states or outputs as observations.
        """
        return self.ask(observations, memory)

    def act_each(
        self,
        observations: NDArray[Any],
        memory: Array,
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], Array]:
        """Return the action of each row, asked for by itself, and the next memory."""
        rows = [slice(i, i + 1) for i in range(len(observations))]
        asked = [self.ask(observations[one], memory[one]) for one in rows]
        actions = np.concatenate([one.actions for one in asked])
        return actions, np.concatenate([one.memory for one in asked])

    def ask(self, observations: NDArray[Any], memory: Array) -> Acted:
        """Return what the policy does with N observations; see `act`."""
        count = len(observations)
        given: dict[str, Any] = {"explore": self.explore, "timestep": self.global_timestep}
        named = given if self._takes_all else {k: v for k, v in given.items() if k in self._takes}
        states = [
            part.reshape(count, *own.shape)
            for part, own in zip(
                np.split(memory, self._ends[:-1], axis=1) if self._parts else (),
                self._parts,
                strict=True,
            )
        ]
        rows = observations.reshape(count, *self._seen)
        answer = self.policy.compute_actions(
            rows, *([states] if self._takes_state else []), **named
        )
        if not isinstance(answer, tuple) or len(answer) != 3:
            raise self._wrong(f"{shorten(answer)}, no (actions, state_outs, extra_fetches)")
        actions, following, said = answer
        if len(actions) != count:
            raise self._wrong(f"{len(actions)} actions for {count} observations")
        if len(following or ()) != len(self._parts):
            raise self._wrong(f"{len(following or ())} states, and begins with {len(self._parts)}")
        parts = [np.asarray(part, np.float32).reshape(count, -1) for part in following or ()]
        after = np.hstack([np.zeros((count, 0), np.float32), *parts])
        if after.shape != memory.shape:
            raise self._wrong(
                f"states of {after.shape[1]} numbers, and begins with {memory.shape[1]}"
            )
        columns = {name: np.asarray(one) for name, one in (said or {}).items()}
        if wrong := [name for name, one in columns.items() if len(one) != count]:
            raise self._wrong(f"{', '.join(wrong)} of another number of rows than {count}")
        return Acted(rows_of(self._action, list(actions)), columns, after)

    def _wrong(self, gave: str) -> WorkerError:
        return WorkerError(f"{type(self.policy).__name__}.compute_actions gave {gave}")

    def load(self, weights: Weights) -> None:
        """Give weights to the policy, if it takes any."""
        if weights and callable(adopt := getattr(self.policy, "set_weights", None)):
            adopt(weights)

    def weights(self) -> dict[str, Any]:
        """Return the policy's weights by name; empty if it has none."""
        found: Any = getattr(self.policy, "get_weights", dict)()
        return dict(found) if isinstance(found, Mapping) else {}


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
