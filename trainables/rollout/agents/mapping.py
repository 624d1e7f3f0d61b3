"""The policy of an agent, as the user's function or dict assigns it.

A mapping is called with a random stream for this agent in this episode.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainables.core import rng
from trainables.core.importing import load_callable

#: Function of an agent and a random stream that returns the agent's policy.
Binding = Callable[[str, np.random.Generator], str]


@dataclass(frozen=True)
class DictMapping:
    """Function from agent to policy by a dict.

    An agent that is not in the dict gets the only policy, or with several the one of its own name.
    """

    policies: tuple[str, ...]
    """Names of all policies."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Agent → policy."""

    def __call__(self, agent: str, stream: np.random.Generator) -> str:
        """Return the agent's policy, which may not exist; draws nothing from the stream."""
        if agent in self.named:
            return self.named[agent]
        return self.policies[0] if len(self.policies) == 1 else agent


@dataclass(frozen=True)
class _FunctionMapping:
    """Function from agent to policy by a user's function."""

    function: Any
    """Function of an agent's name, or its import path; it is given the random stream as ``rng`` if
    it has such a parameter."""

    def __call__(self, agent: str, stream: np.random.Generator) -> str:
        """Return what the user's function returns for the agent; policies are not checked.

        Raises ConfigError if the path names no function.
        """
        function = self.function
        if isinstance(function, str):
            function = load_callable("multiagent.policy_mapping_fn", function, "a function")
        more = {"rng": stream} if "rng" in inspect.signature(function).parameters else {}
        pid: str = function(agent, **more)
        return pid


def make_mapping(mapping: Any, policies: Sequence[str]) -> Binding:
    """Return the function (agent, random stream) → policy that assigns policies to agents.

    Args:
        mapping: a function or its path, a dict by agent, or None for the only policy or the policy
            with the agent's name.

    Raises:
        ConfigError: the path names no function. Names of policies are not checked.
    """
    if mapping is None or isinstance(mapping, Mapping):
        return DictMapping(tuple(policies), dict(mapping or {}))
    if isinstance(mapping, str):
        load_callable("multiagent.policy_mapping_fn", mapping, "a function")
    return _FunctionMapping(mapping)


def stream_outside_episodes(agent: str) -> np.random.Generator:
    """Return a random stream, always the same for an agent, to call a mapping before any episode.

    So the trainer can ask for an agent's policy, for example to find a policy's spaces.
    """
    return rng.generator(0, "mapping", "look", agent)
