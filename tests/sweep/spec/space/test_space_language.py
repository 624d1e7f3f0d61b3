"""The words of the language beside those of `test_space`: what each means, and bad input."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.errors import BadSpace, Source
from sweep.history import optuna_terms
from sweep.history.objective import Objective
from sweep.searchers import Request, find
from sweep.spec.objective import Score
from sweep.spec.space import (
    Choice,
    Domain,
    Float,
    Int,
    Normal,
    Ordinal,
    Settings,
    Space,
    choice_key,
    sample,
)

LN = math.log


def domain(written: Any) -> Domain:
    return Space.parse({"x": written}).domains["x"]


def draws(of: Domain, count: int = 4000) -> list[Any]:
    generator = np.random.default_rng(0)
    return [sample(of, generator) for _ in range(count)]


# ---- numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"loguniform": [1, 9], "step": 2}, Float(1.0, 9.0, True, 2.0)),
        ({"lograndint": [8, 512], "step": 8}, Int(8, 512, True, 8)),
        ({"normal": [0, 1]}, Normal(0.0, 1.0)),
        ({"normal": [0, 1], "step": 0.5}, Normal(0.0, 1.0, step=0.5)),
        ({"normal": [0, 1], "bounds": [-1, None]}, Normal(0.0, 1.0, low=-1.0)),
        ({"lognormal": [-7, 1]}, Normal(-7.0, 1.0, True)),
        ({"lognormal": [2, 1], "step": 4}, Normal(2.0, 1.0, True, 4.0, None, 4.0)),
        (
            {"lognormal": [2, 1], "bounds": [None, 20], "step": 4},
            Normal(2.0, 1.0, True, 4.0, 20.0, 4.0),
        ),
        ({"choice": ["a", "b"], "weights": [1, 3]}, Choice(("a", "b"), (1.0, 3.0))),
        ({"choice": ["a", "b"], "probabilities": [0.25, 0.75]}, Choice(("a", "b"), (0.25, 0.75))),
        ({"ordinal": ["s", "m", "l"]}, Ordinal(("s", "m", "l"))),
    ],
)
def test_each_word_makes_its_domain(written: Any, expected: Domain) -> None:
    assert domain(written) == expected


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ({"loguniform": [0.1, 0.9], "step": 0.2}, [0.1, 0.3, 0.5, 0.7, 0.9]),
        ({"uniform": [0.1, 0.9], "step": 0.1}, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ({"lograndint": [8, 40], "step": 8}, [8, 16, 24, 32, 40]),
        ({"normal": [0, 1], "bounds": [-1, 1], "step": 0.5}, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ({"ordinal": ["s", "m", "l"]}, ["s", "m", "l"]),
        ({"choice": ["a", "b"], "weights": [1, 30]}, ["a", "b"]),
    ],
)
def test_every_value_of_a_grid_is_reached_and_is_what_a_person_would_write(
    written: Any, values: list[Any]
) -> None:
    found = domain(written)
    assert found.size() == len(values)
    assert [found.at_index(index) for index in range(len(values))] == values
    assert set(draws(found)) == set(values)
    assert repr(sorted(set(draws(found)), key=values.index)) == repr(values)


def test_a_logarithmic_grid_is_drawn_by_its_logarithm() -> None:
    """Each value has the share of the logarithm that lies nearest to it."""
    counts = Counter(draws(domain({"lograndint": [10, 1000], "step": 10}), 20_000))
    for low, high in ((10, 100), (100, 1000)):
        share = sum(n for value, n in counts.items() if low < value < high) / 20_000
        expected = LN((high - 5) / (low + 5)) / LN(1005 / 5)
        assert abs(share - expected) < 0.015  # four standard deviations


def test_normal_numbers_have_their_mean_and_deviation() -> None:
    found = draws(Normal(3.0, 0.5))
    assert abs(np.mean(found) - 3.0) < 0.03
    assert abs(np.std(found) - 0.5) < 0.02
    logs = np.log(draws(Normal(-7.0, 2.0, log=True)))
    assert abs(np.mean(logs) + 7.0) < 0.12
    assert abs(np.std(logs) - 2.0) < 0.08


def test_bounds_cut_a_normal_off_and_change_no_proportion() -> None:
    found = np.array(draws(Normal(0.0, 1.0, low=0.0, high=2.0), 20_000))
    assert found.min() >= 0.0
    assert found.max() <= 2.0
    inner, outer = (found < 1.0).sum(), (found >= 1.0).sum()
    assert abs(inner / outer - 0.3413 / 0.1359) < 0.12


def test_a_rounded_normal_has_its_ends_as_often_as_without_rounding() -> None:
    counts = Counter(draws(Normal(0.0, 1.0, low=-1.0, high=1.0, step=1.0), 20_000))
    middle = math.erf(0.5 / math.sqrt(2))
    share = middle / math.erf(1.5 / math.sqrt(2))
    assert abs(counts[0.0] / 20_000 - share) < 0.015
    assert abs(counts[-1.0] - counts[1.0]) < 500


def test_weights_decide_how_often_a_choice_is_drawn() -> None:
    counts = Counter(draws(Choice(("a", "b", "c"), (1.0, 2.0, 7.0)), 10_000))
    for value, share in (("a", 0.1), ("b", 0.2), ("c", 0.7)):
        assert abs(counts[value] / 10_000 - share) < 0.02


# ---- in a study ------------------------------------------------------------------------------

DOMAINS: list[Domain] = [
    Float(1e308, 1.7e308, True, 0.7e308),
    Float(1e-300, 3e-300, True, 1e-300),
    Float(5e-324, 1.7e308, True),
    Float(1.0, 101.0, True, 10.0),
    Float(0.1, 0.9, step=0.1),
    Float(1e-5, 1e-2, True),
    Int(8, 512, True, 8),
    Int(1, 3, True),
    Int(1, 7, step=3),
    Normal(0.0, 1.0),
    Normal(0.0, 1.0, step=0.5),
    Normal(-7.0, 1.0, True),
    Normal(5.0, 1.0, True, 1.0, 900.0, 1.0),
    Choice((1, "1", [1], {"a": 2}), (1.0, 2.0, 3.0, 4.0)),
    Choice((True, None)),
    Choice((1, True, 1.0, "1")),
    Choice(("[1]", [1])),
    Ordinal(("s", "m", "l")),
]


@given(st.sampled_from(DOMAINS), st.floats(0.0, 1.0), st.sampled_from(optuna_terms.View.__args__))  # type: ignore[attr-defined]
def test_a_value_survives_the_study(of: Domain, quantile: float, view: optuna_terms.View) -> None:
    value = of.value_at(quantile)
    assert of.contains(value)
    coded = optuna_terms.encode(of, value, view)
    distribution = optuna_terms.distribution(of, view)
    assert distribution._contains(distribution.to_internal_repr(coded))
    back = optuna_terms.decode(of, coded, view)
    assert of.contains(back)
    assert choice_key(back) == choice_key(value) or (
        of.size() is None and math.isclose(back, value, rel_tol=1e-6)
    )


def test_choices_that_optuna_takes_for_equal_are_json_for_people_too() -> None:
    values = (1, True, 1.0, "1")
    shown = [optuna_terms.encode(Choice(values), value, "shown") for value in values]
    assert shown == ["1", "true", "1.0", '"1"']


def propose(searcher: str, space: Space, seeds: range) -> list[Settings]:
    cls = find(searcher)
    objective = Objective("m", "max", Score())
    return [cls(cls.Options()).suggest(Request(space, objective, (), (), seed)) for seed in seeds]


def test_a_searcher_that_draws_by_chance_honours_weights() -> None:
    space = Space.parse({"x": {"choice": ["a", "b"], "weights": [1, 9]}})
    found = propose("random", space, range(400))
    counts = Counter(point.searched["x"] for point in found)
    assert 20 < counts["a"] < 65  # 40 are expected; three standard deviations are 18


@pytest.mark.parametrize("searcher", ["random", "tpe"])
def test_searchers_propose_values_of_every_kind_of_domain(searcher: str) -> None:
    space = Space.parse(
        {
            "a": {"loguniform": [1, 101], "step": 10},
            "b": {"lograndint": [8, 512], "step": 8},
            "c": {"lognormal": [-7, 1]},
            "d": {"normal": [0, 1], "step": 0.5},
            "e": {"ordinal": ["s", "m", "l"]},
            "f": {"choice": [[1], "x"], "weights": [1, 2]},
        }
    )
    for point in propose(searcher, space, range(30)):
        for name, value in point.searched.items():
            assert space.domains[name].contains(value)


def test_no_domain_contains_nan_infinity_or_values_of_other_types() -> None:
    for of in DOMAINS:
        for strange in (float("nan"), float("inf"), -(10**400), 10**400, "x", None, b"1", object()):
            assert not of.contains(strange) or strange is None


# ---- groups and conditions -------------------------------------------------------------------


def test_a_group_is_a_beginning_of_names_and_its_condition_holds_for_all_in_it() -> None:
    grouped = Space.parse(
        {
            "policy": {"choice": ["mlp", "cnn"]},
            "model": {
                "when": {"policy": "mlp"},
                "hidden": {"choice": [[64], [256]]},
                "activation": "tanh",
                "optimiser": {
                    "parameters": {"value": {"uniform": [0, 1]}},
                    "when": "policy == 'mlp'",
                },
            },
        }
    )
    flat = Space.parse(
        {
            "policy": {"choice": ["mlp", "cnn"]},
            "model.hidden": {"choice": [[64], [256]], "when": {"policy": "mlp"}},
        }
    )
    assert list(grouped.parameters) == [
        "policy",
        "model.hidden",
        "model.activation",
        "model.optimiser.value",
    ]
    assert grouped.parameters["model.hidden"].when == flat.parameters["model.hidden"].when
    asked: dict[str, Any] = {"policy": "cnn"}
    assert grouped.resolve(lambda name, _: asked[name]).settings == {"policy": "cnn"}
    asked = {"policy": "mlp", "model.hidden": [64], "model.optimiser.value": 0.5}
    found = grouped.resolve(lambda name, _: asked[name])
    assert found.settings == {**asked, "model.activation": "tanh"}
    assert grouped.nest(found.settings, {})["model"]["optimiser"] == {"value": 0.5}


def test_the_conditions_of_groups_in_each_other_must_all_hold() -> None:
    inner = {"when": {"b": 1}, "x": {"choice": [0], "when": {"c": 1}}}
    bits = {name: {"choice": [0, 1]} for name in "abc"}
    space = Space.parse({**bits, "g": {"when": {"a": 1}, "h": inner}})
    for number in range(8):
        given = dict(zip("abc", (number & 1, number >> 1 & 1, number >> 2), strict=True))
        found = space.pin(given).resolve(lambda *_: 0).settings
        assert ("g.h.x" in found) == (number == 7)


def test_words_that_say_nothing_alone_may_be_names_in_a_group() -> None:
    space = Space.parse({"noise": {"sigma": {"uniform": [0, 1]}, "mu": 0, "step": 3, "q": "a"}})
    found = space.resolve(lambda *_: 0.5).settings
    assert found == {"noise.sigma": 0.5, "noise.mu": 0, "noise.step": 3, "noise.q": "a"}


@pytest.mark.parametrize(
    ("when", "active"),
    [
        ({"n": {">": 2}}, {3, 4, 5}),
        ({"n": {">=": 2, "<": 4}}, {2, 3}),
        ({"n": {"!=": 2}}, {1, 3, 4, 5}),
        ({"n": {"==": 2}}, {2}),
        ({"n": [1, 5]}, {1, 5}),
        ({"n": {"<=": 3}, "even": True}, {2}),
        ("n > 4 or even", {2, 4, 5}),
        ("n in (1, 2) and not even", {1}),
        ("n * n > 10 if even else n == 1", {1, 4}),
    ],
)
def test_conditions_hold_where_they_say(when: Any, active: set[int]) -> None:
    space = Space.parse(
        {
            "n": {"randint": [1, 5]},
            "even": {"value": "n % 2 == 0"},
            "x": {"choice": [0], "when": when},
        }
    )
    found = set()
    for n in range(1, 6):
        values = {"n": n, "x": 0}
        if "x" in space.resolve(lambda name, _, given=values: given[name]).settings:  # type: ignore[misc]
            found.add(n)
    assert found == active


def test_a_condition_on_what_is_not_there_does_not_hold() -> None:
    space = Space.parse(
        {
            "a": {"choice": [True, False]},
            "n": {"randint": [1, 5], "when": {"a": True}},
            "x": {"choice": [0], "when": "n > 0 or True"},
        }
    )
    assert space.resolve(lambda *_: False).settings == {"a": False}


def test_a_derived_value_can_be_text() -> None:
    space = Space.parse(
        {
            "n": {"randint": [1, 5]},
            "size": {"value": "'large' if n > 3 else 'small'"},
            "x": {"choice": [0], "when": {"size": "large"}},
        }
    )
    assert space.resolve(lambda name, _: {"n": 4, "x": 0}[name]).settings["size"] == "large"
    assert "x" not in space.resolve(lambda *_: 1).settings


# ---- W&B's words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"min": 1, "max": 20}, {"randint": [1, 20]}),
        ({"min": 0.0, "max": 1}, {"uniform": [0, 1]}),
        ({"min": 0, "max": 1, "q": 0.1}, {"uniform": [0, 1], "step": 0.1}),
        ({"min": 0, "max": 10, "q": 5}, {"randint": [0, 10], "step": 5}),
        ({"distribution": "int_uniform", "min": 1, "max": 20}, {"randint": [1, 20]}),
        ({"distribution": "uniform", "min": 1, "max": 20}, {"uniform": [1, 20]}),
        ({"distribution": "q_uniform", "min": 0, "max": 3}, {"randint": [0, 3]}),
        (
            {"distribution": "log_uniform_values", "min": 1e-5, "max": 1e-2},
            {"loguniform": [1e-5, 1e-2]},
        ),
        (
            {"distribution": "inv_log_uniform_values", "min": 1e-5, "max": 1e-2},
            {"loguniform": [1e-5, 1e-2]},
        ),
        (
            {"distribution": "log_uniform", "min": -5, "max": 0},
            {"loguniform": [math.exp(-5), 1.0]},
        ),
        (
            {"distribution": "q_log_uniform_values", "min": 16, "max": 256, "q": 16},
            {"lograndint": [16, 256], "step": 16},
        ),
        ({"distribution": "normal"}, {"normal": [0, 1]}),
        ({"mu": 2, "sigma": 0.5}, {"normal": [2, 0.5]}),
        (
            {"distribution": "q_normal", "mu": 2, "sigma": 1, "q": 0.5},
            {"normal": [2, 1], "step": 0.5},
        ),
        ({"distribution": "log_normal", "mu": -7, "sigma": 1}, {"lognormal": [-7, 1]}),
        ({"distribution": "q_log_normal", "mu": 3, "q": 2}, {"lognormal": [3, 1], "step": 2}),
        ({"values": ["a", [1]]}, {"choice": ["a", [1]]}),
        ({"distribution": "categorical", "values": ["a"]}, {"choice": ["a"]}),
        (
            {"values": ["a", "b"], "probabilities": [0.2, 0.8]},
            {"choice": ["a", "b"], "probabilities": [0.2, 0.8]},
        ),
    ],
)
def test_wandbs_words_make_the_same_domain_as_ours(theirs: Any, ours: Any) -> None:
    assert domain(theirs) == domain(ours)


def test_wandbs_constants_groups_and_conditions_are_read() -> None:
    space = Space.parse(
        {
            "a": {"value": 3},
            "b": {"value": [1, 2]},
            "c": {"distribution": "constant", "value": "adam"},
            "net": {"parameters": {"min": {"min": 1, "max": 4}, "depth": {"values": [2]}}},
            "d": {"values": [1], "when": {"net.depth": 2}},
        }
    )
    found = space.resolve(lambda _, domain: domain.value_at(0.0))
    expected = {"a": 3, "b": [1, 2], "c": "adam", "net.min": 1, "net.depth": 2, "d": 1}
    assert found.settings == expected


# ---- bad input -------------------------------------------------------------------------------

BIG = 10**400
DEEP: dict[str, Any] = {"x": {"choice": [1]}}
for _ in range(40):
    DEEP = {"g": DEEP}


@pytest.mark.parametrize(
    ("written", "place", "value", "allowed", "hint"),
    [
        ({"loguniform": [1, 9], "step": 3}, "x.step", 3, "divides", "last value is 7"),
        ({"loguniform": [1, 9], "step": 0}, "x.step", 0, "above 0", ""),
        ({"lograndint": [8, 20], "step": 8}, "x.step", 8, "divides", "last value is 16"),
        ({"uniform": [0, 1e-301], "step": 1e-302}, "x.step", 1e-302, "at least 1e-300", ""),
        ({"uniform": [1e16, 1e16 + 16], "step": 1}, "x.step", 1, "at least 1.11", "2**53"),
        ({"normal": [1e300, 1], "step": 1}, "x.step", 1, "at least 1.11e+284", ""),
        ({"normal": 3}, "x.normal", 3, "[mean, deviation]", ""),
        ({"normal": [0, 0]}, "x.normal[1]", 0, "above 0", ""),
        ({"normal": [0, -1]}, "x.normal[1]", -1, "above 0", ""),
        ({"normal": ["0", 1]}, "x.normal[0]", "0", "a number", ""),
        ({"normal": [1e308, 1e308]}, "x.normal", ..., "finite", ""),
        ({"lognormal": [1000, 1]}, "x.lognormal", ..., "finite", "natural logarithm"),
        (
            {"normal": [0, 1], "bounds": [2, 1]},
            "x.bounds",
            [2.0, 1.0],
            "2.0 is more than 1.0",
            "write",
        ),
        ({"normal": [0, 1], "bounds": [1, 1]}, "x.bounds", ..., "both bounds are 1.0", "fixed"),
        ({"normal": [0, 1], "bounds": 3}, "x.bounds", 3, "[low, high]", ""),
        ({"normal": [0, 1], "bounds": None}, "x.bounds", None, "[low, high]", ""),
        ({"normal": [0, 1], "bounds": [None, None]}, "x.bounds", ..., "[low, high]", ""),
        ({"normal": [0, 1], "bounds": ["a", 1]}, "x.bounds[0]", "a", "or null", ""),
        ({"normal": [0, 1], "bounds": [20, 30]}, "x.bounds", ..., "a millionth", "widen"),
        ({"lognormal": [0, 1], "bounds": [0, 1]}, "x.bounds[0]", 0.0, "above 0", ""),
        ({"normal": [0, 1], "bounds": [0, 1], "step": 0.3}, "x.step", 0.3, "divides", "0.9"),
        ({"lognormal": [0, 1], "bounds": [None, 3], "step": 2}, "x.step", 2, "divides", "smaller"),
        ({"uniform": [0, 1], "bounds": [0, 1]}, "x.bounds", "bounds", "only when, step", "normal"),
        ({"choice": ["a"], "weights": [1, 2]}, "x.weights", ..., "a list of 1 numbers", ""),
        ({"choice": ["a"], "weights": 1}, "x.weights", 1, "a list of 1 numbers", ""),
        ({"choice": ["a"], "weights": [0]}, "x.weights[0]", 0, "1e-12", "leave out"),
        ({"choice": ["a"], "weights": [-1]}, "x.weights[0]", -1, "1e-12", "leave out"),
        ({"choice": ["a"], "weights": [True]}, "x.weights[0]", True, "a number", ""),
        ({"choice": ["a"], "weights": [10**400]}, "x.weights[0]", 10**400, "2**53", ""),
        (
            {"choice": ["a"], "weights": [1], "probabilities": [1]},
            "x.probabilities",
            ...,
            "not b",
            "",
        ),
        (
            {"choice": [1, 2], "probabilities": [1, 1]},
            "x.probabilities",
            ...,
            "1, not 2",
            "any sum",
        ),
        (
            {"ordinal": ["a"], "weights": [1]},
            "x.weights",
            "weights",
            "only when",
            "can be used with choice",
        ),
        ({"ordinal": []}, "x.ordinal", "a list of 0", "1 to 10000", ""),
        ({"ordinal": [1, 1.0]}, "x.ordinal[1]", 1.0, "1.0 equals 1, value 0", ""),
        ({"grid": "ab"}, "x.grid", "ab", "a list", ""),
        ({"grid_search": [1]}, "x.grid_search", "grid_search", "exactly one of", "{grid: [...]}"),
        ({"suggest_float": [0, 1]}, "x.suggest_float", ..., "exactly one of", "uniform"),
        ({"low": 0, "high": 1, "log": True}, "x.low", "low", "exactly one of", "{uniform: [low"),
        ({"_type": "choice", "_value": [1]}, "x._type", "_type", "exactly one", "the key"),
        ("interval(1e-5, 1e-1)", "x", ..., "a mapping such as", "write {uniform: [low, high]}"),
        ("tag(log, interval(1e-5,1e-1))", "x", ..., "a mapping such as", "{loguniform:"),
        ("tune.choice(['a'])", "x", ..., "a mapping such as", "write {choice: [...]}"),
        ("hp.quniform('x', 0, 1, 0.1)", "x", ..., "a mapping", "step: q"),
        (
            {"min": 0},
            "x",
            {"min": 0},
            "max is missing, which distribution int_uniform needs",
            "add it",
        ),
        ({"min": 2, "max": 1}, "x", [2, 1], "2 is more than 1", "write"),
        ({"min": "0", "max": 1.0}, "x.min", "0", "a number", ""),
        ({"min": 1, "max": 2, "step": 1}, "x.step", "step", "'step' is not a keyword of W&B", ""),
        (
            {"min": 1, "max": 2, "mu": 1},
            "x.min",
            "min",
            "cannot be used with distribution normal only ",
            "",
        ),
        ({"min": 0.0, "max": 1.0, "q": 0.3}, "x.q", 0.3, "divides", "0.9"),
        ({"values": [1, 1]}, "x.values[1]", 1, "1 is listed twice", "write each value once"),
        ({"values": [1], "min": 0}, "x.min", "min", "only distribution, values", ""),
        ({"distribution": "beta", "min": 0}, "x.distribution", "beta", "one of constant", "bounds"),
        ({"distribution": "unifrm"}, "x.distribution", "unifrm", "one of", "'uniform'?"),
        ({"distribution": 3}, "x.distribution", 3, "one of constant", ""),
        (
            {"distribution": "log_uniform", "min": 1e-5, "max": 1e-1},
            "x.distribution",
            "log_uniform",
            "are exponents of e, here 1 to 1.105",
            "log_uniform_values if you mean 1e-05 to 0.1",
        ),
        (
            {"distribution": "log_uniform", "min": 1, "max": 10000},
            "x.max",
            10000,
            "an exponent of e",
            "the values themselves",
        ),
        ({"choice": [1], "when": 3}, "x.when", 3, "expression in quotes", ""),
        ({"choice": [1], "when": "1 +"}, "x.when", "1 +", "comparisons", ""),
        (
            {"choice": [1], "when": {"y": {">": "a"}}},
            "x.when.y.>",
            "a",
            "has no order",
            "write a number",
        ),
        ({"choice": [1], "when": {"y": {">": 1, "~": 2}}}, "x.when.y.~", "~", "< <= >", ""),
        ({"choice": [1], "when": {"y": {">": 9}}}, "x.when.y", "> 9", "y can never be > 9", ""),
        ({"choice": [1], "when": {"y": {"==": 9}}}, "x.when.y", "== 9", "y can never be == 9", ""),
        (
            {"choice": [1], "when": {"z": {"==": 9}}},
            "x.when.z",
            "z",
            "there is no parameter 'z'",
            "",
        ),
        ({"choice": [1], "when": "y + 1"}, "x.when", "y + 1", "everywhere in the space", ""),
        ({"choice": [1], "when": "'a' < y"}, "x.when", ..., "everywhere in the space", ""),
        ({"when": {"y": 1}}, "x", ..., "exactly one of", "move it to config"),
        ({"a b": {"choice": [1]}}, "x.a b", "x.a b", "letters, digits", ""),
        ({"choice": [1], "when": {"y": {">": BIG}}}, "x.when.y.>", BIG, "a finite number", ""),
        ({"choice": [BIG]}, "x.choice[0]", BIG, "a finite number", ""),
        (BIG, "x", BIG, "a finite number", ""),
        ({"parameters": {}}, "x.parameters", {}, "the group is empty", "write a parameter in it"),
        (
            {"parameters": {"a": {"b": 1}}, "c": 1},
            "x.c",
            "c",
            "may have only 'when' beside it",
            "move 'c' under parameters",
        ),
        (DEEP, "x.g.g.g", "…", "too deeply here: at most 16", ""),
    ],
)
def test_a_mistake_is_answered_with_its_place_value_and_remedy(
    written: Any, place: str, value: Any, allowed: str, hint: str
) -> None:
    with pytest.raises(BadSpace) as caught:
        Space.parse({"x": written, "y": {"randint": [1, 5]}}, Source("f.yaml"))
    error = caught.value
    assert error.key == f"space.{place}"
    assert value is ... or error.value == value
    assert allowed in f"{error.problem} {error.allowed}"
    assert hint in error.hint
    assert str(error).isprintable()
    assert len(str(error)) < 700


def test_one_name_in_a_group_and_with_dots_is_refused() -> None:
    with pytest.raises(BadSpace, match=r"m\.h is defined twice") as caught:
        Space.parse({"m.h": {"choice": [1]}, "m": {"h": {"choice": [2]}, "g": {"choice": [1]}}})
    assert caught.value.key == "space.m.h"


def test_the_parameters_of_all_groups_are_counted_together() -> None:
    groups = {f"g{i}": {f"x{k}": {"choice": [1]} for k in range(101)} for i in range(10)}
    with pytest.raises(BadSpace, match="at most 1000"):
        Space.parse(groups)
