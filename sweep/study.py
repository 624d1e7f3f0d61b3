"""Optuna's words for a sweep's objective and space, for searchers and for the copy in its tables.

Choices stand in a study as canonical JSON strings, since Optuna compares choices with ``==`` and
takes 1, 1.0 and True for the same.
"""

from typing import Any, Literal

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from sweep.history import Objective
from sweep.space import Choice, Domain, Float, Int, choice_key


def direction(objective: Objective) -> Literal["maximize", "minimize"]:
    """Optuna's word for the objective's mode."""
    return "maximize" if objective.mode == "max" else "minimize"


def distribution(domain: Domain) -> BaseDistribution:
    """Optuna's distribution of a domain."""
    match domain:
        case Float():
            return FloatDistribution(domain.low, domain.high, log=domain.log, step=domain.step)
        case Int():
            return IntDistribution(domain.low, domain.high, log=domain.log, step=domain.step or 1)
        case Choice():
            return CategoricalDistribution([choice_key(value) for value in domain.values])


def encode(domain: Domain, value: Any) -> Any:
    """A value as it stands in the study."""
    return choice_key(value) if isinstance(domain, Choice) else value
