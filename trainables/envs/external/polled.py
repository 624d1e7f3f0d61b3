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
    """An episode that cannot continue, for external reasons.

    The caller should begin another one.
    """


class Full(TrainableError):
    """Too much of an episode waits to be polled, so that nothing more is accepted now."""


class EpisodeError(EnvError):
    """A call that does not fit its episode: an unknown one, or a value outside its space."""


class Polled(NamedTuple):
    """Events since the last poll; all are episode → agent → value."""

    observations: Values
    """Observations on which the policies are to act."""
    rewards: Values
    """Rewards since the agent's last action."""
    terminateds: Values
    """True if the episode has ended by itself."""
    truncateds: Values
    """True if the episode was cut off."""
    infos: Values
    """Infos since the agent's last action."""
    off_policy_actions: Values
    """Actions that were not chosen by the policy, for these observations."""
    lost: Mapping[Any, str] = {}
    """Episode that cannot continue → reason."""
    logps: Values = MappingProxyType({})
    """Log-probabilities of off-policy actions, as far as they are known."""
    policies: Values = MappingProxyType({})
    """Policies of agents, as far as they have been requested already."""


class Called(gymnasium.Env[Any, Any]):
    """A stand-in for an environment that calls the trainer, used to inspect its spaces.

    `base` has `poll`, `send_actions` and spaces, which are dicts for several agents.
    """

    def __init__(self, base: Any) -> None:
        self.base = base
        self.observation_space = base.observation_space
        self.action_space = base.action_space
        if not isinstance(base.action_space, spaces.Space):
            if base.observation_space.keys() != base.action_space.keys():
                both = f"{[*base.observation_space]} and {[*base.action_space]}"
                hint = f"{type(base).__name__} has spaces for {both}"
                allowed = "observation_space and action_space for the same agents"
                raise ConfigError("env", type(base).__name__, allowed, hint)
            self.observation_space = AgentsSpace(base.observation_space)
            self.action_space = AgentsSpace(base.action_space)

    def reset(self, **_: Any) -> Any:
        """Raise EnvError, since an environment that calls the trainer begins its own episodes."""
        raise EnvError(
            f"{type(self.base).__name__} calls the trainer, so nobody can play in it: name "
            "another environment, for evaluations with evaluation_config: {env: …}"
        )

    def step(self, action: Any) -> Any:
        """Raise EnvError, since an environment that calls the trainer requests actions itself."""
        return self.reset()

    def close(self) -> None:
        """Close the environment, or stop it if it is one of RLlib's."""
        for name in ("close", "stop"):
            if callable(end := getattr(self.base, name, None)):
                end()
                return


def calls_trainer(env: Any) -> bool:
    """Return whether an environment calls the trainer: it is polled, instead of being stepped."""
    return all(callable(getattr(env, name, None)) for name in ("poll", "send_actions"))
