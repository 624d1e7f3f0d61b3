"""A replay of transitions, from which off-policy algorithms learn, and how they get into it.

Rows are allocated once; the oldest ones are written over. R rows, B of a batch; T steps, N
environments of a fragment.
"""

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.core.settings import Section
from trainables.errors import ConfigError

Array = NDArray[Any]
Rows = Mapping[str, Array]
Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""Type and shape of one row of a column."""


class ReplayConfig(Section):
    """Settings by which an off-policy algorithm learns from its replay."""

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


class PrioritizedReplayConfig(Section):
    """Settings by which a prioritised replay draws (Schaul et al. 2016)."""

    prioritized_replay: bool = Field(
        default=False,
        description="Draw transitions by their last error, not evenly, and weigh them to make up "
        "for it.",
    )
    prioritized_replay_alpha: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Power of the error in the share of a transition; 0: all alike. "
        "Usually 0.5 to 0.7.",
    )
    prioritized_replay_beta: float = Field(
        default=0.4,
        ge=0,
        le=1,
        description="Power of the importance weights at the beginning; 1 makes up for the uneven "
        "shares in full. Usually 0.4.",
    )
    final_prioritized_replay_beta: float = Field(
        default=1.0, ge=0, le=1, description="Power of the importance weights at the end."
    )
    prioritized_replay_beta_annealing_timesteps: int = Field(
        default=50_000, gt=0, description="Environment steps from one to the other, linearly."
    )
    prioritized_replay_eps: float = Field(
        default=1e-6, gt=0, description="Added to every error, so that no share is 0."
    )

    def beta(self, timesteps: int) -> float:
        """The power of the importance weights after so many environment steps."""
        part = min(1.0, timesteps / self.prioritized_replay_beta_annealing_timesteps)
        first, last = self.prioritized_replay_beta, self.final_prioritized_replay_beta
        return first + part * (last - first)


def check_replay(config: ReplayConfig) -> None:
    """Refuse a replay that cannot hold what is learnt from.

    Raises:
        ConfigError: it holds less than the warm-up or a batch; names both settings.
    """
    for key in ("learning_starts", "replay_batch_size"):
        if config.buffer_size < (needed := getattr(config, key)):
            allowed = f"at least {needed}, which is {key}"
            raise ConfigError("buffer_size", config.buffer_size, allowed, f"or lower {key}")


class ReplayBuffer:
    """The latest `capacity` transitions, drawn evenly and with replacement."""

    prioritized: ClassVar[bool] = False

    def __init__(self, capacity: int, seed: int) -> None:
        self._capacity = capacity
        self._stream = rng.generator(seed, "replay")
        self._size = 0
        self._next = 0
        self._kinds: dict[str, Kind] = {}
        self._rows: Array = np.zeros(0, dtype=np.uint8)
        """(capacity,) of records: rows of one time lie together, in memory and in checkpoints."""
        self._owners = 0

    def __len__(self) -> int:
        return self._size

    def at(self, timesteps: int) -> None:
        """So many environment steps have been sampled, by all workers; here nothing follows."""

    def add(self, rows: Rows) -> None:
        """Store rows, column by column (R, …); the first ones decide which columns there are.

        Raises:
            ValueError: other columns than before, or of another shape or type.
        """
        self._put({name: column[-self._capacity :] for name, column in rows.items()})

    def sample(self, count: int) -> dict[str, Array]:
        """So many rows, copied.

        Raises:
            ValueError: there are none.
        """
        self._require_rows()
        return self._take(self._stream.integers(0, self._size, size=count))

    def get_state(self) -> dict[str, Any]:
        """Entries ``rows``, ``columns``, ``capacity``, ``next`` and ``stream``.

        The rows are shown, not copied; rows that are added while the state is still held go into a
        copy. In a checkpoint file they become segments, of which only those are written that have
        changed (`trainables.checkpoint.segments`).
        """
        return {
            "rows": self._shown(),
            "columns": {name: [dtype.str, *shape] for name, (dtype, shape) in self._kinds.items()},
            "capacity": self._capacity,
            "next": self._next,
            "stream": rng.get_generator_state(self._stream),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave.

        Raises:
            ConfigError: it was saved with another capacity, or by a replay of the other kind.
        """
        if state["capacity"] != self._capacity:
            allowed = f"{state['capacity']}, as in the checkpoint"
            raise ConfigError("buffer_size", self._capacity, allowed)
        if ("shares" in state) is not self.prioritized:
            allowed = f"{'shares' in state}, as in the checkpoint".lower()
            raise ConfigError("prioritized_replay", self.prioritized, allowed)
        self._size = self._next = 0
        self._kinds, self._rows = {}, np.zeros(0, dtype=np.uint8)
        columns: Mapping[str, Any] = state["columns"]
        if "rows" in state:
            self._allocate({n: (np.dtype(of), tuple(shape)) for n, (of, *shape) in columns.items()})
            self._size = len(state["rows"])
            self._shown()[:] = state["rows"]
        elif columns:  # as it once was: each column an array of its own
            self._put(columns)
        self._next = int(state["next"])
        rng.set_generator_state(self._stream, state["stream"])

    def _put(self, rows: Rows) -> Array:
        """Write rows, at most `capacity`; returns where they stand."""
        kinds = {name: (column.dtype, column.shape[1:]) for name, column in rows.items()}
        if not self._kinds:
            self._allocate(kinds)
        if kinds != self._kinds:
            raise ValueError(f"rows of {kinds}, where this replay has {self._kinds}")
        if sys.getrefcount(self._rows) > self._owners:  # a state that shows them is still held
            self._rows = self._rows.copy()
        count = len(next(iter(rows.values())))
        chosen = (self._next + np.arange(count)) % self._capacity
        for name, column in rows.items():
            self._rows[name][chosen] = column
        self._next = (self._next + count) % self._capacity
        self._size = min(self._capacity, self._size + count)
        return chosen

    def _take(self, chosen: Array) -> dict[str, Array]:
        drawn = self._rows[chosen]
        # One row is contiguous whatever its strides are, and torch takes none that are not its own.
        return {name: drawn[name].copy() for name in self._kinds}

    def _require_rows(self) -> None:
        if not self._size:
            raise ValueError("the replay is empty; add rows before you sample")

    def _shown(self) -> Array:
        """(R, bytes of a record) of the rows themselves."""
        rows = self._rows[: self._size]
        return rows.view(np.uint8).reshape(len(rows), rows.itemsize)

    def _allocate(self, kinds: Mapping[str, Kind]) -> None:
        if kinds:
            fields = [(name, dtype, shape) for name, (dtype, shape) in kinds.items()]
            self._kinds, self._rows = dict(kinds), np.zeros(self._capacity, dtype=fields)
            self._owners = sys.getrefcount(self._rows)


class PrioritizedReplay(ReplayBuffer):
    """Draws transitions in proportion to a power of their last error (Schaul et al. 2016).

    New ones have the highest priority so far, so that each is drawn soon.
    """

    prioritized: ClassVar[bool] = True

    def __init__(self, capacity: int, seed: int, config: PrioritizedReplayConfig) -> None:
        super().__init__(capacity, seed)
        self._config = config
        self._beta = config.beta(0)
        self._highest = 1.0
        self._shares = SumTree(capacity)

    def at(self, timesteps: int) -> None:
        """Adopt the power of the importance weights that is due."""
        self._beta = self._config.beta(timesteps)

    def add(self, rows: Rows) -> None:
        """As `ReplayBuffer.add`."""
        kept = {name: column[-self._capacity :] for name, column in rows.items()}
        chosen = self._put(kept)
        self._shares.put(chosen, np.full(len(chosen), self._highest))

    def sample(self, count: int) -> dict[str, Array]:
        """So many rows, one of each of `count` equal parts of all shares.

        With ``weights`` (B,), the importance weights by the largest of them, and ``indices`` (B,),
        which `prioritize` takes.

        Raises:
            ValueError: there are none.
        """
        self._require_rows()
        parts = (np.arange(count) + self._stream.random(count)) / count
        chosen = np.minimum(self._shares.find(parts), self._size - 1)
        weights = (self._shares.get(chosen) / self._shares.total * self._size) ** -self._beta
        weights = (weights / weights.max()).astype(np.float32)
        return {**self._take(chosen), "weights": weights, "indices": chosen}

    def prioritize(self, indices: Array, errors: Array) -> None:
        """Take note of the errors (B,) that rows drawn by `sample` have now."""
        config = self._config
        sizes = np.abs(errors).astype(np.float64) + config.prioritized_replay_eps
        shares = sizes**config.prioritized_replay_alpha
        self._highest = max(self._highest, float(shares.max()))
        self._shares.put(indices, shares)

    def get_state(self) -> dict[str, Any]:
        """As `ReplayBuffer.get_state`, with ``shares`` (R,) and the ``highest`` of all so far."""
        shares = self._shares.get(np.arange(self._size))
        return {**super().get_state(), "shares": shares, "highest": self._highest}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave.

        Raises:
            ConfigError: it was saved with another capacity, or by a replay that draws evenly.
        """
        super().set_state(state)
        self._shares = SumTree(self._capacity)
        self._shares.put(np.arange(self._size), state["shares"])
        self._highest = float(state["highest"])


class SumTree:
    """Shares by index, found by their running sum; each node is the sum of `WIDTH` below it.

    A node is always summed anew from those below it: what it is follows from the shares alone.
    """

    WIDTH = 64

    def __init__(self, capacity: int) -> None:
        sizes = [-(-capacity // self.WIDTH)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // self.WIDTH))
        self._levels = [np.zeros((size, self.WIDTH)) for size in sizes]
        """The shares, then the sums of each row of the level before; the last one is one row."""

    @property
    def total(self) -> float:
        """Of all shares."""
        return float(self._levels[-1].sum(axis=1)[0])

    def get(self, indices: Array) -> Array:
        """(R,) shares."""
        found: Array = self._levels[0].reshape(-1)[indices]
        return found

    def put(self, indices: Array, shares: Array) -> None:
        """Set shares (R,); of an index that is named twice the last one."""
        values = shares
        for level in self._levels:
            level.reshape(-1)[indices] = values
            indices = np.unique(indices // self.WIDTH)
            values = level[indices].sum(axis=1)

    def find(self, parts: Array) -> Array:
        """Indices (B,) at which the running sum of the shares passes these parts of the total."""
        nodes = np.zeros(len(parts), dtype=np.int64)
        targets = parts * self.total
        for level in reversed(self._levels):
            running = level[nodes].cumsum(axis=1)
            below = np.minimum((running <= targets[:, None]).sum(axis=1), self.WIDTH - 1)
            passed = np.where(below > 0, running[np.arange(len(parts)), below - 1], 0.0)
            targets = targets - passed
            nodes = nodes * self.WIDTH + below
        return nodes


class NStep:
    """Makes transitions over `steps` steps of those over one, also across fragments.

    A transition ends earlier where its episode was terminated or truncated, or where the next step
    is not learnt from; then, unless it was terminated, its value goes on from there. It is held
    back until its last step is known. `discounts` are what the value at its end counts.
    """

    def __init__(self, steps: int, gamma: float) -> None:
        self._steps, self._gamma = steps, gamma
        self._held: dict[int, dict[str, Array]] = {}
        """Of each worker the latest rows (at most steps - 1, N), some of them not given yet."""

    @property
    def weight(self) -> float:
        """Sum of the factors of all rewards that a transition adds up at most."""
        return float(sum(self._gamma**ahead for ahead in range(self._steps)))

    def __call__(self, source: int, columns: Rows) -> dict[str, Array]:
        """The transitions (R, …) that are whole now.

        Args:
            source: the worker whose next fragment it is.
            columns: (T, N, …), those of a transition over one step, and ``truncated``, ``valid``,
                and the step's number in its episode, ``t``; ``autoreset`` where rows are no
                transition.
        """
        rows = {name: column for name, column in columns.items() if name != "autoreset"}
        rows["held"] = columns["valid"]
        held = self._held.get(source)
        if held is not None and (more := columns["t"].shape[1] - held["t"].shape[1]) > 0:
            # Where episodes come and go there are more columns than before.
            blank = {n: np.zeros((len(c), more, *c.shape[2:]), c.dtype) for n, c in held.items()}
            held = {n: np.concatenate([c, blank[n]], axis=1) for n, c in held.items()}
        if held is not None and held["t"].shape[1:] == columns["t"].shape[1:]:
            rows = {name: np.concatenate([held[name], column]) for name, column in rows.items()}
            rows = _closed_up(rows, columns.get("autoreset"))
        ended = rows["terminated"] | rows["truncated"]
        goes_on = rows["valid"][1:] & ~ended[:-1] & (rows["t"][1:] == rows["t"][:-1] + 1)
        count = len(ended)
        last = np.broadcast_to(np.arange(count)[:, None], ended.shape).copy()
        rewards = rows["rewards"].astype(np.float32)
        grows = np.ones(ended.shape, dtype=np.bool_)
        waits = np.zeros(ended.shape, dtype=np.bool_)
        for ahead in range(1, self._steps):
            edge = max(0, count - ahead)
            waits[edge:] |= grows[edge:] & ~ended[-1]
            grows[edge:] = False
            grows[:edge] &= goes_on[ahead - 1 :]
            further = grows[:edge] * np.float32(self._gamma**ahead)
            rewards[:edge] += further * rows["rewards"][ahead:]
            last += grows
        given = rows["held"] & ~waits
        rows["held"] = rows["held"] & waits
        kept = min(count, self._steps - 1)
        self._held[source] = {name: column[count - kept :].copy() for name, column in rows.items()}
        discounts = np.float32(self._gamma) ** (last - np.arange(count)[:, None] + 1)
        envs = np.arange(ended.shape[1])
        return {
            "observations": rows["observations"][given],
            "actions": rows["actions"][given],
            "rewards": rewards[given],
            "new_obs": rows["new_obs"][last, envs][given],
            "terminated": rows["terminated"][last, envs][given],
            "discounts": discounts.astype(np.float32)[given],
        }

    def get_state(self) -> dict[str, Any]:
        """Entry ``held``, by worker."""
        return {
            "held": {
                worker: {name: column.copy() for name, column in rows.items()}
                for worker, rows in self._held.items()
            }
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._held = {
            int(worker): {name: np.array(column) for name, column in rows.items()}
            for worker, rows in state["held"].items()
        }


def _closed_up(rows: Rows, autoreset: Array | None) -> dict[str, Array]:
    """The rows (K + T, N, …), in which each lane's held rows are followed by its next transition.

    Of the last T, which are new, `autoreset` (T, N) marks rows that are no transition. Those that
    come before a lane's first transition are moved above its K held rows.
    """
    if autoreset is None or not autoreset[0].any():
        return dict(rows)
    blank = np.zeros(rows["t"].shape, dtype=np.bool_)
    blank[-len(autoreset) :] = np.logical_and.accumulate(autoreset, axis=0)
    order = np.argsort(~blank, axis=0, kind="stable")
    lanes = np.arange(autoreset.shape[1])
    return {name: column[order, lanes] for name, column in rows.items()}
