"""Which policy an agent has: what a person's function or dict says.

A binding is asked for an agent's policy with a stream that belongs to this agent in this episode.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainables.core import rng
from trainables.core.importing import load

#: (agent, a stream for this binding) → its policy.
Binding = Callable[[str, np.random.Generator], str]


@dataclass(frozen=True)
class ByName:
    """Agent → policy, by a dict; with one policy for all; or by the agent's name."""

    policies: tuple[str, ...]
    named: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, agent: str, stream: np.random.Generator) -> str:
        """Return the agent's policy; nothing is drawn for it."""
        if agent in self.named:
            return self.named[agent]
        return self.policies[0] if len(self.policies) == 1 else agent


@dataclass(frozen=True)
class _Asked:
    """Agent → policy, by a person's function; it travels by its path."""

    function: Any

    def __call__(self, agent: str, stream: np.random.Generator) -> str:
        function = self.function
        if isinstance(function, str):
            function = load("multiagent.policy_mapping_fn", function, "a function")
        more = {"rng": stream} if "rng" in inspect.signature(function).parameters else {}
        pid: str = function(agent, **more)
        return pid


def make_mapping(given: Any, policies: Sequence[str]) -> Binding:
    """Return what gives agents their policies.

    Args:
        given: a function or its path, a dict by agent, or None: the only policy, or the one named
            as the agent.
        policies: their names.

    Raises:
        ConfigError: a path at which there is no function.
    """
    if given is None or isinstance(given, Mapping):
        return ByName(tuple(policies), dict(given or {}))
    if isinstance(given, str):
        load("multiagent.policy_mapping_fn", given, "a function")
    return _Asked(given)


def looking(agent: str) -> np.random.Generator:
    """Return a stream for a mapping that is asked only to see what it gives."""
    return rng.generator(0, "mapping", "look", agent)
