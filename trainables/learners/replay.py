"""Replay buffers of transitions, from which off-policy algorithms learn, and n-step transitions.

Memory is allocated once; new rows overwrite the oldest ones. R rows, B rows of a batch; T steps and
N environments of a fragment.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.core.settings import Section
from trainables.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from trainables.learners.device_rows import DeviceRows

Array = NDArray[Any]
#: Name of a column → its rows (B, …).
Rows = Mapping[str, Array]
Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""(Dtype, shape) of one row of a column in a replay."""


class ReplayConfig(Section):
    """Settings of a replay, and of the updates that learn from it."""

    buffer_size: int = Field(
        default=50_000, gt=0, description="Capacity of the replay buffer, in transitions."
    )
    learning_starts: int = Field(
        default=1000, ge=0, description="Environment steps before the first update."
    )
    replay_batch_size: int = Field(
        default=32, gt=0, description="Number of transitions per update."
    )
    updates_per_step: int = Field(
        default=1,
        gt=0,
        description="Number of updates after each round of sampling, which adds train_batch_size "
        "environment steps.",
    )
    target_network_update_freq: int = Field(
        default=500,
        gt=0,
        description="For dqn if tau is null: number of environment steps between two copies of "
        "the learned network to the target network, at most one copy per round. iql, sac and td3, "
        "whose target networks move by tau, accept only 1.",
    )
    replay_on: Literal["auto", "cpu", "gpu"] = Field(
        default="auto",
        description="Memory that holds the transitions: cpu; or gpu, which saves copying each "
        "drawn batch. gpu needs num_gpus above 0, no observation_filter or normalize_rewards, and "
        "room for buffer_size in half of the trial's share of the GPU. auto: gpu for image "
        "observations if these conditions hold, otherwise cpu.",
    )


class PrioritizedReplayConfig(Section):
    """Settings of prioritised sampling from a replay (Schaul et al. 2016)."""

    prioritized_replay: bool = Field(
        default=False,
        description="Draw transitions whose last error was large more often than others, and "
        "correct for this with importance weights.",
    )
    prioritized_replay_alpha: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Exponent of the error in a transition's probability; 0: uniform. Usually 0.5 "
        "to 0.7.",
    )
    prioritized_replay_beta: float = Field(
        default=0.4,
        ge=0,
        le=1,
        description="Initial exponent of the importance weights; 1 corrects fully for unequal "
        "probabilities. Usually 0.4.",
    )
    final_prioritized_replay_beta: float = Field(
        default=1.0, ge=0, le=1, description="Final exponent of the importance weights."
    )
    prioritized_replay_beta_annealing_timesteps: int = Field(
        default=50_000,
        gt=0,
        description="Environment steps over which the exponent changes linearly from its initial "
        "to its final value.",
    )
    prioritized_replay_eps: float = Field(
        default=1e-6,
        gt=0,
        description="Constant added to every error, so no probability is 0.",
    )

    def beta(self, timesteps: int) -> float:
        """Return the exponent of the importance weights after `timesteps` environment steps."""
        part = min(1.0, timesteps / self.prioritized_replay_beta_annealing_timesteps)
        first, last = self.prioritized_replay_beta, self.final_prioritized_replay_beta
        return first + part * (last - first)


def check_replay(config: ReplayConfig) -> None:
    """Raise ConfigError if the replay is smaller than the warm-up or a batch."""
    for key in ("learning_starts", "replay_batch_size"):
        if config.buffer_size < (needed := getattr(config, key)):
            problem = f"{config.buffer_size} is less than {key}, which is {needed}"
            hint = f"raise it, or lower {key}"
            raise ConfigError("buffer_size", config.buffer_size, hint=hint, problem=problem)


class ReplayBuffer:
    """The latest `capacity` transitions, sampled uniformly with replacement.

    Args:
        seed: seed of the trial; a stream of it draws the rows.
        device: device that holds the rows, which `sample` then returns as tensors; None for arrays.
    """

    prioritized: ClassVar[bool] = False
    """True if rows are sampled by priority instead of uniformly."""

    def __init__(self, capacity: int, seed: int, device: "torch.device | None" = None) -> None:
        self._capacity, self._device = capacity, device
        self._there: DeviceRows | None = None
        """The rows, if a device holds them; else None, as before the first rows."""
        self._stream = rng.generator(seed, "replay")
        self._size = 0
        self._next = 0
        self._columns: dict[str, Kind] = {}
        self._rows: Array = np.zeros(0, dtype=np.uint8)
        """Structured array (capacity,), so that the columns of a row lie together in memory and in
        checkpoints. Empty before the first rows, or if a device holds the rows."""
        self._owners = 0

    def __len__(self) -> int:
        return self._size

    def set_timesteps(self, timesteps: int) -> None:
        """Do nothing; a prioritised replay adapts to the number of environment steps so far."""

    def add(self, rows: Rows) -> None:
        """Store rows, given as name → column (R, …), in place of the oldest ones.

        The first call decides which columns there are. Of more than `capacity` rows only the last
        ones are stored.

        Raises:
            ValueError: names, shapes or dtypes of the columns differ from those of earlier rows.
        """
        self._put({name: column[-self._capacity :] for name, column in rows.items()})

    def sample(self, count: int) -> dict[str, Array]:
        """Draw `count` rows with replacement, and return copies: name → column (count, …).

        Columns are tensors if a device holds the rows, else arrays. Raises ValueError if the replay
        is empty.
        """
        self._require_rows()
        return self._take(self._stream.integers(0, self._size, size=count))

    def get_state(self) -> dict[str, Any]:
        """Return ``rows`` (R, bytes per row), ``columns``, ``capacity``, ``next`` and ``stream``.

        ``columns`` is name → [dtype, *shape of a row], ``next`` the index that is written next. The
        rows are a copy if a device holds them, else a view of the memory; if rows are added while
        a state is still in use, the memory is copied first. A checkpoint file stores them in
        chunks, of which only changed ones are written (`trainables.checkpoint.segments`).
        """
        return {
            "rows": self._byte_view(),
            "columns": {
                name: [dtype.str, *shape] for name, (dtype, shape) in self._columns.items()
            },
            "capacity": self._capacity,
            "next": self._next,
            "stream": rng.get_generator_state(self._stream),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`.

        Raises:
            ConfigError: the state has another capacity, or is that of a replay with priorities and
                this one has none, or the reverse.
        """
        if state["capacity"] != self._capacity:
            raise ConfigError.of_checkpoint("buffer_size", self._capacity, state["capacity"])
        if (was := "shares" in state) is not self.prioritized:
            raise ConfigError.of_checkpoint("prioritized_replay", self.prioritized, was)
        self._size = self._next = 0
        self._columns, self._rows, self._there = {}, np.zeros(0, dtype=np.uint8), None
        columns: Mapping[str, Any] = state["columns"]
        self._allocate({n: (np.dtype(of), tuple(shape)) for n, (of, *shape) in columns.items()})
        self._size = len(state["rows"])
        self._load(state["rows"])
        self._next = int(state["next"])
        rng.set_generator_state(self._stream, state["stream"])

    def _put(self, rows: Rows) -> Array:
        """Write rows over the oldest ones; return their indices (R,).

        There must be at most `capacity` rows. The first call allocates the memory. Raises
        ValueError if the rows have other columns than earlier ones.
        """
        kinds = {name: (column.dtype, column.shape[1:]) for name, column in rows.items()}
        if not self._columns:
            self._allocate(kinds)
        if kinds != self._columns:
            raise ValueError(f"the rows have {kinds}, but this replay has {self._columns}")
        count = len(next(iter(rows.values())))
        chosen = (self._next + np.arange(count)) % self._capacity
        if self._there is not None:
            self._there.write(chosen, rows)
        else:
            self._write(chosen, rows)
        self._next = (self._next + count) % self._capacity
        self._size = min(self._capacity, self._size + count)
        return chosen

    def _write(self, chosen: Array, rows: Rows) -> None:
        """Write rows to these indices (R,) of this process's memory.

        The memory is copied first if a state has a view of it.
        """
        if sys.getrefcount(self._rows) > self._owners:  # a state with a view of them is in use
            self._rows = self._rows.copy()
        for name, column in rows.items():
            self._rows[name][chosen] = column

    def _take(self, chosen: Array) -> dict[str, Any]:
        """Return a copy of the rows at these indices: name → column (B, …)."""
        if self._there is not None:
            return dict(self._there.read(chosen))
        drawn = self._rows[chosen]
        # Copied: numpy calls one row contiguous whatever its strides are, but torch rejects them.
        return {name: drawn[name].copy() for name in self._columns}

    def _require_rows(self) -> None:
        """Raise ValueError if the replay is empty."""
        if not self._size:
            raise ValueError("the replay is empty; add rows before you sample")

    def _byte_view(self) -> Array:
        """Return the stored rows as bytes, (R, bytes per row): a view, or a copy from a device."""
        if self._there is not None:
            return self._there.fetch(self._size)
        rows = self._rows[: self._size]
        return rows.view(np.uint8).reshape(len(rows), rows.itemsize)

    def _load(self, rows: Array) -> None:
        """Write rows, as bytes of `_byte_view`, to the first indices."""
        if self._there is not None:
            self._there.load(rows)
        else:
            self._byte_view()[:] = rows

    def _allocate(self, kinds: Mapping[str, Kind]) -> None:
        """Allocate memory for `capacity` rows of these columns: name → dtype, shape of a row.

        Does nothing without columns.
        """
        if kinds:
            fields = [(name, dtype, shape) for name, (dtype, shape) in kinds.items()]
            self._columns = dict(kinds)
            if self._device is not None:
                # Imported for a GPU only: a replay otherwise needs no torch.
                from trainables.learners.device_rows import DeviceRows

                self._there = DeviceRows(np.dtype(fields), self._capacity, self._device)
                return
            self._rows = np.zeros(self._capacity, dtype=fields)
            self._owners = sys.getrefcount(self._rows)


class PrioritizedReplay(ReplayBuffer):
    """A replay that samples rows in proportion to a power of their last error (Schaul et al. 2016).

    New rows get the highest priority so far, so that each is soon sampled.

    Args:
        config: the exponents of priorities and weights. The other arguments are those of
            `ReplayBuffer`.
    """

    prioritized: ClassVar[bool] = True

    def __init__(
        self,
        capacity: int,
        seed: int,
        config: PrioritizedReplayConfig,
        device: "torch.device | None" = None,
    ) -> None:
        super().__init__(capacity, seed, device)
        self._config = config
        self._beta = config.beta(0)
        self._highest = 1.0
        self._shares = SumTree(capacity)

    def set_timesteps(self, timesteps: int) -> None:
        """Set the exponent of the importance weights for this number of environment steps."""
        self._beta = self._config.beta(timesteps)

    def add(self, rows: Rows) -> None:
        """Store rows, as `ReplayBuffer.add` does, with the highest priority so far."""
        kept = {name: column[-self._capacity :] for name, column in rows.items()}
        chosen = self._put(kept)
        self._shares.put(chosen, np.full(len(chosen), self._highest))

    def sample(self, count: int) -> dict[str, Array]:
        """Draw `count` rows by priority: one from each of `count` equal parts of their sum.

        Returns copies: name → column, a tensor if a device holds the rows, else an array. Column
        ``weights`` (B,) has the importance weights divided by the largest of them, and ``indices``
        (B,) the indices for `prioritize`; both are arrays. Raises ValueError if the replay is
        empty.
        """
        self._require_rows()
        parts = (np.arange(count) + self._stream.random(count)) / count
        chosen = np.minimum(self._shares.find(parts), self._size - 1)
        weights = (self._shares.get(chosen) / self._shares.total * self._size) ** -self._beta
        weights = (weights / weights.max()).astype(np.float32)
        return {**self._take(chosen), "weights": weights, "indices": chosen}

    def prioritize(self, indices: Array, errors: Array) -> None:
        """Set the priorities of the rows with these `indices` (B,) from their `errors` (B,).

        A priority is a power of the absolute error plus `prioritized_replay_eps`. The highest one
        so far, which new rows get, grows with them. The indices are those that `sample` returned.
        """
        config = self._config
        sizes = np.abs(errors).astype(np.float64) + config.prioritized_replay_eps
        shares = sizes**config.prioritized_replay_alpha
        self._highest = max(self._highest, float(shares.max()))
        self._shares.put(indices, shares)

    def get_state(self) -> dict[str, Any]:
        """Return `ReplayBuffer`'s state, priorities ``shares`` (R,) and the ``highest`` so far."""
        shares = self._shares.get(np.arange(self._size))
        return {**super().get_state(), "shares": shares, "highest": self._highest}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`; raises ConfigError if it is of another kind of replay."""
        super().set_state(state)
        self._shares = SumTree(self._capacity)
        self._shares.put(np.arange(self._size), state["shares"])
        self._highest = float(state["highest"])


class SumTree:
    """A tree of the sums of numbers, to find an index in proportion to these numbers.

    Each node is the sum of the `WIDTH` nodes below it. Sums are always recomputed from the nodes
    below, so that they depend on the numbers (shares) alone. `capacity` is the count of shares.
    """

    #: Number of nodes below each node.
    WIDTH = 64

    def __init__(self, capacity: int) -> None:
        sizes = [-(-capacity // self.WIDTH)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // self.WIDTH))
        self._levels = [np.zeros((size, self.WIDTH)) for size in sizes]
        """Levels from the shares upwards, each (nodes / WIDTH, WIDTH); the last one has one row.

        An entry of a level is the sum of a row of the level below it.
        """

    @property
    def total(self) -> float:
        """Sum of all shares."""
        return float(self._levels[-1].sum(axis=1)[0])

    def get(self, indices: Array) -> Array:
        """Return the shares (R,) at these indices."""
        found: Array = self._levels[0].reshape(-1)[indices]
        return found

    def put(self, indices: Array, shares: Array) -> None:
        """Set the shares (R,) at these indices; if an index occurs twice, the last one counts."""
        values = shares
        for level in self._levels:
            level.reshape(-1)[indices] = values
            indices = np.unique(indices // self.WIDTH)
            values = level[indices].sum(axis=1)

    def find(self, parts: Array) -> Array:
        """Return the indices (B,) at which the running sum of shares exceeds `parts` of the total.

        `parts` (B,) are fractions from 0 to 1.
        """
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
    """Makes n-step transitions of fragments of one-step transitions.

    A transition is held back until its last step is known, in a later fragment if need be. It is
    shorter if its episode was terminated or truncated, or the next step is not learnt from; unless
    terminated, it is bootstrapped from the value after its last step. Column ``discounts`` is the
    factor of that value.
    """

    def __init__(self, steps: int, gamma: float) -> None:
        self._steps, self._gamma = steps, gamma
        self._held: dict[int, dict[str, Array]] = {}
        """Worker → its latest rows (at most n - 1, N); flag ``held`` marks those not yet
        returned."""

    @property
    def weight(self) -> float:
        """Sum of the discount factors of a transition's n rewards: 1 + gamma + gamma² and so on."""
        return float(sum(self._gamma**ahead for ahead in range(self._steps)))

    def __call__(self, source: int, columns: Rows) -> dict[str, Array]:
        """Return the transitions that are complete now: name → column (R, …).

        The columns are those that a replay stores: ``observations``, ``actions``, ``rewards``
        (discounted sums), ``new_obs``, ``terminated`` and ``discounts``. Other rows are held back
        for the next call with this worker, and dropped if its fragment has fewer environments.

        Args:
            source: index of the worker whose next fragment it is.
            columns: columns (T, N, …) of transitions over one step, with ``truncated``, ``valid``
                and ``t``, the step's number in its episode; ``autoreset`` marks rows that are no
                transitions.
        """
        rows = {name: column for name, column in columns.items() if name != "autoreset"}
        rows["held"] = columns["valid"]
        held = self._held.get(source)
        if held is not None and (more := columns["t"].shape[1] - held["t"].shape[1]) > 0:
            # The number of environments may grow: earlier rows of new ones are blank.
            blank = {n: np.zeros((len(c), more, *c.shape[2:]), c.dtype) for n, c in held.items()}
            held = {n: np.concatenate([c, blank[n]], axis=1) for n, c in held.items()}
        if held is not None and held["t"].shape[1:] == columns["t"].shape[1:]:
            rows = {name: np.concatenate([held[name], column]) for name, column in rows.items()}
            rows = _close_gaps(rows, columns.get("autoreset"))
        ended = rows["terminated"] | rows["truncated"]
        continues = rows["valid"][1:] & ~ended[:-1] & (rows["t"][1:] == rows["t"][:-1] + 1)
        count = len(ended)
        last = np.broadcast_to(np.arange(count)[:, None], ended.shape).copy()
        rewards = rows["rewards"].astype(np.float32)
        is_growing = np.ones(ended.shape, dtype=np.bool_)
        is_waiting = np.zeros(ended.shape, dtype=np.bool_)
        for offset in range(1, self._steps):
            edge = max(0, count - offset)
            is_waiting[edge:] |= is_growing[edge:] & ~ended[-1]
            is_growing[edge:] = False
            is_growing[:edge] &= continues[offset - 1 :]
            further = is_growing[:edge] * np.float32(self._gamma**offset)
            rewards[:edge] += further * rows["rewards"][offset:]
            last += is_growing
        given = rows["held"] & ~is_waiting
        rows["held"] = rows["held"] & is_waiting
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
        """Return ``held``: worker → copies of the rows that are held back."""
        return {
            "held": {
                worker: {name: column.copy() for name, column in rows.items()}
                for worker, rows in self._held.items()
            }
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state`."""
        self._held = {
            int(worker): {name: np.array(column) for name, column in rows.items()}
            for worker, rows in state["held"].items()
        }


def _close_gaps(rows: Rows, autoreset: Array | None) -> dict[str, Array]:
    """Return rows (K + T, N, …) in which each environment's held rows precede its next transition.

    Args:
        rows: K held rows, then T new ones.
        autoreset: flags (T, N) of new rows that are not transitions, or None. Flagged rows before
            an environment's first transition are moved above its held rows.
    """
    if autoreset is None or not autoreset[0].any():
        return dict(rows)
    blank = np.zeros(rows["t"].shape, dtype=np.bool_)
    blank[-len(autoreset) :] = np.logical_and.accumulate(autoreset, axis=0)
    order = np.argsort(~blank, axis=0, kind="stable")
    lanes = np.arange(autoreset.shape[1])
    return {name: column[order, lanes] for name, column in rows.items()}
