"""The running episode of each environment as callbacks see it, and when they are called.

Made only where there are callbacks. An environment begins its next episode inside the step that
ends one, so the environments call `before_restart` between the two: there the step is counted, the
episode ends and the next one is created. The episodes of an evaluation are watched one by one, each
with callbacks of its own. N environments, D features.
"""

import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainables.checkpoint import state as state_
from trainables.envs.external.calling import AGENT
from trainables.envs.vector.base import Step
from trainables.policies.acting.actor import Actor
from trainables.rollout import media
from trainables.rollout.agent_records import AgentRecords, Cast
from trainables.rollout.callbacks import Calls
from trainables.rollout.metrics import EpisodesInFlight, checked_numbers, without_lost_lives
from trainables.rollout.workers.access import DEFAULT_POLICY_ID, named_policy

Array = NDArray[Any]
T = TypeVar("T")
WRITTEN = ("user_data", "custom_metrics", "hist_data")
"""Dicts of an episode that callbacks write; part of the state."""
SUMS = "agent_rewards"
"""Likewise, where there are several agents."""
RECORDS = "agents"
"""Likewise, of each agent what is known of it."""


@dataclass
class Episode(AgentRecords):
    """An episode and its agents, with dicts for callbacks to write into.

    As in the metrics it is the whole game where lost lives end what is learnt.
    """

    episode_id: str
    """worker-environment-count, the same in every run of the same trial; in an evaluation
    evaluation-index, and the restart after which it is played; in an environment that calls what
    that calls it."""
    worker_index: int
    env_index: int
    """In an evaluation both are 0: they do not say who plays. So is this in one that calls."""
    length: int = 0
    """Environment steps so far."""
    total_reward: float = 0.0
    """Sum of the environment's own rewards so far."""
    last_observation: Any = None
    """(*O) the latest raw observation; of several agents a dict by agent; None before the first."""
    last_info: Mapping[str, Any] = field(default_factory=dict)
    """The info of the latest step, of several agents under ``agents`` and what concerns all of them
    under ``common``; empty after a restore."""
    agent_rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum of its rewards so far, where there are several."""
    user_data: dict[str, Any] = field(default_factory=dict)
    """Scratch space; plain data, it stands in the checkpoint."""
    custom_metrics: dict[str, float] = field(default_factory=dict)
    """Name → number; results have mean, minimum and maximum over episodes."""
    hist_data: dict[str, list[float]] = field(default_factory=dict)
    """Name → numbers; results hold those of all episodes that ended, under ``hist_stats``."""
    media: dict[str, Any] = field(default_factory=dict)
    """Name → picture (H, W, 3) of uint8, list of pictures, or table (column → cells), to be seen in
    MLflow: of each name the one of the iteration's last episode (`trainables.rollout.media`)."""
    cast: InitVar[Cast | None] = None

    def __post_init__(self, cast: Cast | None) -> None:
        AgentRecords.__init__(self, cast)

    def observe(self, seen: Any) -> None:
        """Take note of the latest observation; what several agents saw and were rewarded with."""
        if not isinstance(seen, Mapping):
            self.last_observation = np.array(seen)
            self.note_observation(AGENT, seen)
            return
        self.last_observation = {
            agent: np.array(one) for agent, one in seen["observations"].items()
        }
        for agent, reward in seen["rewards"].items():
            self.agent_rewards[agent] = self.agent_rewards.get(agent, 0.0) + reward
            self.note_reward(agent, reward)
        for agent, one in seen["observations"].items():
            self.note_observation(agent, one)
        for agent in (*seen["terminated"], *seen["truncated"]):
            self.note_end(agent)

    def step(self, seen: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Take note of what a step gave to all agents; the step itself is counted elsewhere."""
        self.total_reward += reward
        if not isinstance(seen, Mapping):
            self.note_reward(AGENT, reward)
            self.note_info(AGENT, info)
        else:
            for agent, one in info.get("agents", {}).items():
                self.note_info(agent, one)
        self.observe(seen)
        self.last_info = info


class Trajectory(NamedTuple):
    """The rows of one fragment that belong to one episode."""

    env_index: int
    start: int
    stop: int
    episode: Episode


class EpisodeTracker:
    """Keeps an `Episode` for each of `count` environments and calls the callbacks."""

    def __init__(
        self,
        calls: Calls,
        worker: Any,
        index: int,
        count: int,
        cast: Callable[[Any, int], Cast | None],
    ) -> None:
        self._calls = calls
        self._cast = cast
        """Gives who plays, by the environment and the episodes that it has had before."""
        # A sampling thread holds this object, and must not hold the worker that it ends with.
        self._worker = weakref.ref(worker)
        self._index = index
        self._wants_steps = calls.wants("on_episode_step")
        self._traces = calls.wants("on_postprocess_traj")
        self._begun = [0] * count
        """Episodes begun in each environment, the running one included."""
        self._running = [self._new(env_index) for env_index in range(count)]
        self._ended: dict[int, Episode] = {}
        self._counted = False
        self._starts = [0] * count
        """In each environment: the row of the fragment at which the running episode begins."""
        self._pieces: list[Trajectory] = []

    def alone(self, episode_id: str, cast: Cast) -> "EpisodeWatch":
        """A new episode that is none of these environments'."""
        episode = Episode(episode_id, self._index, 0, cast=cast)
        return EpisodeWatch(self._calls, self._worker, episode)

    def running(self, env_index: int) -> Episode:
        """Return the running episode of an environment."""
        return self._running[env_index]

    def create(self, envs: Sequence[int]) -> None:
        """New episodes in these environments, which have not been reset yet."""
        for env_index in envs:
            self._running[env_index] = self._new(env_index)
            self._begun[env_index] += 1
            self._call("on_episode_created", self._running[env_index])

    def start(self, envs: Sequence[int], observations: Array | Mapping[int, Array]) -> None:
        """The episodes begin with `observations`, (N, *O) or environment → (*O)."""
        for env_index in envs:
            self._running[env_index].observe(observations[env_index])
            self._call("on_episode_start", self._running[env_index])

    def before_restart(self, step: Step) -> None:
        """The step is done and environments that ended have not been reset."""
        self._count(step)
        over = step.terminated | step.truncated
        over[list(step.faults)] = True
        self._end(np.flatnonzero(without_lost_lives(over, step)).tolist(), step)

    def after_step(self, step: Step, row: int | NDArray[np.int64]) -> dict[int, Episode]:
        """The step is done, what ended has been reset; environment → episode that ended.

        `row` is that of the fragment which is being filled, or (N,) of each environment.
        """
        if not self._counted:
            self._count(step)
        over = step.terminated | step.truncated
        over = over if step.metric_ends is None else over | step.metric_ends
        over[list(step.faults)] = True
        over = without_lost_lives(over, step)
        envs = [
            env_index for env_index in np.flatnonzero(over).tolist() if env_index not in self._ended
        ]
        self._end(envs, step)
        ended, self._ended, self._counted = self._ended, {}, False
        self.start(sorted(ended), step.observations)
        for env_index, one in ended.items() if self._traces else ():
            stop = 1 + int(row if isinstance(row, int) else row[env_index])
            self._pieces.append(Trajectory(env_index, self._starts[env_index], stop, one))
            self._starts[env_index] = stop
        return ended

    def take_pieces(self, rows: int) -> list[Trajectory]:
        """The pieces of a fragment of `rows` rows that has been filled; the next one begins.

        Episodes that go on are copied: what is written into them later is not seen in the piece.
        """
        if not self._traces:
            return []
        pieces, self._pieces = self._pieces, []
        starts, self._starts = self._starts, [0] * len(self._starts)
        return pieces + [
            Trajectory(env_index, start, rows, copy.deepcopy(self._running[env_index]))
            for env_index, start in enumerate(starts)
            if start < rows
        ]

    def get_state(self) -> dict[str, Any]:
        """Entries ``own`` (the callbacks') and ``episodes`` (what they wrote into running ones).

        Raises:
            StateError: something that cannot stand in a checkpoint; it names the key.
        """
        own = self._calls.get_state()
        return {"own": own, "episodes": [_written(one) for one in self._running]}

    def set_state(self, state: Mapping[str, Any] | None, episodes: EpisodesInFlight) -> None:
        """Take back what `get_state` gave; None: from a time when there were no callbacks.

        `episodes` have been put back already.
        """
        if state is not None:
            self._calls.set_state(state["own"])
        self._pieces, self._ended, self._counted = [], {}, False
        self._starts = [0] * len(self._running)
        running = state["episodes"] if state is not None else [{}] * len(self._running)
        self._begun = [int(count) + 1 for count in episodes.counts]
        for env_index, written in enumerate(running):
            one = self._running[env_index] = self._new(env_index, int(episodes.counts[env_index]))
            one.length = int(episodes.lengths[env_index])
            one.total_reward = float(episodes.rewards[env_index])
            one.set_records(written.get(RECORDS, {}))
            for name, values in written.items():
                if name == RECORDS:
                    continue
                getattr(one, name).update(copy.deepcopy(values))

    def _count(self, step: Step) -> None:
        self._counted = True
        ended = step.terminated | step.truncated
        for env_index, one in enumerate(self._running):
            if step.waiting is not None and step.waiting[env_index]:
                continue
            one.length += 1
            if env_index in step.faults:
                continue
            seen = step.final_observations if ended[env_index] else step.observations
            info = step.infos.get(env_index, {})
            one.step(seen[env_index], float(step.rewards[env_index]), info)
            if self._wants_steps:
                self._call("on_episode_step", one)

    def _end(self, envs: Sequence[int], step: Step) -> None:
        for env_index in envs:
            one = self._ended[env_index] = self._running[env_index]
            self._call("on_episode_end", one, error=step.faults.get(env_index))
            one.let_go()
            checked_numbers(one)
        self.create(envs)

    def _call(self, phase: str, episode: Episode, **more: Any) -> None:
        self._calls(phase, **facts(self._worker(), episode), **more)

    def _new(self, env_index: int, before: int | None = None) -> Episode:
        number = self._begun[env_index] if before is None else before
        name = f"{self._index}-{env_index}-{number}"
        return Episode(name, self._index, env_index, cast=self._cast(env_index, number))


@dataclass(frozen=True)
class BaseEnv:
    """The environments of a worker under the names that RLlib's callbacks know.

    Args:
        envs: of the worker.
    """

    envs: Any

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return int(self.envs.count)

    def get_sub_environments(self) -> list[Any]:
        """Return each environment without its wrappers; of a vector that is one object this.

        It is empty where environments are in processes of their own.
        """
        sub_envs = getattr(self.envs, "sub_envs", ())
        return [getattr(env, "unwrapped", env) for env in sub_envs]

    get_unwrapped = get_sub_environments


def facts(worker: Any, episode: Episode) -> dict[str, Any]:
    """Return what every phase of an episode is called with."""
    return {
        "worker": worker,
        "base_env": None if worker is None else BaseEnv(worker.envs),
        "policies": {} if worker is None else worker.policies,
        "episode": episode,
        "env_index": episode.env_index,
    }


@dataclass(frozen=True)
class OneEnv:
    """The environment of one episode, found where a rollout worker has its environments."""

    sub_envs: Sequence[Any]
    """The environment; empty where it is in a process of its own."""
    count: int = 1


@dataclass(frozen=True)
class EvaluationWorker:
    """The worker that callbacks see in an evaluation, for one episode."""

    in_evaluation: ClassVar[bool] = True
    envs: OneEnv
    is_recorded: bool
    """True if the episode has been played before and is played once more for its video."""
    policy: Actor | Mapping[str, Actor]
    global_vars: Mapping[str, Any]

    def foreach_env(self, function: Callable[[Any], T]) -> list[T]:
        """``[function(env)]`` of the unwrapped environment; [] if it is in another process."""
        return [function(getattr(env, "unwrapped", env)) for env in self.envs.sub_envs]

    def get_policy(self, policy_id: str = "") -> Actor | None:
        """Return the policy with this name, or the only one; None if there is none."""
        return named_policy(self.policies, policy_id)

    @property
    def policies(self) -> Mapping[str, Actor]:
        """All policies by their names."""
        if isinstance(self.policy, Mapping):
            return self.policy
        return {DEFAULT_POLICY_ID: self.policy}

    def get_global_vars(self) -> dict[str, Any]:
        """Return the variables that the trainer gives to all workers; ``timestep`` is one."""
        return dict(self.global_vars)


class EpisodeWatch:
    """One episode by itself: of an evaluation, or of an environment that calls.

    Args:
        calls: are called.
        worker: gives what they are called with as the worker.
        episode: that begins.
    """

    def __init__(self, calls: Calls, worker: Callable[[], Any], episode: Episode) -> None:
        self._calls = calls
        self._worker = worker
        self.episode = episode
        self._call("on_episode_created")

    def start(self, observation: Any) -> None:
        """The environment has been reset."""
        self.episode.observe(observation)
        self._call("on_episode_start")

    def step(self, observation: Any, reward: float, info: Mapping[str, Any]) -> None:
        """A step has been made."""
        self.episode.length += 1
        self.episode.step(observation, reward, info)
        self._call("on_episode_step")

    def end(self, error: Exception | None) -> None:
        """The episode is over; `error` is what its environment raised."""
        self._call("on_episode_end", error=error)
        self.episode.let_go()
        checked_numbers(self.episode)

    def _call(self, phase: str, **more: Any) -> None:
        self._calls(phase, **facts(self._worker(), self.episode), **more)


def _written(episode: Episode) -> dict[str, Any]:
    sums = {SUMS: episode.agent_rewards} if episode.agent_rewards else {}
    seen = {"media": media.checked(episode.media)} if episode.media else {}
    known = episode.get_records()
    records = {RECORDS: known} if known else {}
    written = {**{name: getattr(episode, name) for name in WRITTEN}, **sums, **seen, **records}
    state_.normalise(written, f"callbacks/episode {episode.episode_id}")
    return copy.deepcopy(written)
