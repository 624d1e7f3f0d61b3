"""A trial in a process of its own, forked from a worker that has imported all that it needs.

    run_slice(slice_spec, output, elsewhere)     # in a worker: there, or in its trial's process

Functions and programs of a person's own are run like this unless the spec says otherwise, so that
nothing which one leaves behind, in modules for example, reaches another. The process lives as long
as its trial is kept in memory there. What trials have imported from installed packages the worker
imports before it forks again.
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

from sweep import plugins
from sweep.errors import WorkerLost
from sweep.slices import cache
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.process_state import end_processes
from sweep.slices.slice import Output, run_slice
from trainables.core.processes import reaper
from trainables.core.processes.ending import has_ended
from trainables.core.processes.program import TERMINAL_SIGNALS, ignore_terminal_signals
from trainables.core.processes.worker import measure_memory
from trainables.function import FunctionTrainable

#: Seconds that a trial's process has for what wants to be called at its end.
LEAVE_S: Final = 5.0
#: Devices of which a forked process cannot make use once its parent has.
_DEVICES: Final = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
#: Its name, by which the pool finds it.
NAME: Final = "sweep-trial"
_SET_NAME: Final = 15
util: Any = _util
_Pipe: TypeAlias = "connection.Connection[Any, Any]"
#: Where packages are installed; what lies elsewhere is a person's own, and imported by each trial.
_INSTALLED: Final = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})


class _Trial:
    """The process of a trial, seen from its worker."""

    def __init__(self, spec: SliceSpec, output: Output) -> None:
        self.replica = _replica(spec)
        self._pipe, theirs = connection.Pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        self.pid = os.fork()
        if not self.pid:
            self._pipe.close()
            _serve(theirs, os.getppid(), output)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._ended = os.pidfd_open(self.pid)

    def run(self, spec: SliceSpec) -> SliceOutcome:
        """Run a slice there.

        Raises:
            WorkerLost: the process died.
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
        _wanted.update(imported)
        if not keeps:
            self.end()
        if isinstance(came, BaseException):
            raise came
        outcome: SliceOutcome = came
        return outcome

    def end(self) -> None:
        """Let the process end, and kill what is left of it and below it."""
        self._pipe.close()
        connection.wait([self._ended], LEAVE_S)
        if not has_ended(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> int:
        global _here  # noqa: PLW0603 a worker has one
        _here = None
        _, status = os.waitpid(self.pid, 0)
        os.close(self._ended)
        self._pipe.close()
        end_processes()
        return os.waitstatus_to_exitcode(status)


_here: _Trial | None = None
_isolates: dict[tuple[Any, ...], bool] = {}
"""Trainable → whether its trials have processes of their own."""
_wanted: set[str] = set()
"""Modules that trials have imported, and that this process is to import."""


def elsewhere(spec: SliceSpec, output: Output) -> SliceOutcome | None:
    """Run one slice in a process of its trial's own; returns None if it belongs into this one.

    Raises:
        WorkerLost: the trial's own process died.
        OSError: this process can open no further file, or start no other.
    """
    if _here is not None and _here.replica == _replica(spec) and not has_ended(_here.pid):
        return _here.run(spec)
    if _here is not None:
        _here.end()
    kind = (spec.trainable, spec.paths, spec.kept and spec.kept.file)
    if spec.isolate == "slot" or not _isolates.get(kind, True):
        return None
    _isolates[kind] = _is_isolated(spec, output)
    if not _isolates[kind]:
        return None
    cache.forget()
    return _begun(spec, output).run(spec)


def forget() -> None:
    """End what is kept for a trial's next slice."""
    if _here is not None:
        _here.end()
    cache.forget()


def _begun(spec: SliceSpec, output: Output) -> _Trial:
    global _here  # noqa: PLW0603 a worker has one
    measure_memory(measures=False)  # nothing computes here
    _here = _Trial(spec, output)
    return _here


def _replica(spec: SliceSpec) -> tuple[str, int, int]:
    return (spec.sweep_id, spec.trial, spec.replica)


def _is_isolated(spec: SliceSpec, output: Output) -> bool:
    """Import what a slice needs; returns whether it runs in a process of its own."""
    with contextlib.suppress(BaseException), output(spec):  # the slice meets the error, and tells
        for name in sorted(_wanted - sys.modules.keys()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        _wanted.clear()
        found = plugins.find_trainable(spec.trainable, spec.paths, spec.kept)
        gc.freeze()
        return (spec.isolate == "process" or issubclass(found, FunctionTrainable)) and _can_fork()
    return False


def _can_fork() -> bool:
    """Return whether a forked process works: no thread is lost in it, and no device."""
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 names alone
        return False
    return not any(target.startswith(_DEVICES) for target in _open_files())


def _open_files() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            yield str(entry.readlink())


# ---- in the process of a trial ------------------------------------------------------------------


def _serve(pipe: _Pipe, parent: int, output: Output) -> NoReturn:
    """Run slices of one trial until nothing of it is kept, or nobody asks."""
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
            except Exception as error:  # noqa: BLE001 it is the worker's
                came = error
            pipe.send((came, cache.holds(), _installed(set(sys.modules) - known)))
        cache.forget()
        util._run_finalizers()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _become_program(parent: int) -> None:
    """Take the place of the worker, which has taken that of a program."""
    reaper.prctl(reaper.SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    reaper.prctl(_SET_NAME, NAME.encode())
    os.setpgid(0, 0)
    ignore_terminal_signals()
    # What the worker wants to have called at its end is not this process's.
    atexit._clear()
    util._finalizer_registry.clear()
    process._children.clear()  # type: ignore[attr-defined]  # as in each process of multiprocessing
    util._run_after_forkers()


def _installed(names: set[str]) -> list[str]:
    """Those of these modules that are of installed packages."""
    found = []
    for name in names:
        place = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
        if place and place.startswith(_INSTALLED):
            found.append(name)
    return found
