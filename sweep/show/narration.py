"""Events as lines of text: what a person who watches a sweep wants to know, and nothing more.

A slice that merely continues is no news. What happens to many trials at once is one line.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sweep import verdicts
from sweep.events import Closed, Created, End, Goal, Moved, Opened, Recorded, SpaceExhausted, Status
from sweep.history import History, Replica
from sweep.seeds import FIRST_TEST, is_test
from sweep.show import wording
from trainables.errors import printable

#: Moves of one kind in one transaction that are told one by one; of more only their number.
MOST_MOVES = 3


class Kind(StrEnum):
    """What a line tells."""

    STARTED = "started"
    WAITS = "waits"
    PROMOTED = "promoted"
    SAVED = "saved"
    RETRIED = "retried"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    NOTICE = "notice"
    """What is not about one trial, such as a tracker that is away."""


@dataclass(frozen=True)
class Line:
    """One line, without its trial's number where it has one."""

    kind: Kind
    trial: int | None
    text: str

    def __str__(self) -> str:
        return self.text if self.trial is None else f"trial {self.trial} {self.text}"


_ENDED = {
    Status.COMPLETED: (Kind.FINISHED, "finished"),
    Status.PRUNED: (Kind.STOPPED, "pruned"),
    Status.STOPPED: (Kind.STOPPED, "stopped"),
    Status.FAILED: (Kind.FAILED, "failed"),
    Status.PAUSED: (Kind.RETRIED, "goes on"),
}


class Narrator:
    """Tells what was recorded; remembers each trial's goal, to see that it was given another.

    Args:
        history: the same one that the driver extends.
        waits: whether trials wait at rungs; those that are only looked at there are no news.
    """

    def __init__(self, history: History, waits: bool = True) -> None:
        self._history = history
        self._waits = waits
        self._warned = False
        self._told_unsaved = False
        self._goals: dict[int, Goal] = {t.number: t.goal for t in history.trials if t.slices}

    def tell(self, records: Sequence[Recorded]) -> list[Line]:
        """The lines for records that the history has taken in."""
        lines: list[Line] = []
        for record in records:
            lines += self._line(record)
        return [*lines, *_moves([r.event for r in records if isinstance(r.event, Moved)])]

    def _line(self, record: Recorded) -> Iterable[Line]:
        match record.event:
            case Opened() as opened:
                return self._opened(opened)
            case Closed() as closed:
                return self._closed(closed)
            case SpaceExhausted(reason):
                return [Line(Kind.NOTICE, None, f"nothing is left to search: {printable(reason)}")]
            case Created() | Moved() | _:
                return ()

    def _opened(self, event: Opened) -> Iterable[Line]:
        if is_test(event.replica):
            return
        joins = event.slice == 0 and self._replica(event).joined_at is not None
        if joins:
            why = self._shortly(event.why)
            yield Line(Kind.PROMOTED, event.trial, f"gets seed {event.replica} {why}")
        before = self._goals.get(event.trial)
        self._goals[event.trial] = event.goal
        if before is None:
            searched = self._history.trials[event.trial].searched
            yield Line(Kind.STARTED, event.trial, f"starts: {wording.settings(searched)}")
        elif before != event.goal and (self._waits or not event.why.startswith("goes on")):
            yield Line(Kind.PROMOTED, event.trial, self._shortly(event.why))

    def _closed(self, event: Closed) -> Iterable[Line]:
        whose = self._whose(event)
        for skipped in event.skipped:
            text = f"{whose}skips a checkpoint: {printable(skipped)}"
            yield Line(Kind.NOTICE, event.trial, text)
        reason, standing = printable(event.reason), self._standing(event)
        if event.end in (End.GOAL, End.DONE):
            yield from self._without_metric(event)
            yield from self._never_waited(event)
        if event.status is not Status.PAUSED:
            kind, word = _ENDED[event.status]
            yield Line(kind, event.trial, f"{whose}{word}{standing}: {reason}")
        elif event.end is End.GOAL and self._waits:
            goal = self._goals.get(event.trial, Goal()).at
            rung = "" if goal is None else f" at rung {wording.number(goal)}"
            yield Line(Kind.WAITS, event.trial, f"{whose}waits{rung}{standing}")
        elif event.end in (End.CRASHED, End.LOST):
            yield Line(Kind.RETRIED, event.trial, f"{whose}is tried again: {reason}")
        elif event.end is End.ASKED:
            yield Line(Kind.SAVED, event.trial, f"{whose}is saved{standing}")

    def _never_waited(self, event: Closed) -> Iterable[Line]:
        """Says once that nothing can be ended early."""
        note = verdicts.never_waited(self._replica(event), event)
        if note and not self._told_unsaved:
            self._told_unsaved = True
            said = note.removeprefix("; it ")
            yield Line(Kind.NOTICE, event.trial, f"cannot be ended early: it {printable(said)}")

    def _without_metric(self, event: Closed) -> Iterable[Line]:
        """Says once that no trial has what they are compared by."""
        metric = self._history.objective.metric
        unseen = not any(metric in row.metrics for row in event.rows)
        scored = any(trial.score is not None for trial in self._history.trials)
        if unseen and event.rows and not scored and not self._warned:
            self._warned = True
            noted = event.reason.partition("; ")[2] or f"its results had no metric '{metric}'"
            said = f"{noted}; no trial has it so far, and those without it rank last"
            yield Line(Kind.NOTICE, event.trial, f"cannot be compared: {printable(said)}")

    def _shortly(self, why: str) -> str:
        metric = self._history.objective.metric
        return printable(why.replace(metric, wording.last_part(metric)))

    def _replica(self, event: Opened | Closed) -> Replica:
        return self._history.replica(event.trial, event.replica)

    def _whose(self, event: Closed) -> str:
        """Which seed a line is about, where its trial has several."""
        if is_test(event.replica):
            return f"test {event.replica - FIRST_TEST} "
        several = len(self._history.trials[event.trial].replicas) > 1
        return f"seed {event.replica} " if several else ""

    def _standing(self, event: Closed) -> str:
        replica = self._replica(event)
        after, score = wording.plural(replica.iteration, "iteration"), replica.score_at()
        if score is None:
            return f" after {after}"
        metric = wording.last_part(replica.objective.metric)
        return f" after {after}, {metric} {wording.number(score)}"


def _moves(moves: Sequence[Moved]) -> Iterable[Line]:
    """One line for each trial; what happens to one happens to all its seeds."""
    for status in Status:
        same = list({move.trial: move for move in moves if move.status is status}.values())
        kind, word = _ENDED.get(status, (Kind.NOTICE, status.lower()))
        if len(same) > MOST_MOVES:
            first = f"trial {same[0].trial} because {printable(same[0].reason)}"
            yield Line(kind, None, f"{len(same)} trials {word}, {first}")
            continue
        for move in same:
            yield Line(kind, move.trial, f"{word}: {printable(move.reason)}")
