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
from sweep.driver.capacity import UNBOUNDED
from sweep.driver.decisions import reopening_moves
from sweep.driver.limits import check_changed_budget, check_total
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
from sweep.spec import Budget
from sweep.spec.sections import size_text
from sweep.spec.space import Space, initial
from sweep.spec.space.domains import exact_decimal
from sweep.views import formatting, overview

#: Reason of trials that a user stopped.
STOPPED = "stopped by a person"


@dataclass(frozen=True)
class Response:
    """The answer to a user's request, with all that the driver has to do for it."""

    answer: Answer
    """Answer to the request, for the process that sent it."""
    events: tuple[Event, ...] = ()
    """Events that the driver writes to the ledger in one transaction with the answer."""
    stopping_trials: tuple[int, ...] = ()
    """Numbers of the trials whose running slices have to save and end."""
    released: tuple[int, ...] = ()
    """Numbers of the trials that may continue, so that their stop files are removed."""
    ends_driver: bool = False
    """True if the driver has to end as after Ctrl-C."""
    jobs: int | None = None
    """New number of slots of the pool; None to keep it."""


@dataclass(frozen=True)
class RequestHandler:
    """Decides on users' requests from the history; records nothing itself."""

    history: History
    """History so far."""
    proposer: Proposer | None = None
    """Creator of clones; None if clones are refused."""
    saves: bool = True
    """True if the trainable can save, so that its trials can be paused."""
    driven: bool = True
    """True if a driver runs; otherwise requests to the driver itself are refused."""
    space: Space | None = None
    """Space that suggestions are checked against; None if no suggestions are accepted."""
    options: SearcherOptions = field(default_factory=SearcherOptions)
    """Options of the searcher, which limit the share of trials that take suggestions."""
    budget: Budget = field(default_factory=Budget)
    """Present budget of the sweep, against which changes of it are checked."""
    allowed_slots: Callable[[int], tuple[int, str]] = lambda jobs: (jobs, f"{jobs} at once")
    """Function from a requested number of slots to the number that the pool gets, and a text about
    it."""

    def decide(self, request: Request) -> Response:
        """Return the response to a request; a refused one has only an answer with the reason.

        Nothing is changed or recorded: the caller does what the response says.
        """
        try:
            answer: Callable[[Request], Response] = getattr(self, request.verb)
            return answer(request)
        except UsageError as error:
            return Response(Answer(False, str(error)))

    # ---- one method for each `Verb`, with its name ----------------------------------------

    def stop(self, request: Request) -> Response:
        """Respond to `sweep stop`: stop the named trials, or end the driver if none is named.

        Running trials stop at their next checkpoint, waiting ones at once. Raises UsageError if a
        trial does not exist or has ended; without names, if no driver runs any more.
        """
        if not (numbers := _named_trials(request)):
            self._check_term(request)
            again = "resume" if self.history.final_evaluation is None else "best --test-seeds"
            text = f"running trials save and stop; continue with `sweep {again}`"
            return Response(Answer(True, text), ends_driver=True)
        trials = [self._open_trial(number) for number in numbers]
        return self._hold(trials, UserHold.STOP, "stopped", _stop_moves(trials))

    def pause(self, request: Request) -> Response:
        """Respond to `sweep pause`: pause the named trials, or the whole sweep if none is named.

        Running trials pause at their next checkpoint. Raises UsageError if the trainable cannot
        save, or a trial does not exist, has ended or is held; without names, if no driver runs.
        """
        if not self.saves:
            raise UsageError(
                "pause: the trainable has no save_checkpoint(), so it cannot be paused; stop "
                "the trial instead"
            )
        if not (numbers := _named_trials(request)):
            self._check_term(request)
            text = (
                "no new trial starts, and running trials save and pause; `sweep unpause` "
                "continues them"
            )
            return Response(Answer(True, text), (Suspended(True),))
        trials = [self._open_trial(number) for number in numbers]
        for trial in trials:
            if trial.hold:
                raise UsageError(
                    f"trial {trial.number} is already held (a user asked it to "
                    f"{trial.hold.value}); `sweep unpause` releases paused trials"
                )
        return self._hold(trials, UserHold.PAUSE, "paused")

    def unpause(self, request: Request) -> Response:
        """Respond to `sweep unpause`: release the named trials; without names, the whole sweep.

        With names, trials that were pruned only because the sweep ended are brought back, too.
        Raises UsageError if a trial does not exist or is not paused; without names, if the sweep is
        not paused or no driver runs.
        """
        if not (numbers := _named_trials(request)):
            self._check_term(request)
            if not self.history.suspended:
                raise UsageError(
                    "unpause: the sweep as a whole is not paused; name the paused trials"
                )
            return Response(Answer(True, "it continues"), (Suspended(False),))
        for number in numbers:
            if self._trial(number).hold is not UserHold.PAUSE:  # ended trials may be held too
                raise UsageError(f"trial {number} is not paused; `sweep status` lists the trials")
        events: list[Event] = [HoldChanged(number, UserHold.NONE) for number in numbers]
        events += reopening_moves(self.history)
        return Response(
            Answer(True, f"{_list_trials(numbers)} may continue", numbers),
            tuple(events),
            released=numbers,
        )

    def clone(self, request: Request) -> Response:
        """Respond to `sweep clone`: create a trial with another one's settings, some changed.

        Trials that were pruned only because the sweep ended are brought back. Raises UsageError if
        there is no proposer, or the trial or a change is not valid.
        """
        (number,) = _named_trials(request)
        body, parent = request.body, self._trial(number)
        if self.proposer is None:
            raise UsageError(
                "clone: a final evaluation creates no trials; clone the trial after `sweep "
                "resume` has continued the search"
            )
        made = self.proposer.clone(
            self.history, parent, body.get("settings", {}), body.get("from_checkpoint", False)
        )
        searches = self.history.final_evaluation is None
        when = "in the next free slot" if searches else "when `sweep resume` continues the search"
        text = f"trial {made.trial} is a clone of {number}; it runs {when}"
        return Response(Answer(True, text, (made.trial,)), (made, *reopening_moves(self.history)))

    def suggest(self, request: Request) -> Response:
        """Respond to `sweep suggest`: let one of the next searched trials take these settings.

        Raises UsageError if no settings are given, they are not in the space, no trial is left to
        take them, or the driver creates no trials.
        """
        if self.space is None:
            raise UsageError(
                "suggest: a final evaluation creates no trials; suggest settings after "
                "`sweep resume` has continued the search"
            )
        if not (given := request.body.get("settings", {})):
            raise UsageError("suggest: no settings are given; give at least one, such as lr=0.001")
        settings = initial.read_suggestion(self.space, given, Source(marks={(): Place("suggest")}))
        before = len(self.history.open_suggestions)
        if self.history.exhausted:
            raise UsageError(
                "suggest: the search has ended, so no new trial can try these settings: "
                f"{self.history.exhausted}"
            )
        if self.history.uncreated_trials <= before:
            waiting = f", {before} of them by suggestions that are still waiting" if before else ""
            more = self.history.wanted + 1
            raise UsageError(
                f"suggest: all {self.history.wanted} trials are taken{waiting}; `sweep set "
                f"NAME --trials {more}` makes room for one more"
            )
        turn = self._describe_turn(before)
        event = Suggested(settings, request.body.get("author", ""), request.body.get("reason", ""))
        after = f", after {formatting.plural(before, 'other suggestion')}" if before else ""
        text = f"{formatting.settings(settings)} will be tried by {turn}{after}"
        return Response(Answer(True, text), (event,))

    def _describe_turn(self, before: int) -> str:
        """Return words for the trial that will take a suggestion, if `before` others wait already.

        Raises UsageError if the searcher's option `suggested` leaves no trial for it.
        """
        history, share = self.history, self.options.suggested
        number = history.tried_suggestions + before + 1
        if self.options.most_suggested(history.searched_count + before + 1) >= number:
            return "the next new trial"
        if self.options.most_suggested(history.wanted) >= number:
            return f"a later trial, since at most {share:.4g} of the trials take suggestions"
        if not share:
            raise UsageError(
                "suggest: searcher.suggested is 0, so no trial takes suggestions; set it to more "
                "than 0 in a new sweep"
            )
        most, more = (
            self.options.most_suggested(history.wanted),
            math.ceil(number / exact_decimal(share)),
        )
        raise UsageError(
            f"suggest: searcher.suggested is {share:.4g}, so at most {most} of "
            f"{history.wanted} trials take suggestions; `sweep set NAME --trials {more}` "
            "makes room for one more"
        )

    def set(self, request: Request) -> Response:
        """Respond to `sweep set`: change number of trials, budget, disk space or slots.

        Unless only the slots change, trials that were pruned only because the sweep ended are
        brought back. Raises UsageError for a total that the sweep cannot have, a budget that can
        never be reached, too many slots, or slots without a driver.
        """
        trials, jobs = request.body.get("trials"), request.body.get("jobs")
        if trials is not None:
            check_total(self.history, trials)
        if jobs is not None and jobs > UNBOUNDED:
            raise UsageError(f"--jobs: {jobs} is not allowed; expected at most {UNBOUNDED}")
        changes: list[str] = []
        events: list[Event] = []
        budget, max_disk = request.body.get("budget", {}), request.body.get("max_disk")
        check_changed_budget(self.history, self.budget, budget)
        if trials is not None:
            changes.append(f"{trials} trials in all")
        changes += [f"budget.{key}: {json.dumps(value)}" for key, value in budget.items()]
        if max_disk is not None:
            changes.append(f"checkpoints of {size_text(max_disk)} at most")
        if changes:
            events += reopening_moves(self.history)
        if jobs is not None:
            advice = "its slots cannot be changed; give --jobs to `sweep resume` instead"
            self._check_term(request, advice)
            jobs, said = self.allowed_slots(jobs)
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
        """Return the response that sets the hold of `trials`, so that none of them continues.

        `hold` is STOP or PAUSE, `confirmation` the text of the answer, such as ``paused``, and
        `moves` are events for trials that wait. Slices of running trials have to save and end.
        """
        running = tuple(t.number for t in trials if t.status is Status.RUNNING)
        numbers = tuple(trial.number for trial in trials)
        held = [HoldChanged(number, hold) for number in numbers]
        text = f"{_list_trials(numbers)} {confirmation}"
        if running:
            text += f"; {_list_trials(running)} at the next checkpoint"
        return Response(Answer(True, text, numbers), (*held, *moves), stopping_trials=running)

    def _trial(self, number: int) -> Trial:
        """Return the trial with this number; UnknownName if it does not exist."""
        return overview.find_trial(self.history, "the sweep", number)

    def _open_trial(self, number: int) -> Trial:
        """Return the trial with this number; UsageError if it has ended."""
        trial = self._trial(number)
        if trial.status in FINISHED:
            raise UsageError(
                f"trial {number} has ended ({trial.status}); `sweep clone` trains a copy of it"
            )
        return trial

    def _check_term(
        self, request: Request, advice: str = "only single trials can be changed; name a trial"
    ) -> None:
        """Raise UsageError if a request was meant for a driver that has ended, or none runs.

        `advice` says what is possible without a driver, and what to do.
        """
        if request.term != self.history.term or not self.driven:
            raise UsageError(f"{request.verb}: no driver is running, so {advice}")


def pending_limit_changes(
    history: History, budget: Budget, requests: Sequence[Request]
) -> tuple[list[LimitsChanged], dict[int, Answer]]:
    """Decide on the `sweep set` requests among `requests`, which no driver has handled yet.

    Returns the changes of limits as events, and the number of each request → its answer. A request
    with a number of slots is refused. Trials that were pruned at the sweep's end are not yet
    brought back. `budget` is the present budget; each request is checked against it with the
    changes of the requests before.
    """
    changes: list[LimitsChanged] = []
    answers: dict[int, Answer] = {}
    for request in requests:
        if request.verb is not Verb.SET:
            continue
        decision = RequestHandler(history, driven=False, budget=budget).decide(request)
        answers[request.number] = decision.answer
        for event in decision.events:
            if isinstance(event, LimitsChanged):
                changes.append(event)
                budget = budget.with_changes(event.budget)
    return changes, answers


def user_stops(history: History) -> list[Moved]:
    """Return the moves to STOPPED of trials that users stopped and whose slices have ended."""
    held = history.ordered(order.held)
    return _stop_moves([trial for trial in held if trial.hold is UserHold.STOP])


def _stop_moves(trials: Sequence[Trial]) -> list[Moved]:
    """Return the moves to STOPPED of the waiting and paused replicas of `trials`."""
    return [
        Moved(trial.number, Status.STOPPED, STOPPED, replica.index)
        for trial in trials
        for replica in trial.replicas
        if replica.status in (Status.WAITING, Status.PAUSED)
    ]


def _named_trials(request: Request) -> tuple[int, ...]:
    """Return the numbers of the trials that a request names, each once."""
    return tuple(dict.fromkeys(request.body.get("trials_named", ())))


def _list_trials(numbers: Sequence[int]) -> str:
    """Return a text such as ``trials 1, 2``."""
    word = "trial" if len(numbers) == 1 else "trials"
    return f"{word} {', '.join(map(str, numbers))}"
