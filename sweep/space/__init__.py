"""The search-space language as typed data: which settings a searcher proposes, and what follows.

    space = Space.parse({"lr": {"loguniform": [1e-5, 1e-2]}, "gamma": 0.99})
    found = space.resolve(lambda name, domain: sample(domain, generator))
    config = space.nest(found.settings, {"env": "CartPole-v1"})

The words of the language stand in `sweep.space.reader`. A name's dots reach into nested
settings. A parameter is settled after those that it needs, in an order that the file alone decides.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sweep.errors import SweepError
from sweep.source import Source
from sweep.space.domains import Choice, Domain, Float, Int, Ordinal, sample
from sweep.space.expressions import ExpressionError
from sweep.space.normal import Normal
from sweep.space.parameters import Condition, Derived, Fixed, Parameter
from sweep.space.reader import read
from sweep.space.values import choice_key, same
from trainables.errors import nearest, shorten

__all__ = [
    "Choice",
    "Derived",
    "Domain",
    "Fixed",
    "Float",
    "Int",
    "Normal",
    "Ordinal",
    "Parameter",
    "Settings",
    "Space",
    "choice_key",
    "sample",
]

MOST_PARAMETERS = 1000
#: How many names of the space a message lists.
_SHOWN = 20

Suggest = Callable[[str, Domain], Any]


@dataclass(frozen=True)
class Settings:
    """One point of a space."""

    searched: dict[str, Any]
    """What the searcher proposed: active parameters only, those with a leading underscore too."""
    settings: dict[str, Any]
    """What the trainable gets, by dotted name: proposed, fixed and derived, without underscores."""


@dataclass(frozen=True)
class Space:
    """Parameters by name, in the order of the file; `parse` makes it and refuses mistakes."""

    parameters: Mapping[str, Parameter]
    raw: Mapping[str, Any] = field(repr=False)
    """The plain data that it was read from."""
    where: Source = field(repr=False)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], where: Source | None = None) -> "Space":
        """Read a space.

        Args:
            raw: name → what it may be, plain data.
            where: the source of the spec that ``space`` is a key of.

        Raises:
            BadSpace: it cannot work; says where and why.
        """
        below = (where or Source()).below("space")
        if len(raw) > MOST_PARAMETERS:
            raise below.refuse(
                (), f"{len(raw)} parameters", f"at most {MOST_PARAMETERS} parameters"
            )
        space = cls({name: read(name, item, below) for name, item in raw.items()}, raw, below)
        for parameter in space.parameters.values():
            space._check_needs(parameter)
        space._check_order()
        space._check_names()
        space._check_corners()
        return space

    @property
    def domains(self) -> dict[str, Domain]:
        """Searched parameter → what may be proposed, in the order of the file."""
        return {
            name: parameter.role
            for name, parameter in self.parameters.items()
            if not isinstance(parameter.role, Fixed | Derived)
        }

    @property
    def searched(self) -> tuple[str, ...]:
        """The names that a searcher proposes, those with a leading underscore too."""
        return tuple(self.domains)

    def resolve(self, suggest: Suggest) -> Settings:
        """One point of the space.

        Args:
            suggest: (name, domain) → value; called for each active searched parameter.

        Raises:
            BadSpace: an expression has no value here, for example after a division by zero.
        """
        values: dict[str, Any] = {}
        for name in self._order:
            parameter = self.parameters[name]
            if self._is_active(parameter, values):
                values[name] = self._settle(parameter, values, suggest)
        shown = (n for n, p in self.parameters.items() if n in values and not p.hidden)
        searched = {name: values[name] for name in self.searched if name in values}
        return Settings(searched, {name: values[name] for name in shown})

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

    def check_against(self, config: Mapping[str, Any]) -> None:
        """Raise BadConfig where `config` sets what the space sets too, or bars its way."""
        whole = Source(self.where.file, self.where.marks)
        for name, parameter in self.parameters.items():
            clash = None if parameter.hidden else _clash(config, name.split("."))
            if clash is None:
                continue
            path, value = clash
            raise whole.refuse(
                ("config", *path),
                value,
                f"no value, since space sets {name} (at {self.where.at((name,))})",
                f"remove one of the two; --set space.{name}=VALUE fixes a searched setting",
            )

    def size(self) -> int | None:
        """How many different points there are; None: infinitely many.

        An upper bound where parameters are conditional: each counts as if it were active.
        """
        size = 1
        for domain in self.domains.values():
            count = domain.size()
            if count is None:
                return None
            size *= count
        return size

    def describe(self) -> list[str]:
        """One line per parameter, in the order of the file."""
        width = max((len(name) for name in self.parameters), default=0)
        return [f"{name:<{width}}  {p.describe()}" for name, p in self.parameters.items()]

    def to_json(self) -> str:
        """The space as JSON, in the order of the file, which decides the order of proposals."""
        return json.dumps(self.raw, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Space":
        """The space that `to_json` wrote."""
        return cls.parse(json.loads(text))

    # ---- one point --------------------------------------------------------------------------

    @cached_property
    def _order(self) -> tuple[str, ...]:
        graph = {name: parameter.needs for name, parameter in self.parameters.items()}
        return tuple(TopologicalSorter(graph).static_order())

    @staticmethod
    def _is_active(parameter: Parameter, values: Mapping[str, Any]) -> bool:
        if any(name not in values for name in parameter.needs):
            return False
        return all(any(same(values[c.parent], v) for v in c.values) for c in parameter.when)

    def _settle(self, parameter: Parameter, values: Mapping[str, Any], suggest: Suggest) -> Any:
        match parameter.role:
            case Fixed(value):
                return value
            case Derived():
                return self._derive(parameter.name, parameter.role, values)
            case domain:
                value = suggest(parameter.name, domain)
                if domain.contains(value):
                    return value
        raise SweepError(
            f"the searcher proposed {shorten(value)} for {parameter.name}, "
            f"which allows {domain.describe()}"
        )

    def _derive(self, name: str, derived: Derived, values: Mapping[str, Any]) -> Any:
        expression = derived.expression
        try:
            return expression.evaluate(values)
        except ExpressionError as error:
            given = ", ".join(f"{n} = {shorten(values[n], 30)}" for n in expression.names)
            raise self.where.refuse(
                (name, "value"),
                expression.text,
                "a finite number everywhere in the space",
                problem=f"{expression.text!r} {error}" + (f", at {given}" if given else ""),
            ) from error

    # ---- checks of the whole ----------------------------------------------------------------

    def _check_needs(self, parameter: Parameter) -> None:
        if isinstance(parameter.role, Derived):
            for name in parameter.role.expression.names:
                self._check_known(name, parameter.name, "value")
        for condition in parameter.when:
            self._check_known(condition.parent, parameter.name, "when", condition.parent)
            self._check_condition(parameter.name, condition)

    def _check_known(self, name: str, *path: str) -> None:
        if name in self.parameters:
            return
        known = ", ".join(list(self.parameters)[:_SHOWN])
        more = ", …" if len(self.parameters) > _SHOWN else ""
        hint = nearest(name, self.parameters) or "a fixed setting can stand in space too"
        raise self.where.refuse(path, name, f"a parameter of this space: {known}{more}", hint)

    def _check_condition(self, name: str, condition: Condition) -> None:
        parent = self.parameters[condition.parent]
        for value in condition.values:
            if not _can_be(parent, value):
                raise self.where.refuse(
                    (name, "when", condition.parent),
                    value,
                    f"a value that {condition.parent} can take: {parent.describe()}",
                    "a value that is a list stands in a list of its own: [[…]]",
                )

    def _check_order(self) -> None:
        try:
            self._order  # noqa: B018 computing it is the check
        except CycleError as error:
            circle = list(reversed(error.args[1]))
            raise self.where.refuse(
                (circle[0],),
                " needs ".join(circle),
                "parameters that do not need themselves",
                "remove one of these when or value entries",
            ) from error

    def _check_names(self) -> None:
        for name in self.parameters:
            parts = name.split(".")
            for end in range(1, len(parts)):
                outer = ".".join(parts[:end])
                if outer in self.parameters:
                    hint = f"{outer} stands at {self.where.at((outer,))}; remove one of the two"
                    raise self.where.refuse((name,), name, f"no name inside {outer}", hint)

    def _check_corners(self) -> None:
        """Try the lowest and the highest values at once: no expression may fail there."""
        self.resolve(lambda _, domain: domain.at(0.0))
        self.resolve(lambda _, domain: domain.at(1.0))


def _can_be(parameter: Parameter, value: Any) -> bool:
    match parameter.role:
        case Fixed(fixed):
            return choice_key(fixed) == choice_key(value)
        case Derived():
            return isinstance(value, int | float)
        case domain:
            return domain.contains(value)


def _clash(config: Mapping[str, Any], parts: list[str]) -> tuple[tuple[str, ...], Any] | None:
    """Path and value in `config` that stand where `parts` leads, or in its way."""
    inner: Any = config
    for end, part in enumerate(parts, start=1):
        if part not in inner:
            return None
        inner = inner[part]
        if end == len(parts) or not isinstance(inner, Mapping):
            return tuple(parts[:end]), inner
    return None
