"""The history of a sweep in memory: a fold over its events, read by schedulers and searchers.

The same fold runs when the driver records an event and when a ledger is read, so a resumed driver
sees exactly what the first one saw. Schedulers and searchers must not change what they receive.
"""

import copy
import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from sweep.core import stats
from sweep.core.errors import DamagedLedger
from sweep.history import fronts, order, ranking
from sweep.history.curve import Point
from sweep.history.events import (
    FAIL_FAST,
    FINISHED,
    Closed,
    Created,
    Dropped,
    EarlierSweep,
    End,
    Event,
    FinalEvaluationBegan,
    HoldChanged,
    Learnt,
    LimitsChanged,
    MetricChanged,
    Moved,
    Opened,
    OtherKernelAllowed,
    Recorded,
    Reported,
    Row,
    SpaceChanged,
    SpaceExhausted,
    Status,
    StopChanged,
    Suggested,
    Suspended,
    TermBegan,
    TermEnded,
    TrainableReplaced,
    UserHold,
)
from sweep.history.expectation import Expectations, Expected
from sweep.history.objective import Objective
from sweep.history.order import Amounts, Entry, Key, Order, Overlay, Summary, Total
from sweep.history.replica import Replica
from sweep.history.results import numeric_names
from sweep.history.seeds import FIRST_TEST, is_test
from sweep.history.trial import Milestone, Trial, rank_key
from sweep.spec.space.domains import equality_key

__all__ = ["History", "Milestone", "Objective", "Point", "Replica", "Trial", "rank_key"]

K = TypeVar("K", bound=Summary)


class History:
    """All trials of a sweep and its present state, computed from the events up to number `k`.

    Args:
        summed: True to read a ledger without its results; replicas then have `Replica.sums` in
            place of curves.
        shows_unsaved: True to count results that may have to be computed again, for display only.
    """

    failing_until = 0
    """Number of the newest event by which `limits.fail_fast` ended the sweep; 0 if it never did."""
    other_kernel = False
    """True if a user allowed trials to continue without the compiled kernel of their
    checkpoints."""
    open_suggestions: Mapping[int, Suggested] = MappingProxyType({})
    """Number of an event `Suggested` → the event, oldest first, until a trial has its settings."""
    tried_suggestions = 0
    """Number of trials so far whose settings somebody suggested."""

    def __init__(
        self, objective: Objective, summed: bool = False, shows_unsaved: bool = False
    ) -> None:
        self.objective = objective
        self.shows_unsaved = shows_unsaved or summed
        """True if results count that may have to be computed again. Such a history is for display
        only; no decision uses it."""
        self.summed = summed
        """True if the history is read without results: replicas then have `Replica.sums` and no
        curves."""
        self.trials = []
        self.k = 0
        self.term = 0
        self.wanted = 0
        """Number of trials that the searcher is to propose in total (``--trials``)."""
        self.ended = ""
        """Outcome of the newest term of the search: ``finished``, ``stopped`` or ``failed``; empty
        if that term runs or was killed. A final evaluation does not change it."""
        self.began_at = 0.0
        self.exhausted = ""
        """Reason for which there is no further point to search; empty while there may be one."""
        self.earlier_sweeps: tuple[EarlierSweep, ...] = ()
        """Settings and their ranks in earlier sweeps, for searchers."""
        self.suspended = False
        """True if a person paused the whole sweep."""
        self.end_reason = ""
        """Reason for which the search ended before all trials had; empty without one."""
        self.changed_budget: dict[str, float | None] = {}
        """Changed keys of the spec's budget → new values; None for a limit that was removed."""
        self.max_disk: int | None = None
        """Changed limit of the size of all checkpoints in bytes; None if unchanged."""
        self.spent_s = 0.0
        """Seconds driven in earlier terms, from their first events to their drivers' ends."""
        self._span: tuple[float, float] | None = None
        self.remembered: dict[str, Any] = {}
        """Findings of trials for all others (`Trainable.remembers`); the first one of a name is
        kept."""
        self.jobs: int | None = None
        """Number of slots of the last search; None if not recorded."""
        self.jobs_given = False
        """True if a user chose that number."""
        self.pool = ""
        """Name of the pool of the last search; empty if not recorded."""
        self.final_evaluation: FinalEvaluationBegan | None = None
        """Final evaluation of the newest term; None if the term searches."""

    # ---- queries ----------------------------------------------------------------------------

    @property
    def trials(self) -> list[Trial]:
        """All trials, by number; setting them drops all summaries derived from the old ones."""
        return self._trials

    @trials.setter
    def trials(self, trials: list[Trial]) -> None:
        """Replace all trials, and drop everything derived from them."""
        self._trials = trials
        self._touched: list[int] = []
        """Numbers of changed trials, in the order of the changes."""
        self._orders: dict[Hashable, Summary] = {}
        self._overlays: dict[Callable[[Trial], Trial], Overlay] = {}
        self._points: set[str] = set()
        """Keys of the settings of the first `_pointed` trials, without offspring."""
        self._pointed = 0

    def touch(self, trial: int) -> None:
        """Append a trial's number to `touched`, so that summaries read it again when next used."""
        self._touched.append(trial)

    @property
    def touched(self) -> Sequence[int]:
        """Numbers of changed trials, in the order of the changes, with repetitions.

        The list only grows. Summaries remember how much of the list they have read; a reader that
        kept another list object belongs to another history and starts again from the first trial.
        """
        return self._touched

    def order(self, key: Key) -> Sequence[Entry]:
        """Return the entries that `key` gives trials, ascending; each ends with the trial's number.

        The list is kept for `key` and updated by changed trials only, see `sweep.history.order`;
        callers must not change it, and later calls may.
        """
        return self.updated_order(key).entries

    def updated_order(self, key: Key) -> Order:
        """Return the object that keeps the entries of `key` sorted, up to date."""
        return self.summary(key, lambda: Order(key))

    def total(self, amounts: Amounts) -> float:
        """Return the sum, over all trials, of the numbers that `amounts` returns for each."""
        return self.summary(amounts, lambda: Total(amounts)).sum

    def summary(self, name: Hashable, make: Callable[[], K]) -> K:
        """Return the summary kept under `name`, up to date; `make` creates it at the first call."""
        kept: Any = self._orders.get(name)
        if kept is None:
            kept = self._orders[name] = make()
        kept.update(self._trials, self._touched)
        found: K = kept
        return found

    def ordered(self, *keys: Key) -> list[Trial]:
        """Return the trials to which one of these keys gives an entry, by number."""
        numbers = {entry[-1] for key in keys for entry in self.order(key)}
        return [self._trials[number] for number in sorted(numbers)]

    def with_status(self, *statuses: Status) -> list[Trial]:
        """Return the trials that have one of these statuses, by number."""
        return self.ordered(*map(order.trial_status_key, statuses))

    def count(self, status: Status) -> int:
        """Return the number of trials that have this status."""
        entries = self.order(order.status_entry)
        first = bisect_left(entries, (status.value,))
        return bisect_left(entries, (status.value, math.inf), first) - first

    def replicas(self, *statuses: Status) -> list[Replica]:
        """Return the replicas that have one of these statuses, by trial and index.

        Test replicas are not among them.
        """
        trials = self.ordered(*map(order.replica_status_key, statuses))
        return [r for trial in trials for r in trial.replicas if r.status in statuses]

    def test_replicas(self, *statuses: Status) -> list[Replica]:
        """Return the test replicas that have one of these statuses, by trial and index.

        They are trained under held-out seeds.
        """
        trials = self.ordered(order.tested)
        return [test for trial in trials for test in trial.test_replicas if test.status in statuses]

    @property
    def all_replicas(self) -> list[Replica]:
        """All replicas of the search, then all test replicas."""
        return [*self.replicas(*Status), *self.test_replicas(*Status)]

    def has_settings(self, searched: Mapping[str, Any]) -> bool:
        """Return whether a trial that started from scratch has exactly these searched settings."""
        for trial in self._trials[self._pointed :]:
            if trial.parent is None:
                self._points.add(equality_key(trial.searched))
        self._pointed = len(self._trials)
        return equality_key(searched) in self._points

    def replica(self, trial: int, index: int) -> Replica:
        """Return the replica or test replica of a trial that has this index.

        Raises IndexError if there is none.
        """
        its = self.trials[trial]
        return its.test_replicas[index - FIRST_TEST] if is_test(index) else its.replicas[index]

    def with_sums(self, events: Iterable[Event]) -> list[Event]:
        """Return events that are about to be recorded, with `sums` added to those with results.

        Each sum follows from the present history and its own event alone, so at most one event with
        results may be about a replica. The history must have curves.
        """
        return [
            replace(e, sums=self.replica(e.trial, e.replica).sums_after(e.source, e.rows))
            if isinstance(e, Reported | Closed)
            else e
            for e in events
        ]

    def children(self, parent: int) -> list[Trial]:
        """Return the offspring that started from checkpoints of trial `parent`, by number."""
        families = self.order(order.parent_key)
        first, end = bisect_left(families, (parent,)), bisect_left(families, (parent + 1,))
        return [self.trials[number] for _, number in families[first:end]]

    @property
    def expectations(self) -> Expectations:
        """Expected scores of all trials' settings under a new seed, up to date."""
        return self.summary(Expectations, lambda: Expectations(self.objective))

    def expected(self, trial: Trial) -> Expected | None:
        """Return the expected score of a trial's settings under a new seed.

        Returns None if it has no score yet, or one that is not finite. The model is fitted anew if
        a trial has changed since the last call.
        """
        return self.expectations.expected(trial)

    def ranked(self, trials: Iterable[Trial] | None = None) -> list[Trial]:
        """Return the trials that have a score, best first.

        `trials` are those to rank; None ranks all trials of the sweep. Feasible trials come first,
        front by front if there are several objectives, then by the expected score of their settings
        under a new seed (or by the measured one, if the sweep compares the worst seed or a bound).
        """
        if trials is None:
            trials = (self.trials[entry[-1]] for entry in self.order(order.score_key))
        scored = [trial for trial in trials if trial.score is not None]
        return ranking.ranked(scored, self.objective, self.expectations.position_of)

    @property
    def best(self) -> Trial | None:
        """Trial ranked first (the pick), usually by its expected score.

        It violates a constraint only if all trials with a score do. It is None if no trial has a
        score.
        """
        found = self.expectations.order
        if ranking.is_by_expectation(self.objective) and found:
            return self.trials[found[0]]
        return next(iter(self.ranked()), None)

    @property
    def highest(self) -> Trial | None:
        """The feasible trial with the best measured score, in which luck has its part.

        It is None if no feasible trial has a score.
        """
        trials = (self.trials[entry[-1]] for entry in self.order(order.score_key))
        return next((trial for trial in trials if trial.feasible), None)

    def front(self) -> list[Trial]:
        """Return the feasible trials that no other trial dominates, best in the metric first.

        With one objective these are the pick and all feasible trials with the same expected score.
        With several, only trials with a finite score in each take part. The list is empty if no
        trial is feasible.
        """
        if not self.objective.objectives:
            good = [trial for trial in self.ranked() if trial.feasible]
            worth = [(found := self.expected(trial)) and found.value for trial in good]
            return [trial for trial, value in zip(good, worth, strict=True) if value == worth[0]]
        members = self.summary(fronts.CurrentFront, fronts.CurrentFront).numbers
        trials = [self.trials[number] for number in members]
        return ranking.front(trials, self.objective, self.expectations.position_of)

    @property
    def has_metric(self) -> bool:
        """True if a result of any trial ever had the metric."""
        return bool(self.order(order.reported))

    @property
    def uncreated_trials(self) -> int:
        """Number of trials that the searcher still has to propose; 0 if the space is exhausted."""
        return 0 if self.exhausted else max(0, self.wanted - self.searched_count)

    @property
    def searched_count(self) -> int:
        """Number of trials whose settings were searched; offspring and clones do not count."""
        return len(self.order(order.counted))

    @property
    def waiting_clones(self) -> list[Trial]:
        """WAITING trials that no user holds, by number.

        They are clones that users made: all other trials start in the transaction that creates
        them.
        """
        return [trial for trial in self.with_status(Status.WAITING) if not trial.hold]

    def unrecorded_s(self, driven_at: float) -> float:
        """Return for how many seconds the newest driver was alive after its last event.

        `driven_at` is the last renewal of its lease, in seconds since 1970. Returns 0 if the
        newest term is a final evaluation, if its driver ended by itself, or if there is no term.
        """
        if self._span is None or self.ended:
            return 0.0
        return max(0.0, driven_at - self._span[1])

    @property
    def driven_s(self) -> float:
        """Seconds for which drivers have run the search, over all terms, up to the newest event."""
        first, last = self._span or (0.0, 0.0)
        return self.spent_s + max(0.0, last - first)

    def for_scheduler(self) -> "History":
        """Return the history as schedulers see it.

        PAUSED and WAITING trials that a user holds are STOPPED there, and clones that wait count as
        new trials that may be started, even if the space is exhausted. Returns this history itself
        if there are neither.
        """
        waiting, held = len(self.waiting_clones), self.order(order.held)
        if not waiting and not held:
            return self
        shown = copy.copy(self)
        if held:
            numbers = {number for (number,) in held}
            shown = self.with_replacements(numbers, Trial.for_scheduler)
        if waiting:
            shown.wanted = self.searched_count + self.uncreated_trials + waiting
            shown.exhausted = ""
        return shown

    def with_replacements(self, replaced: Set[int], shown: Callable[[Trial], Trial]) -> "History":
        """Return a view of this history in which other trials stand for some of them.

        ``shown(trial)`` stands for each trial whose number is in `replaced`. The view keeps its own
        summaries, under `shown`. It is valid until the next call with the same function.
        """
        kept = self._overlays.setdefault(shown, Overlay())
        kept.update(self._trials, self._touched, replaced, shown)
        seen = copy.copy(self)
        seen._trials, seen._touched, seen._orders = kept.trials, kept.touched, kept.orders
        return seen

    # ---- fold over events -------------------------------------------------------------------

    def extend(self, recorded: Sequence[Recorded]) -> None:
        """Apply recorded events, which must follow the newest one in the order of their numbers.

        Raises DamagedLedger if an event does not follow from those before it, which are applied.
        """
        for record in recorded:
            try:
                self._apply_record(record)
            except (LookupError, TypeError, ValueError, ArithmeticError) as error:
                found = f"event {record.number} does not follow from those before it"
                raise DamagedLedger("the ledger", f"{found} ({error!r})") from error

    def _apply_record(self, record: Recorded) -> None:
        """Apply one recorded event of any kind, and set `k` to its number.

        If the event belongs to the running term of the search, its time becomes the end of the time
        driven so far.
        """
        event = record.event
        match event:
            case TermBegan() | FinalEvaluationBegan() | TermEnded():
                self._apply_term(event, record)
            case Learnt() | SpaceChanged() | SpaceExhausted() | Suggested():
                self._apply_supply(event, record.number)
            case HoldChanged() | Suspended() | LimitsChanged() | Dropped():
                self._apply_command(event)
            case MetricChanged() | StopChanged():
                self._apply_spec_change(event)
            case TrainableReplaced() | OtherKernelAllowed():
                # results after the event come from the new code
                self.other_kernel |= isinstance(event, OtherKernelAllowed)
            case Reported():
                self._report(event)
            case _:
                self._apply(event, record)
        self.k = record.number
        if self._span and record.term == self.term:  # between terms, other commands write events
            self._span = (self._span[0], record.time)

    def _apply_term(
        self, event: TermBegan | FinalEvaluationBegan | TermEnded, record: Recorded
    ) -> None:
        """Apply the beginning or end of a term: what is wanted, spent and running.

        A beginning adds the time of the term before to `spent_s`, and ends a pause of the sweep. An
        end by `limits.fail_fast` sets `failing_until`. Raises ValueError if a final evaluation
        names a trial that does not exist.
        """
        if isinstance(event, TermEnded):
            self.ended, self.end_reason = event.outcome, event.reason
            if event.reason.startswith(FAIL_FAST):
                self.failing_until = record.number
            return
        self.term, self.final_evaluation = record.term, None
        first, last = self._span or (0.0, 0.0)
        self.spent_s += max(0.0, last - first) + max(0.0, event.unrecorded_s)
        self._span, self.suspended = None, False
        if isinstance(event, FinalEvaluationBegan):
            if strange := [n for n in event.trials if n >= len(self.trials)]:
                raise ValueError(
                    f"a final evaluation names the trials {strange}, but only "
                    f"{len(self.trials)} exist"
                )
            self.final_evaluation = event
            return
        self.wanted, self.ended = event.trials, ""
        self.jobs, self.jobs_given, self.pool = event.jobs, event.jobs_given, event.pool
        self.began_at = self.began_at or record.time
        self.end_reason = ""
        self._span = (record.time, record.time)

    def _apply_command(self, event: HoldChanged | Suspended | LimitsChanged | Dropped) -> None:
        """Apply a user's command: a hold, a suspension, new limits, or deleted checkpoints."""
        match event:
            case HoldChanged():
                for replica in self.trials[event.trial].replicas:
                    replica.hold = event.hold
                self.touch(event.trial)
            case Suspended():
                self.suspended = event.is_suspended
            case LimitsChanged():
                self.wanted = event.trials or self.wanted
                self.changed_budget.update(event.budget)
                self.max_disk = event.max_disk or self.max_disk
                self._resize(event.jobs)
            case Dropped():
                replica = self.replica(event.trial, event.replica)
                for digest in event.digests:
                    replica.checkpoints.pop(digest, None)
                if event.log:
                    replica.log, replica.log_deleted = 0, True
                self.touch(event.trial)

    def _apply_spec_change(self, event: MetricChanged | StopChanged) -> None:
        """Apply a moved end of training to all goals, or a new metric to all checkpoints."""
        if isinstance(event, StopChanged):
            self._move_top(event)
            return
        for trial in self.trials:
            for replica in (*trial.replicas, *trial.test_replicas):
                replica.reset_values()

    def _move_top(self, event: StopChanged) -> None:
        """Set the level at which replicas are COMPLETED to the event's, and touch all trials.

        Test replicas, and goals without such a level, keep theirs; so do all if the event has none.
        """
        for trial in self.trials:
            for replica in trial.replicas:
                if replica.goal.top is not None and event.top is not None:
                    replica.goal = replace(replica.goal, top=event.top)
            self.touch(trial.number)

    def _resize(self, jobs: int | None) -> None:
        """Set the number of slices that run at once; None changes nothing.

        It is the number of the running final evaluation if there is one, otherwise of the search,
        where it counts as chosen by a user from now on.
        """
        if jobs is not None and self.final_evaluation is not None:
            self.final_evaluation = replace(self.final_evaluation, jobs=jobs)
        elif jobs is not None:
            self.jobs, self.jobs_given = jobs, True

    def _apply_supply(
        self, event: Learnt | SpaceChanged | SpaceExhausted | Suggested, k: int
    ) -> None:
        """Apply event number `k` about settings to propose.

        A user suggested settings, earlier sweeps were learnt from, or the space is new or
        exhausted; a new space is not exhausted any more.
        """
        if isinstance(event, Suggested):
            self.open_suggestions = {**self.open_suggestions, k: event}
            return
        if isinstance(event, Learnt):
            self.earlier_sweeps = event.sweeps
            return
        self.exhausted = event.reason if isinstance(event, SpaceExhausted) else ""

    def _apply(self, event: Created | Opened | Closed | Moved, record: Recorded) -> None:
        """Apply an event about one trial, and note that the trial has changed.

        Unless the event is about a test replica, it becomes the trial's newest, and a milestone if
        the trial paused at its goal or ended.
        """
        match event:
            case Created():
                self._create(event)
            case Opened():
                self._open(self._get_or_add_replica(event), event, record)
            case Closed():
                self._close(self.replica(event.trial, event.replica), event, record)
            case Moved():
                replica = self.replica(event.trial, event.replica)
                replica.was_waiting = event.was_waiting
                self._move(replica, event.status, event.reason, record.time)
        self.touch(event.trial)
        if isinstance(event, Created) or not is_test(event.replica):
            self._record_change(self.trials[event.trial], record.number)

    def _record_change(self, trial: Trial, k: int) -> None:
        """Note event `k` as the trial's newest, and add a milestone if the trial paused or ended.

        A pause before the goal, after an interruption, adds none.
        """
        trial.newest_event = k
        status = trial.status
        if status not in (Status.WAITING, Status.RUNNING) and not trial.is_interrupted:
            trial.milestones.append(trial.milestone(k))

    def _create(self, event: Created) -> None:
        """Add the new trial of an event, and take its suggestion out of `open_suggestions`.

        Raises ValueError if its number is not the next one, IndexError if a parent does not exist,
        and KeyError if the suggestion is not open.
        """
        if event.trial != len(self.trials):
            raise ValueError(f"trial {event.trial}, and there are {len(self.trials)} before it")
        for birth in event.births:
            self.replica(birth.trial, birth.replica)  # raises if the parent does not exist
        searched, config = dict(event.searched), dict(event.config)
        births = event.births or (None,) * event.replicas
        trial = Trial.new(event.trial, searched, config, self.objective, births)
        trial.proposed_after, trial.clone_of = event.seen, event.clone_of
        trial.origin = event.origin
        if event.suggestion is not None:
            waiting = dict(self.open_suggestions)
            trial.suggestion = waiting.pop(event.suggestion)
            self.open_suggestions, self.tried_suggestions = waiting, self.tried_suggestions + 1
        self.trials.append(trial)

    def _get_or_add_replica(self, event: Opened) -> Replica:
        """Return the replica that a slice was opened for, added to its trial if it is new.

        A new replica gets the trial's hold, unless it is a test replica. Raises IndexError if the
        trial does not exist or the replica's index is not the next one.
        """
        trial = self.trials[event.trial]
        siblings, index = trial.replicas, event.replica
        if is_test(index):
            siblings, index = trial.test_replicas, index - FIRST_TEST
        if index == len(siblings):
            new = Replica(trial.number, event.replica, self.objective, joined_at=event.goal)
            new.hold = UserHold.NONE if is_test(event.replica) else trial.hold
            siblings.append(new)
        return siblings[index]

    def _open(self, replica: Replica, event: Opened, record: Recorded) -> None:
        """Set a replica to RUNNING with the goal of its new slice, which is counted.

        The first slice also sets the time at which the replica started.
        """
        replica.goal = event.goal
        replica.slices = event.slice + 1
        replica.queued_at = record.number
        replica.started_at = replica.started_at or record.time
        replica.reported_to = None
        self._move(replica, Status.RUNNING, event.reason, record.time)

    def _report(self, event: Reported) -> None:
        """Add results of a running slice to its replica's tail.

        They do not count unless `shows_unsaved`. In a history without curves, the replica's sums
        are replaced by those of the event.
        """
        replica = self.replica(event.trial, event.replica)
        replica.saved_to = None
        if self.shows_unsaved:
            self.touch(event.trial)
        if self.summed:
            self._take_sums(replica, event)
            return
        points = replica.add_results(event.source, event.rows)
        _add_names(replica, event.rows)
        replica.reported_to = event.rows[-1].iteration
        replica.last_metrics = event.rows[-1].metrics
        if self.shows_unsaved:
            replica.reported = replica.reported or _has_metric(points)
            replica.count_results()
            _sum_up(replica)

    def _close(self, replica: Replica, event: Closed, record: Recorded) -> None:
        """Apply the end of a slice to its replica: results, checkpoints, failures and status."""
        replica.saved_to, replica.reported_to = event.saved_to, None
        if self.summed:
            self._take_sums(replica, event)
        else:
            self._take_results(replica, event)
        replica.value_found = event.value_found or replica.value_found
        replica.log, replica.log_deleted = event.log, replica.log_deleted and not event.log
        for saved in event.saved:
            replica.checkpoints[saved.digest] = saved
        for digest in event.dropped:
            replica.checkpoints.pop(digest, None)
        replica.error = event.error or replica.error
        replica.exactness = event.exactness or replica.exactness
        if event.is_random is not None:
            replica.is_random = bool(replica.is_random) or event.is_random
        if event.remembered:
            self.remembered = {**event.remembered, **self.remembered}
        self._count_failures(replica, event)
        if event.end is not End.INTERRUPTED:
            replica.queued_at = record.number
        self._move(replica, event.status, event.reason, record.time)

    def _take_results(self, replica: Replica, event: Closed) -> None:
        """Add the results of an ended slice to its replica's curve.

        Results that were lost with the slice stay in the tail, and do not count, unless the replica
        has finished or the history shows such results.
        """
        replica.add_results(event.source, event.rows)
        # The event's rows do not suffice: the slice may have reported all of them before it ended.
        replica.reported = replica.reported or _has_metric(replica.tail)
        _add_names(replica, event.rows)
        counts = self.shows_unsaved or event.status in FINISHED
        replica.count_results(None if counts else event.saved_to)
        _sum_up(replica)
        if event.rows:
            replica.last_metrics = event.rows[-1].metrics

    def _take_sums(self, replica: Replica, event: Reported | Closed) -> None:
        """Replace the replica's sums by those of the event, in a history without curves.

        Raises ValueError if the event has no sums.
        """
        if event.sums is None:
            raise ValueError("a slice without sums")
        replica.sums, replica.last_metrics = event.sums, event.sums.counters
        replica.seconds, replica.steps = event.sums.seconds, event.sums.steps
        replica.reported = replica.reported or event.sums.value is not None

    def _count_failures(self, replica: Replica, event: Closed) -> None:
        """Update the replica's counts of crashes and lost slices.

        A slice that ended otherwise than by a lost process or an interruption sets the lost slices
        to 0; crashes at iterations that were passed since are forgotten.
        """
        if event.end is End.LOST:
            replica.lost_slices += 1
        elif event.end is not End.INTERRUPTED:
            replica.lost_slices = 0
        replica.crashes = [at for at in replica.crashes if at > replica.iteration]
        if event.end is End.CRASHED:
            replica.crashes.append(event.error_at)

    def _move(self, replica: Replica, status: Status, reason: str, time: float) -> None:
        """Set the status of a replica with its reason, and the time at which it finished.

        That time is None for a status that is not final. A replica that leaves FAILED forgets its
        crashes and lost slices. One that leaves a finished status no longer counts its unsaved
        results, unless the history shows these.
        """
        if replica.status is Status.FAILED:
            replica.lost_slices, replica.crashes = 0, []
        if replica.status in FINISHED and replica.lost_results and not self.shows_unsaved:
            replica.count_results(replica.saved_to)
            _sum_up(replica)
        replica.status, replica.reason = status, reason
        replica.ended_at = time if status in FINISHED else None


def _has_metric(points: Iterable[Point]) -> bool:
    """Return whether one of the points has a value of the metric, even NaN."""
    return any(point.value is not None for point in points)


def _add_names(replica: Replica, rows: Sequence[Row]) -> None:
    """Add the names of all numbers in `rows` to the replica's names.

    Nothing is added once a result had the metric.
    """
    if not replica.reported:
        replica.names = tuple(sorted({*replica.names, *numeric_names(row.metrics for row in rows)}))


def _sum_up(replica: Replica) -> None:
    """Set the seconds and environment steps of a replica to the sums over its curve."""
    replica.seconds = stats.total(point.seconds for point in replica.curve)
    replica.steps = stats.total(point.steps for point in replica.curve)
