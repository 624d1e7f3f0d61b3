"""Searchers propose settings; one file each.

    settings = searcher.suggest(request)

A searcher is a function of the request: the space, the objective, all trials so far (running ones
included) and a seed made from (sweep seed, trial number). It keeps nothing between calls, so a
search that was interrupted anywhere proposes what the uninterrupted one proposes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pydantic import BaseModel

from sweep import plugins
from sweep.history import Objective, Trial
from sweep.space import Settings, Space

PACKAGE = __name__


@dataclass(frozen=True)
class Request:
    """All that a proposal may depend on."""

    space: Space
    objective: Objective
    trials: Sequence[Trial]
    """Every earlier trial, by number; the new one gets the next number."""
    levels: tuple[float, ...]
    """The scheduler's rungs."""
    seed: int
    """From (sweep seed, number of the new trial), in [0, 2**63)."""
    sweep_seed: int = 0
    """The sweep's own, for searchers that enumerate: the order comes from it."""
    earlier: Sequence[Trial] = ()
    """Trials of another sweep to learn from; they have numbers below 0 and no place in an order."""

    @property
    def index(self) -> int:
        """How many settings were searched before this one; bred trials do not count.

        Where trials take the values of a grid in turn, how many with the values of this one.
        """
        return sum(trial.parent is None for trial in self.trials) // self.space.cells


class Searcher(Protocol):
    """One verb: `suggest`."""

    Options: ClassVar[type[BaseModel]]

    def __init__(self, options: BaseModel) -> None: ...

    def suggest(self, request: Request) -> Settings:
        """Settings for the next trial."""
        ...


def find(name: str) -> type[Searcher]:
    """The class ``Searcher`` in file ``sweep/searchers/<name>.py``."""
    searcher: type[Searcher] = plugins.load(PACKAGE, name, "searcher").Searcher
    return searcher
