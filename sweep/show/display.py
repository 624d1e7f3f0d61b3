"""What a person sees while a sweep runs: a table that is redrawn, or lines of text in a pipe.

view.begin(parts, warnings)
view.update(records)           # at every tick of the driver, mostly with nothing
view.say("…")                  # from any thread
view.end()
"""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweep import clock
from sweep.events import Opened, Recorded
from sweep.folder import Folder
from sweep.parts import Parts
from sweep.show import exams, look, progress, render, views, wording
from sweep.show.narration import Kind, Line, Narrator
from sweep.show.progress import Aim
from sweep.show.terminal import Terminal
from trainables.errors import printable

#: Seconds between two pictures.
REDRAW_S = 0.25
#: Lines of the log under the table.
LOG_LINES = 8
#: Seconds between two looks of `sweep status --watch`.
WATCH_S = 1.0
#: Lines of a picture that are not running trials.
_OTHER_LINES = LOG_LINES + 9

_STYLES = {
    Kind.PROMOTED: "cyan",
    Kind.FINISHED: "green",
    Kind.FAILED: "red",
    Kind.RETRIED: "yellow",
    Kind.NOTICE: "yellow",
}


class View(Protocol):
    """Shows a driver's work."""

    def begin(self, parts: Parts, warnings: Sequence[str]) -> None:
        """The driver is about to run."""
        ...

    def update(self, records: Sequence[Recorded]) -> None:
        """The history has taken in `records`; none at an idle tick."""
        ...

    def say(self, text: str) -> None:
        """Something that is not in the history; may be called from any thread."""
        ...

    def end(self) -> None:
        """The driver has ended; nothing is redrawn any more."""
        ...


def make_view(console: Terminal) -> View:
    """A table where lines can be redrawn, plain text elsewhere."""
    return LiveView(console) if console.live else PlainView(console)


class PlainView:
    """One line per event that is worth it."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._said: deque[str] = deque()
        self._narrator: Narrator | None = None

    def begin(self, parts: Parts, warnings: Sequence[str]) -> None:
        """Say what runs."""
        self._narrator = Narrator(parts.history, parts.scheduler.pauses)
        self._console.show(title(parts))
        for warning in warnings:
            self.say(f"warning: {warning}")
        self._flush()

    def update(self, records: Sequence[Recorded]) -> None:
        """Tell the records."""
        for line in self._narrator.tell(records) if self._narrator else ():
            self._console.show(Text(str(line)), soft_wrap=True)
        self._flush()

    def say(self, text: str) -> None:
        """Printed at the next tick, by the driver's thread."""
        self._said.append(text)

    def end(self) -> None:
        """Print what is left to say."""
        self._flush()

    def _flush(self) -> None:
        while self._said:
            self._console.show(Text(printable(self._said.popleft())), soft_wrap=True)


class LiveView:
    """Running trials, progress, the best so far and the newest events, redrawn in place."""

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._log: deque[Line] = deque(maxlen=LOG_LINES)
        self._opened_at: dict[tuple[int, int], float] = {}
        self._drawn_at = 0.0
        self._live: Live | None = None

    def begin(self, parts: Parts, warnings: Sequence[str]) -> None:
        """Draw the first picture."""
        self._parts = parts
        self._narrator = Narrator(parts.history, parts.scheduler.pauses)
        self._aim = Aim.of(parts.scheduler, parts.spec)
        self._began_at = time.monotonic()
        self._measure = progress.exam_fraction if parts.history.exam else progress.fraction
        self._began_with = self._measure(parts.history, self._aim)
        for warning in warnings:
            self.say(f"warning: {warning}")
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._draw()

    def update(self, records: Sequence[Recorded]) -> None:
        """Take note of records; draw if the last picture is old enough."""
        for record in records:
            if isinstance(record.event, Opened):
                self._opened_at[record.event.trial, record.event.replica] = record.at
        quiet = (Kind.STARTED, Kind.WAITS)
        self._log.extend(line for line in self._narrator.tell(records) if line.kind not in quiet)
        if time.monotonic() - self._drawn_at >= REDRAW_S:
            self._draw()

    def say(self, text: str) -> None:
        """Goes into the log, drawn with the next picture."""
        self._log.append(Line(Kind.NOTICE, None, printable(text)))

    def end(self) -> None:
        """Leave the newest events on the screen, and what runs no more off it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._console.show(title(self._parts), *self._log_lines())

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    # ---- the picture ------------------------------------------------------------------------

    def _picture(self) -> RenderableType:
        parts = self._parts
        notes = progress.read_notes(parts.folder, parts.history)
        now = clock.now()
        rows = [
            views.running_replica(
                parts.history,
                replica,
                notes,
                self._opened_at.get((replica.trial, replica.index)),
                now,
            )
            for replica in progress.running(parts.history)
        ]
        share = self._measure(parts.history, self._aim, notes)
        shown: list[RenderableType] = [title(parts), Text()]
        shown += self._running(rows)
        shown += [Text(), self._bar(share, time.monotonic() - self._began_at)]
        best = views.best_so_far(parts.history)
        shown += [render.best_line(best)] if best else []
        return Group(*shown, Text(), *self._log_lines())

    def _running(self, rows: list[views.Data]) -> list[RenderableType]:
        room = max(1, self._console.height - _OTHER_LINES)
        objective = self._parts.history.objective
        shown: list[RenderableType] = [
            render.running(rows[:room], objective.metric, objective.time_attr)
        ]
        if len(rows) > room:
            shown.append(Text(f"and {len(rows) - room} more", style="dim"))
        return shown

    def _bar(self, share: float, elapsed: float) -> RenderableType:
        history = self._parts.history
        left = progress.time_left(elapsed, share, self._began_with)
        rest = "" if left is None else f", about {wording.duration(left)} left"
        bar = Table.grid(padding=(0, 2, 0, 0))
        bar.add_row(
            ProgressBar(total=1.0, completed=share, width=max(10, self._console.width // 3)),
            f"{share:.0%}",
            f"{wording.duration(elapsed)}{rest}",
        )
        counts = render.in_words(views.counts(history))
        bred = len(history.trials) - history.searched
        started = wording.started(history.searched, bred, history.wanted)
        if history.exam:
            counts, started = "", exams.standing(history, history.exam)
        return Group(bar, Text(f"{started}: {counts}" if counts else started))

    def _log_lines(self) -> list[Text]:
        return [
            Text(str(line), style=_STYLES.get(line.kind, ""), no_wrap=True, overflow="ellipsis")
            for line in self._log
        ]


def title(parts: Parts) -> Text:
    """The sweep's name, how it searches and where it lies."""
    spec = parts.spec
    how = f"{spec.searcher.name} · {spec.scheduler.name} · {spec.mode} {printable(spec.metric)}"
    where = printable(str(parts.folder.path))
    return Text.assemble((printable(spec.name), "bold"), f"  {how}  ", (where, "dim"))


def status_now(folder: Folder) -> views.Data:
    """What `sweep status` shows at this moment."""
    sweep = look.read(folder)
    return views.status(sweep, progress.read_notes(folder, sweep.history), time.time())


def watch(folder: Folder, console: Terminal) -> None:
    """Show the status until the sweep runs no more, or Ctrl-C; in a pipe only once."""
    data = status_now(folder)
    if not console.live:
        console.show(render.status(data))
        return
    with (
        suppress(KeyboardInterrupt),
        Live(render.status(data), console=console, auto_refresh=False) as live,
    ):
        while data["state"] in look.DRIVEN:
            time.sleep(WATCH_S)
            data = status_now(folder)
            live.update(render.status(data), refresh=True)
