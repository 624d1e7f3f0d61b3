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
    """An environment in another process failed to answer; the message is a verb phrase."""


class Gone(Fault):
    """A fault that has ended the process: the environment is lost."""


class Closable(Protocol):
    """An environment, or an object that holds one."""

    def close(self) -> Any:
        """Release all resources."""


C = TypeVar("C", bound=Closable)
#: Exceptions that were logged within `logging_once`; None outside it.
_logged: ContextVar[set[str] | None] = ContextVar("logged", default=None)


def describe_fault(error: BaseException) -> str:
    """Return a verb phrase on what the environment did, such as ``raised ValueError: …``."""
    return str(error) if isinstance(error, Fault) else f"raised {type(error).__name__}: {error}"


def close(env: Closable, name: str | None = None) -> None:
    """Close an environment; an exception is only logged, in one line, under `name` or its class."""
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
    """Close an environment when the block ends, as `close` does."""
    try:
        yield env
    finally:
        close(env, name)


@contextlib.contextmanager
def logging_once(logged: set[str] | None = None) -> Iterator[None]:
    """Make `close` log equal exceptions once inside the block, and those in `logged` never.

    New ones are added to `logged`. Inside another such block, whose own exceptions count for both,
    it is ignored.
    """
    outside = _logged.get()
    inside = set() if logged is None else logged
    token = _logged.set(inside if outside is None else outside)
    try:
        yield
    finally:
        _logged.reset(token)


def _name_of(env: Closable) -> str:
    """Return the class name of the unwrapped environment."""
    return type(getattr(env, "unwrapped", env)).__name__
