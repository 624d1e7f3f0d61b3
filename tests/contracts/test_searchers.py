"""What every searcher promises; a new file among them is tested unasked."""

import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep import searchers
from sweep.core import plugins
from sweep.history.events import Created, HoldChanged, Status, UserHold
from sweep.history.history import History
from sweep.spec.space import Space
from sweep.testing import simulate
from tests.support.searches import FINITE, FRESH, MIXED, Search
from tests.support.trials import objective

NAMES = plugins.names(searchers.PACKAGE)
#: Those that go through all points search a space that has few.
ENUMERATING = ("brute_force", "grid")
#: Options with which 30 trials are several generations, or past the random beginning.
SOON: dict[str, Mapping[str, Any]] = {
    "cmaes": {"population_size": 4},
    "gp": {"n_startup_trials": 4},
    "nsga2": {"population_size": 4},
    "nsga3": {"population_size": 4},
    "bohb": {"min_points": 4, "random_fraction": 0.1},
}


#: How many trials a test may have; a Gaussian process takes a second for each.
MANY = {"gp": 6}


def search(name: str, slots: int = 1, **changes: Any) -> Search:
    raw = FINITE if name in ENUMERATING else MIXED
    return Search(name, raw, slots=slots, options=SOON.get(name), **changes)


def test_the_searchers_that_people_look_for_are_found() -> None:
    known = {"bohb", "brute_force", "cmaes", "gp", "grid", "nsga2", "nsga3", "qmc", "random", "tpe"}
    assert known <= set(NAMES)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def again(space: Space, searched: Mapping[str, Any]) -> Mapping[str, Any]:
    """The point at which every parameter is as searched: none is missing, none too many."""
    return space.resolve(lambda name, _domain: searched[name]).searched


def test_each_proposal_lies_in_the_space_and_is_no_earlier_one(name: str) -> None:
    count = MANY.get(name, 25)
    made = search(name, slots=3).run(count)
    domains = made.space.domains
    for searched in made.proposals:
        for key, value in searched.items():
            assert domains[key].contains(value), key
        assert again(made.space, searched) == searched
    assert len({json.dumps(searched) for searched in made.proposals}) == count


@pytest.mark.slow
def test_fifteen_and_fifteen_in_another_process_equal_thirty() -> None:
    """The second half is proposed by a process that knows the history alone."""
    made = [
        search(name, slots)
        for name, slots in itertools.product(NAMES, (1, 4))
        if (name, slots) != ("gp", 4)
    ]
    counts = [MANY.get(begun.name, 15) for begun in made]
    half = [
        {**begun.run(count, finish=False).to_json(), "upto": 2 * count}
        for begun, count in zip(made, counts, strict=True)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.searches"],
        input=json.dumps(half),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for straight, count, resumed in zip(made, counts, json.loads(done.stdout), strict=True):
        assert straight.run(2 * count).proposals == resumed, straight.recipe


def test_each_proposal_can_be_made_again_from_the_history_before_it(name: str) -> None:
    """Whatever a searcher keeps is a cache: one that knows nothing proposes the same."""
    made = search(name, slots=3).run(MANY.get(name, 20))
    for at, record in enumerate(made.records):
        if isinstance(record.event, Created):
            past = [r for r in made.records[:at] if r.number <= record.event.seen]
            count = record.event.trial - sum(isinstance(r.event, Created) for r in past) + 1
            known = Search(**{**made.recipe, "records": past})
            assert known.propose(count)[-1] == record.event.searched


@pytest.mark.parametrize("searcher", sorted(set(NAMES) - {"grid"}))
def test_the_seed_of_the_sweep_decides(searcher: str) -> None:
    assert search(searcher, seed=1).run(3).proposals != search(searcher, seed=2).run(3).proposals


def test_trials_that_still_run_are_no_obstacle(name: str) -> None:
    made = search(name, slots=12)
    assert made.start(12) == 12


def test_trials_without_any_score_are_no_obstacle(name: str) -> None:
    made = search(name)
    made.quality = lambda _settings: None
    assert len(made.run(12).proposals) == 12


def test_a_searched_parameter_with_one_value_is_no_obstacle(name: str) -> None:
    raw = {**FINITE, "one": {"choice": [1]}, "b": {"randint": [1, 9]}}
    assert len(Search(name, raw, options=SOON.get(name)).run(12).proposals) == 12


def test_settings_that_a_person_gives_are_no_obstacle(name: str) -> None:
    """Also all of those that a searcher models, so that it has nothing to propose."""
    space = {"x": {"uniform": [0.0, 1.0], "step": 0.25}, "act": {"choice": ["tanh", "relu"]}}
    initial: list[dict[str, Any]] = [{"x": 0.5}, {"act": "relu"}, {"x": 0.25, "act": "tanh"}]
    searcher = {"name": name, **SOON.get(name, {})}
    spec = {"space": space, "initial": initial, "searcher": searcher, "trials": 6}
    more = {"scheduler": "fifo", "stop": {"training_iteration": 1}}
    course = simulate({**spec, **more}, lambda at: {"score": at.config["x"]}, slots=2)
    found = [dict(trial.searched) for trial in course.history.trials]
    assert len(found) == 6
    assert all(given.items() <= one.items() for given, one in zip(initial, found, strict=False))


@pytest.mark.parametrize("name", [one for one in NAMES if one != "cmaes"])  # it wants a number
@pytest.mark.parametrize(
    ("space", "initial", "points"),
    [
        ({"a": {"grid": [1, 2]}, "x": {"choice": [1, 2, 3], "when": {"a": 1}}}, [], 4),
        ({"a": {"grid": [1, 2]}, "x": {"choice": [1, 2, 3]}}, [{"a": 1, "x": 1}], 6),
        ({"a": {"grid": [1, 2]}, "b": {"grid": [1, 2]}}, [], 4),
    ],
)
def test_a_grid_goes_on_with_the_combinations_that_have_points_left(
    name: str, space: dict[str, Any], initial: list[Any], points: int
) -> None:
    searcher = {"name": name, **SOON.get(name, {})}
    spec = {"space": space, "initial": initial, "searcher": searcher, "trials": 9}
    more = {"scheduler": "fifo", "stop": {"training_iteration": 1}}
    history = simulate({**spec, **more}, lambda _at: {"score": 1.0}, slots=2).history
    found = {json.dumps(trial.searched) for trial in history.trials}
    assert len(history.trials) == len(found) == points
    assert ", with any value of a" in history.exhausted
    assert "all 1 points" not in history.exhausted


def test_every_kind_of_parameter_is_searched(name: str) -> None:
    raw: dict[str, Any] = {
        "size": {"ordinal": ["s", "m", "l"]},
        "act": {"choice": ["tanh", "relu"], "weights": [3, 1]},
        "env": {"grid": ["a", "b"]},
        "epochs": {"randint": [1, 9]},
    }
    if name not in ENUMERATING:
        raw["lr"] = {"lognormal": [-6.0, 1.0]}
        raw["depth"] = {"loguniform": [1, 64], "step": 1}
    made = Search(name, raw, options=SOON.get(name), slots=2).run(9)
    assert [searched["env"] for searched in made.proposals] == (["a", "b"] * 5)[:9]
    assert len({json.dumps(searched) for searched in made.proposals}) == 9


@pytest.mark.proof
@settings(max_examples=5)
@given(st.lists(st.integers(0, 7), min_size=24, max_size=24), st.integers(0, 2**62))
def test_a_kept_searcher_and_a_new_one_propose_the_same(story: list[int], seed: int) -> None:
    """Also for histories that jump back and forth: a cache is dropped at any doubt."""
    for searcher in sorted({*NAMES} - {"gp"}):  # it keeps what tpe keeps, and takes seconds
        made = search(searcher, slots=6, seed=seed)
        for choice in story:
            running, paused = (
                made.history.with_status(Status.RUNNING),
                made.history.with_status(Status.PAUSED),
            )
            if choice < 3 and made.room:
                made.start()
            elif choice == 6 and paused:
                made.go_on(paused[0].number)
            elif choice == 7 and paused:
                made.record(HoldChanged(paused[-1].number, UserHold.STOP))
            elif running:
                made.end(running[choice % len(running)].number)
            fresh = search(searcher, seed=seed).proposer.search(made.history, (FRESH,) * 2)
            assert made.proposer.search(made.history, (FRESH,) * 2) == fresh, searcher
        for upto in (len(made.records) // 2, len(made.records)):
            past = History(objective())
            past.extend(made.records[:upto])
            fresh = search(searcher, seed=seed).proposer.search(past, (FRESH,) * 2)
            assert made.proposer.search(past, (FRESH,) * 2) == fresh, searcher
            assert made.proposer.search(past, (FRESH,) * 2) == fresh, searcher
