"""Output of a running sweep: a table that is redrawn, or lines of text in a pipe.

view.begin(context, warnings)
view.update(records)           # at every tick of the driver, mostly with nothing
view.say("…")                  # from any thread
view.end()
"""

import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweep.cli import tables
from sweep.cli.terminal import Terminal, whole
from sweep.history.events import (
    Closed,
    End,
    Goal,
    Moved,
    Opened,
    Recorded,
    Reported,
    SpaceExhausted,
    Status,
)
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import FIRST_TEST, is_test
from sweep.ledger import ledger
from sweep.ledger.folder import Folder
from sweep.views import formatting, lookup, overview, progress
from sweep.views.progress import Aim
from trainables.errors import printable

if TYPE_CHECKING:
    from sweep.driver.context import DriverContext
    from sweep.driver.session import View

# -------------------------------------------------------------------------------------------------
# Events as lines of text. A slice that only continues a trial is none; what happens to many trials
# at once is one line.

#: Moves of one kind in one transaction that get a line each; more get one line together.
MOST_MOVES = 3


class Kind(StrEnum):
    """The subject of a line."""

    STARTED = "started"
    WAITS = "waits"
    PROMOTED = "promoted"
    SAVED = "saved"
    RETRIED = "retried"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    NOTICE = "notice"
    """A remark, such as about a tracker that is away."""


@dataclass(frozen=True)
class Line:
    """One line; the text is without the trial's number."""

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
    """Turns records of the driver's history into lines; remembers each trial's goal, for changes.

    Going on from a rung is a line only where a trial `is_waiting` there.
    """

    def __init__(self, history: History, waits: bool = True) -> None:
        self._history = history
        self._waits = waits
        self._warned = False
        self._noted_unsaved = False
        self._goals: dict[int, Goal] = {t.number: t.goal for t in history.trials if t.slices}

    def lines(self, records: Sequence[Recorded]) -> list[Line]:
        """The lines for records that are in the history."""
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
            case _:
                return ()

    def _opened(self, event: Opened) -> Iterable[Line]:
        if is_test(event.replica):
            return
        if event.slice == 0 and self._replica(event).joined_at is not None:
            why = printable(event.why)
            yield Line(Kind.PROMOTED, event.trial, f"gets seed {event.replica} {why}")
        before = self._goals.get(event.trial)
        self._goals[event.trial] = event.goal
        if before is None:
            searched = self._history.trials[event.trial].searched
            yield Line(Kind.STARTED, event.trial, f"starts: {formatting.settings(searched)}")
        elif before != event.goal and (self._waits or not event.why.startswith("goes on")):
            yield Line(Kind.PROMOTED, event.trial, printable(event.why))

    def _closed(self, event: Closed) -> Iterable[Line]:
        whose = self._whose(event)
        for skipped in event.skipped:
            text = f"{whose}skips a checkpoint: {printable(skipped)}"
            yield Line(Kind.NOTICE, event.trial, text)
        reason, standing = printable(event.reason), self._standing(event)
        if event.end in (End.GOAL, End.UNMEASURED, End.DONE):
            yield from self._without_metric(event)
            yield from self._never_waited(event)
        if event.status is not Status.PAUSED:
            kind, word = _ENDED[event.status]
            yield Line(kind, event.trial, f"{whose}{word}{standing}: {reason}")
        elif event.end is End.GOAL and self._waits:
            goal = self._goals.get(event.trial, Goal()).at
            rung = "" if goal is None else f" at rung {formatting.number(goal)}"
            yield Line(Kind.WAITS, event.trial, f"{whose}waits{rung}{standing}")
        elif event.end in (End.CRASHED, End.LOST):
            yield Line(Kind.RETRIED, event.trial, f"{whose}is tried again: {reason}")
        elif event.end is End.ASKED:
            yield Line(Kind.SAVED, event.trial, f"{whose}is saved{standing}")

    def _never_waited(self, event: Closed) -> Iterable[Line]:
        """Says once that trials cannot be ended early."""
        from sweep.driver import decisions  # commands that only look at a sweep need no driver

        note = decisions.never_waited(self._replica(event), event)
        if note and not self._noted_unsaved:
            self._noted_unsaved = True
            said = note.removeprefix("; it ")
            yield Line(Kind.NOTICE, event.trial, f"cannot be ended early: it {printable(said)}")

    def _without_metric(self, event: Closed) -> Iterable[Line]:
        metric = self._history.objective.metric
        unseen = not any(metric in row.metrics for row in event.rows)
        if unseen and event.rows and not self._warned and self._history.best is None:
            self._warned = True
            noted = event.reason.partition("; ")[2] or f"its results had no metric '{metric}'"
            said = f"{noted}; no trial has it so far, and those without it are compared with nobody"
            yield Line(Kind.NOTICE, event.trial, f"cannot be compared: {printable(said)}")

    def _replica(self, event: Opened | Closed) -> Replica:
        return self._history.replica(event.trial, event.replica)

    def _whose(self, event: Closed) -> str:
        """Which seed a line is about, if its trial has several."""
        if is_test(event.replica):
            return f"test {event.replica - FIRST_TEST} "
        several = len(self._history.trials[event.trial].replicas) > 1
        return f"seed {event.replica} " if several else ""

    def _standing(self, event: Closed) -> str:
        replica = self._replica(event)
        after, score = formatting.plural(replica.iteration, "iteration"), replica.score_at()
        if score is None:
            return f" after {after}"
        metric = printable(replica.objective.metric)
        return f" after {after}, {metric} {formatting.number(score)}"


def _moves(moves: Sequence[Moved]) -> Iterable[Line]:
    """Yield a line for each trial; what happens to one happens to all its seeds."""
    for status in Status:
        same = list({move.trial: move for move in moves if move.status is status}.values())
        kind, word = _ENDED.get(status, (Kind.NOTICE, status.lower()))
        if len(same) > MOST_MOVES:
            alike = len({move.reason for move in same}) == 1
            whose = "" if alike else f", for instance trial {same[0].trial}"
            yield Line(kind, None, f"{len(same)} trials {word}{whose}: {printable(same[0].reason)}")
            continue
        for move in same:
            yield Line(kind, move.trial, f"{word}: {printable(move.reason)}")


#: Seconds between two pictures.
REDRAW_S = 0.25
#: Seconds that drawing one may take; after one that takes longer, as of a sweep with many trials,
#: the next is later in proportion.
PICTURE_S = 0.01
#: Lines of the log under the table.
LOG_LINES = 8
#: Seconds between two readings of `sweep status --watch`.
WATCH_S = 1.0
#: Lines of a picture that are not running trials.
_OTHER_LINES = LOG_LINES + 10

#: Columns of a picture below a cell of a notebook.
NOTEBOOK_WIDTH = 100

_STYLES = {
    Kind.PROMOTED: "cyan",
    Kind.FINISHED: "green",
    Kind.FAILED: "red",
    Kind.RETRIED: "yellow",
    Kind.NOTICE: "yellow",
}


def make_view(console: Terminal) -> "View":
    """A table where lines can be redrawn, plain text elsewhere."""
    if in_notebook() and not console.live:
        return NotebookView(Terminal(sys.stdout, width=NOTEBOOK_WIDTH))
    return LiveView(console) if console.live else PlainView(console)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class PlainView:
    """Prints lines below each other."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._said: deque[str] = deque()
        self._narrator: Narrator | None = None

    def begin(self, context: "DriverContext", warnings: Sequence[str]) -> None:
        """Print the title and the warnings."""
        self._narrator = Narrator(context.history, context.scheduler.pauses)
        self._console.show(title(context))
        for warning in warnings:
            self.say(f"warning: {warning}")
        self._flush()

    def update(self, records: Sequence[Recorded]) -> None:
        """Print the lines of the records."""
        for line in self._narrator.lines(records) if self._narrator else ():
            self._console.say(str(line))
        self._flush()

    def say(self, text: str) -> None:
        """Printed at the next tick, by the driver's thread."""
        self._said.append(text)

    def end(self) -> None:
        """Print what is left to say."""
        self._flush()

    def _flush(self) -> None:
        while self._said:
            self._console.say(printable(self._said.popleft()))


class LiveView:
    """Running trials, progress, the best so far and the newest events, redrawn in place."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._log: deque[Line] = deque(maxlen=LOG_LINES)
        self._trained_to: dict[tuple[int, int], float] = {}
        self._notes = progress.NewestNotes()
        self._next_at = 0.0
        self._live: Live | _Output | None = None

    def begin(self, context: "DriverContext", warnings: Sequence[str]) -> None:
        """Draw the first picture."""
        self._context = context
        self._narrator = Narrator(context.history, context.scheduler.pauses)
        self._aim = Aim.of(context.scheduler, context.spec)
        self._began_at = time.monotonic()
        self._began_with = progress.newest_fraction(context.history, self._aim)
        for warning in warnings:
            self.say(f"warning: {warning}")
        self._live = self._screen()
        self._live.start()
        self._draw()

    def _screen(self) -> "Live | _Output":
        return Live(console=self._console, auto_refresh=False, transient=True)

    def update(self, records: Sequence[Recorded]) -> None:
        """Log the records; draw if the last picture is old enough."""
        for record in records:
            if isinstance(record.event, Opened | Reported):
                self._trained_to[record.event.trial, record.event.replica] = record.at
        quiet = (Kind.STARTED, Kind.WAITS)
        self._log.extend(line for line in self._narrator.lines(records) if line.kind not in quiet)
        if time.monotonic() >= self._next_at:
            self._draw()

    def say(self, text: str) -> None:
        """Goes into the log, drawn with the next picture."""
        self._log.append(Line(Kind.NOTICE, None, printable(text)))

    def end(self) -> None:
        """Leave the newest events on the screen, without the table."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._console.show(title(self._context), *self._log_lines(kept=True))

    def _draw(self) -> None:
        began = time.monotonic()
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        ended = time.monotonic()
        self._next_at = ended + REDRAW_S * max(1.0, (ended - began) / PICTURE_S)

    def _picture(self) -> RenderableType:
        context = self._context
        notes = self._notes.read(context.folder, context.history)
        now = ledger.now()
        rows = []
        for replica in progress.running(context.history):
            trained_to = self._trained_to.get((replica.trial, replica.index))
            rows.append(overview.running_replica(context.history, replica, notes, trained_to, now))
        share = progress.newest_fraction(context.history, self._aim, notes)
        shown: list[RenderableType] = [title(context)]
        if remark := context.pool.describe_speed():
            shown.append(Text(printable(remark)))
        shown += [Text(), *self._running(rows)]
        shown += [Text(), self._bar(share, time.monotonic() - self._began_at)]
        best = overview.best_so_far(context.history)
        shown += [tables.best_line(best)] if best else []
        return Group(*shown, Text(), *self._log_lines())

    def _running(self, rows: list[overview.Data]) -> list[RenderableType]:
        room = max(1, self._console.height - _OTHER_LINES)
        objective = self._context.history.objective
        shown: list[RenderableType] = [
            tables.running(rows[:room], objective.metric, objective.time_attr)
        ]
        if len(rows) > room:
            shown.append(Text(f"and {len(rows) - room} more", style="dim"))
        return shown

    def _bar(self, share: float, elapsed: float) -> RenderableType:
        history = self._context.history
        left = progress.time_left(elapsed, share, self._began_with)
        rest = "" if left is None else f", about {formatting.duration(left)} left"
        bar = Table.grid(padding=(0, 2, 0, 0))
        bar.add_row(
            ProgressBar(total=1.0, completed=share, width=max(10, self._console.width // 3)),
            f"{share:.0%}",
            f"{formatting.duration(elapsed)}{rest}",
        )
        counts = tables.in_words(overview.status_counts(history))
        bred = len(history.trials) - history.searched_count
        started = formatting.started(history.searched_count, bred, history.wanted)
        if history.final_evaluation:
            counts, started = (
                "",
                overview.progress_of_tests(history, history.final_evaluation),
            )
        return Group(bar, Text(f"{started}: {counts}" if counts else started))

    def _log_lines(self, kept: bool = False) -> list[Text]:
        """The newest events, a line each; of those that are `kept`, notices are not cut."""
        lines = [whole(str(line), _STYLES.get(line.kind, "")) for line in self._log]
        for line, event in zip(lines, self._log, strict=True):
            if not (kept and event.kind is Kind.NOTICE):  # what it says to do may be at its end
                line.overflow = "ellipsis"
        return lines


class NotebookView(LiveView):
    """The same below the cell of a notebook that runs the sweep."""

    def _screen(self) -> "_Output":
        return _Output(self._console)


class _Output:
    """One output of a cell, as text that is replaced."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._handle: Any = None

    def start(self) -> None:
        from IPython.display import display

        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def update(self, picture: RenderableType, *, refresh: bool = False) -> None:
        with self._console.capture() as captured:
            self._console.print(picture)
        self._handle.update({"text/plain": captured.get()}, raw=True)

    def stop(self) -> None:
        self._handle.update({"text/plain": ""}, raw=True)


def title(context: "DriverContext") -> Text:
    """The sweep's name, how it searches and where it lies."""
    spec = context.spec
    how = f"{spec.searcher.name} · {spec.scheduler.name} · {spec.mode} {printable(spec.metric)}"
    where = printable(str(context.folder.path))
    return Text.assemble((printable(spec.name), "bold"), f"  {how}  ", (where, "dim"))


def status_now(folder: Folder, notes: progress.NewestNotes | None = None) -> overview.Data:
    """Return the data that `sweep status` shows; `notes` keeps the progress read before."""
    sweep = lookup.read(folder, curves=False)
    read = (notes or progress.NewestNotes()).read(folder, sweep.history)
    return overview.status(sweep, read, time.time())


def watch(folder: Folder, console: Terminal) -> None:
    """Show the status until the sweep runs no more, or Ctrl-C; in a pipe only once."""
    notes = progress.NewestNotes()
    data = status_now(folder, notes)
    if not console.live:
        console.show(tables.status(data))
        return
    with (
        suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):
        while data["state"] in lookup.DRIVEN:
            live.update(tables.status(data), refresh=True)
            time.sleep(WATCH_S)
            data = status_now(folder, notes)
    console.show(tables.status(data))  # a picture that is redrawn is cut at the terminal's width
