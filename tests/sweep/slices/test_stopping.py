"""What ends a trial by its results: values that are reached or fall, flat curves, bad numbers."""

import math
from pathlib import Path
from typing import Any

import pytest

from sweep import spec as specs
from sweep.core.errors import UsageError
from sweep.history.events import Status
from sweep.slices.stopping import Criteria, Flatness, Streaks
from sweep.spec.stopping import Plateau, Stop
from sweep.testing import CurvePoint, simulate
from tests.support import sweeps
from tests.support.command_line import Here, write_spec


def one_trial(root: Path, stop: Any, **changes: Any) -> Any:
    """A sweep of one trial of the mishaps, or of a quadratic, to its end."""
    folder = sweeps.make(root, scheduler="fifo", trials=1, stop=stop, **changes)
    sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    return trial


QUADRATIC = {"config": {"lr": 0.25}, "space": {"x0": 5.0}}


def test_a_trial_ends_where_a_result_has_fallen_so_far(tmp_path: Path) -> None:
    """The distance to the target halves at each step: the loss is 4, 1, 1/4, 1/16."""
    trial = one_trial(tmp_path, {"loss": {"<=": 0.1}}, **QUADRATIC)
    assert (trial.status, trial.iteration) == (Status.COMPLETED, 3)
    assert trial.reason == "a stopping criterion was met: loss is 0.0625, at most 0.1"


def test_a_trial_that_no_criterion_ended_says_what_did() -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        return {"score": 1.0, "done": at.iteration == 2}

    asha = {"name": "asha", "max_t": 1, "grace_period": 1}
    for scheduler, reason in [
        ("fifo", "the trainable reported that it is done"),
        (asha, "it reached its end, training_iteration 1"),
    ]:
        (trial,) = simulate({"scheduler": scheduler}, curve).history.trials
        assert (trial.status, trial.reason) == (Status.COMPLETED, reason)


@pytest.mark.parametrize(
    ("stop", "scheduler", "last"),
    [
        ({"training_iteration": 9}, "fifo", {"done": True}),
        ({"training_iteration": 2}, "fifo", {}),
        ({"training_iteration": 9}, {"name": "asha", "max_t": 2, "grace_period": 2}, {}),
        ({"plateau": {"patience": 1}}, "fifo", {}),
    ],
)
def test_a_trial_that_is_done_as_its_time_runs_out_is_complete(
    stop: dict[str, Any], scheduler: Any, last: dict[str, Any]
) -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        return {"score": 1.0, "time_this_iter_s": 5.0, **(last if at.iteration == 2 else {})}

    spec = {"scheduler": scheduler, "stop": stop, "limits": {"trial_s": 10.0}, "trials": 1}
    (trial,) = simulate(spec, curve).history.trials
    assert (trial.status, trial.iteration) == (Status.COMPLETED, 2)


def test_a_trial_ends_where_a_result_leaves_a_range(tmp_path: Path) -> None:
    stop = {"loss": {"<=": 0.1, ">=": 0.9}}
    assert one_trial(tmp_path / "a", stop, **QUADRATIC).iteration == 1
    stop = {"loss": {"<=": 0.1, ">=": 1.1}}
    assert one_trial(tmp_path / "b", stop, **QUADRATIC).iteration == 3


@pytest.mark.parametrize("limits", [{}, {"slice_s": 1e-9}])
def test_a_flat_curve_ends_its_trial_at_the_same_iteration_however_it_is_sliced(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    """0 is reached at iteration 3; then four results are no better."""
    changes = {
        "trainable": "tests.support.mishaps:RisesToZero",
        "metric": "value",
        "mode": "max",
        "limits": limits,
    }
    trial = one_trial(tmp_path, {"plateau": {"patience": 4}, "training_iteration": 50}, **changes)
    assert (trial.status, trial.iteration) == (Status.COMPLETED, 7)
    assert "value was no better than 0 for 4 results" in trial.reason


def test_a_plateau_may_watch_another_result_than_the_metric(tmp_path: Path) -> None:
    plateau = {"metric": "value", "mode": "min", "patience": 3}
    changes = {"trainable": "tests.support.mishaps:RisesToZero", "limits": {"slice_s": 1e-9}}
    changes |= {"metric": "training_iteration", "mode": "max"}
    trial = one_trial(tmp_path, {"plateau": plateau, "training_iteration": 50}, **changes)
    assert trial.iteration == 4


@pytest.mark.parametrize(
    ("values", "options", "end"),
    [
        ([1, 2, 3, 3, 3], {"patience": 2}, 5),
        ([1, 2, 2.5, 3.2, 3.3, 3.4], {"patience": 2, "min_delta": 1.0}, 5),
        ([3, math.nan, None, 1], {"patience": 2}, 4),
        ([3, math.inf, -math.inf], {"patience": 2}, 3),
        ([1, None, None, None, 2, None, None, None, 2, None, 2], {"patience": 2}, 11),
        ([None, None, 1, 1], {"patience": 2}, None),
        ([1, 1, 1, 1, 1], {"patience": 2, "grace": 5}, 5),
        ([3, 2, 1, 0, 0, 0], {"patience": 2, "mode": "min"}, 6),
    ],
)
def test_how_long_a_curve_may_be_flat(
    values: list[float | None], options: dict[str, Any], end: int | None
) -> None:
    plateau = Plateau.model_validate({"metric": "m", "mode": "max", **options})
    told = Criteria.from_spec(Stop(plateau=plateau)).plateau
    assert told is not None
    watch = Flatness(told)
    ended = []
    for iteration, value in enumerate(values, start=1):
        watch.add(value)
        if watch.flat(iteration):
            ended.append(iteration)
    assert ended[:1] == ([] if end is None else [end])


def streak(values: list[float | None], criterion: dict[str, Any], **changes: Any) -> Any:
    """The trial of a simulated sweep with these values of its metric; it may run for longer."""

    def curve(at: CurvePoint) -> dict[str, Any]:
        value = values[at.iteration - 1] if at.iteration <= len(values) else -9.0
        return {} if value is None else {"score": value}

    stop = {"score": criterion, "training_iteration": 20}
    (trial,) = simulate({"scheduler": "fifo", "stop": stop, **changes}, curve).history.trials
    return trial


@pytest.mark.parametrize("limits", [{}, {"slice_s": 1e-9}])
@pytest.mark.parametrize(
    ("values", "criterion", "end"),
    [
        ([5, 5, 5, 5], {">=": 5, "consecutive": 3}, 3),
        ([5, 5, 4, 5, 6, 7], {">=": 5, "consecutive": 3}, 6),
        ([5, None, math.nan, 5, None, 5], {">=": 5, "consecutive": 3}, 6),
        ([1, 9, 2, 9, 1, 2], {"<=": 2, "consecutive": 2}, 6),
        ([1, 9, 1, 9, 9], {"<=": 2, ">=": 8, "consecutive": 2}, 5),
        ([5, 4, 5, 4], {">=": 5, "consecutive": 2}, 20),
    ],
)
def test_a_bound_that_consecutive_results_must_meet_ends_a_trial_after_so_many(
    limits: dict[str, Any], values: list[float | None], criterion: dict[str, Any], end: int
) -> None:
    """Slices of one iteration each show that the count continues from slice to slice."""
    trial = streak(values, criterion, limits=limits)
    assert (trial.status, trial.iteration) == (Status.COMPLETED, end)
    if end < 20:
        assert f"in {criterion['consecutive']} consecutive results" in trial.reason


def test_consecutive_results_may_be_of_another_result_than_the_metric(tmp_path: Path) -> None:
    """The distance to the target halves at each step: the loss is 1, 1/4 and 1/16."""
    stop = {"loss": {"<=": 1.0, "consecutive": 3}, "training_iteration": 50}
    changes = {**QUADRATIC, "metric": "training_iteration", "mode": "max"}
    for limits in ({}, {"slice_s": 1e-9}):
        trial = one_trial(tmp_path / str(len(limits)), stop, limits=limits, **changes)
        assert trial.iteration == 3


def test_a_count_of_consecutive_results_forgets_those_after_the_checkpoint() -> None:
    """Results after the checkpoint that a slice continues from are computed again."""
    stop = Criteria.from_spec(Stop({"score": 5}, consecutive={"score": 3}))
    streaks = Streaks(stop)
    streaks.add_past({"score": [(1, 5.0), (2, 5.0), (3, 5.0)]}, source=1)
    streaks.add("score", 5.0)
    assert not streaks.met_criterion({"score": 5.0})
    streaks.add("score", 5.0)
    assert streaks.met_criterion({"score": 5.0})


def test_a_scheduler_that_counts_in_a_result_refuses_consecutive_values_of_it() -> None:
    scheduler = {"name": "asha", "time_attr": "score", "grace_period": 1}
    with pytest.raises(UsageError, match=r"stop.score.consecutive: score is scheduler.time_attr"):
        streak([1.0], {">=": 5, "consecutive": 2}, scheduler=scheduler)


DIVERGES = {"trainable": "tests.support.mishaps:Diverges", "metric": "value", "mode": "max"}


@pytest.mark.parametrize(
    ("choice", "status", "iteration"),
    [("continue", Status.COMPLETED, 9), ("prune", Status.PRUNED, 3), ("fail", Status.FAILED, 3)],
)
def test_a_metric_that_is_not_a_number_ends_its_trial_if_that_is_wanted(
    tmp_path: Path, choice: str, status: Status, iteration: int
) -> None:
    limits = {"not_finite": choice}
    trial = one_trial(tmp_path, {"training_iteration": 9}, limits=limits, **DIVERGES)
    assert (trial.status, trial.iteration) == (status, iteration)
    if choice != "continue":
        assert trial.reason == "it diverged: value is nan at iteration 3"
    best = trial.replicas[0].best_checkpoint
    assert best is not None
    assert best.iteration == 1


def test_the_time_of_a_trial_is_counted_over_its_slices(tmp_path: Path) -> None:
    """Each step takes 50 ms at least, and each is a slice of its own."""
    changes = {"config": {"step_s": 0.05}, "limits": {"slice_s": 1e-9, "trial_s": 3.0}}
    trial = one_trial(tmp_path, {"training_iteration": 100}, **changes)
    assert trial.status is Status.STOPPED
    assert 1 < trial.iteration <= 60
    assert trial.slices == trial.iteration
    said = "a limit was passed: limits.trial_s: the trial has used up its training time"
    assert trial.reason == said
    assert sum(point.seconds for point in trial.replicas[0].curve) >= 3.0


@pytest.mark.slow
def test_a_sweep_whose_trials_nothing_ends_warns_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    # What ends such a sweep is looked at between slices.
    limits = {"slice_s": 0.1}
    changes: dict[str, Any] = {"scheduler": "fifo", "stop": {}, "deterministic": None}
    spec = write_spec(tmp_path, trials=1, limits=limits, **changes)
    code, _, err = here("run", spec, "--pool", "inline", "--timeout", 0.1)
    assert code == 0
    assert "warning: stop: is empty" in err
    assert "stop: {training_iteration: 100}" in err
    spec = write_spec(tmp_path, trials=1, limits=limits, budget={"timesteps": 20}, **changes)
    assert "warning" not in here("run", spec, "--pool", "inline", "--name", "other")[2]


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ("{loss: {'<': 1}}", "stop.loss: {'<': 1} is not allowed; expected a number, {"),
        ("{loss: {}}", "stop.loss: {} is not allowed"),
        ("{loss: .nan}", "stop.loss: "),
        ("{loss: {'<=': 2, '>=': 1}}", "stop.loss: every value is at most 2 or at least 1"),
        ("{plateau: {patience: 0}}", "stop.plateau.patience: 0 is not allowed"),
        ("{plateau: {}}", "stop.plateau.patience: is missing"),
        ("{plateau: {patience: 3, patient: 1}}", "stop.plateau.patient: 'patient' is not a known"),
        ("{plateau: 3.5, loss: x}", "stop.loss: 'x' is not allowed"),
        ("{plateau.patience: 3}", "set it as a whole"),
        ("{1: 2}", "the key 1 is not text"),
        ("{loss: {consecutive: 3}}", "stop.loss: {'consecutive': 3} is not allowed"),
        ("{loss: {'>=': 1, consecutive: 0}}", "stop.loss.consecutive: 0 is not allowed"),
        ("{loss: {'>=': 1, consecutive: 2.0}}", "stop.loss.consecutive: 2.0 is not allowed"),
        ("{timesteps_total: {'>=': 9, consecutive: 2}}", "timesteps_total never falls"),
        ("{a//b: 2}", "expected a path into the results"),
    ],
)
def test_a_criterion_that_cannot_work_is_refused_with_its_place(stop: str, message: str) -> None:
    text = f"""name: demo
trials: 1
trainable: ppo
metric: score
mode: max
space: {{lr: 0.1}}
stop: {stop}
"""
    with pytest.raises(UsageError, match=r"^spec\.yaml:7: ") as error:
        specs.parse(text, "spec.yaml")
    assert message in str(error.value)


def test_criteria_without_targets_keep_those_that_a_good_value_does_not_meet() -> None:
    """A score of 5 is good; one of -9, a low loss and the number of iterations are other ends."""
    at_least, at_most = {"training_iteration": 9.0, "score": 5.0}, {"score": -9.0, "loss": 0.1}
    criteria = Criteria(at_least, at_most, None, {"score": 3, "loss": 2})
    left = criteria.without_targets({"score": "max"})
    assert left == Criteria({"training_iteration": 9.0}, at_most, None, {"score": 3, "loss": 2})
    left = criteria.without_targets({"score": "max", "loss": "min"})
    assert left == Criteria({"training_iteration": 9.0}, {"score": -9.0}, None, {"score": 3})


def test_the_criteria_survive_being_written_down() -> None:
    text = """name: demo
trials: 1
trainable: ppo
metric: score
mode: max
space: {lr: 0.1}
stop:
  loss: {"<=": 0.5, ">=": 2}
  steps: 100
  return: {">=": 7, consecutive: 3}
  plateau: {patience: 3}
"""
    spec = specs.parse(text, "spec.yaml")
    again = specs.from_json(specs.canonical_json(spec))
    assert again.stop == spec.stop == {"loss": 2, "steps": 100, "return": 7}
    assert again.stop.consecutive == {"return": 3}
    assert again != specs.parse(text.replace("consecutive: 3", "consecutive: 2"), "spec.yaml")
    assert (again.stop.at_most, again.stop.plateau) == ({"loss": 0.5}, spec.stop.plateau)
    assert again != specs.parse(text.replace("0.5", "0.6"), "spec.yaml")
