"""Functions of every form, as trainables of sweeps: by their paths, and from Python."""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.history.events import Status
from tests.support import sweeps
from trainables import report

#: The same sweep of every function here.
SWEEP: dict[str, Any] = {
    "space": {"k": {"grid": [0, 1, 2, 3]}},
    "trials": 4,
    "metric": "loss",
    "mode": "min",
    "trackers": [],
    "searcher": "grid",
}


def returns_a_number(config: dict[str, Any]) -> float:
    return float(config["k"] + 1)


def reports_then_returns_a_number(config: dict[str, Any]) -> float:
    report({"loss": 9.0})
    return returns_a_number(config)


def adds(config: dict[str, Any], number: float) -> dict[str, float]:
    return {"loss": config["k"] + number}


class Adds:
    """Adds a number that it was made with."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __call__(self, config: dict[str, Any]) -> dict[str, float]:
        return adds(config, self.number)


partial = functools.partial(adds, number=1.0)
called = Adds(1.0)
method = called.__call__
BY_NAME = {
    "returns_a_number": 1,
    "reports_then_returns_a_number": 2,
    "partial": 1,
    "called": 1,
    "method": 1,
}


def curves(folder: Any) -> list[list[Any]]:
    trials = sweeps.history(folder).trials
    assert {trial.status for trial in trials} == {Status.COMPLETED}, [t.reason for t in trials]
    return [[r.metrics["loss"] for r in sweeps.curve(folder, t.number)] for t in trials]


@pytest.mark.parametrize(("name", "iterations"), BY_NAME.items())
def test_by_its_path_everything_that_can_be_called_is_a_function(
    name: str, iterations: int, tmp_path: Path
) -> None:
    keys = {**SWEEP, "config": {}, "stop": None, "scheduler": None, "initial": None}
    folder = sweeps.make(tmp_path, **keys, trainable=f"{__name__}:{name}")
    assert sweeps.run(folder) == "finished"
    assert curves(folder) == [[9.0] * (iterations - 1) + [k + 1.0] for k in range(4)]


def local(number: float) -> list[Callable[[dict[str, Any]], Any]]:
    """Functions that no other process can import."""

    def alone(config: dict[str, Any]) -> float:
        return float(config["k"] + number)

    class Own(Adds):
        pass

    return [alone, functools.partial(adds, number=number), Own(number), Own(number).__call__]


@pytest.mark.parametrize(
    ("number", "name"), [(0, "__main__:alone"), (1, "__main__:adds"), (2, "__main__:Own")]
)
def test_from_python_too_and_in_other_processes(number: int, name: str, tmp_path: Path) -> None:
    given = local(1.0)[number]
    found = sweep.run(given, root=tmp_path, name="demo", jobs=1, progress=False, **SWEEP)
    assert found.spec.trainable == name
    assert sorted((t.settings["k"], t.score) for t in found.trials) == [
        (k, k + 1.0) for k in range(4)
    ]
    again = sweep.run(local(1.0)[number], root=tmp_path, name="demo", progress=False, **SWEEP)
    assert len(again.trials) == 4
    found = sweep.resume("demo", root=tmp_path, trainable=given, progress=False)
    assert found.status == "finished"


# ---- what is missing ----------------------------------------------------------------------------


def reports_nothing(config: dict[str, Any]) -> None:
    pass


def breaks(config: dict[str, Any]) -> float:
    breakpoint()
    return 1.0


def traces(config: dict[str, Any]) -> None:
    import pdb

    with contextlib.suppress(ValueError):
        pdb.set_trace()
    report({"loss": 1.0})


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (reports_nothing, "reports_nothing() ended without a result; call report({'loss': ...})"),
        (breaks, "a debugger found no terminal; to use breakpoint(), run the sweep in a terminal"),
        (traces, "a debugger found no terminal; to use breakpoint(), run the sweep in a terminal"),
    ],
)
def test_the_reason_says_what_to_do(function: Any, words: str, tmp_path: Path) -> None:
    keys = {**SWEEP, "trials": 1}
    found = sweep.run(function, root=tmp_path, name="demo", jobs=1, progress=False, **keys)
    (trial,) = found.trials
    assert trial.status == "FAILED"
    assert words in trial.reason
