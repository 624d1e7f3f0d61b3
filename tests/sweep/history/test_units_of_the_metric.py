"""Whole sweeps of the same curves in other units: the same decisions, and claims in these units."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sweep.history.history import History
from sweep.testing import CurvePoint, simulate

#: Difference that rounding may cause, as a share of a curve's height.
ROUNDING = 1e-9
HEIGHT = 100.0


@dataclass(frozen=True)
class Unit:
    """A metric that is `factor` times the original one, plus `offset`."""

    factor: float = 1.0
    offset: float = 0.0

    def converted(self, score: float) -> float:
        return self.factor * score + self.offset


@dataclass(frozen=True)
class Curves:
    """Noisy learning curves of settings, some of which have a ceiling, NaN or a target."""

    seed: int
    kind: str

    def at(self, point: CurvePoint) -> float:
        draws = [
            np.random.default_rng([self.seed, point.trial, *key]).normal()
            for key in ((), (point.seed_index,), (point.seed_index, point.iteration))
        ]
        learnt = HEIGHT * (1 - math.exp(-point.iteration / 8))
        score = learnt + 20 * draws[0] + 10 * draws[1] + 10 * draws[2]
        if self.kind == "ceiling":
            score = min(score, 110.0)
        if self.kind == "nan" and draws[2] > 1.5:
            return math.nan
        return round(score * 1024) / 1024  # scaled and shifted without rounding


def sweep_in(unit: Unit, curves: Curves) -> History:
    """Return the history of a sweep that sees the curves in this unit."""
    spec: dict[str, Any] = {
        "trials": 40,
        "metric": "score",
        "mode": "min" if unit.factor < 0 else "max",
        "space": {"x": {"uniform": [0, 1]}},
        "searcher": {"name": "random", "prior": "none"},
        "scheduler": {"name": "asha", "grace_period": 3, "reduction_factor": 3},
        "stop": {"training_iteration": 27},
        "seeds": "auto" if curves.kind == "target" else {9: 2, 27: 4},
        "seed": curves.seed,
    }
    if curves.kind == "target":
        spec["stop"] = {**spec["stop"], "score": unit.converted(105.0)}

    def curve(point: CurvePoint) -> dict[str, Any]:
        return {"score": unit.converted(curves.at(point))}

    return simulate(spec, curve, slots=2).history


@pytest.mark.parametrize("kind", ["plain", "ceiling", "nan", "target"])
@pytest.mark.parametrize("unit", [Unit(1000.0), Unit(1e-12), Unit(1.0, -4096.0), Unit(-1.0)])
def test_another_unit_changes_no_decision_and_claims_are_in_it(kind: str, unit: Unit) -> None:
    curves = Curves(7, kind)
    plain, other = sweep_in(Unit(), curves), sweep_in(unit, curves)
    assert plain.best is not None
    assert other.best is not None
    assert other.best.number == plain.best.number
    assert [trial.number for trial in other.ranked()] == [t.number for t in plain.ranked()]
    seeds = [len(trial.replicas) for trial in plain.trials]
    assert max(seeds) > 1
    assert [len(trial.replicas) for trial in other.trials] == seeds
    assert [trial.status for trial in other.trials] == [t.status for t in plain.trials]
    rounding = ROUNDING * HEIGHT * abs(unit.factor)
    for number, trial in enumerate(plain.trials):
        mine, its = plain.expected(trial), other.expected(other.trials[number])
        assert (mine is None) is (its is None)
        if mine is None or its is None or mine.error is None or its.error is None:
            continue
        assert its.value == pytest.approx(unit.converted(mine.value), rel=0, abs=rounding)
        assert its.error == pytest.approx(abs(unit.factor) * mine.error, rel=0, abs=rounding)
