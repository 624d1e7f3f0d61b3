"""Errors of sweeps, grouped by who can act on them; each has fields and a message of one line.

Several mistakes in one spec are one error, `Mistakes`, whose message has a line for each.

    SweepError                  any error of this package                            exit code 5
    ├── UsageError              a mistake of the user; nothing was written           exit code 2
    │   ├── NameTaken               a sweep of this name exists
    │   ├── UnknownMetric           no result has the metric; what was trained is kept
    │   ├── UnknownName             an unknown searcher, sweep or file, with the known names
    │   └── BadConfig               an invalid setting: key, value, allowed, hint, line
    │       ├── BadSpace                an invalid setting in the search space
    │       └── Mistakes                several mistakes, with a line for each
    ├── TrialError              a failure of one trial; recorded, the sweep continues
    │   ├── WorkerLost              its process died; retried from the newest checkpoint
    │   └── LimitPassed             it exceeded a final limit, such as its time
    ├── LedgerError             an error of the history; the driver stops, nothing is lost
    │   ├── DamagedLedger           the ledger contains rows that no driver wrote    exit code 4
    │   ├── IllegalMove             a change of status that is not allowed
    │   └── SweepLocked             another driver holds the sweep                   exit code 3
    └── StorageError            a disk or database failed; run again later           exit code 4

Errors of checkpoints are `trainables.errors.CheckpointError`, since checkpoints can be used without
a sweep. Times are in seconds, memory in bytes.
"""

import copyreg
import errno
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from trainables.errors import nearest, printable, shorten

T = TypeVar("T")

#: Maximum length of a message, in characters.
LONGEST = 4000
#: Matches up to the last ``@``, so that a password with an unquoted ``/`` is hidden, too.
_USERINFO = re.compile(r"(?<=://)[^\s'\"]*@")
_IN_QUERY = re.compile(
    r"(?i)(?<=[?&;])([\w.-]*(?:token|passw|pwd|secret|key|sig|auth|credential)[\w.-]*=)[^&;#\s'\"]+"
)


def without_password(text: str) -> str:
    """Return `text` with users, passwords and secrets of URLs replaced by ``***``."""
    return _USERINFO.sub("***@", _IN_QUERY.sub(r"\1***", text))  # a secret may hold an @ too


def place_of(url: str) -> str:
    """Return a URL without user, password and query, for messages."""
    scheme, mark, rest = url.partition("://")
    before, _, query = rest.partition("?")
    if "@" in query:  # it may be the end of a password that contains a `?`
        return f"{scheme}://***"
    return without_password(f"{scheme}{mark}{before}").partition("?")[0]


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message without passwords, or the name of its type."""
    return (without_password(str(error)).splitlines() or [type(error).__name__])[0]


def shorten_message(text: str) -> str:
    """Return `text`, or its beginning and end if it is longer than `LONGEST` characters."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … {text[-half:]}"


class SweepError(Exception):
    """Base of all errors that this package raises; escapes unprintable characters in messages."""

    exit_code: ClassVar[int] = 5
    """Exit code of the command line that this error ends."""

    def __init__(self, message: str) -> None:
        super().__init__(shorten_message(printable(message)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its fields, whatever arguments its constructor takes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


# ---- the user's mistakes --------------------------------------------------------------------


class UsageError(SweepError):
    """A mistake of the user; shown as one line without a traceback, and nothing was written."""

    exit_code = 2


class NameTaken(UsageError):
    """A sweep of this name exists."""


class UnknownMetric(UsageError):
    """No result has the metric by which trials are compared; what was trained is kept."""


#: Kind of plugin → lower-case name in other tools → name here.
_ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "searcher": {
        **dict.fromkeys(("bayes", "bayesian", "bayesianoptimization", "bo", "hyperopt"), "tpe"),
        **dict.fromkeys(("optuna", "smac", "parzen"), "tpe"),
        **dict.fromkeys(("bayesopt", "gaussianprocess", "botorch", "ax"), "gp"),
        **dict.fromkeys(("sobol", "halton", "quasimontecarlo"), "qmc"),
        "cma": "cmaes",
        **dict.fromkeys(("nsgaii", "genetic", "evolution", "evolutionary"), "nsga2"),
        "nsgaiii": "nsga3",
    },
    "scheduler": {
        **dict.fromkeys(("asynchyperband", "successivehalving", "halving", "sha"), "asha"),
        **dict.fromkeys(("medianstopping", "medianstoppingrule"), "median"),
        **dict.fromkeys(("none", "nop", "no"), "fifo"),
        **dict.fromkeys(("populationbased", "populationbasedtraining"), "pbt"),
    },
    "tracker": {"weightsandbiases": "wandb", "tb": "tensorboard", "tensorboardx": "tensorboard"},
}
#: Suffixes that other tools add to such names.
_ADDED = re.compile("(sampler|pruner|scheduler|searcher|search|callback|logger)$")


def _suggestion(kind: str, name: object, known_names: Sequence[str]) -> str:
    """Return the suggestion ``; did you mean 'x'?`` for the known name closest to `name`.

    Empty if no name is close.
    """
    word = _ADDED.sub("", re.sub("[^a-z0-9]", "", str(name).lower()))
    ours = _ELSEWHERE.get(kind, {}).get(word, word)
    return f"; did you mean '{ours}'?" if ours in known_names else nearest(name, known_names)


class UnknownName(UsageError):
    """An unknown name.

    Args:
        kind: kind of the missing object, for example ``searcher``.
    """

    def __init__(self, kind: str, name: object, known_names: Iterable[str], hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(known_names)
        self.hint = hint
        self.suggestion = _suggestion(kind, name, self.known)
        """``; did you mean 'x'?`` for the most similar known name, or empty."""
        names = ", ".join(self.known) or "none"
        text = f"unknown {kind} {shorten(name)}; known: {names}{self.suggestion}"
        super().__init__(f"{text}; {hint}" if hint else text)


class Place(NamedTuple):
    """The place of a setting: a file or the option of a command, and the line in it."""

    file: str = ""
    """File as the user wrote it, or the option; empty if the setting comes from Python."""
    line: int | None = None
    """Line in the file, from 1; None if there is none."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class BadConfig(UsageError):
    """An invalid setting.

    Args:
        key: path of the setting in the spec, for example ``checkpoint.every``, or an option.
        hint: advice on what to do next; empty if `allowed` is enough.
        problem: description of the mistake; by default that the value is not allowed.
    """

    def __init__(
        self,
        key: str,
        value: object,
        allowed: str,
        hint: str = "",
        *,
        place: Place | None = None,
        problem: str = "",
    ) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        self.hint = hint
        self.problem = problem
        self.file, self.line = place or Place()
        seen = problem or f"{shorten(value)} is not allowed"
        text = f"{key}: {seen}; expected {allowed}"
        if place is not None and place.file:
            text = f"{place}: {text}"
        super().__init__(f"{text}; {hint.removeprefix('; ')}" if hint else text)


class BadSpace(BadConfig):
    """An invalid search space."""


class Mistakes(BadConfig):
    """Several mistakes in one text, in their order; has the fields of the first BadConfig."""

    def __init__(self, mistakes: Sequence[UsageError]) -> None:
        self.mistakes = tuple(mistakes)
        first = next((m for m in mistakes if isinstance(m, BadConfig)), None)
        if first is not None:
            self.__dict__.update(first.__dict__)
        Exception.__init__(self, "\n".join(map(str, mistakes)))  # each is printable already


class Gathering:
    """Collects the mistakes in one text, so that the user sees all of them at once."""

    def __init__(self, source: "Source | None" = None, refused: Iterable[str] = ()) -> None:
        self.source = source
        """Source in which the line of an error without one is looked up by its key."""
        self._found: dict[str, tuple[float, UsageError]] = {}
        self._refused = set(refused)

    @property
    def refused(self) -> frozenset[str]:
        """Top-level keys of the text that contain a mistake."""
        return frozenset(self._refused)

    def add(self, error: UsageError, key: str = "") -> None:
        """Add a mistake; `key` is the top-level key that contains it.

        Of two mistakes about the same value, such as a list and its item, only the first is kept.
        """
        if isinstance(error, Mistakes):
            for one in error.mistakes:
                self.add(one, key)
            return
        line = None
        if key:
            self._refused.add(key)
            line = None if self.source is None else self.source.locate((key,)).line
        if isinstance(error, BadConfig):
            self._refused.add(re.split(r"[.\[]", error.key, maxsplit=1)[0])
            if any(_overlap(error.key, other) for other in self._keys()):
                return
            line = error.line
        self._found.setdefault(str(error), (math.inf if line is None else line, error))

    def collect(self, key: str = "") -> "_Collector":
        """Return a context manager that adds a UsageError raised in its body, and suppresses it."""
        return _Collector(self, key)

    def run(self, function: Callable[[], T], *reads: str) -> T | None:
        """Call `function` unless a key in `reads` has a mistake; None if skipped or failed."""
        if not self._refused.intersection(reads):
            with self.collect(reads[0] if reads else ""):
                return function()
        return None

    def check(self) -> None:
        """Raise the mistakes in the order of their lines, those without a line last."""
        ordered = [error for _, error in sorted(self._found.values(), key=lambda pair: pair[0])]
        if len(ordered) == 1:
            raise ordered[0]
        if ordered:
            raise Mistakes(ordered)

    def _keys(self) -> Iterator[str]:
        """Return the keys of all mistakes found so far that name one."""
        return (e.key for _, e in self._found.values() if isinstance(e, BadConfig))


@dataclass(frozen=True)
class _Collector:
    """Adds a UsageError raised in its body to `gathering`, and suppresses it."""

    gathering: Gathering
    """Collection to which the error is added."""
    key: str
    """Key of the spec that the body checks; empty if the error names one itself."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, UsageError):
            return False
        self.gathering.add(error, self.key)
        return True


def _overlap(key: str, other: str) -> bool:
    """Return whether two settings are equal or one contains the other."""
    short, long = sorted((key, other), key=len)
    return long.startswith(short) and long[len(short) :][:1] in ("", ".", "[")


# ---- one trial's failures -------------------------------------------------------------------


class TrialError(SweepError):
    """A failure of one trial; it is recorded, and the sweep continues."""


class WorkerLost(TrialError):
    """The trial's process died.

    Args:
        worker_exit: exit code, negative if a signal ended the process; None if unknown.
        reason: cause in words; empty to name pid and exit code.
    """

    def __init__(self, worker_exit: int | None, pid: int | None, reason: str = "") -> None:
        self.worker_exit = worker_exit
        self.pid = pid
        died = f"the worker process {pid} died with exit code {worker_exit}"
        ended = "" if pid is None else f"; the worker process {pid} was ended"
        super().__init__(f"{reason}{ended}" if reason else died)


class LimitPassed(TrialError):
    """The trial exceeded a final limit, such as its time."""


# ---- history and storage --------------------------------------------------------------------


class LedgerError(SweepError):
    """An error of the history; the driver stops, and nothing is lost."""


class DamagedLedger(LedgerError):
    """The ledger contains a row that no driver wrote; the message names its file and place."""

    exit_code = 4

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(
            f"{path} is damaged or is not a ledger: {problem}; `sweep verify` lists all damage"
        )


class IllegalMove(LedgerError):
    """A change of a trial's status that is not allowed."""

    def __init__(self, trial: int, before: str, after: str) -> None:
        self.trial = trial
        self.before = before
        self.after = after
        super().__init__(f"trial {trial}: the status cannot change from {before} to {after}")


class SweepLocked(LedgerError):
    """Another driver holds the sweep; `holder` describes it, for example by host and pid."""

    exit_code = 3

    def __init__(self, sweep: str, holder: str, hint: str = "stop that one first") -> None:
        self.sweep = sweep
        self.holder = holder
        super().__init__(f"{sweep} is active elsewhere: {holder} holds it; {hint}")


class StorageError(SweepError):
    """A disk, database or server failed; the message names the reason and a remedy."""

    exit_code = 4


_OF_FILES = "allow more with `ulimit -n 1024`, or give fewer --jobs"
#: Number of a system's error → the remedy.
_REMEDIES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space of your quota",
    errno.EROFS: "use a disk that can be written to",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EMFILE: _OF_FILES,
    errno.ENFILE: _OF_FILES,
}
#: The same for a file that was to be written.
_REMEDIES_OF_WRITING = {
    errno.EACCES: "get permission to write there, or use another place",
    errno.EPERM: "get permission to write there, or use another place",
    errno.ENOENT: "make the folder that is to contain it",
    errno.ENOTDIR: "use another place: a part of this path is a file",
    errno.EISDIR: "use another place: this one is a folder",
}


def remedy(error: OSError) -> str:
    """Return the remedy of a system's error; empty if it has one in its text or none is known."""
    found = _REMEDIES.get(error.errno or 0, "")
    return "" if found in str(error) else found


def with_remedy(error: OSError) -> str:
    """Return the reason of a system's error while something was written, with its remedy."""
    reason, code = error.strerror or str(error), error.errno or 0
    found = remedy(error) or _REMEDIES_OF_WRITING.get(code, "run this again when that is repaired")
    return f"{reason}; {found}"


# -------------------------------------------------------------------------------------------------
# The place of each setting in the text, so that messages can name its key and line.
#
# A path is a tuple of mapping keys and list indices, from the top of the spec. A key of the
# search space is one element even if it has dots: ``("space", "model.hidden", "choice", 1)``.
# Lines count from 1.

KeyPath = tuple[str | int, ...]
#: Maximum number of characters of one part of a key in a message.
LONGEST_PART = 200
_OF_THE_SPACE = (("space",), ("forbid",), ("initial",))


@dataclass(frozen=True)
class Source:
    """The text from which settings were read; all sources compare equal."""

    file: str = field(default="", compare=False)
    """File name as the user wrote it; empty if not read from a file."""
    marks: Mapping[KeyPath, Place] = field(default_factory=dict, compare=False, repr=False)
    """Path → place of its key or list item."""
    prefix: KeyPath = field(default=(), compare=False)
    """Path in the spec to which all other paths are relative."""
    remarks: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Remarks for the user about the reading, in sentences."""

    def sub_source(self, *parts: str | int) -> "Source":
        """Return this source with paths relative to one part of it."""
        return Source(self.file, self.marks, (*self.prefix, *parts))

    def locate(self, path: KeyPath) -> Place:
        """Return the place of `path`, or of the innermost setting around it that was written."""
        full = (*self.prefix, *path)
        for end in range(len(full), -1, -1):
            if full[:end] in self.marks:
                return self.marks[full[:end]]
        return Place(self.file)

    def key(self, path: KeyPath) -> str:
        """Return `path` as a text, for example ``space.lr.loguniform[0]``."""
        text = ""
        for part in (*self.prefix, *path):
            if isinstance(part, str) and len(part) > LONGEST_PART:
                part = f"{part[: LONGEST_PART - 1]}…"  # noqa: PLW2901 the same part, shorter
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text or "the spec"

    def refuse(
        self, path: KeyPath, value: object, allowed: str, hint: str = "", problem: str = ""
    ) -> BadConfig:
        """Return the error for a mistake at `path`; does not raise it.

        `allowed` describes accepted values, `problem` the mistake if it is another. `hint` gives
        advice.
        """
        kind = BadSpace if (*self.prefix, *path)[:1] in _OF_THE_SPACE else BadConfig
        return kind(self.key(path), value, allowed, hint, place=self.locate(path), problem=problem)
