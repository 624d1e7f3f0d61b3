"""A process that computes what it is given, one thing after the other; it may be started early.

    with early(imports=["sweep.slices.slice"]):   # it imports while this process does, too
        ...
        executor = start({})                      # the one that was started early, or a new one

Its own start takes longer than what is asked of it at first: an interpreter, loky, numpy and what
trains are imported for most of a second.
"""

import contextlib
import errno
import gc
import importlib
import resource
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from joblib.externals.loky import process_executor
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from trainables.core.importing import large_import
from trainables.core.processes.ending import has_ended, kill_family
from trainables.core.processes.printing import lose_what_is_not_taken
from trainables.core.processes.program import TERMINAL_SIGNALS, become_program
from trainables.core.processes.starting import ONE_THREAD, blocked, start_trackers
from trainables.core.processes.supervised import supervised_context

#: Variables of every worker, set before any library reads them.
VARIABLES = ONE_THREAD | {"PYTHONHASHSEED": "0"}
#: Open files that a worker costs the process that starts it, at most.
FILES = 14
#: Workers that were started early and that nobody has taken yet, the first one first.
_spare: list[ProcessPoolExecutor] = []


def start(variables: Mapping[str, str]) -> ProcessPoolExecutor:
    """Return a worker with these environment variables and `VARIABLES`.

    Without variables of its own it is one that was started early, if one is alive. Submit to it
    inside `starting`.

    Raises:
        OSError: this process may not have so many files open, or there is no shared memory.
    """
    while _spare and not variables:
        executor = _spare.pop(0)
        if is_alive(executor):
            return executor
        end(executor)
    return _new(variables)


def _new(variables: Mapping[str, str]) -> ProcessPoolExecutor:
    _allow_files()
    context = supervised_context()
    start_trackers()  # else its semaphores start them, open to what a terminal sends
    try:
        return ProcessPoolExecutor(
            max_workers=1,
            timeout=None,
            context=context,
            initializer=_prepare,
            env={**VARIABLES, **variables},
        )
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        why = (
            f"worker processes need semaphores, and /dev/shm gives none ({error.strerror}): mount "
            f"it so that it can be written, in a container with --shm-size=1g, or use --pool inline"
        )
        raise OSError(error.errno, why) from error


def _allow_files() -> None:
    """See that one more worker can be started: many systems allow a process 1024 files at first."""
    used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 2 * (used + FILES) > soft < hard:  # those that were made and not started take more later
        soft = min(2 * soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if used + FILES > soft:
        why = f"{used} of the {soft} files that this process may have open are, and one more worker"
        raise OSError(errno.EMFILE, f"{why} takes {FILES}: start fewer, or raise `ulimit -n`")


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Enter this to submit to a worker: the first submission starts its process."""
    start_trackers()  # before: starting Python's lets signals through again
    with blocked(*TERMINAL_SIGNALS):  # until it has handlers of its own
        yield


def process_of(executor: ProcessPoolExecutor) -> Any:
    """Return a worker's process; None before the first submission, and after its end."""
    found = list((executor._processes or {}).values())  # at once: loky's thread changes it
    return found[0] if found else None


def is_alive(executor: ProcessPoolExecutor) -> bool:
    """Return whether the process of an executor runs."""
    process = process_of(executor)
    return process is not None and not has_ended(process.pid)


def end(executor: ProcessPoolExecutor) -> None:
    """Kill a worker; nobody waits for it."""
    executor.shutdown(wait=False, kill_workers=True)


@contextlib.contextmanager
def early(imports: Iterable[str], count: int = 1) -> Iterator[None]:
    """Start workers that import these modules; at the end those are killed that nobody took."""
    try:
        start_early(imports, count)
        yield
    finally:
        _keep(0)


def start_early(imports: Iterable[str], count: int) -> None:
    """Have just so many workers started early, which import these modules as well."""
    _keep(count)
    names = tuple(imports)
    _spare.extend(_new({}) for _ in range(count - len(_spare)))
    with starting():
        for executor in _spare:
            with contextlib.suppress(BrokenProcessPool):  # `start` looks whether it is alive
                executor.submit(_import, names)


def measure_memory(*, measures: bool = True) -> None:
    """Call this in a worker's first computation: loky measures from its end how the worker grows.

    It replaces one that has grown by 300 MB since then. What it imports early is no computation:
    measured from there, a trial's replay would be a leak.
    """
    process_executor._USE_PSUTIL = measures


def _keep(count: int) -> None:
    """Kill all but so many of those that were started early and that nobody has taken."""
    while len(_spare) > count:
        executor = _spare.pop()
        if process := process_of(executor):
            kill_family(process.pid)
        # Not `end`: told to kill, loky drops what waits and then looks for it, in a thread.
        executor.shutdown(wait=False)


def _import(names: Iterable[str]) -> None:
    process_executor._USE_PSUTIL = False
    with large_import():
        for name in names:
            with contextlib.suppress(Exception):  # who needs it meets the error, and says so
                importlib.import_module(name)
    gc.freeze()  # what is imported stays, and is looked through no more


def _prepare() -> None:
    become_program()
    lose_what_is_not_taken()
