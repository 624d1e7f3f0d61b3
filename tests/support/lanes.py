"""The numbers of a trainer that is a lane, to be compared to the bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.trainable import Trainable


def numbers_of(
    trainer: Trainable, parts: tuple[str, ...] = ("policy", "filters", "workers", "progress")
) -> dict[str, NDArray[Any]]:
    """Return every number of these parts of a trainer's state."""
    state = trainer.get_state()["trainable"]["data"]
    found: dict[str, NDArray[Any]] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, one in value.items():
                walk(f"{name}/{key}", one)
        elif isinstance(value, list):
            for index, one in enumerate(value):
                walk(f"{name}/{index}", one)
        elif isinstance(value, int | float | np.ndarray | np.generic):
            found[name] = np.asarray(value)

    walk("", {key: state[key] for key in parts})
    return found


def assert_same(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> None:
    """Compare all numbers to the bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name
