"""Rungs of sweeps with several objectives: trials are ranked there by fronts.

Schmucker et al., Multi-objective Asynchronous Successive Halving, 2021 (arXiv 2106.12639). Trials
rank front by front. Within a front the best in the metric comes first, then always the trial that
is farthest from those before it (`sweep.history.fronts.spread_order`), so that those that continue
cover the front. Behind all fronts come trials that lack a score in one objective, by the metric,
and then those that violate a constraint, by how much.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from sweep.history.events import Evidence
from sweep.history.fronts import Arranged, CompareKey, FrontsSummary, compare, front_text
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers._shared.rungs import (
    Described,
    Listed,
    origin_text,
    ranked_at,
    shown_places,
    step_at,
)


@cache
def values_at_level(level: float) -> CompareKey:
    """Return a key (for a `FrontsSummary`) that gives trials at a level all their objectives there.

    As with `sweep.history.order.level_key`, trials that ended without the metric are left out.
    """
    return lambda trial: compare(trial, level) if trial.reached(level) and trial.is_known else None


class FrontRung(Described):
    """Trials compared at a level, ranked front by front in all objectives.

    `trial_of` maps a trial's number to the trial as it is compared, perhaps with fewer seeds.
    """

    def __init__(
        self, arranged: Arranged, trial_of: Callable[[int], Trial], level: float = math.inf
    ) -> None:
        self._arranged, self._trial_of, self._level = arranged, trial_of, level

    @classmethod
    def of_key(
        cls, history: History, key: CompareKey, level: float, shown: Callable[[Trial], Trial]
    ) -> "FrontRung":
        """Return the ranking of all trials that have an entry for `key`.

        The history keeps their order under `key`, which must be the same object in all calls.
        `level` is the one whose scores are shown. `shown` maps a trial to the trial as it is
        compared, perhaps with fewer seeds.
        """
        kept = history.summary((cls, key), lambda: FrontsSummary(key))
        trials = history.trials
        return cls(kept.arranged, lambda number: shown(trials[number]), level)

    @classmethod
    def of_trials(cls, trials: Sequence[Trial], level: float = math.inf) -> "FrontRung":
        """Return the ranking of these trials; of one front, the first in `trials` ranks first."""
        by_number = {trial.number: trial for trial in trials}
        return cls(
            Arranged([compare(trial, level) for trial in trials]), by_number.__getitem__, level
        )

    def __len__(self) -> int:
        return len(self._arranged.placed)

    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]:
        trial = self._trial_of(self._arranged.placed[place].number)
        return trial, trial.score_at(self._level)

    @property
    def numbers(self) -> Iterator[int]:
        """Numbers of the trials in the ranking, best first."""
        return (one.number for one in self._arranged.placed)

    def place(self, trial: Trial) -> int:
        """Return the rank, from 1, of a trial of the ranking."""
        return self._arranged.places[trial.number]

    def equal_places(self, place: int) -> list[int]:
        """Return the ranks behind `place` whose trials have the same scores as the trial there.

        Ranks count from 1.
        """
        return self._arranged.equal_places(place)

    def describe(self, place: int, level: float) -> str:
        """Return a text with scores at `level`, front and rank of the trial at rank `place`.

        `level` is a value of `time_attr`; ranks count from 1. The text has no subject: ``reward 3
        are on front …, place 2 of 9``. For a trial in no front, it says which score is missing or
        which constraint is violated.
        """
        trial, front = self[place - 1][0], self._arranged.placed[place - 1].front
        named = zip(_names(trial), trial.values_at(level), strict=True)
        scores = " and ".join(
            f"no {name}" if value is None else f"{name} {value:.6g}" for name, value in named
        )
        described = f"{scores}{origin_text(trial, level)}"
        if front is not None:
            where = f"are on {front_text(front, self._arranged.fronts)}"
        elif broken := _broken(trial, level):
            where = f"break {broken}"
        else:
            where = "are behind all fronts"
        return f"{described} {where}, place {place} of {len(self)}"

    def evidence(self, level: float, place: int, promoted: int) -> Evidence:
        """Return the values behind a decision about rank `place`, if the first `promoted` continue.

        They are those of `rungs.evidence`, with fronts and scores in further objectives. `level` is
        the value of `time_attr` at which trials are compared.
        """
        places = shown_places(self, place, promoted)
        placed = [self._arranged.placed[p - 1] for p in places]
        trials = [self[p - 1][0] for p in places]
        columns = zip(*(trial.values_at(level) for trial in trials), strict=True)
        scores, *others = ([*column] for column in columns)
        names = _names(trials[0])[1:]
        return {
            "rung": level,
            "place": place,
            "of": len(self),
            "promoted": promoted,
            "front": self._arranged.placed[place - 1].front,
            "of_fronts": self._arranged.fronts,
            "places": places,
            "trials": [trial.number for trial in trials],
            "fronts": [one.front for one in placed],
            "scores": scores,
            **{f"objectives/{name}": found for name, found in zip(names, others, strict=True)},
            "steps": [step_at(trial, level) for trial in trials],
        }


def compared_at(trials: Sequence[Trial], level: float) -> Described:
    """Return the ranking of trials at a level, by fronts if there are several objectives.

    Trials that have never had the metric are left out.
    """
    known = [trial for trial, _ in ranked_at(trials, level)]
    if known and known[0].objective.objectives:
        return FrontRung.of_trials(known, level)
    return Listed(ranked_at(trials, level))


def _names(trial: Trial) -> list[str]:
    """Return the names of the results in all objectives, the metric's first."""
    return [trial.objective.metric, *(path for path, _ in trial.objective.objectives)]


def _broken(trial: Trial, level: float) -> str:
    """Return a text with the names of the constraints that a trial violates at a level.

    Returns an empty text for none.
    """
    found = zip(trial.objective.constraints, trial.violations_at(level), strict=True)
    names = [constraint.path for constraint, violation in found if violation > 0]
    return (
        f"the {'constraint' if len(names) == 1 else 'constraints'} on {', '.join(names)}"
        if names
        else ""
    )
