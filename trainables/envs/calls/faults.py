"""Descriptions of environments' faults, and closing an environment, whose errors are only logged.

A closed environment is not needed again, so an error in its `close` must not end a training, a
measurement or an evaluation.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from trainables.errors import WorkerError, printable

logger = logging.getLogger(__name__)


class Fault(WorkerError):
    """An environment in another process raised, hung or died.

    The message is a verb phrase, such as ``died; exit code 1``, to which callers add the name.
    """


class Gone(Fault):
    """A fault after which the environment's process has ended: the environment is lost."""


class Closable(Protocol):
    """Protocol of an environment, or of an object that holds one."""

    def close(self) -> Any:
        """Release all resources."""


C = TypeVar("C", bound=Closable)
#: Exceptions that were logged within `logging_once`; None outside it.
_logged: ContextVar[set[str] | None] = ContextVar("logged", default=None)


def describe_fault(error: BaseException) -> str:
    """Return a verb phrase on what the environment did, such as ``raised ValueError: …``.

    For a `Fault` it is the error's own message.
    """
    return str(error) if isinstance(error, Fault) else f"raised {type(error).__name__}: {error}"


def close(env: Closable, name: str | None = None) -> None:
    """Close an environment; an exception is not raised, but logged in one line.

    The line calls the environment `name`, or by its class. Inside `logging_once`, each exception is
    logged only the first time.
    """
    try:
        env.close()
    except Exception as error:  # noqa: BLE001 an environment may raise anything, and is not needed again
        words = printable(" ".join(describe_fault(error).split()))
        logged = _logged.get()
        if logged is None or words not in logged:
            logger.warning("%s: close() %s; it counts as closed", name or _name_of(env), words)
        if logged is not None:
            logged.add(words)


@contextlib.contextmanager
def closing(env: C, name: str | None = None) -> Iterator[C]:
    """Yield an environment, and close it when the block ends; exceptions of `close` are logged.

    The log calls the environment `name`, or by its class.
    """
    try:
        yield env
    finally:
        close(env, name)


@contextlib.contextmanager
def logging_once(logged: set[str] | None = None) -> Iterator[None]:
    """Make `close` log each distinct exception only once inside the block.

    Exceptions in the set `logged` are not logged, and new ones are added to it. Inside another such
    block, the outer block's set is used.
    """
    outside = _logged.get()
    inside = set() if logged is None else logged
    token = _logged.set(inside if outside is None else outside)
    try:
        yield
    finally:
        _logged.reset(token)


def _name_of(env: Closable) -> str:
    """Return the class name of the environment without its wrappers."""
    return type(getattr(env, "unwrapped", env)).__name__
