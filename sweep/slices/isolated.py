"""A trial in a process of its own, forked from a worker that has imported all that it needs.

    run_slice(slice_spec, output, elsewhere)     # in a worker: runs here or in the trial's process

Functions and programs written by users run like this unless the spec says otherwise, so that
nothing that a trial leaves behind, in modules for example, reaches another. The process lives as
long as its trial is kept in memory there. Before each fork the worker imports the modules of
installed packages that earlier trials imported.
"""

import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
import sysconfig
from collections.abc import Iterator
from multiprocessing import connection, process
from multiprocessing import util as _util
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from sweep.core import plugins
from sweep.core.errors import WorkerLost
from sweep.slices import cache
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.process_state import end_processes
from sweep.slices.slice import Output, run_slice
from trainables.core.processes import reaper
from trainables.core.processes.ending import has_ended
from trainables.core.processes.program import TERMINAL_SIGNALS, ignore_terminal_signals
from trainables.core.processes.worker import measure_memory
from trainables.function import FunctionTrainable

#: Seconds that a trial's process has for its exit handlers.
LEAVE_S: Final = 5.0
#: Device files that a forked process cannot use once its parent has opened them.
_DEVICES: Final = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
#: Name of a trial's process, by which the pool finds it.
NAME: Final = "sweep-trial"
#: Number of prctl's operation PR_SET_NAME.
_SET_NAME: Final = 15
#: Module `multiprocessing.util`, with its private functions.
util: Any = _util
#: End of a pipe between two processes.
_Pipe: TypeAlias = "connection.Connection[Any, Any]"
#: Folders of installed packages; modules elsewhere are the user's own, imported by each trial.
_INSTALLED: Final = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})


class _Trial:
    """Process forked for one trial, as seen from the worker that forked it."""

    def __init__(self, spec: SliceSpec, output: Output) -> None:
        self.replica = _replica(spec)
        self._pipe, child_end = connection.Pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        self.pid = os.fork()
        if not self.pid:
            self._pipe.close()
            _serve(child_end, os.getppid(), output)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child_end.close()
        self._ended = os.pidfd_open(self.pid)

    def run(self, spec: SliceSpec) -> SliceOutcome:
        """Run a slice in the trial's process, wait for it, and return its outcome.

        The process is ended unless it keeps its trainable for the next slice. Modules of installed
        packages that it imported are noted, to be imported before the next fork.

        Raises:
            WorkerLost: the process died.
            Exception: whatever `run_slice` raised in the process.
        """
        with contextlib.suppress(OSError):
            self._pipe.send(spec)
        ready = connection.wait([self._pipe, self._ended])
        try:
            came, keeps, imported = self._pipe.recv() if self._pipe in ready else (None, False, ())
        except (EOFError, OSError):
            came = None
        if came is None:
            raise WorkerLost(self._reap(), self.pid)
        _pending_imports.update(imported)
        if not keeps:
            self.end()
        if isinstance(came, BaseException):
            raise came
        outcome: SliceOutcome = came
        return outcome

    def end(self) -> None:
        """Let the process exit within `LEAVE_S` seconds, then kill it and all below it."""
        self._pipe.close()
        connection.wait([self._ended], LEAVE_S)
        if not has_ended(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> int:
        """Wait for the end of the process, kill those below it, and return its exit code."""
        global _current_trial  # noqa: PLW0603 a worker has one
        _current_trial = None
        _, status = os.waitpid(self.pid, 0)
        os.close(self._ended)
        self._pipe.close()
        end_processes()
        return os.waitstatus_to_exitcode(status)


_current_trial: _Trial | None = None
_is_isolated_by_trainable: dict[tuple[Any, ...], bool] = {}
"""Trainable (name, paths, file) → True if its trials run in processes of their own."""
_pending_imports: set[str] = set()
"""Names of modules that trials imported and that this process will import before the next fork."""


def run_isolated(spec: SliceSpec, output: Output) -> SliceOutcome | None:
    """Run a slice in the process of its trial, forked if needed, and return its outcome.

    Returns None if the slice must run in this process. The process of another trial is ended, and
    before a fork the trainable that this process keeps is stopped.

    Raises:
        WorkerLost: the trial's process died.
        OSError: no further file can be opened or process started.
    """
    if (
        _current_trial is not None
        and _current_trial.replica == _replica(spec)
        and not has_ended(_current_trial.pid)
    ):
        return _current_trial.run(spec)
    if _current_trial is not None:
        _current_trial.end()
    kind = (spec.trainable, spec.paths, spec.script_file and spec.script_file.file)
    if spec.isolate == "slot" or not _is_isolated_by_trainable.get(kind, True):
        return None
    _is_isolated_by_trainable[kind] = _import_and_decide(spec, output)
    if not _is_isolated_by_trainable[kind]:
        return None
    cache.forget()
    return _fork_trial(spec, output).run(spec)


def forget() -> None:
    """Stop the process and the trainable that are kept for a trial's next slice, if any."""
    if _current_trial is not None:
        _current_trial.end()
    cache.forget()


def _fork_trial(spec: SliceSpec, output: Output) -> _Trial:
    """Fork a process that waits for slices of the trial; make it the current one of this worker.

    Its `run` starts a slice. This process no longer measures its memory.
    """
    global _current_trial  # noqa: PLW0603 a worker has one
    measure_memory(measures=False)  # this process no longer trains
    _current_trial = _Trial(spec, output)
    return _current_trial


def _replica(spec: SliceSpec) -> tuple[str, int, int]:
    """Return ID of the sweep, number of the trial and index of the replica of a slice."""
    return (spec.sweep_id, spec.trial, spec.replica)


def _import_and_decide(spec: SliceSpec, output: Output) -> bool:
    """Import the modules that a slice needs; return whether it runs in a process of its own.

    Modules that earlier trials imported are imported too, with the output in the trial's log. The
    garbage collector ignores all objects that exist then.
    Returns False if the trainable cannot be imported (the slice meets that error again), or a
    forked process would not work.
    """
    # the slice meets the error and reports it
    with contextlib.suppress(BaseException), output(spec):
        for name in sorted(_pending_imports - sys.modules.keys()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        _pending_imports.clear()
        found = plugins.find_trainable(spec.trainable, spec.paths, spec.script_file)
        gc.freeze()
        return (spec.isolate == "process" or issubclass(found, FunctionTrainable)) and _can_fork()
    return False


def _can_fork() -> bool:
    """Return whether a forked process would work: this one has one thread and no open GPU."""
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 only names are needed
        return False
    return not any(target.startswith(_DEVICES) for target in _open_files())


def _open_files() -> Iterator[str]:
    """Yield the path to which each file descriptor of this process leads."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            yield str(entry.readlink())


# ---- in the process of a trial ------------------------------------------------------------------


def _serve(pipe: _Pipe, parent: int, output: Output) -> NoReturn:
    """Run slices of one trial in the forked process until the worker closes the pipe, then exit.

    For each it sends back the outcome or exception, whether the trainable is kept for the next
    slice, and the names of newly imported modules of installed packages. `parent` is the worker's
    process id.
    """
    try:
        _become_program(parent)
        known = set(sys.modules)
        while True:
            try:
                spec: SliceSpec = pipe.recv()
            except EOFError:
                break
            came: object
            try:
                came = run_slice(spec, output)
            except Exception as error:  # noqa: BLE001 the worker raises it
                came = error
            pipe.send((came, cache.has_trainable(), _filter_installed(set(sys.modules) - known)))
        cache.forget()
        util._run_finalizers()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _become_program(parent: int) -> None:
    """Detach the forked process from the worker's exit handlers, signals and process group.

    The kernel kills the process when the worker `parent` ends; it exits if that has ended.
    """
    reaper.prctl(reaper.SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    reaper.prctl(_SET_NAME, NAME.encode())
    os.setpgid(0, 0)
    ignore_terminal_signals()
    # Exit handlers of the worker must not run in this process.
    atexit._clear()
    util._finalizer_registry.clear()
    process._children.clear()  # type: ignore[attr-defined]  # as in each process of multiprocessing
    util._run_after_forkers()


def _filter_installed(names: set[str]) -> list[str]:
    """Return those names of modules that belong to installed packages, not to the user."""
    found = []
    for name in names:
        place = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
        if place and place.startswith(_INSTALLED):
            found.append(name)
    return found
