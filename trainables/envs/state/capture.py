"""The state of an environment object as plain data: captured and put back.

An environment's state is taken to be the plain attributes of its layers (wrappers down to the
unwrapped one) and the positions of its random streams. One attribute that is not plain makes it
inexact at once; whether the plain ones are all of it is measured in `levels`.
"""

import abc
import types
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.envs.agents import AgentsEnv
from trainables.envs.state import mujoco
from trainables.envs.state.plain import Encoded, NotPlainError, decode, encode, is_plain
from trainables.envs.together import SteppedTogether

#: Links between layers and how they were made: rebuilt with the environment, no state.
STRUCTURE = frozenset({"env", "spec", "_cached_spec", "_saved_kwargs", "metadata", "render_mode"})

#: All that was saved of the layers in which preprocessors were before they were connectors.
SPACES = frozenset({"_action_space", "_observation_space", "_metadata"})

#: What an attribute may be without being state: it is made anew with the environment.
CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, np.dtype)


class KeepsState(abc.ABC):
    """A layer that captures and restores itself and all layers inside it."""

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """The state as plain data; entry ``lost``: why the running episode cannot come back."""

    @abc.abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""

    @abc.abstractmethod
    def seed_spaces(self, seed: int) -> None:
        """Give every space of every inner layer a stream of its own."""


def capture(sub_env: Any) -> dict[str, Any]:
    """The state of one environment: entry ``layers``, outermost first: name → [kind, data].

    A `KeepsState`, which is the last layer, gives its own state.
    """
    return {"layers": [_capture_layer(layer) for layer in layers(sub_env)]}


def restore(sub_env: Any, state: Mapping[str, Any]) -> None:
    """Put `state` into an environment that was made alike and has been reset once."""
    made, saved = list(layers(sub_env)), state["layers"]
    while len(saved) > len(made) and saved[0].keys() <= SPACES:
        saved = saved[1:]
    for layer, attributes in zip(made, saved, strict=True):
        if isinstance(layer, KeepsState):
            layer.set_state(attributes)
            continue
        for name, encoded in attributes.items():
            current = getattr(layer, name, None)
            value = decode(encoded, current)
            if value is not current:
                setattr(layer, name, value)


def lost_episode(state: Mapping[str, Any]) -> str:
    """Why the running episode is no part of what `capture` gave, or a process's; empty: it is."""
    if "gone" in state:  # with its process; the next step begins another one
        return ""
    whys = [layer.get("lost") for layer in state.get("environment", state)["layers"]]
    return next((why for why in whys if isinstance(why, str)), "")


def left_out(sub_env: Any) -> list[str]:
    """Names of attributes that `capture` cannot hold; where there are any, nothing is exact."""
    return [
        name
        for layer in layers(sub_env)
        if not isinstance(layer, KeepsState)
        for name, value in vars(layer).items()
        if name not in STRUCTURE
        and not (isinstance(value, CODE) or mujoco.is_renderer(value) or is_plain(value))
    ]


def seed_spaces(sub_env: Any, seed: int, first: int = 0) -> None:
    """Give every space of every layer a stream of its own: an environment may draw from them.

    Streams are named by the depth of the layer; that of the outermost is `first`.
    """
    for depth, layer in enumerate(layers(sub_env), first):
        if isinstance(layer, KeepsState):
            layer.seed_spaces(seed)
            continue
        for name, value in vars(layer).items():
            if isinstance(value, spaces.Space):
                value.seed(rng.integer(seed, "space", depth, name) % 2**31)


def layers(sub_env: Any) -> Iterator[Any]:
    """The wrappers, outermost first, and the unwrapped environment; a `KeepsState` is the last."""
    while isinstance(sub_env, gymnasium.Wrapper | AgentsEnv | SteppedTogether):
        yield sub_env
        if isinstance(sub_env, KeepsState):
            return
        sub_env = sub_env.env
    yield sub_env


def _capture_layer(layer: Any) -> dict[str, Any]:
    if isinstance(layer, KeepsState):
        return layer.get_state()
    captured: dict[str, Encoded] = {}
    for name, value in vars(layer).items():
        if name not in STRUCTURE:
            try:
                captured[name] = encode(value)
            except NotPlainError:
                continue
    return captured
