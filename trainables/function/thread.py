"""The thread in which a training function runs, and the functions that it calls, as `report`."""

import contextlib
import multiprocessing
import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import FunctionType
from typing import Any

from trainables.checkpoint.opaque import read_files, temporary_folder, write_files
from trainables.checkpoint.signing import Opaque
from trainables.checkpoint.state import pack, unpack
from trainables.core import rng
from trainables.errors import NoResult, StateError, TrainableError, nearest, shorten
from trainables.function import forms
from trainables.function.inspection import TrainingFunction, innermost, module_of, name_of, names_in
from trainables.trainable import TrialContext

#: Time that `FunctionThread.stop_function` waits for the function, seconds.
STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that a training function has reported, with the metrics of that report."""

    data: Any
    """Plain data that was reported, or None if a folder was."""
    files: Mapping[str, Opaque]
    """Path in the reported folder → content of the file; empty if data was reported."""
    metrics: Mapping[str, Any]
    """Metrics of the report."""


class _StopFunction(BaseException):
    """Raised by `report()` to end a training function.

    It is not an Exception, since functions may catch those.
    """


class FunctionThread:
    """One run of a training function in its own thread.

    The function and the caller of `advance` take turns, and exactly one of them runs at any time:
    the caller waits until the function is in `report`, where the function waits for the next
    `advance`.

    Args:
        checkpoint: checkpoint to continue from, or None to begin.
        streams: states of the global random streams at that checkpoint.
    """

    def __init__(
        self,
        function: TrainingFunction,
        config: dict[str, Any],
        context: TrialContext,
        checkpoint: Checkpoint | None,
        streams: Mapping[str, Any] | None,
    ) -> None:
        self.context = context
        self.checkpoint = checkpoint
        #: Metrics of the last report.
        self.metrics: Mapping[str, Any] = checkpoint.metrics if checkpoint else {}
        self.at_checkpoint = False
        self.has_ended = False
        """True if the function returned after its last report, without a result of its own."""
        self._reported = checkpoint is not None
        """True if there is a report that the end can repeat."""
        self._function = function
        self._config = config
        self._is_checkpoint_unread = checkpoint is not None
        """True if the function was restored and has not called `get_checkpoint` yet."""
        self._streams = streams  # the first get_checkpoint restores them
        self.knows_seed = False
        """True if the function has read its trial's context, and with it the seed."""
        self._folders = contextlib.ExitStack()
        self._turn = queue.SimpleQueue[None]()
        self._paused = queue.SimpleQueue[None]()
        self._running = False
        self._leaving = False
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="training function", daemon=True)

    # ---- the caller's side --------------------------------------------------------------------

    def advance(self) -> None:
        """Let the function run up to its next report or its end; blocks until then.

        The first call starts the thread. `metrics` and `checkpoint` then have what it reported.
        Raises an exception that the function raised, and TrainableError if it had ended before.
        """
        if not self._running:  # it still is when the last wait was interrupted
            if self._ended:
                text = "the training function has ended; restore a checkpoint to continue"
                raise TrainableError(text)
            self._running = True
            _running.add(self)
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._turn.put(None)
        self._paused.get()
        self._running = False
        _running.discard(self)
        if self._error is not None:
            raise self._error

    def stop_function(self) -> bool:
        """End the function, which waits in `report()`, by an exception raised there.

        The folders that `get_checkpoint` made are deleted. Returns False if it still runs after
        `STOP_TIMEOUT_S`, else True.
        """
        self._leaving = True
        _running.discard(self)
        if self._thread.is_alive():
            self._turn.put(None)
            self._thread.join(STOP_TIMEOUT_S)
        self._folders.close()
        return not self._thread.is_alive()

    # ---- the function's side ------------------------------------------------------------------

    def _main(self) -> None:
        """Run the function to its end, and record its result or exception.

        The thread's main function.
        """
        here.thread = self
        try:
            self._end(forms.adapt(self._function, _OURS)(self._config))
        except _StopFunction:
            return
        except BaseException as error:  # noqa: BLE001 it is raised where the result is waited for
            self._error = error
        finally:
            self._ended = True
            self._paused.put(None)

    def _end(self, returned: Mapping[str, Any] | float | None) -> None:
        """Set `metrics` after the function's end: what it returned, or its last report for None.

        A returned number is the value of the trial's metric. `metrics` get ``done: True``. If they
        repeat the last report, `has_ended` is set, and counts of the iteration (``*_this_iter``)
        are 0; otherwise `at_checkpoint` becomes False.

        Raises:
            TrainableError: the function neither reported nor returned anything, returned neither a
                dict nor the metric, or was restored and never called `get_checkpoint`.
        """
        self._require_checkpoint_read()
        metric, value = self.context.metric, _number(returned)
        if returned is None and self._reported:
            self.has_ended = True
            last = self.metrics.items()
            final = {key: 0 if key.endswith("_this_iter") else value for key, value in last}
        elif returned is None:
            raise NoResult(_no_result_message(self._function, metric or "loss"))
        else:
            self.at_checkpoint = False
            named = {metric: value} if metric and value is not None else returned
            final = _mapping(named, "the training function returned")
        self.metrics = {**final, "done": True}

    def report(self, metrics: Mapping[str, Any], checkpoint: object) -> None:
        """Give metrics and checkpoint to the caller of `advance`, and wait for its next call.

        Called in the function's thread. Raises _StopFunction to end the function, StateError if the
        checkpoint cannot be stored, and TrainableError if the function was restored but has not
        called `get_checkpoint`.
        """
        if self._leaving:
            raise _StopFunction
        self._require_checkpoint_read()
        self.metrics = _mapping(metrics, "report() was given")
        self._reported = True
        if checkpoint is not None:
            self.checkpoint = _capture(self.metrics, checkpoint)
        self.at_checkpoint = checkpoint is not None
        self._streams = None
        self._paused.put(None)
        self._turn.get()
        if self._leaving:
            raise _StopFunction

    def get_checkpoint(self) -> Any:
        """Return a copy of the last checkpoint: its data, or the path of a new folder of its files.

        Returns None if there is none. The first call after a restore also restores the global
        streams.
        """
        saved, self._is_checkpoint_unread = self.checkpoint, False
        if saved is None:
            return None
        if self._streams is not None:
            rng.restore_global(self._streams)
            self._streams = None
        if saved.data is not None:
            return _copy(saved.data, "checkpoint")
        folder = self._folders.enter_context(temporary_folder(self.context.logdir))
        write_files(Path(folder), saved.files)
        return folder

    def _require_checkpoint_read(self) -> None:
        """Raise TrainableError if the function was restored, but never called `get_checkpoint`."""
        if self._is_checkpoint_unread:
            raise TrainableError(
                f"{name_of(self._function)}() continues from a checkpoint but has not called "
                "get_checkpoint(), so it trains from the beginning and its iterations are "
                "numbered wrongly; begin it with two lines: `start = get_checkpoint()` and "
                '`first = 0 if start is None else start["i"] + 1`, where report(..., '
                'checkpoint={"i": i, ...}) saved that'
            )


#: Values of this thread; in the thread of a function, `here.thread` is its `FunctionThread`.
here = threading.local()
#: Function threads whose functions run at this moment, in this process.
_running = set[FunctionThread]()


def running_thread() -> FunctionThread | None:
    """Return the FunctionThread in which the caller runs; None if it runs in no trial.

    Raises TrainableError if the caller is a thread or process that a training function has started.
    """
    thread: FunctionThread | None = getattr(here, "thread", None)
    if thread is None and (_running or multiprocessing.parent_process() is not None):
        raise TrainableError(
            "report() and similar functions work only in the thread of a training function, not in "
            "threads or processes that it starts; return their results to that thread, and report "
            "them there"
        )
    return thread


def _capture(metrics: Mapping[str, Any], checkpoint: object) -> Checkpoint:
    """Return a copy of what was reported as a checkpoint: data, or the files of a folder.

    Raises StateError if it cannot be stored, or is not a folder with files.
    """
    kept = _copy(metrics, "metrics")
    if isinstance(checkpoint, (str, Path)):
        folder = Path(checkpoint)
        if folder.is_file():
            problem = f"{shorten(str(checkpoint), 200)}, a file,"
            raise StateError(
                "checkpoint", problem, "give the folder that contains it, with all files"
            )
        if not folder.is_dir():
            problem = f"{shorten(str(checkpoint))}, which is not a folder,"
            raise StateError("checkpoint", problem, "give a folder")
        files = read_files(folder, "checkpoint")
        if not files:
            problem = f"{shorten(str(checkpoint))}, a folder without files,"
            advice = "write what the function needs to continue into it"
            raise StateError("checkpoint", problem, advice)
        return Checkpoint(None, files, kept)
    return Checkpoint(_copy(checkpoint, "checkpoint"), {}, kept)


def _copy(value: object, path: str) -> Any:
    """Return `value` as it would be after saving and loading; StateError if it cannot be saved.

    `path` names the value in the error.
    """
    packed = pack(value, path)
    return unpack(packed.pickled, packed.arrays)


def _mapping(value: object, subject: str) -> dict[str, Any]:
    """Return `value` as a dict.

    Raises TrainableError, which begins with `subject`, if it is none.
    """
    if not isinstance(value, Mapping):
        raise TrainableError(f"{subject} {shorten(value)}; expected a dict of metrics")
    return dict(value)


def _number(value: object) -> float | None:
    """Return `value`, possibly numpy's or torch's, as a float; None if it is not a number."""
    if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
        value = item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value)


def report(
    metrics: Mapping[str, Any] | None = None,
    checkpoint: Mapping[str, Any] | str | Path | None = None,
    **named: Any,
) -> None:
    """End an iteration of the running training function, and pause until the next one is wanted.

    If the trial ends here, raises an exception that is no Exception, to end the function. If the
    function was called by hand, prints the metrics and returns at once.

    Args:
        metrics: the iteration's result.
        checkpoint: everything that determines the future, as plain data, or a folder whose
            files contain it; copied at once. A trial can be stopped and continued at such
            reports only.
        named: the metrics as keyword arguments, instead of `metrics`.

    Raises:
        TrainableError: called in a thread or process that a training function has started; the
            metrics are no dict, or given twice; or the function continues from a checkpoint and has
            not called `get_checkpoint`.
        StateError: the checkpoint contains a value that cannot be stored.
    """
    if named and metrics is not None:
        words = ", ".join(f"{name}=" for name in named)
        near = nearest(next(iter(named)), ["checkpoint"])
        raise TrainableError(
            f"report() was given {words} in addition to metrics{near}; "
            "expected report(metrics, checkpoint)"
        )
    given = _mapping(metrics if metrics is not None else named or None, "report() was given")
    if thread := running_thread():
        thread.report(given, checkpoint)
        return
    if checkpoint is not None:
        _capture(given, checkpoint)
    print("report:", ", ".join(_format_metrics(given)), flush=True)  # noqa: T201 nobody else shows it


def _format_metrics(metrics: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """Yield each metric as ``name value``, to 6 digits, nested names as paths below `prefix`."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _format_metrics(value, f"{prefix}{name}/")
        else:
            number = _number(value)
            shown = shorten(value) if number is None else format(number, ".6g")
            yield f"{prefix}{name} {shown}"


def get_checkpoint() -> Any:
    """Return the last checkpoint that was reported: its data, or a path of a folder.

    Returns None before the first report with one, and outside a trial. To be called at the start of
    a training function. Raises TrainableError in a thread or process that the function has started.
    """
    thread = running_thread()
    return thread.get_checkpoint() if thread else None


def get_context() -> TrialContext:
    """Return seed, name and folder of the running trial; default ones outside a trial.

    The trial's results then count as random, since they may depend on the seed. Raises
    TrainableError in a thread or process that the training function has started.
    """
    if thread := running_thread():
        thread.knows_seed = True
    return _context()


def _context() -> TrialContext:
    """Return the context of the running trial, or a default one.

    Unlike `get_context`, this does not make the results count as random.
    """
    thread = running_thread()
    return thread.context if thread else TrialContext()


#: Packages to which training loops report, but not to a sweep.
_OTHER_TRACKERS = frozenset(
    {"clearml", "comet_ml", "mlflow", "neptune", "nni", "syne_tune", "wandb"}
)


def _no_result_message(function: TrainingFunction, metric: str) -> str:
    """Return the error message for a function that ended without a result for the `metric`."""
    remedy = f"call report({{{metric!r}: ...}}) from trainables in it, or return {metric}"
    its, names = innermost(function), set[str]()
    if isinstance(its, FunctionType):
        names = {name.partition(".")[0] for name in names_in(its)}
        values = {name: its.__globals__[name] for name in names if name in its.__globals__}
        names |= {module_of(value).partition(".")[0] for value in values.values()}
        if values.get("report", report) is not report:
            remedy += f"; it calls the report() of {module_of(values['report'])} instead"
    if told := sorted(names & _OTHER_TRACKERS):
        remedy += f"; sweep does not see what it logs to {' and '.join(told)}"
    return f"{name_of(function)}() ended without a result; {remedy}"


#: Functions that report to this package.
_OURS = forms.ReportingCalls(
    report,
    get_checkpoint,
    lambda: _context().metric,
    lambda: hasattr(here, "thread"),
    lambda: _context().number,
    lambda: _context().objectives,
    _StopFunction,
)
