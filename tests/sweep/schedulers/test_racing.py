"""Racing: seeds are spent where they could still change who is best."""

from pathlib import Path
from typing import Any

import pytest

from sweep.history.curve import Point
from sweep.history.events import Goal, Opened, Status
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.schedulers import AddReplica, Plan, SchedulerContext, asha, fifo
from sweep.schedulers._shared import racing
from tests.support import sweeps, trials

PAUSED, COMPLETED, RUNNING = Status.PAUSED, Status.COMPLETED, Status.RUNNING


def raced(seeds: int = 3) -> racing.Scheduler:
    return racing.Scheduler(fifo.Scheduler(fifo.Options(), SchedulerContext()), seeds)


def rungs(seeds: int = 3) -> racing.Scheduler:
    return racing.Scheduler(asha.Scheduler(asha.Options(max_t=9), SchedulerContext()), seeds)


def group(number: int, *scores: float, status: Status = COMPLETED) -> Trial:
    """A trial whose seeds stand at iteration 1 with these scores."""
    made = trials.trial(number, status, scores[:1])
    for index, score in enumerate(scores[1:], start=1):
        replica = trials.trial(number, status, [score]).replicas[0]
        replica.index = index
        made.replicas.append(replica)
    for replica in made.replicas:
        replica.goal = Goal(1, top=9) if status is PAUSED else Goal()
    return made


def seeds_of(plan: Plan) -> list[tuple[int, int]]:
    return [(seed.trial, seed.replica) for seed in plan.seeds]


def plan(scheduler: racing.Scheduler, *groups: Trial, free: int = 8) -> Plan:
    return scheduler.plan(trials.history(groups, wanted=len(groups)), free)


# ---- the rule -------------------------------------------------------------------------------


def test_the_best_gets_all_its_seeds_before_any_other_gets_one() -> None:
    three = [group(0, 1.0), group(1, 5.0), group(2, 4.9)]
    assert seeds_of(plan(raced(), *three)) == [(1, 1), (1, 2)]
    assert seeds_of(plan(raced(), *three, free=1)) == [(1, 1)]


def test_who_is_too_far_behind_gets_no_seed_and_who_is_close_gets_one() -> None:
    """Spread 1, two degrees: t(0.95) is 2.92; one seed against three reaches 2.92 * sqrt(4/3)."""
    best = group(0, 9.0, 10.0, 11.0)
    near, far = group(1, 10.0 - 3.37), group(2, 10.0 - 3.38)
    (seed,) = plan(raced(), best, near, far).seeds
    assert (seed.trial, seed.replica, seed.goal) == (1, 1, Goal())
    assert seed.evidence["reach"] == pytest.approx(2.92 * (4 / 3) ** 0.5, abs=1e-2)
    assert (seed.evidence["spread"], seed.evidence["freedom"]) == (pytest.approx(1.0), 2)
    assert (seed.evidence["incumbent"], seed.evidence["best"]) == (0, 10.0)
    assert "chance explains 3.37" in seed.why


def test_the_spread_is_pooled_over_all_that_have_several_seeds() -> None:
    best, other = group(0, 9.0, 10.0, 11.0), group(1, -3.0, 0.0, 3.0)
    (seed,) = plan(raced(), best, other, group(2, 6.0)).seeds
    assert seed.evidence["freedom"] == 4
    assert seed.evidence["spread"] == pytest.approx(((2 + 18) / 4) ** 0.5)


def test_nobody_gets_more_seeds_than_there_are_replicas() -> None:
    assert seeds_of(plan(raced(), group(0, 1.0, 3.0, 2.0), group(1, 1.0, 2.9, 2.0))) == []


def test_without_any_spread_a_tie_is_still_raced_and_a_worse_one_is_not() -> None:
    three = [group(0, 2.0, 2.0, 2.0), group(1, 2.0), group(2, 1.999)]
    assert seeds_of(plan(raced(), *three)) == [(1, 1)]


def test_where_less_is_better_the_least_is_the_best() -> None:
    made = [trials.trial(n, COMPLETED, [value], mode="min") for n, value in enumerate([3.0, 1.0])]
    history = trials.history(made, wanted=2, mode="min")
    assert seeds_of(raced().plan(history, 8)) == [(1, 1), (1, 2)]


def test_failed_and_stopped_trials_do_not_race() -> None:
    failed, stopped = group(0, 9.0, status=Status.FAILED), group(1, 8.0, status=Status.STOPPED)
    assert seeds_of(plan(raced(), failed, stopped, group(2, 1.0))) == [(2, 1), (2, 2)]


# ---- within a scheduler ---------------------------------------------------------------------


def test_nobody_at_a_rung_is_promoted_while_its_best_is_short_of_seeds() -> None:
    best = group(0, 5.0, status=PAUSED)
    others = [group(n, 1.0 - n, status=PAUSED) for n in (1, 2)]
    first = plan(rungs(), best, *others)
    assert (seeds_of(first), first.resume) == ([(0, 1), (0, 2)], ())
    joining = [Replica(0, i, best.objective, status=RUNNING, joined_at=Goal(1)) for i in (1, 2)]
    best.replicas += joining
    assert best.score == 5.0
    assert plan(rungs(), best, *others) == Plan()


def test_who_is_out_of_the_race_can_be_promoted_while_others_race() -> None:
    """Six at the rung, two may go up: the best, and the second though it has one seed."""
    best = group(0, 4.99, 5.0, 5.01, status=PAUSED)
    second = group(1, 3.0, status=PAUSED)
    rest = [group(n, -float(n), status=PAUSED) for n in (2, 3, 4, 5)]
    made = plan(rungs(), best, second, *rest)
    assert ([resume.trial for resume in made.resume], made.seeds) == ([0, 1], ())


def test_who_is_given_a_seed_is_not_sent_on_without_it() -> None:
    options = asha.Options(max_t=9, type="stopping")
    scheduler = racing.Scheduler(asha.Scheduler(options, SchedulerContext()), 3)
    best, near = group(0, 9.0, 10.0, 11.0, status=PAUSED), group(1, 9.5, status=PAUSED)
    found = plan(scheduler, best, near)
    assert seeds_of(found) == [(1, 1)]
    assert [resume.trial for resume in found.resume] == [0]


def test_a_seed_that_catches_up_does_not_count_until_it_is_there() -> None:
    trial = group(0, 5.0, status=PAUSED)
    joining = Replica(0, 1, trial.objective, status=RUNNING, joined_at=Goal(1))
    trial.replicas.append(joining)
    assert (trial.status, trial.reached(1), trial.score, trial.iteration) == (RUNNING, True, 5.0, 1)
    joining.curve = group(0, 7.0).replicas[0].curve
    joining.status = PAUSED
    assert (trial.status, trial.score) == (PAUSED, 6.0)


def test_a_race_at_another_level_looks_at_no_trial_of_the_first_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = [group(n, -float(n), status=PAUSED) for n in range(60)]
    many[0] = group(0, 4.99, 5.0, 5.01, status=PAUSED)
    history = trials.history([group(0, 5.0, status=PAUSED), *many[1:]], wanted=60)
    scheduler = rungs()
    assert seeds_of(scheduler.plan(history, 1)) == [(0, 1)]  # who rests at the level is known
    looked, rests = list[float](), racing._rests_at

    def counted(trial: Trial, level: float) -> bool:
        looked.append(level)
        return rests(trial, level)

    def goes(to: Trial) -> Plan:
        history.trials[to.number] = to
        history.touch(to.number)
        looked.clear()
        return scheduler.plan(history, 1)

    monkeypatch.setattr(racing, "_rests_at", counted)
    goes(many[0])  # who can be given a seed there is known
    assert len(looked) > 60
    for seeds in (1, 3):  # a race that is open at the next level, and one that is not
        ahead = group(1, *[9.0 + seed for seed in range(seeds)], status=PAUSED)
        for replica in ahead.replicas:
            replica.goal = Goal(3, top=9)
            replica.curve = [Point(at, float(at), replica.curve[0].value) for at in (1, 2, 3)]
        goes(ahead)
        assert 3 in looked
        assert len(looked) < 20


# ---- whole sweeps ---------------------------------------------------------------------------

RACING: dict[str, Any] = {
    "replicas": 3,
    "racing": True,
    "searcher": "random",
    "config": {"noise": 0.01},
}


def steps(folder: Folder) -> int:
    return sum(r.iteration for r in sweeps.history(folder).replicas(*Status))


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["fifo", "asha"])
def test_a_clear_winner_is_found_with_fewer_steps_and_has_all_its_seeds(
    tmp_path: Path, scheduler: str
) -> None:
    changes = {**RACING, "scheduler": scheduler, "trials": 9}
    race = sweeps.make(tmp_path / "race", **changes)
    full = sweeps.make(tmp_path / "full", **{**changes, "racing": False})
    assert (sweeps.run(race), sweeps.run(full)) == ("finished", "finished")
    winners = [sweeps.history(folder).ranked()[0] for folder in (race, full)]
    assert winners[0].number == winners[1].number
    assert winners[0].score == winners[1].score
    assert len(winners[0].replicas) == 3
    assert steps(race) < 0.8 * steps(full)


@pytest.mark.slow
def test_a_race_that_is_killed_after_every_event_equals_the_uninterrupted_one(
    tmp_path: Path,
) -> None:
    changes = {**RACING, "trials": 5, "stop": {"training_iteration": 3}, "config": {"noise": 2.0}}
    whole, cut = (sweeps.make(tmp_path / name, **changes) for name in ("a", "b"))
    sweeps.drive(whole)
    killed = 0
    while sweeps.drive(cut, 1 + killed % 3) == "killed":
        killed += 1
    assert killed > 10
    assert sweeps.decisions(cut) == sweeps.decisions(whole)
    assert decided(cut) == decided(whole)
    assert any(len(trial.replicas) > 1 for trial in sweeps.history(whole).trials)


def decided(folder: Folder) -> list[tuple[int, int, str, str]]:
    """Seed by seed, why it was added, and by which numbers."""
    events = [record.event for record in Ledger(folder.ledger).read()]
    added = [e for e in events if isinstance(e, Opened) and e.replica and not e.slice]
    return [(e.trial, e.replica, e.why, str(e.evidence)) for e in added]


def test_a_race_tells_the_ledger_why_each_seed_was_added(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, **{**RACING, "scheduler": "fifo", "trials": 4})
    sweeps.run(folder)
    reasons = [why for _, _, why, _ in decided(folder)]
    assert reasons
    assert all(why.startswith("at the end: it ") for why in reasons)


def test_the_history_alone_decides(tmp_path: Path) -> None:
    """Planning twice on what was read from the ledger gives the same, and changes nothing."""
    folder = sweeps.make(tmp_path, **RACING)
    sweeps.run(folder)
    past: History = sweeps.history(folder)
    before = [trial.status for trial in past.trials]
    plans = [rungs(5).plan(past, 8) for _ in range(2)]
    assert plans[0] == plans[1]
    assert all(isinstance(seed, AddReplica) for seed in plans[0].seeds)
    assert [trial.status for trial in past.trials] == before
