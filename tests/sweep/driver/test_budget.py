"""What ends a sweep before all its trials have ended, and what goes on when there is more."""

import contextlib
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep import spec as specs
from sweep.core import stats
from sweep.core.errors import UsageError
from sweep.driver import limits
from sweep.driver.limits import BudgetTracker
from sweep.history.events import Status
from sweep.history.history import History
from sweep.ledger import hold
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.testing import Simulation, SimulationResult, check_kills
from tests.support import sweeps, trials
from tests.support.command_line import Here, start, write_spec
from tests.support.waiting import wait_until

#: Ten trials of five iterations, a second and ten steps each.
SPEC: dict[str, Any] = {
    "trials": 10,
    "stop": {"training_iteration": 5},
    "limits": {"slice_s": 1.0},
}


SPEC_WITH_PATIENCE = """
name: patient
trials: 10
trainable: tests.support.quadratic:Quadratic
metric: score
mode: max
space: {x: {uniform: [0.0, 1.0]}}
budget: {patience: 3, min_delta: 0.5}
"""


def curve(moment: Any) -> dict[str, float]:
    return {"score": moment.trial % 4 + moment.iteration / 10, "timesteps_this_iter": 10.0}


def spent(course: SimulationResult) -> tuple[float, float]:
    replicas = [replica for trial in course.history.trials for replica in trial.replicas]
    return sum(r.seconds for r in replicas), sum(r.steps for r in replicas)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "seconds", "words"),
    [
        ({"timesteps": 120}, 12, "budget.timesteps: 120 of 120 steps are used up"),
        pytest.param(
            {"cpu_hours": 12 / 3600},
            12,
            "budget.cpu_hours: 0.00333 of 0.00333333 hours",
            marks=pytest.mark.proof,
        ),
        ({"target": 2.2}, 12, "budget.target: trial 2 has reached 2.2; the target is 2.2"),
        ({"patience": 3}, 35, "budget.patience: 3 trials in a row were not better than 3.5"),
        ({"settled": 0.2}, 36, "budget.settled: as much training again is expected to improve"),
    ],
)
def test_a_budget_that_is_used_up_ends_the_sweep_and_says_why(
    budget: dict[str, Any], seconds: float, words: str
) -> None:
    course = check_kills({**SPEC, "budget": budget}, curve)
    assert course.state == "finished"
    assert spent(course)[0] == seconds
    assert words in course.history.end_reason
    assert course.history.with_status(Status.RUNNING, Status.PAUSED) == []


def test_a_target_is_reached_by_a_trial_that_keeps_to_the_constraints() -> None:
    def costly(at: Any) -> dict[str, float]:
        return {"score": 10.0 - at.trial, "cost": 3.0 - at.trial}

    spec = {**SPEC, "scheduler": "fifo", "constraints": {"cost": "<= 1"}, "budget": {"target": 5}}
    with Simulation(spec, costly) as simulation:
        assert (
            "budget.target: trial 2 has reached 8; the target is 5"
            in simulation.run().history.end_reason
        )


@pytest.mark.parametrize(
    ("beside", "which"),
    [
        ("objectives: {cost: min}", "objectives"),
        ('constraints: {cost: "<= 1"}', "constraints"),
        ("aggregate: worst\nseeds: 2", "aggregate"),
    ],
)
def test_settled_is_refused_where_not_the_expectation_alone_decides(
    beside: str, which: str
) -> None:
    text = SPEC_WITH_PATIENCE.replace("{patience: 3, min_delta: 0.5}", "{settled: 0.02}")
    with pytest.raises(
        UsageError,
        match=rf"budget\.settled: cannot be used with {which}, because trials",
    ):
        specs.parse(f"{text}{beside}\n", "spec.yaml")


def test_a_share_that_cannot_be_reached_is_refused_on_resume(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"trials": 1, "stop": {"training_iteration": 1}}
    folder = sweeps.make(tmp_path, **changes, constraints={"loss": "<= 100"})
    assert sweeps.run(folder) == "finished"
    with pytest.raises(UsageError, match=r"^--budget settled: cannot be used in this sweep, whose"):
        sweeps.run(folder, budget={"settled": 0.02})
    assert sweeps.history(folder).changed_budget == {}


def settling(at: Any) -> dict[str, float]:
    """Every fourth setting is good, and these are alike."""
    return {"score": 10.0 * (at.trial % 4 == 3) + at.trial % 3 / 100, "timesteps_this_iter": 10.0}


SETTLING: dict[str, Any] = {
    "trials": 40,
    "stop": {"training_iteration": 2},
    "scheduler": "fifo",
    "searcher": "random",
    "budget": {"settled": 0.02},
}


def test_a_sweep_is_settled_when_good_settings_are_no_better_than_each_other() -> None:
    with Simulation(SETTLING, settling) as simulation:
        course = simulation.run()
    ended = len(course.history.trials)
    assert (course.state, 8 <= ended < 40) == ("finished", True)
    assert "and less than 2.00%" in course.history.end_reason
    rising = Simulation(SETTLING, lambda at: {"score": float(at.trial)})
    with rising as simulation:
        assert simulation.run().history.end_reason == "", "each setting is better than those before"


def test_what_was_settled_is_a_function_of_the_history() -> None:
    """In batches the end is the same for any number of slots, and a fold anew is equivalent."""
    spec, ends = {**SETTLING, "deterministic": {"batch": 4}}, []
    for slots in (1, 3):
        with Simulation(spec, settling, slots) as simulation:
            course = simulation.run()
        ends.append((course.history.end_reason, len(course.history.trials)))
        past, said = History(course.history.objective), []
        for record in course.records:
            past.extend([record])
            said.append(next(limits._check_settled(past, 0.02), ""))
        assert said[-1] == course.history.end_reason
    assert ends[0] == ends[1]


@pytest.mark.slow
def test_a_settled_sweep_goes_on_with_a_smaller_share(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"trials": 24, "scheduler": "fifo", "searcher": "random"}
    changes |= {"stop": {"training_iteration": 1}, "deterministic": {"batch": 4}}
    folder = sweeps.make(tmp_path, **changes, budget={"settled": 0.3})
    assert sweeps.run(folder) == "finished"
    before = sweeps.history(folder)
    assert before.end_reason.startswith("budget.settled: ")
    assert len(before.trials) < 24
    assert sweeps.run(folder, budget={"settled": 1e-9}) == "finished"
    assert len(sweeps.history(folder).trials) == 24


def test_every_resource_of_a_trial_counts(tmp_path: Path) -> None:
    budget = {"cpu_hours": 12 / 3600}
    with Simulation({**SPEC, "budget": budget, "resources": {"cpu": 2}}, curve) as simulation:
        assert spent(simulation.run())[0] == 6


def test_in_batches_the_end_is_the_same_however_many_slots_there_are() -> None:
    spec = {**SPEC, "budget": {"timesteps": 120}, "deterministic": {"batch": 2}}
    ends = []
    for slots in (1, 3):
        with Simulation(spec, curve, slots) as simulation:
            course = simulation.run()
        ends.append([(t.number, t.iteration, t.status) for t in course.history.trials])
    assert ends[0] == ends[1]
    assert [iteration for _, iteration, _ in ends[0]] == [5] * 4


@pytest.mark.slow
def test_a_sweep_that_is_given_more_goes_on_where_it_stood(tmp_path: Path) -> None:
    folder = sweeps.thin(tmp_path, budget={"timesteps": 120})
    assert sweeps.run(folder) == "finished"
    before = sweeps.history(folder)
    assert [trial.iteration for trial in before.trials] == [9, 3]
    assert before.trials[1].status is Status.PRUNED
    assert sweeps.run(folder) == "finished"
    assert [trial.iteration for trial in sweeps.history(folder).trials] == [9, 3]
    assert sweeps.run(folder, budget={"timesteps": 10_000}) == "finished"
    whole = sweeps.thin(tmp_path / "whole")
    sweeps.run(whole)
    assert sweeps.decisions(folder) == sweeps.decisions(whole)
    assert sweeps.history(folder).end_reason == ""


@pytest.mark.slow
def test_time_counts_over_all_drivers(tmp_path: Path) -> None:
    """Each step takes 50 ms; the second driver has what the first left."""
    folder = sweeps.thin(
        tmp_path, config={"step_s": 0.05}, stop={"training_iteration": 500}, budget={"time_s": 5.0}
    )
    assert sweeps.run(folder) == "finished"
    past = sweeps.history(folder)
    assert past.end_reason == "budget.time_s: 5 seconds are used up"
    assert 0 < past.trials[0].iteration <= 100
    assert sweeps.run(folder, budget={"time_s": 7.5}) == "finished"
    more = sweeps.history(folder)
    assert past.trials[0].iteration < more.trials[0].iteration <= 150
    assert more.spent_s >= 4.9


@pytest.mark.slow
def test_what_a_killed_driver_ran_since_its_last_event_counts(tmp_path: Path) -> None:
    """One slice of ten minutes: no event tells how long the driver has lived."""
    folder = driver_of_one_slice(tmp_path, lives_s=3.0)
    assert sweeps.history(folder).spent_s == 0.0
    assert sweeps.run(folder, budget={"time_s": 3.0}) == "finished"
    past = sweeps.history(folder)
    assert past.end_reason == "budget.time_s: 3 seconds are used up"
    assert past.spent_s >= 3.0
    (trial,) = past.trials
    assert trial.status is Status.PRUNED


@pytest.mark.slow
def test_who_mends_or_sends_after_a_kill_keeps_what_the_driver_ran(tmp_path: Path) -> None:
    folder = driver_of_one_slice(tmp_path, lives_s=1.0)
    lived = driven_at(folder)
    for _ in range(2):
        with hold.hold(folder, print):
            pass
    assert driven_at(folder) == lived
    began = sweeps.history(folder).began_at
    assert sweeps.run(folder, budget={"time_s": 1.0}) == "finished"
    assert sweeps.history(folder).spent_s >= lived - began


def test_time_in_which_trackers_take_the_rest_counts_no_more(tmp_path: Path) -> None:
    folder = sweeps.thin(tmp_path, trials=1)
    assert sweeps.run(folder) == "finished"
    past = sweeps.history(folder)
    assert past.unrecorded_s(past.began_at + 3600.0) == 0.0


def driver_of_one_slice(root: Path, lives_s: float) -> Folder:
    """Kill a driver whose only slice goes on, when its signs of life span so many seconds."""
    spec = write_spec(
        root, scheduler="fifo", trials=1, deterministic=None, config={"step_s": 600.0}
    )
    driver = start("run", spec, "--jobs", 1, cwd=root, start_new_session=True)
    folder = Folder(root / "sweeps", "demo")

    def has_lived() -> bool:
        assert driver.poll() is None, driver.communicate()
        if not folder.ledger.exists():
            return False
        past = sweeps.history(folder)
        return (
            bool(past.with_status(Status.RUNNING)) and driven_at(folder) - past.began_at >= lives_s
        )

    try:
        wait_until(has_lived)
    finally:
        driver.kill()
        driver.communicate()
    return folder


def driven_at(folder: Folder) -> float:
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return ledger.driven_at


def test_a_sweep_that_ends_before_its_first_trial_says_so_without_empty_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    spec = write_spec(tmp_path, scheduler="fifo", trials=2, deterministic=None)
    code, out, _ = here("run", spec, "--pool", "inline", "--set", "budget.time_s=1e-9")
    assert code == 0
    assert re.search(r"demo finished: 0 of 2 trials · \d+ s$", out, re.MULTILINE), out


def test_the_command_line_shows_the_reason_and_takes_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    spec = write_spec(
        tmp_path, scheduler="fifo", trials=2, deterministic=None, limits={"slice_s": 1e-9}
    )
    code, out, _ = here("run", spec, "--pool", "inline", "--set", "budget.timesteps=50")
    assert code == 0
    assert "budget.timesteps: 50 of 50 steps are used up" in out
    assert "sweep resume demo" in out
    code, _, err = here("resume", "demo", "--budget", "timestep=3")
    assert (code, "--budget: budget.timestep" in err, "did you mean 'timesteps'" in err) == (
        2,
        True,
        True,
    )
    for command in ("set", "resume"):
        code, _, err = here(command, "demo", "--budget", "foo")
        assert (code, err.strip().removeprefix("sweep: ")) == (
            2,
            "--budget foo: 'foo' is not allowed; "
            "expected key=value; for example --budget time_s=7200",
        )
        assert "--set" not in here(command, "demo", "--budget", "time_s=[")[2]
    assert here("set", "demo", "--budget", "timesteps=80")[0] == 0
    done = here.json("resume", "demo", "--pool", "inline")
    assert (done["steps"], done["why"][:22]) == (80, "budget.timesteps: 80 o")
    done = here.json("resume", "demo", "--pool", "inline", "--budget", "timesteps=null")
    assert (done["counts"], done["why"]) == ({"COMPLETED": 2}, "")


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("{min_delta: 1.0}", "budget.min_delta: has no effect without budget.patience; set budget"),
        ("{timesteps: 10}", "expected at least stop.timesteps_total: 100"),
        ("{time_s: 0}", "budget.time_s: 0 is not allowed; expected a value greater than 0"),
        ("{times_s: 1}", "did you mean 'time_s'"),
        ("{patience: 0}", "budget.patience: 0 is not allowed"),
        ("{settled: 0}", "budget.settled: 0 is not allowed; expected a value greater than 0"),
        ("{settled: 1}", "budget.settled: 1 is not allowed; expected a value less than 1"),
        ("{settled: .nan}", "budget.settled: '.nan' is not allowed; expected a finite number"),
        ("{settled: often}", "budget.settled: 'often' is not allowed; expected a number"),
        ("3", "budget: 3 is not allowed; expected a mapping"),
    ],
)
def test_a_budget_that_cannot_work_is_refused_with_its_place(budget: str, message: str) -> None:
    text = f"""
name: demo
trials: 1
trainable: ppo
metric: score
mode: max
space: {{lr: 0.1}}
stop: {{timesteps_total: 100}}
budget: {budget}
"""
    with pytest.raises(UsageError, match=r"^spec\.yaml:9: ") as error:
        specs.parse(text, "spec.yaml")
    assert message in str(error.value)


def test_an_old_history_has_no_budget() -> None:
    course = Simulation(SPEC, curve)
    with course as simulation:
        history: History = simulation.run().history
    assert (history.end_reason, len(history.with_status(Status.COMPLETED))) == ("", 10)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), min_size=1, max_size=30))
def test_patience_is_counted_by_number_in_whichever_order_trials_end(
    ended: list[tuple[int, int]],
) -> None:
    past = trials.history([trials.trial(number, Status.RUNNING) for number in range(10)], 10)
    tracker = BudgetTracker(specs.parse(SPEC_WITH_PATIENCE, "patient"), 0.0)
    for k, (number, score) in enumerate(ended, start=1):
        past.trials[number] = trials.trial(number, Status.COMPLETED, [float(score)])
        past.touch(number)
        past.k = k
        best, since = -math.inf, 0
        for trial in past.trials:
            if trial.score is not None:
                better = trial.score > best + (0.5 if math.isfinite(best) else 0.0)
                best, since = (trial.score, 0) if better else (best, since + 1)
        assert tracker.exhausted_part(past).startswith("budget.patience") == (since >= 3)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0)), max_size=30))
def test_what_was_spent_is_the_sum_rounded_once(changes: list[tuple[int, float]]) -> None:
    past = trials.history([trials.trial(number, Status.RUNNING) for number in range(5)], 5)
    for number, seconds in changes:
        past.trials[number].replicas[0].seconds = seconds
        past.touch(number)
        everyone = [trial.replicas[0].seconds for trial in past.trials]
        assert past.total(limits._trained_seconds) == stats.total(everyone)
