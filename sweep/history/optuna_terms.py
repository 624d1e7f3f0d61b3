"""Optuna's classes for a sweep's objective and space, for searchers and for the copy in its tables.

    value = ask(trial, name, domain, view)           let a sampler propose
    encode(domain, value, view)                      convert a value to that of a study

A domain has one of two views in a study:

    modelled   for samplers: choices as canonical JSON strings, without weights, since a model finds
               out by itself which are good; ordered choices as indices; on a log scale with a step
               as any number; normal domains, and those that Optuna cannot hold, as quantiles
    shown      for people (the copy in Optuna's tables): the values themselves; lists and mappings
               as canonical JSON, since Optuna's tables cannot hold them

A sampler's choices are strings since Optuna compares them with ``==`` and takes 1, 1.0 and True for
the same. A parameter with two such choices is shown as JSON too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from sweep.history.events import Status
from sweep.history.objective import Objective
from sweep.spec.space import Choice, Domain, Float, Int, Normal, Ordinal, choice_key

#: Studies are an implementation detail: do not print Optuna's messages about them.
optuna.logging.set_verbosity(optuna.logging.WARNING)

#: Purpose of a study: a sampler's model, or a display.
View = Literal["modelled", "shown"]
#: Optuna's word for the mode of an objective.
Direction = Literal["maximize", "minimize"]
#: Status of a trial → Optuna's state.
STATES: Mapping[Status, TrialState] = {
    Status.WAITING: TrialState.WAITING,
    Status.RUNNING: TrialState.RUNNING,
    Status.PAUSED: TrialState.RUNNING,
    Status.COMPLETED: TrialState.COMPLETE,
    Status.PRUNED: TrialState.PRUNED,
    Status.STOPPED: TrialState.PRUNED,
    Status.FAILED: TrialState.FAIL,
}


def direction(objective: Objective) -> Direction:
    """Return ``maximize`` or ``minimize``, Optuna's word for the metric's direction."""
    return directions(objective)[0]


def directions(objective: Objective) -> list[Direction]:
    """Return ``maximize`` or ``minimize`` for each objective, the metric's first."""
    return ["maximize" if sign > 0 else "minimize" for sign in objective.signs]


def finite(violations: Sequence[float]) -> tuple[float, ...]:
    """Return constraint violations with 1e100 in place of infinity, which Optuna cannot hold."""
    return tuple(min(violation, 1e100) for violation in violations)


def distribution(domain: Domain, view: View = "modelled") -> BaseDistribution:
    """Return Optuna's distribution for the values that `encode` makes of a domain's.

    `view` is ``modelled`` for a sampler, with choices as texts and some ranges as quantiles, or
    ``shown`` for people, with the values themselves.
    """
    match _equivalent_domain(domain, view):
        case Float(low=low, high=high, log=log, step=step):
            return FloatDistribution(low, high, log=log, step=step)
        case Int(low=low, high=high, log=log, step=step):
            return IntDistribution(low, high, log=log, step=step)
        case Choice() as choice:
            return CategoricalDistribution(_coded_choices(choice, view))


def _equivalent_domain(domain: Domain, view: View) -> Float | Int | Choice:
    """Return the domain of the values that a study stores for those of `domain`.

    With the view ``modelled``, for a sampler, ordered choices become indices; normal domains, and
    those that samplers cannot hold exactly, become the range 0 to 1 of quantiles. With ``shown``,
    for people, values stay what they are, but a step may be left out. With both views, a log range
    with a step becomes one without.
    """
    match domain:
        case Float() | Int() if not _is_exact_in_optuna(domain):
            if view == "modelled":
                return _QUANTILE
            return replace(domain, step=None) if isinstance(domain, Float) else domain
        case Float() | Int() if domain.is_rounded:
            return Float(*domain.edges, log=True)
        case Ordinal():
            shown = view == "shown"
            return Choice(domain.values) if shown else Int(0, len(domain.values) - 1)
        case Normal():
            shown = view == "shown"
            return (
                Float(domain.value_at(0.0), domain.value_at(1.0), domain.log)
                if shown
                else _QUANTILE
            )
    return domain


#: Domain of a quantile, for numbers that Optuna gets as quantiles.
_QUANTILE = Float(0.0, 1.0)
#: Maximum number of values of a grid for a sampler. Beyond it, Optuna's Gaussian process would list
#: all values in gigabytes of memory, and rounding to a step would be inexact.
MOST_VALUES = 10_000
#: Maximum distance of a value from 0 in steps: beyond it neighbours are equal after rounding.
MOST_STEPS = 10**9
#: Minimum and maximum width of a continuous range, so that its square is a positive finite number.
WIDTHS = (1e-150, 1e150)


def _is_exact_in_optuna(domain: Float | Int) -> bool:
    """Return whether Optuna's samplers can represent all values exactly and in little memory.

    There are at most `MOST_VALUES`, none farther from 0 than `MOST_STEPS` steps; or the range is
    continuous, and on a log scale or of a width within `WIDTHS`.
    """
    size = domain.size()
    if size is None:
        return domain.log or WIDTHS[0] <= domain.high - domain.low <= WIDTHS[1]
    farthest = max(abs(domain.low), abs(domain.high))
    return size <= MOST_VALUES and farthest <= MOST_STEPS * (domain.step or 1)


def encode(domain: Domain, value: Any, view: View = "modelled") -> Any:
    """Return a value of a domain as stored in a study; `distribution` always contains it.

    `view` is ``modelled`` for a sampler, with choices as texts and some numbers as quantiles, or
    ``shown`` for people.
    """
    match domain:
        case Float() | Int() if view == "modelled" and not _is_exact_in_optuna(domain):
            return domain.quantile(value)
        case Float() | Int() if domain.is_rounded:
            return float(value)
        case Ordinal() if view != "shown":
            return domain.index[choice_key(value)]
        case Normal() if view == "shown":
            return min(max(value, domain.value_at(0.0)), domain.value_at(1.0))
        case Normal():
            return domain.quantile(value)
        case Choice() | Ordinal() if view == "shown":
            return _coded_choices(domain, view)[domain.index[choice_key(value)]]
        case Choice():
            return choice_key(value)
    return value


def _coded_choices(domain: Choice | Ordinal, view: View) -> list[Any]:
    """Return the choices of a domain as stored in a study, in order and pairwise different.

    They are JSON texts. With the view ``shown``, they are the values, with lists and mappings as
    JSON, unless Optuna would take two of them for the same.
    """
    if view == "shown":
        shown = [
            value if value is None or isinstance(value, str | int | float) else choice_key(value)
            for value in domain.values
        ]
        if len(set(shown)) == len(shown):
            return shown
    return list(domain.values_by_key)


def decode(domain: Domain, coded: Any, view: View = "modelled") -> Any:
    """Return the value of a domain that `coded` stands for in a study, rounded to the domain.

    `view` must be that of the study: ``modelled`` for a sampler, ``shown`` for people.
    """
    match domain:
        case Float() | Int() if view == "modelled" and not _is_exact_in_optuna(domain):
            return domain.value_at(coded)
        case Float():
            return domain.snap(coded)
        case Int():
            return domain.snap(coded) if domain.is_rounded else coded
        case Ordinal() if view != "shown":
            return domain.values[coded]
        case Normal():
            return domain.snap(coded) if view == "shown" else domain.value_at(coded)
        case Choice() | Ordinal() if view == "shown":
            return domain.values[_coded_choices(domain, view).index(coded)]
        case Choice() | Ordinal():
            return domain.values_by_key[coded]


def ask(trial: optuna.Trial, name: str, domain: Domain, view: View = "modelled") -> Any:
    """Let the sampler of an Optuna trial propose a value for parameter `name`.

    Returns the value in the domain. The Optuna trial stores what `encode` makes of it with `view`:
    ``modelled`` for a sampler, ``shown`` for people.
    """
    match distribution(domain, view):
        case FloatDistribution(low=low, high=high, log=log, step=step):
            coded: Any = trial.suggest_float(name, low, high, log=log, step=step)
        case IntDistribution(low=low, high=high, log=log, step=step):
            coded = trial.suggest_int(name, low, high, log=log, step=step)
        case CategoricalDistribution(choices=choices):
            coded = trial.suggest_categorical(name, choices)
    return decode(domain, coded, view)
