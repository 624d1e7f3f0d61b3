"""The vectorised sampler: one batched decision per tick for all environments, written in place.

A tick: observations → filter → policy → environments (clipped if so set) → columns. What the policy
chose is stored, what was sent is clipped. T ticks, N environments, *S the shape of an observation:
vectors (D,) of float32, images (H, W, C) of uint8. Here fragments have a fixed length;
`episodes.py` collects whole episodes with the same tick.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionAdapter
from trainables.envs.spaces.observations import Rows, require_finite
from trainables.envs.vector.base import Step, VectorEnv
from trainables.policies.actor import Acted, Actor
from trainables.policies.filters import Filter, MeanStdFilter, NoFilter, RewardScaler
from trainables.rollout.batch import Fragment
from trainables.rollout.config import SamplingConfig
from trainables.rollout.episode import EpisodeTracker, Trajectory
from trainables.rollout.metrics import EpisodesInFlight, RolloutMetrics, without_lost_lives
from trainables.rollout.progress import PerfConfig, PerfStats
from trainables.rollout.recording import VideoRecorder

Array = NDArray[Any]
RECENT_ROWS = 64


class Collected(NamedTuple):
    """What one `Sampler.sample` collected."""

    fragments: list[Fragment]
    episodes: list[RolloutMetrics]
    """Those that ended, in the order of their end."""
    recent: Array
    """(≤ 64, D) the latest raw observations."""
    trajectories: Sequence[list[Trajectory]] = ()
    """Of each fragment, its pieces by episode, where a callback looks at them."""


class Sampler:
    """Steps N environments with an actor and writes fragments of a fixed length.

    Args:
        name: how errors call it, for example ``worker 0``.
        config: how to sample.
        spaces_: of one environment.
        parts: the environments, the actor and the filters by name; filters are shared with their
        owner. learning: discount of the return whose deviation scales rewards, and the environment
        steps
            that one `sample` has to bring.
    """

    def __init__(
        self,
        name: str,
        config: SamplingConfig,
        spaces_: EnvSpaces,
        parts: tuple[VectorEnv, Actor, Mapping[str, Filter]],
        learning: tuple[float, int],
    ) -> None:
        gamma, self._steps = learning
        self.name = name
        self.config = config
        self.envs, self.actor, filters = parts
        self.episodes = EpisodesInFlight(config.num_envs_per_worker)
        self.recent: deque[Array] = deque(maxlen=-(-RECENT_ROWS // config.num_envs_per_worker))
        self._filter = filters["observation"]
        self._scaler = _make_scaler(filters, config.num_envs_per_worker, gamma)
        self._sent = ActionAdapter(spaces_.action, config.clip_actions)
        self._as_rows = Rows(spaces_.observation, name)
        self.observations: Array = np.zeros(
            (config.num_envs_per_worker, *spaces_.observation_shape), spaces_.observation_dtype
        )
        self.between_ticks: Callable[[], None] | None = None
        """Called before each tick, where everything is at rest."""
        self.watch: EpisodeTracker | None = None
        """Where there are callbacks: what calls them."""
        self.film: VideoRecorder | None = None
        """Where somebody looks at environment 0."""
        self.perf = PerfStats(PerfConfig())
        self.latest: dict[str, Any] = {}
        """What a tick saw and gave, to be logged; the next one is kept when this is empty."""
        self._observing = 0.0
        """Seconds that it took to take the current observations."""
        self._autoreset_rows: NDArray[np.bool_] | None = None
        """(N,) environments whose next step is no transition; None: every one is."""
        self._skipped: NDArray[np.bool_] | None = None
        """(N,) likewise, of the latest step."""
        self.memory: Array = self.actor.initial_memory(config.num_envs_per_worker)
        """(N, M) with which the policy will see the current observations."""
        self._fragments = self._allocate(spaces_)

    def start(self, seeds: list[int]) -> None:
        """Begin the first episode of every environment."""
        every = range(len(self.observations))
        if self.watch:
            self.watch.create(every)
        observations = self.envs.reset(seeds)
        self.observe(observations)
        if self.watch:
            self.watch.start(every, observations)

        if self.film:
            self.film.begin(1)

    def observe(self, observations: Array) -> None:
        """Take (N, *O) as the current observations."""
        self.observations = self._as_rows(observations)

    def sample(self, stream: np.random.Generator) -> Collected:
        """As many fragments as make the steps; the next call writes into the same arrays."""
        self.recent.clear()
        episodes: list[RolloutMetrics] = []
        trajectories: list[list[Trajectory]] = []
        for fragment in self._fragments:
            episodes += self.collect(fragment, stream)
            if self.watch:
                trajectories.append(self.watch.take_pieces(len(fragment.logp)))
        return Collected(self._fragments, episodes, self._recent_rows(), trajectories)

    def collect(self, fragment: Fragment, stream: np.random.Generator) -> list[RolloutMetrics]:
        """Fill `fragment`; returns the episodes that ended, in the order of their end."""
        finished: list[RolloutMetrics] = []
        begun = np.zeros(len(self.observations), dtype=np.int64)  # rows: of the running episodes
        for t in range(len(fragment.logp)):
            step, ended, over = self._tick(fragment, t, stream)
            for env_index in step.faults:
                fragment.valid[begun[env_index] : t + 1, env_index] = False
            written = self.watch.after_step(step, t) if self.watch else None
            odd = (step.faults, self._skipped)
            finished += self.episodes.step(step.rewards, over, odd, written)
            if np.count_nonzero(ended):
                begun[ended] = t + 1
        filtered = self._filter(self.observations, update=False)
        fragment.last_values[0] = self.actor.values(filtered, self.memory)
        return finished

    def get_state(self) -> dict[str, Any]:
        """``observations``, ``memory``, ``ghosts``, ``episodes``, ``discounted_returns``."""
        returns = self._scaler.returns.copy() if self._scaler else None
        return {
            "observations": self.observations.copy(),
            "memory": self.memory.copy(),
            "ghosts": None if self._autoreset_rows is None else self._autoreset_rows.copy(),
            "episodes": self.episodes.get_state(),
            "discounted_returns": returns,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.observations = np.array(state["observations"], dtype=self.observations.dtype)
        self.memory = np.array(state["memory"])
        self._autoreset_rows = _any_or_none(state["ghosts"])
        self.episodes.set_state(state["episodes"])
        if self._scaler:
            self._scaler.returns[:] = state["discounted_returns"]

    def drop_episode(self, env_index: int, observation: Array) -> None:
        """Forget the running episode of one; its next begins with `observation` (*O)."""
        self._autoreset_rows = None
        self.episodes.drop(env_index)
        self.observations[env_index] = observation.reshape(self.observations.shape[1:])
        self.memory[env_index] = 0.0
        if self._scaler:
            self._scaler.returns[env_index] = 0.0

    def _allocate(self, spaces_: EnvSpaces) -> list[Fragment]:
        size = self.config.rollout_fragment_length
        rounds = self._steps // (size * self.config.num_envs_per_worker)
        return [
            allocate((size, self.config.num_envs_per_worker), spaces_, self._filter, self.actor)
            for _ in range(rounds)
        ]

    def _recent_rows(self) -> Array:
        return np.concatenate(list(self.recent))[-RECENT_ROWS:]

    def _tick(
        self, rows: Fragment, t: int, stream: np.random.Generator
    ) -> tuple[Step, NDArray[np.bool_], NDArray[np.bool_]]:
        """One step of every environment, written into row `t`.

        Returns:
            What the environments gave, which episodes ended (N,), and which ended for the metrics
            (N,).
        """
        if self.between_ticks is not None:
            self.between_ticks()
        self.recent.append(self.observations)
        clock = time.perf_counter
        began = clock()
        filtered = self._filtered()
        processed = clock()
        acted = self.actor.act(filtered, self.memory, stream)
        decided = clock()
        sent = self._sent(acted.actions)
        adapted = clock()
        step = self.envs.step(sent)
        self.perf.add(began - self._observing, processed, decided, adapted, clock())
        rows.observations[t] = filtered
        ended = step.terminated | step.truncated
        if step.faults:
            ended[list(step.faults)] = True
        self._write(rows, t, acted, step, ended)
        self._carry(acted.memory, ended)
        self._skipped, self._autoreset_rows = self._autoreset_rows, _any_or_none(step.restarting)
        began = clock()
        self.observe(step.observations)
        self._observing = clock() - began
        if not self.latest:
            self.latest = {"infos": step.infos, "policy inputs": filtered, "policy outputs": acted}
        over = ended if step.metric_ends is None else ended | step.metric_ends
        over = without_lost_lives(over, step)
        if self.film:
            self.perf.add_rendering(self.film.after_step(bool(over[0])))
        return step, ended, over

    def _carry(self, memory: Array, ended: NDArray[np.bool_]) -> None:
        """Take (N, M) along into the next tick; episodes begin with none."""
        self.memory = memory
        if memory.size:
            memory[ended] = 0.0
            if self._autoreset_rows is not None:
                memory[self._autoreset_rows] = 0.0

    def _filtered(self) -> Array:
        """The current observations (N, D); those of no transition are counted by no filter."""
        if self._autoreset_rows is None:
            return self._filter(self.observations)
        if not self._autoreset_rows.all():
            self._filter(self.observations[~self._autoreset_rows])
        return self._filter(self.observations, update=False)

    def _write(
        self, fragment: Fragment, t: int, acted: Acted, step: Step, ended: NDArray[np.bool_]
    ) -> None:
        rewards = np.asarray(step.rewards, dtype=np.float64)
        require_finite(rewards, f"{self.name}, environment", "reward")
        if self.memory.size:
            fragment.memory[t] = self.memory
        fragment.actions[t] = acted.actions
        fragment.logp[t] = acted.logp
        fragment.values[t] = acted.values
        fragment.rewards[t] = self._learnt_rewards(rewards, ended, self._autoreset_rows)
        fragment.terminated[t] = step.terminated
        fragment.truncated[t] = ended & ~step.terminated
        fragment.autoreset[t] = False if self._autoreset_rows is None else self._autoreset_rows
        fragment.valid[t] = True if self._autoreset_rows is None else ~self._autoreset_rows
        for env_index, info in step.infos.items():
            fragment.valid[t, env_index] &= bool(info.get("training_enabled", True))
        fragment.final_values[t] = 0.0
        if np.count_nonzero(step.truncated) and np.count_nonzero(ended):
            fragment.final_values[t] = np.where(
                step.truncated, self._final_values(step, acted.memory), 0.0
            )

    def _final_values(self, step: Step, memory: Array) -> Array:
        """(N,) V of the final observation where an episode was truncated; undefined elsewhere."""
        final_observations = self.observations.copy()
        for env_index in np.flatnonzero(step.truncated):
            final_observations[env_index] = np.asarray(step.final_observations[env_index]).reshape(
                final_observations.shape[1:]
            )
        require_finite(final_observations, f"{self.name}, environment", "final observation")
        return self.actor.values(self._filter(final_observations, update=False), memory)

    def _learnt_rewards(
        self, rewards: Array, ended: NDArray[np.bool_], skipped: NDArray[np.bool_] | None
    ) -> Array:
        clip = self.config.clip_rewards
        if clip is True:
            rewards = np.sign(rewards)
        elif clip is not None and clip is not False:
            rewards = np.clip(rewards, -clip, clip)
        return self._scaler(rewards, ended, skipped) if self._scaler else rewards


def _any_or_none(flags: Any) -> NDArray[np.bool_] | None:
    return np.array(flags, dtype=np.bool_) if flags is not None and np.any(flags) else None


def allocate(size: tuple[int, int], spaces_: EnvSpaces, filtered: Filter, actor: Actor) -> Fragment:
    """Arrays for (steps, environments); a filter makes float32 of an image's bytes."""
    whole = isinstance(filtered, NoFilter)
    observed = spaces_.observation_dtype if whole else np.dtype(np.float32)
    layout = spaces_.layout
    rows = (spaces_.observation_shape, observed), (layout.shape, layout.dtype)
    return Fragment.allocate(*size, *rows, actor.memory_size)


def _make_scaler(filters: Mapping[str, Filter], num_envs: int, gamma: float) -> RewardScaler | None:
    stat = filters.get("reward")
    return RewardScaler(num_envs, gamma, stat) if isinstance(stat, MeanStdFilter) else None
