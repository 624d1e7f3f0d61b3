"""The vectorised sampler: one batched decision per tick for all environments, written in place.

A tick: observations → filter → policy → environments (clipped if so set) → columns. Stored actions
are those that the policy chose, before clipping. T ticks, N environments, *S the shape of an
observation: vectors (D,) of float32, images (H, W, C) of uint8 or float32; M numbers of the
policy's memory, L of the connectors'. Fragments have a fixed length here; `episodes.py` collects
whole episodes with the same tick.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.envs.external.polled import AGENT
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.observations import require_finite
from trainables.envs.vector.base import Step, VectorEnv
from trainables.envs.vector.separate import InProcessVectorEnv
from trainables.errors import EnvError, NotFiniteError
from trainables.policies.acting.actor import Acted, Actor
from trainables.policies.acting.deciding import Decider, VectorEnvDecider
from trainables.policies.acting.inference import InferencePolicy
from trainables.policies.filters import (
    Filter,
    MeanStdFilter,
    RewardScaler,
    is_filtering,
)
from trainables.rollout.batch import Fragment, new_fragment
from trainables.rollout.config import SamplingConfig, clipped
from trainables.rollout.episodes.agent_records import EpisodePolicies
from trainables.rollout.episodes.episode import Episode, EpisodeTracker, Trajectory
from trainables.rollout.episodes.metrics import EpisodesInFlight, RolloutMetrics, without_lost_lives
from trainables.rollout.media.recording import VideoRecorder
from trainables.rollout.progress import PerfConfig, PerfStats
from trainables.rollout.workers.access import DEFAULT_POLICY_ID

Array = NDArray[Any]
#: Maximum number of latest observations that are kept.
RECENT_ROWS = 64
#: Requested columns about the row before a step, the memory after it, its agent and its unroll.
SEQUENCE_COLUMNS = frozenset(
    {"agent_index", "unroll_id", "prev_actions", "prev_rewards", "state_out"}
)
#: Requested columns that are known without an array for each step.
FAST_LOOP_COLUMNS = frozenset({"new_obs", "t"})


class Collected(NamedTuple):
    """The result of one call of `Sampler.sample`."""

    fragments: list[Fragment]
    """Collected fragments; the next call may overwrite their arrays."""
    episodes: list[RolloutMetrics]
    """Episodes that ended, in the order of their ends."""
    recent: Array
    """Latest raw observations (≤ 64, *S), before the filter; the newest last."""
    trajectories: Sequence[list[Trajectory]] = ()
    """As `Sample.trajectories`: for each fragment the rows of each episode in it."""


class Sampler:
    """Steps N environments with an actor and writes fragments of a fixed length.

    Args:
        name: name in errors, for example ``worker 0``.
        filters: ``observation`` and, if rewards are normalised, ``reward`` → filter, shared with
            the owner.
        gamma: discount of the return whose deviation scales rewards.
        steps: environment steps of one `sample`.
        columns: names of the requested columns.
        unfiltered: True if fragments hold observations as `WorkerSpec.unfiltered` says.
        worker: (index of the worker, number of workers).
    """

    def __init__(
        self,
        name: str,
        config: SamplingConfig,
        spaces_: EnvSpaces,
        *,
        envs: VectorEnv,
        actor: Actor,
        filters: Mapping[str, Filter],
        gamma: float,
        steps: int,
        columns: frozenset[str] = frozenset(),
        unfiltered: bool = False,
        worker: tuple[int, int] = (0, 1),
    ) -> None:
        self.name, self.config, self._steps = name, config, steps
        self.envs, self.actor, self._spaces, self._requested = envs, actor, spaces_, columns
        self.episodes = EpisodesInFlight(config.num_envs_per_worker)
        self.recent: deque[Array] = deque(maxlen=-(-RECENT_ROWS // config.num_envs_per_worker))
        self._filter = filters["observation"]
        self._filters = is_filtering(self._filter)
        self._unfiltered, self._stores_unfiltered = unfiltered, unfiltered and self._filters
        self._scaler: RewardScaler | None = None
        if isinstance(stat := filters.get("reward"), MeanStdFilter):
            self._scaler = RewardScaler(config.num_envs_per_worker, gamma, stat)
        self._alters_rewards = bool(self._scaler or config.clip_rewards)
        self.connectors = spaces_.connected(
            name,
            self._filter,
            config.clip_actions,
            config.spreads_actions,
            exact=self._filters,
        )
        """Connectors between the environments and the policy."""
        self.carried: Array = self.connectors.initial(config.num_envs_per_worker)
        """(N, L) memory of the connectors that belongs to the current observations."""
        self.observations: Array = np.zeros(
            (config.num_envs_per_worker, *spaces_.row_shape), self.connectors.row_dtype
        )
        self.between_ticks: Callable[[], None] | None = None
        """Function called before each tick, when no environment is in a step; None for none."""
        self.watch: EpisodeTracker | None = None
        """Tracker that calls the callbacks; None if there are no callbacks."""
        self.film: VideoRecorder | None = None
        """Recorder of environment 0; None without videos and viewer."""
        self.perf = PerfStats(PerfConfig())
        self.latest: dict[str, Any] = {}
        """``policy inputs``, ``policy outputs`` and ``infos`` of a tick, for the log.

        While the dict is empty, the next tick fills it.
        """
        self._observe_seconds = 0.0
        """Seconds that receiving the current observations took."""
        self._autoreset_rows: NDArray[np.bool_] | None = None
        """(N,) True where the next step is not a transition; None if every step is one."""
        self.memory: Array = self.actor.initial_memory(config.num_envs_per_worker)
        """(N, M) memory of the policy that belongs to the current observations."""
        self.actor.exploration.begin(config.num_envs_per_worker)
        self._numbers = worker[0] * envs.count + np.arange(envs.count), worker[1] * envs.count
        """(N,) number of each environment in the trial, and the number of all environments there.
        """
        self._row, self._fragment_count = 0, 0
        """Row of the fragment that is being written; and the number of finished fragments."""
        self._current_fragment: Fragment | None = None
        self._current_columns, self._previous_row = dict[str, Array](), dict[str, Array]()
        """Columns of the fragment being written; actions and rewards (N, …) of the row before."""
        self._fragments = self._allocate(spaces_)

    def start(self, seeds: list[int]) -> None:
        """Reset all environments, each with its seed, and begin their first episodes.

        Calls ``on_episode_created`` and ``on_episode_start`` if there are callbacks, and takes the
        first picture.
        """
        every = range(len(self.observations))
        if self.watch:
            self.watch.create(every)
        observations = self.envs.reset(seeds)
        self.observations = self.connectors.rows(observations)
        if self.watch:
            self.watch.start(every, observations)
        if self.film:
            self.film.begin(1)

    @cached_property
    def _player(self) -> InferencePolicy:
        """The policy as an `InferencePolicy`, with which callbacks ask about agents."""
        return InferencePolicy(self.actor, self._spaces, self.connectors)

    def episode_policies(self, env_index: Any, before: int) -> EpisodePolicies:
        """Return the policies of an episode, for callbacks: of each episode the only policy."""
        return EpisodePolicies({DEFAULT_POLICY_ID: self._player}, lambda _: DEFAULT_POLICY_ID)

    @property
    def times(self) -> dict[str, float]:
        """Mean milliseconds per step by result key: of the parts of a step, and of connectors.

        A connector has ``connector_metrics/<name>_ms``.
        """
        seconds = {**self.envs.connector_seconds(), **self.connectors.seconds}
        return {**self.perf.means(), **self.perf.connectors(seconds)}

    @property
    def connector_descriptions(self) -> list[str]:
        """One line of text for each connector between environments and policy, for logs."""
        return self.connectors.described()

    def observe(self, observations: Array) -> None:
        """Convert observations (N, *O) to rows, and store these as the current ones.

        Raises EnvError for a wrong size and, if observations are filtered, NotFiniteError.
        """
        began = time.perf_counter()
        self.observations = self.connectors.rows(observations, check=self._filters)
        self._observe_seconds = time.perf_counter() - began

    def sample(self, stream: np.random.Generator) -> Collected:
        """Fill the fragments and return them; the next call writes into the same arrays.

        Steps the environments, draws actions from `stream`, updates the filters' statistics, and
        calls the callbacks of episodes. Raises NotFiniteError for an observation or reward that is
        not finite, and the environments' EnvError.
        """
        self.recent.clear()
        episodes: list[RolloutMetrics] = []
        trajectories: list[list[Trajectory]] = []
        for fragment in self._fragments:
            self._reset_flags(fragment)
            steps, draws = len(fragment.valid), stream
            if self.between_ticks is None:  # no state is taken before the fragment's end
                draws = self.actor.prepare_draws(steps, self.envs.count, stream)
            alone = self._single_env_decider(draws)
            apart = alone or self.between_ticks or self._stores_unfiltered
            together = None if apart else self.actor.vector_env_decider(draws)
            deciding, since = None, steps
            self._row = 0
            try:
                while self._row < steps:
                    if alone and not self._is_watched:
                        self._run_alone(fragment, alone, episodes)
                    else:
                        if deciding is None and together and not self._is_watched:
                            deciding, since = together, self._row
                        episodes += self._tick(fragment, self._row, draws, deciding)[0]
                    self._row += 1
            except (EnvError, NotFiniteError):
                # An earlier row that is wrong is the cause.
                self._check(fragment, slice(self._row + 1))
                raise
            if deciding:
                self._write_decided(fragment, deciding, slice(since, steps))
            trajectories += self._finish(fragment)
        return Collected(self._fragments, episodes, self._recent_rows(), trajectories)

    def _single_env_decider(self, draws: np.random.Generator) -> Decider | None:
        """Return the object that chooses actions in `_run_alone`, the loop for one environment.

        It draws from `draws`. Returns None if there are several environments, or filters,
        connectors, rewards or columns that the loop does not handle.
        """
        if (
            self._filters
            or self.connectors.steps
            or not self.connectors.adapter.counts_from_zero
            or self._alters_rewards
            or type(self.envs) is not InProcessVectorEnv
        ):
            return None
        if self.between_ticks is not None or not self._requested <= FAST_LOOP_COLUMNS:
            return None
        return None if self.envs.only_row is None else self.actor.single_env_decider(draws)

    def _run_alone(self, rows: Fragment, deciding: Decider, episodes: list[RolloutMetrics]) -> None:
        """Fill the fragment from row `_row` on with steps of the only environment.

        `deciding` chooses the actions; the rows equal those of `_tick`. Finished episodes are
        appended to `episodes`, and `_row` becomes the last row that was filled, also if a step
        raises. For speed, no arrays are made in steps in which the episode continues.
        """
        envs, clock, count = self.envs, time.perf_counter, self.perf.add
        assert isinstance(envs, InProcessVectorEnv)  # noqa: S101 asked by the caller
        stored, first, steps = rows.observations, self._row, len(rows.valid)
        actions: list[Any] = []
        rewards: list[float] = []
        current, following = self.observations[0], envs.only_row
        total, calm = float(self.episodes.rewards[0]), 0
        t, began = first, clock()
        try:
            for t in range(first, steps):
                row = stored[t]
                row[0] = current
                processed = clock()
                action = deciding.choose(t, row)
                decided = clock()
                actions.append(action)
                step = envs.step_alone(action)
                stepped = clock()
                count(began, processed, decided, decided, stepped)
                began = stepped
                if isinstance(step, float):
                    rewards.append(step)
                    total += step
                    calm += 1
                    current = following
                    continue
                self._record_calm_steps(rows, slice(t - calm, t), row, total)
                self.observations = row
                episodes += self._record_alone(rows, t, step)
                rewards.append(float(step.rewards[0]))
                current, total, calm = self.observations[0], float(self.episodes.rewards[0]), 0
            self._record_calm_steps(rows, slice(steps - calm, steps), current, total)
            self.observe(current[None])
        finally:
            self._row = t
            rows.rewards[first : first + len(rewards), 0] = rewards
            decided_on = slice(first, first + len(actions))
            for name, column in deciding.columns(decided_on, actions).items():
                self._arrays_of(rows)[name][decided_on, 0] = column
            self.recent.extend(stored[max(first, t + 1 - RECENT_ROWS) : t + 1])

    def _write_decided(self, fragment: Fragment, deciding: VectorEnvDecider, rows: slice) -> None:
        """Write the columns, such as ``logp`` and ``values``, of rows that `deciding` chose.

        It computes them for all rows at once. The time is added to the policy's.
        """
        began = time.perf_counter()
        arrays = self._arrays_of(fragment)
        seen, done = arrays["observations"][rows], arrays["actions"][rows]
        for name, column in deciding.columns(rows, seen, done).items():
            arrays[name][rows] = column
        self.perf.add_deciding(time.perf_counter() - began, len(seen))

    def _record_calm_steps(
        self, rows: Fragment, steps: slice, following: Array, total: float
    ) -> None:
        """Write requested columns of, and count, the rows `steps`, in which the episode continued.

        There is one environment. `following` (*S) is the observation after them, `total` the sum of
        the episode's rewards by then.
        """
        count = steps.stop - steps.start
        if "new_obs" in self._requested and count:
            after = rows.declared["new_obs"]
            after[steps.start : steps.stop - 1] = rows.observations[steps.start + 1 : steps.stop]
            after[steps.stop - 1] = following
        if "t" in self._requested:
            rows.declared["t"][steps, 0] = self.episodes.lengths[0] + np.arange(count)
        self.episodes.count_alone(total, count)

    def _record_alone(self, rows: Fragment, t: int, step: Step) -> list[RolloutMetrics]:
        """Write into row `t` and count a step of the only environment; return ended episodes.

        The step ended an episode or has an info.
        """
        ended = self._write_step(rows, t, step, self.memory, None)
        self.observe(step.observations)
        return self._count(step, t, ended, None)[0]

    def _reset_flags(self, rows: Fragment, first: int = 0) -> None:
        """Set `valid` to True, other flags to False and ``final_…`` to 0 from row `first` on."""
        rows.valid[first:], rows.autoreset[first:] = True, False
        rows.terminated[first:] = rows.truncated[first:] = False
        for name in self.actor.value_names:
            rows.declared[f"final_{name}"][first:] = 0.0

    def _finish(self, fragment: Fragment) -> list[list[Trajectory]]:
        """Check a full fragment, and write the actor's values of the observations after it.

        The fragment counts as finished, which changes ``unroll_id`` of later rows. Returns a list
        of one item, the rows of each episode in the fragment, if there are callbacks, or else an
        empty list. Raises NotFiniteError if an observation or reward is not finite.
        """
        self._check(fragment, slice(None))
        self._fragment_count += 1
        if not self._requested & SEQUENCE_COLUMNS:  # else it is known after each step
            latest = {"prev_actions": fragment.actions, "prev_rewards": fragment.rewards}
            self._previous_row = {name: column[-1].copy() for name, column in latest.items()}
        require_finite(self.observations, f"{self.name}, environment", "observation")
        if self.actor.value_names:
            filtered = self._as_policy_sees(self.observations)
            for name, judged in self.actor.value_columns(filtered, self.memory).items():
                fragment.last[f"last_{name}"][0] = judged
        return [self.watch.take_pieces(len(fragment.valid))] if self.watch else []

    def _check(self, fragment: Fragment, rows: slice) -> None:
        """Raise NotFiniteError for the first observation or reward in `rows` that is not finite.

        Called once for many steps, since in every step it would cost as much as a small
        environment.
        """
        problems: list[tuple[int, int, Array, str]] = []
        checked = {"observation": fragment.observations, "reward": fragment.rewards}
        for order, (name, column) in enumerate(checked.items()):
            finite = np.isfinite(column[rows])
            if np.count_nonzero(finite) != finite.size:
                t = int(np.argwhere(~finite)[0][0]) + (rows.start or 0)
                problems.append((t, order, column[t], name))
        if problems:
            _, _, values, name = min(problems, key=lambda one: one[:2])
            require_finite(values, f"{self.name}, environment", name)

    def get_state(self) -> dict[str, Any]:
        """Return the state between two fragments as plain data, for `set_state`.

        ``observations`` are the current ones, ``memory`` the policy's recurrent state, ``carried``
        that of connectors, ``ghosts`` True where the next step only resets an environment (or
        None), ``episodes`` lengths and returns, ``discounted_returns`` those that scale rewards (or
        None). ``unrolls`` and ``before`` serve the columns of `SEQUENCE_COLUMNS`, which may be
        requested after a restore.
        """
        return {
            "observations": self.observations.copy(),
            "memory": self.memory.copy(),
            **({"carried": self.carried.copy()} if self.connectors.steps else {}),
            "unrolls": self._fragment_count,
            "before": dict(self._previous_row),
            "ghosts": None if self._autoreset_rows is None else self._autoreset_rows.copy(),
            "episodes": self.episodes.get_state(),
            "discounted_returns": self._scaler.returns.copy() if self._scaler else None,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self.observations = np.array(state["observations"], dtype=self.observations.dtype)
        self.memory = np.array(state["memory"])
        if self.connectors.steps:
            self.carried = np.array(state["carried"])
        self._fragment_count = int(state["unrolls"])
        self._previous_row = {name: np.array(one) for name, one in state["before"].items()}
        self._autoreset_rows = _flags_or_none(state["ghosts"])
        self.episodes.set_state(state["episodes"])
        if self._scaler:
            self._scaler.returns[:] = state["discounted_returns"]

    def drop_episode(self, env_index: int, observation: Array) -> None:
        """Drop the running episode of an environment; `observation` begins the next one.

        Its recurrent state, the connectors' state and its discounted return begin again at 0. It
        gets no metrics, and the exploration's hook for ended episodes is called. The next step of
        every environment counts as a transition.
        """
        self._autoreset_rows = None
        self.actor.exploration.ended(np.arange(self.envs.count) == env_index)
        self.episodes.drop(env_index)
        self.observations[env_index] = observation.reshape(self.observations.shape[1:])
        self.memory[env_index] = self.carried[env_index] = 0.0
        if self._scaler:
            self._scaler.returns[env_index] = 0.0

    def _allocate(self, spaces_: EnvSpaces) -> list[Fragment]:
        """Return the fragments that each `sample` fills, enough for its steps; called once."""
        size = self.config.rollout_fragment_length
        rounds = self._steps // (size * self.config.num_envs_per_worker)
        return [self._new_fragment(size, spaces_) for _ in range(rounds)]

    def _new_fragment(self, steps: int, spaces_: EnvSpaces) -> Fragment:
        """Allocate a fragment of `steps` steps of all environments with all requested columns."""
        of = self.actor, spaces_, self.connectors
        return new_fragment(steps, self.envs.count, *of, self._requested, self._unfiltered)

    def _recent_rows(self) -> Array:
        """Return the latest raw observations of this `sample`, (≤ 64, *S), the newest last."""
        return np.concatenate(list(self.recent))[-RECENT_ROWS:]

    def _tick(
        self,
        rows: Fragment,
        t: int,
        stream: np.random.Generator,
        deciding: VectorEnvDecider | None = None,
    ) -> tuple[list[RolloutMetrics], NDArray[np.bool_] | None, dict[int, Episode]]:
        """Make one step of every environment and write it into row `t`.

        Calls `between_ticks` before, and callbacks; stores the next observations and memories.

        Args:
            deciding: chooses actions in place of the actor, if not None; columns other than the
                actions are then not written here.

        Returns:
            Episodes that ended; (N,) flags of the environments whose episode ended for the metrics,
            or None if none did; and environment → ended episode as callbacks see it.
        """
        if self.between_ticks is not None:
            self.between_ticks()
        self.recent.append(self.observations)
        clock = time.perf_counter
        began = clock()
        filtered, observed, carried = self._filter_current()
        processed = clock()
        if deciding is None:
            acted = self.actor.act(filtered, self.memory, stream)
        else:
            acted = Acted(deciding.choose(t, filtered), {}, self.memory)
        decided = clock()
        self._write_decision(rows, t, observed, self.memory, acted)
        if self.watch:
            self._show_decision(range(self.envs.count), acted, carried)
        sent = self.connectors.send(acted.actions)
        adapted = clock()
        step = self.envs.step(sent)
        self.perf.add(began - self._observe_seconds, processed, decided, adapted, clock())
        if self.connectors.steps:
            carried = self.connectors.after_actions(carried, acted.actions)
            self.carried = self.connectors.after_rewards(carried, step.rewards)
        skipped = self._autoreset_rows
        if step.is_calm and skipped is None and not self._is_watched:
            return self._record_calm(rows, t, step, acted.memory)
        if skipped is not None:
            rows.autoreset[t], rows.valid[t] = skipped, ~skipped
        ended = self._write_step(rows, t, step, acted.memory, skipped)
        self._carry(acted.memory, ended)
        self._autoreset_rows = _flags_or_none(step.restarting)
        self.observe(step.observations)
        if not self.latest:
            self.latest = {"infos": step.infos, "policy inputs": filtered, "policy outputs": acted}
        return self._count(step, t, ended, skipped)

    @property
    def _is_watched(self) -> bool:
        """True if a step has effects that the fast paths do not handle.

        These are callbacks, pictures, the first step (which the log shows), and columns of
        `SEQUENCE_COLUMNS`.
        """
        return bool(
            self.watch or self.film or not self.latest or self._requested & SEQUENCE_COLUMNS
        )

    def _record_calm(
        self, rows: Fragment, t: int, step: Step, memory: Array
    ) -> tuple[list[RolloutMetrics], None, dict[int, Episode]]:
        """Write into row `t` and count a step in which no episode ended.

        `memory` (N, M) is the policy's recurrent state after it. Returns what `_tick` does if no
        episode ended: an empty list, None and an empty dict.
        """
        rewards = step.rewards
        if self._alters_rewards:
            rewards = self._rewards_for_learner(step, step.terminated, None)
        self._current_columns["rewards"][t] = rewards
        if self._requested:
            for name, column in self._requested_columns(step, step.terminated).items():
                self._current_columns[name][t] = column
        if step.infos:
            self._exclude(rows, t, step)
        self.memory = memory
        self.observe(step.observations)
        self.episodes.count(step.rewards)
        return [], None, {}

    def _count(
        self,
        step: Step,
        row: int | Array,
        has_ended: NDArray[np.bool_],
        idle: NDArray[np.bool_] | None,
    ) -> tuple[list[RolloutMetrics], NDArray[np.bool_] | None, dict[int, Episode]]:
        """Count a step in metrics, callbacks and videos, after it was written into a fragment.

        `row` is its time index, or (N,), one for each environment. `has_ended` (N,) is True where
        an episode ended, `idle` (N,) where an environment made no step (None if all made one).
        Returns the same as `_tick`: ended episodes, flags or None, and environment → ended episode.
        """
        over = has_ended if step.metric_ends is None else has_ended | step.metric_ends
        over = without_lost_lives(over, step)
        if self.film:
            self.perf.add_rendering(self.film.after_step(bool(over[0])))
        written = self.watch.after_step(step, row) if self.watch else {}
        finished = self.episodes.step(step.rewards, over, step.faults, idle, written)
        return finished, over if finished else None, written

    def _carry(self, memory: Array, has_ended: NDArray[np.bool_]) -> None:
        """Keep the policy's recurrent state (N, M) for the next step, 0 where an episode begins.

        The zeros are written into `memory` itself, and into the connectors' state. Exploration is
        told which episodes ended: those where `has_ended` (N,) is True.
        """
        self.memory = memory
        self.actor.exploration.ended(has_ended)
        if self.actor.memory_size or self.connectors.steps:
            begun = has_ended if self._autoreset_rows is None else has_ended | self._autoreset_rows
            memory[begun] = self.carried[begun] = 0.0

    def _filter_current(self) -> tuple[Array, Array, Array]:
        """Pass the current observations through connectors and filter, and update its statistics.

        Observations that belong to no transition do not enter the statistics.

        Returns:
            The observations as the policy sees them, the observations as fragments store them, and
            the numbers that connectors carry to the next observations, (N, L).
        """
        if not self._filters and not self.connectors.steps:
            return self.observations, self.observations, self.carried
        counted = True if self._autoreset_rows is None else ~self._autoreset_rows
        return self._through_connectors(self.observations, self.carried, counted)

    def _through_connectors(
        self, observations: Array, carried: Array, counted: bool | NDArray[np.bool_]
    ) -> tuple[Array, Array, Array]:
        """Process observations of K environments with connectors and filter.

        Args:
            observations: (K, *S) rows as `Connectors.rows` returned them.
            carried: (K, L) state of the connectors before them.
            counted: True if they enter the filter's statistics, or flags (K,).

        Returns:
            Rows (K, *S) as the policy sees them, rows as fragments store them, and the connectors'
            state after them (K, L).
        """
        if self._stores_unfiltered:
            return self.connectors.observe_both(observations, carried, counted)
        filtered, carried = self.connectors.observe(observations, carried, counted)
        return filtered, filtered, carried

    def _as_policy_sees(self, observations: Array) -> Array:
        """Return observations (N, *S) as the policy sees them, without updating filter statistics.

        They are used for values only; no action follows them.
        """
        return self.connectors.observe(observations, self.carried)[0]

    def _as_stored(self, observations: Array) -> Array:
        """Return observations (N, *S) as fragments store them, without updating statistics."""
        if self._stores_unfiltered:
            return self.connectors.unfiltered_rows(observations, self.carried)
        return self._as_policy_sees(observations)

    def _write_decision(
        self, rows: Fragment, cells: Any, observed: Array, memory: Array, acted: Acted
    ) -> None:
        """Write a decision into `rows`: observations, recurrent states before it, actions, outputs.

        `cells` is an index into columns (T, N, …): a time, or (times, environments). `observed` are
        the observations as fragments store them.
        """
        arrays = self._arrays_of(rows)
        arrays["observations"][cells] = observed
        arrays["actions"][cells] = acted.actions
        for name, column in acted.columns.items():
            arrays[name][cells] = column
        if self.actor.memory_size:
            arrays["memory"][cells] = memory

    def _show_decision(self, envs: Sequence[int], acted: Acted, carried: Array) -> None:
        """Record a decision for K environments in their episodes, where callbacks can read it.

        `carried` (K, L) is the connectors' state after the observations.
        """
        assert self.watch is not None  # noqa: S101 asked by the caller
        after = self._player.next_memories(acted.actions, acted.memory, carried)
        for i, env_index in enumerate(envs):
            outputs = acted.outputs_of(i, self.actor.fetches)
            episode = self.watch.running(int(env_index))
            episode.note_decision(AGENT, acted.actions[i], after[i], outputs)

    def _write_step(
        self,
        rows: Fragment,
        row: int | Array,
        step: Step,
        memory: Array,
        idle: NDArray[np.bool_] | None,
        envs: Array | None = None,
    ) -> NDArray[np.bool_]:
        """Write rewards, ends and requested columns of a step; return flags (N,), True where ended.

        Marks rows of faulty episodes as invalid, and updates the statistics that scale rewards.

        Args:
            row: time index, or (N,), one for each environment.
            memory: (N, M) recurrent state of the policy after the step.
            idle: (N,) True where an environment made no step; None if every one made one.
            envs: indices of the environments that are written; None for all.
        """
        cells: Any = row if envs is None else (np.asarray(row)[envs], envs)
        ended = step.terminated | step.truncated
        if step.faults:
            ended[list(step.faults)] = True
        columns = {"rewards": step.rewards}
        if self._alters_rewards:
            columns["rewards"] = self._rewards_for_learner(step, ended, idle)
        if len(ended.nonzero()[0]):
            columns["terminated"] = step.terminated
            columns["truncated"] = ended & ~step.terminated
            columns |= self._final_columns(step, memory)
        if self._requested:
            columns |= self._requested_columns(step, ended)
            if self._requested & SEQUENCE_COLUMNS:
                columns |= self._sequence_columns(rows, row, columns["rewards"], memory, idle)
        arrays = self._arrays_of(rows)
        for name, values in columns.items():
            arrays[name][cells] = values if envs is None else values[envs]
        if step.infos or step.faults:
            self._exclude(rows, row, step)
        return ended

    def _arrays_of(self, rows: Fragment) -> Mapping[str, Array]:
        """Return the fragment's columns by name, from a cache of the latest fragment."""
        if self._current_fragment is not rows:
            self._current_fragment, self._current_columns = rows, rows.columns
        return self._current_columns

    def _exclude(self, rows: Fragment, row: int | Array, step: Step) -> None:
        """Mark rows as invalid: of faulty episodes, and with ``training_enabled: False`` in info.

        `row` is the step's time index, or (N,), one for each environment.
        """
        for env_index, info in step.infos.items():
            if not info.get("training_enabled", True):
                rows.valid[_row_of(row, env_index), env_index] = False
        for env_index in step.faults:
            self._drop_rows(rows, env_index, _row_of(row, env_index))

    def _drop_rows(self, rows: Fragment, env_index: int, last_row: int) -> None:
        """Mark an environment's rows of its faulty episode, up to `last_row`, as invalid."""
        before = rows.terminated[:last_row, env_index] | rows.truncated[:last_row, env_index]
        ends = np.flatnonzero(before)
        first = int(ends[-1]) + 1 if len(ends) else 0
        rows.valid[first : last_row + 1, env_index] = False

    def _final_columns(self, step: Step, memory: Array) -> dict[str, Array]:
        """Return ``final_<name>`` → (N,), the actor's values of final observations.

        They are 0 where no episode was truncated; the dict is empty if none was, and without a
        critic. `memory` (N, M) is the recurrent state after the step.
        """
        # An episode that ended by itself as it was cut off has no future.
        cut = step.truncated & ~step.terminated
        if not self.actor.value_names or not cut.any():
            return {}
        rows = self._put_final(self.observations.copy(), step, cut)
        judged = self.actor.value_columns(self._as_policy_sees(rows), memory)
        return {f"final_{n}": np.where(cut, one, 0.0) for n, one in judged.items()}

    def _requested_columns(self, step: Step, has_ended: NDArray[np.bool_]) -> dict[str, Array]:
        """Return the requested columns, name → (N, …), of a step that is not counted yet.

        Those of `SEQUENCE_COLUMNS` are left out. `has_ended` (N,) is True where an episode ended.
        """
        columns: dict[str, Array] = {}
        if "new_obs" in self._requested:
            following = self.connectors.rows(step.observations, check=False)
            if not step.is_calm:
                over = has_ended.copy()
                over[list(step.faults)] = False
                self._put_final(following, step, over)
            columns["new_obs"] = self._as_stored(following)
        if "t" in self._requested:
            columns["t"] = self.episodes.lengths
        if "eps_id" in self._requested:
            own, all_ = self._numbers
            columns["eps_id"] = self.episodes.counts * all_ + own
        if "infos" in self._requested:
            columns["infos"] = np.empty(self.envs.count, dtype=object)
            infos = [dict(step.infos.get(env, {})) for env in range(self.envs.count)]
            columns["infos"][:] = infos
        return columns

    def _sequence_columns(
        self, rows: Fragment, row: int | Array, rewards: Array, memory: Array, idle: Array | None
    ) -> dict[str, Array]:
        """Return the requested columns of `SEQUENCE_COLUMNS`, name → (N, …), for a step.

        Updates the stored previous actions and rewards. `rewards` (N,) are those for the learner,
        `memory` (N, M) is the recurrent state after the step; `row` is the time index, or (N,), one
        for each environment; `idle` (N,) is True where an environment made no step (None if all
        made one).
        """
        every = np.arange(self.envs.count)
        last = len(rows.valid) - 1  # an environment whose column is full is idle
        actions = self._arrays_of(rows)["actions"][np.minimum(row, last), every]
        begun = self.episodes.lengths == 0
        columns = {
            "agent_index": np.zeros_like(every),
            "unroll_id": self._unroll_numbers(),
            "state_out": memory,
        }
        for name, now in (("prev_actions", actions), ("prev_rewards", rewards)):
            before = self._previous_row.get(name, np.zeros_like(now))
            columns[name] = np.where(_broadcast_flags(begun, now), 0, before).astype(now.dtype)
            stays = np.zeros_like(begun) if idle is None else idle
            self._previous_row[name] = np.where(_broadcast_flags(stays, now), before, now)
        return {name: columns[name] for name in self._requested & columns.keys()}

    def _unroll_numbers(self) -> Array:
        """Return the values (N,) of the column ``unroll_id`` for the fragment being written."""
        own, all_ = self._numbers
        return np.asarray(self._fragment_count * all_ + own)

    def _put_final(self, rows: Array, step: Step, has_ended: NDArray[np.bool_]) -> Array:
        """Write final observations over `rows` (N, *S) where an episode ended; return `rows`.

        Raises NotFiniteError if a final observation is not finite.
        """
        for env_index in np.flatnonzero(has_ended).tolist():
            final = np.asarray(step.final_observations[env_index])
            rows[env_index] = final.reshape(rows.shape[1:])
            if np.count_nonzero(np.isfinite(final)) != final.size:
                raise NotFiniteError.of_environment(
                    f"{self.name}, environment {env_index}: final observation {rows[env_index]} is "
                    "not finite"
                )
        return rows

    def _rewards_for_learner(
        self, step: Step, has_ended: NDArray[np.bool_], skipped: NDArray[np.bool_] | None
    ) -> Array:
        """Return the rewards (N,) for the learner, clipped and scaled as the settings say.

        They update the scaler's statistics, except where `skipped` (N,) is True; its running return
        begins again where `has_ended` (N,) is True. If fragments are unfiltered, rewards are not
        scaled.

        Raises NotFiniteError if a reward is not finite.
        """
        rewards: Array = np.asarray(step.rewards, dtype=np.float64)
        require_finite(rewards, f"{self.name}, environment", "reward")
        rewards = clipped(rewards, self.config.clip_rewards)
        if self._scaler is None:
            return rewards
        if not self._unfiltered:
            return self._scaler(rewards, has_ended, skipped)
        self._scaler.count(rewards, has_ended, skipped)
        return rewards


def _broadcast_flags(flags: Array, rows: Array) -> Array:
    """Return flags (N,) reshaped to (N, 1, …), so that they broadcast over `rows` (N, …)."""
    return flags.reshape(-1, *[1] * (rows.ndim - 1))


def _row_of(row: int | Array, env_index: int) -> int:
    """Return an environment's time index: `row` itself, or its entry of `row` (N,)."""
    return row if isinstance(row, int) else int(row[env_index])


def _flags_or_none(flags: Any) -> NDArray[np.bool_] | None:
    """Return a copy of the flags as an array (N,); None if they are None or all False."""
    return np.array(flags, dtype=np.bool_) if flags is not None and np.any(flags) else None
