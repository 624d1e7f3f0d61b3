"""Decisions on a person's request: a function of the request and the history.

A request that cannot be granted as a whole changes nothing. Trials that wait are moved in the same
transaction as the answer; those that run are asked, through a file that their slices look for, to
save and end, and are moved when they have.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweep.driver.decisions import topped_up
from sweep.driver.limits import check_changed
from sweep.driver.proposals import Proposer
from sweep.errors import UsageError
from sweep.history import order
from sweep.history.events import (
    FINISHED,
    Changed,
    Event,
    HoldChanged,
    Moved,
    Status,
    Suspended,
    UserHold,
)
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.ledger.requests import Answer, Request, Verb
from sweep.spec.sections import in_words
from sweep.views import overview

STOPPED = "stopped by a person"


@dataclass(frozen=True)
class Response:
    """The events to record, and the driver's actions after that."""

    answer: Answer
    events: tuple[Event, ...] = ()
    asked: tuple[int, ...] = ()
    """Trials whose slices shall save and end."""
    let_go: tuple[int, ...] = ()
    """Trials whose slices need not any more."""
    leave: bool = False
    """True if the driver shall end as after Ctrl-C."""
    jobs: int | None = None
    """Slots that the pool shall have."""


@dataclass(frozen=True)
class RequestHandler:
    """The parts by which requests are decided."""

    history: History
    proposer: Proposer | None = None
    """The maker of clones; None where none are made."""
    saves: bool = True
    """True if the trainable can be paused."""
    driven: bool = True
    """True if a driver runs."""
    resized: Callable[[int], tuple[int, str]] = lambda jobs: (jobs, f"{jobs} at once")
    """Function of the number of slots asked for: the number the pool gets, and that in words."""

    def decide(self, request: Request) -> Response:
        """Return the response to `request`; a refused one is answered with the reason."""
        try:
            answer: Callable[[Request], Response] = getattr(self, request.verb)
            return answer(request)
        except UsageError as error:
            return Response(Answer(False, str(error)))

    # ---- one for each `Verb`, by its name -----------------------------------------------

    def stop(self, request: Request) -> Response:
        """End trials, or the driver's term."""
        if not (numbers := _numbers(request)):
            self._check_term(request)
            again = "resume" if self.history.final_evaluation is None else "best --test-seeds"
            text = f"slices save and end; go on with `sweep {again}`"
            return Response(Answer(True, text), leave=True)
        trials = [self._open_trial(number) for number in numbers]
        return self._hold(trials, UserHold.STOP, "stopped", _stopped(trials))

    def pause(self, request: Request) -> Response:
        """Hold trials, or all of them."""
        if not self.saves:
            raise UsageError(
                "pause: the trainable has no save_checkpoint(); stop the trial instead"
            )
        if not (numbers := _numbers(request)):
            self._check_term(request)
            text = "nothing new begins, and slices save and end; `sweep unpause` goes on"
            return Response(Answer(True, text), (Suspended(True),))
        trials = [self._open_trial(number) for number in numbers]
        for trial in trials:
            if trial.held:
                raise UsageError(f"trial {trial.number} is already held ({trial.held.value})")
        return self._hold(trials, UserHold.PAUSE, "paused")

    def unpause(self, request: Request) -> Response:
        """Let held trials go, or the whole sweep."""
        if not (numbers := _numbers(request)):
            self._check_term(request)
            if not self.history.suspended:
                raise UsageError("unpause: the sweep is not paused; name the paused trials")
            return Response(Answer(True, "it goes on"), (Suspended(False),))
        for number in numbers:
            if self._trial(number).held is not UserHold.PAUSE:  # an ended one may be held, too
                raise UsageError(f"trial {number} is not paused; `sweep status` lists the trials")
        events: list[Event] = [HoldChanged(number, UserHold.NONE) for number in numbers]
        events += topped_up(self.history)
        return Response(
            Answer(True, f"{_listed(numbers)} let go", numbers), tuple(events), let_go=numbers
        )

    def clone(self, request: Request) -> Response:
        """Make a trial with the settings of another, some of them changed."""
        (number,) = _numbers(request)
        body, parent = request.body, self._trial(number)
        if self.proposer is None:
            raise UsageError(
                "clone: this driver cannot create trials; clone when the search is running"
            )
        made = self.proposer.clone(
            self.history, parent, body.get("settings", {}), body.get("from_checkpoint", False)
        )
        text = f"trial {made.trial} is a clone of {number}; it takes the next free place"
        return Response(Answer(True, text, (made.trial,)), (made, *topped_up(self.history)))

    def set(self, request: Request) -> Response:
        """Give the sweep another end, or the pool another size."""
        trials, jobs = request.body.get("trials"), request.body.get("jobs")
        if trials is not None and trials < self.history.searched:
            raise UsageError(
                f"--trials: {trials} is less than the {self.history.searched} trials that exist; "
                f"it is the total number of trials"
            )
        changes: list[str] = []
        events: list[Event] = []
        budget, max_disk = request.body.get("budget", {}), request.body.get("max_disk")
        check_changed(self.history, budget)
        if trials is not None:
            changes.append(f"{trials} trials in all")
        changes += [f"budget.{key}: {json.dumps(value)}" for key, value in budget.items()]
        if max_disk is not None:
            changes.append(f"checkpoints of {in_words(max_disk)} at most")
        if changes:
            events += topped_up(self.history)
        if jobs is not None:
            self._check_term(request)
            jobs, said = self.resized(jobs)
            changes.append(said)
        events.append(Changed(trials, budget, max_disk, jobs))
        return Response(Answer(True, ", ".join(changes)), tuple(events), jobs=jobs)

    # ---- parts --------------------------------------------------------------------------

    def _hold(
        self, trials: Sequence[Trial], hold: UserHold, done: str, moves: Sequence[Moved] = ()
    ) -> Response:
        running = tuple(t.number for t in trials if t.status is Status.RUNNING)
        numbers = tuple(trial.number for trial in trials)
        held = [HoldChanged(number, hold) for number in numbers]
        text = f"{_listed(numbers)} {done}"
        if running:
            text += f"; {_listed(running)} at the next checkpoint"
        return Response(Answer(True, text, numbers), (*held, *moves), asked=running)

    def _trial(self, number: int) -> Trial:
        return overview.find_trial(self.history, "the sweep", number)

    def _open_trial(self, number: int) -> Trial:
        trial = self._trial(number)
        if trial.status in FINISHED:
            raise UsageError(
                f"trial {number} has ended ({trial.status}); `sweep clone` runs a copy of it"
            )
        return trial

    def _check_term(self, request: Request) -> None:
        """Refuse what is about a driver's term if that driver has gone."""
        if request.term != self.history.term or not self.driven:
            raise UsageError(
                f"{request.verb}: no driver is running, so only single trials can be changed; "
                f"name a trial"
            )


def changed_before(
    history: History, requests: Sequence[Request]
) -> tuple[list[Changed], dict[int, Answer]]:
    """Return the changes by earlier requests of `sweep set`, which a driver's own options follow.

    Returns:
        The changes, to be recorded before the newer word, and the answers by request; what was
        pruned by the end is not brought back yet.
    """
    handler = RequestHandler(history, driven=False)
    decided = {r.number: handler.decide(r) for r in requests if r.verb is Verb.SET}
    events = [event for decision in decided.values() for event in decision.events]
    changes = [event for event in events if isinstance(event, Changed)]
    return changes, {number: decision.answer for number, decision in decided.items()}


def settled(history: History) -> list[Moved]:
    """Return the moves of trials that were to be stopped and run no more."""
    held = history.ordered(order.held)
    return _stopped([trial for trial in held if trial.held is UserHold.STOP])


def _stopped(trials: Sequence[Trial]) -> list[Moved]:
    return [
        Moved(trial.number, Status.STOPPED, STOPPED, replica.index)
        for trial in trials
        for replica in trial.replicas
        if replica.status in (Status.WAITING, Status.PAUSED)
    ]


def _numbers(request: Request) -> tuple[int, ...]:
    return tuple(dict.fromkeys(request.body.get("trials_named", ())))


def _listed(numbers: Sequence[int]) -> str:
    word = "trial" if len(numbers) == 1 else "trials"
    return f"{word} {', '.join(map(str, numbers))}"
