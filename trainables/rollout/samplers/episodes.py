"""The sampler of whole episodes: rows are kept until their episode ends, also across checkpoints.

All environments write into one buffer of ticks. When an episode ends, its place in the buffer is
noted, and a sample gathers the rows of all finished episodes, one after the other as a single
column of time. The estimate of advantages stops at ends, so each episode is estimated by itself. N
environments, D features.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.observations import require_finite
from trainables.rollout.batch import Fragment, as_plain
from trainables.rollout.config import SamplingConfig
from trainables.rollout.episodes.episode import Episode, Trajectory
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.samplers.fragments import Collected, Sampler

Array = NDArray[Any]
#: Number of steps of an unfinished episode above which a warning is logged.
MANY_STEPS = 1000
#: Columns whose previous row may be requested.
BEFORE = ("actions", "rewards")

logger = logging.getLogger(__name__)


class _Piece(NamedTuple):
    """The place of a finished episode in the sampler's buffer (capacity, N)."""

    env_index: int
    """Index of the environment, 0 to N - 1."""
    start: int
    """Index on the time axis of the first row."""
    stop: int
    """Index on the time axis after the last row."""
    continues: bool
    """True after a soft horizon: the episode continues, and the value after the piece is
    bootstrapped."""
    episode: Episode | None
    """The episode as callbacks see it; None if there are no callbacks."""


class EpisodeSampler(Sampler):
    """Steps N environments with an actor until the finished episodes have enough steps.

    No episode is cut. At a soft horizon, which ends an episode for the metrics only, the rows so
    far are put into a fragment with the value of the next observation.
    """

    _missing_columns: frozenset[str] = frozenset()
    """Requested columns that a restored checkpoint lacks for the rows of running episodes."""

    def sample(self, stream: np.random.Generator) -> Collected:
        """Step until finished episodes have enough steps; return their rows in new arrays.

        There is one fragment (ΣL, 1), episode after episode in the order of their ends, and one
        more after each soft horizon. Rows of running episodes are kept for later calls. Logs a
        warning, once, if `warn_of_long_episodes` finds a reason. Raises NotFiniteError for an
        observation or reward that is not finite.
        """
        self.recent.clear()
        if self._missing_columns:
            self._fill_missing_columns()
        self._move_up()
        self._reset_flags(self._rows, self._next_row)
        pieces: list[_Piece] = []
        episodes: list[RolloutMetrics] = []
        steps = 0
        while steps < self._steps:
            if self._next_row == len(self._rows.valid):
                self._grow()
            for piece in self._advance(stream, episodes):
                pieces.append(piece)
                autoreset_rows = self._rows.autoreset[piece.start : piece.stop, piece.env_index]
                steps += len(autoreset_rows) - int(np.count_nonzero(autoreset_rows))
        groups = _group_pieces(pieces)
        fragments = [self._gather(group) for group in groups]
        trajectories = [_piece_rows(group) for group in groups] if self.watch else []
        if self.watch:
            self.watch.take_pieces(0)  # of ticks; here a piece is a whole episode
        return Collected(fragments, episodes, self._recent_rows(), trajectories)

    def get_state(self) -> dict[str, Any]:
        """Return the state of `Sampler.get_state`, and ``in_flight``, the rows of running episodes.

        ``in_flight`` has ``lengths`` (N,), numbers of rows, and ``rows``, column → (Σ lengths, …),
        environment after environment.
        """
        lengths = self._next_row - self._first_rows
        times, envs = self._row_indices(range(len(lengths)), self._first_rows, lengths)
        known = {
            n: column for n, column in self._rows.columns.items() if n not in self._missing_columns
        }
        rows = {name: as_plain(column[times, envs]) for name, column in known.items()}
        return {**super().get_state(), "in_flight": {"lengths": lengths, "rows": rows}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned.

        It may lack columns that are requested now; the next `sample` computes them.
        """
        super().set_state(state)
        rows = state["in_flight"]["rows"]
        lengths = np.array(state["in_flight"]["lengths"])
        self._next_row = int(lengths.max())
        while self._next_row > len(self._rows.valid):
            self._grow()
        self._first_rows = self._next_row - lengths
        times, envs = self._row_indices(range(len(lengths)), self._first_rows, lengths)
        self._missing_columns = self._requested - rows.keys()
        for name, column in self._rows.columns.items():
            if name not in self._missing_columns:
                column[times, envs] = rows[name]

    def drop_episode(self, env_index: int, observation: Array) -> None:
        """Drop an environment's running episode and its rows; `observation` begins the next one."""
        super().drop_episode(env_index, observation)
        self._first_rows[env_index] = self._next_row

    def _allocate(self, spaces_: EnvSpaces) -> list[Fragment]:
        """Allocate the buffer of steps (capacity, N), and return an empty list.

        There are no fragments to be filled, since `sample` makes new ones.
        """
        envs = self.config.num_envs_per_worker
        capacity = 2 * max(self.config.rollout_fragment_length, self._steps // envs)
        self._rows = self._new_fragment(capacity, spaces_)
        self._first_rows = np.zeros(envs, dtype=np.int64)  # first rows of the running episodes
        self._next_row = 0
        self._warned = False
        return []

    def _unroll_numbers(self) -> Array:
        """Return the column ``unroll_id`` (N,) of a step: the numbers of the running episodes."""
        own, all_ = self._numbers
        return np.asarray(self.episodes.counts * all_ + own)

    def _drop_rows(self, rows: Fragment, env_index: int, last_row: int) -> None:
        """Mark an environment's rows of its faulty episode, up to `last_row`, as invalid."""
        rows.valid[self._first_rows[env_index] : last_row + 1, env_index] = False

    def _fill_missing_columns(self) -> None:
        """Compute the columns that a restored checkpoint lacks for the rows of running episodes.

        They follow from the other columns; infos, which are not known, become empty.
        """
        lengths = self._next_row - self._first_rows
        times, envs = self._row_indices(range(len(lengths)), self._first_rows, lengths)
        columns, (own, all_) = self._rows.columns, self._numbers
        t = np.maximum(self.episodes.lengths[envs] - (self._next_row - times), 0)
        after = np.minimum(times + 1, self._next_row - 1)

        def following(name: str, latest: Array) -> Array:
            """Return the column's next rows (R, …); `latest` (N, …) follows the last ones."""
            found: Array = columns[name][after, envs]
            found[after == times] = latest[envs[after == times]]
            return found

        def previous(name: str) -> Array:
            """Return the column's previous rows (R, …), 0 at the start of an episode."""
            found: Array = columns[name][times - 1, envs]
            found[t == 0] = 0
            return found

        memory = "memory" if self.actor.memory_size else "state_out"
        makers: dict[str, Callable[[], Any]] = {
            "new_obs": lambda: following("observations", self._as_stored(self.observations)),
            "t": lambda: t,
            "eps_id": lambda: (self.episodes.counts * all_ + own)[envs],
            "infos": lambda: [{} for _ in envs],
            "agent_index": lambda: 0,
            "unroll_id": lambda: self._unroll_numbers()[envs],
            "state_out": lambda: following(memory, self.memory),
            **{f"prev_{name}": partial(previous, name) for name in BEFORE},
        }
        for name in self._missing_columns:
            columns[name][times, envs] = makers[name]()
        if self._next_row and not self._previous_row:
            latest = {f"prev_{name}": columns[name][self._next_row - 1] for name in BEFORE}
            self._previous_row = {name: one.copy() for name, one in latest.items()}
        self._missing_columns = frozenset()

    def _advance(self, stream: np.random.Generator, episodes: list[RolloutMetrics]) -> list[_Piece]:
        """Step all environments once; return the places in the buffer of the episodes that ended.

        They are in the order of environments. The episodes' metrics are appended to `episodes`. At
        a soft horizon the actor's values of the next observation are written as ``final_<name>``.
        Raises NotFiniteError if an observation or reward is not finite.
        """
        t = self._next_row
        finished, over, written = self._tick(self._rows, t, stream)
        self._check(self._rows, slice(t, t + 1))  # an episode of NaN might never end
        require_finite(self.observations, f"{self.name}, environment", "observation")
        self._next_row += 1
        episodes += finished
        if over is None:
            return []
        ended = self._rows.terminated[t] | self._rows.truncated[t]
        continues = over & ~ended
        if continues.any() and self.actor.value_names:
            # Read by `_gather` alone: the row is not truncated.
            filtered = self._as_policy_sees(self.observations)
            for name, judged in self.actor.value_columns(filtered, self.memory).items():
                self._rows.declared[f"final_{name}"][t, continues] = judged[continues]
        envs = np.flatnonzero(over)
        ends = zip(
            envs.tolist(), self._first_rows[envs].tolist(), continues[envs].tolist(), strict=True
        )
        pieces = [_Piece(env, begun, t + 1, on, written.get(env)) for env, begun, on in ends]
        self._first_rows[over] = t + 1
        return pieces

    def _gather(self, group: list[_Piece]) -> Fragment:
        """Return a fragment (ΣL, 1) with copies of these pieces' rows, piece after piece.

        Its `last` has the values after the last piece.
        """
        envs, starts, stops = np.array([piece[:3] for piece in group]).T
        where = self._row_indices(envs, starts, stops - starts)
        columns = {name: column[where][:, None] for name, column in self._rows.columns.items()}
        # The values after the end of the last episode are not read.
        last = {f"last_{n}": columns[f"final_{n}"][-1:].copy() for n in self.actor.value_names}
        return Fragment.from_columns({**columns, **last})

    def _row_indices(self, envs: Any, starts: Array, lengths: Array) -> tuple[Array, Array]:
        """Return the indices in the buffer, times (R,) and environments (R,), of pieces' rows.

        Each piece has an environment, a first row and a number of rows, (pieces,) each.
        """
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(starts, lengths) + offsets, np.repeat(np.asarray(envs), lengths)

    def _move_up(self) -> None:
        """Move the rows of running episodes to the beginning of the buffer."""
        first, kept = int(self._first_rows.min()), int(self._next_row - self._first_rows.min())
        for column in self._rows.columns.values():
            column[:kept] = column[first : self._next_row]
        self._first_rows -= first
        self._next_row = kept

    def _grow(self) -> None:
        """Double the buffer's number of steps; warns, once, as `warn_of_long_episodes` does."""
        self._warn_of_long_episodes()
        columns = {n: np.concatenate([c, np.zeros_like(c)]) for n, c in self._rows.columns.items()}
        self._rows = Fragment.from_columns({**columns, **self._rows.last})
        self._reset_flags(self._rows, self._next_row)

    def _warn_of_long_episodes(self) -> None:
        """Log the warning of `warn_of_long_episodes`, at most once in this sampler's life."""
        lengths = self._next_row - self._first_rows
        if not self._warned:
            self._warned = warn_of_long_episodes(self.name, self.config, lengths)


def warn_of_long_episodes(name: str, config: SamplingConfig, lengths: Array) -> bool:
    """Log a warning and return True if an unfinished episode is so long that it might never end.

    That is so above `MANY_STEPS` steps and 10 fragment lengths. `lengths` are the steps so far of
    the unfinished episodes of the sampler `name`.
    """
    if not len(lengths) or lengths.max() <= max(MANY_STEPS, 10 * config.rollout_fragment_length):
        return False
    logger.warning(
        "%s holds %d steps of %d unfinished episode(s), the longest has %d; with "
        "batch_mode: complete_episodes the policy does not learn before an episode ends. If the "
        "environment never ends one, set a time limit or horizon, or use "
        "batch_mode: truncate_episodes",
        *(name, lengths.sum(), len(lengths), lengths.max()),
    )
    return True


def _group_pieces(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Return the pieces in groups, one group for each fragment.

    A piece that ended at a soft horizon is the last of its group.
    """
    groups: list[list[_Piece]] = [[]]
    for piece in pieces:
        groups[-1].append(piece)
        if piece.continues:
            groups.append([])
    return [group for group in groups if group]


def _piece_rows(group: list[_Piece]) -> list[Trajectory]:
    """Return the rows of each episode in the fragment (ΣL, 1) that is made of these pieces.

    Pieces without an episode, that is without callbacks, are left out.
    """
    traced: list[Trajectory] = []
    start = 0
    for piece in group:
        stop = start + piece.stop - piece.start
        if piece.episode:
            traced.append(Trajectory(0, start, stop, piece.episode))
        start = stop
    return traced
