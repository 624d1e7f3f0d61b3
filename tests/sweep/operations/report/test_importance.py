"""What decides: known shares are found, and a trial that was stopped early is not a bad value."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.history.events import ParentCheckpoint, Saved, Status
from sweep.history.trial import Trial
from sweep.operations.report import charts, forest, importance, page
from sweep.operations.report.importance import Causes, Importance, Model, normal_scores
from sweep.spec.space import Space
from sweep.testing import CurvePoint, simulate
from sweep.views import lookup
from tests.support import sweeps, trials

SPACE = Space.parse(
    {
        "much": {"uniform": [0.0, 1.0]},
        "little": {"uniform": [0.0, 1.0]},
        "length": {"uniform": [0.0, 1.0]},
        "nothing": {"choice": ["a", "b", "c"]},
    }
)
#: Iterations at which trials are compared.
RUNGS = (2, 4, 8)
Score = Callable[[Mapping[str, Any], int], float]


def drawn(count: int, score: Score) -> list[Trial]:
    """Trials of which `length` says how long they were trained, and nothing else."""
    stream = np.random.default_rng(3)
    made = []
    for number in range(count):
        searched = SPACE.draw(number).searched
        until = RUNGS[min(2, int(searched["length"] * 3))]
        values = [score(searched, i) + 0.05 * stream.normal() for i in range(1, until + 1)]
        status = Status.COMPLETED if until == RUNGS[-1] else Status.PRUNED
        made.append(trials.trial(number, status, values, searched))
    return made


def growing(searched: Mapping[str, Any], iteration: int) -> float:
    """Four parts of the variance by one setting, one by another; and it grows with training."""
    return float(2 * searched["much"] + searched["little"] + 2 * iteration)


def by_rungs(found: Sequence[Trial]) -> Importance:
    compared = [
        normal_scores(
            level,
            [(t, s) for t in found if t.reached(level) and (s := t.score_at(level)) is not None],
            1.0,
        )
        for level in RUNGS
    ]
    return fitted(compared)


def naive(found: Sequence[Trial]) -> Importance:
    """Every trial by its last score, however long it was trained."""
    scored = [(trial, trial.score or 0.0) for trial in found]
    return fitted([normal_scores(math.inf, scored, 1.0)])


def fitted(compared: list[importance.Compared]) -> Importance:
    model = Model.fit(SPACE, compared, 0)
    assert model is not None
    return model.importance()


def test_known_shares_are_found_where_the_last_score_says_how_long_a_trial_was_trained() -> None:
    found = drawn(240, growing)
    wrong, right = naive(found).shares, by_rungs(found).shares
    assert wrong["length",] > 0.7, "or the table would show nothing"
    assert right["much",] == pytest.approx(0.8, abs=0.12)
    assert right["little",] == pytest.approx(0.2, abs=0.1)
    assert right["length",] < 0.05
    assert right["nothing",] < 0.05


def test_shares_of_settings_and_the_unexplained_share_add_up_to_one() -> None:
    found = by_rungs(drawn(240, growing))
    assert 0.8 < sum(found.shares.values()) + found.unexplained <= 1.0 + 1e-9
    assert found.settings[:2] == ["much", "little"]
    assert [level.trials for level in found.levels] == sorted(
        (level.trials for level in found.levels), reverse=True
    )


def test_a_level_counts_by_its_trials() -> None:
    found = by_rungs(drawn(240, growing))
    count = sum(level.trials for level in found.levels)
    for names, share in found.shares.items():
        by_hand = sum(level.trials * level.shares[names] for level in found.levels) / count
        assert share == pytest.approx(by_hand)


def test_where_chance_alone_decides_nothing_is_explained() -> None:
    stream = np.random.default_rng(5)
    found = by_rungs(drawn(60, lambda _searched, _iteration: float(stream.normal())))
    assert found.unexplained > 0.9


def told_apart(seeds: int, luck: float, noise: float, length: int = 12) -> Causes:
    """What is found where `x` alone decides, with a variance of 1, beside luck and noise."""
    stream = np.random.default_rng(11)
    chance = {(n, r): luck * stream.normal() for n in range(80) for r in range(seeds)}
    looks = {(n, r, i): noise * stream.normal() for n, r in chance for i in range(1, length + 1)}

    def curve(at: CurvePoint) -> dict[str, Any]:
        own = math.sqrt(12) * at.config["x"]
        place = at.trial, at.seed_index
        return {"score": own + chance[place] + looks[(*place, at.iteration)]}

    space = {"x": {"uniform": [0, 1]}}
    spec = {"trials": 80, "seeds": seeds, "space": space, "searcher": "random"}
    past = simulate({**spec, "stop": {"training_iteration": length}}, curve, 4).history
    scored = [(trial, trial.score or 0.0) for trial in past.trials]
    model = Model.fit(Space.parse(space), [normal_scores(math.inf, scored, 1.0)], 0)
    assert model is not None
    found = model.importance()
    causes = Causes.of(found, past)
    parts = (causes.seeds or 0.0) + (causes.evaluations or 0.0) + causes.rest
    assert parts == pytest.approx(found.unexplained)
    return causes


def test_what_no_setting_explains_is_seed_evaluation_and_rest() -> None:
    """Of means of two: settings 1, seeds 1 / 2, evaluations 0.5 / 2; seeds are 29 %, then 14 %."""
    causes = told_apart(2, luck=1.0, noise=math.sqrt(0.5))
    assert causes.seeds == pytest.approx(0.29, abs=0.12)
    assert causes.evaluations == pytest.approx(0.14, abs=0.07)
    assert told_apart(2, luck=0.1, noise=0.1).rest < 0.1


def test_with_one_seed_how_much_is_the_seed_is_not_known() -> None:
    causes = told_apart(1, luck=1.0, noise=math.sqrt(0.5))
    assert causes.seeds is None
    assert causes.evaluations == pytest.approx(0.2, abs=0.1)
    assert causes.rest > 0.2


def test_of_short_curves_the_seed_and_the_evaluation_are_one() -> None:
    """They are 43 % of the variance of means, and 60 % of that of these eighty."""
    causes = told_apart(2, luck=1.0, noise=math.sqrt(0.5), length=3)
    assert causes.evaluations is None
    assert causes.seeds == pytest.approx(0.6, abs=0.1)


def test_the_report_says_in_words_what_no_setting_explains() -> None:
    found = Importance([], {("x",): 0.4}, 0.6, gained=False)
    both, one = (
        charts.importance(found, its) for its in (Causes(0.3, 0.1, 0.2), Causes(None, 0.1, 0.5))
    )
    assert both is not None
    assert one is not None
    assert "60% of them: 30% is the seed, by which" in page._unexplained(both)
    assert "10% is the episodes of an evaluation; 50% is the seed, inter" in page._unexplained(one)
    assert "unknown with one seed" in page._unexplained(one)


def test_two_settings_that_decide_only_together_are_found_as_a_pair() -> None:
    def crossed(searched: Mapping[str, Any], _iteration: int) -> float:
        return float((searched["much"] > 0.5) == (searched["little"] > 0.5))

    shares = by_rungs(drawn(240, crossed)).shares
    assert next(iter(shares)) == ("much", "little")
    assert shares["much", "little"] > 2 * (shares["much",] + shares["little",])


def test_a_setting_that_is_absent_elsewhere_is_compared_with_its_absence() -> None:
    space = Space.parse(
        {
            "filter": {"choice": ["none", "mean"]},
            "clip": {"uniform": [1.0, 9.0], "when": {"filter": "mean"}},
        }
    )
    made = []
    for number in range(120):
        searched = space.draw(number).searched
        made.append((trials.trial(number, Status.COMPLETED, [1.0], searched), 0.0))
    scored = [(t, t.searched.get("clip", 0.0)) for t, _ in made]
    model = Model.fit(space, [normal_scores(math.inf, scored, 1.0)], 0)
    assert model is not None
    found = model.importance()
    assert found.unexplained < 0.1
    assert found.settings[0] == "clip"


def test_equal_scores_share_a_rank_nan_is_worst_and_less_may_be_better() -> None:
    made = [trials.trial(n, Status.COMPLETED) for n in range(4)]
    values = [1.0, 3.0, math.nan, 1.0]
    up = normal_scores(1, list(zip(made, values, strict=True)), 1.0).scores
    assert up[0] == up[3]
    assert up.argmin() == 2
    assert up.argmax() == 1
    down = normal_scores(1, list(zip(made, values, strict=True)), -1.0).scores
    assert down.argmin() == 2
    assert down[1] < down[0]


def test_a_completed_trial_keeps_its_score_at_the_rungs_that_it_need_not_reach(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(tmp_path, trackers=(), stop={"training_iteration": 9, "loss": {"<=": 1e9}})
    sweeps.run(folder)
    sweep = lookup.read(folder)
    assert {trial.time for trial in sweep.history.trials} == {1.0}
    counts = {one.level: len(one.trials) for one in importance.compare(sweep)}
    assert counts == {1: 9, 3: 9, 9: 9}


def test_in_a_population_what_was_gained_since_the_birth_is_compared(tmp_path: Path) -> None:
    folder = sweeps.make(
        tmp_path,
        trackers=(),
        searcher="random",
        trials=6,
        stop={"training_iteration": 12},
        scheduler={"name": "pbt", "perturbation_interval": 3},
    )
    sweeps.run(folder)
    sweep = lookup.read(folder)
    (pooled,) = importance.compare(sweep)
    bred = [trial for trial in sweep.history.trials if trial.parent is not None]
    assert bred
    assert {trial.number for trial in bred} & {trial.number for trial in pooled.trials}
    assert len(pooled.trials) == 6 * 4, "each member at the end of each interval"
    model = Model.of(sweep)
    assert model is not None
    assert model.importance().gained


def test_a_trial_that_a_person_cloned_makes_no_population() -> None:
    made = [trials.trial(n, Status.COMPLETED, [1.0, 2.0]) for n in range(3)]
    saved = Saved(1, "d", "f", 1)
    made[2].replicas[0].birth = ParentCheckpoint(0, 0, 1.0, saved)
    past = trials.history(made, wanted=3)
    assert importance.comparison_levels(past, ()) == [2.0], "each was bred by a scheduler"
    made[2].clone_of = 0
    assert importance.comparison_levels(past, ()) == [math.inf]


def test_few_trials_or_settings_that_do_not_differ_say_nothing() -> None:
    same = [trials.trial(n, Status.COMPLETED, [float(n)], {"much": 0.5}) for n in range(40)]
    scored = [(trial, trial.score or 0.0) for trial in same]
    assert Model.fit(SPACE, [normal_scores(math.inf, scored, 1.0)], 0) is None
    few = [(t, t.score or 0.0) for t in drawn(importance.LEAST - 1, growing)]
    assert Model.fit(SPACE, [normal_scores(math.inf, few, 1.0)], 0) is None


def test_what_two_settings_do_together_lies_where_they_do_it() -> None:
    compared = [
        normal_scores(8, [(t, t.score or 0.0) for t in drawn(300, growing) if t.time == 8], 1.0)
    ]
    model = Model.fit(SPACE, compared, 0)
    assert model is not None
    surface = model.surface("much", "little", points=5)
    assert surface.values == ([0.0, 0.25, 0.5, 0.75, 1.0],) * 2
    assert surface.better_than[0, 0] < 0.2
    assert surface.better_than[4, 4] > 0.8
    assert (np.diff(surface.better_than.mean(axis=1)) > 0).all()


def test_of_many_lists_some_are_on_the_axis_of_two_settings_together() -> None:
    space = Space.parse({"hidden": {"choice": [[n] for n in range(40)]}, "lr": {"uniform": [0, 1]}})
    made = [
        trials.trial(number, Status.COMPLETED, [float(number % 7)], space.draw(number).searched)
        for number in range(20)
    ]
    model = Model.fit(space, [normal_scores(1, [(t, float(t.score or 0)) for t in made], 1.0)], 0)
    assert model is not None
    hidden, lr = model.surface("hidden", "lr").values
    assert (len(hidden), hidden[0], hidden[-1], len(lr)) == (24, [0], [39], 24)


def test_the_marginal_of_a_tree_is_its_mean_over_the_other_columns() -> None:
    """Against the average of the tree itself at many points."""
    stream = np.random.default_rng(0)
    x = stream.random((60, 3))
    (tree,) = forest.grow(x, x[:, 0] * x[:, 1], stream, trees=1).trees
    points = stream.random((20_000, 3))

    def value(at: Any) -> Any:
        inside = ((tree.low <= at[:, None]) & (at[:, None] < tree.high)).all(axis=2)
        return tree.value[inside.argmax(axis=1)]

    assert value(points).mean() == pytest.approx(0.0, abs=0.01)
    assert value(points).var() == pytest.approx(tree.variance, rel=0.05)
    (edges,), values = tree.marginal([1])
    middle = (edges[0] + edges[1]) / 2
    there = points.copy()
    there[:, 1] = middle
    assert value(there).mean() == pytest.approx(values[0], abs=0.01)
