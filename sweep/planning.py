"""A scheduler's plan as events: trials that end, trials that are made, slices that are opened.

A clone that waits takes the place of the first new trial that the scheduler wants.
"""

from sweep.events import FINISHED, Event, Goal, Moved, Opened
from sweep.history import History, Replica, Trial
from sweep.proposals import Proposer
from sweep.schedulers import Breed, Fresh, Plan, Resume, Stop


def follow(plan: Plan, history: History, proposer: Proposer) -> tuple[list[Event], bool]:
    """The events of one transaction, and whether the space had fewer points than were wanted."""
    trials = history.trials
    begun = [*zip(history.waiting, plan.fresh, strict=False)]
    searched, exhausted = proposer.search(history, plan.fresh[len(begun) :])
    bred = proposer.breed(history, plan.breed, len(trials) + len(searched))
    moves = [moved for stop in plan.stop for moved in _stopped(trials[stop.trial], stop)]
    opened = [
        _opened(replica, resume)
        for resume in plan.resume
        for replica in trials[resume.trial].replicas
        if replica.status not in FINISHED and not _is_there(replica, resume.goal)
    ]
    opened += [
        Opened(more.trial, more.replica, 0, more.goal, more.why, more.evidence)
        for more in plan.seeds
    ]
    opened += [_begun(replica, fresh) for trial, fresh in begun for replica in trial.replicas]
    new: list[Fresh | Breed] = [*plan.fresh[len(begun) :][: len(searched)], *plan.breed]
    opened += [
        Opened(event.trial, index, 0, decision.goal, decision.why, decision.evidence)
        for event, decision in zip([*searched, *bred], new, strict=True)
        for index in range(event.replicas)
    ]
    return [*moves, *searched, *bred, *opened, *exhausted], bool(exhausted)


def _begun(replica: Replica, fresh: Fresh) -> Opened:
    why = f"a clone takes the place of a new trial: {fresh.why}"
    return Opened(replica.trial, replica.index, 0, fresh.goal, why, fresh.evidence)


def _is_there(replica: Replica, goal: Goal) -> bool:
    """Whether one seed is already where the others of its trial are sent."""
    return goal.at is not None and replica.reached(goal.at)


def _opened(replica: Replica, decision: Resume) -> Opened:
    goal, why, evidence = decision.goal, decision.why, decision.evidence
    return Opened(replica.trial, replica.index, replica.slices, goal, why, evidence)


def _stopped(trial: Trial, stop: Stop) -> list[Moved]:
    return [
        Moved(trial.number, stop.status, stop.why, replica.index, evidence=stop.evidence)
        for replica in trial.replicas
        if replica.status not in FINISHED
    ]
