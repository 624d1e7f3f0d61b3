"""What a game is that searches are compared on: learning curves that cost nothing to play.

A game says what each setting would report after each iteration. It needs numpy alone, so that every
peer plays the same one in an environment of its own. More is better in all of them; a search may
spend `trials` settings of at most `ITERATIONS` iterations.

    game = load("CartPole-v1", seed)
    value, state = game.play(settings, iteration, state)

`state` is what a checkpoint holds; settings that go on from the state of other ones are how
populations are bred.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

ITERATIONS = 27
Settings = Mapping[str, Any]
State = Mapping[str, float]
#: Name → (kind, arguments), the words of a spec's space.
Space = Mapping[str, tuple[str, Sequence[Any]]]


class Game(Protocol):
    """One thing to search."""

    @property
    def space(self) -> Space:
        """What is searched."""
        ...

    @property
    def target(self) -> float:
        """A value that few settings reach."""
        ...

    @property
    def steps(self) -> int:
        """Environment steps, or one, per iteration."""
        ...

    def play(self, settings: Settings, iteration: int, state: State) -> tuple[float, State]:
        """The value after `iteration`, and the state there; `state` is the one before it."""
        ...

    def worth(self, settings: Settings) -> float:
        """The value that these settings end with, without noise."""
        ...

    @property
    def best(self) -> float:
        """The greatest worth there is."""
        ...

    def draw(self, count: int) -> list[dict[str, Any]]:
        """Settings at random, the same for every search under this seed."""
        ...
