"""What trials are compared by beside the metric: further objectives, and limits on results.

also: {time_this_iter_s: min}            the metric decides who is promoted; the front is of both
constraints: {time_this_iter_s: "<= 2"}  a trial that breaks it ranks behind all that do not
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator

from sweep.spec.score import Mode

#: Result → whether its least or its greatest value is best, in the order of the file.
Also = tuple[tuple[str, Mode], ...]

_LIMIT = re.compile(r"\s*(<=|>=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Constraint:
    """A limit on one result."""

    path: str
    sign: float
    """+1: at most `bound`; -1: at least."""
    bound: float

    def violation(self, value: float | None) -> float:
        """How far `value` is past the bound; 0 or less: it holds; infinite: it is not known."""
        if value is None or math.isnan(value):
            return math.inf
        return self.sign * (value - self.bound)


def read_constraints(raw: Mapping[str, str]) -> tuple[Constraint, ...]:
    """The constraints that stand in a spec; texts are `LimitText`."""
    found = []
    for path, text in raw.items():
        kind, bound = _parts(text)
        found.append(Constraint(path, 1.0 if kind == "<=" else -1.0, bound))
    return tuple(found)


def check_single(metric: object) -> object:
    """Refuse several metrics where one stands."""
    if isinstance(metric, list | tuple):
        raise ValueError("one result; further ones stand under also: {result: min}")  # noqa: TRY004
    return metric


def _check_limit(text: object) -> object:
    _parts(text if isinstance(text, str) else "")
    return text


LimitText = Annotated[str, BeforeValidator(_check_limit)]


def _parts(text: str) -> tuple[str, float]:
    found = _LIMIT.fullmatch(text)
    if found is None or not math.isfinite(float(found[2])):
        raise ValueError('a limit such as "<= 2" or ">= 0.5"')
    return found[1], float(found[2])
