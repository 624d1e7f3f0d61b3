"""A process that computes one submitted task after the other; it may be started early.

    with prestarted(imports=["sweep.slices.slice"]):   # it imports while this process does, too
        ...
        executor = start({})                      # the one that was started early, or a new one

Starting one takes longer than its first task: an interpreter, loky, numpy and the trainer are
imported for most of a second.
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
from trainables.core.processes.printing import ignore_full_disk
from trainables.core.processes.program import TERMINAL_SIGNALS, become_program
from trainables.core.processes.starting import ONE_THREAD, block_signals, start_trackers
from trainables.core.processes.supervised import supervised_context

#: Environment variables of every worker, set before any library reads them.
VARIABLES = ONE_THREAD | {"PYTHONHASHSEED": "0"}
#: Largest number of file descriptors that a worker costs the process that starts it.
FILES = 14
#: Workers that were started early and not yet taken, oldest first.
_spare: list[ProcessPoolExecutor] = []


def start(variables: Mapping[str, str]) -> ProcessPoolExecutor:
    """Return the executor of one worker process, which runs submitted tasks one after the other.

    Its environment has `VARIABLES` and the given `variables`. If there are none of the latter, it
    may be a worker that `prestart` has started. Submit to it inside `submitting`.

    Raises OSError if the limit of open files is reached, or there is no shared memory.
    """
    while _spare and not variables:
        executor = _spare.pop(0)
        if is_alive(executor):
            return executor
        end(executor)
    return _start_new(variables)


def _start_new(variables: Mapping[str, str]) -> ProcessPoolExecutor:
    """Return the executor of a new worker, whose process starts at the first submission.

    Raises OSError if the limit of open files is reached, or there is no shared memory.
    """
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
            "worker processes need semaphores, but /dev/shm provides none "
            f"({error.strerror}); make /dev/shm writable, in a container with --shm-size=1g, "
            "or use --pool inline"
        )
        raise OSError(error.errno, why) from error


def _allow_files() -> None:
    """Raise this process's limit of open files as far as one more worker needs it.

    Many systems allow a process 1024 files at first. Raises OSError if the hard limit is too low.
    """
    used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 2 * (used + FILES) > soft < hard:  # those that were made and not started take more later
        soft = min(2 * soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if used + FILES > soft:
        why = f"this process may have {soft} files open and has {used}, but one more worker"
        raise OSError(
            errno.EMFILE,
            f"{why} needs {FILES}; start fewer workers, or raise the limit with `ulimit -n`",
        )


@contextlib.contextmanager
def submitting() -> Iterator[None]:
    """Block SIGINT, SIGHUP and SIGTERM inside the block, in which a task is submitted to a worker.

    The first submission starts the process, which has no signal handlers of its own yet.
    """
    start_trackers()  # before: starting Python's lets signals through again
    with block_signals(*TERMINAL_SIGNALS):  # until it has handlers of its own
        yield


def process_of(executor: ProcessPoolExecutor) -> Any:
    """Return a worker's process; None before the first submission and after its end."""
    found = list((executor._processes or {}).values())  # at once: loky's thread changes it
    return found[0] if found else None


def is_alive(executor: ProcessPoolExecutor) -> bool:
    """Return whether the worker's process runs; False before the first submission."""
    process = process_of(executor)
    return process is not None and not has_ended(process.pid)


def end(executor: ProcessPoolExecutor) -> None:
    """Kill a worker with all its descendants, without waiting for its end."""
    if process := process_of(executor):
        kill_family(process.pid)
    # Without `kill_workers`: with it loky forgets waiting tasks, and its thread may then look for
    # one of them and print a KeyError.
    executor.shutdown(wait=False)


@contextlib.contextmanager
def prestarted(imports: Iterable[str], count: int = 1) -> Iterator[None]:
    """Start `count` workers that import these modules, before anybody needs a worker.

    `start` takes them inside the block; when the block ends, those not taken are killed.
    """
    try:
        prestart(imports, count)
        yield
    finally:
        _trim_spare(0)


def prestart(imports: Iterable[str], count: int) -> None:
    """Start workers in advance, or kill some, until `count` are waiting to be taken by `start`.

    All of them import the modules `imports` at once.
    """
    _trim_spare(count)
    names = tuple(imports)
    _spare.extend(_start_new({}) for _ in range(count - len(_spare)))
    with submitting():
        for executor in _spare:
            with contextlib.suppress(BrokenProcessPool):  # `start` looks whether it is alive
                executor.submit(_import, names)


def measure_memory(*, measures: bool = True) -> None:
    """Switch loky's memory measurement in this worker on or off.

    Loky replaces a worker that has grown by 300 MB since its first measurement. It is off during
    early imports, or a trial's replay would look like a leak; the first task switches it on.
    """
    process_executor._USE_PSUTIL = measures


def _trim_spare(count: int) -> None:
    """Kill workers that nobody has taken from those started in advance, down to `count`."""
    while len(_spare) > count:
        end(_spare.pop())


def _import(names: Iterable[str]) -> None:
    """Import modules in a worker before its first task; an import that fails is ignored.

    The task that needs the module will meet the error again. Switches loky's memory measurement
    off.
    """
    process_executor._USE_PSUTIL = False
    with large_import():
        for name in names:
            with contextlib.suppress(Exception):  # who needs it meets the error, and says so
                importlib.import_module(name)
    gc.freeze()  # what is imported stays, and is looked through no more


def _prepare() -> None:
    """Set up a new worker process: its signals, its group, its standard streams."""
    become_program()
    ignore_full_disk()
