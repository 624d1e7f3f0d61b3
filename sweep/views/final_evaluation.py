"""The result of a final evaluation: scores under test seeds, their intervals and one comparison.

Scores are aggregated as in the search, except that ``worst`` and bounds become the mean. Tests
that failed or have no finite score are left out, and counted.
"""

import math
from dataclasses import asdict
from typing import Any

from sweep.core import stats
from sweep.history.events import (
    FINISHED,
    FinalEvaluationBegan,
    Status,
)
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.spec.objective import Aggregate
from sweep.views import progress
from sweep.views.lookup import Sweep

Data = dict[str, Any]


def report(sweep: Sweep) -> Data | None:
    """Return the results of all tested trials, the search's best first; None if none was tested.

    ``trials`` has a row for each (`_test_row`). ``comparison`` (`_compare`) is between the first
    two with two scores each; None if there are no two. ``seeds``, ``asked`` (numbers of trials) and
    ``wanted`` (number of tests) are those of the newest final evaluation, of whose tests ``done``
    have ended. ``estimates`` is the kind of aggregate.
    """
    history = sweep.history
    tested = [trial for trial in history.ranked() if trial.test_replicas]
    if not tested:
        return None
    events = (record.event for record in reversed(sweep.records))
    asked = next(event for event in events if isinstance(event, FinalEvaluationBegan))
    several = [trial for trial in tested if len(scores(trial)) > 1]
    return {
        "seeds": asked.seeds,
        "asked": list(asked.trials),
        "wanted": asked.seeds * len(asked.trials),
        "done": count_done(history, asked),
        "estimates": _estimate(history.objective.aggregate),
        "trials": [_test_row(trial, sweep.spec.seed) for trial in tested],
        "comparison": _compare(several[0], several[1]) if len(several) > 1 else None,
    }


def scores(trial: Trial) -> list[float]:
    """Return the finite scores of a trial's tests that have ended and not failed."""
    ended = (test for test in trial.test_replicas if test.status in FINISHED - {Status.FAILED})
    found = (test.score_at() for test in ended)
    return [score for score in found if score is not None and math.isfinite(score)]


def count_done(history: History, final_evaluation: FinalEvaluationBegan) -> int:
    """Return the number of tests of a final evaluation that have ended."""
    tests = progress.tests_of(history, final_evaluation)
    return sum(test.status in FINISHED for test in tests)


def progress_text(history: History, final_evaluation: FinalEvaluationBegan) -> str:
    """Return how many tests of a final evaluation have ended: ``3 of 10 tests of trials 4, 7``."""
    trials = ", ".join(str(number) for number in final_evaluation.trials)
    wanted = final_evaluation.seeds * len(final_evaluation.trials)
    done = count_done(history, final_evaluation)
    return f"{done} of {wanted} tests of trials {trials}"


def _test_row(trial: Trial, seed: int) -> Data:
    """Return scores of a trial under test seeds with their interval.

    ``estimate`` has ``value``, ``low`` and ``high``; it is None with fewer than two scores. If all
    scores are equal, they do not show how much seeds differ, and ``low`` and ``high`` are None.
    ``score`` is that of the search, ``scores`` those of the tests; ``ended`` is the number of ended
    tests, of which ``without_score`` have none. `seed` is for the interval's bootstrap.
    """
    scored, aggregate = scores(trial), trial.objective.aggregate
    ended = sum(test.status in FINISHED for test in trial.test_replicas)
    estimate: Data | None = None
    if len(scored) > 1:
        estimate = asdict(
            stats.mean_interval(scored)
            if _estimate(aggregate) == "mean"
            else stats.bootstrap_interval(scored, aggregate.centre, seed)
        )
        if len(set(scored)) == 1:
            estimate |= {"low": None, "high": None}
    return {
        "trial": trial.number,
        "score": trial.score,
        "scores": scored,
        "ended": ended,
        "without_score": ended - len(scored),
        "estimate": estimate,
    }


def _estimate(aggregate: Aggregate) -> str:
    """Return the kind of aggregate of test scores: the search's if comparable, else ``mean``.

    The search's is comparable if it does not depend on the number of seeds.
    """
    return aggregate.kind if aggregate.is_independent_of_count else "mean"


def _compare(first: Trial, second: Trial) -> Data:
    """Return the probability that a run of the first trial beats one of the second.

    It is computed from their test scores, at least one each; a tie counts as half. ``value`` has
    the 95 % interval ``low`` to ``high``. ``first`` and ``second`` are the trials' numbers.
    """
    sign = first.objective.sign
    better, worse = ([sign * score for score in scores(trial)] for trial in (first, second))
    found = stats.improvement(better, worse)
    return {"first": first.number, "second": second.number, **asdict(found)}
