"""The running episode of each environment as callbacks see it, and the calls of callbacks.

These objects exist only if there are callbacks. An environment begins its next episode inside the
step that ends one, so environments call `before_restart` between the two: there the step is
counted, the episode ends and the next one is created. Episodes of an evaluation are watched one by
one, each with its own callbacks object. N environments.
"""

import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainables.checkpoint import state as state_
from trainables.envs.external.polled import AGENT
from trainables.envs.vector.base import Step
from trainables.policies.acting.actor import Actor
from trainables.rollout.callbacks import Calls
from trainables.rollout.episodes.agent_records import AgentRecords, EpisodePolicies
from trainables.rollout.episodes.metrics import (
    EpisodesInFlight,
    checked_numbers,
    without_lost_lives,
)
from trainables.rollout.media import files as media
from trainables.rollout.workers.access import DEFAULT_POLICY_ID, named_policy

Array = NDArray[Any]
T = TypeVar("T")
WRITTEN = ("user_data", "custom_metrics", "hist_data")
"""Dicts of an episode that callbacks write and checkpoints always contain; `media` is stored only
if it is not empty."""
SUMS = "agent_rewards"
"""Key of `Episode.agent_rewards` in an episode's state, present if there are several agents."""
RECORDS = "agents"
"""Key of the agents' records (`AgentRecords.get_records`) in an episode's state."""


@dataclass
class Episode(AgentRecords):
    """A running episode as callbacks see it, with dicts for them to write into.

    If losing a life ends an episode for the learner (Atari), this is still the whole game.
    """

    episode_id: str
    """Name of the episode, the same in every run of a trial.

    It is ``<worker>-<environment>-<count>`` while sampling, and ``evaluation-<index>`` in an
    evaluation, with ``-<n>`` after n restarts. An environment that calls the trainer names its own.
    """
    worker_index: int
    """Index of the worker; 0 in an evaluation."""
    env_index: int
    """Index of the environment in its worker; 0 in an evaluation and for environments that call the
    trainer."""
    length: int = 0
    """Environment steps so far."""
    total_reward: float = 0.0
    """Sum of the rewards so far, as the environment returned them."""
    last_observation: Any = None
    """Latest raw observation (*O); None before the first, and from a restore to the next step.

    With several agents agent → (*O), of the agents that were observed in the latest step.
    """
    last_info: Mapping[str, Any] = field(default_factory=dict)
    """Info of the latest step; empty before the first, and from a restore to the next step.

    With several agents it has ``agents`` (agent → info) and ``common`` (info for all).
    """
    agent_rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum of its rewards so far, if there are several agents."""
    user_data: dict[str, Any] = field(default_factory=dict)
    """Scratch space for plain data, which checkpoints contain."""
    custom_metrics: dict[str, float] = field(default_factory=dict)
    """Name → number; results have mean, minimum and maximum over episodes."""
    hist_data: dict[str, list[float]] = field(default_factory=dict)
    """Name → numbers; a result has those of its iteration's episodes, joined, under ``hist_stats``.
    """
    media: dict[str, Any] = field(default_factory=dict)
    """Name → picture (H, W, 3) of uint8, list of pictures, or table (column → cells), for MLflow.

    Results contain for each name that of the iteration's last episode, see
    `trainables.rollout.media.files`.
    """
    episode_policies: InitVar[EpisodePolicies | None] = None
    """Policies that play the agents, passed to the constructor only; None if there are none."""

    def __post_init__(self, episode_policies: EpisodePolicies | None) -> None:
        AgentRecords.__init__(self, episode_policies)

    def observe(self, observation: Any) -> None:
        """Store a copy of the latest observation (*O).

        With several agents it is a `trainables.envs.kinds.agents.Seen`. Its observations, rewards
        and ends are recorded for each agent, and the rewards are added to `agent_rewards`.
        """
        if not isinstance(observation, Mapping):
            self.last_observation = np.array(observation)
            self.note_observation(AGENT, observation)
            return
        self.last_observation = {
            agent: np.array(one) for agent, one in observation["observations"].items()
        }
        for agent, reward in observation["rewards"].items():
            self.agent_rewards[agent] = self.agent_rewards.get(agent, 0.0) + reward
            self.note_reward(agent, reward)
        for agent, one in observation["observations"].items():
            self.note_observation(agent, one)
        for agent in (*observation["terminated"], *observation["truncated"]):
            self.note_end(agent)

    def step(self, observation: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Store a step's observation, reward (added to `total_reward`) and info.

        They are recorded for each agent as well. The caller increases `length`.
        """
        self.total_reward += reward
        if not isinstance(observation, Mapping):
            self.note_reward(AGENT, reward)
            self.note_info(AGENT, info)
        else:
            for agent, one in info.get("agents", {}).items():
                self.note_info(agent, one)
        self.observe(observation)
        self.last_info = info


class Trajectory(NamedTuple):
    """The rows `start` up to but without `stop` of one environment that belong to one episode."""

    env_index: int
    """Index of the environment, 0 to N - 1."""
    start: int
    """Index on the fragment's time axis of the first row."""
    stop: int
    """Index on the fragment's time axis after the last row."""
    episode: Episode
    """The episode: the object itself if it has ended, else a copy as of the fragment's end."""


class EpisodeTracker:
    """Keeps the running `Episode` of each environment of a worker and calls the callbacks.

    Args:
        calls: the user's callbacks.
        worker: worker that callbacks are given; only a weak reference is kept.
        index: index of the worker.
        count: number of environments.
        episode_policies: function (environment index, number of its earlier episodes) → policies
            that play the episode, or None.
    """

    def __init__(
        self,
        calls: Calls,
        worker: Any,
        index: int,
        count: int,
        episode_policies: Callable[[Any, int], EpisodePolicies | None],
    ) -> None:
        self._calls = calls
        self._policies_of = episode_policies
        """Function (environment index, number of earlier episodes) → policies of the episode."""
        # A sampling thread holds this object, and must not hold the worker that it ends with.
        self._worker = weakref.ref(worker)
        self._index = index
        self._wants_steps = calls.has_functions("on_episode_step")
        self._wants_pieces = calls.has_functions("on_postprocess_traj")
        self._begun_counts = [0] * count
        """Episodes begun in each environment, including the running one."""
        self._running_episodes = [self._make_episode(env_index) for env_index in range(count)]
        self._ended_episodes: dict[int, Episode] = {}
        self._counted = False
        self._starts = [0] * count
        """For each environment the row of the fragment at which its running episode begins."""
        self._pieces: list[Trajectory] = []

    def create_unattached(
        self, episode_id: str, episode_policies: EpisodePolicies
    ) -> "EpisodeCallbacks":
        """Create an episode of an environment that calls the trainer.

        Calls ``on_episode_created``. Returns the object to which the episode's steps and end are
        reported.
        """
        episode = Episode(episode_id, self._index, 0, episode_policies=episode_policies)
        return EpisodeCallbacks(self._calls, self._worker, episode)

    def running(self, env_index: int) -> Episode:
        """Return the running episode of the environment `env_index`."""
        return self._running_episodes[env_index]

    def create(self, envs: Sequence[int]) -> None:
        """Create episodes in these environments before their reset; they become the running ones.

        Calls ``on_episode_created``.
        """
        for env_index in envs:
            self._running_episodes[env_index] = self._make_episode(env_index)
            self._begun_counts[env_index] += 1
            self._call("on_episode_created", self._running_episodes[env_index])

    def start(self, envs: Sequence[int], observations: Array | Mapping[int, Array]) -> None:
        """Record the first observations of created episodes; calls ``on_episode_start``.

        `observations` are (N, *O), or environment → (*O).
        """
        for env_index in envs:
            self._running_episodes[env_index].observe(observations[env_index])
            self._call("on_episode_start", self._running_episodes[env_index])

    def before_restart(self, step: Step) -> None:
        """Record a step, and end the episodes that it ended, before their environments are reset.

        Calls ``on_episode_step``, ``on_episode_end`` and, for the next episodes,
        ``on_episode_created``. Environments call it inside their step.
        """
        self._count(step)
        over = step.terminated | step.truncated
        over[list(step.faults)] = True
        self._end(np.flatnonzero(without_lost_lives(over, step)).tolist(), step)

    def after_step(self, step: Step, row: int | NDArray[np.int64]) -> dict[int, Episode]:
        """Finish a step after the resets: start the next episodes with their first observations.

        Calls ``on_episode_start`` for them. Does the work of `before_restart` first if the
        environments have not called it, and ends episodes that end for the metrics only. Returns
        environment → episode that ended. `row` is the time index of the step in the fragment that
        is being filled, or (N,), one for each environment.
        """
        if not self._counted:
            self._count(step)
        over = step.terminated | step.truncated
        over = over if step.metric_ends is None else over | step.metric_ends
        over[list(step.faults)] = True
        over = without_lost_lives(over, step)
        envs = [
            env_index
            for env_index in np.flatnonzero(over).tolist()
            if env_index not in self._ended_episodes
        ]
        self._end(envs, step)
        ended, self._ended_episodes, self._counted = self._ended_episodes, {}, False
        self.start(sorted(ended), step.observations)
        for env_index, one in ended.items() if self._wants_pieces else ():
            stop = 1 + int(row if isinstance(row, int) else row[env_index])
            self._pieces.append(Trajectory(env_index, self._starts[env_index], stop, one))
            self._starts[env_index] = stop
        return ended

    def take_pieces(self, rows: int) -> list[Trajectory]:
        """Return the episodes' pieces of a full fragment of `rows` time steps; begin a fragment.

        Running episodes are copied, so later changes to them do not show in the pieces. The list is
        empty unless the callback ``on_postprocess_traj`` is used.
        """
        if not self._wants_pieces:
            return []
        pieces, self._pieces = self._pieces, []
        starts, self._starts = self._starts, [0] * len(self._starts)
        return pieces + [
            Trajectory(env_index, start, rows, copy.deepcopy(self._running_episodes[env_index]))
            for env_index, start in enumerate(starts)
            if start < rows
        ]

    def get_state(self) -> dict[str, Any]:
        """Return the state as plain data.

        ``own`` is the state of the callbacks object, ``episodes`` a list with one dict for each
        running episode: what callbacks wrote into it, and records of its agents.

        Raises:
            StateError: something that cannot be stored in a checkpoint; it names the key.
            CallbackError: a medium that is not allowed.
        """
        own = self._calls.get_state()
        return {"own": own, "episodes": [_written_state(one) for one in self._running_episodes]}

    def set_state(self, state: Mapping[str, Any] | None, episodes: EpisodesInFlight) -> None:
        """Restore the state of `get_state`; None if the checkpoint was written without callbacks.

        Counts, lengths and rewards of the running episodes are taken from `episodes`, which is
        already restored. Nothing is called; with None callbacks have written nothing yet.
        """
        if state is not None:
            self._calls.set_state(state["own"])
        self._pieces, self._ended_episodes, self._counted = [], {}, False
        self._starts = [0] * len(self._running_episodes)
        running = state["episodes"] if state is not None else [{}] * len(self._running_episodes)
        self._begun_counts = [int(count) + 1 for count in episodes.counts]
        for env_index, written in enumerate(running):
            episode = self._running_episodes[env_index] = self._make_episode(
                env_index, int(episodes.counts[env_index])
            )
            episode.length = int(episodes.lengths[env_index])
            episode.total_reward = float(episodes.rewards[env_index])
            episode.set_records(written.get(RECORDS, {}))
            for name, values in written.items():
                if name == RECORDS:
                    continue
                getattr(episode, name).update(copy.deepcopy(values))

    def _count(self, step: Step) -> None:
        """Record a step in each episode whose environment made one; calls ``on_episode_step``.

        A faulty step only adds to the episode's length, without a callback.
        """
        self._counted = True
        ended = step.terminated | step.truncated
        for env_index, episode in enumerate(self._running_episodes):
            if step.waiting is not None and step.waiting[env_index]:
                continue
            episode.length += 1
            if env_index in step.faults:
                continue
            seen = step.final_observations if ended[env_index] else step.observations
            info = step.infos.get(env_index, {})
            episode.step(seen[env_index], float(step.rewards[env_index]), info)
            if self._wants_steps:
                self._call("on_episode_step", episode)

    def _end(self, envs: Sequence[int], step: Step) -> None:
        """End the running episodes of these environments, and create the next ones.

        Calls ``on_episode_end`` and ``on_episode_created``. Ended episodes forget their policies
        and are kept until `after_step` returns them. Raises CallbackError if a callback raises or
        has written a metric that is no number, or a medium that is not allowed.
        """
        for env_index in envs:
            one = self._ended_episodes[env_index] = self._running_episodes[env_index]
            self._call("on_episode_end", one, error=step.faults.get(env_index))
            one.drop_policies()
            checked_numbers(one)
        self.create(envs)

    def _call(self, phase: str, episode: Episode, **more: Any) -> None:
        """Call the callbacks of a phase with an episode and the further arguments `more`."""
        self._calls(phase, **callback_arguments(self._worker(), episode), **more)

    def _make_episode(self, env_index: int, before: int | None = None) -> Episode:
        """Return a new episode of an environment after `before` earlier ones.

        None for `before` takes the number of episodes begun so far.
        """
        number = self._begun_counts[env_index] if before is None else before
        name = f"{self._index}-{env_index}-{number}"
        return Episode(
            name, self._index, env_index, episode_policies=self._policies_of(env_index, number)
        )


@dataclass(frozen=True)
class BaseEnv:
    """The environments of a worker under the names that RLlib's callbacks use."""

    envs: Any
    """Environments of the worker: a `VectorEnv`, or the `OneEnv` of an evaluation."""

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return int(self.envs.count)

    def get_sub_environments(self) -> list[Any]:
        """Return each environment without its wrappers; for a vector class one object.

        It is empty if the environments run in other processes.
        """
        sub_envs = getattr(self.envs, "sub_envs", ())
        return [getattr(env, "unwrapped", env) for env in sub_envs]

    get_unwrapped = get_sub_environments


def callback_arguments(worker: Any, episode: Episode) -> dict[str, Any]:
    """Return the arguments that every phase of an episode has, by name.

    They are ``worker``, ``base_env`` (a `BaseEnv`), ``policies``, ``episode`` and ``env_index``.
    `worker` is None after the worker's end; then ``base_env`` is None and ``policies`` empty.
    """
    return {
        "worker": worker,
        "base_env": None if worker is None else BaseEnv(worker.envs),
        "policies": {} if worker is None else worker.policies,
        "episode": episode,
        "env_index": episode.env_index,
    }


@dataclass(frozen=True)
class OneEnv:
    """The environment of one episode, in the form of a rollout worker's `envs`."""

    sub_envs: Sequence[Any]
    """List of the one environment; empty if it runs in another process."""
    count: int = 1
    """Number of environments, 1."""


@dataclass(frozen=True)
class EvaluationWorker:
    """The worker that callbacks see in an evaluation, for one episode."""

    in_evaluation: ClassVar[bool] = True
    """True: the worker belongs to an evaluation."""
    envs: OneEnv
    """The environment of the episode."""
    is_recorded: bool
    """True if the episode was played before and is played again for its video."""
    policy: Actor | Mapping[str, Actor]
    """Actor of the only policy, or policy → its actor."""
    global_vars: Mapping[str, Any]
    """Variables that the trainer sends to all workers, such as ``timestep``."""

    def foreach_env(self, function: Callable[[Any], T]) -> list[T]:
        """Return ``[function(env)]`` of the environment; empty if it is in another process."""
        return [function(getattr(env, "unwrapped", env)) for env in self.envs.sub_envs]

    def get_policy(self, policy_id: str = "") -> Actor | None:
        """Return the policy's actor, for an empty name that of the only policy; None if none."""
        return named_policy(self.policies, policy_id)

    @property
    def policies(self) -> Mapping[str, Actor]:
        """Policy → its actor; a single policy is named `DEFAULT_POLICY_ID`."""
        if isinstance(self.policy, Mapping):
            return self.policy
        return {DEFAULT_POLICY_ID: self.policy}

    def get_global_vars(self) -> dict[str, Any]:
        """Return the variables that the trainer sends to all workers, such as ``timestep``."""
        return dict(self.global_vars)


class EpisodeCallbacks:
    """Callbacks of one episode that no `EpisodeTracker` follows.

    It is an episode of an evaluation, or of an environment that calls the trainer. Creating the
    object calls ``on_episode_created``.

    Args:
        worker: function that returns the worker that callbacks are given.
    """

    def __init__(self, calls: Calls, worker: Callable[[], Any], episode: Episode) -> None:
        self._calls = calls
        self._worker = worker
        self.episode = episode
        self._call("on_episode_created")

    def start(self, observation: Any) -> None:
        """Record the observation of the reset, and call ``on_episode_start``."""
        self.episode.observe(observation)
        self._call("on_episode_start")

    def step(self, observation: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Record a step, increase the episode's length, and call ``on_episode_step``."""
        self.episode.length += 1
        self.episode.step(observation, reward, info)
        self._call("on_episode_step")

    def end(self, error: Exception | None) -> None:
        """Call ``on_episode_end``, forget the policies, and check the numbers that callbacks wrote.

        `error` is the exception of the environment; None if it did not fail. Raises CallbackError
        for something that is no number or no allowed medium.
        """
        self._call("on_episode_end", error=error)
        self.episode.drop_policies()
        checked_numbers(self.episode)

    def _call(self, phase: str, **more: Any) -> None:
        """Call the callbacks of a phase with `more` and `callback_arguments` of the episode."""
        self._calls(phase, **callback_arguments(self._worker(), self.episode), **more)


def _written_state(episode: Episode) -> dict[str, Any]:
    """Return a copy of what callbacks wrote into an episode, for a checkpoint.

    Keys are those of `WRITTEN`, and unless they are empty ``media``, ``agents`` for the agents'
    records and ``agent_rewards`` for the sums of their rewards.

    Raises:
        StateError: something that cannot be stored in a checkpoint; it names the key.
        CallbackError: a medium that is not allowed.
    """
    sums = {SUMS: episode.agent_rewards} if episode.agent_rewards else {}
    seen = {"media": media.checked(episode.media)} if episode.media else {}
    known = episode.get_records()
    records = {RECORDS: known} if known else {}
    written = {**{name: getattr(episode, name) for name in WRITTEN}, **sums, **seen, **records}
    state_.normalise(written, f"callbacks/episode {episode.episode_id}")
    return copy.deepcopy(written)
