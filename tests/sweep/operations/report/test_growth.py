"""The growth of the front in the report, beside the history as it was at each moment."""

from collections.abc import Mapping
from typing import Any

import pytest

from sweep.history.history import History
from sweep.operations.report import growth, page
from sweep.testing import CurvePoint, Simulation
from sweep.views import lookup
from sweep.views.lookup import Sweep

SPEC: Mapping[str, Any] = {
    "trials": 9,
    "metric": "score",
    "mode": "max",
    "objectives": {"cost": "min"},
    "stop": {"training_iteration": 9},
    "seed": 5,
}


def traded(at: CurvePoint) -> dict[str, Any]:
    """The better, the costlier; training makes both better."""
    x = at.config["x"]
    return {"score": x - 1 / at.iteration, "cost": 1e6 * (x * x + (at.trial % 3) / at.iteration)}


def ended(**changes: Any) -> tuple[Sweep, dict[str, Any] | None]:
    with Simulation({**SPEC, **changes}, traded, slots=2) as simulation:
        simulation.run()
        sweep = lookup.read(simulation.folder)
        assert (page.content(sweep)[0]["growth"] is None) == (growth.growth(sweep) is None)
        return sweep, growth.growth(sweep)


def test_the_front_grows_with_the_training_of_all_trials() -> None:
    sweep, data = ended()
    assert data is not None
    assert data["x"] == sorted(data["x"])
    assert data["x"][-1] == sum(r.seconds for t in sweep.history.trials for r in t.replicas)
    assert data["spent"] == "seconds of training of all trials"
    assert 0 <= data["y"][0] < data["y"][-1] < 1
    assert data["trials"][-1] == len(sweep.history.front())


def test_each_number_is_that_of_the_front_at_its_moment() -> None:
    sweep, data = ended()
    assert data is not None
    past, sizes = History(sweep.history.objective, shows_unsaved=True), [0]
    for record in sweep.records:
        past.extend([record])
        sizes.append(len(past.front()))
    changes = [size for size, before in zip(sizes[1:], sizes, strict=False) if size != before]
    steps = data["trials"][:-1]
    assert [
        size for size, before in zip(steps, [0, *steps], strict=False) if size != before
    ] == changes


def test_a_long_growth_is_thinned_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = ended()
    monkeypatch.setattr(growth, "MOST_POINTS", 4)
    _, thin = ended()
    assert whole is not None
    assert thin is not None
    assert len(whole["x"]) > 5 == len(thin["x"])
    assert thin["x"][-1] == whole["x"][-1]
    assert thin["y"][-1] == whole["y"][-1]


@pytest.mark.parametrize("changes", [{"objectives": {}}, {"trials": 1}])
def test_without_a_front_of_several_there_is_no_growth(changes: dict[str, Any]) -> None:
    assert ended(**changes)[1] is None
