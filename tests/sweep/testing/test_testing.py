"""The simulated pool: its sweeps decide what real ones do, and can be killed anywhere."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sweep import schedulers
from sweep.core.errors import SweepError, UsageError, WorkerLost
from sweep.history.events import Closed, End, Goal, Status
from sweep.history.history import History
from sweep.ledger.ledger import Ledger
from sweep.schedulers import AddSeed, Exploit, NewTrial, Plan, Resume, Stop
from sweep.schedulers._shared import seeding
from sweep.searchers import Request, random
from sweep.spec.space import Settings
from sweep.testing import CurvePoint, Simulation, check_kills, simulate
from sweep.testing.simulation import decisions
from tests.support import sweeps
from tests.support.quadratic import expected_loss
from tests.support.schedulers import Options

#: The quadratic sweep of `tests.support.sweeps`, without noise, as it is simulated.
QUADRATIC: Mapping[str, Any] = {**sweeps.QUADRATIC, "config": {}}
ASHA: Mapping[str, Any] = {
    "trials": 9,
    "scheduler": "asha",
    "stop": {"training_iteration": 9},
}


def quadratic(at: CurvePoint) -> dict[str, Any]:
    return {"loss": expected_loss(at.config, at.iteration, seed=0)}


def climbing(at: CurvePoint) -> dict[str, Any]:
    """Trials differ in what they are worth, and in how long an iteration takes."""
    return {
        "score": (at.trial * 37) % 11 + at.iteration / 10,
        "time_this_iter_s": 1 + (at.trial * 7) % 5 / 3,
    }


def ends(records: Any) -> list[End]:
    return [r.event.end for r in records if isinstance(r.event, Closed)]


def test_a_simulated_sweep_decides_what_the_real_one_decides(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, config={})
    sweeps.run(folder)
    real = decisions(Ledger(folder.ledger).read())
    assert simulate(QUADRATIC, quadratic).decisions == real


def test_slices_arrive_in_the_order_of_simulated_time() -> None:
    seconds = [5.0, 1.0, 2.0]
    table = [[{"score": 0.0, "time_this_iter_s": s}] * 2 for s in seconds]
    course = simulate({"trials": 3, "scheduler": "fifo"}, table, slots=3)
    arrived = [r.event.trial for r in course.records if isinstance(r.event, Closed)]
    assert arrived == [1, 2, 0]
    assert course.seconds == 10.0


def test_a_table_ends_its_trials_where_its_rows_end() -> None:
    course = simulate({"trials": 2}, [[{"score": 1.0}], [{"score": 2.0}, {"score": 3.0}]])
    assert [t.score for t in course.history.trials] == [1.0, 3.0]
    assert [t.iteration for t in course.history.trials] == [1, 2]
    assert {t.status for t in course.history.trials} == {Status.COMPLETED}


def test_a_table_that_is_too_small_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match="no iteration 1 of trial 1; it has 1 trials"):
        simulate({"trials": 2}, [[{"score": 1.0}]])


def test_a_slice_ends_when_its_simulated_time_is_up_and_the_trial_goes_on() -> None:
    spec = {"stop": {"training_iteration": 10}, "limits": {"slice_s": 4.0}}
    course = simulate(spec, lambda at: {"score": float(at.iteration)})
    assert ends(course.records) == [End.TIME, End.TIME, End.DONE]
    assert [p.iteration for p in course.history.trials[0].leader.curve] == list(range(1, 11))


def test_what_cannot_save_runs_to_its_end_in_one_slice() -> None:
    spec = {"stop": {"training_iteration": 10}, "limits": {"slice_s": 4.0}}
    course = simulate(spec, lambda at: {"score": 0.0}, saves=False)
    assert ends(course.records) == [End.DONE]


def test_a_curve_that_raises_is_a_trial_that_crashes() -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        if at.trial == 1 and at.iteration == 3:
            raise RuntimeError("bad luck")
        return {"score": 1.0}

    course = simulate({"trials": 2, "stop": {"training_iteration": 4}}, curve)
    assert [t.status for t in course.history.trials] == [Status.COMPLETED, Status.FAILED]
    assert course.history.trials[1].iteration == 2
    assert "bad luck" in course.history.trials[1].reason


def test_a_curve_whose_worker_dies_is_retried_as_often_as_the_limits_say() -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        raise WorkerLost(-9, 1)

    course = simulate({"limits": {"max_failures": 2}}, curve)
    assert ends(course.records) == [End.LOST] * 3


def test_an_iteration_sees_the_result_before_it() -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        return {"score": at.before.get("score", 1.0) * 2}

    course = simulate({"stop": {"training_iteration": 5}, "limits": {"slice_s": 2.0}}, curve)
    assert course.history.trials[0].score == 32.0


@pytest.mark.slow
def test_a_sweep_that_is_killed_after_any_event_decides_the_same() -> None:
    straight = check_kills({**ASHA, "limits": {"slice_s": 2.5}}, climbing, slots=2)
    assert straight.kills == 0
    assert straight.history.with_status(Status.COMPLETED)


def test_kills_really_happen() -> None:
    straight = simulate(ASHA, climbing, slots=2)
    killed = simulate(ASHA, climbing, slots=2, kills=(8, 17, 31))
    assert killed.kills == 3
    assert killed.history.term == 4
    assert killed.seconds == straight.seconds
    assert ends(killed.records).count(End.INTERRUPTED) >= 3


def test_a_simulation_can_be_topped_up() -> None:
    with Simulation(ASHA, climbing, slots=2) as simulation:
        simulation.run()
        course = simulation.run(trials=12)
    assert len(course.history.trials) == 12


def test_a_sweep_without_an_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.testing.simulation.MOST_EVENTS", 30)
    with pytest.raises(Exception, match="has not ended after"):
        simulate({"limits": {"slice_s": 1.0}}, lambda at: {"score": 0.0})


@pytest.mark.slow
def test_the_examples_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs/testing-schedulers.md").read_text()
    first, own = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(first, "promotions.py", "exec"), {})  # noqa: S102 it is our own page
    assert "slice 4" in capsys.readouterr().out
    (tmp_path / "mine.py").write_text(own)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = {**ASHA, "trials": 4, "scheduler": {"name": "mine:Halves", "at": 3}}
    course = check_kills(spec, climbing, slots=2)
    assert sorted(trial.iteration for trial in course.history.trials) == [3, 3, 9, 9]
    course = simulate({**spec, "mode": "min", "trials": 5}, odd)
    assert [trial.iteration for trial in course.history.trials] == [9, 9, 3, 0, 3]


def odd(at: CurvePoint) -> dict[str, Any]:
    """Later trials have greater scores; 1 has its first one late, and 3 breaks off before any."""
    if at.trial == 3:
        raise ValueError("broken")
    return {"score": float(at.trial)} if at.trial != 1 or at.iteration > 5 else {}


OWN = {**ASHA, "trials": 3, "scheduler": "tests.support.schedulers:FirstPast"}


def test_a_scheduler_of_ones_own_is_named_by_its_path() -> None:
    course = check_kills({**OWN, "scheduler": {"name": OWN["scheduler"], "first": 3}}, climbing)
    assert sorted(trial.iteration for trial in course.history.trials) == [3, 3, 9]


def test_a_scheduler_that_keeps_something_is_caught() -> None:
    spec = {**OWN, "scheduler": "tests.support.schedulers:Forgetful"}
    with pytest.raises(AssertionError, match=r"killed after event \d+, decision \d+ became"):
        check_kills(spec, climbing)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "tests.support.schedulers:NoScheduler",
            "expected a subclass of sweep.schedulers.Scheduler",
        ),
        ("tests.support.schedulers:FirstPost", "did you mean 'FirstPast'"),
        ("tests.nowhere:Any", "no module 'tests.nowhere'"),
        (
            f"{__name__}:Planless",
            r":Planless' does not define plan; define it as sweep.schedulers.Scheduler",
        ),
        (
            f"{__name__}:Unsaid",
            r":Unsaid' does not define pauses; set pauses = True in its class if",
        ),
        (
            f"{__name__}:Greedy",
            r"plan\(\) of '.*:Greedy' requested 2 slots; expected at most the 1 ",
        ),
        (f"{__name__}:Endless", r"requested 1 new trials; expected at most 0, "),
        (f"{__name__}:Undecided", r"plan\(\) of '.*:Undecided' returned None; expected a sweep"),
    ],
)
def test_a_class_that_is_not_a_scheduler_is_refused(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        simulate({**OWN, "scheduler": name}, climbing)


class Planless(schedulers.Scheduler):
    """Forgot its verb."""

    Options: ClassVar[type[BaseModel]] = Options
    pauses = False


class Unsaid(schedulers.Scheduler):
    """Answers nothing, and does not say whether its trials wait."""

    Options: ClassVar[type[BaseModel]] = Options

    def plan(self, history: History, free: int) -> Any:
        return None


class Undecided(Unsaid):
    """Answers nothing."""

    pauses = False


class Greedy(Undecided):
    """Takes one more slot than there are."""

    def plan(self, history: History, free: int) -> Plan:
        return Plan(fresh=(NewTrial(Goal(), "another one"),) * (free + 1))


class Endless(Undecided):
    """Makes more trials than are wanted."""

    def plan(self, history: History, free: int) -> Plan:
        return Plan(fresh=(NewTrial(Goal(), "another one"),))


class Deciding(Undecided):
    """Starts one trial that pauses at 3, and then makes one decision."""

    decision: ClassVar[Stop | Resume | AddSeed | Exploit]
    pauses = True

    def plan(self, history: History, free: int) -> Plan:
        if not history.trials:
            return Plan(fresh=(NewTrial(Goal(3), "the first"),))
        if any(trial.milestones[1:] or trial.slices > 1 for trial in history.trials):
            return Plan()
        match self.decision:
            case Stop() as stop:
                return Plan(stop=(stop,))
            case Exploit() as child:
                return Plan(breed=(child,))
            case other:
                return seeding.plan_of([other])


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (Stop(0, Status.FAILED, ""), r"a Stop of trial 0 with status .* PRUNED or COMPLETED"),
        (Stop(1, Status.PRUNED, ""), "named trial 1; expected one of history.trials"),
        (Resume(-1, Goal(9), ""), "named trial -1; expected one of history.trials"),
        (Exploit(7, {"x": 0.5}, Goal(9), ""), "named trial 7; expected one of history.trials"),
        (
            AddSeed(0, 2, Goal(3), ""),
            "an AddSeed of trial 0 with index 2; expected the trial's next index, 1",
        ),
    ],
)
def test_a_decision_that_cannot_be_carried_out_is_refused_and_not_recorded(
    monkeypatch: pytest.MonkeyPatch, decision: Any, says: str
) -> None:
    monkeypatch.setattr(Deciding, "decision", decision, raising=False)
    with Simulation({**OWN, "trials": 1, "scheduler": f"{__name__}:Deciding"}, climbing) as one:
        for _ in range(2):  # so the ledger stays readable
            with pytest.raises(UsageError, match=says):
                one.run()


def test_a_scheduler_may_take_a_trial_for_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deciding, "decision", Stop(0, Status.COMPLETED, "enough"), raising=False)
    course = simulate({**OWN, "trials": 1, "scheduler": f"{__name__}:Deciding"}, climbing)
    (trial,) = course.history.trials
    assert (trial.status, trial.iteration, trial.reason) == (Status.COMPLETED, 3, "enough")


class Beyond(random.Searcher):
    """Answers with a point that it made by itself, out of the space."""

    def suggest(self, request: Request) -> Settings:
        return Settings({"x": 17.0}, {"x": 17.0})


class Lacking(random.Searcher):
    """Answers with a point that lacks its value."""

    def suggest(self, request: Request) -> Settings:
        return Settings({}, {})


class Forbids(random.Searcher):
    """Answers with a point that the space forbids."""

    def suggest(self, request: Request) -> Settings:
        return Settings({"x": 0.25}, {"x": 0.25})


class AsDict(random.Searcher):
    """Answers with a plain mapping."""

    def suggest(self, request: Request) -> Any:
        return {"x": 0.5}


def test_a_searcher_that_answers_with_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match=r"suggest\(\) of '.*:AsDict' returned {'x': 0.5}; exp"):
        simulate({**ASHA, "searcher": f"{__name__}:AsDict"}, climbing)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Beyond", "the searcher proposed 17.0 for x, which allows 0.0 to 1.0"),
        ("Lacking", r"suggest\(\) of '.*:Lacking' returned Settings.*; expected a value for x"),
    ],
)
def test_a_point_that_a_searcher_made_by_itself_belongs_to_the_space(name: str, says: str) -> None:
    with pytest.raises(SweepError, match=says):
        simulate({**ASHA, "searcher": f"{__name__}:{name}"}, climbing)
    forbid = {"searcher": f"{__name__}:Forbids", "forbid": [{"x": {"<": 0.5}}]}
    course = simulate({**ASHA, **forbid}, climbing)
    assert min(trial.searched["x"] for trial in course.history.trials) >= 0.5
