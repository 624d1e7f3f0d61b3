"""Given settings: those to try first, ``grid`` parameters, and combinations that are forbidden."""

from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import BadConfig, BadSpace, Source
from sweep.driver.start.creation import resolving
from sweep.history.events import Status
from sweep.searchers import Request
from sweep.spec import parse
from sweep.spec.space import Space, initial
from sweep.spec.space.enumeration import Points
from tests.support import sweeps
from tests.support import trials as made_by_hand

SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-3, 0.9]},
    "target": {"choice": [1.0, 2.0]},
    "noise": {"uniform": [0.0, 1.0], "when": {"target": 2.0}},
}


def searched(folder: Any) -> list[dict[str, Any]]:
    return [trial.searched for trial in sweeps.history(folder).trials]


def make(root: Path, **changes: Any) -> Any:
    short = {"config": None, "scheduler": "fifo", "stop": {"training_iteration": 1}}
    return sweeps.make(root, **{**short, "space": SPACE, "trials": 6, **changes})


# ---- initial ---------------------------------------------------------------------------------


def test_the_first_trials_have_the_settings_that_are_given(tmp_path: Path) -> None:
    first = [{"lr": 0.25, "target": 1.0}, {"target": 2.0, "noise": 0.5}, {"lr": 0.125}]
    folder = make(tmp_path, initial=first)
    sweeps.run(folder)
    found = searched(folder)
    assert len(found) == 6
    assert found[0] == first[0]
    assert {name: found[1][name] for name in first[1]} == first[1]
    assert 1e-3 <= found[1]["lr"] <= 0.9
    assert found[2]["lr"] == 0.125
    assert list(found[1]) == ["lr", "target", "noise"]


def test_what_a_first_setting_leaves_open_depends_on_the_seed_alone(tmp_path: Path) -> None:
    one = make(tmp_path / "a", initial=[{"target": 1.0}])
    two = make(tmp_path / "b", initial=[{"target": 1.0}])
    sweeps.run(one)
    sweeps.run(two)
    assert searched(one) == searched(two)
    other = make(tmp_path / "c", initial=[{"target": 1.0}], seed=8)
    sweeps.run(other)
    assert searched(other)[0] != searched(one)[0]


def test_the_settings_of_a_group_may_stand_below_its_name() -> None:
    space = Space.parse({"m": {"a": {"choice": [1, {"x": 2}]}, "b": {"c": {"randint": [1, 3]}}}})
    first: list[dict[str, Any]] = [
        {"m": {"a": {"x": 2}, "b.c": 3}},
        {"m.a": {"x": 2}, "m": {"b": {"c": 2}}},
    ]
    initial.check(space, first, Source())
    found = [initial.space_of(space, first, index).draw(0).searched for index in range(2)]
    assert found == [{"m.a": {"x": 2}, "m.b.c": 3}, {"m.a": {"x": 2}, "m.b.c": 2}]
    with pytest.raises(BadSpace, match="4 is not allowed") as caught:
        initial.check(space, [{"m": {"b": {"c": 4}}}], Source())
    assert caught.value.key == "initial[0].m.b.c"
    with pytest.raises(BadSpace, match=r"m\.a is given twice"):
        initial.check(space, [{"m.a": 1, "m": {"a": 1}}], Source())


def test_a_given_number_becomes_one_as_the_space_has_it() -> None:
    space = Space.parse({"a": {"uniform": [0, 1]}, "b": {"uniform": [0.1, 0.4], "step": 0.1}})
    found = initial.space_of(space, [{"a": 1, "b": 0.1 + 0.2}], 0).draw(0).searched
    assert repr(found) == "{'a': 1.0, 'b': 0.3}"


@pytest.mark.parametrize(
    ("given", "place", "value", "allowed", "hint"),
    [
        ([{"lr": 2}], "initial[0].lr", 2, "0.001 to 0.9", "widen it"),
        ([{"lr": 0.1}, {"lr": True}], "initial[1].lr", True, "0.001 to 0.9", ""),
        ([{"lrr": 0.1}], "initial[0].lrr", "lrr", "no parameter lrr one of lr", "'lr'?"),
        ([{"noise": 0.5}], "initial[0].noise", 0.5, "only when target is 2.0", "target too"),
        ([{"noise": 0.5, "target": 1.0}], "initial[0].noise", 0.5, "only when", "remove it"),
        ([3], "initial[0]", 3, "a mapping such as", ""),
        ({"lr": 0.1}, "initial", {"lr": 0.1}, "a list of settings", ""),
        ([{"lr": 0.1}] * 7, "initial", "a list of 7", "more than trials, 6", "raise trials"),
        ([{"target": 1.0, "lr": 0.75}], "initial[0]", ..., "settings of the space", ""),
    ],
)
def test_a_first_setting_that_cannot_work_is_refused(
    tmp_path: Path, given: Any, place: str, value: Any, allowed: str, hint: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        make(tmp_path, initial=given, forbid=["lr > 0.5"])
    assert caught.value.key == place
    assert value is ... or caught.value.value == value
    assert allowed in f"{caught.value.problem} {caught.value.allowed}"
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


# ---- grid ------------------------------------------------------------------------------------


def test_trials_take_the_values_of_a_grid_in_turn_and_the_rest_is_searched(tmp_path: Path) -> None:
    space = {**SPACE, "x0": {"grid": [3.0, 4.0]}, "step_s": {"grid": [0, 0.0001]}}
    folder = make(tmp_path, space=space, trials=9, initial=[{"x0": 4.0}])
    sweeps.run(folder)
    found = searched(folder)
    cells = [(trial["x0"], trial["step_s"]) for trial in found]
    in_turn = [(3.0, 0), (3.0, 0.0001), (4.0, 0), (4.0, 0.0001)]
    assert cells == [(4.0, 0), *in_turn, *in_turn]
    assert len({trial["lr"] for trial in found}) == 9
    assert all(t.config["x0"] == t.searched["x0"] for t in sweeps.history(folder).trials)


def test_a_conditional_grid_parameter_is_left_out_where_it_is_not_there() -> None:
    space = Space.parse({"a": {"choice": ["x"]}, "g": {"grid": [1, 2], "when": {"a": "x"}}})
    found = [initial.space_of(space, (), index).draw(0).searched for index in range(4)]
    assert [point["g"] for point in found] == [1, 2, 1, 2]
    assert space.cells == 2
    assert space.domains.keys() == {"a"}
    assert Points(space).count == 2
    assert "each of 1, 2 in turn" in space.describe()[1]


def test_a_searcher_that_enumerates_counts_the_trials_of_each_grid_value_apart() -> None:
    space = Space.parse({"x": {"uniform": [0, 1]}, "g": {"grid": [1, 2, 3]}})
    given = [{"x": 0.5}]
    indices: dict[int, list[int]] = {1: [], 2: [], 3: []}
    for number in range(1, 13):
        pinned = initial.space_of(space, given, number)
        trials = [made_by_hand.trial(n, Status.COMPLETED) for n in range(number)]
        request = Request(pinned, made_by_hand.objective(), trials, (), 0)
        indices[pinned.pinned["g"]].append(request.index)
    for found in indices.values():
        assert found == list(range(found[0], found[0] + 4))


# ---- forbid ----------------------------------------------------------------------------------


@pytest.mark.parametrize("searcher", ["random", "tpe"])
def test_no_trial_has_a_forbidden_combination(tmp_path: Path, searcher: str) -> None:
    forbid = ["lr > 0.01 and target == 1.0", {"target": 2.0, "noise": {">": 0.25}}]
    folder = make(tmp_path, forbid=forbid, searcher=searcher, trials=13)
    sweeps.run(folder)
    found = searched(folder)
    assert len(found) == 13
    for point in found:
        assert point["lr"] <= 0.01 or point["target"] == 2.0
        assert point.get("noise", 0) <= 0.25
    again = make(tmp_path / "again", forbid=forbid, searcher=searcher, trials=13)
    sweeps.run(again)
    assert searched(again) == found


def test_a_combination_of_a_parameter_that_is_not_there_does_not_occur() -> None:
    space = Space.parse(SPACE, forbid=["noise >= 0"])
    assert {space.draw(seed).searched["target"] for seed in range(20)} == {1.0}


@pytest.mark.parametrize(
    ("forbid", "place", "allowed", "text"),
    [
        (["lr >= 0"], "forbid[0]", "a thousandth", "none of 1000 randomly drawn points"),
        (["lrr > 1"], "forbid[0]", "one of ", "there is no parameter 'lrr'"),
        (["1 > 2"], "forbid[0]", "", "names no parameter; name one"),
        (["lr + 1"], "forbid[0]", "true or false", "neither true nor false"),
        (["lr >"], "forbid[0]", "comparisons", "cannot be read"),
        ([{"target": 3.0}], "forbid[0].target", "because it is ", "target can never be 3.0"),
        ([{"lr": {">": 3}}], "forbid[0].lr", "because it is ", "lr can never be > 3"),
        ([{}], "forbid[0]", "{parent: value}", ""),
        ([3], "forbid[0]", "{parent: value}", ""),
        ("lr > 1", "forbid", "a list of combinations", ""),
        (["lr > 1"] * 1001, "forbid", "1001 combinations at most 1000", ""),
    ],
)
def test_a_list_of_what_is_forbidden_that_cannot_work_is_refused(
    tmp_path: Path, forbid: Any, place: str, allowed: str, text: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        make(tmp_path, forbid=forbid)
    assert caught.value.key == place
    assert allowed in f"{caught.value.problem} {caught.value.allowed}"
    assert text in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_grid_of_which_one_value_is_all_forbidden_is_refused(tmp_path: Path) -> None:
    space = {**SPACE, "x0": {"grid": [3.0, 4.0]}}
    with pytest.raises(BadSpace, match=r"x0 == 4\.0"):
        make(tmp_path, space=space, forbid=["x0 == 4.0 and lr > 0"])


def test_what_is_forbidden_survives_the_ledger(tmp_path: Path) -> None:
    folder = make(tmp_path, forbid=["lr > 0.01"], initial=[{"lr": 0.005}], trials=3)
    sweeps.run(folder)
    sweeps.run(folder, trials=6)
    assert all(point["lr"] <= 0.01 for point in searched(folder))
    assert len(searched(folder)) == 6


def test_what_the_trainable_refuses_of_a_group_is_answered_with_its_line() -> None:
    head = "name: a\ntrials: 1\ntrainable: ppo\nmetric: episode_reward_mean\nmode: max\n"
    head += "config: {env: CartPole-v1}\n"
    group = "space:\n  model:\n    activation: tanh\n    hidden: {choice: [[0]]}\n"
    spec = parse(head + group, "f.yaml")
    with pytest.raises(BadConfig, match=r"^f.yaml:10: space.model.hidden"):
        resolving.resolve(spec, ())


def test_a_mistake_is_answered_with_its_line() -> None:
    text = "name: a\ntrials: 1\ntrainable: ppo\nmetric: a\nmode: max\nspace: {x: {choice: [1]}}\n"
    with pytest.raises(BadSpace, match=r"^f.yaml:9: initial\[1\].x: 3 is not allowed"):
        parse(text + "initial:\n  - {x: 1}\n  - {x: 3}\n", "f.yaml")
