"""The check that a killed driver loses nothing: whatever was decided is decided again."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.testing.course import Course, Decision
from sweep.testing.curves import Curve, Table
from sweep.testing.simulation import Simulation


def check_kills(
    spec: Mapping[str, Any], curves: Curve | Table, slots: int = 1, saves: bool = True
) -> Course:
    """Run a sweep; for each of its transactions, kill a copy of it there and resume that one.

    Returns:
        The sweep that was not killed.

    Raises:
        AssertionError: a killed and resumed sweep decided otherwise; says after which event.
    """
    with contextlib.ExitStack() as stack:
        straight = stack.enter_context(Simulation(spec, curves, slots, saves))
        killed: list[tuple[int, Simulation]] = []
        course = straight.run(
            seen=lambda k: killed.append((k, stack.enter_context(straight.copy())))
        )
        for k, copy in killed:
            _compare(course.decisions, copy.run().decisions, k)
    return course


def _compare(expected: Sequence[Decision], found: Sequence[Decision], k: int) -> None:
    for number, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            raise AssertionError(
                f"killed after event {k}, decision {number} became {other}; it was {one}"
            )
    if len(found) != len(expected):
        raise AssertionError(
            f"killed after event {k}, it took {len(found)} decisions, not {len(expected)}"
        )
