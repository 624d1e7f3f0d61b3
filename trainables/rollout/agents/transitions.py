"""Transitions of the agents of one policy: decisions, their consequences, and fragments of both.

A *trajectory* is all that one agent does from its appearance to its end. It is stored in a *lane*,
a column of fragments that belongs to one environment and is free again afterwards. Agents act at
different ticks, so lanes are filled unevenly: a fragment (T, lanes) is as long as its fullest lane,
and the rows of each lane are moved to its end, after rows that are no transitions (`autoreset`). So
the last row of every lane is followed by ``last_<name>``, and computations that run backwards
through a fragment (advantages, V-trace) are right for every lane. R rows, *S the shape of an
observation, M numbers of the policy's memory, L of the connectors'.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.policies.acting.actor import Acted, Actor
from trainables.policies.filters import RewardScaler
from trainables.rollout.batch import Fragment, new_fragment
from trainables.rollout.config import clipped

Array = NDArray[Any]


@dataclass(slots=True)
class Row:
    """One decision of an agent, and what followed it, once that is known."""

    lane: int
    """Index on the environment axis of the fragment, where the agent's trajectory stands."""
    t: int
    """Number of the step in the agent's trajectory, from 0."""
    episode: int
    """Number of the episode, as `RunningEpisode.number`."""
    agent: int = 0
    """Index of the agent among the environment's agents."""
    reward: float = 0.0
    """Sum of the environment's rewards to the agent since the decision."""
    terminated: bool = False
    """True if the trajectory ended by itself after this step."""
    truncated: bool = False
    """True if the trajectory was cut off after this step."""
    valid: bool = True
    """False if the row must not be learnt from."""
    is_known: bool = False
    """True once the next observation or the end of the trajectory is known, so that the row can go
    into a fragment."""
    is_over: bool = False
    """True if the row's episode is over."""
    dropped: bool = False
    """True if the row is not to be stored in any fragment."""
    next_observation: Array | None = None
    """Raw observation (*S) that followed; None if it is unknown or not needed."""
    memory: Array | None = None
    """(M + L,) state of policy and connectors with which `next_observation` is processed; None if
    they have no state."""
    info: Mapping[str, Any] | None = None
    """The agent's info of the step that led to `next_observation`; None if there is none."""

    @property
    def ended(self) -> bool:
        """True if the trajectory ended with this row."""
        return self.terminated or self.truncated


#: Fields of a row that checkpoints store as arrays.
PLAIN = (
    *("lane", "t", "episode", "reward", "terminated", "truncated", "valid", "is_known", "is_over"),
    *("dropped", "agent"),
)


class Transitions:
    """Stores the decisions of one policy's agents in one worker until they form fragments.

    Args:
        name: name in errors.
        actor: the policy's actor; its columns are stored in the fragments.
        columns: names of the requested columns.
        worker: (index of the worker, number of workers).
        clip_rewards: value of the setting ``clip_rewards``.
        scaler: scaler of rewards, with one return for each lane; None if rewards are not scaled.
        unfiltered: True if fragments hold observations as `WorkerSpec.unfiltered` says.
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
        """Number of values of ``unroll_id`` that were given so far."""
        self._latest: dict[str, Array] = {}
        """Column → values (lanes, …) of the last row of each lane that was put into a fragment."""
        self._clip = clip_rewards
        self._scaler = scaler
        self._unfiltered = unfiltered
        self.rows: list[Row] = []
        self._blocks: dict[str, list[Array]] = {}
        self._lanes: dict[tuple[int, int], int] = {}
        """(environment, number in it) → lane."""

    # ---- lanes -----------------------------------------------------------------------------------

    def lane(self, env_index: int, used: set[int]) -> int:
        """Return the first lane of an environment that is not in `used`, a new one if necessary.

        A lane is an index on the environment axis of the fragments, which holds the trajectory of
        one agent at a time.
        """
        number = 0
        while (lane := self._lanes.get((env_index, number))) is not None and lane in used:
            number += 1
        return self._lanes.setdefault((env_index, number), len(self._lanes))

    # ---- rows ------------------------------------------------------------------------------------

    def add_decision(self, observed: Array, memory: Array, acted: Acted, rows: list[Row]) -> int:
        """Store a batched decision of R rows; return the index of its first row in `self.rows`.

        `observed` (R, *S) are the observations as fragments store them, `memory` (R, M) the
        policy's recurrent states before the decision, `rows` the R new rows, which are appended.
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
        """Mark the stored rows of an episode as dropped; those in a fragment already stay there.

        The next `take` deletes them.
        """
        for row in self.rows:
            if row.episode == episode:
                row.dropped = True

    def drop_last(self, number: int) -> None:
        """Drop the row at index `number`, the last of its trajectory.

        The row before it in the trajectory is marked as truncated, if it is in no fragment yet.
        """
        last = self.rows[number]
        last.dropped = True
        before = (one for one in self.rows[number::-1] if one.lane == last.lane and not one.dropped)
        if (one := next(before, None)) is not None:
            one.truncated = not one.terminated

    def end_episode(self, episode: int) -> None:
        """Mark the rows of an episode as over, so that `take` with `whole` includes them."""
        for row in self.rows:
            if row.episode == episode:
                row.is_over = True

    # ---- fragments -------------------------------------------------------------------------------

    def take(self, whole: bool) -> tuple[Fragment | None, dict[int, int]]:
        """Move the rows whose next observation is known into a fragment, and delete dropped rows.

        With `whole` only rows of episodes that have ended are moved. Returns the fragment, or None
        if there are no such rows; and old → new index in `rows` of the rows that remain.
        """
        given = [
            i
            for i, row in enumerate(self.rows)
            if row.is_known and not row.dropped and (row.is_over or not whole)
        ]
        gone = set(given)
        kept = [i for i, row in enumerate(self.rows) if i not in gone and not row.dropped]
        blocks = self._columns()
        fragment = self._fragment(given, blocks) if given else None
        self.rows = [self.rows[i] for i in kept]
        self._blocks = {n: [column[kept]] for n, column in blocks.items()} if kept else {}
        return fragment, {old: new for new, old in enumerate(kept)}

    def _columns(self) -> dict[str, Array]:
        """Return the stored columns of all R rows, name → (R, …).

        They are observations, actions, those that the actor computed, and ``memory`` if it has one.
        """
        return {name: np.concatenate(parts) for name, parts in self._blocks.items()}

    def _fragment(self, indices: list[int], blocks: Mapping[str, Array]) -> Fragment:
        """Return a fragment (T, lanes) of the rows `indices`, whose columns `blocks` (R, …) has.

        Rows of a lane are moved to its end, so shorter lanes begin with rows that are not
        transitions. Computes the actor's values of the last observations of truncated trajectories
        and of the observations after each lane's last row. Updates the statistics that scale
        rewards.
        """
        rows = [self.rows[i] for i in indices]
        lanes = np.array([row.lane for row in rows])
        counts = np.bincount(lanes, minlength=len(self._lanes))
        length = int(counts.max())
        order = np.argsort(lanes, kind="stable")
        ranks = np.empty(len(rows), dtype=np.int64)
        ranks[order] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        times = length - counts[lanes] + ranks
        fragment = self._empty_fragment(length, len(counts))
        arrays, cells = fragment.columns, (times, lanes)
        for name, column in blocks.items():
            arrays[name][cells] = column[indices]
        arrays["rewards"][cells] = clipped(np.array([row.reward for row in rows]), self._clip)
        arrays["autoreset"][cells] = False
        for name in ("terminated", "truncated", "valid"):
            arrays[name][cells] = [getattr(row, name) for row in rows]
        if self._scaler:
            self._scale(self._scaler, fragment, _begin_flags(fragment, cells, rows))
        if self._requested:
            self._write_requested(fragment, cells, rows)
        cut = [i for i, row in enumerate(rows) if row.truncated]
        for name, values in self._values_after([rows[i] for i in cut]).items():
            arrays[f"final_{name}"][times[cut], lanes[cut]] = values
        last = [i for i in np.flatnonzero(times == length - 1) if not rows[i].ended]
        for name, values in self._values_after([rows[i] for i in last]).items():
            fragment.last[f"last_{name}"][0, lanes[last]] = values
        return fragment

    def _empty_fragment(self, length: int, lanes: int) -> Fragment:
        """Return a fragment (length, lanes) in which no row is a transition."""
        of = self._actor, self._spaces, self._connectors
        fragment = new_fragment(length, lanes, *of, self._requested, self._unfiltered)
        fragment.valid[:], fragment.autoreset[:] = False, True
        return fragment

    def _scale(self, scaler: RewardScaler, fragment: Fragment, begins: NDArray[np.bool_]) -> None:
        """Divide the rewards of a fragment by the spread of their return, in place.

        The scaler's statistics are updated step after step. If fragments are unfiltered, only that
        is done. `begins` (T, lanes) is True where a trajectory begins.
        """
        lanes = fragment.valid.shape[1]
        scaler.returns = np.pad(scaler.returns, (0, lanes - len(scaler.returns)))
        for t, rewards in enumerate(fragment.rewards):
            scaler.returns[begins[t]] = 0.0  # the end of the trajectory before may be dropped
            ended = fragment.terminated[t] | fragment.truncated[t]
            skipped = fragment.autoreset[t]
            given = np.asarray(rewards, dtype=np.float64)
            if self._unfiltered:
                scaler.count(given, ended, skipped)
            else:
                rewards[~skipped] = scaler(given, ended, skipped)[~skipped]

    def _write_requested(
        self, fragment: Fragment, cells: tuple[Array, Array], rows: list[Row]
    ) -> None:
        """Write the requested columns of R rows into a fragment.

        `cells` are the rows' positions in the fragment: steps (R,) and lanes (R,). Counts unrolls
        and stores the last rows, which the next fragment's columns need.
        """
        size, begins = self._actor.memory_size, _begin_flags(fragment, cells, rows)
        makers: dict[str, Callable[[], Any]] = {
            "new_obs": lambda: self._stored_after(rows),
            "t": lambda: [row.t for row in rows],
            "eps_id": lambda: [row.episode for row in rows],
            "agent_index": lambda: [row.agent for row in rows],
            "infos": lambda: _object_array([dict(row.info or {}) for row in rows]),
            "unroll_id": lambda: self._unroll_ids(fragment, begins)[cells],
            "prev_actions": lambda: self._previous_rows("actions", fragment, begins)[cells],
            "prev_rewards": lambda: self._previous_rows("rewards", fragment, begins)[cells],
            "state_out": lambda: self._memories(rows)[:, :size],
        }
        columns = fragment.columns
        for name in self._requested:
            columns[name][cells] = makers[name]()

    def _previous_rows(self, name: str, fragment: Fragment, begins: NDArray[np.bool_]) -> Array:
        """Return the column `name` shifted by one step, (T, lanes, …).

        It is 0 where a trajectory begins. The first row of a lane follows the last row of the lane
        in the fragment before, which `_latest` keeps; the method replaces it by this fragment's
        last row.
        """
        column, has_row = fragment[name], ~fragment.autoreset
        latest = np.zeros_like(column[0])
        known = self._latest.get(name, latest[:0])
        latest[: len(known)] = known
        previous = np.concatenate([latest[None], column[:-1]])
        lanes = np.flatnonzero(has_row.any(axis=0))
        previous[has_row.argmax(axis=0)[lanes], lanes] = latest[lanes]
        previous[begins] = 0
        latest[lanes] = column[-1, lanes]
        self._latest[name] = latest
        return previous

    def _unroll_ids(self, fragment: Fragment, begins: NDArray[np.bool_]) -> Array:
        """Return the column ``unroll_id`` (T, lanes), and count the numbers as given.

        Consecutive rows of a trajectory in this fragment share one number, but after a row that is
        not `valid` a new one begins.
        """
        follows = np.zeros_like(begins)
        follows[1:] = fragment.valid[:-1] & ~begins[1:]
        number = np.cumsum(~(follows | fragment.autoreset).T).reshape(begins.T.shape).T - 1
        index, workers = self._worker
        ids: Array = (self._unrolls + number) * workers + index
        self._unrolls += int(number.max()) + 1
        return ids

    def _values_after(self, rows: list[Row]) -> dict[str, Array]:
        """Return the actor's values of the observations after these rows, name → (R, …).

        Empty if there are no rows, or the actor computes no values.
        """
        if not rows or not self._actor.value_names:
            return {}
        return self._actor.value_columns(*self._observations_after(rows))

    def _observations_after(self, rows: list[Row]) -> tuple[Array, Array]:
        """Return filtered observations (R, *S) and recurrent states (R, M) after these rows."""
        size, memory = self._actor.memory_size, self._memories(rows)
        return self._connectors.observe(_raw_after(rows), memory[:, size:])[0], memory[:, :size]

    def _stored_after(self, rows: list[Row]) -> Array:
        """Return observations (R, *S) after these rows as fragments store them.

        They are before the filter if fragments are unfiltered.
        """
        if not self._unfiltered:
            return self._observations_after(rows)[0]
        carried = self._memories(rows)[:, self._actor.memory_size :]
        return self._connectors.unfiltered_rows(_raw_after(rows), carried)

    def _memories(self, rows: list[Row]) -> Array:
        """Return the state (R, M + L) of policy and connectors after these rows, zeros if none."""
        size, carries = self._actor.memory_size, self._connectors.memory_size
        memory = np.zeros((len(rows), size + carries), dtype=np.float32)
        if memory.size:
            memory[:] = [row.memory for row in rows if row.memory is not None]
        return memory

    # ---- state -----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return the rows that are in no fragment yet, and what later rows need of earlier ones.

        ``columns`` are name → (R, …) of the rows, ``rows`` their fields of `PLAIN`, ``after``,
        ``memory`` and ``infos`` lists of what followed (or None), ``lanes`` [environment, number]
        of each lane, ``unrolls`` and ``latest`` as in the object, ``returns`` those that scale
        rewards, if they are scaled.
        """
        return {
            "unrolls": self._unrolls,
            "latest": {name: column.copy() for name, column in self._latest.items()},
            **({"returns": self._scaler.returns.copy()} if self._scaler else {}),
            "lanes": [list(place) for place in self._lanes],
            "columns": {name: column.copy() for name, column in self._columns().items()},
            "rows": {name: np.array([getattr(row, name) for row in self.rows]) for name in PLAIN},
            "after": [
                None if row.next_observation is None else row.next_observation.copy()
                for row in self.rows
            ],
            "memory": [None if row.memory is None else row.memory.copy() for row in self.rows],
            "infos": [None if row.info is None else dict(row.info) for row in self.rows],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self._unrolls = int(state["unrolls"])
        self._latest = {name: np.array(one) for name, one in state["latest"].items()}
        if self._scaler:
            self._scaler.returns = np.array(state["returns"])
        self._lanes = {(int(env), int(n)): i for i, (env, n) in enumerate(state["lanes"])}
        plain = zip(*(state["rows"][name].tolist() for name in PLAIN), strict=True)
        following = zip(state["after"], state["memory"], state["infos"], strict=True)
        self.rows = [
            Row(
                **dict(zip(PLAIN, one, strict=True)),
                next_observation=None if after is None else np.array(after),
                memory=None if memory is None else np.array(memory),
                info=info,
            )
            for one, (after, memory, info) in zip(plain, following, strict=True)
        ]
        self._blocks = {n: [np.array(c)] for n, c in state["columns"].items()} if self.rows else {}


def _begin_flags(
    fragment: Fragment, cells: tuple[Array, Array], rows: list[Row]
) -> NDArray[np.bool_]:
    """Return flags of the shape of the fragment (T, lanes), True where a trajectory begins.

    `cells` are the positions of `rows` in the fragment: steps (R,) and lanes (R,).
    """
    begins = np.zeros(fragment.valid.shape, dtype=np.bool_)
    begins[cells] = [row.t == 0 for row in rows]
    return begins


def _raw_after(rows: list[Row]) -> Array:
    """Return the raw observations (R, *S) that followed these rows, which all must be known."""
    return np.stack([row.next_observation for row in rows if row.next_observation is not None])


def _object_array(items: list[Any]) -> Array:
    """Return an array (R,) of dtype object with these items, also if they are sequences."""
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made
