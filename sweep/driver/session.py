"""One term of a driver: its signals, trackers and display, and its result.

The first SIGINT, SIGTERM or SIGHUP tells the driver to stop: slices save and end. The second one
ends it at once; `--timeout` never counts as one of the two. Afterwards the previous signal handlers
are active again. The sweep can be resumed in any case.
"""

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from sweep.core import plugins
from sweep.core.errors import SweepError, UnknownMetric, UsageError
from sweep.driver.context import DriverContext
from sweep.driver.driver import Driver
from sweep.driver.final_evaluation import FinalEvaluator
from sweep.driver.start import launch as launching
from sweep.driver.start.launch import Launch
from sweep.driver.tracking import sync
from sweep.driver.tracking.outbox import Outbox
from sweep.history.events import Recorded
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.trackers._shared.callbacks import Caller
from sweep.views.first_result import FirstResult
from trainables.checkpoint import disk
from trainables.errors import CheckpointError, SigningError

#: Signals that tell a driver to stop.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds that trackers have for the remaining events of a finished sweep.
PATIENCE_S = 60.0
#: The same after a sweep that was stopped.
SHORT_PATIENCE_S = 5.0

#: The same for callbacks.
CALLBACKS_PATIENCE_S = 10.0

#: Message at the first signal.
_NOTICE = "stopping: running trials save and stop; the same signal again (Ctrl-C) ends at once"


class View(Protocol):
    """Display of a driver's work, such as the live table of the command line."""

    def begin(self, context: DriverContext, warnings: Sequence[str]) -> None:
        """Show that the driver of the context is about to run, with warnings.

        Called once, before all other methods except `say`.
        """

    def update(self, records: Sequence[Recorded]) -> None:
        """Show the present history; `records` are the new events, empty if nothing has happened."""

    def say(self, text: str) -> None:
        """Show a message that is not in the history; is called from any thread."""

    def end(self) -> None:
        """Stop redrawing, and show messages that are left: the driver has ended."""


@dataclass(frozen=True)
class RunResult:
    """The result of a driver's term."""

    outcome: str
    """End of the term: ``finished`` or ``stopped``."""
    signal: int | None
    """Number of the first signal received, or None; signals also count while the last results are
    sent."""
    seconds: float
    """Duration of the term in seconds."""
    unsent: tuple[str, ...]
    """Names of trackers that lack events; the next driver sends these."""
    trackers: tuple[str, ...]
    """Names of all trackers of the sweep."""
    trained: bool
    """True if at least one slice was started."""
    history: History
    """History of the sweep at the term's end."""


def run_driver(launch: Launch, view: View, timeout_s: float | None = None) -> RunResult:
    """Run the driver of an existing sweep; ask it to stop after `timeout_s` seconds, if given.

    Blocks until it has ended and the trackers have the events, or their patience is over. In the
    main thread, SIGINT, SIGTERM and SIGHUP make it stop meanwhile. With
    ``launch.final_evaluation``, the best trials are tested instead of a search.

    Raises:
        SweepError: the driver could not start, or an error ended it; see its ``exit_code``. The
            traceback of an unexpected one is in ``error.txt`` in the sweep's folder.
        OSError, CheckpointError, SigningError: files cannot be used; passed on unchanged.
    """
    with _report_errors(launch.folder), launching.open_context(launch) as (context, warnings):
        driver = Driver if launch.final_evaluation is None else FinalEvaluator
        before = _slices(context.history)
        session = _Session(driver, context, view, timeout_s)
        with session.showing_work(warnings):
            with session.signals:
                how = session.driver.run()
            unsent = session.drain(how)
        seconds = time.monotonic() - session.began
        first, trackers = session.signals.first_signal, context.spec.trackers
        trained = _slices(context.history) > before
        return RunResult(how, first, seconds, unsent, tuple(trackers), trained, context.history)


def _slices(history: History) -> int:
    """Return the number of slices that all replicas have had in total, tests included."""
    return sum(replica.slices for replica in history.all_replicas)


class _Session:
    """One driver's term with its signals, timer, trackers, callbacks and display.

    Args:
        timeout_s: seconds after which the driver is asked to stop; None for no limit.
    """

    def __init__(
        self,
        driver: type[Driver],
        context: DriverContext,
        view: View,
        timeout_s: float | None,
    ) -> None:
        self.view = view
        self.context = context
        self.began = time.monotonic()
        self.timer = threading.Timer(timeout_s or 0.0, self.stop_at_timeout)
        self.timer.daemon = True
        self.timed = timeout_s is not None
        self.driver = driver(context, self.watch)
        self.signals = _Signals(self.driver.ask_to_stop, self.driver.end_at_once)
        where, term = sync.tracker_context(context.folder), context.history.term
        self.outbox = Outbox(context.folder.ledger, sync.load_trackers(where), view.say, term)
        self.callers = {
            f"callback {name}": Caller(where, name, view.say) for name in where.spec.callbacks
        }
        self.calls = Outbox(context.folder.ledger, self.callers, view.say, term)
        self.noticed = False
        self.first = FirstResult(context.unsure_names, context.folder, context.history)

    @contextlib.contextmanager
    def showing_work(self, warnings: Sequence[str]) -> Iterator[None]:
        """Run the timer and the display inside the block; on an error, close the outboxes early.

        Messages of the pool go to the display from now on. Errors pass on.
        """
        if self.timed:
            self.timer.start()
        try:
            self.view.begin(self.context, warnings)
            self.context.pool.say = self.view.say
            try:
                yield
            finally:
                self.view.end()
        except BaseException as error:
            self.outbox.close(SHORT_PATIENCE_S if isinstance(error, UnknownMetric) else 0.0)
            self._end_callbacks(0.0)
            raise
        finally:
            self.timer.cancel()

    def stop_at_timeout(self) -> None:
        """Ask the driver to stop, with a message that the timeout is over, unless a signal has.

        Runs in the timer's thread, since a slice may block the main one.
        """
        if not self.signals.received:
            self.view.say("--timeout is over: running trials save and stop")
            self.driver.ask_to_stop()

    def watch(self, records: Sequence[Recorded]) -> None:
        """Pass the driver's new events on: wake the outboxes, show warnings, update the display.

        `records` are empty after a turn without events. The first call after a signal shows that
        the driver is stopping.
        """
        if records:
            self.outbox.notify()
            self.calls.notify()
        if self.signals.received and not self.noticed:
            self.noticed = True
            self.view.say(_NOTICE)
        for said in self.first.lines(records):
            self.view.say(f"warning: {said}")
        self.view.update(records)

    def drain(self, end: str) -> tuple[str, ...]:
        """Wait until trackers and callbacks have all events, and end their threads.

        Returns the names of trackers that lack some; the next driver sends these. A message says
        that trackers are waited for. The wait for them is short unless `end`, the end of the
        driver, is ``finished``; after two signals there is none. Ctrl-C ends the wait, and counts
        as a received signal.
        """
        patience = PATIENCE_S if end == "finished" else SHORT_PATIENCE_S
        if names := self.context.spec.trackers:
            what = "sweep" if self.context.history.final_evaluation is None else "final evaluation"
            self.view.say(f"the {what} is {end}; sending the last results to {' and '.join(names)}")
            self.view.update(())
        hurried = len(self.signals.received) > 1
        try:
            unsent = tuple(self.outbox.close(0.0 if hurried else patience))
            self._end_callbacks(0.0 if hurried else CALLBACKS_PATIENCE_S)
        except KeyboardInterrupt:
            self.signals.received.append(signal.SIGINT)
            unsent = tuple(self.outbox.close(0.0))
            self._end_callbacks(0.0)
        return unsent

    def _end_callbacks(self, patience_s: float) -> None:
        """Wait up to `patience_s` seconds for the callbacks, then kill the slow ones' processes.

        A message names each of these. Their events are delivered if the sweep is resumed.
        """
        for name in self.calls.close(patience_s):
            self.callers[name].give_up()
            self.view.say(
                f"{name} is slow and has not received all results; sweep ends without it, "
                "and `sweep resume` sends the rest"
            )


class _Signals:
    """Signal handlers while a driver runs: the first signal stops it, the second ends it at once.

    Ctrl-Z suspends the workers, too, which are not part of the terminal's job.

    Args:
        ask: function that asks the driver to stop.
        end: function that ends the driver at once.
    """

    def __init__(self, ask: Callable[[], None], end: Callable[[], None]) -> None:
        self.received: list[int] = []
        self._ask = ask
        self._end = end
        self._before: dict[int, Any] = {}

    @property
    def first_signal(self) -> int | None:
        """Number of the first signal received; None before it."""
        return self.received[0] if self.received else None

    def __enter__(self) -> "_Signals":
        if threading.current_thread() is not threading.main_thread():
            return self  # Python allows handlers only in the main thread
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._before[number] = signal.signal(number, self._handle)
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, _suspend)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Ask the driver to stop at the first signal; append the signal to `received`.

        At the second, restore the old handlers and end it, which may raise KeyboardInterrupt.
        """
        self.received.append(number)
        if len(self.received) == 1:
            self._ask()
        else:
            self.__exit__()
            self._end()


def _suspend(_number: int, _frame: FrameType | None) -> None:
    """Handle Ctrl-Z: suspend all child processes of this session and this process.

    Returns when this process is resumed, after resuming the others. The process that cleans up
    after a killed driver is not suspended.
    """
    import psutil  # not at the top: rarely needed

    from trainables.core.processes.reaper import is_tracker

    session = os.getsid(0)
    stopped = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            # A suspended reaper could not clean up if this process were killed meanwhile.
            if os.getsid(child.pid) == session and not is_tracker(child.pid):
                child.suspend()
                stopped.append(child)
    os.kill(os.getpid(), signal.SIGSTOP)
    for child in stopped:
        with contextlib.suppress(psutil.Error):
            child.resume()


def _write_traceback(path: Path, error: Exception) -> str:
    """Write the traceback of an error to a file, and return words for where it is.

    If the file cannot be written, they name the line that raised the error, and the reason.
    """
    text = "".join(traceback.format_exception(error))
    try:
        file = disk.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as opened:
            opened.write(text)
    except (OSError, disk.NotRegular) as refusal:
        reason = getattr(refusal, "strerror", None) or refusal
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"raised in {last.filename}:{last.lineno}; {path} cannot be written: {reason}"
    return f"the traceback is in {path}"


@contextlib.contextmanager
def _report_errors(folder: Folder) -> Iterator[None]:
    """Write the traceback of an unexpected error to ``error.txt`` in the sweep's folder.

    The error is raised again as a SweepError of one line, or as a UsageError if a user's plugin
    raised it. Errors of sweep, of checkpoints and of the operating system pass unchanged.
    """
    try:
        yield
    except (SweepError, OSError, CheckpointError, SigningError):
        raise
    except Exception as error:
        place = _write_traceback(folder.path / "error.txt", error)
        what = f"{type(error).__name__}: {error}; {place}; the sweep can be resumed"
        if plugin := plugins.raised_by(error):
            raise UsageError(f"{plugin} raised {what}") from error
        raise SweepError(f"internal error: {what}") from error
