"""Every searcher proposes points of any finite space: all kinds of domains, given, forbidden."""

from typing import Any

import pytest

from sweep import searchers
from sweep.core import plugins
from sweep.history.trial import Trial
from sweep.spec.space import Space
from sweep.testing import CurvePoint, simulate

NAMES = plugins.names(searchers.PACKAGE)
SPACE: dict[str, Any] = {
    "float": {"uniform": [0.1, 0.4], "step": 0.1},
    "log": {"loguniform": [1, 21], "step": 10},
    "int": {"lograndint": [8, 24], "step": 8},
    "normal": {"normal": [0, 1], "bounds": [-1, 1], "step": 1},
    "weighted": {"choice": ["a", [1]], "weights": [1, 3]},
    "ordinal": {"ordinal": ["s", "m", "l"]},
    "turn": {"grid": [1, 2]},
}
WHOLE = {
    "float": 0.1,
    "log": 1.0,
    "int": 16,
    "normal": 0.0,
    "weighted": "a",
    "ordinal": "m",
    "turn": 2,
}


def curve(at: CurvePoint) -> dict[str, Any]:
    return {"score": at.config["float"] - abs(at.config["normal"] - 0.5)}


def search(name: str) -> list[Trial]:
    """Trials with the searcher's defaults: the first is given whole, the second in part."""
    spec = {
        "searcher": name,
        "space": SPACE,
        "forbid": [{"ordinal": "s", "int": 8}],
        "initial": [WHOLE, {"float": 0.3, "ordinal": "l"}],
        "trials": 14,
        "stop": {"training_iteration": 1},
    }
    return simulate(spec, curve).history.trials


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_trials_are_points_of_the_space_and_what_is_given_is_taken(name: str) -> None:
    space = Space.parse(SPACE)
    found = [trial.searched for trial in search(name)]
    assert len(found) == 14
    assert found[0] == WHOLE
    assert (found[1]["float"], found[1]["ordinal"]) == (0.3, "l")
    assert [point["turn"] for point in found[2:]] == [1, 2] * 6
    for point in found:
        assert list(point) == list(SPACE)
        assert all(space.domain_of(key).contains(value) for key, value in point.items())
        assert (point["ordinal"], point["int"]) != ("s", 8)
    assert len({str(point) for point in found}) > 10
