"""The search-space language as typed data: which settings a searcher proposes, and what follows.

    space = Space.parse({"lr": {"loguniform": [1e-5, 1e-2]}, "gamma": 0.99})
    found = space.resolve(lambda name, domain: sample(domain, generator))
    config = space.nest(found.settings, {"env": "CartPole-v1"})

The words of the language stand in `sweep.space.reader`. A name's dots reach into nested
settings. A parameter is settled after those that it needs, in an order that the file alone decides.

domains      what may be proposed, how chance is spread over it, and when two values are the same
parameters   what one parameter is: proposed, fixed or derived, and when it is there
expressions  values derived from other parameters
checks       whether a whole space fits together; combinations that may not be
groups       names with a common beginning
reader       how a parameter is written
wandb        parameters in the words of W&B's sweeps
aliases      what other tools call our words
initial      settings that are given, to be tried first
enumeration  the points of a finite space by index
widening     whether one space contains another
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sweep.errors import At, BadSpace, Gathering, Source, SweepError
from sweep.space import checks, groups, reader
from sweep.space.checks import Clause, Forbidden, read_clauses
from sweep.space.domains import (
    Choice,
    Domain,
    Float,
    Int,
    Normal,
    Ordered,
    Ordinal,
    canonical,
    choice_key,
    sample,
)
from sweep.space.expressions import ExpressionError
from sweep.space.parameters import Derived, Fixed, Parameter, hold
from trainables.core import rng
from trainables.errors import shorten

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Choice",
    "Derived",
    "Domain",
    "Fixed",
    "Float",
    "Forbidden",
    "Int",
    "Normal",
    "Ordered",
    "Ordinal",
    "Parameter",
    "Settings",
    "Space",
    "canonical",
    "choice_key",
    "sample",
]

#: Points drawn by chance of which one must belong to the space.
DRAWS = 1000

Suggest = Callable[[str, Domain], Any]


@dataclass(frozen=True)
class Settings:
    """One point of a space."""

    searched: dict[str, Any]
    """The proposed values: active parameters only, those with a leading underscore too."""
    settings: dict[str, Any]
    """Settings for the trainable, by dotted name: proposed, fixed and derived, no underscores."""
    origin: str = ""
    """The part of the searcher that proposed them, `prior`; empty: its own model."""
    why: str = ""
    """Why they were proposed, in words, if there is more to say than the searcher's name."""


@dataclass(frozen=True)
class Space:
    """Parameters by name, in the order of the file; `parse` makes it and refuses mistakes."""

    parameters: Mapping[str, Parameter]
    raw: Mapping[str, Any] = field(repr=False)
    """The plain data that it was read from."""
    where: Source = field(repr=False)
    forbidden: tuple[Clause, ...] = ()
    """Points at which one of these holds do not belong to the space."""
    pinned: Mapping[str, Any] = field(default_factory=dict)
    """Searched parameters whose values are given, so that nobody is asked for them."""

    @classmethod
    def parse(
        cls,
        raw: Mapping[str, Any],
        where: Source | None = None,
        forbid: Sequence[Any] = (),
    ) -> "Space":
        """Read a space: name → what it may be; BadSpace says where and why it cannot work.

        `where` is the source of the spec that ``space`` is a key of; `forbid` stands beside it.
        """
        whole = where or Source()
        below = whole.below("space")
        found, parameters = Gathering(), {}
        for entry in groups.entries(raw, reader.WORDS, below):
            with found.one():
                parameters[entry.name] = reader.read(entry, below)
        found.check()
        space = cls(parameters, raw, below)
        checks.check(space.parameters, below)
        for corner in (0.0, 1.0):  # no expression may fail at the lowest or the highest values
            space.resolve(partial(_at, corner))
        return space.forbid(forbid, whole) if forbid else space

    def forbid(self, forbid: Sequence[Any], where: Source) -> "Space":
        """The space without the points at which one of `forbid` holds."""
        without = replace(self, forbidden=read_clauses(forbid, self.parameters, where))
        without.draw(0)
        return without

    @property
    def domains(self) -> dict[str, Domain]:
        """The domains of the parameters that are to be proposed, in the order of the file."""
        return {
            name: self.role(name)
            for name in self.searched
            if name not in self.pinned and not self.parameters[name].crossed
        }

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """The names of all parameters with a domain, those with a leading underscore too."""
        return tuple(
            n for n, p in self.parameters.items() if not isinstance(p.role, Fixed | Derived)
        )

    @property
    def crossed(self) -> dict[str, Domain]:
        """The parameters whose values the trials take in turn."""
        return {name: self.role(name) for name, p in self.parameters.items() if p.crossed}

    @property
    def cells(self) -> int:
        """The number of combinations of values that the trials take in turn."""
        return math.prod(domain.size() or 1 for domain in self.crossed.values())

    def role(self, name: str) -> Domain:
        """The domain of a searched parameter."""
        role = self.parameters[name].role
        if isinstance(role, Fixed | Derived):
            raise TypeError(f"{name} has no domain")
        return role

    def pin(self, values: Mapping[str, Any]) -> "Space":
        """The space in which some searched parameters have these values wherever they are active.

        A pinned parameter stays among `Settings.searched`.
        """
        own = {name: canonical(self.role(name), value) for name, value in values.items()}
        return replace(self, pinned={**self.pinned, **own})

    def resolve(self, suggest: Suggest) -> Settings:
        """One point of the space; `suggest` is called for each active searched parameter.

        Raises:
            Forbidden: the point does not belong to the space.
            BadSpace: an expression has no value here, for example after a division by zero.
        """
        values: dict[str, Any] = {}
        for name in self.order:
            if self.is_active(name, values):
                values[name] = self.settle(name, values, suggest)
        for clause in self.forbidden:
            if clause.holds(values):
                raise Forbidden(clause, values)
        return self.settings(values)

    def draw(self, seed: int) -> Settings:
        """A point drawn by chance, the first of `DRAWS` that belongs to the space; or BadSpace."""
        for number in range(DRAWS):
            stream = rng.generator(seed, "draw", number)
            try:
                return self.resolve(partial(_sample, stream))
            except BadSpace as error:
                refusal = error
        if not isinstance(refusal, Forbidden):
            raise refusal
        raise BadSpace(
            refusal.key,
            refusal.value,
            "a space of which more than a thousandth is left",
            "narrow the ranges, or forbid less",
            at=At(refusal.file, refusal.line),
            problem=f"of {DRAWS} points drawn by chance none is allowed; the last: {refusal}",
        )

    def settings(self, values: Mapping[str, Any]) -> Settings:
        """The point at which the active parameters have these values."""
        shown = (n for n, p in self.parameters.items() if n in values and not p.hidden)
        searched = {name: values[name] for name in self.searched if name in values}
        return Settings(searched, {name: values[name] for name in shown})

    def check_against(self, config: Mapping[str, Any]) -> None:
        """Raise BadConfig where `config` sets what the space sets too, or bars its way."""
        checks.check_against(self.parameters, self.where, config)

    @staticmethod
    def nest(settings: Mapping[str, Any], base_config: Mapping[str, Any]) -> dict[str, Any]:
        """`base_config` with `settings` put where their dots say; both are copied, not changed."""
        nested = copy.deepcopy(dict(base_config))
        for name, value in settings.items():
            *parents, last = name.split(".")
            inner = nested
            for part in parents:
                inner = inner.setdefault(part, {})
            inner[last] = copy.deepcopy(value)
        return nested

    def describe(self) -> list[str]:
        """One line per parameter, in the order of the file, and one for what is forbidden."""
        width = max((len(name) for name in self.parameters), default=0)
        lines = [f"{name:<{width}}  {p.describe()}" for name, p in self.parameters.items()]
        return lines + [f"never {clause.describe()}" for clause in self.forbidden]

    # ---- one point, step by step ------------------------------------------------------------

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All names, each after those that it needs."""
        return checks.in_order(self.parameters)

    def is_active(self, name: str, values: Mapping[str, Any]) -> bool:
        """Return whether a parameter is active, given the values of those before it."""
        parameter = self.parameters[name]
        if any(needed not in values for needed in parameter.needs):
            return False
        try:
            return hold(parameter.when, values)
        except ExpressionError as error:
            text = " and ".join(condition.describe() for condition in parameter.when)
            raise self._without_value((*parameter.path, "when"), text, error, values) from error

    def derive(self, name: str, derived: Derived, values: Mapping[str, Any]) -> Any:
        """The value of a derived parameter."""
        expression = derived.expression
        try:
            return expression.evaluate(values)
        except ExpressionError as error:
            path = (*self.parameters[name].path, "value")
            given = {needed: values[needed] for needed in expression.names}
            raise self._without_value(path, expression.text, error, given) from error

    def settle(self, name: str, values: Mapping[str, Any], suggest: Suggest) -> Any:
        """The value of a parameter that is active, when those before it have these values."""
        match self.parameters[name].role:
            case Fixed(value):
                return value
            case Derived() as derived:
                return self.derive(name, derived, values)
            case domain:
                value = self.pinned[name] if name in self.pinned else suggest(name, domain)
                if domain.contains(value):
                    return value
        raise SweepError(
            f"the searcher proposed {shorten(value)} for {name}, which allows {domain.describe()}"
        )

    def _without_value(
        self, path: tuple[str | int, ...], text: str, error: Exception, given: Mapping[str, Any]
    ) -> Exception:
        at = ", ".join(f"{name} = {shorten(value, 30)}" for name, value in given.items())
        return self.where.refuse(
            path,
            text,
            "a finite number or text everywhere in the space",
            problem=f"{text!r} {error}" + (f", at {at}" if at else ""),
        )


def _at(quantile: float, _name: str, domain: Domain) -> Any:
    return domain.at(quantile)


def _sample(stream: "np.random.Generator", _name: str, domain: Domain) -> Any:
    return sample(domain, stream)
