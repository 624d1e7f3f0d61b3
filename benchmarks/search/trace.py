"""What a search has reported, iteration after iteration, and what that was worth."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.search.game import Game


@dataclass(frozen=True)
class Report:
    """One iteration of one trial."""

    trial: int
    iteration: int
    value: float
    settings: Mapping[str, Any]


@dataclass
class Trace:
    """All iterations that a search has paid for, in order; an iteration is the unit of cost."""

    reports: list[Report] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """The next iteration."""
        self.reports.append(report)

    def to_target(self, target: float, budget: int) -> int | None:
        """Iterations paid until a value reached `target`; None: none did within `budget`."""
        paid = enumerate(self.reports[:budget], 1)
        return next((n for n, report in paid if report.value >= target), None)

    def regret(self, game: Game, budget: int, settled: bool = False) -> float:
        """How much less than the best the recommended settings are worth after `budget` iterations.

        Recommended is the trial with the highest value at the highest iteration that any trial has
        come to. With `settled` the value itself counts: settings that change on the way have no
        worth of their own.
        """
        paid = self.reports[:budget]
        furthest = max(report.iteration for report in paid)
        best = max((r for r in paid if r.iteration == furthest), key=lambda report: report.value)
        return game.best - (best.value if settled else game.worth(best.settings))
