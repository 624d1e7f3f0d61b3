"""Ends of a trial by its results: the key ``stop`` of a spec.

stop: {timesteps_total: 100000}                     reached or passed
stop: {loss: 0.1}                                   fallen so far, if `loss` is minimised
stop: {loss: {"<=": 0.1}}                           fallen so far
stop: {entropy: {"<=": 0.01, ">=": 5}}              left that range, on either side
stop: {score: {">=": 500, consecutive: 3}}          so much in three consecutive results
stop: {plateau: {patience: 20, min_delta: 1.0}}     no improvement for so many results
"""

import math
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    InstanceOf,
    PlainSerializer,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from sweep.core.errors import Gathering, Source
from sweep.spec.objective import Mode, mapping
from sweep.spec.sections import RESULT_PATH, RESULT_PATH_ALLOWED, source_of
from sweep.spec.validation import refusing, validate
from trainables.core.settings import Settings

#: Key of ``stop`` for the test of a plateau.
PLATEAU = "plateau"
#: Results that only grow, so that a criterion on them shows a trial's progress.
COUNTERS = ("training_iteration", "timesteps_total", "episodes_total", "time_total_s")
#: Key of the number of consecutive results that must meet a criterion.
CONSECUTIVE = "consecutive"
#: Rule for a value of ``stop``, for messages.
_ALLOWED = 'a number, {"<=": number} or {">=": number}, with consecutive: N in them or not'


class Plateau(Settings):
    """The criterion that ends a trial whose metric no longer improves."""

    metric: str = Field(min_length=1, description="Key of the watched result; default: metric.")
    mode: Mode = Field(description="Direction of the watched result: min or max; default: mode.")
    patience: int = Field(
        ge=1,
        description="Number of consecutive results that may be no better than the best so far.",
    )
    min_delta: float = Field(
        0.0, ge=0, description="Minimum improvement that counts as a better result."
    )
    grace: int = Field(
        0, ge=0, description="Number of iterations during which the plateau ends no trial."
    )


class Stop(dict[str, int | float]):
    """Name of a result → least value that ends a trial; attributes have further criteria.

    Args:
        reached: result → least value that ends the trial.
        at_most: result → greatest value that ends the trial.
        plateau: plateau that ends the trial, or None for none.
        consecutive: result → number of its consecutive values that must meet its bound, if not 1.
        minimized: results for which a bare number means an upper bound.
    """

    def __init__(
        self,
        reached: Mapping[str, int | float] | None = None,
        at_most: Mapping[str, int | float] | None = None,
        plateau: Plateau | None = None,
        consecutive: Mapping[str, int] | None = None,
        minimized: Collection[str] = (),
    ) -> None:
        super().__init__(reached or {})
        self.at_most = dict(at_most or {})
        """Result → value; a trial ends once the result is at most that."""
        self.plateau = plateau
        self.consecutive = dict(consecutive or {})
        """Result → number of consecutive values that must meet its bound; 1 if it is missing."""
        self._minimized = frozenset(minimized)
        """Results for which a bare number means an upper bound."""

    def __eq__(self, other: object) -> bool:
        own = (self.at_most, self.plateau, self.consecutive)
        same = not isinstance(other, Stop) or own == (
            other.at_most,
            other.plateau,
            other.consecutive,
        )
        return same and super().__eq__(other)

    __hash__ = None

    @property
    def ends_nothing(self) -> bool:
        """True if there is no criterion."""
        return not self and not self.at_most and self.plateau is None

    @property
    def ends_every_trial(self) -> bool:
        """True if every trial ends sooner or later, however good its results are.

        That is so with a plateau, or with a least value of one of `COUNTERS`.
        """
        return self.plateau is not None or any(key in COUNTERS for key in self)

    def to_spec(self) -> dict[str, Any]:
        """Return the criteria as a spec writes them.

        Result → number or ``{"<=": number, ">=": number, "consecutive": integer}``, and ``plateau``
        → its settings.
        """
        raw: dict[str, Any] = {
            key: {">=": value} if key in self._minimized else value for key, value in self.items()
        }
        for key, value in self.at_most.items():
            raw[key] = {"<=": value, **({">=": self[key]} if key in self else {})}
        for key, needed in self.consecutive.items():
            bounds = raw[key] if isinstance(raw[key], dict) else {">=": raw[key]}
            raw[key] = {**bounds, CONSECUTIVE: needed}
        if self.plateau is not None:
            raw[PLATEAU] = self.plateau.model_dump()
        return raw


def _read(raw: Any, info: ValidationInfo) -> Stop:
    """Parse the key ``stop`` as written in a spec; BadConfig with all mistakes.

    A bare number is a greatest value if the result is minimised, else a least one. `info` is
    pydantic's information about the spec, which has the metric and its mode. A Stop is returned
    unchanged. Raises ValueError if `raw` is no mapping.
    """
    if isinstance(raw, Stop):
        return raw
    if not isinstance(raw, Mapping):
        raise ValueError("a mapping, key: value")  # noqa: TRY004 pydantic reads it
    source, gathering, minimized = source_of(info.context), Gathering(), _minimized(info.data)
    at_least: dict[str, int | float] = {}
    at_most: dict[str, int | float] = {}
    consecutive: dict[str, int] = {}
    plateau = None
    for key, value in raw.items():
        with gathering.collect():
            if key == PLATEAU and not _is_number(value):
                plateau = _plateau(value, info.data, source)
                continue
            _check_key(key, source)
            bounds = (
                value if isinstance(value, Mapping) else {"<=" if key in minimized else ">=": value}
            )
            _check_bounds(key, value, bounds, source)
            if ">=" in bounds:
                at_least[key] = bounds[">="]
            if "<=" in bounds:
                at_most[key] = bounds["<="]
            if bounds.get(CONSECUTIVE, 1) > 1:
                consecutive[key] = bounds[CONSECUTIVE]
    gathering.check()
    return Stop(at_least, at_most, plateau, consecutive, minimized)


def _minimized(entry: Mapping[str, Any]) -> set[str]:
    """Return the names of metric and objectives of which less is better.

    `entry` has the spec's keys ``metric``, ``mode`` and ``objectives``; each may be missing.
    """
    modes = {**entry.get("objectives", {}), entry.get("metric"): entry.get("mode")}
    return {name for name, mode in modes.items() if mode == "min"}


def _plateau(raw: Any, entry: Mapping[str, Any], source: Source) -> Plateau:
    """Parse the plateau criterion; BadConfig if it is not valid.

    `entry` has the spec's ``metric`` and ``mode``, which the criterion takes if it has none.
    """
    defaults = {key: entry[key] for key in ("metric", "mode") if key in entry}
    given = {**defaults, **raw} if isinstance(raw, Mapping) else raw
    return validate(Plateau, given, source.sub_source("stop", PLATEAU))


def _check_key(key: str, source: Source) -> None:
    """Raise BadConfig if a key of ``stop`` is not a valid name of a result.

    Names that begin with ``plateau.`` are not: only the whole plateau can be set.
    """
    if not RESULT_PATH.fullmatch(key):
        raise source.refuse(("stop", key), key, RESULT_PATH_ALLOWED)
    if key.startswith(f"{PLATEAU}."):
        hint = f"set it as a whole: --set 'stop.{PLATEAU}={{patience: 20}}'"
        problem = f"a part of {PLATEAU} cannot be set alone"
        raise source.refuse(("stop", key), key, hint=hint, problem=problem)


def _check_bounds(key: str, value: Any, bounds: Mapping[Any, Any], source: Source) -> None:
    """Raise BadConfig if the bounds of a result (``<=`` or ``>=`` → number) are not valid.

    Both together must leave a range between them: ``<=`` below ``>=``. They may have the key
    ``consecutive`` beside them, but not for a counter, which never falls. `key` is the result's
    name, and `value` its entry as written.
    """
    numbers = {name: number for name, number in bounds.items() if name != CONSECUTIVE}
    if not numbers or set(numbers) - {"<=", ">="} or not all(map(_is_number, numbers.values())):
        hint = "a number is written without quotes" if isinstance(value, str) else ""
        raise source.refuse(("stop", key), value, _ALLOWED, hint)
    needed = bounds.get(CONSECUTIVE, 1)
    if not isinstance(needed, int) or isinstance(needed, bool) or needed < 1:
        raise source.refuse(("stop", key, CONSECUTIVE), needed, "an integer, at least 1")
    if needed > 1 and key in COUNTERS:
        problem = f"{key} never falls, so the first value at the bound ends the trial"
        hint = f"remove {CONSECUTIVE}"
        raise source.refuse(("stop", key, CONSECUTIVE), needed, hint=hint, problem=problem)
    if len(numbers) == 2 and bounds["<="] >= bounds[">="]:
        low, high = bounds["<="], bounds[">="]
        problem = f"every value is at most {low} or at least {high}"
        raise source.refuse(
            ("stop", key), value, 'a bound of "<=" below that of ">="', problem=problem
        )


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number; a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class _Written:
    """Annotation that gives the key ``stop`` the JSON Schema of its written form."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        plateau = handler.resolve_ref_schema(handler(Plateau.__pydantic_core_schema__))
        needed = [key for key in plateau["required"] if key not in ("metric", "mode")]
        number = {"type": "number"}
        sides = {"<=": number, ">=": number}
        bounds = {
            **mapping({**sides, CONSECUTIVE: {"type": "integer", "minimum": 1}}),
            "anyOf": [{"required": [side]} for side in sides],
        }
        return {
            "type": "object",
            "properties": {PLATEAU: {"anyOf": [number, {**plateau, "required": needed}]}},
            "patternProperties": {
                f"^(?!{PLATEAU}([.]|$)){RESULT_PATH.pattern}$": {"anyOf": [number, bounds]}
            },
            "additionalProperties": False,
        }


StopField = Annotated[
    InstanceOf[Stop],
    BeforeValidator(refusing(_read)),
    PlainSerializer(lambda stop: stop.to_spec()),
    _Written,
]
