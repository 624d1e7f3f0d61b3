"""Errors of sweeps, by who can act on them; each carries its fields, and a message of one line.

Several mistakes of one spec are one error, `Mistakes`, whose message has a line for each.

    SweepError                  our own error                                        exit code 5
    ├── UsageError              the user's mistake, nothing was written              exit code 2
    │   ├── NameTaken               there is a sweep of this name
    │   ├── UnknownMetric           no result has the metric: what was trained is kept
    │   ├── UnknownName             no such searcher, sweep, file: the names that are known
    │   └── BadConfig               a setting that cannot work: key, value, allowed, hint, line
    │       ├── BadSpace                the same, inside the search space
    │       └── Mistakes                several at once, each with a line of its own
    ├── TrialError              one trial's failure: recorded, the sweep goes on
    │   ├── WorkerLost              its process died; tried again from the last checkpoint
    │   └── LimitPassed             its time is over, for good
    ├── LedgerError             the history refuses: this driver stops, nothing is lost
    │   ├── DamagedLedger           what stands in it no driver wrote                exit code 4
    │   ├── IllegalMove             a status that may not follow the other
    │   └── SweepLocked                 another driver holds the sweep                   exit code 3
    └── StorageError            disk full, database away: run again when it is back  exit code 4

A checkpoint that cannot be used is `trainables.errors.CheckpointError`: checkpoints are written and
read without a sweep. Times are seconds, memory is bytes.
"""

import copyreg
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from trainables.errors import nearest, printable, shorten

T = TypeVar("T")

#: Characters of a message.
LONGEST = 4000
#: Up to the last ``@``: whoever forgot to quote the ``/`` of a password has it shown to nobody.
_USERINFO = re.compile(r"(?<=://)[^\s'\"]*@")
_IN_QUERY = re.compile(
    r"(?i)(?<=[?&;])([\w.-]*(?:token|passw|pwd|secret|key|sig|auth|credential)[\w.-]*=)[^&;#\s'\"]+"
)


def without_password(text: str) -> str:
    """`text` without the user, the password and the secrets in the queries of its URLs."""
    return _USERINFO.sub("***@", _IN_QUERY.sub(r"\1***", text))  # a secret may hold an @ too


def place_of(url: str) -> str:
    """A URL without user, password and query, for messages."""
    scheme, mark, rest = url.partition("://")
    before, _, query = rest.partition("?")
    if "@" in query:  # of the query, or what ends a password with a `?` in it
        return f"{scheme}://***"
    return without_password(f"{scheme}{mark}{before}").partition("?")[0]


def brief(text: str) -> str:
    """`text`, or its beginning and its end where it is so long that nobody reads the rest."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … {text[-half:]}"


class SweepError(Exception):
    """Base of everything that this package raises on purpose; the message is made printable."""

    exit_code: ClassVar[int] = 5

    def __init__(self, message: str) -> None:
        super().__init__(brief(printable(message)))

    def __reduce__(self) -> tuple[Any, ...]:
        """An error crosses to another process with its fields, whatever its constructor takes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


# ---- the user's mistakes --------------------------------------------------------------------


class UsageError(SweepError):
    """The user's mistake: one line, no traceback, nothing written."""

    exit_code = 2


class NameTaken(UsageError):
    """There is a sweep of this name."""


class UnknownMetric(UsageError):
    """No result has what trials are compared by; what was trained is kept."""


#: Kind of plugin → what other tools call one of ours, in small letters alone.
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
#: What those tools add to such a name.
_ADDED = re.compile("(sampler|pruner|scheduler|searcher|search|callback|logger)$")


def _meant(kind: str, name: object, known: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name closest to `name`, or empty."""
    word = _ADDED.sub("", re.sub("[^a-z0-9]", "", str(name).lower()))
    ours = _ELSEWHERE.get(kind, {}).get(word, word)
    return f"; did you mean '{ours}'?" if ours in known else nearest(name, known)


class UnknownName(UsageError):
    """A name that stands for nothing.

    Args:
        kind: what was looked for, for example ``searcher``.
        name: the name given.
        known: the names that exist.
        hint: what to do next.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str], hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(known)
        self.hint = hint
        self.meant = _meant(kind, name, self.known)
        """``; did you mean 'x'?`` for the known name that is most like it, or empty."""
        names = ", ".join(self.known) or "none"
        text = f"unknown {kind} {shorten(name)}; known: {names}{self.meant}"
        super().__init__(f"{text}; {hint}" if hint else text)


class At(NamedTuple):
    """The place of a text: a file, or the option of a command, and the line in it."""

    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class BadConfig(UsageError):
    """A setting that cannot work.

    Args:
        key: path of the setting in the spec, for example ``checkpoint.every``, or an option.
        value: the value seen.
        allowed: what would be accepted, in words.
        hint: what to do next; empty when `allowed` says it all.
        at: file and line, where they are known.
        problem: what is wrong, in words; empty: that the value is not allowed.
    """

    def __init__(
        self,
        key: str,
        value: object,
        allowed: str,
        hint: str = "",
        *,
        at: At | None = None,
        problem: str = "",
    ) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        self.hint = hint
        self.problem = problem
        self.file, self.line = at or At()
        seen = problem or f"{shorten(value)} is not allowed"
        text = f"{key}: {seen}; expected {allowed}"
        if at is not None and at.file:
            text = f"{at}: {text}"
        super().__init__(f"{text}; {hint.removeprefix('; ')}" if hint else text)


class BadSpace(BadConfig):
    """A search space that cannot work."""


class Mistakes(BadConfig):
    """Several mistakes of one text, in its order; the fields are those of the first setting."""

    def __init__(self, mistakes: Sequence[UsageError]) -> None:
        self.mistakes = tuple(mistakes)
        first = next((m for m in mistakes if isinstance(m, BadConfig)), None)
        if first is not None:
            self.__dict__.update(first.__dict__)
        Exception.__init__(self, "\n".join(map(str, mistakes)))  # each is printable already


class Gathering:
    """Gathers the mistakes of one text, so that a person reads all of them at once."""

    def __init__(self, source: "Source | None" = None, refused: Iterable[str] = ()) -> None:
        self.source = source
        """The text, in which an error without a line of its own is looked up by its key."""
        self._found: dict[str, tuple[float, UsageError]] = {}
        self._refused = set(refused)

    @property
    def refused(self) -> frozenset[str]:
        """The keys of the text, at its top, in which there is a mistake."""
        return frozenset(self._refused)

    def add(self, error: UsageError, key: str = "") -> None:
        """Take in a mistake; `key` is the one at the top that is wrong.

        Of two that say something of one value, as of a list and of its item, the first counts.
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

    def one(self, key: str = "") -> "_Taking":
        """Take in the mistake that ends the body of ``with``, if there is one."""
        return _Taking(self, key)

    def run(self, function: Callable[[], T], *reads: str) -> T | None:
        """Call `function`, unless one of the keys that it reads is refused; None if it failed."""
        if not self._refused.intersection(reads):
            with self.one(reads[0] if reads else ""):
                return function()
        return None

    def check(self) -> None:
        """Raise what was found, in the order of the text; what has no line comes last."""
        ordered = [error for _, error in sorted(self._found.values(), key=lambda pair: pair[0])]
        if len(ordered) == 1:
            raise ordered[0]
        if ordered:
            raise Mistakes(ordered)

    def _keys(self) -> Iterator[str]:
        """Return the keys of all mistakes found so far that name one."""
        return (e.key for _, e in self._found.values() if isinstance(e, BadConfig))


@dataclass(frozen=True)
class _Taking:
    gathering: Gathering
    key: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, UsageError):
            return False
        self.gathering.add(error, self.key)
        return True


def _overlap(key: str, other: str) -> bool:
    """Return true if one of two settings is the other, or lies in it."""
    short, long = sorted((key, other), key=len)
    return long.startswith(short) and long[len(short) :][:1] in ("", ".", "[")


# ---- one trial's failures -------------------------------------------------------------------


class TrialError(SweepError):
    """One trial's failure: it is recorded, and the sweep goes on."""


class WorkerLost(TrialError):
    """The trial's process died; a negative `worker_exit` is minus the signal that killed it."""

    def __init__(self, worker_exit: int | None, pid: int | None, why: str = "") -> None:
        self.worker_exit = worker_exit
        self.pid = pid
        died = f"the worker process {pid} died with exit code {worker_exit}"
        ended = "" if pid is None else f"; the worker process {pid} was ended"
        super().__init__(f"{why}{ended}" if why else died)


class LimitPassed(TrialError):
    """A limit that is final, such as the trial's time."""


# ---- the history and the outside ------------------------------------------------------------


class LedgerError(SweepError):
    """The history refuses; this driver stops and loses nothing."""


class DamagedLedger(LedgerError):
    """The ledger holds a row that no driver wrote; the message names its file and place."""

    exit_code = 4

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(
            f"{path} is damaged or is not a ledger: {problem}; `sweep verify` lists all damage"
        )


class IllegalMove(LedgerError):
    """A status that may not follow the other."""

    def __init__(self, trial: int, before: str, after: str) -> None:
        self.trial = trial
        self.before = before
        self.after = after
        super().__init__(f"trial {trial}: {before} may not become {after}")


class SweepLocked(LedgerError):
    """The sweep is held by another driver; `holder` says by whom, for example host and pid."""

    exit_code = 3

    def __init__(self, sweep: str, holder: str, hint: str = "stop that one first") -> None:
        self.sweep = sweep
        self.holder = holder
        super().__init__(f"{sweep} is active elsewhere: {holder} holds it; {hint}")


class StorageError(SweepError):
    """The outside failed, for example a disk or a database: what was attempted, and why not."""

    exit_code = 4


# -------------------------------------------------------------------------------------------------
# Where each setting was written, so that a mistake is answered with its key and its line.
#
# A path is a tuple of mapping keys and list indices, from the top of the spec. A key of the
# search space is one element even where it has dots: ``("space", "model.hidden", "choice", 1)``.
# Lines count from 1.

KeyPath = tuple[str | int, ...]
#: Characters of one part of a key that a message shows.
LONGEST_PART = 200
_OF_THE_SPACE = (("space",), ("forbid",), ("initial",))


@dataclass(frozen=True)
class Source:
    """The text that settings were read from; two sources never differ, only what they say does."""

    file: str = field(default="", compare=False)
    """The file as the user named it; empty: not read from a file."""
    marks: Mapping[KeyPath, At] = field(default_factory=dict, compare=False, repr=False)
    """Path → where its key (or list item) stands."""
    above: KeyPath = field(default=(), compare=False)
    """The path that all others are relative to."""
    remarks: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Remarks on the reading for a person, in sentences."""

    def sub_source(self, *parts: str | int) -> "Source":
        """This source with paths relative to one part of it."""
        return Source(self.file, self.marks, (*self.above, *parts))

    def locate(self, path: KeyPath) -> At:
        """Return the place where `path` is written, or the nearest thing around it that is."""
        full = (*self.above, *path)
        for end in range(len(full), -1, -1):
            if full[:end] in self.marks:
                return self.marks[full[:end]]
        return At(self.file)

    def key(self, path: KeyPath) -> str:
        """`path` in words, for example ``space.lr.loguniform[0]``."""
        text = ""
        for part in (*self.above, *path):
            if isinstance(part, str) and len(part) > LONGEST_PART:
                part = f"{part[: LONGEST_PART - 1]}…"  # noqa: PLW2901 the same part, shorter
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text or "the spec"

    def refuse(
        self, path: KeyPath, value: object, allowed: str, hint: str = "", problem: str = ""
    ) -> BadConfig:
        """The error for a mistake at `path`."""
        kind = BadSpace if (*self.above, *path)[:1] in _OF_THE_SPACE else BadConfig
        return kind(self.key(path), value, allowed, hint, at=self.locate(path), problem=problem)
