"""The small sections of a spec. Times are in seconds."""

import itertools
import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from sweep.core.errors import Source
from sweep.spec.objective import Aggregate
from sweep.spec.space import Space
from sweep.spec.validation import refusing, validate
from trainables.core.settings import Settings

# -------------------------------------------------------------------------------------------------
# Sizes in bytes, in human-readable form: ``4GB``, ``1.5GiB``, ``4.2 GB``.

#: Unit of a size in capital letters → its bytes.
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**n for n, letter in enumerate("KMGT", start=1)}
_UNITS |= {f"{letter}IB": 1024**n for n, letter in enumerate("KMGT", start=1)}
#: Limit of SQL's 64-bit integers.
_LARGEST = 2**63
#: Pattern of a size: number and unit.
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def _read_size(raw: Any) -> Any:
    """Return the number of bytes, at least 1, of a size: a whole number or a text such as 4GB.

    KB is 1000 bytes, KiB 1024. None is returned unchanged. Raises ValueError for anything else.
    """
    if raw is None:
        return raw
    whole = isinstance(raw, int) and not isinstance(raw, bool)
    match = _SIZE.fullmatch(raw) if isinstance(raw, str) else None
    size = raw if whole else float(match[1]) * _UNITS.get(match[2].upper(), 0) if match else 0
    if not 0.5 < size < _LARGEST:
        raise ValueError("a size such as 4GB, 512MB or 1.5GiB")
    return round(size)


def size_text(size: float) -> str:
    """Return a number of bytes as a text of three digits: ``4.2 GB``, which is 4.2e9 bytes."""
    for unit in ("TB", "GB", "MB", "KB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.3g} {unit}"
    return f"{size:.0f} B"


#: JSON Schema of a size.
_SIZE_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": f"^{_SIZE.pattern}$"},
    ]
}
#: JSON Schema of a size or null.
_OPTIONAL_SIZE = WithJsonSchema({"anyOf": [*_SIZE_SCHEMA["anyOf"], {"type": "null"}]})
#: Type of settings that are sizes: a number of bytes, or None.
Size = Annotated[int | None, BeforeValidator(_read_size), _OPTIONAL_SIZE]
#: Minimum memory of any process in bytes: a smaller number lacks its unit.
_LEAST_MEMORY = 10**6


def _read_memory(raw: Any) -> Any:
    """Return the number of bytes of a size as `_read_size` does; ValueError below a megabyte."""
    size = _read_size(raw)
    if size is not None and size < _LEAST_MEMORY:
        meant = f"; {raw} is {size_text(size)}; did you mean {raw}GB?" if size == raw else ""
        raise ValueError(f"at least 1MB, such as 4GB or 512MB{meant}")
    return size


Memory = Annotated[int | None, BeforeValidator(_read_memory), _OPTIONAL_SIZE]


# -------------------------------------------------------------------------------------------------
# The number of trials: the key `trials`.

#: Maximum total number of trials of a sweep.
MOST_TRIALS = 1_000_000

# -------------------------------------------------------------------------------------------------
# The number of seeds of each setting: the key `seeds`.

#: Value of a setting that sweep chooses.
AUTO: Literal["auto"] = "auto"
#: Maximum number of seeds of one trial.
MOST = 1000
#: Rule for ``seeds``, for messages.
SEEDS_ALLOWED = f"1 to {MOST}, auto, or {{rung: seeds}} such as {{15000: 3, 45000: 6}}"

#: A number of seeds; or a plan: pairs of a rung and the number of seeds from there on.
Seeds = int | Literal["auto"] | tuple[tuple[float, int], ...]


def read_seeds(raw: Any) -> Seeds:
    """Return ``seeds`` as written in a spec or ledger: a number, ``auto``, or rung → number.

    The mapping becomes a tuple of pairs (rung, number), sorted by rung. Raises ValueError for other
    data, and for a number beyond 1 to `MOST`.
    """
    if raw == AUTO and isinstance(raw, str):
        return AUTO
    if type(raw) is int and 1 <= raw <= MOST:
        return raw
    if isinstance(raw, Mapping) and raw:
        return _read_plan(raw)
    raise ValueError(SEEDS_ALLOWED)


def _read_plan(raw: Mapping[Any, Any]) -> Seeds:
    """Return a plan of seeds, given as rung → number, as sorted pairs.

    Raises ValueError if it is not valid: each number must be above 1, and greater at higher rungs.
    """
    try:
        pairs = sorted((float(level), seeds) for level, seeds in raw.items())
    except (TypeError, ValueError):
        raise ValueError(SEEDS_ALLOWED) from None
    whole = all(type(n) is int and 1 < n <= MOST for _, n in pairs)
    if whole and all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs)):
        return tuple(pairs)
    raise ValueError(f"{SEEDS_ALLOWED}, with more seeds at each later rung, at most {MOST}")


def written_seeds(seeds: Seeds) -> int | str | dict[float, int]:
    """Return a number of seeds or ``auto`` unchanged, and a plan as a mapping, rung → number.

    Whole rungs are integers there.
    """
    if not isinstance(seeds, tuple):
        return seeds
    return {int(level) if level == int(level) else level: count for level, count in seeds}


def check_seeds(seeds: Seeds, aggregate: Aggregate, source: Source) -> None:
    """Raise BadConfig if the aggregate cannot compare trials with these numbers of seeds.

    ``lower_bound`` needs at least two; with a plan or ``auto``, only mean, iqm and median can.
    """
    if not isinstance(seeds, int) and not aggregate.is_independent_of_count:
        problem = f"{aggregate.kind} depends on the number of seeds, which differs between trials"
        allowed = "mean, iqm or median with a plan of seeds"
        raise source.refuse(("aggregate",), aggregate.to_spec(), allowed, problem=problem)
    if aggregate.kind == "lower_bound" and isinstance(seeds, int) and seeds < 2:
        problem = "a bound needs the spread of at least two seeds"
        raise source.refuse(("aggregate",), aggregate.to_spec(), "mean", "or set seeds: 3", problem)


SeedsField = Annotated[
    Seeds,
    BeforeValidator(read_seeds),
    PlainSerializer(written_seeds),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": AUTO},
                {"type": "integer", "minimum": 1, "maximum": MOST},
                {
                    "type": "object",
                    "patternProperties": {
                        r"^[0-9.eE+-]+$": {"type": "integer", "minimum": 2, "maximum": MOST}
                    },
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        }
    ),
]


class Plugin(Settings):
    """The name of a searcher or scheduler with its options, which its own model checks later."""

    name: str = Field(
        description="File of a plugin, package.module:Name, or an entry point.",
        min_length=1,
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the plugin, by name."
    )

    def to_spec(self) -> dict[str, Any]:
        """Return ``{"name": …, option: value, …}``, as a spec writes a plugin."""
        return {"name": self.name, **self.options}


def read_plugin(raw: Any) -> Any:
    """Return ``{"name": …, "options": {…}}`` for a plugin as written in a spec.

    That is a name, or a mapping with ``name``, whose other keys are the options. A Plugin is
    returned unchanged. Raises ValueError if `raw` is anything else.
    """
    if isinstance(raw, Plugin):
        return raw
    named = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        raise ValueError("a name, or {name: …, option: value}")  # noqa: TRY004 pydantic handles it
    return {"name": named["name"], "options": {k: v for k, v in named.items() if k != "name"}}


def _check_gpu(gpu: float) -> float:
    """Return the number of GPUs unchanged; ValueError if it is above 1 and not whole."""
    if gpu > 1 and gpu != int(gpu):
        raise ValueError("a share such as 0.5, or a whole number of GPUs")
    return gpu


class CheckpointPolicy(Settings):
    """Rules that say which checkpoints are written, and which are kept."""

    every: int | None = Field(
        None,
        ge=1,
        description="Number of iterations between two checkpoints; further ones are written at a "
        "new best value and at a slice's end. null: checkpoints are at least 0.5 s apart, or 1 "
        "iteration apart with keep_best above 1.",
    )
    keep_last: int = Field(
        2,
        ge=1,
        description="Number of newest checkpoints kept per trial and seed; at least 2 are kept.",
    )
    keep_best: int = Field(
        1, ge=0, description="Number of best checkpoints kept per trial and seed."
    )
    max_disk: Size = Field(
        None,
        description="Maximum size of all checkpoints and logs of the sweep, such as 20GB; null: "
        "no limit.",
    )
    cache: Annotated[int, BeforeValidator(_read_size), WithJsonSchema(_SIZE_SCHEMA)] = Field(
        10 * 10**9,
        description="With --checkpoints: maximum size of the copies that stay on the local disk, "
        "in bytes or as text such as 10GB.",
    )


class Resources(Settings):
    """Cores, GPUs and other resources of one trial."""

    cpu: int = Field(1, ge=1, le=1024, description="Processor cores per trial.")
    gpu: Annotated[float, AfterValidator(_check_gpu)] = Field(
        0.0,
        ge=0,
        le=64,
        description="GPUs per trial; with a value below 1, several trials share a GPU.",
    )
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="Other resources per trial: name → amount, such as {licence: 1}.",
    )


class Machine(Settings):
    """Cores, GPUs and other resources that trials share."""

    cpu: int | None = Field(
        None,
        ge=1,
        description="Processor cores that trials share; null: those of the machine, which trials "
        "may overbook with a large --jobs.",
    )
    gpu: int | None = Field(
        None, ge=0, description="GPUs that trials share; null: those visible to CUDA."
    )
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="Other resources that trials share: name → amount."
    )


def _read_fail_fast(raw: Any) -> Any:
    """Return 1 for true and None for false, as in Ray Tune; other values unchanged."""
    if isinstance(raw, bool):
        return 1 if raw else None
    return raw


class Limits(Settings):
    """Limits of time, memory, failures, log files and concurrent trials."""

    slice_s: float = Field(
        30.0, gt=0, description="Seconds after which a slice ends at its next checkpoint."
    )
    max_failures: int = Field(
        3,
        ge=0,
        description="Maximum number of retries of a trial. Retries after exceptions all count; "
        "those after the death of its process count only if they are consecutive. An iteration "
        "that raises an exception twice ends the trial.",
    )
    trial_s: float | None = Field(
        None,
        gt=0,
        description="Seconds of training after which a trial is STOPPED for good; null: no limit.",
    )
    trial_memory: Memory = Field(
        None,
        description="Maximum memory of a trial's process and its children, such as 4GB; a trial "
        "that exceeds the limit is retried; null: no limit.",
    )
    trial_log: Annotated[int | None, BeforeValidator(_read_size), _OPTIONAL_SIZE] = Field(
        20 * 10**6,
        ge=1000,
        description="Size at which a trial's log is rotated, in bytes or as text such as 20MB; "
        "one older part is kept. null: no rotation.",
    )
    no_progress_s: float | None = Field(
        None,
        gt=0,
        description="Seconds without a finished iteration after which a trial is retried; null: no "
        "limit.",
    )
    no_answer_s: float | None = Field(
        60.0,
        gt=0,
        description="Seconds without a response from a worker after which another one retries its "
        "trial; null: no limit.",
    )
    not_finite: Literal["continue", "prune", "fail"] = Field(
        "continue",
        description="Reaction to a metric that is NaN or infinite: continue, prune (end the trial "
        "as PRUNED) or fail (end it as FAILED).",
    )
    fail_fast: Annotated[
        int | None,
        BeforeValidator(
            _read_fail_fast,
            json_schema_input_type=bool | Annotated[int, Field(ge=1)] | None,
        ),
    ] = Field(
        3,
        ge=1,
        description="Number n: the sweep ends if its first n trials all fail with the same error. "
        "true: 1; null or false: no such end.",
    )
    max_concurrent: int | None = Field(
        None,
        ge=1,
        description="Maximum number of trials at once, even if --jobs is larger; null: no limit.",
    )


class Deterministic(Settings):
    """The mode in which decisions depend on the spec alone, not on the time that slices take."""

    batch: int = Field(
        ge=1, le=10_000, description="Number of slices that must end before the next decision."
    )


# -------------------------------------------------------------------------------------------------
# The budget of a sweep: the key ``budget``. Times are in seconds.


class Budget(Settings):
    """The budget of a sweep; the sweep ends when any part of it is exhausted."""

    time_s: float | None = Field(
        None,
        gt=0,
        description="Running time in seconds after which the sweep ends, summed over restarts.",
    )
    cpu_hours: float | None = Field(
        None,
        gt=0,
        description="Hours of training after which the sweep ends, summed over all trials and "
        "multiplied by resources.cpu.",
    )
    timesteps: float | None = Field(
        None,
        gt=0,
        description="Number of environment steps after which the sweep ends, summed "
        "over all trials.",
    )
    target: float | None = Field(
        None,
        description="Score at which the sweep ends if a trial within the constraints reaches it.",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="Number of consecutive trials without a new best score after which the sweep "
        "ends.",
    )
    settled: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Fraction of the difference between a poor setting's score and the best "
        "trial's. The sweep ends when doubling the training so far is expected to improve the "
        "best score by less than this fraction (docs/control.md#in-the-spec).",
    )
    min_delta: float = Field(
        0.0, ge=0, description="With patience: improvement above which a score is a new best."
    )

    @property
    def is_set(self) -> bool:
        """True if any key is set except `min_delta`, which alone does not end a sweep."""
        keys = ("time_s", "cpu_hours", "timesteps", "target", "patience", "settled")
        return any(getattr(self, key) is not None for key in keys)

    def with_changes(self, changes: Mapping[str, Any], source: Source | None = None) -> "Budget":
        """Return a copy of the budget with other values; BadConfig if they are not valid.

        `changes` has key of the budget → new value, None for no limit. `source`, that of the whole
        spec, has their lines for messages. `check_budget` is not called.
        """
        raw = {**self.model_dump(), **changes}
        return validate(Budget, raw, (source or Source()).sub_source("budget"))


def check_budget(budget: Budget, stop: Mapping[str, float], source: Source) -> None:
    """Raise BadConfig if the budget contradicts itself or the stopping criteria `stop`.

    ``min_delta`` needs ``patience``, and ``budget.timesteps`` must be at least the
    ``timesteps_total`` at which one trial ends.
    """
    if budget.min_delta and budget.patience is None:
        raise source.refuse(
            ("budget", "min_delta"),
            budget.min_delta,
            hint="set budget.patience too, or remove min_delta",
            problem="has no effect without budget.patience",
        )
    least = stop.get("timesteps_total")
    if least is not None and budget.timesteps is not None and budget.timesteps < least:
        problem = f"{budget.timesteps:g} steps for all trials are fewer than one trial needs"
        allowed = f"at least stop.timesteps_total: {least:g}"
        raise source.refuse(("budget", "timesteps"), budget.timesteps, allowed, problem=problem)


# -------------------------------------------------------------------------------------------------
# The keys about the search other than `space`: forbid, initial.


def _read_list(items: str, example: str) -> BeforeValidator:
    """Return a pydantic validator that turns a list into a tuple; ValueError for other values.

    It does not check the items. `items` and `example` describe them in its message.
    """

    def read(raw: Any) -> Any:
        """Return a list as a tuple; raise ValueError for anything else."""
        if isinstance(raw, list | tuple):
            return tuple(raw)
        raise ValueError(f"a list of {items}, such as {example}")

    return BeforeValidator(read)


def _read_space(raw: Any, info: ValidationInfo) -> Space:
    """Parse the key ``space``, without the points that the spec's ``forbid`` excludes.

    `info` is pydantic's information about the spec, whose ``forbid`` was read before. A Space is
    returned unchanged. Raises ValueError if `raw` is no mapping, BadSpace if it has mistakes.
    """
    if isinstance(raw, Space):
        return raw
    if isinstance(raw, Mapping):
        return Space.parse(raw, source_of(info.context), info.data.get("forbid", ()))
    raise ValueError("a mapping such as lr: {loguniform: [1e-5, 1e-2]}")


def source_of(context: Any) -> Source:
    """Return the file and lines in a pydantic validation context; empty ones without a context."""
    source: Source = context["source"] if context else Source()
    return source


SpaceField = Annotated[
    InstanceOf[Space],
    BeforeValidator(refusing(_read_space)),
    PlainSerializer(lambda space: dict(space.raw)),
]
ForbidField = Annotated[
    tuple[Any, ...],
    Field(strict=False),
    _read_list("combinations", '["lr > 0.01 and layers > 3"]'),
]
InitialField = Annotated[
    tuple[Any, ...],
    Field(strict=False),
    _read_list("settings", "[{lr: 1e-3}]"),
]


# -------------------------------------------------------------------------------------------------
# Names of sweeps, which become folders and arguments of commands, and names of results.

#: Maximum length of a sweep's name, in characters.
LONGEST_NAME = 100

#: Pattern of a sweep's name.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: Device names of Windows, with any suffix: such folders cannot be copied there.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)

#: Names of files shared by all sweeps of a root, and of a database's companions, in any case: some
#: disks ignore case.
_ROOT_NAMES = re.compile(r"mlflow\.db([.-].*)?|mlartifacts", re.IGNORECASE)

#: Rule for a sweep's name, for messages.
_ALLOWED = (
    f"1 to {LONGEST_NAME} letters a-z or A-Z, digits, . _ -, beginning with a letter or digit"
)

#: Pattern of a result's path, with slashes.
RESULT_PATH = re.compile(r"[^/]+(/[^/]+)*")
#: Rule for names of results, for messages.
RESULT_PATH_ALLOWED = "a path into the results, such as evaluation/episode_reward_mean"


def check_result_path(path: str) -> str:
    """Return the name of a result unchanged; ValueError if a part between slashes is empty."""
    if not RESULT_PATH.fullmatch(path):
        raise ValueError(RESULT_PATH_ALLOWED)
    return path


def check_name(name: str) -> str:
    """Return the name of a sweep unchanged; ValueError if it is not valid.

    Valid are 1 to `LONGEST_NAME` of a-z, A-Z, 0-9, ``.``, ``_``, ``-``, the first a letter or
    digit, without ``..`` or a dot at the end; not ``mlflow.db`` and the like, nor a device name of
    Windows such as ``nul``.
    """
    if allowed := _allowed_instead(name):
        raise ValueError(f"{allowed}, such as {name_from(name)}")
    return name


def _allowed_instead(name: str) -> str:
    """Return a description of allowed names if a sweep's name is invalid; empty if it is valid."""
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        return _ALLOWED
    if ".." in name or name.endswith("."):
        return f"{_ALLOWED}, without '..' and no dot at the end"
    if _RESERVED.fullmatch(name):
        return f"{_ALLOWED}, and no device name of Windows such as con or nul"
    if _ROOT_NAMES.fullmatch(name):
        return (
            f"{_ALLOWED}, and not the name of a file that all sweeps of a root folder share: {name}"
        )
    return ""


def name_from(text: str, room: int = LONGEST_NAME) -> str:
    """Return a valid name for a sweep: `text` if it is valid, else a similar one.

    The result has at most `room` characters. ``My Exp 2`` becomes ``My-Exp-2``, ``Übung`` becomes
    ``Ubung``, and a text without letters or digits ``sweep``.
    """
    if len(text) <= room and not _allowed_instead(text):
        return text
    apart = unicodedata.normalize("NFKD", text)
    letters = "".join(letter for letter in apart if not unicodedata.combining(letter))
    words = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9._-]+", "-", letters))
    name = words.lstrip("._-")[:room].rstrip("._-") or "sweep"
    return f"sweep-{name}"[:room] if _allowed_instead(name) else name
