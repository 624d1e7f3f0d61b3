import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.errors import BadSpace
from sweep.spec.space import Forbidden, Settings, Space
from sweep.spec.space.enumeration import MOST_STATES, Points

CONDITIONAL: dict[str, Any] = {
    "a": {"choice": ["x", "y"]},
    "b": {"randint": [1, 10]},
    "n": {"randint": [1, 4], "when": {"a": "x"}},
    "m": {"uniform": [0, 1], "step": 0.25, "when": {"n": {">": 2}}},
    "twice": {"value": "n * 2"},
    "_many": {"value": "n > 1"},
    "z": {"ordinal": [1, 2, 3], "when": {"_many": True}},
}


def enumerate_all(space: Space) -> list[Settings]:
    points = Points(space)
    return [points.at_index(index) for index in range(points.count)]


def by_brute_force(space: Space) -> set[str]:
    """Every combination of all values, resolved; those that come out the same count once."""
    values = [[d.at_index(i) for i in range(d.size() or 0)] for d in space.domains.values()]
    found = set()
    for combination in itertools.product(*values):
        proposed = dict(zip(space.domains, combination, strict=True))
        try:
            point = space.resolve(lambda name, _domain, given=proposed: given[name])  # type: ignore[misc]
        except Forbidden:
            continue
        found.add(json.dumps(point.searched))
    return found


def test_the_points_of_a_conditional_space_are_visited_once_each() -> None:
    forbid = ["n == 4 and z == 3", {"a": "y", "b": 7}]
    space = Space.parse(CONDITIONAL, forbid=forbid)
    points = enumerate_all(space)
    keys = [json.dumps(point.searched) for point in points]
    assert len(set(keys)) == len(keys) == 299
    assert set(keys) == by_brute_force(space)
    assert points[0].settings == {"a": "x", "b": 1, "n": 1, "twice": 2}


@given(st.data())
def test_any_small_space_is_enumerated_as_by_brute_force(data: st.DataObject) -> None:
    raw: dict[str, Any] = {}
    for index in range(data.draw(st.integers(1, 5))):
        name = f"p{index}"
        raw[name] = {"randint": [1, data.draw(st.integers(2, 3))]}
        if index and data.draw(st.booleans()):
            parent = f"p{data.draw(st.integers(0, index - 1))}"
            raw[name]["when"] = {parent: data.draw(st.integers(1, 2))}
    bound = data.draw(st.integers(3, 6))
    first, last = data.draw(st.tuples(*[st.sampled_from(sorted(raw))] * 2))
    space = Space.parse(raw, forbid=[f"{first} + {last} > {bound}"])
    keys = [json.dumps(point.searched) for point in enumerate_all(space)]
    assert len(set(keys)) == len(keys)
    assert set(keys) == by_brute_force(space)


def test_a_large_product_is_counted_without_being_listed() -> None:
    space = Space.parse({f"p{index}": {"randint": [1, 10**9]} for index in range(900)})
    points = Points(space)
    assert points.count == 10 ** (9 * 900)
    assert points.at_index(points.count - 1).searched == dict.fromkeys(space.searched, 10**9)
    assert points.at_index(5).searched["p899"] == 6


def test_values_that_no_later_condition_asks_for_are_forgotten() -> None:
    """Remembering them all would take 2**30 combinations."""
    raw: dict[str, Any] = {}
    for index in range(30):
        raw[f"x{index}"] = {"choice": [0, 1]}
        raw[f"y{index}"] = {"choice": [0, 1], "when": {f"x{index}": 1}}
    points = Points(Space.parse(raw))
    assert points.count == 3**30
    assert "y29" in points.at_index(points.count - 1).searched


def test_a_pinned_parameter_has_one_value() -> None:
    space = Space.parse(CONDITIONAL).pin({"a": "y"})
    assert Points(space).count == 10
    assert {point.searched["a"] for point in enumerate_all(space)} == {"y"}


@pytest.mark.parametrize(
    ("raw", "place", "allowed"),
    [
        ({"lr": {"uniform": [0, 1]}}, "space.lr", "infinitely many values"),
        ({"x": {"normal": [0, 1], "step": 1}}, "space.x", "infinitely many values"),
        (
            {
                "n": {"randint": [1, MOST_STATES + 1]},
                "x": {"choice": [1, 2], "when": {"n": {">": 5}}},
            },
            "space.n",
            "too many for this searcher",
        ),
    ],
)
def test_a_space_that_cannot_be_enumerated_is_refused(
    raw: dict[str, Any], place: str, allowed: str
) -> None:
    with pytest.raises(BadSpace, match=allowed) as caught:
        Points(Space.parse(raw))
    assert caught.value.key == place


def test_an_index_that_no_point_has_is_an_index_error() -> None:
    points = Points(Space.parse({"n": {"randint": [1, 3]}}))
    for index in (-1, 3):
        with pytest.raises(IndexError):
            points.at_index(index)
