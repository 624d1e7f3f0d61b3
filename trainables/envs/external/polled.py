"""The interface of polled environments, as RLlib's BaseEnv: its names, errors and results."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
from gymnasium import spaces

from trainables.envs.kinds.agents import AgentsSpace
from trainables.errors import ConfigError, EnvError, TrainableError

#: Result of `try_reset` if the first observation comes in a later poll.
ASYNC_RESET = "async_reset_return"
#: Name of the only agent of an environment with one agent.
AGENT = "agent0"

Values = Mapping[Any, Mapping[Any, Any]]
"""Episode → agent → value."""
#: Agent → value.
ByAgent = Mapping[str, Any]


class EpisodeLost(TrainableError):
    """An episode ended for reasons outside of it, such as a restarted server; begin another one."""


class Full(TrainableError):
    """Too many events of an episode wait for the trainer, so that no more are accepted now."""


class EpisodeError(EnvError):
    """A wrong call for an episode: it is not running, or a value is outside its space."""


class Polled(NamedTuple):
    """Events in episodes since the last poll; all but `lost` are episode → agent → value.

    The first six fields are those that RLlib's ``BaseEnv.poll`` returns.
    """

    observations: Values
    """Episode → agent → observation, on which its policy is to act, or that ends the episode."""
    rewards: Values
    """Episode → agent → sum of rewards since the agent's last action."""
    terminateds: Values
    """Episode → agent → True if it has died; ``__all__`` → True if the episode ended by itself."""
    truncateds: Values
    """Episode → agent → True if it was cut off; ``__all__`` → True if the episode was cut off."""
    infos: Values
    """Episode → agent → info since the agent's last action."""
    off_policy_actions: Values
    """Episode → agent → action that the environment chose itself for this observation."""
    lost: Mapping[Any, str] = {}
    """Episode that cannot continue → reason, a text."""
    logps: Values = MappingProxyType({})
    """Episode → agent → log-probability of its off-policy action, as far as it is known."""
    policies: Values = MappingProxyType({})
    """Episode → agent → name of its policy, if a client asked for it, to choose actions itself."""


class SpacesOnlyEnv(gymnasium.Env[Any, Any]):
    """A stand-in for an environment that calls the trainer: only its spaces, no episodes.

    `base` has `poll`, `send_actions` and spaces, which are dicts for several agents.
    """

    def __init__(self, base: Any) -> None:
        self.base = base
        self.observation_space = base.observation_space
        self.action_space = base.action_space
        if not isinstance(base.action_space, spaces.Space):
            if base.observation_space.keys() != base.action_space.keys():
                both = f"{[*base.observation_space]} and {[*base.action_space]}"
                problem = (
                    f"observation_space and action_space of {type(base).__name__} have different "
                    f"agents: {both}"
                )
                hint = "give each agent both spaces"
                raise ConfigError("env", type(base).__name__, hint=hint, problem=problem)
            self.observation_space = AgentsSpace(base.observation_space)
            self.action_space = AgentsSpace(base.action_space)

    def reset(self, **_: Any) -> Any:
        """Raise EnvError, since an environment that calls the trainer begins its own episodes."""
        raise EnvError(
            f"{type(self.base).__name__} is an external environment, which calls the trainer, so "
            "it cannot be stepped; name another environment, for evaluations in "
            "evaluation_config: {env: …}"
        )

    def step(self, action: Any) -> Any:
        """Raise EnvError, since an environment that calls the trainer requests actions itself."""
        return self.reset()

    def close(self) -> None:
        """Call the environment's `close`, else its `stop`; does nothing if it has neither."""
        for name in ("close", "stop"):
            if callable(end := getattr(self.base, name, None)):
                end()
                return


def calls_trainer(env: Any) -> bool:
    """Return whether an environment asks the trainer for actions: it is polled, not stepped.

    True if it has the methods `poll` and `send_actions`.
    """
    return all(callable(getattr(env, name, None)) for name in ("poll", "send_actions"))
