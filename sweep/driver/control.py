"""Decisions on users' requests: a function of the request and the history.

A request that cannot be fulfilled completely changes nothing. Waiting trials are changed in the
same transaction as the answer. A stop file makes running trials save and end, and they are
changed when they have ended.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sweep.core.errors import Place, Source, UsageError
from sweep.driver.decisions import topped_up_moves
from sweep.driver.limits import check_changed
from sweep.driver.proposals import Proposer
from sweep.history import order
from sweep.history.events import (
    FINISHED,
    Event,
    HoldChanged,
    LimitsChanged,
    Moved,
    Status,
    Suggested,
    Suspended,
    UserHold,
)
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.ledger.requests import Answer, Request, Verb
from sweep.searchers import SearcherOptions
from sweep.spec.sections import size_text
from sweep.spec.space import Space, initial
from sweep.spec.space.domains import written
from sweep.views import formatting, overview

STOPPED = "stopped by a person"


@dataclass(frozen=True)
class Response:
    """The events to record, and what the driver does afterwards."""

    answer: Answer
    """Answer to the request, for the process that sent it."""
    events: tuple[Event, ...] = ()
    """Events that the driver writes to the ledger together with the answer."""
    stopping_trials: tuple[int, ...] = ()
    """Trials whose slices have to save and end."""
    released: tuple[int, ...] = ()
    """Trials that may continue: their stop files are removed."""
    ends_driver: bool = False
    """True if the driver has to end as after Ctrl-C."""
    jobs: int | None = None
    """New number of slots of the pool, or None."""


@dataclass(frozen=True)
class RequestHandler:
    """Decides on requests, given the history and parts of the driver."""

    history: History
    """History so far."""
    proposer: Proposer | None = None
    """Creator of clones; None if this driver creates none."""
    saves: bool = True
    """True if the trainable can be paused."""
    driven: bool = True
    """True if a driver runs."""
    space: Space | None = None
    """Space that suggestions are checked against; None if no suggestions are accepted."""
    options: SearcherOptions = field(default_factory=SearcherOptions)
    """Options of the searcher, which limit how many trials can follow suggestions."""
    resized: Callable[[int], tuple[int, str]] = lambda jobs: (jobs, f"{jobs} at once")
    """Function of the requested number of slots; returns the number that the pool gets, and a text.
    """

    def decide(self, request: Request) -> Response:
        """Return the response to `request`; a refusal contains the reason."""
        try:
            answer: Callable[[Request], Response] = getattr(self, request.verb)
            return answer(request)
        except UsageError as error:
            return Response(Answer(False, str(error)))

    # ---- one method for each `Verb`, with its name ----------------------------------------

    def stop(self, request: Request) -> Response:
        """Stop the named trials, or end the driver's term."""
        if not (numbers := _numbers(request)):
            self._check_term(request)
            again = "resume" if self.history.final_evaluation is None else "best --test-seeds"
            text = f"slices save and end; continue with `sweep {again}`"
            return Response(Answer(True, text), ends_driver=True)
        trials = [self._open_trial(number) for number in numbers]
        return self._hold(trials, UserHold.STOP, "stopped", _stop_moves(trials))

    def pause(self, request: Request) -> Response:
        """Pause the named trials, or the whole sweep."""
        if not self.saves:
            raise UsageError(
                "pause: the trainable has no save_checkpoint(); stop the trial instead"
            )
        if not (numbers := _numbers(request)):
            self._check_term(request)
            text = "nothing new begins, and slices save and end; `sweep unpause` continues"
            return Response(Answer(True, text), (Suspended(True),))
        trials = [self._open_trial(number) for number in numbers]
        for trial in trials:
            if trial.hold:
                raise UsageError(
                    f"trial {trial.number} is already held ({trial.hold.value}); `sweep unpause` "
                    "releases paused trials"
                )
        return self._hold(trials, UserHold.PAUSE, "paused")

    def unpause(self, request: Request) -> Response:
        """Resume the named paused trials, or the whole sweep."""
        if not (numbers := _numbers(request)):
            self._check_term(request)
            if not self.history.suspended:
                raise UsageError("unpause: the sweep is not paused; name the paused trials")
            return Response(Answer(True, "it continues"), (Suspended(False),))
        for number in numbers:
            if self._trial(number).hold is not UserHold.PAUSE:  # ended trials may be held too
                raise UsageError(f"trial {number} is not paused; `sweep status` lists the trials")
        events: list[Event] = [HoldChanged(number, UserHold.NONE) for number in numbers]
        events += topped_up_moves(self.history)
        return Response(
            Answer(True, f"{_list_trials(numbers)} may continue", numbers),
            tuple(events),
            released=numbers,
        )

    def clone(self, request: Request) -> Response:
        """Create a trial with the settings of another, some of them changed."""
        (number,) = _numbers(request)
        body, parent = request.body, self._trial(number)
        if self.proposer is None:
            raise UsageError(
                "clone: this driver cannot create trials; clone when the search is running"
            )
        made = self.proposer.clone(
            self.history, parent, body.get("settings", {}), body.get("from_checkpoint", False)
        )
        text = f"trial {made.trial} is a clone of {number}; it runs in the next free slot"
        return Response(Answer(True, text, (made.trial,)), (made, *topped_up_moves(self.history)))

    def suggest(self, request: Request) -> Response:
        """Let the next trial that is searched have certain settings."""
        if self.space is None:
            raise UsageError(
                "suggest: this driver creates no trials; suggest when the search is running"
            )
        if not (given := request.body.get("settings", {})):
            raise UsageError("suggest: no settings; give at least one, such as lr=0.001")
        settings = initial.suggestion(self.space, given, Source(marks={(): Place("suggest")}))
        before = len(self.history.open_suggestions)
        if self.history.exhausted:
            raise UsageError(f"suggest: nothing is left to search: {self.history.exhausted}")
        if self.history.uncreated_trials <= before:
            waiting = f", {before} of them for suggestions that wait" if before else ""
            more = self.history.wanted + 1
            raise UsageError(
                f"suggest: all {self.history.wanted} trials are taken{waiting}; "
                f"`sweep set NAME --trials {more}` makes room for one more"
            )
        turn = self._turn(before)
        event = Suggested(settings, request.body.get("author", ""), request.body.get("reason", ""))
        after = f", after {formatting.plural(before, 'other suggestion')}" if before else ""
        text = f"{formatting.settings(settings)} is tried by {turn}{after}"
        return Response(Answer(True, text), (event,))

    def _turn(self, before: int) -> str:
        """Return a text: which trial will try a suggestion, after `before` other suggestions.

        Raises UsageError if the searcher's option `suggested` leaves no trial for it.
        """
        history, share = self.history, self.options.suggested
        number = history.tried_suggestions + before + 1
        if self.options.most_suggested(history.searched_count + before + 1) >= number:
            return "the next new trial"
        if self.options.most_suggested(history.wanted) >= number:
            return f"a later trial, since at most {share:.4g} of the trials take suggestions"
        if not share:
            raise UsageError("suggest: searcher.suggested is 0, so no trial takes suggestions")
        most, more = self.options.most_suggested(history.wanted), math.ceil(number / written(share))
        raise UsageError(
            f"suggest: searcher.suggested is {share:.4g}, so of {history.wanted} trials at most "
            f"{most} take suggestions; `sweep set NAME --trials {more}` makes room for one more"
        )

    def set(self, request: Request) -> Response:
        """Change the sweep's limits, or the size of the pool."""
        trials, jobs = request.body.get("trials"), request.body.get("jobs")
        if trials is not None and trials < self.history.searched_count:
            raise UsageError(
                f"--trials: {trials} is less than the {self.history.searched_count} trials that "
                f"exist; it is the total number of trials"
            )
        changes: list[str] = []
        events: list[Event] = []
        budget, max_disk = request.body.get("budget", {}), request.body.get("max_disk")
        check_changed(self.history, budget)
        if trials is not None:
            changes.append(f"{trials} trials in all")
        changes += [f"budget.{key}: {json.dumps(value)}" for key, value in budget.items()]
        if max_disk is not None:
            changes.append(f"checkpoints of {size_text(max_disk)} at most")
        if changes:
            events += topped_up_moves(self.history)
        if jobs is not None:
            self._check_term(request)
            jobs, said = self.resized(jobs)
            changes.append(said)
        events.append(LimitsChanged(trials, budget, max_disk, jobs))
        return Response(Answer(True, ", ".join(changes)), tuple(events), jobs=jobs)

    # ---- helpers ------------------------------------------------------------------------

    def _hold(
        self,
        trials: Sequence[Trial],
        hold: UserHold,
        confirmation: str,
        moves: Sequence[Moved] = (),
    ) -> Response:
        """Return the response that holds `trials` until the user resumes them.

        Running trials save and end. `confirmation` is the text of the answer.
        """
        running = tuple(t.number for t in trials if t.status is Status.RUNNING)
        numbers = tuple(trial.number for trial in trials)
        held = [HoldChanged(number, hold) for number in numbers]
        text = f"{_list_trials(numbers)} {confirmation}"
        if running:
            text += f"; {_list_trials(running)} at the next checkpoint"
        return Response(Answer(True, text, numbers), (*held, *moves), stopping_trials=running)

    def _trial(self, number: int) -> Trial:
        """Return a trial by number; UnknownName if it does not exist."""
        return overview.find_trial(self.history, "the sweep", number)

    def _open_trial(self, number: int) -> Trial:
        """Return a trial that has not finished; UsageError if it has."""
        trial = self._trial(number)
        if trial.status in FINISHED:
            raise UsageError(
                f"trial {number} has ended ({trial.status}); `sweep clone` runs a copy of it"
            )
        return trial

    def _check_term(self, request: Request) -> None:
        """Refuse a request to a driver's term that is over."""
        if request.term != self.history.term or not self.driven:
            raise UsageError(
                f"{request.verb}: no driver is running, so only single trials can be changed; "
                f"name a trial"
            )


def changed_before(
    history: History, requests: Sequence[Request]
) -> tuple[list[LimitsChanged], dict[int, Answer]]:
    """Return the changes of earlier `sweep set` requests, to be recorded before newer options.

    Returns:
        The changes, and the answers by request number. Trials pruned by the sweep's end are not yet
        brought back.
    """
    handler = RequestHandler(history, driven=False)
    decided = {r.number: handler.decide(r) for r in requests if r.verb is Verb.SET}
    events = [event for decision in decided.values() for event in decision.events]
    changes = [event for event in events if isinstance(event, LimitsChanged)]
    return changes, {number: decision.answer for number, decision in decided.items()}


def user_stops(history: History) -> list[Moved]:
    """Return the moves to STOPPED of trials that users stopped, once their slices have ended."""
    held = history.ordered(order.held)
    return _stop_moves([trial for trial in held if trial.hold is UserHold.STOP])


def _stop_moves(trials: Sequence[Trial]) -> list[Moved]:
    """Return the moves to STOPPED of all waiting and paused replicas of `trials`."""
    return [
        Moved(trial.number, Status.STOPPED, STOPPED, replica.index)
        for trial in trials
        for replica in trial.replicas
        if replica.status in (Status.WAITING, Status.PAUSED)
    ]


def _numbers(request: Request) -> tuple[int, ...]:
    """Return the trials that a request names, each once."""
    return tuple(dict.fromkeys(request.body.get("trials_named", ())))


def _list_trials(numbers: Sequence[int]) -> str:
    """Return a text such as ``trials 1, 2``."""
    word = "trial" if len(numbers) == 1 else "trials"
    return f"{word} {', '.join(map(str, numbers))}"
