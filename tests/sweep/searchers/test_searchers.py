"""What single searchers promise beyond what all of them do (tests/contracts/test_searchers.py)."""

import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.samplers._tpe.sampler import _split_trials
from optuna.trial import FrozenTrial, TrialState, create_trial
from rich.console import Console
from scipy.stats import qmc

from sweep import spec as specs
from sweep.cli import tables
from sweep.core.errors import UsageError
from sweep.driver.proposals import _KnownTrials
from sweep.driver.start.creation import resolving
from sweep.history.events import Closed, End, Goal, HoldChanged, Opened, Row, Status, UserHold
from sweep.history.trial import Trial
from sweep.searchers import Request, cmaes, tpe
from sweep.searchers._shared import evolution, study
from sweep.searchers._shared.changes import Changes
from sweep.searchers._shared.evolution import Generations
from sweep.searchers._shared.kernels import Density, Points
from sweep.searchers._shared.ranking import Ranking
from sweep.searchers._shared.study import AsComplete, SamplerView, WithRungs
from sweep.spec.space import Space
from sweep.testing import check_kills
from sweep.views import lookup, overview
from tests.support import sweeps
from tests.support.searches import FINITE, FRESH, LEVELS, MIXED, Search, build
from trainables.core import rng

#: Each different point of FINITE: 3 * (5 + 2 * 4).
ALL = 39


def keys(proposals: Sequence[Mapping[str, Any]]) -> list[str]:
    return [json.dumps(proposal, sort_keys=True) for proposal in proposals]


def in_pieces(name: str, slots: int, piece: int, upto: int, **options: Any) -> Search:
    """A search by a new driver every `piece` trials."""
    made = Search(name, FINITE, slots=slots, options=options)
    for end in [*range(piece, upto, piece), upto]:
        made.run(end, finish=False)
        made = Search(name, FINITE, slots=slots, options=options, records=made.records)
    return made.run(upto)


# ---- those that go through all points -------------------------------------------------------


@pytest.mark.parametrize("name", ["grid", "brute_force"])
@pytest.mark.parametrize(("slots", "piece"), [(1, 39), (4, 7), (39, 39)])
def test_every_point_has_one_trial_whatever_the_slots_and_resumes(
    name: str, slots: int, piece: int
) -> None:
    made = in_pieces(name, slots, piece, 60)
    assert len(made.proposals) == len(set(keys(made.proposals))) == ALL
    assert keys(made.proposals) == keys(Search(name, FINITE).run(60).proposals)
    assert f"all {ALL} points" in made.history.exhausted
    assert made.history.uncreated_trials == 0


def test_the_order_of_a_grid_is_that_of_the_file() -> None:
    found = Search("grid", {"a": {"choice": [1, 2]}, "b": {"randint": [1, 3]}}).run(6).proposals
    assert found == [{"a": a, "b": b} for a, b in itertools.product((1, 2), (1, 2, 3))]


def test_the_order_of_brute_force_comes_from_the_seed_and_is_that_of_a_shuffled_grid() -> None:
    found = keys(Search("brute_force", FINITE).run(ALL).proposals)
    assert found != keys(Search("grid", FINITE).run(ALL).proposals)
    assert found == keys(Search("grid", FINITE, options={"shuffle": True}).run(ALL).proposals)


def test_with_duplicates_a_grid_goes_round() -> None:
    found = keys(in_pieces("grid", 3, 10, 2 * ALL, duplicates=True).proposals)
    assert found[:ALL] == found[ALL:]
    assert len(set(found)) == ALL


@pytest.mark.parametrize("name", ["grid", "brute_force"])
@pytest.mark.parametrize("slots", [1, 3])
def test_with_duplicates_no_point_is_skipped_for_what_is_given(name: str, slots: int) -> None:
    """And a driver that goes on, which has looked through nothing, takes the same points."""
    given = {
        "searcher": {"name": name, "duplicates": True},
        "space": {"x": {"choice": ["a", "b", "c", "d"]}},
        "initial": [{"x": "d"}, {"x": "d"}],
        "stop": {"training_iteration": 1},
        "trials": 11,
    }
    past = check_kills(given, lambda _at: {"score": 0.0}, slots).history
    found = [trial.searched["x"] for trial in past.trials]
    assert (found[:2], sorted(found[2:5])) == (["d", "d"], ["a", "b", "c"])
    assert [sorted(found[end - 4 : end]) for end in (9, 10, 11)] == [["a", "b", "c", "d"]] * 3


# ---- the sequence ---------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 3])
def test_the_points_of_qmc_are_one_scrambled_sequence(slots: int) -> None:
    raw = {"a": {"uniform": [0.0, 1.0]}, "b": {"uniform": [0.0, 1.0]}}
    made = Search("qmc", raw, slots=slots).run(7, finish=False)
    made = Search("qmc", raw, slots=slots, records=made.records).run(32)
    sequence = qmc.Sobol(2, scramble=True, rng=rng.generator(3, "qmc")).random(32)
    assert [[p["a"], p["b"]] for p in made.proposals] == sequence.tolist()


def test_halton_points_can_be_asked_for() -> None:
    made = Search("qmc", {"a": {"uniform": [0.0, 1.0]}}, options={"sequence": "halton"}).run(9)
    values = sorted(p["a"] for p in made.proposals)
    assert np.diff([0.0, *values, 1.0]).max() < 0.25


# ---- no settings twice ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "tpe", "qmc", "nsga2", "bohb"])
def test_a_finite_space_is_searched_to_its_end_without_repetition(name: str) -> None:
    made = Search(name, FINITE, slots=3).run(60)
    assert len(made.proposals) == len(set(keys(made.proposals))) == ALL
    assert "have a trial" in made.history.exhausted


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_duplicates_are_proposed_where_they_are_asked_for(name: str) -> None:
    made = Search(name, FINITE, options={"duplicates": True}).run(60)
    assert len(made.proposals) == 60
    assert len(set(keys(made.proposals))) < ALL


def test_a_sweep_over_a_small_space_ends_with_its_last_point_and_resumes_to_nothing(
    tmp_path: Path,
) -> None:
    space = {"lr": {"choice": [0.1, 0.2, 0.3]}, "width": {"randint": [1, 2]}}
    folder = sweeps.make(tmp_path, space=space, searcher="random", trials=20)
    assert sweeps.run(folder) == "finished"
    past = sweeps.history(folder)
    assert len(past.trials) == 6
    assert "all 6 points of the space have a trial" in past.exhausted
    assert {t.status for t in past.trials} <= {Status.COMPLETED, Status.PRUNED}
    assert sweeps.run(folder, trials=30) == "finished"
    assert len(sweeps.history(folder).trials) == 6
    stream = io.StringIO()
    Console(file=stream, width=200).print(
        tables.status(overview.status(lookup.read(folder), {}, 0.0))
    )
    assert "the search ends early: all 6 points" in stream.getvalue()


def test_what_a_person_gives_is_taken_as_it_is_twice_too(tmp_path: Path) -> None:
    given = [{"lr": 0.2}, {"lr": 0.2}, {"lr": 0.3}]
    space = {"lr": {"choice": [0.1, 0.2, 0.3]}}
    folder = sweeps.make(tmp_path, space=space, searcher="grid", trials=9, initial=given)
    sweeps.run(folder)
    assert [trial.searched for trial in sweeps.history(folder).trials] == [*given, {"lr": 0.1}]


# ---- what samplers see ----------------------------------------------------------------------


def one_trial(*told: Closed) -> Trial:
    """A trial that these outcomes came from, each after a slice."""
    made = Search("random", {"lr": {"uniform": [0.0, 1.0]}})
    made.start()
    for number, outcome in enumerate(told):
        if number:
            made.record(Opened(0, 0, number, Goal(3, 3), ""))
        made.record(outcome)
    return made.history.trials[0]


def outcome(status: Status, *iterations: int) -> Closed:
    rows = tuple(Row(i, {"training_iteration": i, "score": 10.0 * i}) for i in iterations)
    return Closed(0, 0, 0, End.GOAL, status, "", source=iterations[0] - 1, rows=rows)


def test_a_paused_trial_is_pruned_with_its_rungs_to_tpe_and_complete_to_others() -> None:
    paused = one_trial(outcome(Status.PAUSED, 1))
    assert WithRungs(LEVELS)(paused) == SamplerView(TrialState.PRUNED, rungs={1: 10.0})
    assert AsComplete()(paused) == SamplerView(TrialState.COMPLETE, (10.0,))


def test_a_promoted_trial_is_complete_with_its_highest_rung_while_it_goes_on() -> None:
    trial = one_trial(outcome(Status.PAUSED, 1), outcome(Status.PAUSED, 2))
    assert trial.is_interrupted
    assert AsComplete()(trial) == SamplerView(TrialState.COMPLETE, (10.0,))
    trial = one_trial(outcome(Status.PAUSED, 1), outcome(Status.COMPLETED, 2, 3))
    assert AsComplete()(trial) == SamplerView(TrialState.COMPLETE, (30.0,))
    assert AsComplete(trial.milestones[0].event)(trial) == SamplerView(TrialState.COMPLETE, (10.0,))
    assert AsComplete(trial.proposed_after)(trial) == SamplerView(TrialState.RUNNING)


def asking(made: Search, trials: Sequence[Trial] | None = None, seed: int = 0) -> Request:
    """What a searcher is asked after the first trials of a search, or after all."""
    past = made.history
    known = past.trials if trials is None else trials
    return Request(made.space, made.objective, known, LEVELS, seed, 5, touched=past.touched)


def told(frozen: Sequence[FrozenTrial]) -> list[tuple[Any, ...]]:
    """All that a sampler can read of trials; when they were frozen is not told."""
    return [(t.number, t.state, t.values, t.params, t.intermediate_values) for t in frozen]


def test_the_cached_study_is_the_one_that_is_built_anew() -> None:
    made = Search("tpe", MIXED, slots=5)
    cache = study.Cache()
    for count in range(2, 26):
        made.run(count, finish=count % 5 == 0)
        for trials in (made.history.trials, made.history.trials[: count // 2]):
            request = asking(made, trials)
            view = WithRungs(LEVELS)
            anew = study.Cache()
            cache.update(request, view)
            assert anew.update(request, view) == list(range(len(trials)))
            assert told(cache.frozen) == told(anew.frozen)
    cache.update(asking(made), view)
    assert not cache.update(asking(made), view)
    made.record(HoldChanged(3, UserHold.PAUSE))  # by which the trial's newest event stays the same
    assert cache.update(asking(made), view) == [3]
    assert len(cache.update(replace(asking(made), touched=None), view)) == len(made.proposals)


def test_trials_that_no_ledger_has_yet_are_read_again() -> None:
    made, changes = Search("random", MIXED).run(4), Changes()
    beside = Trial.new(4, dict(made.proposals[0]), {}, made.objective)
    request = asking(made, [*made.history.trials, beside])
    assert changes.update(request) == [0, 1, 2, 3, 4]
    assert changes.update(request) == [4]


def test_of_pruned_trials_the_one_that_came_farther_is_the_better() -> None:
    pruned = [{1: 9.0}, {1: 8.0, 3: 1.0}, {1: 8.0, 3: 2.0}]
    frozen = [
        *(create_trial(state=TrialState.PRUNED, intermediate_values=rungs) for rungs in pruned),
        create_trial(value=0.0),
        create_trial(state=TrialState.FAIL),
    ]
    ranking = Ranking()
    ranking.update(frozen, range(5), 1.0)
    assert ranking.best(9) == [3, 2, 1, 0]


# ---- evolution ------------------------------------------------------------------------------


def generations(made: Search, count: int | None = None) -> list[int]:
    """Return the generations of the first `count` trials, and of the next one."""
    request = Request(made.space, made.objective, made.history.trials[:count], (), 0)
    return Generations(population=4).advance(request).generations


def test_a_generation_ends_when_enough_of_it_have_a_score() -> None:
    made = Search("nsga2", MIXED, options={"population_size": 4})
    made.ends = [Status.COMPLETED]
    made.run(12)
    assert generations(made) == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    parallel = Search("nsga2", MIXED, slots=3, options={"population_size": 4})
    parallel.ends = [Status.COMPLETED]
    found = generations(parallel.run(12))
    assert found == sorted(found)
    assert found[:5] == [0] * 5


def test_past_generations_stay_what_they_were_whatever_comes_to_light_later() -> None:
    made = Search("nsga2", MIXED, slots=4, options={"population_size": 4}).run(20)
    whole = generations(made)
    for count in range(20):
        assert generations(made, count)[:count] == whole[:count]


@pytest.mark.parametrize("name", ["cmaes", "nsga2", "nsga3"])
def test_a_kept_replay_proposes_what_a_new_one_does_and_replays_nothing_twice(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"population_size": 4}
    made = Search(name, MIXED, slots=3, options=options).run(40)
    steps = list[int]()

    def counted(step: Callable[..., None]) -> Callable[..., None]:
        def count(*given: Any) -> None:
            steps.append(0)
            step(*given)

        return count

    monkeypatch.setattr(cmaes._Replay, "step", counted(cmaes._Replay.step))
    monkeypatch.setattr(Generations, "step", counted(Generations.step))
    kept = build(name, options)
    for count in (*range(41), 6, 7, 8, 40):  # a shorter history is another one
        trials = made.history.trials[:count]
        request = asking(made, trials, count)
        before = len(steps)
        found = kept.suggest(request)
        replayed = {0: 1, 6: len(steps) - before, 40: len(steps) - before}.get(count, 2)
        assert len(steps) - before == replayed  # the newest recorded proposal, and this one
        assert found == build(name, options).suggest(request)


def test_nothing_is_pickled_or_kept_in_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise AssertionError("pickle")

    monkeypatch.setattr("pickle.loads", refuse)
    monkeypatch.setattr("pickle.dumps", refuse)
    for name in ("cmaes", "nsga2", "nsga3"):
        made = Search(name, MIXED, slots=2, options={"population_size": 4}).run(20)
        assert len(made.proposals) == 20


def test_cmaes_comes_closer_with_each_generation() -> None:
    raw = {"x": {"uniform": [-5.0, 5.0]}, "y": {"loguniform": [1e-4, 1.0]}}
    made = Search("cmaes", raw, slots=2)
    made.ends = [Status.COMPLETED]
    made.quality = lambda s: -((s["x"] - 2) ** 2) - (np.log10(s["y"]) + 2) ** 2
    scores = [trial.score or 0.0 for trial in made.run(120).history.trials]
    assert np.mean(scores[-20:]) > np.mean(scores[:20]) / 20


def test_a_trial_that_failed_after_a_rung_is_told_as_the_worst() -> None:
    failed = one_trial(outcome(Status.PAUSED, 1), outcome(Status.FAILED, 2))
    assert evolution.first_score(failed) == failed.milestones[0].event
    assert evolution.scored_milestone(failed, failed.milestones[0].event) is not None
    assert evolution.scored_milestone(failed, failed.newest_event) is None


def test_cmaes_models_what_has_an_order_and_is_always_there() -> None:
    assert list(cmaes.modelled(Space.parse(MIXED))) == ["lr", "epochs", "width"]


# ---- what does not go together --------------------------------------------------------------

TEXT = """\
name: demo
trials: 4
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
space:
  lr: {space}
stop: {{training_iteration: 2}}
searcher: {searcher}
"""


@pytest.mark.parametrize(
    ("searcher", "space", "place", "hint"),
    [
        ("grid", "{loguniform: [1.0e-3, 0.9]}", "test.yaml:7: space.lr", "write {choice: [...]}"),
        ("brute_force", "{uniform: [0, 1]}", "test.yaml:7: space.lr", "searcher: qmc"),
        ("grid", "{randint: [0, 1000000]}", "test.yaml:6: space", "expected at most 1000000"),
        (
            "cmaes",
            "{choice: [0.1, 0.2]}",
            "test.yaml:6: space",
            "searcher: tpe, which models choices",
        ),
        ("{name: tpe, group: true, multivariate: false}", "0.1", "searcher.group", "multivariate"),
        ("{name: grid, points: 3}", "0.1", "searcher.points", "shuffle"),
        ("{name: qmc, sequence: sobl}", "0.1", "searcher.sequence", "did you mean 'sobol'"),
        ("{name: nsga2, population_size: 1}", "0.1", "searcher.population_size", "2"),
        ("{name: cmaes, sigma: 0}", "0.1", "searcher.sigma", "greater than 0"),
        ("{name: gp, n_startup_trials: 0}", "0.1", "searcher.n_startup_trials", "1"),
        ("{name: bohb, random_fraction: 2}", "0.1", "searcher.random_fraction", "1"),
        ("{name: cmaes, population_size: 3}", "0.1", "searcher.population_size", "4"),
        ("{name: random, duplicates: 1}", "0.1", "searcher.duplicates", "true or false"),
        ("genetic", "0.1", "test.yaml:9: searcher", "nsga2"),
    ],
)
def test_a_searcher_that_cannot_search_is_refused_with_place_and_remedy(
    searcher: str, space: str, place: str, hint: str
) -> None:
    text = TEXT.format(searcher=searcher, space=space)
    with pytest.raises(UsageError) as caught:
        resolving.resolve(specs.parse(text, "test.yaml"), ())
    assert place in str(caught.value)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_cmaes_divides_by_nothing_in_its_smallest_generations() -> None:
    least = {"population_size": 4}
    assert len(Search("cmaes", {"x": {"uniform": [0, 1]}}, options=least).run(9).proposals) == 9


#: Options of tpe with which its model makes half of the proposals, of few trials.
MODELLED = {"window": 50, "random_fraction": 0.5}


def test_tpe_models_the_best_tenth_and_the_newest_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And which count as good is what Optuna says of all of them."""
    modelled: dict[int, list[int]] = {}
    good: dict[int, set[int]] = {}
    others: dict[int, list[int]] = {}
    suggest = study.suggest

    def noted(request: Request, sampler: Any, known: Sequence[FrozenTrial]) -> Any:
        every = study.Cache()
        every.update(request, WithRungs(request.levels))
        number = {json.dumps(one.params): n for n, one in enumerate(every.frozen)}
        modelled[request.number] = [number[json.dumps(one.params)] for one in known]
        whole = study.study_of(request, every.frozen)
        finished = [one for one in whole.trials if one.state is not TrialState.FAIL]
        below, _ = _split_trials(whole, finished, sampler._gamma(len(finished)))
        good[request.number] = {one.number for one in below}
        others[request.number] = [
            one.number for one in finished if one.number not in good[request.number]
        ]
        return suggest(request, sampler, known)

    monkeypatch.setattr(study, "suggest", noted)
    Search("tpe", MIXED, slots=3, options=MODELLED).run(130)
    for number, known in modelled.items():
        assert known == sorted(known)
        if number > 50:
            room = 50 - len(good[number])
            assert set(known) == good[number] | set(others[number][-room:])
    assert len(modelled[129]) == 50
    assert min(good[129]) < 129 - 60  # a good one that is not among the newest


def test_tpe_proposes_what_optunas_own_sampler_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = keys(Search("tpe", MIXED, slots=3, options=MODELLED).run(40).proposals)
    monkeypatch.delattr(tpe._Sampler, "infer_relative_search_space")
    assert keys(Search("tpe", MIXED, slots=3, options=MODELLED).run(40).proposals) == ours


def test_tpe_with_a_window_proposes_the_same_after_every_resume() -> None:
    straight = Search("tpe", MIXED, slots=3, options=MODELLED).run(100)
    made = Search("tpe", MIXED, slots=3, options=MODELLED)
    for end in (40, 55, 70, 73, 100):
        made.run(end, finish=end == 100)
        if end < 100:
            made = Search("tpe", MIXED, slots=3, options=MODELLED, records=made.records)
    assert keys(made.proposals) == keys(straight.proposals)
    without = {**MODELLED, "window": None}
    everything = Search("tpe", MIXED, slots=3, options=without).run(100)
    assert keys(everything.proposals)[:51] == keys(straight.proposals)[:51]
    assert keys(everything.proposals) != keys(straight.proposals)


def test_tpe_is_handed_its_options() -> None:
    options = tpe.Options(n_startup_trials=3, group=True)
    assert isinstance(tpe.Searcher(options).options, tpe.Options)
    assert optuna.__version__ == "5.0.0"  # what is private there was read in this version


@pytest.mark.parametrize(
    ("levels", "options", "share"),
    [(LEVELS, {}, 0.85), ((), {}, 0.0), (LEVELS, {"random_fraction": 0.2}, 0.2)],
)
def test_beside_the_model_of_tpe_a_share_of_proposals_is_random(
    levels: tuple[float, ...], options: dict[str, float], share: float
) -> None:
    made = Search("random", {"x": {"uniform": [0.0, 1.0]}}).run(12)
    drawn = 0
    for seed in range(200):
        request = Request(made.space, made.objective, made.history.trials, levels, seed)
        drawn += build("tpe", options).suggest(request) == made.space.draw(seed)
    assert drawn == pytest.approx(200 * share, abs=25 if share else 0)


class Walked(list[Trial]):
    """Counts how often all trials are gone through, as for a copy."""

    walks = 0

    def __iter__(self) -> Iterator[Trial]:
        self.walks += 1
        return super().__iter__()


def test_a_decision_copies_no_trials_and_a_searcher_finds_those_beside_it_behind_them() -> None:
    made = Search("random", MIXED, slots=3).run(9)
    trials = made.history._trials = Walked(made.history.trials)
    made.history.has_settings({})
    created, _ = made.proposer.search(made.history, (FRESH,) * 3)
    assert trials.walks == 0
    known = _KnownTrials(made.history.trials)
    known.added += [Trial.new(9 + n, {}, {}, made.objective) for n in range(3)]
    assert [trial.number for trial in known] == [*range(12)]
    assert [known[n].number for n in (0, 8, 9, 11, -1, -12)] == [0, 8, 9, 11, 11, 0]
    assert [trial.number for trial in known[-5:-1]] == [7, 8, 9, 10]
    assert len(known) == 9 + len(created)
    with pytest.raises(IndexError):
        known[12]


def test_bohb_estimates_good_and_bad_settings_each_from_enough_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, fit_to = list[int](), Density.fit_to

    def noted(points: Points, counts: tuple[int, ...]) -> Density:
        sizes.append(len(points))
        return fit_to(points, counts)

    monkeypatch.setattr(Density, "fit_to", noted)
    Search("bohb", MIXED, options={"random_fraction": 0.0, "min_points": 5}).run(12)
    assert sizes
    assert min(sizes) == 5
