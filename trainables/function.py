"""A plain function as a Trainable: it runs in its own thread, paused inside `report()`.

    def train(config):
        model = build(config)
        start = get_checkpoint()                 # the last checkpoint's data; None at first
        first = 0 if start is None else start["i"] + 1
        for i in range(first, 100):
            report({"loss": ...}, checkpoint={"i": i, ...})   # data, or a folder of files

One report is one iteration. A dict that the function returns is its last report, and so is a
number, which is the metric of its sweep. The end of a function that returns neither is no
iteration: `train` then gives the last result again, with ``done: True`` and the same
``training_iteration``.

If the function is called outside a sweep, `report` prints its arguments, and there is no
checkpoint.

Caller and function take turns, so they never draw from the global random streams at the same
time. A restored function starts from its first line. Its first `get_checkpoint` restores the global
streams to their states at the report of the checkpoint, so random numbers drawn before that call,
to build a model, have no effect afterwards: build the model first, then call it.
"""

import ast
import contextlib
import copy
import functools
import inspect
import multiprocessing
import queue
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, TypeGuard

from trainables import forms, objectives
from trainables.checkpoint.opaque import read_files, temporary_folder, write_files
from trainables.checkpoint.signing import Opaque
from trainables.checkpoint.state import pack, unpack
from trainables.core import rng
from trainables.errors import StateError, TrainableError, nearest, shorten
from trainables.trainable import Trainable, TrialContext, gives_data

#: Time that `FunctionThread.stop_function` waits for the function, seconds.
STOP_TIMEOUT_S = 5.0

#: A function of the settings; `trainables.forms` describes its possible forms.
TrainingFunction = Callable[
    [Any], Mapping[str, Any] | float | Sequence[float] | Iterator[Any] | None
]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a report: data, or the files of a folder; and the report's metrics."""

    data: Any
    """Data of the checkpoint, or None if it is a folder."""
    files: Mapping[str, Opaque]
    """Path in the folder → content; empty if it is data."""
    metrics: Mapping[str, Any]
    """Metrics of the report."""


class _StopFunction(BaseException):
    """Ends a function from inside `report()`; not an Exception, since functions may catch those."""


class FunctionThread:
    """One run of a training function in its own thread.

    It and the caller of `advance` take turns, and exactly one of them runs at any time: the caller
    waits until the function is in `report`, where the function waits for the next `advance`.

    Args:
        checkpoint: checkpoint to continue from, or None to begin.
        streams: states of the global streams at that checkpoint.
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
        """Let the function run up to its next report or its end; raises what it raises."""
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
        """End the function inside its `report()`; False if it runs after `STOP_TIMEOUT_S`."""
        self._leaving = True
        _running.discard(self)
        if self._thread.is_alive():
            self._turn.put(None)
            self._thread.join(STOP_TIMEOUT_S)
        self._folders.close()
        return not self._thread.is_alive()

    # ---- the function's side ------------------------------------------------------------------

    def _main(self) -> None:
        """Run the function; the thread's main function."""
        _here.thread = self
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
        """Set the final metrics: those that the function returned, or its last report's for None.

        Raises TrainableError if it neither reported nor returned anything.
        """
        self._require_checkpoint_read()
        metric, value = self.context.metric, _number(returned)
        if returned is None and self._reported:
            self.has_ended = True
            last = self.metrics.items()
            final = {key: 0 if key.endswith("_this_iter") else value for key, value in last}
        elif returned is None:
            raise TrainableError(_no_result_message(self._function, metric or "loss"))
        else:
            self.at_checkpoint = False
            named = {metric: value} if metric and value is not None else returned
            final = _mapping(named, "the training function returned")
        self.metrics = {**final, "done": True}

    def report(self, metrics: Mapping[str, Any], checkpoint: object) -> None:
        """Hand over the metrics and the checkpoint, and wait until `advance` is called."""
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
        """Return a copy of the last checkpoint: its data, or a folder with its files.

        None before one.

        The first call after a restore also restores the global streams.
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
        """Raise TrainableError if a restored function trains without having read its checkpoint."""
        if self._is_checkpoint_unread:
            raise TrainableError(
                f"{name_of(self._function)}() continues from a checkpoint and did not ask for it, "
                f"so it trains from the beginning and its iterations are numbered wrongly; begin "
                f"it with two lines: "
                f"`start = get_checkpoint()` and "
                f'`first = 0 if start is None else start["i"] + 1`, where report(..., '
                f'checkpoint={{"i": i, ...}}) saved that'
            )


_here = threading.local()
#: Function threads whose functions run at this moment, in this process.
_running = set[FunctionThread]()


def current() -> FunctionThread | None:
    """Return the function thread that the caller runs in; None if the function was called by hand.

    Raises TrainableError if the caller is a thread or process that a training function has started.
    """
    thread: FunctionThread | None = getattr(_here, "thread", None)
    if thread is None and (_running or multiprocessing.parent_process() is not None):
        raise TrainableError(
            "report() and similar functions work only in the thread of a training function, not in "
            "threads or processes that it starts; return their results to that thread, and report "
            "them there"
        )
    return thread


def _capture(metrics: Mapping[str, Any], checkpoint: object) -> Checkpoint:
    """Return a copy of a reported checkpoint, data or the files of a folder.

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
            problem = f"{shorten(str(checkpoint))}, no folder,"
            raise StateError("checkpoint", problem, "give a folder")
        files = read_files(folder, "checkpoint")
        if not files:
            problem = f"{shorten(str(checkpoint))}, a folder without files,"
            advice = "write what the function needs to continue into it"
            raise StateError("checkpoint", problem, advice)
        return Checkpoint(None, files, kept)
    return Checkpoint(_copy(checkpoint, "checkpoint"), {}, kept)


def _copy(value: object, path: str) -> Any:
    """Return the copy of `value` that a restart would restore; StateError if it cannot be."""
    packed = pack(value, path)
    return unpack(packed.pickled, packed.arrays)


def _mapping(value: object, subject: str) -> dict[str, Any]:
    """Return `value` as a dict; raises TrainableError if it is not a mapping."""
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

    If the function was called by hand, prints the metrics and returns at once.

    Args:
        metrics: the iteration's result.
        checkpoint: everything that determines the future, as plain data, or a folder whose
            files contain it; copied at once. A trial can be stopped and continued at such
            reports only.
        named: the metrics as keyword arguments, instead of `metrics`.

    Raises:
        TrainableError: called in a thread or process that a training function has started.
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
    if thread := current():
        thread.report(given, checkpoint)
        return
    if checkpoint is not None:
        _capture(given, checkpoint)
    print("report:", ", ".join(_format_metrics(given)), flush=True)  # noqa: T201 nobody else is told


def _format_metrics(metrics: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """Yield each metric as ``name value``, nested names as paths.

    `prefix` is the name of the mapping that contains them, empty at the top.
    """
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _format_metrics(value, f"{prefix}{name}/")
        else:
            number = _number(value)
            shown = shorten(value) if number is None else format(number, ".6g")
            yield f"{prefix}{name} {shown}"


def get_checkpoint() -> Any:
    """Return the last checkpoint reported: its data or a folder's path; None before the first."""
    thread = current()
    return thread.get_checkpoint() if thread else None


def get_context() -> TrialContext:
    """Return seed, name and folder of the running trial; default ones outside a trial."""
    thread = current()
    return thread.context if thread else TrialContext()


def saved_by_function(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the checkpoint that a function reported, from a state's entry ``trainable``.

    It has entries ``data`` and ``files``. The entry of any other trainable is returned unchanged.
    """
    data = saved["data"]
    ours = isinstance(data, Mapping) and data.keys() == {"data", "files", "metrics"}
    return data if ours else saved


def wrap(function: TrainingFunction, saves: bool | None = None) -> type[Trainable]:
    """Return a Trainable class whose iterations are the reports of `function`.

    Args:
        saves: whether the function's reports have checkpoints; None to find out from its source.
    """
    inner = _innermost(function)
    own = {"__doc__": inner.__doc__, "__module__": inner.__module__, "saves": saves}
    own["function"] = staticmethod(function)
    return type(name_of(function), (FunctionTrainable,), own)


def name_of(function: object) -> str:
    """Return the name of a function; for another callable object, that of its class."""
    inner = _innermost(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _innermost(function: Any) -> Any:
    """Return the function behind `functools.partial`; any other object unchanged."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


_OURS = forms.ReportingCalls(
    report,
    get_checkpoint,
    lambda: get_context().metric,
    lambda: hasattr(_here, "thread"),
    lambda: get_context().number,
    lambda: get_context().objectives,
    _StopFunction,
)


class FunctionTrainable(Trainable):
    """A Trainable whose iterations are a function's reports; made by `wrap`."""

    function: ClassVar[TrainingFunction]
    """The training function."""
    saves: ClassVar[bool | None] = None
    """True or False if it is known whether reports have checkpoints; None to find out from the
    source."""
    exactness: ClassVar[str] = "as the function saves"
    hands_over: ClassVar[bool] = True

    @classmethod
    def can_save(cls, config: Mapping[str, Any] | None = None) -> bool:
        """Return whether the function's reports have checkpoints, as far as the source shows."""
        return cls.saves if cls.saves is not None else not never_saves(cls.function)

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare without running the function, so that a checkpoint can be restored first."""
        self._thread: FunctionThread | None = None
        self._checkpoint: Checkpoint | None = None
        self._streams: Mapping[str, Any] | None = None
        self._saved_state: dict[str, Any] | None = None
        self.at_checkpoint = False  # whether the last report carried a checkpoint

    def step(self) -> dict[str, Any]:
        """Let the function run up to its next report or its end; raises what it raises."""
        if self._thread is None:
            config = copy.deepcopy(dict(self.config))
            self._thread = FunctionThread(
                type(self).function, config, self.context, self._checkpoint, self._streams
            )
        thread = self._thread
        thread.advance()
        self.has_ended = thread.has_ended
        if not self.has_ended:  # else it stands where its last report left it
            self.at_checkpoint = thread.at_checkpoint
            self._checkpoint = thread.checkpoint
        return dict(thread.metrics)

    def train(self) -> dict[str, Any]:
        """Run one iteration.

        Keeps a reported checkpoint with the counters and streams of that moment.
        """
        result = super().train()
        if self.at_checkpoint and not self.has_ended:
            self._saved_state = super().get_state()
        return result

    @gives_data
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the last checkpoint's ``data``, ``files``, ``metrics``; StateError without one."""
        saved = self._checkpoint
        if saved is None:
            remedy = "call report(metrics, checkpoint=...) with all that it needs to continue"
            raise StateError(
                type(self).__name__, "a function that has reported no checkpoint", remedy
            )
        return {"data": saved.data, "files": dict(saved.files), "metrics": dict(saved.metrics)}

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Restart the function from a checkpoint, a dict or a folder's path, at the next `step`."""
        self.cleanup()
        self._checkpoint = Checkpoint(**checkpoint)

    def get_state(self) -> dict[str, Any]:
        """Return the state, as `Trainable.get_state`, at the last report with a checkpoint."""
        return super().get_state() if self._saved_state is None else self._saved_state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned."""
        super().set_state(state)
        self._streams = state["streams"]
        self._saved_state = super().get_state()
        self.at_checkpoint, self.has_ended = True, False

    @classmethod
    def exports_own(cls) -> bool:
        """Return whether the function's module defines ``export_model(folder)``."""
        return _exporter(cls.function) is not None

    def export_own(self, folder: Path) -> None:
        """Call ``export_model(folder)``; `get_checkpoint` works in it as in the function."""
        export = _exporter(type(self).function)
        if export is None:
            return
        before = getattr(_here, "thread", None)
        asked = FunctionThread(
            type(self).function, dict(self.config), self.context, self._checkpoint, None
        )
        _here.thread = asked
        try:
            export(folder)
        finally:
            _here.thread = before
            asked.stop_function()

    def cleanup(self) -> None:
        """End the function inside its `report()`; a function that does not end is abandoned.

        It then `lingers`, that is, may draw from the global streams at any time.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            self.lingers = not thread.stop_function()


def _exporter(function: TrainingFunction) -> Callable[[Path], object] | None:
    """Return ``export_model`` of the function or of its module; None if there is none."""
    inner = _innermost(function)
    beside = getattr(inner, "__globals__", {}).get("export_model")
    if getattr(beside, "__module__", None) != inner.__module__:  # imported from elsewhere
        beside = None
    found = getattr(inner, "export_model", beside)
    return found if callable(found) else None


# ---- what can be seen before it runs ------------------------------------------------------------


def never_saves(function: TrainingFunction) -> bool:
    """Return whether it is certain that no report of `function` has a checkpoint.

    Reads the source of the function and of the functions and classes of its module that it names. A
    function that reports in other ways (a second name for `report`, ``**more``) may save, and so
    may one that names something of another module from which `report` can be reached.
    """
    if isinstance(function, FunctionType):
        return _never_saves_itself(function)
    return objectives.is_objective(function) and objectives.never_saves(function)


@functools.cache
def _never_saves_itself(function: FunctionType) -> bool:
    """Return the answer of `never_saves` for a plain function; cached, as slices often ask."""
    if objectives.is_objective(function):
        return objectives.never_saves(function)
    return function.__name__ != "<lambda>" and _only_reports(function)


def _only_reports(function: FunctionType) -> bool:
    """Return whether the source of a plain function shows that none of its reports saves."""
    known, calls, homes = {function.__name__: function}, list[ast.Call](), set[str]()
    waiting: list[Any] = [function]
    try:
        while waiting:
            part = waiting.pop()
            tree = ast.parse(textwrap.dedent(inspect.getsource(part)))
            helpers = _third_party_objects(part, function)
            if not _is_plain(tree) or any(map(_imports_report, helpers)):
                return False
            homes.update(map(_module_of, helpers))
            calls += (node for node in ast.walk(tree) if _is_call_of_report(node))
            for name, its in _local_definitions(part, function).items():
                if name not in known:
                    known[name] = its
                    waiting.append(its)
    except (OSError, TypeError, SyntaxError):  # no source, or none that stands alone
        return False
    ours = all(_is_ours(call.func, function.__globals__) for call in calls)
    if not (calls and ours) or any(_may_save(call) for call in calls):
        return False
    homes -= sys.stdlib_module_names  # to look through all modules takes a while
    return not homes or _modules_reaching_report().isdisjoint(homes)


def _is_plain(tree: ast.Module) -> bool:
    """Return whether `report` is only called, and nothing else gets a ``checkpoint`` argument."""
    nodes = list(ast.walk(tree))
    handed = any(isinstance(node, ast.keyword) and node.arg == "checkpoint" for node in nodes)
    return not handed and sum(map(_is_report, nodes)) == sum(map(_is_call_of_report, nodes))


def _is_call_of_report(node: ast.AST) -> TypeGuard[ast.Call]:
    """Return whether a syntax node calls something named ``report``."""
    return isinstance(node, ast.Call) and _is_report(node.func)


def _is_ours(called: ast.expr, names: Mapping[str, Any]) -> bool:
    """Return whether a called expression, with these global names, is this module's `report`."""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return getattr(names.get(called.value.id), called.attr, None) is report
    return isinstance(called, ast.Name) and names.get(called.id) is report


def _is_report(node: ast.AST) -> bool:
    """Return whether a syntax node is the name ``report``, or an attribute of that name."""
    word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return word == report.__name__


def _may_save(call: ast.Call) -> bool:
    """Return whether a call of `report` may pass a checkpoint."""
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    named = any(keyword.arg is None for keyword in call.keywords)  # **more may have one
    return starred or named or len(call.args) > 1


def _local_definitions(part: Any, function: FunctionType) -> dict[str, Any]:
    """Return name → value of the functions and classes used in `part` and defined in its module."""
    found = {name: function.__globals__.get(name) for name in names_in(part)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, FunctionType | type) and value.__module__ == function.__module__
    }


def _third_party_objects(part: Any, function: FunctionType) -> list[Any]:
    """Return the objects used in `part` that come from third-party modules."""
    named = (function.__globals__.get(name) for name in names_in(part))
    return [
        one for one in named if not (_is_own(at := _module_of(one)) or at == function.__module__)
    ]


def _imports_report(helper: Any) -> bool:
    """Return whether a third-party function uses the name ``report``."""
    return type(helper) is FunctionType and report.__name__ in names_in(helper)


def _modules_reaching_report() -> set[str]:
    """Return the third-party modules from whose names `report` can be reached."""
    loaded = {
        name: {
            "report" if one is report or one is sys.modules[__name__] else _module_of(one)
            for one in list(vars(module).values())
            if issubclass(type(one), FunctionType | ModuleType | type)  # asks nothing of lazy ones
        }
        for name, module in list(sys.modules.items())
        if issubclass(type(module), ModuleType) and not _is_own(name)
    }
    found, latest = set[str](), {"report", "trainables"}
    while latest:
        latest = {name for name, homes in loaded.items() if homes & latest} - found
        found |= latest
    return found


#: Packages to which training loops report, but not to a sweep.
_OTHER_TRACKERS = frozenset(
    {"clearml", "comet_ml", "mlflow", "neptune", "nni", "syne_tune", "wandb"}
)


def _no_result_message(function: TrainingFunction, metric: str) -> str:
    """Return the error message for a function that ended without a result."""
    remedy = f"call report({{{metric!r}: ...}}) of trainables in it, or return {metric}"
    its, names = _innermost(function), set[str]()
    if isinstance(its, FunctionType):
        names = {name.partition(".")[0] for name in names_in(its)}
        values = {name: its.__globals__[name] for name in names if name in its.__globals__}
        names |= {_module_of(value).partition(".")[0] for value in values.values()}
        if values.get("report", report) is not report:
            remedy += f"; the report that it calls is that of {_module_of(values['report'])}"
    if told := sorted(names & _OTHER_TRACKERS):
        remedy += f"; what it tells {' and '.join(told)} is not seen here"
    return f"{name_of(function)}() ended without a result; {remedy}"


def _module_of(value: Any) -> str:
    """Return the name of a module, or of the module in which a value or its class is defined."""
    kind = type(value)
    if issubclass(kind, ModuleType):
        return str(value.__name__)
    return str((value if issubclass(kind, FunctionType | type) else kind).__module__)


def _is_own(module: str) -> bool:
    """Return whether a module belongs to these packages."""
    return module.partition(".")[0] in ("trainables", "sweep")


def names_in(part: Any) -> set[str]:
    """Return the global names used in a function, or in the methods of a class."""
    if isinstance(part, type):
        methods = [m for m in vars(part).values() if isinstance(m, FunctionType)]
        return set().union(*(names_in(method) for method in methods))
    names, waiting = set[str](), [part.__code__]
    while waiting:
        code: CodeType = waiting.pop()
        names |= set(code.co_names)
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return names
