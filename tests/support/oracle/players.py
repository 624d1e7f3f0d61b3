"""An actor whose every decision is a plain function of what it sees and remembers."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.support.oracle.scripts import ACTIONS, LENGTH
from trainables.envs.spaces.actions import layout_of
from trainables.policies.acting.actor import REAL, Acted, Actor, Column
from trainables.policies.architecture import Architecture
from trainables.policies.exploration.actions import StochasticSampling

Array = NDArray[Any]
MEMORY = 2
"""Numbers of a memory."""


class Decision(NamedTuple):
    """What one row of observations and its memory lead to."""

    action: Any
    value: float
    memory: Array
    """(`MEMORY`,) with which the next observation is seen."""
    logp: float | None = None
    """The action's log-probability, where there is one."""


def decide(kind: str, seen: Array, memory: Array) -> Decision:
    """The decision for one observation (D,) seen with a memory (`MEMORY`,).

    Actions depend on the memory, and numbers go beyond the bounds of their space.
    """
    following = np.array([memory[0] + 1.0, 0.5 * memory[1] + seen[-1]], np.float32)
    mixed = float(np.sum(seen * np.arange(1, len(seen) + 1))) + 3.0 * float(memory[0])
    action: Any = int(np.floor(40.0 * abs(mixed))) % LENGTH
    if kind == "interval":
        action = np.array([np.sin(mixed)], np.float32)
    return Decision(action, value(seen, memory), following)


def value(seen: Array, memory: Array) -> float:
    """The value of one observation (D,) seen with a memory (`MEMORY`,)."""
    return float(np.sum(seen / np.arange(1, len(seen) + 1))) + float(memory[0] - memory[1])


class Plain(Actor):
    """Decides row by row, with no weights and nothing drawn.

    Args:
        kind: of its actions, a key of `scripts.ACTIONS`.
    """

    columns: ClassVar[dict[str, Column]] = {"values": REAL}
    memory_size = MEMORY

    def __init__(self, kind: str = "choice") -> None:
        self._kind = kind
        self.exploration = StochasticSampling(layout_of(ACTIONS[kind]))
        self.explore = True
        self.global_timestep = 0

    def load(self, weights: Any) -> None:
        """Nothing is learnt."""

    def weights(self) -> dict[str, Any]:
        return {}

    def act(self, observations: Array, memory: Array, stream: Any) -> Acted:
        pairs = zip(observations, memory, strict=True)
        made = [decide(self._kind, seen, one) for seen, one in pairs]
        values = np.array([one.value for one in made], np.float32)
        following = np.stack([one.memory for one in made])
        return Acted(np.array([one.action for one in made]), {"values": values}, following)

    def act_each(self, observations: Array, memory: Array, streams: Any) -> tuple[Array, Array]:
        acted = self.act(observations, memory, None)
        return acted.actions, acted.memory

    def values(self, observations: Array, memory: Array | None = None) -> Array:
        assert memory is not None
        pairs = zip(observations, memory, strict=True)
        return np.array([value(seen, one) for seen, one in pairs], np.float32)

    def as_layers(self) -> None:
        return None


def drawing(stream: np.random.Generator) -> Actor:
    """The actor of small networks, which draws its actions; its weights are of the stream."""
    layout = layout_of(ACTIONS["choice"])
    actor = Actor(layout, Architecture((4,), (), (5,), "tanh"))
    outputs = {"actor": LENGTH, "critic": 1}
    shapes = {
        f"{net}.{i}": one for net, n in outputs.items() for i, one in enumerate([(5, 4), (n, 5)])
    }
    weights = {f"{name}.weight": stream.normal(size=one) for name, one in shapes.items()}
    weights |= {f"{name}.bias": stream.normal(size=one[0]) for name, one in shapes.items()}
    actor.load({name: one.astype(np.float32) for name, one in weights.items()})
    return actor


def observed(actor: Actor, seen: Array, action: Any) -> Decision:
    """What an actor without a memory says of an action, whoever has chosen it."""
    row, none = seen[None].astype(np.float32), actor.initial_memory(1)
    logp = actor.likelihood(row, none, np.array([action]))[0]
    memory = np.zeros(MEMORY, np.float32)
    return Decision(int(action), float(actor.values(row)[0]), memory, float(logp))
