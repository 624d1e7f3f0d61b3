"""The child's end of a worker's process: it answers one request at a time over a pipe.

On another pipe it writes where it stands when it has hung for too long.
"""

import faulthandler
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import connection
from typing import Any, Protocol, TypeAlias, TypeVar

from trainables.core import rng
from trainables.core.processes import Parent, die_with_parent, ignore_terminal_signals, leave
from trainables.core.resources import ResourcesConfig, limit_child
from trainables.rollout.access import apply_packed

Pipe: TypeAlias = "connection.Connection[Any, Any]"


class ChildSpec(Protocol):
    """What a child builds its worker from; it travels there."""

    @property
    def seed(self) -> int:
        """Seed of the trial's streams."""

    @property
    def index(self) -> int:
        """Which child of its kind."""

    @property
    def role(self) -> str:
        """How errors call the child."""

    @property
    def timeout_key(self) -> str:
        """The setting that says how long it may take to answer."""

    @property
    def resources(self) -> ResourcesConfig:
        """Its variables and its quota of memory."""


Spec = TypeVar("Spec", bound=ChildSpec)


class _ChildWorker:
    """What a request may call: the worker, and the global streams of its process."""

    def __init__(self, spec: Spec, build: Callable[[Spec], Any]) -> None:
        # Environments may draw from the global streams; in a child these are the worker's own.
        rng.seed_global(spec.seed, "worker", spec.index, "global")
        self._worker = build(spec)

    def __getattr__(self, method: str) -> Any:
        """Whatever else the worker can be asked for."""
        return getattr(self._worker, method)

    def apply_packed(self, packed: bytes) -> bytes:
        """The answer of a function of the worker."""
        return apply_packed(self._worker, packed)

    def sample_with_state(self) -> tuple[Any, dict[str, Any]]:
        """A sample, and the state after it."""
        return self._worker.sample(), self.get_state()

    def iterate_with_state(self, *request: Any) -> tuple[Any, dict[str, Any]]:
        """What a rank learnt, and the state after it."""
        return self._worker.iterate(*request), self.get_state()

    def get_state(self) -> dict[str, Any]:
        """The worker's state and entry ``global_streams``."""
        return {**self._worker.get_state(), "global_streams": rng.capture_global()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._worker.set_state(state)
        rng.restore_global(state["global_streams"])


def serve(
    pipe: Pipe, stack: Pipe, spec: Spec, build: Callable[[Spec], Any], parent: Parent
) -> None:
    """Answer requests until one asks to close, or nobody is left to ask.

    Args:
        pipe: carries (number, method, arguments) here and (number, kind, answer) back.
        stack: takes where the threads are, when SIGUSR1 comes.
        spec: what the worker is built from, at the first request.
        build: makes the worker from it.
        parent: this process ends with it.
    """
    faulthandler.register(signal.SIGUSR1, file=stack.fileno())
    ignore_terminal_signals()
    die_with_parent(parent)
    # A daemon may start no processes, but environments may be ones; they die with this one anyway.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    limit_child(spec.resources.memory_per_worker)
    worker: _ChildWorker | None = None
    while True:
        try:
            number, method, args = pipe.recv()
        except EOFError:
            return
        try:
            worker = worker or _ChildWorker(spec, build)
            answer = (number, "ok", getattr(worker, method)(*args))
        except Exception as error:  # noqa: BLE001 whatever it is, the parent must hear of it
            answer = (number, "error", _told(error, spec))
        pipe.send(answer)
        if method == "close":
            leave()


def _told(error: BaseException, spec: ChildSpec) -> tuple[str, str, str]:
    """Kind, message and traceback; with the quota where memory ran out, however deep down."""
    message = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            message += f"; memory_per_worker: {spec.resources.memory_per_worker} bytes, 0: no limit"
            break
        cause = cause.__cause__
    return type(error).__name__, message, traceback.format_exc()
