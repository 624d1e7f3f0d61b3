"""Where values lie in their domains, 0 … 1: the other way round than `Domain.at`."""

import math

from sweep.space import Choice, Domain, Float, Int, Normal, Ordinal, choice_key

Ordered = Float | Int | Normal | Ordinal


def is_ordered(domain: Domain) -> bool:
    """Whether neighbours in the domain are alike."""
    return not isinstance(domain, Choice)


def quantile(domain: Domain, value: object) -> float:
    """A quantile at which the domain has `value`; of several the middle one.

    Raises:
        TypeError: the domain has no order, or the value is not one of it.
    """
    match domain, value:
        case Normal(), int() | float():
            return domain.quantile(value)
        case Ordinal(), _:
            return (domain.index[choice_key(value)] + 0.5) / domain.size()
        case Float() | Int(), int() | float():
            if domain.log:
                return _share(*map(math.log, (*domain.edges, value)))
            half = (domain.step or 0.0) / 2
            return _share(domain.low - half, domain.high + half, value)
    raise TypeError(f"no place of {value!r} in {domain!r}")


def _share(low: float, high: float, value: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
