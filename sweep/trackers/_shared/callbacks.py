"""User code that is called during a sweep: the classes under the key ``callbacks``.

    class Notify:
        def on_trial_complete(self, trial): ...

A class has any of the methods in `METHODS`; docs/trackers.md describes their arguments. Each class
runs in a process of its own with lower priority than training, and gets the ledger's events from
the outbox: at least once and in order. So nothing that it does, not even waiting or crashing,
delays the sweep.
"""

import contextlib
import inspect
import os
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sweep import trackers
from sweep.core import plugins
from sweep.core.errors import StorageError, UsageError, shorten_message, without_password
from sweep.history.events import (
    FINISHED,
    Closed,
    Moved,
    Opened,
    Recorded,
    Reported,
    Status,
    TermEnded,
)
from sweep.history.history import History
from sweep.history.seeds import FIRST_TEST, is_test, seed_of
from sweep.trackers import TrackerContext
from trainables.core.processes.child import ChildProcess, Patience
from trainables.errors import TrainableError, nearest, printable, type_of

#: Method → names of its arguments; all are plain data.
METHODS: Mapping[str, tuple[str, ...]] = {
    "on_trial_start": ("trial",),
    "on_trial_result": ("trial", "result"),
    "on_checkpoint": ("trial", "checkpoint"),
    "on_trial_complete": ("trial",),
    "on_trial_error": ("trial", "error"),
    "on_sweep_end": ("sweep",),
}
#: Number of deaths of its process in a driver's term after which it is called no more.
MOST_DEATHS = 3
#: Niceness of its process.
NICE = 10
#: Wait without limit: a slow callback delays nothing else.
_PATIENTLY = Patience()

#: Name of a callback's method, and its arguments.
Call = tuple[str, tuple[Any, ...]]


def find(name: str, paths: Iterable[str]) -> type[Any]:
    """Return the user's class that a spec names.

    `paths` are folders that are searched for modules, too. Raises UsageError if it cannot be
    imported, is not a class, or has no method or a misspelt one.
    """
    kind: plugins.Kind[Any] = plugins.Kind("callback", trackers.PACKAGE, object)
    loaded = kind.imported(name, paths)
    shown = printable(name)
    if not inspect.isclass(loaded):
        raise UsageError(f"callback: '{shown}' is {type_of(loaded)}; expected a class")
    known = ", ".join(METHODS)
    named = [one for one in dir(loaded) if one.startswith("on_")]
    for one in named:
        if one not in METHODS:
            hint = nearest(one, list(METHODS)) or f"; expected one of {known}"
            raise UsageError(f"callback: '{shown}' has {one}, which sweep never calls{hint}")
    if not named:
        raise UsageError(
            f"callback: '{shown}' has no method that sweep calls; expected at least one of {known}"
        )
    return loaded


class Caller(trackers.Tracker):
    """Tracker that calls the methods of one class of the user, in a process of its own.

    `name` is the class's name in the spec; `say` shows a message to the user. The class is imported
    here, too, which raises UsageError if it is not usable.
    """

    def __init__(self, context: TrackerContext, name: str, say: Callable[[str], None]) -> None:
        self._context = context
        self._name = name
        self._say = say
        self._methods = {one for one in METHODS if hasattr(find(name, context.paths), one)}
        self._history: History | None = None
        self._child: ChildProcess | None = None
        self._deaths = 0
        self._given_up = threading.Event()
        self._failed: Counter[str] = Counter()

    def publish(self, records: Sequence[Recorded]) -> None:
        """Call the user's methods for these events, one after another, and wait for each.

        Exceptions and deaths of the process are reported and not repeated. After `MOST_DEATHS`
        deaths nothing more is called. Raises StorageError if a method is to be called after
        `give_up`.
        """
        if self._history is None or self._history.k != records[0].number - 1:
            self._history = self._context.history(records[0].number - 1, shows_unsaved=True)
        for record in records:
            self._history.extend([record])
            for method, arguments in calls(self._context, self._history, record):
                if method in self._methods and self._deaths < MOST_DEATHS:
                    self._call(method, arguments)

    def close(self) -> None:
        """End the process, and report how often each method raised, if more than once."""
        for method, count in sorted(self._failed.items()):
            if count > 1:
                self._say(f"callback {self._name}: {method} raised {count} times in all")
        self._failed.clear()
        if self._child is not None:
            self._child.close()
            self._child = None

    def give_up(self) -> None:
        """Call nothing more, and kill the process; may be called from another thread.

        A call that waits then raises StorageError in its thread.
        """
        self._given_up.set()
        child = self._child
        if child is not None and child.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)

    def _call(self, method: str, arguments: tuple[Any, ...]) -> None:
        """Call a method in the process, which is started if needed, and wait without a time limit.

        The process's death is reported to the user, and an exception if it is the method's first.
        Raises StorageError after `give_up`.
        """
        try:
            if self._child is None:
                args = (self._name, self._context.paths)
                self._child = ChildProcess(f"callback {self._name}", _Server, args, _PATIENTLY)
            self._require_wanted()
            self._child.send("call", method, arguments)
            problem = str(self._child.receive(_PATIENTLY))
        except TrainableError as error:
            self._report_death(method, error)
            return
        if problem:
            self._failed[method] += 1
            if self._failed[method] == 1:
                self._say(f"callback {self._name}: {method} raised {problem}; the sweep continues")

    def _require_wanted(self) -> None:
        """Raise StorageError after `give_up`, so that the next driver repeats the events."""
        if self._given_up.is_set():
            raise StorageError(f"callback {self._name}: the sweep has ended")

    def _report_death(self, method: str, error: TrainableError) -> None:
        """Count and report the death of the process during a call of `method`.

        Any remaining process of its group is killed; the next call starts a new process. Raises
        StorageError if `give_up` killed it.
        """
        child, self._child = self._child, None
        if child is not None:
            child.kill()
        self._require_wanted()
        self._deaths += 1
        then = "the sweep continues, and a new process takes the next calls"
        if self._deaths == MOST_DEATHS:
            then = "the sweep continues without this callback until it is resumed"
        why = printable(without_password(str(error).splitlines()[0]))
        self._say(f"callback {self._name}: {method}: {why}; {then}")


class _Server:
    """Object in the child process that holds the instance of the user's class."""

    def __init__(self, name: str, paths: tuple[str, ...]) -> None:
        os.dup2(2, 1)  # standard output carries replies
        os.nice(NICE)
        self._its = find(name, paths)()

    def call(self, method: str, arguments: tuple[Any, ...]) -> str:
        """Call a method of the user's object.

        Returns a line about the exception that it raised; empty without one.
        """
        try:
            getattr(self._its, method)(*arguments)
        except BaseException as error:  # noqa: BLE001 it may raise anything, and is called again
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
            return shorten_message(printable(without_password(text)))
        return ""

    def end(self) -> None:
        """Do nothing: there is nothing to close."""


# ---- arguments ----------------------------------------------------------------------------------


def calls(context: TrackerContext, history: History, record: Recorded) -> Iterator[Call]:
    """Yield (name of the method, its arguments) for each call that an event causes.

    `history` includes the event.
    """
    event = record.event
    match event:
        case Opened() if event.slice == 0:
            yield "on_trial_start", (_trial(context, history, event, record.number),)
        case Reported():
            yield from _results(_trial(context, history, event, record.number), event)
        case Closed():
            trial = _trial(context, history, event, record.number)
            yield from _results(trial, event)
            for saved in event.saved:
                its = context.folder.trial(event.trial, event.replica)
                above = f"{context.storage}/trials/{its.name}" if context.storage else its
                checkpoint = {
                    "iteration": saved.iteration,
                    "path": f"{above}/{saved.file}",
                    "sha256": saved.digest,
                    "size": saved.size,
                }
                yield "on_checkpoint", (trial, checkpoint)
            yield from _ended(trial, event.status, event.error)
        case Moved():
            trial = _trial(context, history, event, record.number)
            error = history.replica(event.trial, event.replica).error
            yield from _ended(trial, event.status, error)
        case TermEnded():
            yield "on_sweep_end", (_sweep(context, history, event, record.number),)


def _results(trial: Mapping[str, Any], event: Reported | Closed) -> Iterator[Call]:
    """Yield a call of ``on_trial_result`` for each result that no earlier event had.

    `trial` describes the trial as plain data.
    """
    for row in event.new_rows:
        yield "on_trial_result", (trial, dict(row.metrics))


def _ended(trial: Mapping[str, Any], status: Status, error: str) -> Iterator[Call]:
    """Yield the call for the end of a trial, if `status` is a final one.

    It is ``on_trial_error`` for a failed trial, else ``on_trial_complete``. `trial` describes the
    trial as plain data; `error` is its traceback, or empty: then the trial's reason is passed.
    """
    if status is Status.FAILED:
        yield "on_trial_error", (trial, error or str(trial["reason"]))
    elif status in FINISHED:
        yield "on_trial_complete", (trial,)


def _trial(
    context: TrackerContext, history: History, event: Opened | Reported | Closed | Moved, k: int
) -> dict[str, Any]:
    """Return plain data that describes the trial of event number `k` to a callback.

    ``event`` is `k`; ``number``, ``searched``, ``config`` and ``score`` are those of the trial,
    ``seed_index``, ``test``, ``seed``, ``status``, ``reason``, ``iteration`` and ``folder`` those
    of the seed or test that the event is about.
    """
    trial, replica = history.trials[event.trial], history.replica(event.trial, event.replica)
    test = is_test(event.replica)
    return {
        "event": k,
        "number": event.trial,
        "seed_index": event.replica - FIRST_TEST if test else event.replica,
        "test": test,
        "seed": seed_of(context.spec.seed, event.trial, event.replica),
        "status": str(replica.status),
        "reason": replica.reason,
        "searched": dict(trial.searched),
        "config": dict(trial.config),
        "iteration": replica.iteration,
        "score": trial.score,
        "folder": str(context.folder.trial(event.trial, event.replica)),
    }


def _sweep(context: TrackerContext, history: History, event: TermEnded, k: int) -> dict[str, Any]:
    """Return plain data that describes the sweep to a callback at the end of a driver's term.

    The keys are ``event`` (its number `k`), ``name``, ``folder``, ``outcome``, ``reason``,
    ``final_evaluation`` (True if there is one), ``trials`` (their number) and ``best``, None or the
    best trial's ``number``, ``score`` and ``searched``.
    """
    best = history.best
    best_trial = None
    if best is not None:
        best_trial = {"number": best.number, "score": best.score, "searched": dict(best.searched)}
    return {
        "event": k,
        "name": context.name,
        "folder": str(context.folder.path),
        "outcome": event.outcome,
        "reason": event.reason,
        "final_evaluation": history.final_evaluation is not None,
        "trials": len(history.trials),
        "best": best_trial,
    }
