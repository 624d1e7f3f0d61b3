"""Exploration from one point of a space: a parent's settings, each perturbed or resampled.

Jaderberg et al., Population Based Training of Neural Networks, 2017, section 4.1.1 and appendix A.
"""

import contextlib
import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from sweep.core.errors import BadConfig, BadSpace
from sweep.schedulers import SchedulerContext
from sweep.spec.space import Choice, Domain, Float, Int, Normal, Ordinal, Space, choice_key, sample
from trainables.errors import nearest, shorten

#: Maximum number of attempts to find a valid point.
ATTEMPTS = 100


def explore(
    space: Space,
    searched: dict[str, Any],
    names: Collection[str],
    stream: np.random.Generator,
    resample_probability: float = 0.25,
    factors: Sequence[float] = (1.2, 0.8),
) -> dict[str, Any]:
    """Return the searched values of an offspring: its parent's, some perturbed or sampled anew.

    Args:
        searched: the parent's searched values, by parameter.
        names: parameters that change; the others are inherited. A parameter that only the offspring
            has, or whose inherited value the space no longer allows, is sampled.
        stream: random stream from which all choices are drawn.
        resample_probability: probability that a parameter is sampled instead of perturbed.
        factors: factors of a perturbation, one of which is chosen at random.

    Returns:
        A valid point, or the parent's values if none of `ATTEMPTS` points is valid; values outside
        a changed space are then replaced by the middle of their domains.

    Raises:
        BadSpace: the parent's values are not valid either.
    """

    def suggest(name: str, domain: Domain) -> Any:
        """Return a parameter's value for the offspring: kept, perturbed or drawn anew."""
        if name not in searched or not domain.contains(searched[name]):
            return sample(domain, stream)
        if name not in names:
            return searched[name]
        if stream.random() < resample_probability:
            return sample(domain, stream)
        if isinstance(domain, Choice | Ordinal):
            return _neighbour(domain, searched[name], stream)
        return perturbed(domain, searched[name], factors[int(stream.integers(len(factors)))])

    for _ in range(ATTEMPTS):
        with contextlib.suppress(BadSpace):
            return space.resolve(suggest).searched
    return space.resolve(partial(_inherit, searched)).searched


def is_in(space: Space, searched: dict[str, Any]) -> bool:
    """Return whether the space allows these values, by parameter, together.

    A parameter that is missing, or whose value is outside its domain, counts as the middle of it.
    """
    try:
        space.resolve(partial(_inherit, searched))
    except BadSpace:
        return False
    return True


def _inherit(searched: dict[str, Any], name: str, domain: Domain) -> Any:
    """Return the value of parameter `name` in `searched`, or else the middle of its domain.

    It is the middle, too, if the value is not in the domain.
    """
    inherited = name in searched and domain.contains(searched[name])
    return searched[name] if inherited else domain.value_at(0.5)


def _neighbour(domain: Choice | Ordinal, value: Any, stream: np.random.Generator) -> Any:
    """Return the choice before or after `value` in the order of the spec, drawn from `stream`.

    Returns `value` itself if it is the only choice.
    """
    place = domain.index[choice_key(value)]
    places = [p for p in (place - 1, place + 1) if 0 <= p < len(domain.values)]
    return domain.values[places[int(stream.integers(len(places)))]] if places else value


def perturbed(domain: Float | Int | Normal, value: float, factor: float) -> float:
    """Return `value` times `factor`, rounded into the domain.

    On a grid it is at least one step away, unless the product equals `value` or the domain ends
    there.
    """
    wanted = value * factor
    found = domain.snap(wanted)
    if found == value and domain.step and wanted != value:
        return domain.snap(value + math.copysign(domain.step, wanted - value))
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return a text with the settings that differ between a parent and its offspring.

    `before` and `after` are their searched values, by parameter; parameters that only the parent
    has are left out. Without a difference, the text is ``the same settings``.
    """
    changed = [
        f"{name} {_short(before[name])} → {_short(after[name])}"
        if name in before
        else f"{name} {_short(after[name])}"
        for name in after
        if name not in before or before[name] != after[name]
    ]
    return ", ".join(changed) or "the same settings"


def _short(value: Any) -> str:
    """Return a float with four digits, and any other value as JSON."""
    return f"{value:.4g}" if isinstance(value, float) else choice_key(value)


def check_names(names: Sequence[str] | None, context: SchedulerContext) -> tuple[str, ...]:
    """Return the names of the parameters that offspring change: `names`, or all that may change.

    Raises BadConfig if none may change, or one of `names` is not proposed or must be inherited.
    """
    searched = tuple(context.space.domains)
    if not searched:
        problem = "no parameter is searched, so the trials of a population could not differ"
        hint = "search at least one parameter, or use another scheduler"
        raise BadConfig("space", "no searched parameter", hint=hint, problem=problem)
    open_ = tuple(name for name in searched if name not in context.fixed)
    if not open_:
        problem = (
            f"none of {', '.join(searched)} can change from parent to child, because a child "
            "continues from its parent's checkpoint, which fixes them"
        )
        hint = "search another parameter too, or use another scheduler"
        raise BadConfig("space", searched, hint=hint, problem=problem)
    key = "scheduler.hyperparam_mutations"
    for name in names or ():
        if name not in searched:
            allowed = f"one of {', '.join(searched)}"
            problem = f"{shorten(name)} is not a searched parameter"
            raise BadConfig(key, name, allowed, nearest(name, searched), problem=problem)
        if name in context.fixed:
            allowed = f"one of {', '.join(open_)}"
            problem = (
                f"{name} cannot change from parent to child, because the parent's checkpoint "
                "fixes it"
            )
            raise BadConfig(key, name, allowed, problem=problem)
    return tuple(open_ if names is None else names)
