"""Make the space of a spec smaller, which is the only change of a spec that a model may make.

    {"lr": {"between": [1e-4, 1e-3]}, "activation": {"among": ["tanh"]}}

The result contains values of the person's space only. A value of the model is never copied into the
spec: it selects a number of a range, or values of a list, and the spec gets those of the space. So
no text of a model reaches a trainable, unless the space has this text as a choice.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from sweep import spec as specs
from sweep.core.errors import BadConfig, KeyPath, Source, UnknownName, UsageError
from sweep.spec import Override, SweepSpec
from sweep.spec.space import Choice, Domain, Float, Int, Normal, Ordinal, Space, canonical, initial
from sweep.spec.space.checks import possible_combinations
from sweep.spec.space.domains import choice_key
from trainables.core.settings import Settings

Number = int | float
#: Keywords of parameters with a list of values.
_LISTS = ("choice", "ordinal", "grid")
#: Overrides of what depends on the values of a space: its initial points, and what is forbidden.
_NOTHING_ELSE = (Override("initial", [], "initial"), Override("forbid", [], "forbid"))


class Narrowing(Settings):
    """The part of one parameter's values that a language model keeps: a numeric range or a list.

    Exactly one of `between` and `among` must be set.
    """

    between: Annotated[tuple[Number, Number], Field(strict=False)] | None = Field(
        None, description="Lowest and highest value that are left of a numeric range."
    )
    among: Annotated[tuple[Any, ...], Field(strict=False)] | None = Field(
        None, description="Values that are left, all of them values of the parameter."
    )


def narrow_spec(
    text: str, file: str, name: str, narrow: Mapping[str, Narrowing], trials: int
) -> tuple[SweepSpec, list[Override]]:
    """Return the spec after its space was narrowed, and the overrides of keys that lead to it.

    The overrides also set the number of trials. A list on which conditions of other parameters
    depend stays as it is, and ``forbid`` excludes the values that are not kept. Combinations that
    the spec forbids and that the smaller space does not contain are left out. Of the points that
    the spec tries first (`initial`), those outside the smaller space are dropped, then those
    beyond the number of trials.

    Args:
        text: YAML text of the spec.
        file: path of the spec, for messages.
        name: name of the sweep if the text has none.
        narrow: searched parameter → the part of its values that is kept.
        trials: number of trials of the sweep.

    Raises:
        UsageError: the spec has mistakes, it does not search a parameter, a value is not in the
            space, or the smaller space has no point.
    """
    whole = _read(text, file, name, [])
    space, never = whole.space, list(whole.forbid)
    parents = {needed for parameter in space.parameters.values() for needed in parameter.needs}
    changes = []
    for parameter, wish in narrow.items():
        change = _override(space, parameter, wish)
        if parameter in parents and isinstance(
            domain := space.domain_of(parameter), Choice | Ordinal
        ):
            # Conditions of others may name values that are gone, which a space refuses.
            never += _complement(domain, parameter, change.value)
        else:
            changes.append(change)
    if changes and never:  # a smaller space refuses a combination that can no longer be
        without = _read(text, file, name, [*changes, *_NOTHING_ELSE])
        never = possible_combinations(never, without.space.parameters)
    if never != list(whole.forbid):
        changes.append(Override("forbid", never, "forbid"))
    number = Override("trials", trials, f"trials {trials}")
    smaller = _read(text, file, name, [*changes, *_NOTHING_ELSE[:1]]).space
    kept = [given for given in whole.initial if _fits(smaller, given)][:trials]
    if len(kept) < len(whole.initial):
        changes.append(Override("initial", [dict(given) for given in kept], "initial"))
    changes.append(number)
    return _read(text, file, name, changes), changes


def _read(text: str, file: str, name: str, changes: Sequence[Override]) -> SweepSpec:
    """Return the spec in the YAML `text` with `changes` applied; UsageError if it has mistakes."""
    spec, found = specs.survey(text, file, changes, name)
    found.check()
    return spec


def _fits(space: Space, settings: Mapping[str, Any]) -> bool:
    """Return whether `settings`, parameter → value, are a part of an allowed point of the space."""
    with contextlib.suppress(UsageError):
        initial.check(space, [settings], Source())
        return True
    return False


def _override(space: Space, name: str, wish: Narrowing) -> Override:
    """Return the override of a parameter's key in ``space`` that leaves only the values of `wish`.

    The parameter's ``when`` is kept. Raises UnknownName if the space does not search the parameter,
    BadConfig if it has no such value, or if `wish` has both or neither of range and list.
    """
    if name not in space.searched:
        raise UnknownName("searched parameter", name, space.searched)
    parameter, domain, key = space.parameters[name], space.domain_of(name), f"narrow.{name}"
    if (wish.between is None) == (wish.among is None):
        neither, both = "neither between nor among is given", "both between and among are given"
        problem = neither if wish.among is None else both
        given = wish.model_dump(exclude_none=True)
        raise BadConfig(key, given, hint="give one of the two", problem=problem)
    if wish.between is not None:
        words = _range(domain, wish.between, f"{key}.between")
    else:
        words = _list(domain, wish.among or (), f"{key}.among", parameter.crossed)
    if (when := _raw(space, parameter.path).get("when")) is not None:
        words["when"] = when
    return Override(".".join(("space", *map(str, parameter.path))), words, key)


def _complement(domain: Choice | Ordinal, name: str, words: Mapping[str, Any]) -> list[Any]:
    """Return the entries for ``forbid`` that exclude the values of a domain missing from `words`.

    `words` is the YAML description of the smaller domain. The list has the one entry
    ``{name: [missing, …]}``, or none if no value is missing.
    """
    left = {choice_key(value) for kind in _LISTS for value in words.get(kind, ())}
    gone = [value for key, value in domain.values_by_key.items() if key not in left]
    return [{name: gone}] if gone else []


def _raw(space: Space, path: KeyPath) -> Mapping[str, Any]:
    """Return the YAML description of the parameter at `path` below ``space``, as in the file."""
    found: Any = space.raw
    for part in path:
        found = found[part]
    return dict(found)


def _range(domain: Domain, bounds: tuple[Number, Number], place: str) -> dict[str, Any]:
    """Return the YAML description of a numeric domain restricted to `bounds` (low, high).

    Scale, step, and mean and deviation are kept. Raises BadConfig if the domain is not numeric or
    does not contain both bounds, or if low is not below high. `place` is the key that errors name.
    """
    if not isinstance(domain, Float | Int | Normal):
        problem = "the parameter has a list of values, not a range"
        raise BadConfig(place, list(bounds), hint="give among instead of between", problem=problem)
    low, high = (_allowed_value(domain, bound, place) for bound in bounds)
    if low >= high:
        hint = "give the lower value first; to fix the parameter, give among with one value"
        problem = f"{low} is not below {high}"
        raise BadConfig(place, list(bounds), hint=hint, problem=problem)
    more = {} if domain.step is None else {"step": domain.step}
    log = "log" if domain.log else ""
    if isinstance(domain, Normal):
        return {f"{log}normal": [domain.mu, domain.sigma], "bounds": [low, high], **more}
    return {log + ("randint" if isinstance(domain, Int) else "uniform"): [low, high], **more}


def _list(domain: Domain, values: Sequence[Any], place: str, crossed: bool) -> dict[str, Any]:
    """Return the YAML description of a domain restricted to `values`, in the domain's order.

    A numeric domain becomes an ``ordinal`` of the ascending values. `crossed` is true for a
    parameter of the grid. Raises BadConfig if there are no values, or one is not in the domain.
    `place` is the key that errors name.
    """
    if not values:
        raise BadConfig(place, [], "at least one value")
    allowed = [_allowed_value(domain, value, place) for value in values]
    wanted = {choice_key(value): value for value in allowed}
    if not isinstance(domain, Choice | Ordinal):
        return {"ordinal": sorted(wanted.values())}
    left = [value for key, value in domain.values_by_key.items() if key in wanted]
    if isinstance(domain, Ordinal):
        return {"ordinal": left}
    if domain.weights is None:
        return {"grid" if crossed else "choice": left}
    weights = zip(domain.values_by_key, domain.weights, strict=True)
    return {"choice": left, "weights": [weight for key, weight in weights if key in wanted]}


def _allowed_value(domain: Domain, value: Any, place: str) -> Any:
    """Return the domain's own object that equals `value`, so that none of a model's enters a spec.

    Raises BadConfig if the domain does not contain it; `place` is the key that the error names.
    """
    if not domain.contains(value):
        raise BadConfig(place, value, domain.describe())
    if isinstance(domain, Choice | Ordinal):
        return domain.values_by_key[choice_key(value)]
    return canonical(domain, value)
