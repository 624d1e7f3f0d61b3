"""A population at one level: who is best, who is replaced, and when a child was born."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweep.events import FINISHED
from sweep.history import History, Trial
from sweep.schedulers._rungs import evidence, worth

#: Trials with their scores, best first.
Ranking = Sequence[tuple[Trial, float | None]]


@dataclass(frozen=True)
class Generation:
    """The population at one level."""

    level: float
    ranking: Ranking
    count: int
    """How many are replaced, and how many they are replaced by."""

    @property
    def living(self) -> list[Trial]:
        """Who has not ended; the others are what it is measured by."""
        return [trial for trial, _ in self.ranking if trial.status not in FINISHED]

    @property
    def upper(self) -> Ranking:
        """Who may have children: the first of those that a child could begin from."""
        staying = self.ranking[: len(self.ranking) - self.count]
        return [(trial, score) for trial, score in staying if _can_breed(trial)][: self.count]

    @property
    def lower(self) -> list[Trial]:
        """Who is replaced, by number; nobody where nobody may have children."""
        if not self.upper:
            return []
        worst = [trial for trial, _ in self.ranking[len(self.ranking) - self.count :]]
        return sorted(worst, key=lambda trial: trial.number)

    def place(self, trial: Trial) -> int:
        """From 1."""
        return next(i for i, (t, _) in enumerate(self.ranking, start=1) if t is trial)

    def told(self, trial: Trial) -> dict[str, Any]:
        """The numbers of a decision about `trial`."""
        staying = len(self.ranking) - self.count
        return dict(evidence(self.level, self.ranking, self.place(trial), staying))

    def says(self, history: History, trial: Trial) -> str:
        """Where it stands, in words."""
        place = self.place(trial)
        value = worth(history, self.ranking[place - 1][1])
        return f"{value} is place {place} of {len(self.ranking)} at {self.level:g}"


def born_at(trial: Trial) -> float:
    """The value of ``time_attr`` at which a bred trial began; 0 for a searched one."""
    births = [replica.birth.time for replica in trial.replicas if replica.birth is not None]
    return min(births, default=0.0)


def _can_breed(trial: Trial) -> bool:
    """Whether a child could go on from it: it has not ended, and each seed is there, and saved."""
    there = all(r.checkpoints and not r.catching_up for r in trial.replicas)
    return there and trial.status not in FINISHED
