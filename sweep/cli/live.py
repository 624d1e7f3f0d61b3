"""Display a running sweep: a table that is redrawn, or lines of text in a pipe.

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
from sweep.cli.terminal import Terminal, unwrapped
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
from sweep.views import final_evaluation, formatting, lookup, overview, progress
from sweep.views.first_result import COMPARED
from sweep.views.progress import Aim
from trainables.errors import printable

if TYPE_CHECKING:
    from sweep.driver.context import DriverContext
    from sweep.driver.session import View

# -------------------------------------------------------------------------------------------------
# Events as lines of text. A slice that only continues a trial gets no line; an event of many trials
# at once gets one line.

#: Largest number of equal moves in one update that get a line each; more share one line.
MOST_MOVES = 3


class Kind(StrEnum):
    """The kind of event that a line is about."""

    STARTED = "started"
    WAITS = "waits"
    PROMOTED = "promoted"
    SAVED = "saved"
    RETRIED = "retried"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    NOTICE = "notice"
    """Message that is no event of a trial, for example about an unreachable tracker."""


@dataclass(frozen=True)
class Line:
    """One line of text about an event."""

    kind: Kind
    """Kind of event, which decides the line's colour."""
    trial: int | None
    """Number of the trial; None if the line is about several or none."""
    text: str
    """Text without the trial's number at its beginning."""

    def __str__(self) -> str:
        return self.text if self.trial is None else f"trial {self.trial} {self.text}"


#: Final status of a trial → kind of its line, and the word in it.
_ENDED = {
    Status.COMPLETED: (Kind.FINISHED, "finished"),
    Status.PRUNED: (Kind.STOPPED, "pruned"),
    Status.STOPPED: (Kind.STOPPED, "stopped"),
    Status.FAILED: (Kind.FAILED, "failed"),
    Status.PAUSED: (Kind.RETRIED, "continues"),
}


class Narrator:
    """Converts new events of a history to lines of text.

    With `waits`, the scheduler pauses trials at rungs; only then are waits and continuations at a
    rung reported. `rungs` are those of `decisions.missing_metric_error`.
    """

    def __init__(
        self, history: History, waits: bool = True, rungs: Sequence[float] | None = None
    ) -> None:
        self._history = history
        self._waits = waits
        self._rungs = rungs
        self._warned = False
        self._noted_unsaved = False
        self._goals: dict[int, Goal] = {t.number: t.goal for t in history.trials if t.slices}

    def lines(self, records: Sequence[Recorded]) -> list[Line]:
        """Return the lines for events that were just added to the history; pass each event once.

        Changes of status come last; more than `MOST_MOVES` to one status share a line.
        """
        lines: list[Line] = []
        for record in records:
            lines += self._line(record)
        return [*lines, *_moved_lines([r.event for r in records if isinstance(r.event, Moved)])]

    def _line(self, record: Recorded) -> Iterable[Line]:
        """Return the lines for one event: a slice that began or ended, or an exhausted space.

        There are none for any other event.
        """
        match record.event:
            case Opened() as opened:
                return self._opened_lines(opened)
            case Closed() as closed:
                return self._closed_lines(closed)
            case SpaceExhausted(reason):
                return [Line(Kind.NOTICE, None, f"the search ends early: {printable(reason)}")]
            case _:
                return ()

    def _opened_lines(self, event: Opened) -> Iterable[Line]:
        """Yield a line for a slice that starts a trial or seed, or continues to a new goal.

        Notes the goal. Yields nothing for a test seed, for the old goal, or, with a scheduler that
        pauses no trials, for a slice that just continues.
        """
        if is_test(event.replica):
            return
        before = self._goals.get(event.trial)
        self._goals[event.trial] = event.goal
        if event.slice == 0 and self._replica(event).joined_at is not None:
            why = printable(event.reason)
            yield Line(Kind.PROMOTED, event.trial, f"gets seed {event.replica}, {why}")
        elif before is None:
            searched = self._history.trials[event.trial].searched
            yield Line(Kind.STARTED, event.trial, f"starts: {formatting.settings(searched)}")
        elif before != event.goal and (self._waits or not event.reason.startswith("continues")):
            yield Line(Kind.PROMOTED, event.trial, printable(event.reason))

    def _closed_lines(self, event: Closed) -> Iterable[Line]:
        """Yield the lines for a slice that ended: skipped checkpoints, warnings and its result.

        The result has no line if the trial simply continues, as after the slice's time was up.
        """
        prefix = self._seed_prefix(event)
        for skipped in event.skipped:
            text = f"{prefix}skips a checkpoint: {printable(skipped)}"
            yield Line(Kind.NOTICE, event.trial, text)
        reason, standing = printable(self._news(event)), self._progress_suffix(event)
        if event.end in COMPARED:
            yield from self._warn_unmeasured(event)
            yield from self._explain_unsaved(event)
        if event.status is not Status.PAUSED:
            kind, word = _ENDED[event.status]
            yield Line(kind, event.trial, f"{prefix}{word}{standing}: {reason}")
        elif event.end is End.GOAL and self._waits:
            goal = self._goals.get(event.trial, Goal()).until
            rung = "" if goal is None else f" at rung {formatting.number(goal)}"
            yield Line(Kind.WAITS, event.trial, f"{prefix}waits{rung}{standing}")
        elif event.end in (End.CRASHED, End.LOST):
            yield Line(Kind.RETRIED, event.trial, f"{prefix}is tried again: {reason}")
        elif event.end is End.ASKED:
            yield Line(Kind.SAVED, event.trial, f"{prefix}is saved{standing}")

    def _explain_unsaved(self, event: Closed) -> Iterable[Line]:
        """Yield a line if the trial ran past its rung because it does not save.

        Only once in a sweep.
        """
        from sweep.driver import decisions  # commands that only look at a sweep need no driver

        note = decisions.unpaused_note(self._replica(event), event)
        if note and not self._noted_unsaved:
            self._noted_unsaved = True
            said = note.removeprefix("; it ")
            yield Line(Kind.NOTICE, event.trial, f"cannot be ended early: it {printable(said)}")

    def _warn_unmeasured(self, event: Closed) -> Iterable[Line]:
        """Yield a line if results lack the metric, no trial has it so far, and the sweep continues.

        Only once in a sweep. If the sweep ends because the metric is missing, its error says so.
        """
        from sweep.driver import decisions  # commands that only look at a sweep need no driver

        metric = self._history.objective.metric
        unseen = not any(metric in row.metrics for row in event.rows)
        if unseen and event.rows and not self._warned and self._history.best is None:
            self._warned = True
            if decisions.missing_metric_error(self._history, "", self._rungs):
                return
            noted = event.reason.partition("; ")[2] or f"its results had no metric '{metric}'"
            link = " No" if noted.endswith("?") else "; no"
            said = f"{noted}{link} trial has had it so far"
            yield Line(Kind.NOTICE, event.trial, f"cannot be compared: {printable(said)}")

    def _news(self, event: Closed) -> str:
        """Return the reason of a slice's end, without the missing metric while no trial has it.

        The metric has a line of its own then, or ends the sweep with an error.
        """
        from sweep.driver import decisions  # commands that only look at a sweep need no driver

        if self._history.has_metric:
            return event.reason
        return decisions.without_metric_note(event.reason, self._history.objective.metric)

    def _replica(self, event: Opened | Closed) -> Replica:
        """Return the replica that an event is about."""
        return self._history.replica(event.trial, event.replica)

    def _seed_prefix(self, event: Closed) -> str:
        """Return words for the seed or test of an event; empty if its trial has one seed."""
        if is_test(event.replica):
            return f"test {event.replica - FIRST_TEST} "
        several = len(self._history.trials[event.trial].replicas) > 1
        return f"seed {event.replica} " if several else ""

    def _progress_suffix(self, event: Closed) -> str:
        """Return words for iterations and score of an event's replica, as they are now.

        For example `` after 3 iterations, loss 0.5``; without a score the number alone.
        """
        replica = self._replica(event)
        after, score = formatting.plural(replica.iteration, "iteration"), replica.score_at()
        if score is None:
            return f" after {after}"
        metric = printable(replica.objective.metric)
        return f" after {after}, {metric} {formatting.number(score)}"


def _narrator_of(context: "DriverContext") -> Narrator:
    """Return the narrator for a driver's history and scheduler."""
    from sweep.driver import decisions  # commands that only look at a sweep need no driver

    scheduler = context.scheduler
    return Narrator(context.history, scheduler.pauses, decisions.compared_levels(scheduler))


def _moved_lines(moves: Sequence[Moved]) -> Iterable[Line]:
    """Yield a line for each trial whose status changed, in the order of `Status`.

    More than `MOST_MOVES` changes to one status share a line. A trial has one line for a status,
    however many of its seeds changed.
    """
    for status in Status:
        same = list({move.trial: move for move in moves if move.status is status}.values())
        kind, word = _ENDED.get(status, (Kind.NOTICE, status.lower()))
        if len(same) > MOST_MOVES:
            is_same_reason = len({move.reason for move in same}) == 1
            whose = "" if is_same_reason else f", for instance trial {same[0].trial}"
            words = "continue" if status is Status.PAUSED else word
            said = f"{len(same)} trials {words}{whose}: {printable(same[0].reason)}"
            yield Line(kind, None, said)
            continue
        for move in same:
            yield Line(kind, move.trial, f"{word}: {printable(move.reason)}")


#: Smallest time between two pictures, in seconds.
REDRAW_S = 0.25
#: Time budget for drawing a picture, in seconds; a slower one delays the next in proportion.
PICTURE_S = 0.01
#: Number of lines of the log below the table.
LOG_LINES = 8
#: Time between two updates of `sweep status --watch`, in seconds.
WATCH_S = 1.0
#: Number of lines of a picture without the running trials.
_OTHER_LINES = LOG_LINES + 10

#: Width of a picture in a notebook, in characters.
NOTEBOOK_WIDTH = 100

#: Kind of a line → its colour in a terminal.
_STYLES = {
    Kind.PROMOTED: "cyan",
    Kind.FINISHED: "green",
    Kind.FAILED: "red",
    Kind.RETRIED: "yellow",
    Kind.NOTICE: "yellow",
}


def make_view(console: Terminal) -> "View":
    """Return a view that redraws a table, or prints lines if the console cannot be redrawn.

    In a notebook it is a view below the cell.
    """
    if in_notebook() and not console.is_live:
        return NotebookView(Terminal(sys.stdout, width=NOTEBOOK_WIDTH))
    return LiveView(console) if console.is_live else PlainView(console)


def in_notebook() -> bool:
    """Return true if this process is the IPython kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class PlainView:
    """A view that prints one line for each event; see `View`."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._said: deque[str] = deque()
        self._narrator: Narrator | None = None

    def begin(self, context: "DriverContext", warnings: Sequence[str]) -> None:
        """Print the title, messages that were queued before, and the warnings."""
        self._narrator = _narrator_of(context)
        self._console.show(title(context))
        for warning in warnings:
            self.say(f"warning: {warning}")
        self._flush()

    def update(self, records: Sequence[Recorded]) -> None:
        """Print the lines for new events, and queued messages."""
        for line in self._narrator.lines(records) if self._narrator else ():
            self._console.say(str(line))
        self._flush()

    def say(self, text: str) -> None:
        """Queue a message, which the driver's thread prints at its next update."""
        self._said.append(text)

    def end(self) -> None:
        """Print the messages that are left."""
        self._flush()

    def _flush(self) -> None:
        """Print all queued messages."""
        while self._said:
            self._console.say(printable(self._said.popleft()))


class LiveView:
    """A view of running trials, progress, the best trial and new events, redrawn in place."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._log: deque[Line] = deque(maxlen=LOG_LINES)
        self._trained_to: dict[tuple[int, int], float] = {}
        self._notes = progress.NewestNotes()
        self._next_at = 0.0
        self._live: Live | _NotebookOutput | None = None

    def begin(self, context: "DriverContext", warnings: Sequence[str]) -> None:
        """Start the display, with the warnings in its log, and draw it for the first time."""
        self._context = context
        self._narrator = _narrator_of(context)
        self._aim = Aim.of(context.scheduler, context.spec)
        self._began_at = time.monotonic()
        self._began_with = progress.newest_fraction(context.history, self._aim)
        for warning in warnings:
            self.say(f"warning: {warning}")
        self._live = self._screen()
        self._live.start()
        self._draw()

    def _screen(self) -> "Live | _NotebookOutput":
        """Return rich's display, on which the pictures are drawn."""
        return Live(console=self._console, auto_refresh=False, transient=True)

    def update(self, records: Sequence[Recorded]) -> None:
        """Log the lines of new events, and draw the display if it is old enough.

        Starts and waits of trials are not logged. Call it after `begin`.
        """
        for record in records:
            if isinstance(record.event, Opened | Reported):
                self._trained_to[record.event.trial, record.event.replica] = record.time
        quiet = (Kind.STARTED, Kind.WAITS)
        self._log.extend(line for line in self._narrator.lines(records) if line.kind not in quiet)
        if time.monotonic() >= self._next_at:
            self._draw()

    def say(self, text: str) -> None:
        """Add a message to the log, for the next picture; may be called from any thread."""
        self._log.append(Line(Kind.NOTICE, None, printable(text)))

    def end(self) -> None:
        """Remove the display, and print title and newest events; nothing if there is no display."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._console.show(title(self._context), *self._log_lines(is_kept=True))

    def _draw(self) -> None:
        """Draw the present state, and decide when to draw again: later if drawing was slow."""
        began = time.monotonic()
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        ended = time.monotonic()
        self._next_at = ended + REDRAW_S * max(1.0, (ended - began) / PICTURE_S)

    def _picture(self) -> RenderableType:
        """Return the present picture: title, running trials, progress, best trial and log.

        Reads the progress files of running slices.
        """
        context = self._context
        notes = self._notes.read(context.folder, context.history)
        now = ledger.now()
        rows = []
        for replica in progress.running(context.history):
            last_trained_at = self._trained_to.get((replica.trial, replica.index))
            rows.append(
                overview.running_replica(context.history, replica, notes, last_trained_at, now)
            )
        share = progress.newest_fraction(context.history, self._aim, notes)
        shown: list[RenderableType] = [title(context)]
        if remark := context.pool.describe_speed():
            shown.append(Text(printable(remark)))
        shown += [Text(), *self._running(rows)]
        shown += [Text(), self._bar(share, time.monotonic() - self._began_at)]
        best = overview.best_so_far(context.history)
        shown += tables.best_lines(best) if best else []
        return Group(*shown, Text(), *self._log_lines())

    def _running(self, rows: list[overview.Data]) -> list[RenderableType]:
        """Return the table of running trials, cut to the height of the screen.

        A line below it says how many are left out.
        """
        room = max(1, self._console.height - _OTHER_LINES)
        objective = self._context.history.objective
        shown: list[RenderableType] = [
            tables.running(rows[:room], objective.metric, objective.time_attr)
        ]
        if len(rows) > room:
            shown.append(Text(f"and {len(rows) - room} more", style="dim"))
        return shown

    def _bar(self, share: float, elapsed: float) -> RenderableType:
        """Return the progress bar for a `share` from 0 to 1 of the work, after `elapsed` seconds.

        It also has the time left, and the number of trials, or of tests in a final evaluation.
        """
        history = self._context.history
        left = progress.time_left(elapsed, share, self._began_with)
        rest = "" if left is None else f", about {formatting.duration(left)} left"
        bar = Table.grid(padding=(0, 2, 0, 0))
        bar.add_row(
            ProgressBar(total=1.0, completed=share, width=max(10, self._console.width // 3)),
            f"{share:.0%}",
            f"{formatting.duration(elapsed)}{rest}",
        )
        counts = tables.counts_text(overview.status_counts(history))
        bred = len(history.trials) - history.searched_count
        started = formatting.trials_text(history.searched_count, bred, history.wanted)
        if history.final_evaluation:
            counts, started = (
                "",
                final_evaluation.progress_text(history, history.final_evaluation),
            )
        return Group(bar, Text(f"{started}: {counts}" if counts else started))

    def _log_lines(self, is_kept: bool = False) -> list[Text]:
        """Return the newest events and messages, at most `LOG_LINES`, one line each.

        Lines are cut at the width; if `is_kept`, messages are not.
        """
        lines = [unwrapped(str(line), _STYLES.get(line.kind, "")) for line in self._log]
        for line, event in zip(lines, self._log, strict=True):
            if not (is_kept and event.kind is Kind.NOTICE):  # its advice is at its end
                line.overflow = "ellipsis"
        return lines


class NotebookView(LiveView):
    """A view with the same display as `LiveView`, below the cell of a notebook."""

    def _screen(self) -> "_NotebookOutput":
        """Return the output of the cell, on which the pictures are drawn."""
        return _NotebookOutput(self._console)


class _NotebookOutput:
    """The output of a notebook's cell, as text that is replaced; stands in for rich's `Live`."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._handle: Any = None

    def start(self) -> None:
        """Create the cell's empty output."""
        from IPython.display import display

        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def update(self, picture: RenderableType, *, refresh: bool = False) -> None:
        """Replace the cell's output by a picture; `refresh` is there as in rich's `Live`."""
        with self._console.capture() as captured:
            self._console.print(picture)
        self._handle.update({"text/plain": captured.get()}, raw=True)

    def stop(self) -> None:
        """Empty the cell's output."""
        self._handle.update({"text/plain": ""}, raw=True)


def title(context: "DriverContext") -> Text:
    """Return the line with name, searcher, scheduler, metric and folder of the sweep."""
    spec = context.spec
    how = f"{spec.searcher.name} · {spec.scheduler.name} · {spec.mode} {printable(spec.metric)}"
    where = printable(str(context.folder.path))
    return Text.assemble((printable(spec.name), "bold"), f"  {how}  ", (where, "dim"))


def current_status(folder: Folder, notes: progress.NewestNotes | None = None) -> overview.Data:
    """Read the data for `sweep status`; `notes` caches the progress files between calls."""
    sweep = lookup.read(folder, curves=False)
    read = (notes or progress.NewestNotes()).read(folder, sweep.history)
    return overview.status(sweep, read, time.time())


def watch(folder: Folder, console: Terminal) -> None:
    """Redraw the status every `WATCH_S` seconds until no driver runs or Ctrl-C, then print it.

    In a pipe it is only printed.
    """
    notes = progress.NewestNotes()
    data = current_status(folder, notes)
    if not console.is_live:
        console.show(tables.status(data))
        return
    with (
        suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):
        while data["state"] in lookup.DRIVEN:
            live.update(tables.status(data), refresh=True)
            time.sleep(WATCH_S)
            data = current_status(folder, notes)
    console.show(tables.status(data))  # a live picture is cut at the terminal's size
