"""Playing an evaluation's episodes: exactly the requested ones, whatever fails.

Environments are made for an evaluation and closed after it. Every stream is derived from the
evaluation's seed and the episode, and the global streams are restored. Episodes are independent of
each other to the bit, so the number of parallel ones and their processes do not matter: each has
its own callbacks object, and a new environment unless the environment is known to have no hidden
state. Only environments that draw from the global streams share these in one process. An episode
whose environment fails is repeated with other seeds in a new environment; nothing of the failed one
counts. M numbers of memory.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.calls.faults import close, describe_fault, logging_once
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.registry import EnvContext
from trainables.envs.spaces.observations import require_finite
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.remote_slot import RemoteEnvSlot
from trainables.envs.vector.restarts import (
    MAX_FAILURES_IN_A_ROW,
    SETTING,
    AnySlot,
    require_restartable,
)
from trainables.envs.vector.slot import EnvSlot
from trainables.errors import CallbackError, EnvError
from trainables.evaluation.agents import AgentsPlayer
from trainables.policies.acting.inference import InferencePolicy
from trainables.rollout.callbacks import Calls
from trainables.rollout.episodes.agent_records import EpisodePolicies, Outputs
from trainables.rollout.episodes.episode import Episode, EpisodeCallbacks, EvaluationWorker, OneEnv
from trainables.rollout.episodes.metrics import RolloutMetrics, with_callback_data
from trainables.rollout.workers.access import DEFAULT_POLICY_ID

Array = NDArray[Any]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The environments and options of an evaluation, as data that is sent to child processes."""

    environment: EnvironmentConfig
    """Settings of the environment."""
    explore: bool
    """True if actions are drawn, False for the best ones."""
    width: int
    """Largest number of environments that one process steps side by side."""
    envs: VectorConfig
    """Settings of stepping: horizon, restarts, and whether environments run in their own
    processes."""
    clip_actions: bool
    """True if actions are clipped to the action space's bounds before they are sent."""
    calls: Calls | None = None
    """The user's callbacks, of which each episode has its own copy; None without callbacks."""
    calls_state: Any = None
    """State in which the copies of `calls` begin; not used without callbacks."""
    global_vars: Mapping[str, Any] = field(default_factory=dict)
    """Counters of the trainer's progress that callbacks may read: name → value."""
    is_recorded: bool = False
    """True if the episodes are those of a video, for which they are played again."""
    renews: bool = True
    """True if each episode gets a new environment; False to use environments again, if they carry
    nothing over from one episode to the next."""


class Played(NamedTuple):
    """One episode that was played to its end."""

    metrics: RolloutMetrics
    """Return and length of the episode, and the values that callbacks wrote."""
    faults: int = 0
    """Number of times that the episode began again, since its environment had failed; `metrics` has
    nothing of those attempts."""


#: Function that is called at each observation with the environment and the steps so far; after a
#: failure the steps begin at 0 again.
Inspection: TypeAlias = Callable[[AnySlot, int], object]


@logging_once()
def play(
    inference: InferencePolicy,
    plan: Plan,
    seed: int,
    indices: Sequence[int],
    show: Inspection = lambda _slot, _steps: None,
) -> list[Played]:
    """Play the episodes with these indices; same seed and weights give the same episodes.

    Blocks until all have ended. At most `plan.width` environments are open at a time, stepped side
    by side; all are closed at the end. Callbacks are called. The global random streams are seeded
    meanwhile, and restored at the end.

    Args:
        show: called with an environment's slot and the steps so far at each observation.

    Returns:
        The episodes in the order of `indices`.

    Raises:
        EnvError: an environment failed and may not be restarted, or failed too often in a row.
        CallbackError: a callback raised an exception.
        NotFiniteError: a reward is not finite.
    """
    inference = inference.clipping(plan.clip_actions)
    waiting = iter(indices)
    finished: dict[int, Played] = {}
    with _open_slots(plan, indices[: plan.width], seed) as slots:
        pairs = zip(slots, waiting, strict=False)
        running = [_RunningEpisode(slot, index, inference, plan, seed) for slot, index in pairs]
        while running:
            for episode in running:
                show(episode.slot, episode.length)
            _act(inference, running)
            following: list[_RunningEpisode] = []
            for episode in running:
                if not episode.step():
                    following.append(episode)
                    continue
                show(episode.slot, episode.length)
                finished[episode.index] = episode.played
                if (index := next(waiting, None)) is not None:
                    following.append(
                        _RunningEpisode(episode.slot, index, inference, plan, seed, plan.renews)
                    )
            running = following
    return [finished[index] for index in indices]


@contextmanager
def _open_slots(plan: Plan, first: Sequence[int], seed: int) -> Iterator[list[AnySlot]]:
    """Make an environment for each of the `first` episodes, and yield them in a list of slots.

    The global random streams are seeded before. At the end the environments are closed, and the
    streams restored.
    """
    streams = rng.capture_global()
    rng.seed_global(seed, "global")
    slots: list[AnySlot] = []
    with ExitStack() as after:
        after.callback(rng.restore_global, streams)
        after.callback(_close_slots, slots)
        _fill(slots, plan, first, seed)
        yield slots


def _fill(slots: list[AnySlot], plan: Plan, first: Sequence[int], seed: int) -> None:
    """Make an environment for each of the `first` episodes, and append their slots to `slots`.

    With `remote_worker_envs` each gets a process, started here, whose global random streams are
    seeded by `seed` and the episode's index; otherwise `seed` is not used.
    """
    environment = plan.environment
    if not plan.envs.remote_worker_envs:
        make = partial(make_env, environment, learning=False)
        slots += [EnvSlot(make, environment) for _ in first]
        return
    context = EnvContext(environment.env_config, remote=True)
    make = partial(make_env, environment, context, learning=False)
    remote = [
        RemoteEnvSlot(make, environment, f"evaluation-{i}", plan.envs.env_step_timeout_s)
        for i in range(len(first))
    ]
    slots += remote
    for index, slot in zip(first, remote, strict=True):
        slot.start(rng.integer(seed, "global", index))
    for slot in remote:
        slot.finish_start()


def _close_slots(slots: Sequence[AnySlot]) -> None:
    """Close the environments; their processes, if any, end at the same time."""
    remote = [slot for slot in slots if isinstance(slot, RemoteEnvSlot)]
    for one in remote:
        one.begin_end()
    for one in remote:
        one.end()
    for slot in slots:
        if isinstance(slot, EnvSlot):
            close(slot, "an environment of the evaluation")


class _RunningEpisode:
    """One episode of an evaluation, in one environment.

    Creating it resets the environment, which is made anew first with `recreates`, and calls the
    callbacks of the beginning.
    """

    memory: NDArray[Any]
    """State (M,) that policy and connectors carry to the next step."""

    def __init__(
        self,
        slot: AnySlot,
        index: int,
        inference: InferencePolicy,
        plan: Plan,
        seed: int,
        recreates: bool = False,
    ) -> None:
        self._seed, self._plan = seed, plan
        self._player = inference
        self._watch: EpisodeCallbacks | None = None
        self.slot = slot
        self.index = index
        self.reward = 0.0
        self.length = 0
        self.faults = 0
        self._begin(None, recreates)

    def step(self) -> bool:
        """Wait for the result of the step that was sent; return True if it ended the episode.

        If the environment failed, the episode has started again. Raises EnvError if the environment
        failed and may not be restarted, or too often in a row, and NotFiniteError for a reward that
        is not finite.
        """
        try:
            self.observation, reward, terminated, truncated, info = self.slot.receive_step()
        except Exception as error:  # noqa: BLE001 an environment may raise anything
            self._begin(self._count_failure("step", error))
            return False
        if not math.isfinite(reward):
            require_finite(np.array([reward]), f"{self._name}, row", "reward")
        self.reward += reward
        self.length += 1
        over = bool(terminated or truncated) or self.length == self._plan.envs.horizon
        self._player.add_reward(self.observation, self.memory, reward, over)
        if self._watch:
            self._watch.step(self.observation, reward, info)
            if over:
                self._watch.end(None)
        return over

    @property
    def played(self) -> Played:
        """Return, length and callback values of the episode, which has ended."""
        written = self._watch.episode if self._watch else None
        by_agent = self._player.agent_rewards(self.memory)
        metrics = RolloutMetrics(self.reward, self.length, agent_rewards=by_agent)
        return Played(with_callback_data(metrics, written), self.faults)

    @property
    def _name(self) -> str:
        """Name of the episode in errors."""
        return f"evaluation episode {self.index}"

    def _begin(self, error: Exception | None, remake: bool = True) -> None:
        """Reset the environment, and start the episode; repeat that until it works.

        The environment is made anew first if `remake`, or after an `error`. Raises EnvError if it
        may not be restarted, or failed too often in a row, and CallbackError if a callback raised.
        """
        while True:
            self.reward, self.length = 0.0, 0
            path = (self.index, "restart", self.faults) if self.faults else (self.index,)
            self.memory = self._player.begin(rng.integer(self._seed, "mapping", *path))
            explore = self._plan.explore
            self.stream = rng.generator(self._seed, "policy", *path) if explore else None
            try:
                if remake or error is not None:
                    close(self.slot, self._name)
                    self.slot.remake(rng.integer(self._seed, "global", *path))
                self._watch = self._make_watch()
                self.slot.seed_spaces(rng.integer(self._seed, "spaces", *path) % 2**31)
                self.observation = self.slot.reset(rng.integer(self._seed, "env", *path) % 2**31)
            except CallbackError:
                raise
            except Exception as again:  # noqa: BLE001 likewise
                error = self._count_failure("reset", again)
            else:
                break
        if self._watch:
            self._watch.start(self.observation)

    def _make_watch(self) -> EpisodeCallbacks | None:
        """Return the object that calls the episode's callbacks; None if there are no callbacks."""
        plan = self._plan
        if plan.calls is None:
            return None
        env = getattr(self.slot, "env", None)
        envs = OneEnv([] if env is None else [env])
        worker = EvaluationWorker(envs, plan.is_recorded, self._player.actor, plan.global_vars)
        restart = f"-{self.faults}" if self.faults else ""
        calls = plan.calls.copy_with_state(plan.calls_state)
        episode = Episode(
            f"evaluation-{self.index}{restart}", 0, 0, episode_policies=self._policies()
        )
        return EpisodeCallbacks(calls, lambda: worker, episode)

    def _policies(self) -> EpisodePolicies:
        """Return the object by which callbacks see the policies of the episode."""
        player, memory = self._player, self.memory
        if isinstance(player, AgentsPlayer):
            return EpisodePolicies(player.players, lambda agent: player.policy_for(agent, memory))
        return EpisodePolicies({DEFAULT_POLICY_ID: player}, lambda _: DEFAULT_POLICY_ID)

    @property
    def watched(self) -> Episode | None:
        """The episode as callbacks see it; None if there are no callbacks."""
        return self._watch.episode if self._watch else None

    def _count_failure(self, method: str, error: Exception) -> Exception:
        """Count and log a failure of `method`, end the callbacks' episode, and return `error`.

        The caller begins the episode again. Raises CallbackError for what a callback did, and
        EnvError, before callbacks are called, if the environment may not be restarted or failed too
        often in a row.
        """
        name = self._name
        allowed = self._plan.envs.restart_failed_sub_environments
        advice = f"{self.length}; {SETTING} plays such an episode again"
        require_restartable(allowed, name, method, error, advice)
        self.faults += 1
        if self.faults > MAX_FAILURES_IN_A_ROW:
            raise EnvError(
                f"{name}: its environment failed {self.faults} times in a row; it is not "
                f"restarted again. The last time it {describe_fault(error)}"
            ) from error
        logger.warning(
            "%s: %s() %s; the episode is played again, restart %d",
            *(name, method, describe_fault(error), self.faults),
            exc_info=error,
        )
        lost, self._watch = self._watch, None
        if lost:
            lost.end(error)
        return error


def _act(inference: InferencePolicy, running: Sequence[_RunningEpisode]) -> None:
    """Choose the next actions of all running episodes, in one batch, and send them.

    The policy's memories of the episodes are updated, and decisions noted for their callbacks.
    """
    observations = np.array([one.observation for one in running])
    memory = np.array([one.memory for one in running])
    streams = [one.stream for one in running]
    watched = [one.watched for one in running]

    def note(i: int, agent: str, action: Array, after: Array, outputs: Outputs) -> None:
        """Record a decision in the episode of environment `i`, if it is watched."""
        if (episode := watched[i]) is not None:
            episode.note_decision(agent, action, after, outputs)

    looked_at = note if any(one is not None for one in watched) else None
    actions, memory = inference.act_each(observations, memory, streams, looked_at)
    for i, (one, action) in enumerate(zip(running, actions, strict=True)):
        one.memory = memory[i]
        one.slot.send_step(action)
