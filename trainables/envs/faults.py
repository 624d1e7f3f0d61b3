"""Faults of environments in words, and closing one: an exception of its close() is only logged.

An environment that is closed is not needed again, so nothing that its `close` does may end a
training, a measurement or an evaluation.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from trainables.errors import WorkerError, printable

logger = logging.getLogger(__name__)


class Fault(WorkerError):
    """An answer that an environment in another process did not give, in words with a verb."""


class Gone(Fault):
    """A fault that has ended the process: the environment is lost."""


class Closable(Protocol):
    """An environment, or whatever holds one."""

    def close(self) -> Any:
        """Let go of everything it holds."""


C = TypeVar("C", bound=Closable)
#: Exceptions that were logged within `logging_once`; None outside it.
_logged: ContextVar[set[str] | None] = ContextVar("logged", default=None)


def described(error: BaseException) -> str:
    """Return an exception in words that say what the environment did."""
    return str(error) if isinstance(error, Fault) else f"raised {type(error).__name__}: {error}"


def close(env: Closable, name: str | None = None) -> None:
    """Close an environment; an exception is logged in one line, with its class and message.

    Args:
        env: to be closed.
        name: of the environment in the log; None: the name of its class.
    """
    try:
        env.close()
    except Exception as error:  # noqa: BLE001 an environment may raise anything, and is not needed again
        words = printable(" ".join(described(error).split()))
        logged = _logged.get()
        if logged is None or words not in logged:
            logger.warning("%s: close() %s; it counts as closed", name or _name_of(env), words)
        if logged is not None:
            logged.add(words)


@contextlib.contextmanager
def closing(env: C, name: str | None = None) -> Iterator[C]:
    """Close an environment at the end of a block, as `close` does."""
    try:
        yield env
    finally:
        close(env, name)


@contextlib.contextmanager
def logging_once(logged: set[str] | None = None) -> Iterator[None]:
    """Let `close` log equal exceptions once where many environments alike are made and closed.

    Args:
        logged: exceptions that were logged before, to which further ones are added; not used
            within another block, whose exceptions count for both.
    """
    outside = _logged.get()
    inside = set() if logged is None else logged
    token = _logged.set(inside if outside is None else outside)
    try:
        yield
    finally:
        _logged.reset(token)


def _name_of(env: Closable) -> str:
    return type(getattr(env, "unwrapped", env)).__name__
