"""Process-wide state that a trial may change, captured and restored for the trials after it.

    before = ProcessState.capture()
    ...                              # a trial changes folder, variables, torch's default dtype
    theirs = ProcessState.capture()  # for the trial's next slice in this process
    before.restore()

`trainables.core.rng` does the same for random streams. State that is not listed here, such as the
contents of a trial's modules, is fresh only in a process of its own.
"""

import contextlib
import ctypes
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainables.core.processes import reaper

#: Signals whose handlers are restored after a slice.
_SIGNALS: Final = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1),
    signal.SIGUSR2,
)
#: Number of prctl's operation PR_GET_CHILD_SUBREAPER.
_GET_SUBREAPER: Final = 37


@dataclass(frozen=True)
class _Switch:
    """Setting of a library that applies to the whole process."""

    get: Callable[[Any], Any]
    """Function from the library's module to the present value."""
    put: Callable[[Any, Any], object]
    """Function of the library's module and a value that sets the value."""
    default: Callable[[], Any] | None = None
    """Function that returns the value right after the library's import; None if a library that was
    imported since keeps its value."""


def _setter(name: str) -> Callable[[Any, Any], object]:
    """Return a function of a module and a value that sets an attribute of the module.

    `name` is the attribute's dotted path.
    """
    *above, last = name.split(".")

    def put(module: Any, value: object) -> None:
        """Set the attribute of an imported module."""
        for part in above:
            module = getattr(module, part)
        setattr(module, last, value)

    return put


def _getter(name: str) -> Callable[[Any], Any]:
    """Return a function of a module that returns an attribute of the module.

    `name` is the attribute's dotted path.
    """

    def get(module: Any) -> Any:
        """Return the attribute of an imported module."""
        for part in name.split("."):
            module = getattr(module, part)
        return module

    return get


def _default_device(torch: Any) -> str:
    """Return the device that was set for new tensors; empty if none was.

    None is not the same as the CPU, which when set takes time in each call of torch.
    """
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return "" if context is None else str(context.device)


def _default_threads() -> int | None:
    """Return the number in the variable OMP_NUM_THREADS; None if there is no number."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdecimal() else None


#: Module → its settings, which are read only if the module is imported.
_SWITCHES: Final[Mapping[str, tuple[_Switch, ...]]] = {
    "torch": (
        _Switch(
            lambda torch: torch.get_default_dtype(),
            lambda torch, kind: torch.set_default_dtype(kind),
            lambda: sys.modules["torch"].float32,
        ),
        _Switch(
            _default_device,
            lambda torch, device: torch.set_default_device(device or None),
            str,
        ),
        _Switch(
            lambda torch: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda torch, on: torch.use_deterministic_algorithms(on[0], warn_only=on[1]),
            lambda: (False, False),
        ),
        _Switch(
            lambda torch: torch.get_num_threads(),
            lambda torch, count: torch.set_num_threads(count),
            _default_threads,
        ),
        _Switch(
            lambda torch: torch.get_float32_matmul_precision(),
            lambda torch, precision: torch.set_float32_matmul_precision(precision),
            lambda: "highest",
        ),
        _Switch(
            lambda torch: torch.is_grad_enabled(),
            lambda torch, on: torch.set_grad_enabled(on),
            lambda: True,
        ),
        *(
            _Switch(_getter(name), _setter(name), lambda value=value: value)  # type: ignore[misc]
            for name, value in (
                ("backends.cudnn.deterministic", False),
                ("backends.cudnn.benchmark", False),
                ("backends.cudnn.enabled", True),
            )
        ),
    ),
    "numpy": (
        _Switch(
            lambda numpy: numpy.geterr(),
            lambda numpy, errors: numpy.seterr(**errors),
            lambda: {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
        ),
        _Switch(
            lambda numpy: numpy.get_printoptions(),
            lambda numpy, options: numpy.set_printoptions(**options),
        ),
    ),
}


@dataclass(frozen=True)
class ProcessState:
    """Process-wide state that a trial may change, as it was at one instant."""

    folder: str | None
    """Working folder; None if it was removed."""
    variables: Mapping[str, str]
    """Environment variables."""
    path: tuple[str, ...]
    """Entries of `sys.path`."""
    words: tuple[str, ...]
    """Command-line arguments in `sys.argv`."""
    streams: tuple[Any, Any]
    """Standard output and standard error (`sys.stdout`, `sys.stderr`)."""
    handlers: tuple[Any, ...]
    """Handler of each signal in `_SIGNALS`; empty if captured outside the main thread."""
    filters: tuple[Any, ...]
    """Entries of `warnings.filters`."""
    log: tuple[int, tuple[Any, ...], int]
    """Level and handlers of the root logger, and the level up to which logging is disabled."""
    context: str | None
    """Start method of multiprocessing; None if it was not set."""
    timeout: float | None
    """Default timeout of new sockets in seconds; None for no timeout."""
    depth: int
    """Recursion limit of the interpreter."""
    switches: Mapping[str, tuple[Any, ...]]
    """Imported module → values of its settings, in the order of `_SWITCHES`."""

    @classmethod
    def capture(cls) -> "ProcessState":
        """Return the current state of this process, without its random streams.

        Signal handlers are included only if this is called in the main thread.
        """
        root = logging.getLogger()
        in_main = threading.current_thread() is threading.main_thread()
        return cls(
            _working_folder(),
            dict(os.environ),
            tuple(sys.path),
            tuple(sys.argv),
            (sys.stdout, sys.stderr),
            tuple(map(signal.getsignal, _SIGNALS)) if in_main else (),
            tuple(warnings.filters),
            (root.level, tuple(root.handlers), root.manager.disable),
            multiprocessing.get_start_method(allow_none=True),
            socket.getdefaulttimeout(),
            sys.getrecursionlimit(),
            {
                name: tuple(switch.get(sys.modules[name]) for switch in _SWITCHES[name])
                for name in _imported_modules()
            },
        )

    def restore(self) -> None:
        """Set everything in this process that differs to what it was at the capture.

        Libraries in `_SWITCHES` that were imported since then get their default settings. Signal
        handlers stay unless both the capture and this call are in the main thread, and the working
        folder stays if the old one is gone. Random streams are left alone.
        """
        now = ProcessState.capture()
        if self.folder != now.folder and self.folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(self.folder)
        if self.variables != now.variables:
            for name in now.variables.keys() - self.variables.keys():
                del os.environ[name]
            os.environ.update(self.variables)
        sys.path[:], sys.argv[:] = self.path, self.words
        sys.stdout, sys.stderr = self.streams
        self._restore_libraries(now)
        self._restore_switches(now)

    def _restore_libraries(self, present: "ProcessState") -> None:
        """Restore signals, warnings, logging, multiprocessing, sockets and the recursion limit.

        `present` is the state of the process now.
        """
        for number, before, handler in zip(_SIGNALS, self.handlers, present.handlers, strict=False):
            if handler is not before:
                signal.signal(number, before)
        if self.filters != present.filters:
            warnings.resetwarnings()
            warnings.filters[:] = self.filters  # type: ignore[index]
        root = logging.getLogger()
        if self.log != present.log:
            root.setLevel(self.log[0])
            root.handlers[:] = self.log[1]
            logging.disable(self.log[2])
        if self.context != present.context:
            multiprocessing.set_start_method(self.context, force=True)
        socket.setdefaulttimeout(self.timeout)
        if self.depth != present.depth:
            sys.setrecursionlimit(self.depth)

    def _restore_switches(self, present: "ProcessState") -> None:
        """Restore the settings of imported libraries; those imported since get their defaults.

        `present` is the state of the process now.
        """
        for name, values in present.switches.items():
            before = self.switches.get(name)
            for index, (switch, value) in enumerate(zip(_SWITCHES[name], values, strict=True)):
                if before is not None:
                    wanted = before[index]
                elif switch.default is not None:
                    wanted = switch.default()
                else:
                    continue
                if wanted is not None and wanted != value:
                    switch.put(sys.modules[name], wanted)


def _working_folder() -> str | None:
    """Return the path of the working folder; None if it was removed."""
    with contextlib.suppress(OSError):
        return os.getcwd()  # noqa: PTH109 the text itself
    return None


def _imported_modules() -> list[str]:
    """Return the names of modules in `_SWITCHES` that are imported completely.

    A module that a thread is importing now is left out.
    """
    found = ((name, sys.modules.get(name)) for name in _SWITCHES)
    return [
        name
        for name, module in found
        if module is not None and not getattr(module.__spec__, "_initializing", False)
    ]


def end_processes() -> None:
    """Kill all processes below this one, if it is a worker that only runs trials.

    A process is such a worker if it adopts orphans; others keep their children. Resource trackers
    of multiprocessing, which clean up after killed processes, are not killed.
    """
    is_subreaper = ctypes.c_int()
    reaper.prctl(_GET_SUBREAPER, ctypes.byref(is_subreaper))
    if is_subreaper.value:
        _stop_forkserver()
        own = {child for child in reaper.children(os.getpid()) if reaper.is_tracker(child)}
        reaper.kill_descendants(own)


def _stop_forkserver() -> None:
    """Kill multiprocessing's fork server, if it runs.

    Multiprocessing starts another when needed.
    """
    module: Any = sys.modules.get("multiprocessing.forkserver")
    pid = module and module._forkserver._forkserver_pid
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        module._forkserver._stop()
