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

from trainables.errors import cut, describe_mistake, nearest, printable, shorten

T = TypeVar("T")

#: Maximum length of a message, in characters.
LONGEST = 4000
#: Matches up to the last ``@``, so that a password with an unquoted ``/`` is hidden, too.
_USERINFO = re.compile(r"(?<=://)[^\s'\"]*@")
#: Matches the value of a secret in a URL's query.
_IN_QUERY = re.compile(
    r"(?i)(?<=[?&;])([\w.-]*(?:token|passw|pwd|secret|key|sig|auth|credential)[\w.-]*=)[^&;#\s'\"]+"
)


def without_password(text: str) -> str:
    """Return `text` with the users, passwords and secrets of URLs in it replaced by ``***``.

    Secrets are values in a query whose names contain ``token``, ``passw``, ``key`` or a like word.
    Whatever lies between ``://`` and the last ``@`` of a word counts as user and password.
    """
    return _USERINFO.sub("***@", _IN_QUERY.sub(r"\1***", text))  # a secret may hold an @ too


def place_of(url: str) -> str:
    """Return a URL without its query, and with ``***`` for user and password, for messages.

    If the query contains an ``@``, which may end a password, only ``SCHEME://***`` is returned.
    """
    scheme, mark, rest = url.partition("://")
    before, _, query = rest.partition("?")
    if "@" in query:  # it may be the end of a password that contains a `?`
        return f"{scheme}://***"
    return without_password(f"{scheme}{mark}{before}").partition("?")[0]


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without passwords.

    Returns the name of the error's type if the message is empty.
    """
    return (without_password(str(error)).splitlines() or [type(error).__name__])[0]


def shorten_message(text: str) -> str:
    """Return `text`; if it is longer than `LONGEST` characters, its two ends and ``…`` between."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … {text[-half:]}"


class SweepError(Exception):
    """Base of all errors that this package raises.

    In its message, characters that cannot be printed are escaped. One of more than `LONGEST`
    characters is cut in the middle.
    """

    exit_code: ClassVar[int] = 5
    """Exit code of a command that this error ends."""

    def __init__(self, message: str) -> None:
        super().__init__(shorten_message(printable(message)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its fields, whatever arguments its constructor takes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


# ---- the user's mistakes --------------------------------------------------------------------


class UsageError(SweepError):
    """Mistake of the user; a command shows its message without a traceback."""

    exit_code = 2


class NameTaken(UsageError):
    """A sweep of this name exists already."""


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
    """Return ``; did you mean 'x'?`` for the known name closest to `name`; empty if none is close.

    `kind` is the kind of plugin, for which names of other tools are known too.
    """
    word = _ADDED.sub("", re.sub("[^a-z0-9]", "", str(name).lower()))
    ours = _ELSEWHERE.get(kind, {}).get(word, word)
    return f"; did you mean '{ours}'?" if ours in known_names else nearest(name, known_names)


class UnknownName(UsageError):
    """A name that does not exist, of a plugin, sweep or file; the message lists the known names.

    Args:
        kind: kind of the missing object, for example ``searcher``.
    """

    def __init__(self, kind: str, name: object, known_names: Iterable[str], hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(known_names)
        self.hint = hint
        self.suggestion = _suggestion(kind, name, self.known)
        """Text ``; did you mean 'x'?`` with the most similar known name; empty if none is close."""
        noun, _, owner = kind.partition(" in ")
        self.problem = f"unknown {kind} {shorten(name)}"
        """Description of the mistake; of a name in a module, that the module lacks it."""
        if owner:
            self.problem = f"{owner} has no {noun} {shorten(name)}"
        expected = f"expected one of {', '.join(self.known)}"
        parts = [self.problem, expected if self.known else f"no {noun} is known", hint]
        super().__init__("; ".join(filter(None, parts)) + self.suggestion)


class NotLoaded(UsageError):
    """A plugin whose module cannot be imported; `problem` says why, without the `noun` before."""

    def __init__(self, noun: str, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{noun}: {problem}")


class Place(NamedTuple):
    """Place in which a setting was written: a file or the option of a command, and a line."""

    file: str = ""
    """File as the user named it, or the option; empty if the setting comes from Python."""
    line: int | None = None
    """Number of the line in the file, from 1; None if there is none."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class BadConfig(UsageError):
    """A setting whose value is not allowed.

    Args:
        key: path of the setting in the spec, for example ``checkpoint.every``, or an option.
        allowed: description of the accepted values; empty if `problem` and `hint` say it all.
        hint: advice on what to do next; empty if `allowed` is enough.
        problem: description of the mistake; by default that the value is not allowed.
    """

    def __init__(
        self,
        key: str,
        value: object,
        allowed: str = "",
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
        text = f"{key}: {describe_mistake(value, allowed, hint, problem)}"
        if place is not None and place.file:
            text = f"{place}: {text}"
        super().__init__(text)


class BadSpace(BadConfig):
    """A part of the search space that is not allowed."""


class Mistakes(BadConfig):
    """Several mistakes in one spec, one line each; it has the fields of the first BadConfig."""

    def __init__(self, mistakes: Sequence[UsageError]) -> None:
        self.mistakes = tuple(mistakes)
        first = next((m for m in mistakes if isinstance(m, BadConfig)), None)
        if first is not None:
            self.__dict__.update(first.__dict__)
        Exception.__init__(self, "\n".join(map(str, mistakes)))  # each is printable already


class Gathering:
    """Collection of the mistakes in one spec, so that the user sees all of them at once."""

    def __init__(self, source: "Source | None" = None, refused: Iterable[str] = ()) -> None:
        self.source = source
        """Text of the spec, which gives an error without a line the line of its top-level key, to
        sort it; None to sort such errors last."""
        self._found: dict[str, tuple[float, UsageError]] = {}
        self._refused = set(refused)

    @property
    def refused(self) -> frozenset[str]:
        """Top-level keys of the spec that contain a mistake, those given at the creation included.

        This is a copy: later mistakes are not in it.
        """
        return frozenset(self._refused)

    def add(self, error: UsageError, key: str = "") -> None:
        """Add a mistake, or each one of `Mistakes`; `key` is the top-level key that contains it.

        That key, and the one that a BadConfig names, join `refused`. Of two mistakes with the same
        text or about the same value, such as a list and its item, only the first is kept.
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
            line = error.line or line
        self._found.setdefault(str(error), (math.inf if line is None else line, error))

    def collect(self, key: str = "") -> "_Collector":
        """Return a context manager that adds a UsageError raised in its body instead of raising it.

        `key` is the top-level key that the body reads.
        """
        return _Collector(self, key)

    def run(self, function: Callable[[], T], *reads: str) -> T | None:
        """Return the result of `function`, unless a top-level key in `reads` has a mistake.

        Returns None if the function was not called or raised a UsageError. That error is added, and
        the first of `reads` joins `refused`.
        """
        if not self._refused.intersection(reads):
            with self.collect(reads[0] if reads else ""):
                return function()
        return None

    def check(self) -> None:
        """Raise the collected mistakes in the order of their lines, those without a line last.

        One is raised as it is, several as `Mistakes`. Does nothing without a mistake.
        """
        ordered = [error for _, error in sorted(self._found.values(), key=lambda pair: pair[0])]
        if len(ordered) == 1:
            raise ordered[0]
        if ordered:
            raise Mistakes(ordered)

    def _keys(self) -> Iterator[str]:
        """Yield the keys of all mistakes found so far that name one."""
        return (e.key for _, e in self._found.values() if isinstance(e, BadConfig))


@dataclass(frozen=True)
class _Collector:
    """Context manager that adds a UsageError raised in its body to `gathering`, and hides it."""

    gathering: Gathering
    """Collection to which the error is added."""
    key: str
    """Top-level key that the body reads; empty if the error names one itself."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, UsageError):
            return False
        self.gathering.add(error, self.key)
        return True


def _overlap(key: str, other: str) -> bool:
    """Return whether two settings, named by their keys, are equal or one contains the other."""
    short, long = sorted((key, other), key=len)
    return long.startswith(short) and long[len(short) :][:1] in ("", ".", "[")


# ---- one trial's failures -------------------------------------------------------------------


class TrialError(SweepError):
    """Failure of one trial; it is recorded, and the sweep continues."""


class WorkerLost(TrialError):
    """The process that ran a slice of a trial died.

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
    """A trial exceeded a limit that ends it for good, such as its time."""


# ---- history and storage --------------------------------------------------------------------


class LedgerError(SweepError):
    """Error of the ledger; the driver stops, and nothing is lost."""


class DamagedLedger(LedgerError):
    """The ledger contains a row that no driver wrote; the message names its file and place."""

    exit_code = 4

    def __init__(self, path: object, problem: str) -> None:
        self.problem = problem
        super().__init__(
            f"{path} is damaged or is not a ledger: {problem}; `sweep verify` lists all damage"
        )


class IllegalMove(LedgerError):
    """A change of a trial's status that is not allowed; nothing was written."""

    def __init__(self, trial: int, before: str, after: str) -> None:
        self.trial = trial
        self.before = before
        self.after = after
        super().__init__(f"trial {trial}: the status cannot change from {before} to {after}")


class SweepLocked(LedgerError):
    """Another process holds the sweep; `holder` describes it, for example by host and pid."""

    exit_code = 3

    def __init__(self, sweep: str, holder: str, hint: str = "stop that process first") -> None:
        self.sweep = sweep
        self.holder = holder
        super().__init__(f"{sweep} is in use: {holder} holds it; {hint}")


class StorageError(SweepError):
    """A disk, database or server failed; the message has the reason and a remedy."""

    exit_code = 4


#: Advice for errors about too many open files.
_OF_FILES = "raise the limit on open files with `ulimit -n 1024`, or give fewer --jobs"
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
    errno.ENOENT: "create the folder that should contain it",
    errno.ENOTDIR: "use another place: a part of this path is a file",
    errno.EISDIR: "use another place: this one is a folder",
}


def remedy(error: OSError) -> str:
    """Return a remedy for an error of the operating system.

    Returns an empty text if its message has the remedy, or none is known.
    """
    found = _REMEDIES.get(error.errno or 0, "")
    return "" if found in str(error) else found


def with_remedy(error: OSError) -> str:
    """Return the reason of a system's error while a file was written, with a remedy.

    If none is known, it is the advice to repair that and run again.
    """
    reason, code = error.strerror or str(error), error.errno or 0
    found = remedy(error) or _REMEDIES_OF_WRITING.get(code, "remove the cause, then try again")
    return f"{reason}; {found}"


# -------------------------------------------------------------------------------------------------
# The place of each setting in the text, so that messages can name its key and line.
#
# A path is a tuple of mapping keys and list indices, from the top of the spec. A key of the
# search space is one element even if it has dots: ``("space", "model.hidden", "choice", 1)``.
# Lines count from 1.

#: Keys and indices that lead to a setting, from the top of the spec.
KeyPath = tuple[str | int, ...]
#: Maximum number of characters of one part of a key in a message.
LONGEST_PART = 200
#: Beginnings of the paths of settings about which errors are a BadSpace.
_OF_THE_SPACE = (("space",), ("forbid",), ("initial",))


@dataclass(frozen=True)
class Source:
    """Text from which a spec was read, to name the file and line of each setting in messages.

    All sources compare equal.
    """

    file: str = field(default="", compare=False)
    """Name of the file as the user wrote it; empty if the settings come from elsewhere."""
    marks: Mapping[KeyPath, Place] = field(default_factory=dict, compare=False, repr=False)
    """Path of a key or list item, from the top of the spec → place at which it was written."""
    prefix: KeyPath = field(default=(), compare=False)
    """Path in the spec of the part that this object is about; paths that methods take are relative
    to it."""
    remarks: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Sentences for the user about how the text was read."""

    def sub_source(self, *parts: str | int) -> "Source":
        """Return the source of the part at the keys and indices `parts`, without remarks.

        Paths are then relative to that part.
        """
        return Source(self.file, self.marks, (*self.prefix, *parts))

    def locate(self, path: KeyPath) -> Place:
        """Return the place of the setting at `path`.

        If that was not written, it is the place of the innermost setting around it that was; if
        there is none, the file without a line.
        """
        full = (*self.prefix, *path)
        for end in range(len(full), -1, -1):
            if full[:end] in self.marks:
                return self.marks[full[:end]]
        return Place(self.file)

    def key(self, path: KeyPath) -> str:
        """Return the path of a setting as a text, for example ``space.lr.loguniform[0]``.

        Parts of more than `LONGEST_PART` characters are cut. The empty path is ``the spec``.
        """
        text = ""
        for part in (*self.prefix, *path):
            if isinstance(part, int):
                text += f"[{part}]"
            else:
                text += f"{'.' if text else ''}{cut(part, LONGEST_PART)}"
        return text or "the spec"

    def refuse(
        self, path: KeyPath, value: object, allowed: str = "", hint: str = "", problem: str = ""
    ) -> BadConfig:
        """Return the error for a mistake in the setting at `path`, without raising it.

        It is BadSpace for a setting in ``space``, ``forbid`` or ``initial``. The arguments are
        those of BadConfig: `allowed` describes accepted values, `problem` the mistake; empty says
        that `value` is not allowed. `hint` gives advice.
        """
        kind = BadSpace if (*self.prefix, *path)[:1] in _OF_THE_SPACE else BadConfig
        return kind(self.key(path), value, allowed, hint, place=self.locate(path), problem=problem)
