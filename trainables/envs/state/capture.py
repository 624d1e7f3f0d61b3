"""The state of an environment object as plain data: captured and restored.

An environment's state is taken to be the plain attributes of its layers (wrappers down to the
unwrapped one) and the positions of its random streams. One attribute that is not plain makes it
inexact at once; `levels` measures whether the plain ones are the whole state.
"""

import abc
import types
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainables.core import rng
from trainables.envs.kinds.agents import AgentsEnv
from trainables.envs.kinds.together import SteppedTogether
from trainables.envs.state import mujoco
from trainables.envs.state.plain import Encoded, NotPlainError, decode, encode, is_plain

#: Attributes that link layers or say how they were made: rebuilt with the environment, not state.
STRUCTURE = frozenset({"env", "spec", "_cached_spec", "_saved_kwargs", "metadata", "render_mode"})

#: All attributes saved of a wrapper layer that held a preprocessor before these were connectors.
SPACES = frozenset({"_action_space", "_observation_space", "_metadata"})

#: Types of attributes that are not state: they are created again with the environment.
CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, np.dtype)


class KeepsState(abc.ABC):
    """A wrapper that saves and restores itself and the environment inside by its own methods."""

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return the state as plain data, of itself and of the environment inside.

        Entry ``lost`` is the reason why the running episode cannot be restored; empty if it can.
        """

    @abc.abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned, with its running episode unless that is lost.

        If the episode cannot be restored, nothing is raised: a later `get_state` says that it is
        lost.
        """

    @abc.abstractmethod
    def seed_spaces(self, seed: int) -> None:
        """Seed the spaces of the environment inside and its wrappers, each with its own stream."""


def capture(sub_env: Any) -> dict[str, Any]:
    """Return the state of an environment as plain data.

    Entry ``layers`` is a list, outermost wrapper first, of attribute → [kind, data]; for a
    `KeepsState`, the last layer, it is what its `get_state` returned. Attributes that are not plain
    data are left out.
    """
    return {"layers": [_capture_layer(layer) for layer in layers(sub_env)]}


def restore(sub_env: Any, state: Mapping[str, Any]) -> None:
    """Set an environment to a state that `capture` returned.

    The environment must have been made equally, and reset once. Raises EnvError if its MuJoCo model
    is not the one that was saved, or it lacks a space or simulation that was.
    """
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
    """Return the reason why a state of an environment lacks its running episode; else "".

    `state` is from `capture`, or from an environment in another process; "" also if that process
    had died.
    """
    if "gone" in state:  # with its process; the next step begins another one
        return ""
    whys = [layer.get("lost") for layer in state.get("environment", state)["layers"]]
    return next((why for why in whys if isinstance(why, str)), "")


def unsaved_attributes(sub_env: Any) -> list[str]:
    """Return the names of attributes that `capture` cannot save; with any, a restore is inexact.

    Left out are those that a new environment has, too: classes, functions, modules, renderers, and
    the links between wrappers. A `KeepsState` is not searched.
    """
    return [
        name
        for layer in layers(sub_env)
        if not isinstance(layer, KeepsState)
        for name, value in vars(layer).items()
        if name not in STRUCTURE
        and not (isinstance(value, CODE) or mujoco.is_renderer(value) or is_plain(value))
    ]


def seed_spaces(sub_env: Any, seed: int, first: int = 0) -> None:
    """Seed every space of every wrapper and of the environment with its own random stream.

    Environments may draw from their spaces. Streams are named by the depth of the wrapper, counted
    from `first` for the outermost one.
    """
    for depth, layer in enumerate(layers(sub_env), first):
        if isinstance(layer, KeepsState):
            layer.seed_spaces(seed)
            continue
        for name, value in vars(layer).items():
            if isinstance(value, spaces.Space):
                value.seed(rng.integer(seed, "space", depth, name) % 2**31)


def layers(sub_env: Any) -> Iterator[Any]:
    """Yield the wrappers, outermost first, and then the environment; ends at a `KeepsState`."""
    while isinstance(sub_env, gymnasium.Wrapper | AgentsEnv | SteppedTogether):
        yield sub_env
        if isinstance(sub_env, KeepsState):
            return
        sub_env = sub_env.env
    yield sub_env


def _capture_layer(layer: Any) -> dict[str, Any]:
    """Return attribute → [kind, data] of one wrapper's plain attributes; others are left out.

    Of a `KeepsState`, returns its own state.
    """
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
