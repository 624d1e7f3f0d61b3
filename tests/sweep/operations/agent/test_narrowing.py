"""A model makes a space smaller, and can do nothing else to a spec."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.errors import Source, UsageError
from sweep.operations.agent.narrowing import Narrowing, narrow_spec
from sweep.spec import SweepSpec, parse
from sweep.spec.validation import validate

SPACE = {
    "lr": {"loguniform": [1e-5, 1e-1]},
    "clip": {"uniform": [0.1, 0.5], "step": 0.1},
    "n": {"randint": [1, 9]},
    "noise": {"normal": [0.0, 1.0], "bounds": [-2, 2]},
    "act": {"choice": ["relu", "tanh", [64, 64]], "weights": [1, 2, 3]},
    "net": {"choice": ["cnn", "mlp", [64, 64]]},
    "size": {"ordinal": ["small", "medium", "large"]},
    "game": {"grid": ["a", "b", "c"]},
    "deep": {"width": {"randint": [8, 64], "step": 8, "when": {"net": "mlp"}}},
    "half": {"value": "lr / 2"},
}
SPEC: dict[str, Any] = {
    "trials": 20,
    "trainable": "tests.support.quadratic:Quadratic",
    "metric": "loss",
    "mode": "min",
    "space": SPACE,
    "initial": [{"lr": 1e-2}, {"lr": 1e-4, "n": 3}, {"lr": 2e-4}],
}


def smaller(narrow: Mapping[str, Any], trials: int = 20) -> SweepSpec:
    """The narrowed spec, read again from the words of the command line."""
    text = json.dumps(SPEC)
    wishes = {name: validate(Narrowing, wish, Source()) for name, wish in narrow.items()}
    spec, changes = narrow_spec(text, "spec.yaml", "demo", wishes, trials)
    typed = [f"{change.path}={json.dumps(change.value)}" for change in changes]
    assert parse(text, "spec.yaml", ["name=demo", *typed]) == spec
    return spec


def whole() -> SweepSpec:
    return parse(json.dumps(SPEC), "spec.yaml", ["name=demo"])


@pytest.mark.parametrize(
    ("name", "wish", "said"),
    [
        ("lr", {"between": [1e-4, 1e-2]}, "0.0001 to 0.01, both included, on a log scale"),
        ("lr", {"among": [1e-2, 1e-3]}, "in order 0.001 < 0.01"),
        ("clip", {"between": [0.2, 0.3]}, "0.2 to 0.3, both included, in steps of 0.1"),
        ("n", {"between": [2, 4]}, "whole numbers 2 to 4, both included"),
        ("n", {"among": [7]}, "in order 7"),
        (
            "noise",
            {"between": [-1, 1]},
            "normal, mean 0.0 and deviation 1.0, at least -1.0, at most 1.0",
        ),
        ("act", {"among": ["relu", [64, 64]]}, 'one of "relu" (25%), [64,64] (75%)'),
        ("size", {"among": ["large", "small"]}, 'in order "small" < "large"'),
        ("game", {"among": ["c", "b"]}, 'each of "b", "c" in turn'),
        (
            "deep.width",
            {"between": [16, 32]},
            "whole numbers 16 to 32, both included, in steps of 8, when net is 'mlp'",
        ),
    ],
)
def test_each_kind_of_parameter_keeps_its_kind_and_conditions(
    name: str, wish: dict[str, Any], said: str
) -> None:
    spec = smaller({name: wish})
    assert spec.space.parameters[name].describe() == said
    assert list(spec.space.parameters) == list(whole().space.parameters)
    others = (n for n in spec.space.parameters if n != name)
    assert all(spec.space.parameters[n] == whole().space.parameters[n] for n in others)


def test_every_point_of_the_smaller_space_is_one_of_the_whole_space() -> None:
    wishes = {
        "lr": {"between": [1e-4, 1e-3]},
        "clip": {"among": [0.5, 0.3]},
        "net": {"among": ["mlp"]},
        "deep.width": {"among": [64, 8]},
    }
    spec = smaller(wishes)
    domains = whole().space
    for seed in range(200):
        searched = spec.space.draw(seed).searched
        assert all(domains.domain_of(name).contains(value) for name, value in searched.items())
        assert 1e-4 <= searched["lr"] <= 1e-3
        assert searched["net"] == "mlp"
        assert searched["deep.width"] in (8, 64)


def test_a_value_that_conditions_name_is_never_drawn_and_its_parameters_are_not_active() -> None:
    spec = smaller({"net": {"among": ["cnn", [64, 64]]}})
    drawn = [spec.space.draw(seed).searched for seed in range(50)]
    assert {json.dumps(one["net"]) for one in drawn} == {'"cnn"', "[64, 64]"}
    assert not any("deep.width" in one for one in drawn)
    assert smaller({"net": {"among": ["cnn", "mlp", [64, 64]]}}).forbid == ()


def test_settings_to_try_first_that_do_not_fit_are_left_out() -> None:
    assert [dict(one) for one in smaller({"lr": {"between": [1e-5, 1e-3]}}).initial] == [
        {"lr": 1e-4, "n": 3},
        {"lr": 2e-4},
    ]
    assert len(smaller({}, trials=1).initial) == 1
    assert smaller({}).initial == whole().initial
    assert smaller({}, trials=3).trials == 3


@pytest.mark.parametrize(
    ("narrow", "message"),
    [
        ({"lr": {"between": [1e-6, 1e-3]}}, "narrow.lr.between: 1e-06 is not allowed"),
        ({"lr": {"between": [1e-3, 1e9]}}, "narrow.lr.between: 1000000000.0 is not allowed"),
        ({"lr": {"between": [1e-3, 10**400]}}, "narrow.lr.between: 1000"),
        ({"lr": {"between": [1e-3, 1e-3]}}, "give among with one value"),
        ({"lr": {"between": [1e-2, 1e-3]}}, "0.01 is not below 0.001; give the lower value first"),
        ({"lr": {"between": [True, 1e-3]}}, "between[0]: True is not allowed"),
        ({"lr": {"between": ["0.001", 1e-2]}}, "between"),
        ({"lr": {"between": [float("nan"), 1e-2]}}, "between"),
        ({"lr": {"between": [1e-3]}}, "between"),
        ({"lr": {}}, "neither between nor among is given"),
        ({"lr": {"between": [1e-4, 1e-3], "among": [1e-4]}}, "both between and among"),
        ({"lr": {"among": []}}, "at least one value"),
        ({"lr": {"among": [float("inf")]}}, "narrow.lr.among"),
        ({"lr": {"loguniform": [1e-5, 1]}}, "'loguniform' is not a known key"),
        ({"net": {"between": [1, 2]}}, "has a list of values, not a range; give among"),
        ({"net": {"among": ["resnet"]}}, "narrow.net.among: 'resnet' is not allowed"),
        ({"net": {"among": ["tests.support.evil:Policy"]}}, "is not allowed"),
        ({"net": {"among": [["cnn"]]}}, "narrow.net.among"),
        ({"n": {"among": [2.0]}}, "narrow.n.among: 2.0 is not allowed"),
        ({"clip": {"between": [0.15, 0.3]}}, "narrow.clip.between: 0.15 is not allowed"),
        ({"half": {"among": [1]}}, "unknown searched parameter 'half'"),
        ({"env": {"among": ["CartPole-v1"]}}, "unknown searched parameter 'env'"),
        ({"trainable": {"among": ["command"]}}, "unknown searched parameter"),
        ({"../lr": {"among": [1]}}, "unknown searched parameter"),
    ],
)
def test_whatever_is_outside_of_the_space_is_refused_in_one_line(
    narrow: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        smaller(narrow)
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 500


VALUES = st.one_of(
    st.sampled_from([0.001, 1e-4, 0.1, 0.2, 0.5, 1, 3, 9, 16, 64, -1.0, 2.0, "cnn", "mlp", "relu"]),
    st.sampled_from(
        [[64, 64], "small", "large", "a", "c", 10**400, float("nan"), None, True, "x:Y"]
    ),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)
LISTS = st.lists(VALUES, max_size=4)
WISHES = st.one_of(
    st.fixed_dictionaries({"among": LISTS}), st.fixed_dictionaries({"between": LISTS}), VALUES
)
NAMES = st.sampled_from(
    [
        "lr",
        "clip",
        "n",
        "noise",
        "act",
        "net",
        "size",
        "game",
        "deep.width",
        "half",
        "deep",
        "",
        "env",
    ]
)


@given(st.dictionaries(NAMES, WISHES, max_size=3), st.integers(0, 10))
def test_no_wish_leads_out_of_the_space(wishes: dict[str, Any], seed: int) -> None:
    domains = whole().space
    try:
        point = smaller(wishes).space.draw(seed)
    except UsageError:
        return
    assert all(domains.domain_of(name).contains(value) for name, value in point.searched.items())
    assert point.settings.keys() <= domains.parameters.keys()


def test_what_is_forbidden_of_values_that_are_gone_is_left_out() -> None:
    never: list[Any] = [{"lr": {">": 0.01}, "n": [8, 9]}, {"act": [[64, 64]]}, "n > 8 and lr < 0.1"]
    for name, wish, left in (
        ("lr", Narrowing(between=(1e-4, 1e-3)), never[1:]),
        ("n", Narrowing(between=(2, 8)), [{"lr": {">": 0.01}, "n": [8]}, *never[1:]]),
        ("act", Narrowing(among=("relu", "tanh")), [never[0], never[2]]),
        ("clip", Narrowing(between=(0.2, 0.3)), never),
    ):
        text = json.dumps({**SPEC, "forbid": never})
        spec, _ = narrow_spec(text, "spec.yaml", "demo", {name: wish}, 20)
        assert list(spec.forbid) == left
