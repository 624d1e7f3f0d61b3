"""Transitions of the agents of one policy: decisions, their consequences, and fragments of both.

A *trajectory* is what one agent does from its appearance to its end; it lies in a *lane*, a column
of fragments, which belongs to one environment and is free again after it. Agents act at ticks of
their own, so lanes are filled unevenly: a fragment (T, lanes) is as long as its fullest lane, and
each lane ends in its last row, before which stand rows that are no transitions (`autoreset`). So
the last row of every lane is followed by ``last_<name>``, and whatever runs backwards through a
fragment (advantages, V-trace) is right for every lane. K rows, *S the shape of an observation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.policies.acting.actor import Acted, Actor, Column
from trainables.policies.filters import NoFilter, RewardScaler
from trainables.rollout.batch import Fragment, requested
from trainables.rollout.config import clipped

Array = NDArray[Any]


@dataclass(slots=True)
class Row:
    """One decision, and what followed it once that is known."""

    lane: int
    t: int
    """The agent's step in its trajectory, from 0."""
    episode: int
    agent: int = 0
    """Which of the environment's it is."""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    known: bool = False
    """True once the consequence of the decision is known."""
    over: bool = False
    """True if its episode is over."""
    dropped: bool = False
    after: Array | None = None
    """(*S) the raw observation that followed; None: not known, or not needed."""
    memory: Array | None = None
    """(M + L,) with which that is seen."""
    info: Mapping[str, Any] | None = None

    @property
    def ended(self) -> bool:
        """True if its trajectory ended with it."""
        return self.terminated or self.truncated


#: Fields of a row that stand in checkpoints as arrays.
PLAIN = (
    *("lane", "t", "episode", "reward", "terminated", "truncated", "valid", "known", "over"),
    *("dropped", "agent"),
)


class Transitions:
    """The transitions of one policy in one worker.

    Args:
        name: how errors call them.
        actor: decides; its columns stand in the fragments.
        connectors: of the policy.
        spaces: of its agents.
        columns: that are requested beside.
        worker: index of the worker, and the number of all.
        clip_rewards: as the setting says.
        scaler: of rewards, where they are normalised; its returns are those of lanes.
        unfiltered: fragments are as `WorkerSpec.unfiltered` says.
    """

    def __init__(
        self,
        name: str,
        actor: Actor,
        connectors: Connectors,
        spaces: EnvSpaces,
        columns: frozenset[str],
        worker: tuple[int, int],
        clip_rewards: bool | float | None,
        scaler: RewardScaler | None = None,
        *,
        unfiltered: bool = False,
    ) -> None:
        self._name = name
        self._actor = actor
        self._connectors = connectors
        self._spaces = spaces
        self._requested = columns
        self._worker = worker
        self._unrolls = 0
        """The number of unrolls that have a number."""
        self._latest: dict[str, Array] = {}
        """Of each lane (lanes, …) the action and the reward of the last row that was given away."""
        self._clip = clip_rewards
        self._scaler = scaler
        self._unfiltered = unfiltered
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

    def decided(self, observed: Array, memory: Array, acted: Acted, rows: list[Row]) -> int:
        """Write down a batched decision, with observations as fragments hold them.

        Returns the number of its first row.
        """
        first = len(self.rows)
        self.rows += rows
        columns = {"observations": observed, "actions": acted.actions, **acted.columns}
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

    def drop_last(self, number: int) -> None:
        """Leave out a trajectory's last row; the one before it, if it is here, is cut off there."""
        last = self.rows[number]
        last.dropped = True
        before = (one for one in self.rows[number::-1] if one.lane == last.lane and not one.dropped)
        if (one := next(before, None)) is not None:
            one.truncated = not one.terminated

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
        if self._scaler:
            self._scale(self._scaler, fragment, _begins(fragment, where, rows))
        if self._requested:
            self._write_requested(fragment, where, rows)
        cut = [i for i, row in enumerate(rows) if row.truncated]
        for name, values in self._judged([rows[i] for i in cut]).items():
            arrays[f"final_{name}"][times[cut], lanes[cut]] = values
        last = [i for i in np.flatnonzero(times == length - 1) if not rows[i].ended]
        for name, values in self._judged([rows[i] for i in last]).items():
            fragment.last[f"last_{name}"][0, lanes[last]] = values
        return fragment

    def _blank(self, length: int, lanes: int) -> Fragment:
        """A fragment in which no row is a transition."""
        whole = isinstance(self._connectors.filter, NoFilter)
        observed = self._spaces.observation_dtype if whole else np.dtype(np.float32)
        if self._unfiltered:
            observed = self._connectors.given_dtype
        observation: Column = self._spaces.observation_shape, observed
        layout = self._spaces.layout
        action = layout.shape, layout.dtype
        memory = (self._actor.memory_size,), np.dtype(np.float32)
        like = {"observations": observation, "actions": action, "memory": memory}
        declared = {**self._actor.in_fragments, **requested(self._requested, like)}
        fragment = Fragment.allocate(length, lanes, observation, action, declared)
        fragment.valid[:], fragment.autoreset[:] = False, True
        return fragment

    def _rewards(self, rows: list[Row]) -> Array:
        return clipped(np.array([row.reward for row in rows]), self._clip)

    def _scale(self, scaler: RewardScaler, fragment: Fragment, begins: NDArray[np.bool_]) -> None:
        """Scale the rewards of a fragment, tick after tick; trajectories begin where `begins`.

        Where fragments are unfiltered, rewards are counted alone.
        """
        lanes = fragment.valid.shape[1]
        scaler.returns = np.pad(scaler.returns, (0, lanes - len(scaler.returns)))
        for t, rewards in enumerate(fragment.rewards):
            scaler.returns[begins[t]] = 0.0  # one before it may have been dropped
            ended = fragment.terminated[t] | fragment.truncated[t]
            skipped = fragment.autoreset[t]
            given = np.asarray(rewards, dtype=np.float64)
            if self._unfiltered:
                scaler.count(given, ended, skipped)
            else:
                rewards[~skipped] = scaler(given, ended, skipped)[~skipped]

    def _write_requested(
        self, fragment: Fragment, where: tuple[Array, Array], rows: list[Row]
    ) -> None:
        """Write what readers ask for."""
        size, begins = self._actor.memory_size, _begins(fragment, where, rows)
        made: dict[str, Callable[[], Any]] = {
            "new_obs": lambda: self._following(rows),
            "t": lambda: [row.t for row in rows],
            "eps_id": lambda: [row.episode for row in rows],
            "agent_index": lambda: [row.agent for row in rows],
            "infos": lambda: _objects([dict(row.info or {}) for row in rows]),
            "unroll_id": lambda: self._unroll_ids(fragment, begins)[where],
            "prev_actions": lambda: self._before("actions", fragment, begins)[where],
            "prev_rewards": lambda: self._before("rewards", fragment, begins)[where],
            "state_out": lambda: self._memories(rows)[:, :size],
        }
        columns = fragment.columns
        for name in self._requested:
            columns[name][where] = made[name]()

    def _before(self, name: str, fragment: Fragment, begins: NDArray[np.bool_]) -> Array:
        """(T, lanes, …) a column's row before, which may have been given away; 0 at a beginning."""
        column, there = fragment[name], ~fragment.autoreset
        latest = np.zeros_like(column[0])
        known = self._latest.get(name, latest[:0])
        latest[: len(known)] = known
        found = np.concatenate([latest[None], column[:-1]])
        lanes = np.flatnonzero(there.any(axis=0))
        found[there.argmax(axis=0)[lanes], lanes] = latest[lanes]
        found[begins] = 0
        latest[lanes] = column[-1, lanes]
        self._latest[name] = latest
        return found

    def _unroll_ids(self, fragment: Fragment, begins: NDArray[np.bool_]) -> Array:
        """(T, lanes) a number for the rows of a trajectory that follow each other in a fragment."""
        follows = np.zeros_like(begins)
        follows[1:] = fragment.valid[:-1] & ~begins[1:]
        number = np.cumsum(~(follows | fragment.autoreset).T).reshape(begins.T.shape).T - 1
        index, workers = self._worker
        ids: Array = (self._unrolls + number) * workers + index
        self._unrolls += int(number.max()) + 1
        return ids

    def _judged(self, rows: list[Row]) -> dict[str, Array]:
        """Return the actor's judgement of the observations after these rows."""
        if not rows or not self._actor.judged:
            return {}
        return self._actor.judge(*self._after(rows))

    def _after(self, rows: list[Row]) -> tuple[Array, Array]:
        """The observations that followed, as the policy sees them, and its memory then."""
        size, memory = self._actor.memory_size, self._memories(rows)
        return self._connectors.observe(_raw(rows), memory[:, size:])[0], memory[:, :size]

    def _following(self, rows: list[Row]) -> Array:
        """Return the observations that followed as fragments hold them."""
        if not self._unfiltered:
            return self._after(rows)[0]
        carried = self._memories(rows)[:, self._actor.memory_size :]
        return self._connectors.given(_raw(rows), carried)

    def _memories(self, rows: list[Row]) -> Array:
        """(R, M + L) with which the observations that followed are seen."""
        size, carries = self._actor.memory_size, self._connectors.memory_size
        memory = np.zeros((len(rows), size + carries), dtype=np.float32)
        if memory.size:
            memory[:] = [row.memory for row in rows if row.memory is not None]
        return memory

    # ---- state -----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Entries ``lanes``, ``columns`` and ``rows``: what has not been given away.

        Where rewards are scaled also ``returns``; ``unrolls`` and ``latest``, where columns of them
        are requested.
        """
        return {
            **({"unrolls": self._unrolls} if self._unrolls else {}),
            **({"latest": {n: c.copy() for n, c in self._latest.items()}} if self._latest else {}),
            **({"returns": self._scaler.returns.copy()} if self._scaler else {}),
            "lanes": [list(place) for place in self._lanes],
            "columns": {name: column.copy() for name, column in self._columns().items()},
            "rows": {name: np.array([getattr(row, name) for row in self.rows]) for name in PLAIN},
            "after": [None if row.after is None else row.after.copy() for row in self.rows],
            "memory": [None if row.memory is None else row.memory.copy() for row in self.rows],
            "infos": [None if row.info is None else dict(row.info) for row in self.rows],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._unrolls = int(state.get("unrolls", 0))
        self._latest = {name: np.array(one) for name, one in state.get("latest", {}).items()}
        if self._scaler:
            self._scaler.returns = np.array(state["returns"])
        self._lanes = {(int(env), int(n)): i for i, (env, n) in enumerate(state["lanes"])}
        none = np.zeros_like(state["rows"]["lane"])  # as checkpoints from before say of agents
        plain = zip(*(state["rows"].get(name, none).tolist() for name in PLAIN), strict=True)
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


def _begins(fragment: Fragment, where: tuple[Array, Array], rows: list[Row]) -> NDArray[np.bool_]:
    """(T, lanes) whether a trajectory begins."""
    begins = np.zeros(fragment.valid.shape, dtype=np.bool_)
    begins[where] = [row.t == 0 for row in rows]
    return begins


def _raw(rows: list[Row]) -> Array:
    """Return the raw observations (R, *S) that followed these rows."""
    return np.stack([row.after for row in rows if row.after is not None])


def _objects(given: list[Any]) -> Array:
    """(R,) of these, whatever they are."""
    made = np.empty(len(given), dtype=object)
    made[:] = given
    return made
