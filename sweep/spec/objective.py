"""Scores by which trials are compared: of a curve, of several seeds, further objectives, limits."""

import contextlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from sweep.core import stats
from trainables.core.settings import Settings

#: Direction of an objective: to be minimised or maximised.
Mode = Literal["min", "max"]


class _Worded(Settings):
    """A setting that a spec writes as a word, or as a word with a number: ``{mean_last: 10}``."""

    allowed: ClassVar[str]
    """Description of the accepted values, for messages."""
    with_number: ClassVar[tuple[str, str]]
    """The word that takes a number, and the name of the field for it: ("mean_last", "k")."""
    kind: str
    """The word, such as ``last``."""

    @classmethod
    def read(cls, raw: Any) -> Any:
        """Return the setting that a spec writes as ``word`` or as ``{word: number}``.

        A setting is returned unchanged. Raises ValueError, with the text `allowed`, for anything
        else, such as the word of `with_number` without a number.
        """
        word, field = cls.with_number
        if isinstance(raw, cls):
            return raw
        with contextlib.suppress(ValidationError):
            if isinstance(raw, str) and raw != word:
                return cls.model_validate({"kind": raw})
            if isinstance(raw, Mapping) and list(raw) == [word]:
                return cls.model_validate({"kind": word, field: raw[word]})
        raise ValueError(cls.allowed)

    def to_spec(self) -> Any:
        """Return the setting as a spec writes it: the word, or ``{word: number}``."""
        word, field = self.with_number
        return {word: getattr(self, field)} if self.kind == word else self.kind

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema of the setting as a spec writes it."""
        word, field = cls.with_number
        fields = handler.resolve_ref_schema(handler(core))["properties"]
        words = [kind for kind in fields["kind"]["enum"] if kind != word]
        return {"anyOf": [{"enum": words}, mapping({word: fields[field]}, [word])]}


def mapping(properties: Mapping[str, Any], required: Sequence[str] = ()) -> JsonSchemaValue:
    """Return the JSON Schema of a mapping with the keys in `properties` (key → schema) alone.

    `required` are the keys that it must have.
    """
    found = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})


# -------------------------------------------------------------------------------------------------
# The score of a trial: its learning curve as one number.
#
# score: last              the newest value
# score: best              the best value so far, by the sweep's mode
# score: {mean_last: 10}   the mean of the newest ten; of fewer, while there are fewer
# score: area              the mean of all values: the area under the curve, per iteration


class Score(_Worded):
    """The reduction of a learning curve to one number, by which trials are compared."""

    allowed = "last, best, area, or {mean_last: k} with k from 1 to 1000000"
    with_number = ("mean_last", "k")
    kind: Literal["last", "best", "mean_last", "area"] = Field(
        "last", description="Reduction of the metric's values to one number."
    )
    k: int = Field(1, ge=1, le=1_000_000, description="With mean_last: number of newest values.")

    def reduce(self, values: Sequence[float], mode: Mode) -> float | None:
        """Return the score of a curve with these values of the metric, oldest first.

        ``area`` is the mean of all values; ``mean_last`` that of the newest `k`, or of fewer while
        there are fewer. Returns None without values, or if one that counts is NaN or infinite;
        ``best`` ignores such values.
        """
        if self.kind == "best":
            finite = [value for value in values if math.isfinite(value)]
            return (max if mode == "max" else min)(finite, default=None)
        counted = {"last": values[-1:], "mean_last": values[-self.k :], "area": values}[self.kind]
        if not counted or not all(map(math.isfinite, counted)):
            return None
        return stats.mean(counted)


ScoreField = Annotated[Score, BeforeValidator(Score.read), PlainSerializer(Score.to_spec)]


# -------------------------------------------------------------------------------------------------
# The scores of a trial's seeds as one number.
#
# aggregate: mean                 the arithmetic mean
# aggregate: iqm                  the interquartile mean: of the middle half, its ends counted by
#                                 their share
# aggregate: median               the middle one; of two middle ones their mean
# aggregate: worst                the least where more is better, the greatest where less is
# aggregate: {lower_bound: 0.9}   what the mean is better than with this confidence (Student's t)

Kind = Literal["mean", "iqm", "median", "worst", "lower_bound"]


class Aggregate(_Worded):
    """The reduction of the scores of a trial's seeds to one number."""

    allowed = "mean, iqm, median, worst, or {lower_bound: level} with a level from 0.5 to below 1"
    with_number = ("lower_bound", "level")
    kind: Kind = Field("mean", description="Aggregate of the scores of the seeds.")
    level: float = Field(
        0.5,
        ge=0.5,
        lt=1,
        description="With lower_bound: confidence that the true mean is better than the bound.",
    )

    def combine(self, values: Sequence[float], mode: Mode) -> float:
        """Return one number for the scores of at least one seed; NaN if one of them is NaN.

        ``worst`` is the least score with mode max, and the greatest with min. ``lower_bound`` is
        the one-sided bound below the mean with mode max, and above it with min; ValueError for
        fewer than two scores.
        """
        if any(math.isnan(value) for value in values):
            return math.nan
        if self.kind == "worst":
            return min(values) if mode == "max" else max(values)
        if self.kind == "lower_bound":
            return stats.confidence_bound(values, self.level, upper=mode == "min")
        return self.centre(values)

    def centre(self, values: Sequence[float]) -> float:
        """Return the mean, interquartile mean or median of the scores; their mean for other kinds.

        There is at least one score; their order does not matter.
        """
        return _CENTRES.get(self.kind, stats.mean)(sorted(values))

    @property
    def is_independent_of_count(self) -> bool:
        """True for mean, iqm and median, which compare trials with different numbers of seeds."""
        return self.kind in _CENTRES


AggregateField = Annotated[
    Aggregate, BeforeValidator(Aggregate.read), PlainSerializer(Aggregate.to_spec)
]


def _median(ordered: Sequence[float]) -> float:
    """Return the median of ascending values, of which there is at least one."""
    middle = len(ordered) // 2
    return stats.mean((ordered[middle], ordered[-1 - middle]))


def interquartile_mean(ordered: Sequence[float]) -> float:
    """Return the mean of the middle half of ascending values.

    A value at an end of that half counts by the fraction of it inside: of five values the second
    and the fourth count three quarters. Agarwal et al., Deep Reinforcement Learning at the Edge of
    the Statistical Precipice, 2021, section 4.3, recommend it for few runs.
    """
    low, high = len(ordered) / 4, len(ordered) * 3 / 4
    weights = [max(0.0, min(i + 1, high) - max(i, low)) for i in range(len(ordered))]
    return stats.weighted_mean(ordered, weights)


#: Name of an aggregate without a number → its function of the seeds' scores.
_CENTRES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": stats.mean,
    "iqm": interquartile_mean,
    "median": _median,
}


# -------------------------------------------------------------------------------------------------
# Further criteria of the comparison: objectives, and limits on results.
#
# objectives: {time_this_iter_s: min}       asha, hyperband and bohb promote by fronts of both
# constraints: {time_this_iter_s: "<= 2"}   a trial that breaks it ranks behind all that do not

#: Pairs of result and mode, in the order of the file.
Objectives = tuple[tuple[str, Mode], ...]

#: Pattern of a limit such as ``<= 0.1``.
_LIMIT = re.compile(r"\s*(<=|>=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Constraint:
    """A limit on one result, which a trial should not violate."""

    path: str
    """Name of the result, with slashes."""
    sign: float
    """+1 if `bound` is a maximum; -1 if it is a minimum."""
    bound: float
    """Greatest allowed value of the result; least allowed value if `sign` is -1."""

    @property
    def limit(self) -> str:
        """The limit as a spec has it, such as ``<= 2``."""
        return f"{'<=' if self.sign > 0 else '>='} {self.bound:.6g}"

    def violation(self, value: float | None) -> float:
        """Return by how much a result exceeds its maximum, or falls below its minimum.

        It is 0 or less if it does neither, and infinite if the result is None or NaN.
        """
        if value is None or math.isnan(value):
            return math.inf
        return self.sign * (value - self.bound)


def read_constraints(raw: Mapping[str, str]) -> tuple[Constraint, ...]:
    """Read the spec's ``constraints``: name of a result → text of its limit, such as ``<= 2``.

    Raises ValueError if a text is not valid.
    """
    found = []
    for path, text in raw.items():
        kind, bound = _read_limit(text)
        found.append(Constraint(path, 1.0 if kind == "<=" else -1.0, bound))
    return tuple(found)


def check_single(metric: object) -> object:
    """Return the value of ``metric`` unchanged; ValueError if it is a list."""
    if isinstance(metric, list | tuple):
        raise ValueError(  # noqa: TRY004
            "the name of one result; put further results under objectives: {result: min}"
        )
    return metric


def _check_limit(text: object) -> object:
    """Return the text of a limit unchanged; ValueError if it is not valid."""
    _read_limit(text if isinstance(text, str) else "")
    return text


LimitText = Annotated[
    str,
    BeforeValidator(_check_limit),
    WithJsonSchema({"type": "string", "pattern": f"^{_LIMIT.pattern}$"}),
]


def _read_limit(text: str) -> tuple[str, float]:
    """Split a limit such as ``<= 2`` into comparison and bound; ValueError if it is not valid."""
    found = _LIMIT.fullmatch(text)
    if found is None or not math.isfinite(float(found[2])):
        raise ValueError('a limit such as "<= 2" or ">= 0.5"')
    return found[1], float(found[2])
