"""Claims about scores near the ends of the range of floats, and about ones that are no numbers."""

import math

import pytest

from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.expectation import Expected
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.spec.objective import Score
from sweep.views import overview


@pytest.mark.parametrize("scale", [1e-170, 1e-5, 1e3, 1e150])
def test_seeds_to_tell_two_trials_apart_do_not_depend_on_the_unit(scale: float) -> None:
    plain, other = Expected(100.0, 10.0, 200.0, 1), Expected(99.0, 10.0, 200.0, 1)
    large = [
        Expected(scale * one.value, scale * 10, scale * scale * 200, 1) for one in (plain, other)
    ]
    more = plain.seeds_to_tell_from(other)
    assert more
    if scale * scale:
        assert large[0].seeds_to_tell_from(large[1]) == more


@pytest.mark.parametrize(("error", "noise"), [(1e170, math.inf), (1e308, 0.0), (1e-170, 0.0)])
def test_seeds_to_tell_apart_are_told_or_unknown_at_any_scale(error: float, noise: float) -> None:
    one, other = Expected(2 * error, error, noise, 1), Expected(error, error, noise, 1)
    assert one.seeds_to_tell_from(other) in (None, *range(21))


@pytest.mark.parametrize("share", [1.0, 1e-300])
def test_claims_about_scores_at_the_ends_of_the_range_are_no_nan(share: float) -> None:
    scores = [1.7e308, -1.7e308, 1e300 * share, 1e-300, 0.0]
    wanted = Objective("m", "max", Score())
    trials = [Trial.new(n, {}, {}, wanted) for n in range(len(scores))]
    for one, score in zip(trials, scores, strict=True):
        one.replicas[0].curve = [Point(1, 1.0, score)]
        one.replicas[0].status = Status.COMPLETED
    past = History(wanted)
    past.trials = trials
    assert past.best is trials[0]
    chances, spreads = past.expectations.chances(), past.expectations.spreads
    assert math.fsum(chances.values()) == pytest.approx(1.0)
    assert spreads is not None
    claims = [spreads.settings, spreads.seeds, spreads.evaluations]
    for one in trials:
        found = past.expected(one)
        assert found is not None
        claims += [found.value, found.error or 0.0, found.noise or 0.0]
    assert not any(map(math.isnan, claims))
    assert overview.pick(past, trials[0]) is not None
