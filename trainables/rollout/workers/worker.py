"""A rollout worker: its environments, actor, filters and streams, and their state.

The same class is used in the trainer's own process and in children. It needs numpy only.
"""

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, ClassVar, TypeVar

from trainables.core import rng
from trainables.core.logs import OneTimeLog
from trainables.envs.make import checked_spaces, is_vector_only
from trainables.envs.spaces.connectors import row_shape
from trainables.envs.state.capture import lost_episode
from trainables.envs.vector.base import Step, VectorEnv, WorkerContext
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import WorkerError
from trainables.policies import filters as filters_
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.filters import Filter, make_filters
from trainables.rollout.batch import Sample, as_data, from_data
from trainables.rollout.callbacks import Calls
from trainables.rollout.episodes.agent_records import EpisodePolicies
from trainables.rollout.episodes.episode import EpisodeTracker
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.media.recording import VideoRecorder
from trainables.rollout.progress import PerfStats
from trainables.rollout.samplers.background import AsyncSampler, BlackHoleSampler
from trainables.rollout.samplers.episodes import EpisodeSampler
from trainables.rollout.samplers.fragments import Sampler
from trainables.rollout.samplers.polling import PollingSampler
from trainables.rollout.workers.access import DEFAULT_POLICY_ID, name_of_policy, named_policy
from trainables.rollout.workers.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)
T = TypeVar("T")


def sampler_class(spec: WorkerSpec) -> type[Sampler]:
    """Return the class of sampler for environments of one agent.

    It is `PollingSampler` if ``remote_env_batch_wait_ms`` is above 0, `EpisodeSampler` with
    complete episodes, else `Sampler`.
    """
    if spec.envs.remote_env_batch_wait_ms > 0:
        return PollingSampler
    return EpisodeSampler if spec.sampling.batch_mode == "complete_episodes" else Sampler


class RolloutWorker:
    """Steps environments with the weights that it last received; an endless iterator of samples.

    Creating it makes the environments, resets them and begins their first episodes.
    """

    in_evaluation: ClassVar[bool] = False
    """False; callbacks in an evaluation are given an `EvaluationWorker`, whose value is True."""
    _current: ClassVar["weakref.ref[RolloutWorker] | None"] = None
    """Weak reference to the worker made last in this process; None before the first."""

    def __init__(self, spec: WorkerSpec) -> None:
        RolloutWorker._current = weakref.ref(self)
        self.spec = spec
        self._fake_sample: Sample | None = (
            None  # sample of a fake sampler, returned again and again
        )
        film = spec.recording.make_recorder() if spec.recording and spec.index == 0 else None
        context = WorkerContext(
            spec.seed, spec.index, spec.num_workers, is_rendered=film is not None
        )
        self.envs = self._make_envs(spec, context)
        self._finalizer = _close_when_collected(self, self.envs, film, None)
        self._weights: Weights = {}
        self._global_vars: Mapping[str, Any] = {}
        self._stream = rng.generator(spec.seed, "policy", spec.index)
        self._log = OneTimeLog(f"worker {spec.index}", is_on=spec.index == 0)
        self._sampler = self._make_sampler(spec)
        self._sampler.perf = PerfStats(spec.perf)
        self._episodes: list[RolloutMetrics] = []
        self._set_up_callbacks(spec.calls)
        self._sampler.film = film
        if film:
            film.attach(self.envs)
        self._async: AsyncSampler | None = None
        if spec.sampling.sample_async:
            in_thread = BlackHoleSampler if spec.sampling.blackhole_outputs else AsyncSampler
            self._async = in_thread(self._sampler, self._stream)
        self._finalizer.detach()
        self._finalizer = _close_when_collected(self, self.envs, film, self._async)
        sub_envs = range(self.envs.sub_env_count)
        self.envs.seed_spaces([self._seed(i, "spaces") for i in sub_envs])
        self._sampler.start([self._seed(i) for i in sub_envs])

    def _make_envs(self, spec: WorkerSpec, context: WorkerContext) -> VectorEnv:
        """Create the environments that the worker steps."""
        width = spec.sampling.num_envs_per_worker
        return make_vector_env(spec.environment, width, spec.envs, context)

    def _make_sampler(self, spec: WorkerSpec) -> Any:
        """Make actor and filters, and return the sampler that steps the environments with them.

        The worker keeps both as well, and logs the spaces.
        """
        spaces_ = checked_spaces(spec.environment, *self.envs.own_spaces)
        self._log("spaces", spaces_.described())
        self._actor: Any = spec.make_actor()
        self._actor.explore = spec.sampling.explore
        self._filters: dict[str, Filter] = make_filters(
            spec.filters,
            row_shape(spaces_.filtered),
            concurrent=spec.sampling.sample_async,
            masks=spaces_.masks,
        )
        return sampler_class(spec)(
            f"worker {spec.index}",
            spec.effective_sampling,
            spaces_,
            envs=self.envs,
            actor=self._actor,
            filters=self._filters,
            gamma=spec.gamma,
            steps=spec.steps,
            columns=spec.columns,
            unfiltered=spec.unfiltered,
            worker=(spec.index, max(1, spec.num_workers)),
        )

    def sample(self) -> Sample:
        """Collect and return a sample of as many steps as `WorkerSpec.steps` says.

        It is passed to the callback ``on_sample_end``, and examples of it are logged. Its arrays
        may be overwritten by the next call. With ``sample_async`` it is the oldest one that waits,
        from a thread that the first call starts. With ``fake_sampler`` the first sample is returned
        again and again, without a callback; its episodes and filter statistics are not counted
        twice.
        """
        if self._fake_sample is not None:
            return self._repeat_first(self._fake_sample)
        if self._log.begin_round():
            self._sampler.latest = {}
        source = self._async
        collected = source.next() if source else self._sampler.sample(self._stream)
        self._episodes = collected.episodes
        sample = self._make_sample(collected)
        if self.spec.calls:
            self.spec.calls("on_sample_end", worker=self, samples=sample)
        self._log_sample(sample)
        self._fake_sample = sample if self.spec.sampling.fake_sampler else None
        return sample

    def _make_sample(self, collected: Any) -> Sample:
        """Return the sampler's result as a `Sample`.

        It has the filters' statistics since the last one, which a later sample does not repeat.
        """
        return Sample(
            collected.fragments,
            collected.episodes,
            self.get_filters(flush_after=True),
            collected.recent,
            perf=self._sampler.times,
            trajectories=collected.trajectories,
            index=self.spec.index,
        )

    def sample_with_count(self) -> tuple[Sample, int]:
        """Collect a sample; return it and its number of environment steps."""
        sample = self.sample()
        return sample, sample.count

    def __iter__(self) -> Iterator[Sample]:
        return self

    def __next__(self) -> Sample:
        return self.sample()

    @classmethod
    def current(cls) -> "RolloutWorker | None":
        """Return the worker of this process that was made last; None if it no longer exists."""
        return cls._current() if cls._current else None

    def creation_args(self) -> dict[str, Any]:
        """Return field → value of the worker's specification, not copied."""
        return {field.name: getattr(self.spec, field.name) for field in fields(self.spec)}

    def get_metrics(self) -> tuple[list[RolloutMetrics], dict[str, float]]:
        """Return the episodes of the latest sample, and result key → mean milliseconds per step.

        Before the first sample there are no episodes.
        """
        return self._episodes, self._sampler.times

    def _repeat_first(self, first: Sample) -> Sample:
        """Return the first sample again, for ``fake_sampler``, with new episodes and statistics.

        They come from the thread that samples meanwhile; without a thread there are none.
        """
        live = self._async
        self._episodes = live.live_episodes() if isinstance(live, BlackHoleSampler) else []
        return replace(first, episodes=self._episodes, deltas=self.get_filters(flush_after=True))

    def _log_sample(self, sample: Sample) -> None:
        """Log examples of a sample's data; each subject is logged only once, by worker 0.

        At level DEBUG all are logged again after many rounds.
        """
        self._log_sizes()
        self._log("raw observations", sample.recent)
        # A thread that samples meanwhile may add to `latest`, and has cleared its observations.
        for subject, value in dict(self._sampler.latest).items():
            self._log(subject, value)
        self._log("sample batch", sample.fragments[0].arrays)
        self._log("connectors", self._sampler.connector_descriptions)
        self._log("filters", {name: type(one).__name__ for name, one in self._filters.items()})
        self._log("policy", self._actor.weights())

    def _log_sizes(self) -> None:
        """Log the settings that determine the size of samples."""
        sampling = self.spec.sampling
        asked = ("batch_mode", "rollout_fragment_length", "num_envs_per_worker")
        sizes = {"steps": self.spec.steps, **{name: getattr(sampling, name) for name in asked}}
        self._log("sample asked for", sizes)

    def _set_up_callbacks(self, calls: Calls | None) -> None:
        """Make the tracker that calls the callbacks of episodes, if there are callbacks.

        It becomes the sampler's `watch`, and its `before_restart` that of the environments. There
        is none if the environments restart by themselves.

        Raises:
            ConfigError: a callback needs episodes from their beginning, and the environments
                restart by themselves.
        """
        if calls and self.envs.restarts_unasked:
            calls.require_no_whole_episodes(is_vector_only(self.spec.environment))
        elif calls:
            casting = weakref.WeakMethod(self._sampler.episode_policies)

            def cast(env_index: Any, before: int) -> EpisodePolicies | None:
                # The sampler holds the tracker, so the tracker must not hold the sampler.
                """Return the policies of an environment's next episode; None without agents."""
                method = casting()
                return None if method is None else method(env_index, before)

            watch = EpisodeTracker(calls, self, self.spec.index, self.envs.count, cast)
            self._sampler.watch = watch
            tracking = weakref.WeakMethod(watch.before_restart)

            def before_restart(step: Step) -> None:
                # The last resort holds the environments; its callbacks must not hold the worker.
                """Tell the callbacks about the ends of episodes in a step."""
                if (method := tracking()) is not None:
                    method(step)

            self.envs.before_restart = before_restart

    def change_policies(self, changes: Mapping[str, Any], filter_states: Mapping[str, Any]) -> Any:
        """Raise NotImplementedError; `AgentsWorker`, which has several policies, overrides it."""
        raise NotImplementedError

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Load the learner's weights, and if ``synchronize_filters`` is set the merged filters.

        `filters` is name → state of the trainer's filter. A sampling thread pauses for the weights.
        Raises WorkerError if there is no state for a filter that is to be loaded.
        """
        self._weights = weights
        with self._paused():
            self._actor.load(weights)
        if self.spec.filters.synchronize_filters:
            self.sync_filters(filters)

    def get_filters(self, flush_after: bool = False) -> dict[str, Any]:
        """Return filter → its statistics since the last flush, as `Filter.get_delta` has them.

        With `flush_after` this is a flush: later calls do not return these statistics again, but
        the filter keeps using them. `sample` flushes each time.
        """
        return {name: one.get_delta(flush_after) for name, one in self._filters.items()}

    def sync_filters(self, filters: Mapping[str, Any]) -> None:
        """Load the trainer's filters (name → state); statistics since the last flush are kept.

        Raises WorkerError if there is no state for a filter of this worker.
        """
        missing = sorted(set(self._filters) - set(filters))
        if missing:
            raise WorkerError(
                f"worker {self.spec.index} has no state for its filter(s) {', '.join(missing)}; "
                f"there are: {', '.join(sorted(filters)) or 'none'}"
            )
        for name, one in self._filters.items():
            one.sync(filters[name])

    def get_state(self) -> dict[str, Any]:
        """Return the state as plain data for a checkpoint, while no environment is in a step.

        ``stream`` is the random stream of actions, ``sampler`` the sampler's state, ``level`` how
        exactly environments are saved, ``environments`` their state or None, ``lanes`` their
        counters. Optional entries are ``filters`` if each worker keeps its own, ``first``, the
        sample of ``fake_sampler``, ``callbacks``, and ``exploration`` if it has a state. Weights
        are not included, since the trainer sends them to every worker with `sync`.
        """
        keeps_filters = not self.spec.filters.synchronize_filters
        with self._paused():
            watch, exploration = self._sampler.watch, self._actor.exploration.get_state()
            followed = watch.get_state() if watch else None
            if watch is None and (calls := self.spec.calls):  # as `EpisodeTracker` has it
                followed = {"own": calls.get_state(), "episodes": [{}] * self.envs.count}
            return {
                "stream": rng.get_generator_state(self._stream),
                "sampler": self._sampler.get_state(),
                "level": self.spec.environment.env_level,
                "environments": self.envs.get_state() if self.spec.keeps_environments else None,
                "lanes": self.envs.get_counters(),
                **({"filters": filters_.get_state(self._filters)} if keeps_filters else {}),
                **(
                    {"first": as_data(self._fake_sample)} if self.spec.sampling.fake_sampler else {}
                ),
                **({"callbacks": followed} if followed else {}),
                **({"exploration": exploration} if exploration else {}),
            }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned.

        Environments without an exact state or with another level than now, and those whose episode
        was too long to be stored, drop the running episode and begin the next one with a seed of
        (trial, worker, environment, episode).
        Statistics of synchronised filters since the last flush, and results of the sampling thread,
        are dropped.
        """
        with self._paused():
            rng.set_generator_state(self._stream, state["stream"])
            self._sampler.set_state(state["sampler"])
            self._actor.exploration.set_state(state.get("exploration", {}))
            self.envs.set_counters(state["lanes"])
            if self._sampler.watch:
                self._sampler.watch.set_state(state.get("callbacks"), self._sampler.episodes)
            elif self.spec.calls and "callbacks" in state:
                self.spec.calls.set_state(state["callbacks"]["own"])
            if self.spec.filters.synchronize_filters:
                self.get_filters(flush_after=True)  # drops statistics from after the checkpoint
            else:
                filters_.set_state(self._filters, state["filters"])
            self._fake_sample = from_data(state.get("first"), self.spec.index)
            level = self.spec.environment.env_level
            if self.spec.keeps_environments and state["level"] == level:
                self.envs.set_state(state["environments"])
                lost = self._lost_episodes() if level == "B" else []
            else:
                lost = list(range(self.envs.sub_env_count))
            self._begin_next_episodes(lost)
            if self._sampler.film:
                running = self._sampler.episodes
                self._sampler.film.resume(int(running.counts[0]) + 1, int(running.lengths[0]))
            if self._async:
                self._async.discard()

    def close(self) -> None:
        """End the sampling thread, if there is one, and close the environments.

        An unfinished video is deleted. A worker that nobody closes is closed when it is collected
        as garbage.
        """
        self._finalizer.detach()
        if self._async:
            self._async.close()
        _close_envs(self.envs, self._sampler.film)

    # ---- for callers from outside, here or through `WorkerSet.foreach_worker` --------------------

    def apply(self, function: Callable[[Any], T]) -> T:
        """Return ``function(worker)``."""
        return function(self)

    def foreach_env(self, function: Callable[[Any], T]) -> list[T]:
        """Return ``function(env)`` of each unwrapped environment.

        A vector class without single environments, and environments in other processes, are passed
        as one object.
        """
        sub_envs = getattr(self.envs, "sub_envs", None) or [self.envs]
        return [function(getattr(sub_env, "unwrapped", sub_env)) for sub_env in sub_envs]

    @property
    def policies(self) -> Mapping[str, Actor]:
        """Policy → its actor; here there is one, `DEFAULT_POLICY_ID`."""
        return {DEFAULT_POLICY_ID: self._actor}

    def get_policy(self, policy_id: str = "") -> Actor | None:
        """Return the policy's actor, for an empty name that of the only policy; None if none."""
        return named_policy(self.policies, policy_id)

    def for_policy(self, function: Callable[[Actor], T], policy_id: str = "") -> T:
        """Return ``function(policy)`` of one policy; the name is optional if there is only one.

        Raises ConfigError if there is no such policy.
        """
        return function(self.policies[name_of_policy(self.policies, policy_id)])

    def foreach_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """Return ``function(policy, name)`` for each policy."""
        return [function(actor, pid) for pid, actor in self.policies.items()]

    def foreach_trainable_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """Return ``function(policy, name)`` for each policy that learns, which are all."""
        return self.foreach_policy(function)

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Weights]:
        """Return policy → weights (name → array) received last, of these policies or all (None).

        Raises ConfigError for an unknown policy.
        """
        chosen = self.policies if policies is None else policies
        names = [name_of_policy(self.policies, pid) for pid in chosen]
        return {pid: self._weights_of(pid) for pid in names}

    def _weights_of(self, pid: str) -> Weights:
        """Return the weights (name → array) received last, a copied dict; empty before the first.

        `pid` is ignored, since there is one policy.
        """
        return dict(self._weights)

    def set_weights(
        self, weights: Mapping[str, Weights], global_vars: Mapping[str, Any] | None = None
    ) -> None:
        """Load weights (policy → weights); set the global variables unless they are None.

        They hold until the trainer's next `sync`. Raises ConfigError for an unknown policy; nothing
        is changed then.
        """
        by_name = {name_of_policy(self.policies, pid): one for pid, one in weights.items()}
        for one in by_name.values():
            self._weights = one
            self._actor.load(one)
        if global_vars is not None:
            self.set_global_vars(global_vars)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Store the trainer's variables, such as ``timestep``, and pass them to the policy."""
        self._global_vars = dict(global_vars)
        self._actor.on_global_var_update(self._global_vars)

    def get_global_vars(self) -> dict[str, Any]:
        """Return the variables that `set_global_vars` stored last."""
        return dict(self._global_vars)

    def save(self) -> dict[str, Any]:
        """Return ``filters``, their states, and ``state`` (policy → weights) as plain data."""
        return {"filters": filters_.get_state(self._filters), "state": self.get_weights()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the filters and weights that `save` returned."""
        filters_.set_state(self._filters, saved["filters"])
        self.set_weights(saved["state"])

    # ---- inside ----------------------------------------------------------------------------------

    def _paused(self) -> AbstractContextManager[None]:
        """Return a context in which the sampling thread, if there is one, is paused."""
        return self._async.paused() if self._async else nullcontext()

    def _lost_episodes(self) -> list[int]:
        """Return the indices of sub-environments whose saved episode cannot be replayed.

        A warning with the reason is logged for each. Used for environments that are restored by
        replaying actions (level B).
        """
        whys = [lost_episode(sub_env) for sub_env in self.envs.get_state()["units"]]
        for i, why in enumerate(whys):
            if why:
                logger.warning(
                    "worker %d, environment %d: its episode is dropped: %s", self.spec.index, i, why
                )
        return [i for i, why in enumerate(whys) if why]

    def _begin_next_episodes(self, sub_envs: Sequence[int]) -> None:
        """Drop the running episodes of the sub-environments with these indices, and begin the next.

        The next episode's seed depends on worker, sub-environment and number of the episode. Calls
        ``on_episode_created`` and ``on_episode_start``, but not ``on_episode_end`` of the dropped
        ones.
        """
        per_sub_env = self.envs.count // self.envs.sub_env_count
        for i in sub_envs:
            first = i * per_sub_env
            episode = int(self._sampler.episodes.counts[first]) + 1
            envs = range(first, first + per_sub_env)
            if self._sampler.watch:
                self._sampler.watch.create(envs)
            restarted = self.envs.restart(i, self._seed(i, "episode", episode))
            observations = dict(zip(envs, restarted, strict=True))
            for env_index in envs:
                self._sampler.drop_episode(env_index, observations[env_index])
            if self._sampler.watch:
                self._sampler.watch.start(envs, observations)

    def _seed(self, sub_env: int, *path: rng.Name) -> int:
        """Return a seed below 2**31 for the sub-environment with this index, from the trial's seed.

        The names in `path` distinguish several seeds of one sub-environment.
        """
        # Some simulators take seeds of 31 bits only.
        return rng.integer(self.spec.seed, "env", self.spec.index, sub_env, *path) % 2**31


def _close_envs(envs: VectorEnv, film: VideoRecorder | None) -> None:
    """Discard the unfinished video, if there is a recorder, and close the environments."""
    try:
        if film:
            film.discard()
    finally:
        envs.close()


def _close_when_collected(
    worker: RolloutWorker, envs: VectorEnv, film: VideoRecorder | None, thread: AsyncSampler | None
) -> "weakref.finalize[..., RolloutWorker]":
    """Arrange that these parts of a worker are closed when it is collected as garbage.

    Returns the finaliser, to be detached when the worker is closed before. Nothing is done when the
    process ends.
    """
    made = weakref.finalize(worker, _close_unclosed, envs, film, thread)
    made.atexit = False
    return made


def _close_unclosed(
    envs: VectorEnv, film: VideoRecorder | None, thread: AsyncSampler | None
) -> None:
    """Close environments that nobody has closed, after the step of the thread, if there is one.

    Does not wait for the thread; an error is logged.
    """

    def close_envs() -> None:
        """Close the environments; log an error instead of raising it."""
        try:
            _close_envs(envs, film)
        except Exception:
            logger.exception(
                "environments that were left open raised an error when they were closed"
            )

    if thread:
        thread.abandon(close_envs)
    else:
        close_envs()
