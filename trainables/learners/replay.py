"""A replay of transitions, from which off-policy algorithms learn.

Columns are arrays of one length, allocated once; the oldest rows are written over. R rows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.core.settings import Section
from trainables.errors import ConfigError

Array = NDArray[Any]


class ReplayConfig(Section):
    """How an off-policy algorithm learns from what it has seen."""

    buffer_size: int = Field(default=50_000, gt=0, description="Transitions that are kept.")
    learning_starts: int = Field(
        default=1000, ge=0, description="Environment steps before the first update."
    )
    replay_batch_size: int = Field(
        default=32, gt=0, description="Transitions that one update learns from."
    )
    updates_per_step: int = Field(
        default=1,
        gt=0,
        description="Updates after each round of sampling, which brings train_batch_size "
        "environment steps.",
    )
    target_network_update_freq: int = Field(
        default=500,
        gt=0,
        description="Environment steps after which the target network becomes what is learnt; at "
        "most once a round.",
    )


class ReplayBuffer:
    """The latest `capacity` transitions, drawn evenly and with replacement."""

    def __init__(self, capacity: int, seed: int) -> None:
        self._capacity = capacity
        self._stream = rng.generator(seed, "replay")
        self._columns: dict[str, Array] = {}
        self._size = 0
        self._next = 0

    def __len__(self) -> int:
        return self._size

    def add(self, rows: Mapping[str, Array]) -> None:
        """Store rows, column by column (R, …); the first ones decide which columns there are.

        Raises:
            ValueError: other columns than before, or of another shape or type.
        """
        kept = {name: column[-self._capacity :] for name, column in rows.items()}
        if not self._columns:
            self._allocate(kept)
        self._check(kept)
        count = len(next(iter(kept.values())))
        chosen = (self._next + np.arange(count)) % self._capacity
        for name, column in kept.items():
            self._columns[name][chosen] = column
        self._next = (self._next + count) % self._capacity
        self._size = min(self._capacity, self._size + count)

    def sample(self, count: int) -> dict[str, Array]:
        """So many rows, copied.

        Raises:
            ValueError: there are none.
        """
        if not self._size:
            raise ValueError("the replay is empty; add rows before you sample")
        chosen = self._stream.integers(0, self._size, size=count)
        return {name: column[chosen] for name, column in self._columns.items()}

    def get_state(self) -> dict[str, Any]:
        """Entries ``columns``, ``capacity``, ``next`` and ``stream``.

        In a checkpoint file large columns become segments, of which only those are written that
        have changed (`trainables.checkpoint.segments`).
        """
        return {
            "columns": {
                name: column[: self._size].copy() for name, column in self._columns.items()
            },
            "capacity": self._capacity,
            "next": self._next,
            "stream": rng.get_generator_state(self._stream),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave.

        Raises:
            ConfigError: it was saved with another capacity.
        """
        if state["capacity"] != self._capacity:
            allowed = f"{state['capacity']}, as in the checkpoint"
            raise ConfigError("buffer_size", self._capacity, allowed)
        columns: Mapping[str, Array] = state["columns"]
        self._columns, self._size = {}, 0
        if columns:
            self._allocate(columns)
            self._size = len(next(iter(columns.values())))
        for name, column in columns.items():
            self._columns[name][: self._size] = column
        self._next = int(state["next"])
        rng.set_generator_state(self._stream, state["stream"])

    def _allocate(self, rows: Mapping[str, Array]) -> None:
        self._columns = {
            name: np.zeros((self._capacity, *column.shape[1:]), dtype=column.dtype)
            for name, column in rows.items()
        }

    def _check(self, rows: Mapping[str, Array]) -> None:
        found, known = (
            {name: (column.shape[1:], column.dtype) for name, column in columns.items()}
            for columns in (rows, self._columns)
        )
        if found != known:
            raise ValueError(f"rows of {found}, where this replay has {known}")
