"""The search-space language as typed data: the settings that a searcher proposes, and derived ones.

    space = Space.parse({"lr": {"loguniform": [1e-5, 1e-2]}, "gamma": 0.99})
    found = space.resolve(lambda name, domain: sample(domain, generator))
    config = space.nest(found.settings, {"env": "CartPole-v1"})

`sweep.spec.space.reader` lists the keywords of the language. Dots in a name reach into nested
settings. A parameter is resolved after those that it needs, in an order that depends only on the
file.

domains      possible values, their random distribution, and equality of values
parameters   one parameter: proposed, fixed or derived, and its conditions
expressions  values derived from other parameters
checks       checks of a whole space; forbidden combinations
groups       names with a common beginning
reader       syntax of a parameter
wandb        parameters in the syntax of W&B's sweeps
aliases      other tools' names of our keywords
initial      given settings, to be tried first
json_schema  JSON Schema of the language, for editors
enumeration  the points of a finite space by index
"""

import copy
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sweep.core.errors import BadSpace, Gathering, Place, Source, SweepError
from sweep.spec.space import checks, groups, reader
from sweep.spec.space.checks import Clause, Forbidden, read_clauses
from sweep.spec.space.domains import (
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
from sweep.spec.space.expressions import ExpressionError
from sweep.spec.space.parameters import Derived, Fixed, Parameter, hold
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

#: Maximum number of random points tried to find a valid one.
DRAWS = 1000

#: Function of a parameter's name and domain that returns its value.
Suggest = Callable[[str, Domain], Any]


@dataclass(frozen=True)
class Settings:
    """One point of a search space: the settings of a trial."""

    searched: dict[str, Any]
    """Name → value of each active parameter with a domain: proposed, pinned or of ``grid``, those
    with a leading underscore included."""
    settings: dict[str, Any]
    """Dotted name → value of each setting for the trainable: active parameters with a domain, fixed
    or derived, except those of whose name a part begins with an underscore."""
    origin: str = ""
    """Part of the searcher that proposed the point, such as `prior`; empty for the searcher's main
    model."""
    why: str = ""
    """Reason for the proposal as a text; empty if the searcher's name says all."""


@dataclass(frozen=True)
class Space:
    """A search space: parameters by name, in the order of the file; `parse` creates it."""

    parameters: Mapping[str, Parameter]
    """Dotted name → parameter, in the order of the file."""
    raw: Mapping[str, Any] = field(repr=False)
    """Plain data from which the space was read."""
    source: Source = field(repr=False)
    """File and lines of the key ``space``, for messages."""
    forbidden: tuple[Clause, ...] = ()
    """Combinations of values; a point at which one of them holds is not in the space."""
    pinned: Mapping[str, Any] = field(default_factory=dict)
    """Searched parameter → the value that it has instead of a proposed one."""

    @classmethod
    def parse(
        cls,
        raw: Mapping[str, Any],
        source: Source | None = None,
        forbid: Sequence[Any] = (),
        replaces: bool = False,
    ) -> "Space":
        """Parse a space from plain data, and check it.

        Args:
            raw: name → description of the parameter; names may be grouped in nested mappings.
            source: file and lines of the spec that has the key ``space``, for messages.
            forbid: the spec's key ``forbid``.
            replaces: True if it replaces the space of a sweep, of which `forbid` is; combinations
                that can no longer be are then left out.

        Raises:
            BadSpace: the space has mistakes, whose places the message names; an expression has no
                value where all parameters have their lowest or all their highest value; or
                `forbid` leaves no point.
        """
        whole = source or Source()
        space_source = whole.sub_source("space")
        found, parameters = Gathering(), {}
        for entry in groups.entries(raw, reader.WORDS, space_source):
            with found.collect():
                parameters[entry.name] = reader.read(entry, space_source)
        found.check()
        space = cls(parameters, raw, space_source)
        checks.check(space.parameters, space_source)
        for corner in (0.0, 1.0):  # expressions must have values at the lowest and highest values
            space.resolve(partial(_value_at, corner))
        if replaces:
            forbid = checks.possible_combinations(forbid, space.parameters)
        return space.forbid(forbid, whole) if forbid else space

    def forbid(self, forbid: Sequence[Any], source: Source) -> "Space":
        """Return the space without the points at which one of the combinations in `forbid` holds.

        They replace the combinations that were forbidden before. Raises BadSpace if one cannot be
        read, or if none of `DRAWS` random points is left.
        """
        without = replace(self, forbidden=read_clauses(forbid, self.parameters, source))
        without.draw(0)
        return without

    @property
    def domains(self) -> dict[str, Domain]:
        """Name → domain of each parameter that the searcher proposes, in the order of the file.

        Pinned parameters, and those with ``grid``, are left out.
        """
        return {
            name: self.domain_of(name)
            for name in self.searched
            if name not in self.pinned and not self.parameters[name].crossed
        }

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """Names of all parameters with a domain, also pinned ones and those with ``grid``."""
        return tuple(
            n for n, p in self.parameters.items() if not isinstance(p.role, Fixed | Derived)
        )

    @property
    def crossed_domains(self) -> dict[str, Domain]:
        """Name → domain of each parameter with ``grid``, whose values the trials take in turn."""
        return {name: self.domain_of(name) for name, p in self.parameters.items() if p.crossed}

    @property
    def cells(self) -> int:
        """Number of combinations of the values of parameters with ``grid``; 1 without any."""
        return math.prod(domain.size() or 1 for domain in self.crossed_domains.values())

    def domain_of(self, name: str) -> Domain:
        """Return the domain of a searched parameter.

        Raises TypeError if the parameter is fixed or derived, KeyError if there is none.
        """
        role = self.parameters[name].role
        if isinstance(role, Fixed | Derived):
            raise TypeError(f"{name} has no domain")
        return role

    def determining(self, keys: Collection[str]) -> frozenset[str]:
        """Return the searched parameters on which any of the settings `keys` depends.

        These are the settings themselves, and those in their conditions and expressions, in turn.

        Args:
            keys: dotted names of settings; each stands also for the settings within it and those
                that contain it, and ``*`` for any one part of a name.
        """
        found = {name for name in self.parameters if any(_overlap(key, name) for key in keys)}
        for name in reversed(self.order):
            if name in found:
                found.update(self.parameters[name].needs)
        return frozenset(found.intersection(self.searched))

    def pin(self, values: Mapping[str, Any]) -> "Space":
        """Return the space in which searched parameters have the given `values` where active.

        Other parameters that were pinned before stay so. A pinned parameter still appears in
        `Settings.searched`. Values of reals are moved to the nearest one of their domain; others
        are not checked here, but when a point is resolved. Raises TypeError for a fixed or derived
        parameter, KeyError for an unknown one.
        """
        own = {name: canonical(self.domain_of(name), value) for name, value in values.items()}
        return replace(self, pinned={**self.pinned, **own})

    def resolve(self, suggest: Suggest) -> Settings:
        """Return the point of the space with the values that `suggest` returns.

        It is called with name and domain of each active parameter that has one and is not pinned,
        in the order of `order`.

        Raises:
            Forbidden: the point is forbidden.
            BadSpace: an expression has no value there, for example after a division by zero.
            SweepError: a suggested or pinned value is not in its domain.
        """
        values: dict[str, Any] = {}
        for name in self.order:
            if name in self._always_active or self.is_active(name, values):
                values[name] = self.resolve_parameter(name, values, suggest)
        for clause in self.forbidden:
            if clause.holds(values):
                raise Forbidden(clause, values)
        return self.settings(values)

    def has(self, searched: Mapping[str, Any]) -> bool:
        """Return whether all searched values of a trial are in the domains of this space.

        Values of a trial from before a change of the space may not be, and a parameter that is no
        longer searched is not. Missing ones, conditions, pinned values and forbidden combinations
        are not checked.
        """
        return all(
            name in self.searched and self.domain_of(name).contains(value)
            for name, value in searched.items()
        )

    def draw(self, seed: int) -> Settings:
        """Return a random point of the space; equal seeds give equal points.

        Raises BadSpace if none of `DRAWS` random points is valid: not forbidden, and with a value
        of each expression.
        """
        return self._draw(rng.generator(seed, "draw", number) for number in range(DRAWS))

    def sample(self, stream: "np.random.Generator") -> Settings:
        """Return a random point of the space, drawn from a random stream, which it advances.

        Raises BadSpace if none of `DRAWS` random points is valid.
        """
        return self._draw(itertools.repeat(stream, DRAWS))

    def _draw(self, streams: Iterable["np.random.Generator"]) -> Settings:
        """Draw a random point from each stream until one is valid, and return it.

        Raises BadSpace if none is valid; it tells why the last one was not.
        """
        for stream in streams:
            try:
                return self.resolve(partial(_sample, stream))
            except BadSpace as error:
                refusal = error
        if not isinstance(refusal, Forbidden):
            raise refusal
        raise BadSpace(
            refusal.key,
            refusal.value,
            "a space of which more than a thousandth is allowed",
            "narrow the ranges, or forbid less",
            place=Place(refusal.file, refusal.line),
            problem=f"none of {DRAWS} randomly drawn points is allowed; the last one: {refusal}",
        )

    def settings(self, values: Mapping[str, Any]) -> Settings:
        """Return the point at which the active parameters have these values, by name, unchecked.

        Parameters that `values` lacks are inactive.
        """
        searched = {name: values[name] for name in self.searched if name in values}
        return Settings(
            searched, {name: values[name] for name in self._public_names if name in values}
        )

    def check_against(self, config: Mapping[str, Any]) -> None:
        """Raise BadConfig if the spec's ``config`` sets one of the settings, or blocks its path."""
        checks.check_against(self.parameters, self.source, config)

    @staticmethod
    def nest(settings: Mapping[str, Any], base_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a deep copy of `base_config` with `settings` inserted at their dotted paths.

        Mappings that are missing on the way are created, and values that are there replaced.
        """
        nested = copy.deepcopy(dict(base_config))
        for name, value in settings.items():
            *parents, last = name.split(".")
            inner = nested
            for part in parents:
                inner = inner.setdefault(part, {})
            inner[last] = copy.deepcopy(value)
        return nested

    def describe(self) -> list[str]:
        """Return a line for each parameter, in the file's order, and each forbidden combination."""
        width = max((len(name) for name in self.parameters), default=0)
        lines = [f"{name:<{width}}  {p.describe()}" for name, p in self.parameters.items()]
        return lines + [f"never {clause.describe()}" for clause in self.forbidden]

    # ---- resolution of one point ------------------------------------------------------------

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names of all parameters in the order in which their values are resolved.

        Each comes after those that its conditions and its expression use.
        """
        return checks.order_names(self.parameters)

    @cached_property
    def _public_names(self) -> tuple[str, ...]:
        """Names of the parameters that the trainable gets, in the order of the file.

        No part of such a name begins with an underscore.
        """
        return tuple(name for name, parameter in self.parameters.items() if not parameter.hidden)

    @cached_property
    def _always_active(self) -> frozenset[str]:
        """Names of the parameters that have no condition and need only such ones.

        They are active at every point of the space.
        """
        found = set[str]()
        for name in self.order:
            parameter = self.parameters[name]
            if not parameter.when and found.issuperset(parameter.needs):
                found.add(name)
        return frozenset(found)

    def is_active(self, name: str, values: Mapping[str, Any]) -> bool:
        """Return whether a parameter is active at a point.

        `values` has the values of all earlier parameters that are active. A parameter is inactive
        if one that it needs is not in them, or a condition does not hold. Raises BadSpace if a
        condition has no value.
        """
        parameter = self.parameters[name]
        if any(needed not in values for needed in parameter.needs):
            return False
        try:
            return hold(parameter.when, values)
        except ExpressionError as error:
            text = " and ".join(condition.describe() for condition in parameter.when)
            raise self._no_value_error((*parameter.path, "when"), text, error, values) from error

    def derive(self, name: str, derived: Derived, values: Mapping[str, Any]) -> Any:
        """Compute the value of a derived parameter from `values` of the others.

        Raises BadSpace if its expression has none.
        """
        expression = derived.expression
        try:
            return expression.evaluate(values)
        except ExpressionError as error:
            path = (*self.parameters[name].path, "value")
            given = {needed: values[needed] for needed in expression.names}
            raise self._no_value_error(path, expression.text, error, given) from error

    def resolve_parameter(self, name: str, values: Mapping[str, Any], suggest: Suggest) -> Any:
        """Return the value of an active parameter: fixed, derived, pinned or suggested.

        `values` are those of earlier parameters. Raises SweepError if a suggested or pinned value
        is not in its domain, BadSpace if an expression has no value.
        """
        role = self.parameters[name].role
        if isinstance(role, Fixed):
            return role.value
        if isinstance(role, Derived):
            return self.derive(name, role, values)
        value = self.pinned[name] if name in self.pinned else suggest(name, role)
        if role.contains(value):
            return value
        raise SweepError(
            f"the searcher proposed {shorten(value)} for {name}, which allows {role.describe()}"
        )

    def _no_value_error(
        self, path: tuple[str | int, ...], text: str, error: Exception, values: Mapping[str, Any]
    ) -> Exception:
        """Return the error that the expression `text` at `path` has no value at a point.

        `values` has name → value at that point, and `error` tells why.
        """
        at = ", ".join(f"{name} = {shorten(value, 30)}" for name, value in values.items())
        return self.source.refuse(
            path,
            text,
            "a finite number or text everywhere in the space",
            problem=f"{text!r} {error}" + (f", at {at}" if at else ""),
        )


def _overlap(key: str, name: str) -> bool:
    """Return whether one dotted name is within the other or equals it.

    ``*`` in `key` fits any part.
    """
    parts = zip(key.split("."), name.split("."), strict=False)
    return all(part in ("*", other) for part, other in parts)


def _value_at(quantile: float, _name: str, domain: Domain) -> Any:
    """Return the value of a domain at a quantile, 0 to 1; a `Suggest` function."""
    return domain.value_at(quantile)


def _sample(stream: "np.random.Generator", _name: str, domain: Domain) -> Any:
    """Draw a random value of a domain; with `stream` bound it is a `Suggest` function."""
    return sample(domain, stream)
