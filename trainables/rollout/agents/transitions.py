"""What the agents of one policy did: decisions, what followed each, and the fragments of both.

A *trajectory* is what one agent does from its appearance to its end; it lies in a *lane*, a column
of fragments, which belongs to one environment and is free again after it. Agents act at ticks of
their own, so lanes are filled unevenly: a fragment (T, lanes) is as long as its fullest lane, and
each lane ends in its last row, before which stand rows that are no transitions (`autoreset`). So
the last row of every lane is followed by ``last_<name>``, and whatever runs backwards through a
fragment (advantages, V-trace) is right for every lane. K rows, *S the shape of an observation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.errors import NotFiniteError
from trainables.policies.actor import Acted, Actor, Column
from trainables.policies.filters import Filter, NoFilter
from trainables.rollout.batch import Fragment, requested

Array = NDArray[Any]


@dataclass(slots=True)
class Row:
    """One decision, and what followed it once that is known."""

    lane: int
    t: int
    """The agent's step in its trajectory, from 0."""
    episode: int
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    known: bool = False
    """Whether it is known what followed."""
    over: bool = False
    """Whether its episode is over."""
    dropped: bool = False
    after: Array | None = None
    """(*S) the raw observation that followed; None: not known, or not needed."""
    memory: Array | None = None
    """(M,) with which that is seen."""
    info: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        """Whether its trajectory ended with it."""
        return self.terminated or self.truncated


#: Fields of a row that stand in checkpoints as arrays.
PLAIN = (
    *("lane", "t", "episode", "reward", "terminated", "truncated", "valid", "known", "over"),
    "dropped",
)


class Transitions:
    """The transitions of one policy in one worker.

    Args:
        name: how errors call them.
        actor: decides; its columns stand in the fragments.
        observation_filter: of the policy.
        spaces: of its agents.
        columns: that are requested beside.
        clip_rewards: as the setting says.
    """

    def __init__(
        self,
        name: str,
        actor: Actor,
        observation_filter: Filter,
        spaces: EnvSpaces,
        columns: frozenset[str],
        clip_rewards: bool | float | None,
    ) -> None:
        self._name = name
        self._actor = actor
        self._filter = observation_filter
        self._spaces = spaces
        self._requested = columns
        self._clip = clip_rewards
        self.rows: list[Row] = []
        self._blocks: dict[str, list[Array]] = {}
        self._lanes: dict[tuple[int, int], int] = {}
        """Environment and number in it → lane."""

    # ---- lanes -----------------------------------------------------------------------------------

    def lane(self, env_index: int, taken: set[int]) -> int:
        """The first lane of an environment that is not taken."""
        number = 0
        while (lane := self._lanes.get((env_index, number))) is not None and lane in taken:
            number += 1
        return self._lanes.setdefault((env_index, number), len(self._lanes))

    # ---- rows ------------------------------------------------------------------------------------

    def decided(self, filtered: Array, memory: Array, acted: Acted, rows: list[Row]) -> int:
        """Write down a batched decision; returns the number of its first row."""
        first = len(self.rows)
        self.rows += rows
        columns = {"observations": filtered, "actions": acted.actions, **acted.columns}
        if self._actor.memory_size:
            columns["memory"] = memory
        for name, column in columns.items():
            self._blocks.setdefault(name, []).append(column)
        return first

    def drop_episode(self, episode: int) -> None:
        """Nothing of an episode is learnt from."""
        for row in self.rows:
            if row.episode == episode:
                row.dropped = True

    def end_episode(self, episode: int) -> None:
        """An episode is over: its rows may be taken with `take`, of whole episodes too."""
        for row in self.rows:
            if row.episode == episode:
                row.over = True

    # ---- fragments -------------------------------------------------------------------------------

    def take(self, whole: bool) -> tuple[Fragment | None, dict[int, int]]:
        """Give away what is known; with `whole` only of episodes that are over.

        Returns:
            The fragment, None without a row; and old → new number of the rows that stay.
        """
        given = [
            i
            for i, row in enumerate(self.rows)
            if row.known and not row.dropped and (row.over or not whole)
        ]
        gone = set(given)
        kept = [i for i, row in enumerate(self.rows) if i not in gone and not row.dropped]
        blocks = self._columns()
        fragment = self._fragment(given, blocks) if given else None
        self.rows = [self.rows[i] for i in kept]
        self._blocks = {n: [column[kept]] for n, column in blocks.items()} if kept else {}
        return fragment, {old: new for new, old in enumerate(kept)}

    def _columns(self) -> dict[str, Array]:
        return {name: np.concatenate(parts) for name, parts in self._blocks.items()}

    def _fragment(self, given: list[int], blocks: Mapping[str, Array]) -> Fragment:
        rows = [self.rows[i] for i in given]
        lanes = np.array([row.lane for row in rows])
        counts = np.bincount(lanes, minlength=len(self._lanes))
        length = int(counts.max())
        order = np.argsort(lanes, kind="stable")
        ranks = np.empty(len(rows), dtype=np.int64)
        ranks[order] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        times = length - counts[lanes] + ranks
        fragment = self._blank(length, len(counts))
        arrays, where = fragment.columns, (times, lanes)
        for name, column in blocks.items():
            arrays[name][where] = column[given]
        arrays["rewards"][where] = self._rewards(rows)
        arrays["autoreset"][where] = False
        for name in ("terminated", "truncated", "valid"):
            arrays[name][where] = [getattr(row, name) for row in rows]
        self._write_requested(arrays, where, rows)
        cut = [i for i, row in enumerate(rows) if row.truncated]
        for name, values in self._judged([rows[i] for i in cut]).items():
            arrays[f"final_{name}"][times[cut], lanes[cut]] = values
        last = [i for i in np.flatnonzero(times == length - 1) if not rows[i].ended]
        for name, values in self._judged([rows[i] for i in last]).items():
            fragment.last[f"last_{name}"][0, lanes[last]] = values
        return fragment

    def _blank(self, length: int, lanes: int) -> Fragment:
        """A fragment in which no row is a transition."""
        whole = isinstance(self._filter, NoFilter)
        observed = self._spaces.observation_dtype if whole else np.dtype(np.float32)
        observation: Column = self._spaces.observation_shape, observed
        declared = {**self._actor.in_fragments, **requested(self._requested, observation)}
        layout = self._spaces.layout
        action = layout.shape, layout.dtype
        fragment = Fragment.allocate(length, lanes, observation, action, declared)
        fragment.valid[:], fragment.autoreset[:] = False, True
        return fragment

    def _rewards(self, rows: list[Row]) -> Array:
        rewards = np.array([row.reward for row in rows])
        if not np.isfinite(rewards).all():
            lane = rows[int(np.argmin(np.isfinite(rewards)))].lane
            env_index = next(env for (env, _), one in self._lanes.items() if one == lane)
            raise NotFiniteError(
                f"{self._name}, environment {env_index}: a reward of an agent is not finite"
            )
        if self._clip is True:
            return np.asarray(np.sign(rewards))
        return np.clip(rewards, -self._clip, self._clip) if self._clip else rewards

    def _write_requested(
        self, arrays: Mapping[str, Array], where: tuple[Array, Array], rows: list[Row]
    ) -> None:
        if "new_obs" in self._requested:
            arrays["new_obs"][where] = self._filter(self._after(rows), update=False)
        if "t" in self._requested:
            arrays["t"][where] = [row.t for row in rows]
        if "eps_id" in self._requested:
            arrays["eps_id"][where] = [row.episode for row in rows]
        if "infos" in self._requested:
            infos = np.empty(len(rows), dtype=object)
            infos[:] = [dict(row.info or {}) for row in rows]
            arrays["infos"][where] = infos

    def _judged(self, rows: list[Row]) -> dict[str, Array]:
        """What the actor says of the observations that followed these rows."""
        if not rows or not self._actor.judged:
            return {}
        memory = self._actor.initial_memory(len(rows))
        if self._actor.memory_size:
            memory = np.stack([row.memory for row in rows if row.memory is not None])
        return self._actor.judge(self._filter(self._after(rows), update=False), memory)

    def _after(self, rows: list[Row]) -> Array:
        return np.stack([row.after for row in rows if row.after is not None])

    # ---- state -----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Entries ``lanes``, ``columns`` and ``rows``: what has not been given away."""
        return {
            "lanes": [list(place) for place in self._lanes],
            "columns": {name: column.copy() for name, column in self._columns().items()},
            "rows": {name: np.array([getattr(row, name) for row in self.rows]) for name in PLAIN},
            "after": [None if row.after is None else row.after.copy() for row in self.rows],
            "memory": [None if row.memory is None else row.memory.copy() for row in self.rows],
            "infos": [None if row.info is None else dict(row.info) for row in self.rows],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._lanes = {(int(env), int(n)): i for i, (env, n) in enumerate(state["lanes"])}
        plain = zip(*(state["rows"][name].tolist() for name in PLAIN), strict=True)
        beside = zip(state["after"], state["memory"], state["infos"], strict=True)
        self.rows = [
            Row(
                **dict(zip(PLAIN, one, strict=True)),
                after=None if after is None else np.array(after),
                memory=None if memory is None else np.array(memory),
                info=info,
            )
            for one, (after, memory, info) in zip(plain, beside, strict=True)
        ]
        self._blocks = {n: [np.array(c)] for n, c in state["columns"].items()} if self.rows else {}
