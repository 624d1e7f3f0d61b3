import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.errors import BadConfig, BadSpace, Source, SweepError
from sweep.operations.rehearsal.validate import count_points
from sweep.spec.space import Choice, Domain, Float, Int, Settings, Space, choice_key, sample
from sweep.spec.space.domains import are_equal

SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-5, 1e-2]},
    "clip": {"uniform": [0, 0.3], "step": 0.1},
    "epochs": {"randint": [1, 20]},
    "width": {"lograndint": [8, 512]},
    "batch": {"randint": [32, 256], "step": 32},
    "model.hidden": {"choice": [[64, 64], [128, 128]]},
    "filter": {"choice": ["none", "mean"]},
    "filter_clip": {"uniform": [5.0, 20.0], "when": {"filter": "mean"}},
    "_rest": {"loguniform": [0.01, 0.3]},
    "lambda_": {"value": "1 - _rest"},
    "gamma": 0.99,
    "layers": [1, {"a": None}],
    "half_clip": {"value": "filter_clip / 2"},
}


def draw(space: Space, seed: int) -> Settings:
    generator = np.random.default_rng(seed)
    return space.resolve(lambda _, domain: sample(domain, generator))


def fixed(values: dict[str, Any]) -> Any:
    return lambda name, domain: values[name]


def test_each_word_of_the_language_makes_its_domain() -> None:
    domains = Space.parse(SPACE).domains
    assert domains["lr"] == Float(1e-5, 1e-2, log=True)
    assert domains["clip"] == Float(0.0, 0.3, step=0.1)
    assert domains["epochs"] == Int(1, 20)
    assert domains["width"] == Int(8, 512, log=True)
    assert domains["batch"] == Int(32, 256, step=32)
    assert domains["filter"] == Choice(("none", "mean"))


def test_parameters_stand_in_the_order_of_the_file() -> None:
    space = Space.parse(SPACE)
    assert list(space.parameters) == list(SPACE)
    not_searched = {"lambda_", "gamma", "layers", "half_clip"}
    assert space.searched == tuple(name for name in SPACE if name not in not_searched)


def test_an_inactive_parameter_is_neither_asked_for_nor_passed_on() -> None:
    asked = []

    def suggest(name: str, domain: Domain) -> Any:
        asked.append(name)
        return "none" if name == "filter" else sample(domain, np.random.default_rng(0))

    found = Space.parse(SPACE).resolve(suggest)
    assert "filter_clip" not in asked
    assert "filter_clip" not in found.searched | found.settings
    assert "half_clip" not in found.settings


def test_an_active_parameter_is_proposed_and_what_derives_from_it_follows() -> None:
    space = Space.parse(
        {
            "half": {"value": "clip / 2"},
            "clip": {"uniform": [5.0, 20.0], "when": {"filter": ["mean", "median"]}},
            "filter": {"choice": ["none", "mean", "median"]},
        }
    )
    found = space.resolve(fixed({"filter": "median", "clip": 8.0}))
    assert found.settings == {"half": 4.0, "clip": 8.0, "filter": "median"}
    assert list(found.settings) == ["half", "clip", "filter"]


def test_a_parents_parent_decides_too() -> None:
    space = Space.parse(
        {
            "a": {"choice": [False, True]},
            "b": {"choice": ["x", "y"], "when": {"a": True}},
            "c": {"uniform": [0, 1], "when": {"b": "x"}},
            "d": {"value": 3, "when": {"b": "y", "a": True}},
        }
    )
    assert space.resolve(fixed({"a": False})).settings == {"a": False}
    assert space.resolve(fixed({"a": True, "b": "y"})).settings == {"a": True, "b": "y", "d": 3}
    assert space.resolve(fixed({"a": True, "b": "x", "c": 0.5})).settings["c"] == 0.5


def test_a_derived_parameter_can_be_a_parent() -> None:
    space = Space.parse(
        {
            "n": {"randint": [1, 4]},
            "_large": {"value": "n > 2"},
            "dropout": {"uniform": [0.0, 0.5], "when": {"_large": True}},
        }
    )
    assert space.resolve(fixed({"n": 2})).settings == {"n": 2}
    assert space.resolve(fixed({"n": 3, "dropout": 0.1})).settings == {"n": 3, "dropout": 0.1}


def test_a_leading_underscore_is_searched_but_not_passed_on() -> None:
    found = Space.parse(
        {"_rest": {"uniform": [0.0, 0.5]}, "lambda_": {"value": "1 - _rest"}}
    ).resolve(fixed({"_rest": 0.25}))
    assert found.searched == {"_rest": 0.25}
    assert found.settings == {"lambda_": 0.75}


def test_dots_reach_into_nested_settings_and_the_base_is_not_changed() -> None:
    base = {"model": {"activation": "tanh"}, "env": "CartPole-v1"}
    hidden = [64, 64]
    nested = Space.nest({"model.hidden": hidden, "a.b.c": 1}, base)
    nested["model"]["hidden"].append(3)
    assert nested["model"] == {"activation": "tanh", "hidden": [64, 64, 3]}
    assert nested["a"] == {"b": {"c": 1}}
    assert base == {"model": {"activation": "tanh"}, "env": "CartPole-v1"}
    assert hidden == [64, 64]


def test_the_points_are_counted_if_they_are_not_infinitely_many() -> None:
    assert count_points(Space.parse(SPACE)) is None
    space = {"n": {"randint": [1, 5]}, "x": {"uniform": [0, 1], "step": 0.25}, "c": {"choice": [1]}}
    assert count_points(Space.parse(space)) == 5 * 5 * 1
    assert count_points(Space.parse({})) == 1


def test_the_description_has_one_line_for_each_parameter() -> None:
    lines = Space.parse(SPACE).describe()
    assert len(lines) == len(SPACE)
    assert " ".join(lines[0].split()) == "lr 1e-05 to 0.01, both included, on a log scale"
    assert lines[7].endswith("5.0 to 20.0, both included, when filter is 'mean'")


def test_a_proposal_outside_the_domain_is_our_own_error() -> None:
    space = Space.parse({"n": {"randint": [1, 5]}})
    for wrong in (0, 6, 1.0, True, "1", None, float("nan")):
        with pytest.raises(SweepError, match="proposed") as caught:
            space.resolve(fixed({"n": wrong}))
        assert caught.value.exit_code == 5


def test_choices_are_told_apart_by_their_json() -> None:
    choice = Choice((1, "1", [1], {"b": 1, "a": 2}))
    assert choice.contains({"a": 2, "b": 1})
    assert not choice.contains(True)
    assert not choice.contains(1.0)
    assert not choice.contains(float("nan"))
    assert list(choice.values_by_key) == ["1", '"1"', "[1]", '{"a":2,"b":1}']
    assert choice_key({"b": [1, 2], "a": "é"}) == '{"a":"\\u00e9","b":[1,2]}'


def test_a_stepped_domain_contains_its_grid_and_nothing_else() -> None:
    domain = Float(0.0, 0.3, step=0.1)
    assert all(domain.contains(0.0 + k * 0.1) for k in range(4))
    assert domain.contains(0.3)
    assert not any(domain.contains(x) for x in (-0.1, 0.05, 0.4, float("inf"), float("nan"), "0.1"))
    assert not Int(0, 10, step=5).contains(4)


numbers = st.floats(-1e6, 1e6, allow_nan=False)
whole = st.integers(-(2**53), 2**53)


@st.composite
def domains(drawn: st.DrawFn) -> Domain:
    kind = drawn(st.sampled_from(["float", "log", "grid", "int", "logint", "choice"]))
    if kind == "choice":
        return Choice(tuple(drawn(st.lists(st.integers(), min_size=1, unique=True))))
    if kind == "grid":
        step = drawn(st.sampled_from([0.1, 0.25, 1.0, 3e-5]))
        return Float(-step * 3, step * drawn(st.integers(1, 1000)), step=step)
    if kind in ("int", "logint"):
        low, high = sorted(drawn(st.sets(whole, min_size=2, max_size=2)))
        return (
            Int(low, high) if kind == "int" else Int(abs(low) + 1, abs(low) + 2 + abs(high), True)
        )
    bottom, top = sorted(drawn(st.sets(numbers, min_size=2, max_size=2)))
    return (
        Float(bottom, top) if kind == "float" else Float(abs(bottom) + 1e-9, 2e6 + abs(top), True)
    )


@given(domains(), st.integers(0, 2**32))
def test_a_draw_lies_in_its_domain(domain: Domain, seed: int) -> None:
    generator = np.random.default_rng(seed)
    assert all(domain.contains(sample(domain, generator)) for _ in range(10))


@given(st.integers(0, 2**32))
def test_every_point_of_a_space_is_made_of_values_of_its_domains(seed: int) -> None:
    space = Space.parse(SPACE)
    found = draw(space, seed)
    assert all(space.domains[name].contains(value) for name, value in found.searched.items())
    assert ("filter_clip" in found.searched) == (found.searched["filter"] == "mean")
    assert found.settings["lambda_"] == 1 - found.searched["_rest"]
    assert not any(name.startswith("_") for name in found.settings)
    assert json.loads(json.dumps(found.settings)) == found.settings


@pytest.mark.parametrize(
    ("domain", "middle"),
    [
        (Float(0.0, 1.0), 0.5),
        (Float(1e-4, 1.0, log=True), 1e-2),
        (Float(0.0, 1.0, step=0.001), 0.5),
        (Int(0, 1000), 500),
        (Int(1, 10_000, log=True), 71),  # each number spans half a step to either side: from 0.5
    ],
)
def test_draws_are_spread_evenly_on_their_scale(domain: Domain, middle: float) -> None:
    generator = np.random.default_rng(0)
    below = sum(sample(domain, generator) < middle for _ in range(4000))
    assert 1900 < below < 2100  # three standard deviations are 95


def test_a_logarithmic_whole_number_reaches_both_its_bounds() -> None:
    generator = np.random.default_rng(0)
    drawn = {sample(Int(1, 3, log=True), generator) for _ in range(200)}
    assert drawn == {1, 2, 3}


@given(
    st.recursive(
        st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False), st.lists
    )
)
def test_equality_of_plain_data_is_pythons(value: Any) -> None:
    assert are_equal(value, value)
    assert are_equal(1, True)
    assert are_equal([1.0, {"a": False}], [True, {"a": 0}])
    assert not are_equal("1", 1)


BIG = 2**70


@pytest.mark.parametrize(
    ("space", "place", "value", "allowed", "hint"),
    [
        ({"x": {"uniform": [2, 1]}}, "x.uniform", [2, 1], "2 is more than 1", "write [1, 2]"),
        (
            {"x": {"uniform": [1, 1]}},
            "x.uniform",
            [1, 1],
            "both bounds are 1",
            "write a fixed value, x: 1",
        ),
        ({"x": {"uniform": [1]}}, "x.uniform", [1], "[low, high]", ""),
        ({"x": {"uniform": 3}}, "x.uniform", 3, "[low, high]", ""),
        ({"x": {"uniform": ["1", 2]}}, "x.uniform[0]", "1", "a number", ""),
        ({"x": {"uniform": [0, True]}}, "x.uniform[1]", True, "a number", ""),
        ({"x": {"uniform": [0, float("inf")]}}, "x.uniform[1]", float("inf"), "finite", ""),
        ({"x": {"uniform": [0, BIG]}}, "x.uniform[1]", BIG, "2**53", ""),
        ({"x": {"uniform": [0, 10**400]}}, "x.uniform[1]", 10**400, "2**53", ""),
        ({"x": {"uniform": [-1e308, 1e308]}}, "x.uniform", [-1e308, 1e308], "finite", ""),
        ({"x": {"loguniform": [0, 1]}}, "x.loguniform[0]", 0, "above 0", ""),
        ({"x": {"loguniform": [-1.0, 1]}}, "x.loguniform[0]", -1.0, "above 0", ""),
        ({"x": {"lograndint": [0, 8]}}, "x.lograndint[0]", 0, "above 0", ""),
        ({"x": {"randint": [0.5, 3]}}, "x.randint[0]", 0.5, "whole number", ""),
        ({"x": {"randint": [1, 3.0]}}, "x.randint[1]", 3.0, "whole number", ""),
        ({"x": {"randint": [1, BIG]}}, "x.randint[1]", BIG, "2**53", ""),
        ({"x": {"randint": [True, 3]}}, "x.randint[0]", True, "whole number", ""),
        ({"x": {"uniform": [0, 1], "step": 0}}, "x.step", 0, "above 0", ""),
        ({"x": {"uniform": [0, 1], "step": -0.5}}, "x.step", -0.5, "above 0", ""),
        ({"x": {"uniform": [0, 1], "step": 0.3}}, "x.step", 0.3, "divides", "last value is 0.9"),
        ({"x": {"randint": [1, 10], "step": 4}}, "x.step", 4, "divides", "last value is 9"),
        ({"x": {"uniform": [0, 1], "step": 3}}, "x.step", 3, "divides", "a smaller step"),
        ({"x": {"randint": [1, 10], "step": 1.5}}, "x.step", 1.5, "whole number", ""),
        ({"x": {"uniform": [0, 1e300], "step": 1.0}}, "x.step", 1.0, "at least 1.11", "2**53"),
        (
            {"x": {"choice": [1, 2], "step": 1}},
            "x.step",
            "step",
            "only when",
            "can be used with uniform, log",
        ),
        ({"x": {"randint": [1, 9], "stp": 1}}, "x.stp", "stp", "only when", "did you mean 'step'?"),
        ({"x": {"choice": []}}, "x.choice", "a list of 0", "1 to 10000", ""),
        ({"x": {"choice": list(range(10_001))}}, "x.choice", "a list of 10001", "1 to 10000", ""),
        ({"x": {"choice": "abc"}}, "x.choice", "abc", "a list", ""),
        (
            {"x": {"choice": [1, 2, 1]}},
            "x.choice[2]",
            1,
            "1 is listed twice",
            "write each value once",
        ),
        (
            {"x": {"choice": [1, True]}},
            "x.choice[1]",
            True,
            "True equals 1, value 0",
            "each value once",
        ),
        ({"x": {"choice": [0.0, [1], -0.0]}}, "x.choice[2]", -0.0, "-0.0 equals 0.0", ""),
        ({"x": {"choice": [[1], [1.0]]}}, "x.choice[1]", [1.0], "[1.0] equals [1]", ""),
        ({"x": {"choice": [float("nan")]}}, "x.choice[0]", ..., "finite", ""),
        ({"x": {"unifrm": [0, 1]}}, "x.unifrm", "unifrm", "exactly one of", "mean 'uniform'?"),
        ({"x": {"quniform": [0, 1]}}, "x.quniform", "quniform", "exactly one of", "step: q"),
        ({"x": {"explore": False}}, "x.explore", "explore", "exactly one of", "move it to config"),
        ({"x": {}}, "x", {}, "exactly one of", "move it to config"),
        ({"x": {"uniform": [0, 1], "choice": [1]}}, "x", "uniform and choice", "exactly one", ""),
        ({"x": {1, 2}}, "x", {1, 2}, "text, a finite number", ""),
        ({"x": {"value": "1 +"}}, "x.value", "1 +", "names of parameters", "without a keyword"),
        (
            {"x": {"value": "yy"}, "y": 1},
            "x.value",
            "yy",
            "no parameter 'yy' one of x, y",
            "mean 'y'?",
        ),
        (
            {"x": {"value": "y"}, "y": {"value": "x"}},
            "x",
            ...,
            "need each other: x needs y",
            "remove one",
        ),
        ({"x": {"choice": [1], "when": {"x": 1}}}, "x", "x needs x", "x needs itself", ""),
        ({"n": {"randint": [0, 3]}, "x": {"value": "1 / n"}}, "x.value", "1 / n", "finite", ""),
        ({"x": {"choice": [1], "when": {}}}, "x.when", {}, "{parent: value}", ""),
        ({"x": {"choice": [1], "when": {"y": []}}}, "x.when.y", [], "{parent: value}", ""),
        (
            {"x": {"choice": [1], "when": {"y": 1}}},
            "x.when.y",
            "y",
            "no parameter 'y' one of x",
            "",
        ),
        (
            {"f": {"choice": ["a", "b"]}, "x": {"choice": [1], "when": {"f": ["a", "c"]}}},
            "x.when.f",
            "c",
            'f can never be \'c\', because it is one of "a", "b"',
            "",
        ),
        (
            {"h": {"choice": [[64, 64]]}, "x": {"choice": [1], "when": {"h": [64, 64]}}},
            "x.when.h",
            64,
            "h can never be 64",
            "[[…]]",
        ),
        ({"f": 3, "x": {"choice": [1], "when": {"f": 4}}}, "x.when.f", 4, "fixed at 3", ""),
        (
            {"n": {"randint": [1, 3]}, "x": {"value": 1, "when": {"n": 9}}},
            "x.when.n",
            9,
            "1 to 3",
            "",
        ),
        ({"m": 3, "m.h": 4}, "m.h", "m.h", "m is a parameter", "remove one"),
        ({"a..b": 4}, "a..b", "a..b", "letters, digits", ""),
        ({"a b": 4}, "a b", "a b", "letters, digits", ""),
        ({"x" * 201: 4}, "x" * 199 + "…", "x" * 201, "up to 200", ""),
        ({f"x{i}": 0 for i in range(1001)}, "", "more than 1000 parameters", "at most 1000", ""),
    ],
)
def test_a_space_that_cannot_work_is_refused(
    space: dict[str, Any], place: str, value: Any, allowed: str, hint: str
) -> None:
    with pytest.raises(BadSpace) as caught:
        Space.parse(space)
    error = caught.value
    assert error.exit_code == 2
    assert error.key == f"space.{place}".rstrip(".")
    assert value is ... or error.value == value
    assert allowed in f"{error.problem} {error.allowed}"
    assert hint in error.hint
    assert "\n" not in str(error)
    assert error.allowed in str(error)


def test_an_expression_that_fails_says_with_which_values() -> None:
    with pytest.raises(BadSpace, match=r"'1 / n' divides by zero, at n = 0"):
        Space.parse({"n": {"randint": [0, 3]}, "x": {"value": "1 / n"}})


def test_a_long_chain_of_conditions_is_resolved() -> None:
    chain: dict[str, Any] = {"p0": {"choice": [0, 1]}}
    for i in range(1, 900):
        chain[f"p{i}"] = {"choice": [0, 1], "when": {f"p{i - 1}": 1}}
    space = Space.parse(dict(reversed(chain.items())))
    assert len(space.resolve(lambda *_: 1).searched) == 900
    assert len(space.resolve(lambda *_: 0).searched) == 1


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"lr": 0.1}, "config.lr"),
        ({"model": 3}, "config.model"),
        ({"model": {"hidden": [1]}}, "config.model.hidden"),
        ({"layers": {"a": 1}}, "config.layers"),
    ],
)
def test_a_setting_of_both_config_and_space_is_refused(config: dict[str, Any], place: str) -> None:
    with pytest.raises(BadConfig, match="remove one of the two") as caught:
        Space.parse(SPACE, Source("f.yaml")).check_against(config)
    assert caught.value.key == place


def test_settings_beside_those_of_the_space_are_let_be() -> None:
    Space.parse(SPACE).check_against({"model": {"activation": "tanh"}, "_rest": 1, "env": "x"})


def test_points_sampled_from_one_stream_differ_and_avoid_forbidden_combinations() -> None:
    raw = {"a": {"uniform": [0.0, 1.0]}, "b": {"choice": ["x", "y"]}}
    space = Space.parse(raw, forbid=[{"b": "x", "a": {">": 0.5}}])
    stream = np.random.default_rng(3)
    found = [space.sample(stream).searched for _ in range(50)]
    assert len({point["a"] for point in found}) == 50
    assert {point["b"] for point in found} == {"x", "y"}
    assert not any(point["b"] == "x" and point["a"] > 0.5 for point in found)
    assert space.sample(np.random.default_rng(3)).searched == found[0]


def test_a_parameter_of_an_inactive_one_is_left_out_of_random_points() -> None:
    space = Space.parse(
        {
            "a": {"choice": [0, 1]},
            "b": {"uniform": [0, 1], "when": {"a": 1}},
            "c": {"value": "2 * b"},
            "d": {"value": "a + 1"},
        }
    )
    points = [space.draw(seed).settings for seed in range(20)]
    assert {tuple(point) for point in points} == {("a", "d"), ("a", "b", "c", "d")}
    assert all(("b" in point) == (point["a"] == 1) for point in points)


def test_the_parameters_that_determine_a_setting_are_those_within_it_and_those_they_need() -> None:
    space = Space.parse(
        {
            "lr": {"uniform": [0.0, 1.0]},
            "_width": {"randint": [1, 9]},
            "kind": {"choice": ["small", "large"]},
            "model": {"width": {"value": "2 * _width"}, "cells": {"choice": [1, 2]}},
            "modelling": {"choice": [1, 2]},
            "model.depth": {"randint": [1, 3], "when": {"kind": "large"}},
            "noise": {"choice": [{"type": "small"}, {"type": "large"}]},
            "policies.red.filter": {"choice": [1, 2]},
            "policies.red.lr": {"choice": [1, 2]},
        }
    )
    assert space.determining(["model"]) == {"_width", "kind", "model.cells", "model.depth"}
    assert space.determining(["noise.type"]) == {"noise"}
    assert space.determining(["policies.*.filter"]) == {"policies.red.filter"}
    assert space.determining(["absent"]) == set()
