"""Errors of trainables, by what a person can do about them."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class TrainableError(Exception):
    """Base class of all errors that this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its fields, whatever arguments its constructor takes."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[TrainableError], args: tuple[object, ...], fields: dict[str, object]
) -> TrainableError:
    """Make a pickled error again, of class `kind` with its attributes, without its constructor."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ConfigError(TrainableError, ValueError):
    """A setting whose value is not allowed.

    Args:
        place: dotted name of the setting, for example ``model.hidden``.
        value: what the user wrote.
        allowed: description of the allowed values; empty if `problem` and `hint` say it all.
        hint: advice on what to do next; empty when ``allowed`` says it all.
        problem: description of the mistake; by default that the value is not allowed.
    """

    def __init__(
        self, place: str, value: object, allowed: str = "", hint: str = "", problem: str = ""
    ) -> None:
        self.place = place
        self.value = value
        self.allowed = allowed
        self.hint = hint
        self.problem = problem
        super().__init__(f"{place}: {describe_mistake(value, allowed, hint, problem)}")

    @classmethod
    def of_conflict(
        cls, place: str, value: object, other: str, allowed: str, why: str = "", undo: str = ""
    ) -> "ConfigError":
        """Return the error for a valid value that cannot be used here.

        Args:
            place: dotted name of the setting.
            value: what the user wrote.
            other: what it cannot be used with, for example ``data_parallel``; may be empty.
            allowed: values that can be used, as in YAML.
            why: the reason, which follows "because"; may be empty.
            undo: advice on how to keep `value`, which follows "or"; may be empty.
        """
        problem = f"{in_yaml(value)} cannot be used"
        problem += f" with {other}" if other else ""
        problem += f", because {why}" if why else ""
        hint = f"set it to {allowed}, or {undo}" if undo else f"set it to {allowed}"
        return ConfigError(place, value, hint=hint, problem=problem)

    @classmethod
    def of_checkpoint(
        cls, place: str, value: object, before: object, why: str = "", undo: str = ""
    ) -> "ConfigError":
        """Return the error for a setting that differs from the checkpoint's, and may not.

        Args:
            place: dotted name of the setting.
            value: what the user wrote.
            before: value with which the checkpoint was written.
            why: the reason, which follows "because"; may be empty.
            undo: advice on how to keep `value`, which follows "or"; may be empty.
        """
        was = in_yaml(before)
        problem = f"{in_yaml(value)} differs from the checkpoint's {was} and cannot be changed"
        problem += f", because {why}" if why else ""
        hint = f"set it to {was}, or {undo}" if undo else f"set it to {was}"
        return ConfigError(place, value, hint=hint, problem=problem)

    @property
    def mistakes(self) -> "tuple[ConfigError, ...]":
        """All mistakes that this error reports, as ConfigErrors: here only the error itself."""
        return (self,)

    def nested_under(self, place: str) -> "ConfigError":
        """Return the same error for a setting that is nested under the key `place`."""
        key = f"{place}.{self.place}" if self.place else place
        return ConfigError(key, self.value, self.allowed, self.hint, self.problem)


class ConfigErrors(ConfigError):
    """Several ConfigErrors at once, one line each.

    Its attributes, such as `place` and `value`, are those of the first one.
    """

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        self.__dict__.update(errors[0].__dict__)
        self._errors = tuple(errors)
        Exception.__init__(self, "\n".join(map(str, errors)))

    @property
    def mistakes(self) -> tuple[ConfigError, ...]:
        """All mistakes that this error reports, as ConfigErrors."""
        return self._errors

    def nested_under(self, place: str) -> "ConfigErrors":
        """Return the same errors for settings that are nested under the key `place`."""
        return ConfigErrors([error.nested_under(place) for error in self._errors])


class NoResult(TrainableError):
    """A training function or program that ended without a result, as it would after a retry."""


class NotImportable(TrainableError):
    """A path ``package.module:Name`` that cannot be imported.

    The caller adds in which setting the path was written.

    Args:
        known_names: public names of the module if the module exists but lacks the name, else None.
        absent: True if the module itself does not exist.
    """

    def __init__(
        self, problem: str, known_names: Iterable[str] | None = None, absent: bool = False
    ) -> None:
        self.known = None if known_names is None else tuple(known_names)
        self.absent = absent
        super().__init__(problem)


class StateError(TrainableError):
    """A value that cannot be stored in a checkpoint.

    Args:
        path: dotted path of the value in the state.
        problem: description of the value, the subject of "cannot be stored in a checkpoint".
        remedy: advice on what to do next.
    """

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem} cannot be stored in a checkpoint; {remedy}")


class DeviceError(TrainableError):
    """A failure of a GPU that concerns all trials on it; none of them has caused it."""


class DeviceLost(DeviceError):
    """The device has failed and computes nothing any more."""


class DeviceOutOfMemory(DeviceError):
    """The memory of the device does not suffice."""


class CheckpointError(TrainableError):
    """A checkpoint that cannot be used.

    Args:
        path: path or URL of its file.
        reason: rest of the sentence about it.
    """

    def __init__(self, path: object, reason: str) -> None:
        self.path = str(path)
        self.reason = reason
        super().__init__(f"{printable(str(path))}: {reason}")


class MissingCheckpoint(CheckpointError):
    """The checkpoint file does not exist."""


class CorruptCheckpoint(CheckpointError):
    """The bytes of the checkpoint differ from those that were written."""


class WrongFormat(CheckpointError):
    """The checkpoint was written by another program, by a newer version, or for another class."""


class UnreadableCheckpoint(CheckpointError):
    """The checkpoint cannot be read now, though it may be intact.

    Memory, permissions or file descriptors are short, or its file system is not mounted.
    """


class UntrustedCheckpoint(CheckpointError):
    """The checkpoint holds data that may run code, and it is not signed by the reader's key."""


class SigningError(TrainableError):
    """The key that signs checkpoints cannot be used.

    Args:
        path: the key's file.
    """

    def __init__(self, path: object, problem: str, remedy: str) -> None:
        super().__init__(f"{printable(str(path))}: {problem}; {remedy}")


class EnvError(TrainableError):
    """An environment failed, or returned something that breaks gymnasium's contract."""


class TooManySteps(EnvError):
    """The episodes to be played take more environment steps in all than allowed."""


class CallbackError(TrainableError):
    """A user's callback raised, or recorded a value that is not a number."""


class WorkerError(TrainableError):
    """A rollout worker died, hung or raised; the message includes its traceback."""


class WorkerDied(WorkerError):
    """A rollout worker's process ended unexpectedly; the trial is retried."""


class WorkerHangs(WorkerError):
    """A rollout worker did not answer in time and was killed; the message includes its stacks."""


class ExchangeError(WorkerError):
    """A rank of data-parallel learning timed out while it waited for another rank."""


class ExportError(TrainableError):
    """A policy cannot be exported, or the exported file computes something else than the policy."""


class StoredDataError(TrainableError):
    """Stored experience that cannot be read or written.

    Args:
        path: the file or folder.
        remedy: advice on what to do next; may be empty.
        line: line number in the file, counted from 1; 0 if the error concerns no single line.
    """

    def __init__(self, path: object, problem: str, remedy: str = "", line: int = 0) -> None:
        place = f"{printable(str(path))}:{line}" if line else printable(str(path))
        super().__init__(f"{place}: {problem}; {remedy}" if remedy else f"{place}: {problem}")


class NotFiniteError(TrainableError):
    """NaN or infinity in observations, rewards, losses or gradients."""

    @classmethod
    def of_environment(cls, problem: str) -> "NotFiniteError":
        """Return the error about an observation or reward, with a remedy."""
        return cls(f"{problem}; correct the environment, or end its episode before that")

    @classmethod
    def of_learning(cls, problem: str) -> "NotFiniteError":
        """Return the error about a loss or gradient, with a remedy."""
        return cls(f"{problem}; a smaller lr, a grad_clip or clip_rewards may keep it finite")


def describe_mistake(value: object, allowed: str, hint: str, problem: str) -> str:
    """Return the description of a mistake in a setting, which follows the setting's name.

    It is `problem`, by default that `value` is not allowed; then the `allowed` values and the
    `hint`, unless they are empty.
    """
    seen = problem or f"{shorten(value)} is not allowed"
    expected = f"expected {allowed}" if allowed else ""
    return "; ".join(filter(None, (seen, expected, hint.removeprefix("; "))))


def nearest(word: object, known_words: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known word most similar to `word`.

    A known word that is a prefix of `word` counts as similar (``min`` for ``minimize``). Returns an
    empty string if no known word is similar.
    """
    known_words = list(known_words)
    close = difflib.get_close_matches(str(word), known_words, n=1, cutoff=0.6)
    close = close or [name for name in known_words if len(name) > 2 and str(word).startswith(name)]
    return f"; did you mean '{close[0]}'?" if close else ""


def type_of(value: object) -> str:
    """Return the name of a value's type with its article: ``a list`` or ``an int``."""
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeioAEIO" else f"a {name}"


def printable(text: str) -> str:
    """Return `text` with control characters and marks of text direction escaped, safe to print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_yaml(value: object) -> str:
    """Return a setting's value on one line, cut, as a user writes it: ``null``, ``true``, ``[]``.

    A text has no quotes unless it is empty.
    """
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, tuple):
        return shorten(list(value))
    return cut(printable(value), 80) if value and isinstance(value, str) else shorten(value)


def shorten(value: object, limit: int = 80) -> str:
    """Return the repr of `value` on one line, escaped and cut at `limit` characters."""
    return cut(printable(repr(value)), limit)


def cut(text: str, limit: int) -> str:
    """Return `text`; if it is longer than `limit` characters, its beginning with ``…`` at the end.

    The result has at most `limit` characters.
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
