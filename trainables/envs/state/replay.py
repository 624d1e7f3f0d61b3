"""Episodes that can be replayed: their state is a seed and the actions so far.

For environments whose state cannot be read (level B). An object that has played an episode may not
behave like a new one, so every episode begins in a new environment. Then an episode depends on its
seed and actions alone, and replaying these leads to the same state. The lives of an Atari game are
one episode here: between them it is reset without a seed, and continues.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.envs.calls.faults import close, logging_once
from trainables.envs.exactness.watching import announce_call
from trainables.envs.kinds.atari import LIFE_LOST
from trainables.envs.make import Env, EnvironmentConfig, make_connector, make_env
from trainables.envs.registry import EnvContext
from trainables.envs.spaces.connectors import EnvConnector
from trainables.envs.state.capture import KeepsState, seed_spaces
from trainables.envs.state.plain import decode, encode, fingerprint


class ReplayableEnv(gymnasium.Wrapper[Any, Any, Any, Any], KeepsState):
    """A wrapper whose state is the seed and the actions of the episode, which is then played again.

    For environments whose own state cannot be saved. Every episode begins in a new environment. The
    seed of an episode is derived from the one last given to `reset` and from the number of episodes
    since.

    Args:
        limit: largest number of actions of an episode that has a state.
        connect: makes the converter of actions and observations from the two spaces; actions are
            recorded as its rows.
    """

    def __init__(
        self,
        make: Callable[[], Env],
        limit: int,
        connect: Callable[[spaces.Space[Any], spaces.Space[Any]], EnvConnector] = EnvConnector,
    ) -> None:
        super().__init__(make())
        self.connector = connect(self.env.observation_space, self.env.action_space)
        self._make = make
        self._limit = limit
        self._fresh = True
        self._failures_to_close: set[str] = set()
        self._seeds = [0, 0]  # of the episodes, of the spaces
        self._episode = 0
        self._actions: list[Any] = []
        self._lives: list[int] = []  # actions before each reset into the next life
        self._life_lost = False
        self._lost = ""  # why the running episode cannot be played again
        self._last: tuple[Any, Any] = (None, None)  # observation, reward

    def seed_spaces(self, seed: int) -> None:
        """Set the seed from which each new environment's spaces are seeded."""
        self._seeds[1] = seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode in a new environment; with a `seed`, the first one of this seed.

        After a lost life of an Atari game and without a seed, continue the game instead. An episode
        that begins with `options` cannot be replayed.
        """
        if seed is None and self._life_lost:
            return self._next_life(options)
        self._episode = 0 if seed is not None else self._episode + 1
        if seed is not None:
            self._seeds[0] = seed
        return self._begin(options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make one step, as in gymnasium, and record its action.

        An episode with more actions than the limit is marked as lost and not recorded any more.
        """
        if not self._lost:
            self._actions.append(copy.deepcopy(self.connector.row(action)))
            if len(self._actions) > self._limit:
                self._mark_lost(f"it has more than {self._limit} steps (env_replay_limit)")
        outcome = self.env.step(action)
        self._last = outcome[0], outcome[1]
        self._life_lost = bool(outcome[4].get(LIFE_LOST))
        return outcome

    def get_state(self) -> dict[str, Any]:
        """Return ``seeds``, ``episode``, ``lost``, ``actions``, ``lives`` and ``seen``.

        ``seeds`` are those of episodes and of spaces, ``episode`` is the number of episodes since
        the seed was given, ``actions`` are the rows recorded so far. ``lost`` is why the episode
        cannot be replayed, empty if it can. ``lives`` are the numbers of actions before which the
        next life began. ``seen`` is a fingerprint of the last observation and reward, which a
        replay has to reach.
        """
        return {
            "seeds": list(self._seeds),
            "episode": self._episode,
            "lost": self._lost,
            "actions": _pack(self._actions),
            "lives": list(self._lives),
            "seen": self._seen(),
        }

    def _seen(self) -> str:
        """Return the fingerprint of the last observation and reward, to compare after a replay."""
        observation, reward = self._last
        if self.connector.observes and observation is not None:
            observation = self.connector.observe(observation)
        return fingerprint((observation, reward))

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Begin a state's episode in a new environment, and play its actions again.

        If that fails, the episode is marked as lost. The global random streams are preserved.
        """
        self._seeds, self._episode = list(state["seeds"]), state["episode"]
        with rng.preserve_global():
            try:
                self._begin(None)
                self._lost = state["lost"]
                if not self._lost:
                    self._replay(state)
            except Exception as error:  # noqa: BLE001 the first time it raised nothing
                self._mark_lost(f"playing it again raised {type(error).__name__}: {error}")

    def _replay(self, state: Mapping[str, Any]) -> None:
        """Play a state's recorded actions.

        Mark the episode as lost if the end differs from the state.
        """
        actions, lives = _unpack(state["actions"]), set(state["lives"])
        for i, action in enumerate(actions):
            announce_call()
            if i in lives:
                self._next_life(None)
            self.step(self.connector.act(action))
        if len(actions) in lives:
            self._next_life(None)
        if self._seen() != state["seen"]:
            self._mark_lost(
                f"replayed, it differed after {len(self._actions)} steps; the "
                "environment depends on more than its seed and actions"
            )

    def _mark_lost(self, reason: str) -> None:
        """Stop recording the running episode, and forget its actions.

        Its state will say that it is lost, for this `reason`.
        """
        self._lost = reason
        self._actions, self._lives = [], []

    def _next_life(self, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Reset the same environment into an Atari game's next life, and record that.

        Returns what its `reset` returned. With `options` the episode is marked as lost.
        """
        self._life_lost = False
        if not self._lost:
            self._lives.append(len(self._actions))
        if options is not None:
            self._mark_lost("a life of it began with options")
        observation, info = self.env.reset(options=options)
        self._last = observation, 0.0
        return observation, info

    def _begin(self, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Make a new environment, seed it and reset it; return what its `reset` returned.

        The one before is closed; the first call uses the environment that was made at the start.
        With `options` the episode is marked as lost.
        """
        if not self._fresh:
            with logging_once(self._failures_to_close):
                close(self.env)
            self.env = self._make()
        self._fresh = False
        seed_spaces(self.env, self._episode_seed(1, "spaces"), self.connector.depth)
        self._actions, self._lives, self._life_lost = [], [], False
        self._lost = "" if options is None else "it began with options"
        observation, info = self.env.reset(seed=self._episode_seed(0, "reset"), options=options)
        self._last = observation, 0.0
        return observation, info

    def _episode_seed(self, place: int, purpose: str) -> int:
        """Return a seed for the running episode, by `purpose`.

        `place` is 0 to derive it from the seed of resets, 1 from that of spaces.
        """
        # Some simulators take seeds of 31 bits only.
        return rng.integer(self._seeds[place], purpose, self._episode) % 2**31


def make_sub_env(config: EnvironmentConfig, context: EnvContext | None = None) -> Env:
    """Make one environment; at ``env_level: B``, wrapped so that its episodes can be replayed.

    `context` is its place among workers, None for the first. Raises ConfigError if it cannot be
    made.
    """
    if config.env_level == "B":
        make = partial(make_env, config, context)
        return ReplayableEnv(make, config.env_replay_limit, partial(make_connector, config))
    return make_env(config, context)


def steps_to_replay(state: Any) -> int:
    """Return the number of environment steps that restoring this state takes, for time limits.

    States nested in it are included; 0 if no episode has to be replayed.
    """
    if isinstance(state, Mapping):
        if state.keys() >= {"seeds", "actions", "lives", "seen"}:
            return len(state["actions"][1])
        return sum(map(steps_to_replay, state.values()))
    return sum(map(steps_to_replay, state)) if isinstance(state, list | tuple) else 0


def _pack(actions: Sequence[Any]) -> list[Any]:
    """Return actions as plain data: ["stacked", array] if all have the same shape and dtype.

    Others give ["single", [encoded action, …]]; raises NotPlainError if one cannot be encoded.
    """
    kinds = {(type(one), getattr(one, "dtype", None), np.shape(one)) for one in actions}
    if len(kinds) == 1 and isinstance(actions[0], np.ndarray | np.generic):
        return ["stacked", np.stack(actions)]
    return ["single", [encode(one) for one in actions]]


def _unpack(packed: Sequence[Any]) -> list[Any]:
    """Return the actions of which `_pack` has made plain data."""
    kind, data = packed
    if kind == "stacked":
        return list(np.array(data))
    return [decode(one, None) for one in data]
