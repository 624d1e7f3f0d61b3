"""The check that a killed driver loses nothing: whatever was decided is decided again."""

from collections.abc import Mapping
from typing import Any

from sweep.testing.course import Course
from sweep.testing.curves import Curve, Table
from sweep.testing.simulation import simulate


def check_kills(
    spec: Mapping[str, Any], curves: Curve | Table, slots: int = 1, saves: bool = True
) -> Course:
    """Run a sweep once, and once for each of its transactions with a kill after it.

    Returns:
        The sweep that was not killed.

    Raises:
        AssertionError: a killed and resumed sweep decided otherwise; says after which event.
    """
    straight = simulate(spec, curves, slots, saves=saves)
    expected = straight.decisions
    for k in straight.transactions:
        killed = simulate(spec, curves, slots, (k,), saves)
        for number, (one, other) in enumerate(zip(expected, killed.decisions, strict=False)):
            if one != other:
                raise AssertionError(
                    f"killed after event {k}, decision {number} became {other}; it was {one}"
                )
        if len(killed.decisions) != len(expected):
            raise AssertionError(
                f"killed after event {k}, it took {len(killed.decisions)} decisions instead of "
                f"{len(expected)}"
            )
    return straight
