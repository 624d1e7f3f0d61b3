"""Population-based bandits: the model against another implementation, and what it chooses."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from sweep.history.events import Status
from sweep.schedulers._shared.bandit import C1, C2, Bandit, Kernel, Posterior
from sweep.testing import CurvePoint, check_kills, simulate

SPEC: dict[str, Any] = {
    "trials": 6,
    "space": {"x": {"uniform": [0.0, 1.0]}, "kind": {"choice": ["a", "b"]}},
    "stop": {"training_iteration": 24},
    "scheduler": {"name": "pb2", "perturbation_interval": 2},
    "seed": 5,
}


def curve(at: CurvePoint) -> dict[str, Any]:
    """A setting of 0.7 learns most, whatever the kind."""
    gain = 1.0 - 4 * (at.config["x"] - 0.7) ** 2
    return {"score": float(at.before.get("score", 0.0)) + gain}


def observations(count: int) -> tuple[Any, Any, Any]:
    points = np.array([[((k * 37) % 101) / 101] for k in range(count)])
    times = np.array([float(1 + k // 4) for k in range(count)])
    values = np.sin(5 * points[:, 0]) + 0.1 * times
    return points, times, (values - values.mean()) / values.std()


def test_the_posterior_equals_another_implementation() -> None:
    x, t, y = observations(20)
    kernel = Kernel(0.3, 0.0, 0.05)
    peer = GaussianProcessRegressor(RBF(0.3), alpha=0.05, optimizer=None).fit(x, y)
    points = np.linspace(0, 1, 13)[:, None]
    mean, deviation = Posterior.fit(kernel, x, t, y).predict(points, 9.0)
    expected, spread = peer.predict(points, return_std=True)
    assert mean == pytest.approx(expected, abs=1e-9)
    assert deviation == pytest.approx(spread, abs=1e-6)
    evidence = Posterior.fit(kernel, x, t, y).evidence
    assert evidence == pytest.approx(peer.log_marginal_likelihood_value_)


def test_what_is_long_past_counts_less() -> None:
    """Bogunovic et al. 2016: covariances fade by (1 - fading)^(gap / 2)."""
    x, t = np.array([[0.5]]), np.array([1.0])
    fit = Posterior.fit(Kernel(0.3, 0.19, 1e-9), x, t, np.array([2.0]))
    mean, deviation = fit.predict(np.array([[0.5]]), 5.0)
    faded = 0.81 ** (4 / 2)
    assert mean[0] == pytest.approx(2.0 * faded)
    assert deviation[0] == pytest.approx(math.sqrt(1 - faded**2))


def test_the_choice_has_the_greatest_upper_confidence_bound() -> None:
    """The bound is computed again, with another implementation, on a dense grid."""
    x, t, y = observations(24)
    bandit = Bandit.learn(x, t, y, np.array([[0.3]]), 7.0)
    kernel = bandit.observed.kernel
    grid = np.linspace(0, 1, 2001)[:, None]

    def covariance(a: Any, s: Any, b: Any, u: Any) -> Any:
        close = np.exp(-((a - b.T) ** 2) / (2 * kernel.length**2))
        return close * (1 - kernel.fading) ** (np.abs(s[:, None] - u[None, :]) / 2)

    now = np.full(len(grid), 7.0)
    known = covariance(x, t, x, t) + kernel.noise * np.eye(len(x))
    mean = covariance(grid, now, x, t) @ np.linalg.inv(known) @ y
    xp, tp = np.vstack([x, [[0.3]]]), np.append(t, 7.0)
    more = covariance(xp, tp, xp, tp) + kernel.noise * np.eye(len(xp))
    across = covariance(grid, now, xp, tp)
    variance = 1 - np.einsum("ij,jk,ik->i", across, np.linalg.inv(more), across)
    bound = mean + math.sqrt(C1 + max(0.0, math.log(C2 * 24))) * np.sqrt(variance)
    assert bandit.bound(grid) == pytest.approx(bound, abs=1e-6)
    chosen = bandit.choose(1, np.random.Generator(np.random.PCG64(1)))
    assert bandit.bound(chosen[None])[0] >= bound.max() - 1e-4


def test_the_kernel_is_the_likeliest() -> None:
    x, t, y = observations(40)
    chosen = Bandit.learn(x, t, y, np.empty((0, 1)), 11.0).observed
    for length in (0.1, 0.2, 0.4, 0.8, 1.6):
        assert chosen.evidence >= Posterior.fit(Kernel(length, 0.05, 0.1), x, t, y).evidence


def test_children_that_have_not_trained_push_their_siblings_away() -> None:
    x, t, y = observations(16)
    stream = np.random.Generator(np.random.PCG64(2))
    first = Bandit.learn(x, t, y, np.empty((0, 1)), 5.0).choose(1, stream)
    after = Bandit.learn(x, t, y, first[None], 5.0)
    before = Bandit.learn(x, t, y, np.empty((0, 1)), 5.0)
    assert after.bound(first[None])[0] < before.bound(first[None])[0]


def test_later_children_gather_where_learning_is_fastest() -> None:
    course = simulate({**SPEC, "trials": 8}, curve, slots=4)
    children = [t.searched["x"] for t in course.history.trials if t.parent is not None]
    late = children[len(children) // 2 :]
    assert sum(abs(x - 0.7) for x in late) / len(late) < 0.15
    assert len(course.history.with_status(Status.COMPLETED)) == 8


def test_what_children_get_is_what_a_resumed_driver_reads() -> None:
    kinds = set()

    def noting(at: CurvePoint) -> dict[str, Any]:
        kinds.add(type(at.config["x"]))
        return curve(at)

    simulate(SPEC, noting, slots=2)
    assert kinds == {float}


@pytest.mark.slow
def test_a_killed_sweep_breeds_the_same_children() -> None:
    course = check_kills({**SPEC, "trials": 4, "stop": {"training_iteration": 8}}, curve, slots=2)
    assert any(trial.parent is not None for trial in course.history.trials)


def test_a_space_without_numbers_is_explored_as_in_pbt() -> None:
    space = {"kind": {"choice": ["a", "b"]}, "x": 0.5}
    course = simulate({**SPEC, "space": space}, curve, slots=3)
    assert any(trial.parent is not None for trial in course.history.trials)


SUM = "x + y > 1.2"


@pytest.mark.parametrize(
    ("forbid", "kinds"),
    [
        ([SUM], []),
        ([{"x": {">": 0.4}}, SUM], []),
        # The model's numbers may be allowed with none of the choices.
        ([f"kind == 'a' and {SUM}", f"kind == 'b' and {SUM}"], ["a", "b"]),
    ],
)
def test_children_have_settings_that_the_space_allows(forbid: list[Any], kinds: list[str]) -> None:
    space: dict[str, Any] = {name: {"uniform": [0.0, 1.0]} for name in ("x", "y")}
    space |= {"kind": {"choice": kinds}} if kinds else {}

    def rising(at: CurvePoint) -> dict[str, Any]:
        return {"score": (at.config["x"] + at.config["y"]) * at.iteration}

    course = simulate({**SPEC, "space": space, "forbid": forbid}, rising, slots=3)
    bred = [trial.searched for trial in course.history.trials if trial.parent is not None]
    assert len(bred) > 5
    most = 0.4 if len(forbid) > 1 and not kinds else 1.0
    assert all(one["x"] + one["y"] <= 1.2 and one["x"] <= most for one in bred)


def test_a_child_whose_every_neighbour_is_forbidden_has_its_parents_settings() -> None:
    space = {"x": {"uniform": [0.0, 1.0]}}
    spec = {**SPEC, "space": space, "forbid": [{"x": {"<": 0.5}}, {"x": {">": 0.51}}]}
    given = [{"x": 0.5 + k / 1000} for k in range(6)]
    scheduler = {"name": "pbt", "perturbation_interval": 2, "resample_probability": 0}
    course = simulate({**spec, "initial": given, "scheduler": scheduler}, curve_of_x, slots=3)
    bred = [trial.searched["x"] for trial in course.history.trials if trial.parent is not None]
    assert bred
    assert set(bred) <= {one["x"] for one in given}


def curve_of_x(at: CurvePoint) -> dict[str, Any]:
    return {"score": at.config["x"] * at.iteration}
