"""One driver's term: its signals, its trackers and its view; how it ended.

The first SIGINT, SIGTERM or SIGHUP asks the driver to stop: slices save and end. The second ends at
once, and no other wish to stop counts for one; after it the signals do again what they did before.
Whatever happens, the sweep is resumable.
"""

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from sweep import plugins
from sweep.driver import launch as launching
from sweep.driver import sync
from sweep.driver.context import DriverContext
from sweep.driver.driver import Driver
from sweep.driver.final_evaluation import FinalEvaluator
from sweep.driver.launch import Launch
from sweep.driver.outbox import Outbox
from sweep.errors import SweepError, UnknownMetric, UsageError
from sweep.history.events import Recorded
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.trackers._shared.callbacks import Caller
from sweep.views.first_result import FirstResult
from trainables.checkpoint import disk
from trainables.errors import CheckpointError, SigningError

#: Signals that ask a driver to stop.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds that trackers have to take the rest after a sweep that is done.
PATIENCE_S = 60.0
#: The same after one that was asked to stop.
SHORT_PATIENCE_S = 5.0

#: The same for callbacks.
CALLBACKS_PATIENCE_S = 10.0

_NOTICE = "stopping: slices save and end; the same signal again (Ctrl-C) ends at once"


class View(Protocol):
    """Shows a driver's work."""

    def begin(self, context: DriverContext, warnings: Sequence[str]) -> None:
        """The driver is about to run."""

    def update(self, records: Sequence[Recorded]) -> None:
        """The history has taken in `records`; none at an idle tick."""

    def say(self, text: str) -> None:
        """Something that is not in the history; may be called from any thread."""

    def end(self) -> None:
        """The driver has ended; nothing is redrawn any more."""


@dataclass(frozen=True)
class RunResult:
    """The end of a driver's term."""

    how: str
    """``finished`` or ``stopped``."""
    signal: int | None
    """The first signal that came, also while the last results were sent."""
    seconds: float
    unsent: tuple[str, ...]
    """Trackers that still miss something; the next driver sends it."""
    trackers: tuple[str, ...]
    """All that the sweep has."""
    trained: bool
    """True if anything was left to train."""
    history: History


def run_driver(launch: Launch, view: View, timeout_s: float | None = None) -> RunResult:
    """Run the driver of an existing sweep until it ends, or for `timeout_s` seconds.

    Raises:
        SweepError: it could not begin, or was ended by the outside; see ``exit_code``.
    """
    with _own_errors(launch.folder), launching.opened(launch) as (context, warnings):
        driver = Driver if launch.final_evaluation is None else FinalEvaluator
        before = _slices(context.history)
        session = _Session(driver, context, view, timeout_s)
        with session.shown(warnings):
            with session.signals:
                how = session.driver.run()
            unsent = session.drain(how)
        seconds = time.monotonic() - session.began
        first, trackers = session.signals.first, context.spec.trackers
        trained = _slices(context.history) > before
        return RunResult(how, first, seconds, unsent, tuple(trackers), trained, context.history)


def _slices(history: History) -> int:
    return sum(replica.slices for replica in history.everyone)


class _Session:
    """The surroundings of one term's driver: its signals, its timer, its trackers, its view."""

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
        self.timer = threading.Timer(timeout_s or 0.0, self.time_is_up)
        self.timer.daemon = True
        self.timed = timeout_s is not None
        self.driver = driver(context, self.watch)
        self.signals = _Signals(self.driver.ask_to_stop, self.driver.end_at_once)
        where, term = sync.where(context.folder), context.history.term
        self.outbox = Outbox(context.folder.ledger, sync.made(where), view.say, term)
        self.callers = {
            f"callback {name}": Caller(where, name, view.say) for name in where.spec.callbacks
        }
        self.calls = Outbox(context.folder.ledger, self.callers, view.say, term)
        self.noticed = False
        self.first = FirstResult(context.unsure, context.folder, context.history)

    @contextlib.contextmanager
    def shown(self, warnings: Sequence[str]) -> Iterator[None]:
        """Show the driver's work, and end it in time; after an error nothing more is sent."""
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

    def time_is_up(self) -> None:
        """A wish to stop, from a thread of its own, since a slice may run in this one."""
        if not self.signals.received:
            self.view.say("--timeout is over: slices save and end")
            self.driver.ask_to_stop()

    def watch(self, records: Sequence[Recorded]) -> None:
        """The driver's ticks."""
        if records:
            self.outbox.notify()
            self.calls.notify()
        if self.signals.received and not self.noticed:
            self.noticed = True
            self.view.say(_NOTICE)
        for said in self.first.lines(records):
            self.view.say(f"warning: {said}")
        self.view.update(records)

    def drain(self, how: str) -> tuple[str, ...]:
        """Let the trackers take the rest; Ctrl-C leaves it to the next driver."""
        patience = PATIENCE_S if how == "finished" else SHORT_PATIENCE_S
        if names := self.context.spec.trackers:
            what = "sweep" if self.context.history.final_evaluation is None else "final evaluation"
            self.view.say(f"the {what} is {how}; the last results go to {' and '.join(names)}")
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
        """Wait for callbacks so long; what they have not heard comes if the sweep goes on."""
        for name in self.calls.close(patience_s):
            self.callers[name].give_up()
            self.view.say(f"{name} has not heard everything: it is slow; no more is waited for")


class _Signals:
    """Handlers while a driver runs: the first signal asks it to stop, the second ends it at once.

    Ctrl-Z suspends the workers with it: they are no part of the terminal's job.
    """

    def __init__(self, ask: Callable[[], None], end: Callable[[], None]) -> None:
        self.received: list[int] = []
        self._ask = ask
        self._end = end
        self._before: dict[int, Any] = {}

    @property
    def first(self) -> int | None:
        return self.received[0] if self.received else None

    def __enter__(self) -> "_Signals":
        if threading.current_thread() is not threading.main_thread():
            return self  # Python lets no other thread have them
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
        self.received.append(number)
        if len(self.received) == 1:
            self._ask()
        else:
            self.__exit__()
            self._end()


def _suspend(_number: int, _frame: FrameType | None) -> None:
    """Suspend this process and all that it has started in its terminal, until it is continued."""
    import psutil  # not at the top: a driver that nobody suspends needs none of it

    from trainables.core.processes.reaper import is_tracker

    session = os.getsid(0)
    stopped = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            # What tidies up could not end if this process were killed meanwhile.
            if os.getsid(child.pid) == session and not is_tracker(child.pid):
                child.suspend()
                stopped.append(child)
    os.kill(os.getpid(), signal.SIGSTOP)
    for child in stopped:
        with contextlib.suppress(psutil.Error):
            child.resume()


@contextlib.contextmanager
def _own_errors(folder: Folder) -> Iterator[None]:
    """Puts the traceback of a mistake of this program, or a plugin's, into the sweep's folder."""
    try:
        yield
    except (SweepError, OSError, CheckpointError, SigningError):
        raise
    except Exception as error:
        path = folder.path / "error.txt"
        text = "".join(traceback.format_exception(error))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with contextlib.suppress(disk.NotRegular):
            file = disk.open_file(path, flags)
            with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as opened:
                opened.write(text)
        what = (
            f"{type(error).__name__}: {error}; the traceback is in {path}; the sweep can be resumed"
        )
        if plugin := plugins.raised_by(error):
            raise UsageError(f"{plugin} raised {what}") from error
        raise SweepError(f"internal error: {what}") from error
