"""Cases of a test, of which only some run with the slow tests and the others as proofs."""

from collections.abc import Container, Iterable

import pytest
from _pytest.mark import ParameterSet


def proofs_except(kept: Container[object], cases: Iterable[object]) -> list[ParameterSet]:
    """Return the cases as parameters, of which those that are not in `kept` are marked as proofs.

    A case that is a tuple has the values of several arguments.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if case in kept else [pytest.mark.proof],
        )
        for case in cases
    ]
