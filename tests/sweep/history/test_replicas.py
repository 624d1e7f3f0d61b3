"""Trials under several seeds, and trials that are bred from others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sweep import schedulers
from sweep.driver import decisions
from sweep.driver.proposals import Proposer
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Moved,
    Opened,
    Row,
    Status,
    group_status,
)
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.schedulers import Exploit, Plan, Resume, Stop, fifo
from sweep.spec.objective import Aggregate, Kind
from sweep.testing import CurvePoint, check_kills
from tests.support import sweeps
from tests.support.quadratic import expected_loss
from trainables.core import rng


class Breeder(schedulers.Scheduler):
    """Two trials run to 3; the worse one makes room for a child of the better one, which ends."""

    Options: ClassVar[type[BaseModel]] = fifo.Options
    pauses = True
    time_attr = "training_iteration"
    levels: tuple[float, ...] = (3.0, 6.0)

    def __init__(self) -> None:
        pass

    def plan(self, history: History, free: int) -> Plan:
        if history.uncreated_trials:
            fresh = schedulers.NewTrial(Goal(3.0, top=6.0), "it begins", {"slots": free})
            return Plan(fresh=(fresh,) * min(free, history.uncreated_trials))
        paused = history.with_status(Status.PAUSED)
        if len(paused) < 2 or history.with_status(Status.RUNNING):
            return Plan()
        best, worst = history.ranked(paused)
        searched = {**best.searched, "lr": best.searched["lr"] / 2}
        evidence = {"best": best.score, "worst": worst.score}
        goal = Goal(6.0, top=6.0)
        return Plan(
            stop=(Stop(worst.number, Status.PRUNED, "it was the worse one", evidence),),
            breed=(Exploit(best.number, searched, goal, "it was the better one", evidence),),
        )


def drive(folder: Folder, kill_at: int | None = None) -> str:
    """Run with the breeder."""
    return sweeps.drive(folder, kill_at, Breeder())


@pytest.fixture
def pair(tmp_path: Path) -> Folder:
    return sweeps.make(tmp_path, scheduler="fifo", trials=2, stop=None, searcher="random")


def test_a_bred_trial_goes_on_from_its_parents_checkpoint_with_its_own_settings(
    pair: Folder,
) -> None:
    assert drive(pair) == "finished"
    past = sweeps.history(pair)
    child = past.trials[2]
    parent = past.trials[child.parent or 0]
    assert (child.parent, past.searched_count) == (parent.number, 2)
    assert child.config["lr"] == parent.config["lr"] / 2
    assert [point.iteration for point in child.replicas[0].curve] == [4, 5, 6]
    seed = rng.integer(7, "trial", parent.number, 0)
    assert sweeps.curve(pair, child.number)[0].metrics["x"] == _fourth(parent.config, child, seed)
    assert child.status is Status.COMPLETED


def _fourth(config: Mapping[str, Any], child: Any, seed: int) -> float:
    """Three steps with the parent's settings and one with the child's, on one stream."""
    stream, x = rng.generator(seed, "noise"), 5.0
    for lr in (config["lr"],) * 3 + (child.config["lr"],):
        x -= lr * (2.0 * (x - 3.0) + 0.1 * stream.standard_normal())
    return float(x)


def test_a_bred_trials_decisions_stand_in_the_ledger_with_their_numbers(pair: Folder) -> None:
    drive(pair)
    events = [record.event for record in Ledger(pair.ledger).read()]
    stops = [e for e in events if isinstance(e, Moved) and e.status is Status.PRUNED]
    bred = [e for e in events if isinstance(e, Opened) and e.trial == 2]
    assert stops[0].evidence == bred[0].evidence
    assert stops[0].evidence.keys() == {"best", "worst"}


@pytest.mark.parametrize("kill_at", range(1, 6))
def test_a_sweep_with_children_that_is_killed_anywhere_equals_the_uninterrupted_one(
    tmp_path: Path, kill_at: int
) -> None:
    options = {"scheduler": "fifo", "trials": 2, "stop": None, "searcher": "random"}
    whole, cut = sweeps.make(tmp_path / "a", **options), sweeps.make(tmp_path / "b", **options)
    drive(whole)
    drive(cut, kill_at)
    assert drive(cut) == "finished"
    assert sweeps.decisions(cut) == sweeps.decisions(whole)


@pytest.mark.slow
def test_the_parents_checkpoint_is_kept_while_a_child_may_need_it(pair: Folder) -> None:
    """Stopped before the child has saved: its beginning must still be there."""
    drive(pair, kill_at=4)
    past = sweeps.history(pair)
    birth = past.trials[2].replicas[0].birth
    assert birth is not None
    assert birth.saved.digest in past.trials[birth.trial].replicas[0].checkpoints
    assert (pair.trial(birth.trial) / birth.saved.file).exists()


def test_offspring_with_a_damaged_checkpoint_fails_instead_of_starting_from_scratch(
    pair: Folder,
) -> None:
    drive(pair, kill_at=4)
    past = sweeps.history(pair)
    birth = past.trials[2].replicas[0].birth
    assert birth is not None
    assert not past.trials[2].replicas[0].curve
    (pair.trial(birth.trial) / birth.saved.file).write_bytes(b"torn")
    drive(pair)
    child = sweeps.history(pair).trials[2]
    assert child.status is Status.FAILED
    assert not child.replicas[0].curve


def test_each_replica_has_a_seed_of_its_own_and_the_trial_their_mean(tmp_path: Path) -> None:
    stop = {"training_iteration": 2}
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=2, stop=stop, seeds=3)
    assert sweeps.run(folder, slots=2) == "finished"
    for trial in sweeps.history(folder).trials:
        seeds = [rng.integer(7, "trial", trial.number, replica) for replica in range(3)]
        losses = [expected_loss(trial.config, 2, seed) for seed in seeds]
        assert [replica.score_at() for replica in trial.replicas] == losses
        assert trial.score == pytest.approx(sum(losses) / 3)
        assert trial.status is Status.COMPLETED
        assert len({folder.trial(trial.number, replica) for replica in range(3)}) == 3


def test_when_one_seed_fails_the_trial_has_failed_and_the_others_stop(tmp_path: Path) -> None:
    folder = sweeps.make(
        tmp_path,
        scheduler="asha",
        trials=2,
        config={"noise": 0.1, "fail_at": 2},
        deterministic=None,
        seeds=2,
    )
    sweeps.run(folder)
    for trial in sweeps.history(folder).with_status(Status.FAILED):
        assert {replica.status for replica in trial.replicas} <= {Status.FAILED, Status.STOPPED}


def test_a_seed_that_is_already_there_is_not_sent_with_the_others(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler="asha", seeds=2, deterministic=None)
    config, goal = {"lr": 0.1}, Goal(3)
    ends = [
        Closed(0, seed, 0, End.GOAL, Status.PAUSED, "", rows=rows_to(iterations))
        for seed, iterations in ((0, 1), (1, 3))
    ]
    begun = [Opened(0, seed, 0, goal, "") for seed in (0, 1)]
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        history = parts.history
        told: list[Event] = [Created(0, config, config, 0, 2), *begun, *ends]
        history.extend(parts.ledger.append(history.term, told))
        proposer = Proposer(
            parts.spec, parts.searcher, parts.scheduler.levels, parts.complete_settings
        )
        events, _ = decisions.plan_events(Plan(resume=(Resume(0, goal, ""),)), history, proposer)
    assert [event.replica for event in events if isinstance(event, Opened)] == [0]


def rows_to(iterations: int) -> tuple[Row, ...]:
    return tuple(Row(k, {"loss": 1.0, "training_iteration": k}) for k in range(1, iterations + 1))


def test_a_promotion_with_several_seeds_is_the_same_under_any_kill() -> None:
    """Six slices for two slots: those that wait for one are begun in their order."""

    def curve(at: CurvePoint) -> dict[str, float]:
        value = (at.trial * 37 + at.seed_index * 5) % 11 + at.iteration / 10
        return {"score": value, "time_this_iter_s": 1 + (at.trial * 7 + at.seed_index) % 5 / 3}

    asha = {"name": "asha", "reduction_factor": 2}
    spec = {"trials": 3, "stop": {"training_iteration": 2}, "scheduler": asha, "seeds": 3}
    course = check_kills(spec, curve, slots=2)
    completed = course.history.with_status(Status.COMPLETED)
    assert course.history.ranked()[0] in completed
    assert {replica.iteration for trial in completed for replica in trial.replicas} == {2}


@pytest.mark.parametrize(
    ("statuses", "group"),
    [
        ("WAITING WAITING", "WAITING"),
        ("WAITING PAUSED", "PAUSED"),
        ("RUNNING FAILED", "RUNNING"),
        ("PAUSED COMPLETED", "PAUSED"),
        ("FAILED STOPPED", "FAILED"),
        ("COMPLETED COMPLETED", "COMPLETED"),
        ("COMPLETED PRUNED", "PRUNED"),
        ("COMPLETED STOPPED", "STOPPED"),
    ],
)
def test_the_status_of_a_trial_follows_from_those_of_its_seeds(statuses: str, group: str) -> None:
    assert group_status([Status(name) for name in statuses.split()]) is Status(group)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("mean", 4.0), ("median", 3.0), ("worst", 1.0), ("iqm", (0.75 * 2 + 3 + 0.75 * 4) / 2.5)],
)
def test_each_aggregate_of_several_scores_has_its_value(kind: Kind, expected: float) -> None:
    values = [10.0, 1.0, 3.0, 2.0, 4.0]
    aggregate = Aggregate(kind=kind)
    assert aggregate.combine(values, "max") == pytest.approx(expected)
    assert aggregate.combine([values[0]], "max") == 10.0
    if kind == "worst":
        assert aggregate.combine(values, "min") == 10.0


def test_a_lower_bound_is_students_and_an_upper_one_where_less_is_better() -> None:
    """Mean 3, standard deviation 1.581, t(0.9, 4 degrees) 1.533, as tables have it."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    bound = Aggregate(kind="lower_bound", level=0.9)
    assert bound.combine(values, "max") == pytest.approx(3 - 1.533 * 1.5811 / 5**0.5, abs=1e-3)
    assert bound.combine(values, "min") == pytest.approx(3 + 1.533 * 1.5811 / 5**0.5, abs=1e-3)
    assert bound.combine([2.0, 2.0], "max") == 2.0
