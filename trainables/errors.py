"""Errors of trainables, by what a person can do about them."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class TrainableError(Exception):
    """Base of everything that this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """An error crosses to another process with its fields, whatever its constructor takes."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[TrainableError], args: tuple[object, ...], fields: dict[str, object]
) -> TrainableError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ConfigError(TrainableError, ValueError):
    """Settings that cannot work.

    Args:
        place: dotted path of the setting, for example ``model.hidden``.
        value: the value seen.
        allowed: what would be accepted, in words.
        hint: what to do next; empty when ``allowed`` says it all.
    """

    def __init__(self, place: str, value: object, allowed: str, hint: str = "") -> None:
        self.place = place
        self.value = value
        self.allowed = allowed
        self.hint = hint
        text = f"{place}: {shorten(value)} is not allowed; expected {allowed}"
        super().__init__(f"{text}; {hint}" if hint else text)

    @property
    def all(self) -> "tuple[ConfigError, ...]":
        """The mistakes that it reports, each by itself."""
        return (self,)

    def below(self, place: str) -> "ConfigError":
        """The same of a setting that lies in `place`."""
        return ConfigError(f"{place}.{self.place}", self.value, self.allowed, self.hint)


class ConfigErrors(ConfigError):
    """Several mistakes at once, a line for each; its fields are those of the first."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        self.__dict__.update(errors[0].__dict__)
        self._errors = tuple(errors)
        Exception.__init__(self, "\n".join(map(str, errors)))

    @property
    def all(self) -> tuple[ConfigError, ...]:
        """The mistakes that it reports, each by itself."""
        return self._errors

    def below(self, place: str) -> "ConfigErrors":
        """The same of settings that lie in `place`."""
        return ConfigErrors([error.below(place) for error in self._errors])


class NotImportable(TrainableError):
    """A dotted path leads to nothing; its reader says where the path stands.

    Args:
        problem: what is wrong, in words.
        known: the names in its module, where that has no such name.
        absent: whether there is no such module.
    """

    def __init__(
        self, problem: str, known: Iterable[str] | None = None, absent: bool = False
    ) -> None:
        self.known = None if known is None else tuple(known)
        self.absent = absent
        super().__init__(problem)


class StateError(TrainableError):
    """Something that cannot stand in a checkpoint; ``path`` is where it was found."""

    def __init__(self, path: str, found: str, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path}: {found} cannot stand in a checkpoint; {remedy}")


class CheckpointError(TrainableError):
    """A checkpoint that cannot be used; ``path`` is the file."""

    def __init__(self, path: object, reason: str) -> None:
        self.path = str(path)
        self.reason = reason
        super().__init__(f"{printable(str(path))}: {reason}")


class MissingCheckpoint(CheckpointError):
    """The file is not there."""


class CorruptCheckpoint(CheckpointError):
    """The bytes are not the ones that were written."""


class WrongFormat(CheckpointError):
    """Written by something else, or by a newer version."""


class UnreadableCheckpoint(CheckpointError):
    """It may be good: memory, rights or descriptors are short now, or its file system is away."""


class UntrustedCheckpoint(CheckpointError):
    """Holds what may run code, and is not signed by the key of its reader."""


class SigningError(TrainableError):
    """The key that signs checkpoints cannot be used; says what to do."""

    def __init__(self, path: object, found: str, remedy: str) -> None:
        super().__init__(f"{printable(str(path))}: {found}; {remedy}")


class EnvError(TrainableError):
    """An environment that breaks its contract: what it returned."""


class TooManySteps(EnvError):
    """Episodes take more environment steps than they may."""


class CallbackError(TrainableError):
    """A person's callback that raised, or wrote what is no number; names it and its phase."""


class WorkerError(TrainableError):
    """A rollout worker that died, hung or raised; the message carries its traceback."""


class WorkerDied(WorkerError):
    """A rollout worker whose process ended, which may be nobody's fault: retried as such."""


class WorkerHangs(WorkerError):
    """A rollout worker that did not answer in time and was ended; says where its threads were."""


class ExchangeError(WorkerError):
    """A rank of data-parallel learning that waited in vain for another one."""


class ExportError(TrainableError):
    """A policy that cannot be exported, or whose file does not do what the trained one does."""


class StoredDataError(TrainableError):
    """Stored experience that cannot be read or written; names the file, and the line if it has one.

    Args:
        path: the file or folder.
        found: what is wrong, in words.
        remedy: what to do next.
        line: counted from 1; 0: none.
    """

    def __init__(self, path: object, found: str, remedy: str = "", line: int = 0) -> None:
        place = f"{printable(str(path))}:{line}" if line else printable(str(path))
        super().__init__(f"{place}: {found}; {remedy}" if remedy else f"{place}: {found}")


class NotFiniteError(TrainableError):
    """NaN or infinity in observations, rewards, losses or gradients."""


def nearest(word: object, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known word nearest to `word`, or an empty string.

    Also for one that it begins with: ``minimize``, ``min``.
    """
    known = list(known)
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    close = close or [name for name in known if len(name) > 2 and str(word).startswith(name)]
    return f"; did you mean '{close[0]}'?" if close else ""


def printable(text: str) -> str:
    """`text` with control and text-direction characters escaped; it cannot fool a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(value: object, limit: int = 80) -> str:
    """The value's repr on one line, escaped and cut at `limit` characters."""
    text = printable(repr(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"
