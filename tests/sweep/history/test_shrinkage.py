"""The model behind the pick, on scores drawn from it: spreads are found, and claims hold.

Streams are fixed, so that each figure is the same in every run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from sweep.history.posterior.scores import Floats, Scores, Whole
from sweep.history.posterior.shrinkage import Estimates, estimate

PLAYS = 100
Count = Callable[[int], int]


@dataclass(frozen=True)
class Model:
    """Standard deviations of what a score is made of, and how a search goes."""

    settings: float = 1.0
    seeds: float = 1.0
    evaluations: float = 0.3
    trials: int = 60
    ladder: Sequence[int] = (1,)
    """The number of seeds at each level; a third of the trials goes on to more seeds or levels."""
    count: Count | None = None
    """Number of a trial → its seeds, instead of the ladder."""
    ceiling: float = np.inf
    drift: float = 0.0
    """Of new effects of settings and of seeds from level to level."""

    def play(self, stream: np.random.Generator) -> tuple[Scores, Floats]:
        """Return the scores of one search, and the expected scores of its settings."""
        levels, most = len(self.ladder), 6
        setting = np.zeros(self.trials)
        seed = np.zeros((self.trials, most))
        at, alike, counts = np.full((3, self.trials, levels), np.nan)
        last, squares = np.zeros(self.trials, int), np.zeros(self.trials)
        alive, before = np.arange(self.trials), 1
        for level, most_here in enumerate(self.ladder):
            first = level == 0
            setting = setting + stream.normal(0, self.settings if first else self.drift, len(at))
            seed = seed + stream.normal(0, self.seeds if first else self.drift, seed.shape)
            scores = setting[:, None] + seed + stream.normal(0, self.evaluations, seed.shape)
            scores = np.minimum(scores, self.ceiling) + level
            for seeds in sorted({before, most_here}):
                if seeds > before or not first:
                    means = (
                        scores[alive, :before].mean(1) if seeds > before else at[alive, level - 1]
                    )
                    alive = alive[np.argsort(-means)][: max(1, len(alive) // 3)]
                for trial in alive:
                    its = scores[trial, : self.count(int(trial)) if self.count else seeds]
                    at[trial, level], alike[trial, level] = its.mean(), its[:before].mean()
                    counts[trial, level], last[trial] = len(its), level
                    squares[trial] = len(its) * its.var()
            before = most_here
        truth = setting
        if self.ceiling < np.inf:
            luck = stream.normal(0, np.hypot(self.seeds, self.evaluations), (len(at), 300))
            truth = np.minimum(setting[:, None] + luck, self.ceiling).mean(1)
        truth = truth + levels - 1
        return without_curves(at, alike, np.nan_to_num(counts, nan=1.0), last, squares), truth


def without_curves(
    at: Floats, alike: Floats, seeds: Floats, last: Whole, squares: Floats
) -> Scores:
    """Return scores whose curves and evaluations are unknown."""
    nothing, unknown = np.zeros(len(at)), np.full_like(at, np.nan)
    return Scores(at, alike, seeds, last, squares, nothing, unknown, unknown, nothing, nothing, at)


def played(model: Model) -> list[tuple[Estimates, Floats]]:
    found = []
    for play in range(PLAYS):
        scores, truth = model.play(np.random.default_rng(play))
        found.append((estimate(scores, 0.0), truth))
    return found


def evenly(seeds: int) -> Count:
    return lambda trial: seeds


@pytest.mark.parametrize(
    ("settings", "count"),
    [(1.0, evenly(2)), (1.0, evenly(6)), (0.5, evenly(6)), (1.0, lambda trial: 1 + trial % 6)],
    ids=["two seeds", "six seeds", "settings that differ less", "one to six seeds"],
)
def test_spreads_of_settings_and_seeds_are_found(settings: float, count: Count) -> None:
    """Also where all trials have several seeds, whose means differ less than trainings do."""
    model = Model(settings=settings, count=count)
    found = [its for its, _ in played(model)]
    seeds = np.mean([its.share * its.deviation**2 for its in found])
    others = np.mean([(1 - its.share) * its.deviation**2 for its in found])
    assert np.sqrt(seeds) == pytest.approx(np.hypot(model.seeds, model.evaluations), rel=0.1)
    assert np.sqrt(others) == pytest.approx(settings, rel=0.1)


@pytest.mark.parametrize("is_random", [True, False])
def test_of_trials_of_one_seed_the_deviation_is_that_of_a_sample(is_random: bool) -> None:
    at, one = np.array([[0.0], [1.0], [5.0]]), np.ones((3, 1))
    scores = without_curves(at, at, one, np.zeros(3, int), np.zeros(3))
    assert estimate(scores, 0.0, is_random).deviation == pytest.approx(np.sqrt(14 / 2))


MODELS = {
    "one seed": Model(seeds=0.6),
    "six seeds, settings that differ less": Model(settings=0.4, count=evenly(6)),
    "four trials": Model(seeds=0.6, trials=4),
    "four trials of three seeds": Model(trials=4, count=evenly(3)),
    "rungs": Model(seeds=0.6, ladder=(1, 1, 1)),
    "seeds on the rungs": Model(ladder=(1, 3, 6)),
    "seeds on the rungs, twelve trials": Model(ladder=(1, 3, 6), trials=12),
    "seeds on the rungs, settings that differ less": Model(settings=0.5, ladder=(1, 3, 6)),
    "seeds on the rungs, a ceiling": Model(ladder=(1, 3, 6), ceiling=1.0),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_claims_of_the_first_are_within_one_error_or_two_as_often_as_they_say(model: Model) -> None:
    """Of the first, which was chosen for its luck, too: in 65 plays of a hundred, and in ninety.

    At a ceiling scores are not normal: 89 are measured.
    """
    off = []
    for found, truth in played(model):
        first = int(found.value.argmax())
        off.append(abs(found.value[first] - truth[first]) / found.error[first])
    assert np.mean(np.array(off) <= 1) >= 0.65
    assert np.mean(np.array(off) <= 2) >= (0.9 if model.ceiling == np.inf else 0.85)


def test_seeds_that_differ_where_all_means_are_alike_leave_an_error() -> None:
    trials = 6
    alike, three = np.full((trials, 1), 0.5), np.full((trials, 1), 3.0)
    squares = np.full(trials, 0.2)
    found = estimate(without_curves(alike, alike, three, np.zeros(trials, int), squares), 0.0)
    assert (found.error > 0).all()
    assert np.isfinite(found.error).all()


def test_one_training_that_fell_counts_less_for_the_others_than_one_that_rose() -> None:
    def expected_of_the_second(best_at_the_end: float) -> float:
        at = np.full((9, 2), np.nan)
        at[:, 0], at[8, 1] = np.linspace(-1, 0, 9), best_at_the_end
        last = np.where(np.arange(9) == 8, 1, 0)
        return float(
            estimate(without_curves(at, at, np.ones((9, 2)), last, np.zeros(9)), 0).value[7]
        )

    unchanged = expected_of_the_second(0.0)
    assert unchanged - expected_of_the_second(-3.0) == pytest.approx(0.3, abs=0.1)
    assert expected_of_the_second(3.0) - unchanged == pytest.approx(1.5, abs=0.1)
