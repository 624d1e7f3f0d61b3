"""What an exam has found, as plain data: scores under test seeds, their intervals, one comparison.

Scores count as in the search, but without its caution: with ``aggregate: worst`` or a bound it is
the mean that is estimated. What failed or has no finite score is left out, and counted.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sweep import estimates
from sweep.events import FINISHED, ExamBegan, Status
from sweep.history import History, Replica, Trial
from sweep.spec.aggregate import Aggregate

if TYPE_CHECKING:
    from sweep.show.look import Sweep

Data = dict[str, Any]


def report(sweep: "Sweep") -> Data | None:
    """All trials that were tested, best of the search first; None: none was.

    The comparison is of the first two of them that have two scores each.
    """
    history = sweep.history
    tested = [trial for trial in history.ranked() if trial.tests]
    if not tested:
        return None
    asked = next(r.event for r in reversed(sweep.records) if isinstance(r.event, ExamBegan))
    several = [trial for trial in tested if len(scores(trial)) > 1]
    return {
        "seeds": asked.seeds,
        "asked": list(asked.trials),
        "wanted": asked.seeds * len(asked.trials),
        "done": done(history, asked),
        "estimates": _estimated(history.objective.aggregate),
        "trials": [_tested(trial, sweep.spec.seed) for trial in tested],
        "comparison": _compared(several[0], several[1]) if len(several) > 1 else None,
    }


def scores(trial: Trial) -> list[float]:
    """The scores of the tests that ended, at a limit too; of one that failed none counts."""
    well = (test for test in _ended(trial) if test.status is not Status.FAILED)
    found = (test.score_at() for test in well)
    return [score for score in found if score is not None and math.isfinite(score)]


def _ended(trial: Trial) -> list[Replica]:
    return [test for test in trial.tests if test.status in FINISHED]


def done(history: History, exam: ExamBegan) -> int:
    """How many of the tests that an exam asked for have ended."""
    tests = [test for number in exam.trials for test in history.trials[number].tests[: exam.seeds]]
    return sum(test.status in FINISHED for test in tests)


def standing(history: History, exam: ExamBegan) -> str:
    """How far an exam is, in words."""
    trials = ", ".join(str(number) for number in exam.trials)
    wanted = exam.seeds * len(exam.trials)
    return f"{done(history, exam)} of {wanted} tests of trials {trials}"


def _tested(trial: Trial, seed: int) -> Data:
    found, ended = scores(trial), len(_ended(trial))
    interval = None
    if len(found) > 1:
        interval = asdict(_interval(found, trial.objective.aggregate, seed))
    return {
        "trial": trial.number,
        "score": trial.score,
        "scores": found,
        "ended": ended,
        "without_score": ended - len(found),
        "estimate": interval,
    }


def _interval(found: Sequence[float], aggregate: Aggregate, seed: int) -> estimates.Interval:
    if _estimated(aggregate) == "mean":
        return estimates.mean_interval(found)
    return estimates.bootstrap_interval(found, aggregate.centre, seed)


def _estimated(aggregate: Aggregate) -> str:
    return aggregate.kind if aggregate.fair else "mean"


def _compared(first: Trial, second: Trial) -> Data:
    sign = first.objective.sign
    better, worse = ([sign * score for score in scores(trial)] for trial in (first, second))
    found = estimates.improvement(better, worse)
    return {"first": first.number, "second": second.number, **asdict(found)}
