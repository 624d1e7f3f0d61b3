"""What a person is told of a sweep: what does not fit its results, and how far it is."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from sweep.cli.live import Kind, Narrator
from sweep.core.errors import UnknownMetric
from sweep.driver.start import prepare
from sweep.driver.start.launch import Launch, open_context
from sweep.history.events import Closed
from sweep.history.history import History
from sweep.operations.rehearsal import validate
from sweep.testing import simulate
from sweep.views import formatting
from sweep.views.overview import ended_count, summary
from sweep.views.progress import Aim, fraction
from tests.support import sweeps
from tests.support.command_line import write_spec
from tests.support.quadratic import Quadratic
from tests.sweep.schedulers.test_pbt import SPEC, curve


def warnings_of(tmp_path: Path, **changes: Any) -> list[str]:
    resolved, _text = prepare.prepare(str(tmp_path / write_spec(tmp_path, **changes)), [])
    seen = validate.validation(resolved, 1, longest_s=600.0, show=lambda _: None, every_s=5.0)
    found: list[str] = seen["warnings"]
    return found


def test_validate_says_that_no_result_has_the_metric(tmp_path: Path) -> None:
    (said,) = warnings_of(tmp_path, metric="los")
    assert said.startswith("metric: the first 20 results have no los; they have ")
    assert "did you mean 'loss'" in said


def test_validate_says_that_no_result_has_what_is_to_fall_or_to_become_flat(tmp_path: Path) -> None:
    plateau = {"metric": "los", "mode": "min", "patience": 3}
    stop = {"training_iteration": 9, "noise": {"<=": 0.01}, "plateau": plateau}
    fallen, flat = warnings_of(tmp_path, stop=stop)
    assert fallen.startswith("stop.noise: the first 2 results have no noise; they have ")
    assert flat.startswith("stop.plateau.metric: the first 2 results have no los; ")
    shown = validate.preview(prepare.prepare(str(write_spec(tmp_path, stop=stop)), [])[0], 1)[
        "stop"
    ]
    assert shown["noise"] == {"<=": 0.01}


class Evaluated(Quadratic):
    """Its score comes with every fourth result."""

    def step(self) -> dict[str, Any]:
        result = super().step()
        return result if (self.iteration + 1) % 4 else {**result, "evaluation/score": 1.0}


def test_validate_does_not_doubt_a_metric_that_an_evaluation_brings_later(tmp_path: Path) -> None:
    spec = {"trainable": f"{__name__}:Evaluated", "metric": "evaluation/score"}
    assert warnings_of(tmp_path, **spec, scheduler="fifo") == []
    (said,) = warnings_of(tmp_path, **spec)  # with rungs at 1, 3 and 9
    assert said == (
        "metric: evaluation/score first appeared in iteration 4; the rungs 1, 3 of "
        "training_iteration lie before it and are evaluated only then"
    )


class NotANumber(Quadratic):
    """Its metric is there in every result, and NaN before iteration `first`."""

    def step(self) -> dict[str, Any]:
        known = self.iteration + 1 >= self.config["first"]
        return {**super().step(), "value": 1.0 if known else math.nan}


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (
            3,
            r"value first appeared in iteration 3; the rung 1 of training_iteration lies "
            r"before it and is evaluated only then",
        ),
        (
            99,
            r"the first \d+ results have no number in value; the rungs? 1.* of "
            r"training_iteration lies? within them, so trials train on to the first "
            r"result that has one",
        ),
    ],
)
def test_validate_takes_nan_for_no_metric(first: int, expected: str, tmp_path: Path) -> None:
    spec = {"trainable": f"{__name__}:NotANumber", "metric": "value", "config": {"first": first}}
    (said,) = warnings_of(tmp_path, **spec)
    assert re.fullmatch(f"metric: {expected}", said)


class EveryOther(Quadratic):
    """Its metric comes with the first result, the third and so on."""

    def step(self) -> dict[str, Any]:
        result = super().step()
        return {**result, "bonus": 1.0} if self.iteration % 2 == 0 else result


def test_validate_does_not_doubt_a_metric_that_the_first_result_has(tmp_path: Path) -> None:
    spec = {"trainable": f"{__name__}:EveryOther", "metric": "bonus"}
    assert warnings_of(tmp_path, **spec) == []


def test_the_examples_take_the_values_of_grids_in_turn_as_trials_do(tmp_path: Path) -> None:
    space = {"lr": {"uniform": [0.1, 0.9]}, "x0": {"grid": [1, 2]}, "target": {"grid": [0, 1]}}
    resolved, _text = prepare.prepare(str(write_spec(tmp_path, space=space)), [])
    shown = validate.preview(resolved, 1)["samples"]
    crossed = [(sample["x0"], sample["target"]) for sample in shown]
    assert crossed == ([(1, 0), (1, 1), (2, 0), (2, 1)] * 3)[:10]


def test_validate_says_that_no_result_has_the_time(tmp_path: Path) -> None:
    scheduler = {"name": "asha", "time_attr": "steps", "max_t": 5}
    assert any(
        d.startswith("scheduler.time_attr") for d in warnings_of(tmp_path, scheduler=scheduler)
    )


def test_validate_says_that_rungs_lie_below_the_first_iteration(tmp_path: Path) -> None:
    """An iteration of the quadratic is 10 time steps."""
    scheduler = {"name": "asha", "time_attr": "timesteps_total", "grace_period": 1, "max_t": 90}
    (said,) = warnings_of(tmp_path, scheduler=scheduler)
    assert "the rungs 1, 3, 9 are below it" in said


def test_validate_says_where_rungs_grow(tmp_path: Path) -> None:
    scheduler, stop = {"name": "asha", "grace_period": 2}, {"loss": {"<=": -1.0}}
    resolved, _text = prepare.prepare(str(write_spec(tmp_path, scheduler=scheduler, stop=stop)), [])
    told = validate.preview(resolved, 1)["warnings"]
    assert any(
        "rungs are added as trials reach them, at training_iteration 2, 6, 18" in w for w in told
    )


def test_validate_has_no_doubts_where_everything_is_there(tmp_path: Path) -> None:
    assert warnings_of(tmp_path) == []


def test_results_without_the_metric_are_reported_once_if_the_sweep_continues(
    tmp_path: Path,
) -> None:
    trainable = f"{__name__}:Evaluated"
    folder = sweeps.make(tmp_path, trainable=trainable, metric="evaluation/scor", mode="max")
    with pytest.raises(UnknownMetric):
        sweeps.run(folder)
    with open_context(Launch(folder, 1, "inline")) as (parts, _):
        records = parts.ledger.read()
    history, said = History(parts.history.objective), list[str]()
    narrator = Narrator(history, rungs=[1.0, 3.0, 9.0])
    for record in records:
        history.extend([record])
        said += [line.text for line in narrator.lines([record])]
    (only,) = [line for line in said if "scor'" in line]
    assert only.startswith("cannot be compared: its results had no metric 'evaluation/scor'; they")
    assert only.endswith("; no trial has had it so far")


def test_a_look_after_which_a_trial_goes_on_is_no_news() -> None:
    course = simulate(
        {"trials": 3, "scheduler": "median", "stop": {"training_iteration": 9}},
        lambda at: {"score": float(at.trial)},
    )
    history = History(course.history.objective)
    narrator = Narrator(history, waits=False)
    told = []
    for record in course.records:
        history.extend([record])
        told += narrator.lines([record])
    assert [line.kind for line in told] == [Kind.STARTED, Kind.FINISHED] * 3


def test_a_population_is_as_far_as_its_members() -> None:
    course = simulate(SPEC, curve, slots=4)
    history, aim = History(course.history.objective), Aim((), {"training_iteration": 12})
    seen: list[float] = []
    for record in course.records:
        history.extend([record])
        if isinstance(record.event, Closed):
            seen.append(fraction(history, aim))
            assert 0 <= ended_count(history) <= 8
    assert seen == sorted(seen)
    assert ended_count(history) == 8
    assert 0 < seen[len(seen) // 2] < 1


def test_bred_trials_are_counted_beside_the_searched_ones() -> None:
    data = summary(simulate(SPEC, curve, slots=4).history, "demo")
    assert (data["trials"], data["bred"], data["wanted"]) == (8, 6, 8)
    assert formatting.trials_text(8, 6, 8) == "8 of 8 trials and 6 bred"
    assert formatting.trials_text(1, 0, 1) == "1 of 1 trial"
