"""The trainer that every algorithm fills in: sample → learn → synchronise → evaluate → result.

An algorithm's file gives a config and `learn`. Everything that decides the future stands in
`save_checkpoint`; settings do not.
"""

import copy
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.core.logs import is_shown, system_usage
from trainables.core.resources import EnvironmentVariables, check_quota
from trainables.core.result_logger import LoggerCreator
from trainables.core.settings import SettingsView, flatten, override, parse
from trainables.envs.exactness.levels import LEVELS, Measured
from trainables.envs.exactness.measuring import Inquiry, known_by, resolve
from trainables.envs.vector.config import check_vector_env
from trainables.evaluation.config import evaluation_settings, is_due
from trainables.evaluation.workers import Evaluators
from trainables.policies import filters as filters_
from trainables.policies.architecture import architecture
from trainables.policies.filters import make_filters
from trainables.policies.inference import InferencePolicy
from trainables.policies.recurrent import make_actor
from trainables.policies.torch_policy import build_policy
from trainables.rollout.batch import Fragment, Sample
from trainables.rollout.progress import Progress
from trainables.rollout.ranks.group import RankGroup
from trainables.rollout.recording import RecordingPlan
from trainables.rollout.worker_set import WorkerSet, make_workers
from trainables.rollout.worker_spec import WorkerSpec
from trainables.trainable import TrialContext
from trainables.trainer import agreement
from trainables.trainer.config import IterationLength, TrainerConfig, timed
from trainables.trainer.config_checks import ConfigChecks, learning_device, set_threads
from trainables.trainer.data_parallel import LearnsInRanks
from trainables.trainer.policy_api import ComputesActions, PolicyAccess
from trainables.trainer.reporting import EpisodeRecord, Reporter

logger = logging.getLogger(__name__)


class Trainer(ComputesActions, PolicyAccess, LearnsInRanks, ConfigChecks):
    """Base of all algorithms; works alone: ``PPO({"env": "CartPole-v1"}).train()``.

    Args:
        config: the settings.
        env: goes before ``config["env"]``. As every trainable, a trainer may be given its context
            here, too: ``PPO(config, TrialContext(seed=1))``.
        logger_creator: as for every trainable.
        context: seed, name and folder.
    """

    fixed_keys: ClassVar[frozenset[str]] = frozenset(agreement.COLLECTING + agreement.FILTERING)

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        env: str | type | Callable[..., Any] | TrialContext | None = None,
        logger_creator: LoggerCreator | None = None,
        context: TrialContext | None = None,
    ) -> None:
        if isinstance(env, TrialContext):
            if context is not None:
                raise TypeError("two contexts; give one of them")
            env, context = None, env
        missing = [name for name in ("config_class", "learn") if not self._defines(name)]
        if missing:
            raise NotImplementedError(f"{type(self).__name__} must define {' and '.join(missing)}")
        named = {} if env is None else {"env": env}
        super().__init__({**(config or {}), **named}, context, logger_creator)

    # ---- what an algorithm writes ------------------------------------------------------------

    def learn(self, fragments: list[Fragment]) -> dict[str, float]:
        """Improve the policy with what was sampled; returns the learner's statistics."""
        raise NotImplementedError(f"{type(self).__name__} must define learn(fragments)")

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that are fine one by one but do not fit together."""
        super().validate_config(settings)
        cls.check_data_parallel(settings)

    # ---- Trainable ---------------------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Build policy, filters and workers from the settings."""
        self.settings = parse(self.config_class, config)
        self.validate_config(self.settings)
        self._given = self.config
        self._undecided = self.undecided(self.settings)
        with ExitStack() as undo:
            undo.callback(EnvironmentVariables(self.settings.resources.environs).undo)
            with closing(self._inquiry(self.settings)) as inquiry:
                self._build(self.settings, inquiry)
            undo.callback(self._end_workers)
            undo.callback(self.evaluators.close)
            self._synchronise([])
            self._undo = undo.pop_all()

    def _inquiry(self, settings: TrainerConfig) -> Inquiry:
        """What the environment is; measured in a child process beside what is built here."""
        restarts = settings.envs.restart_failed_sub_environments
        known, shared = self.context.remembered, self.context.shared
        return Inquiry(settings.environment, restarts, known, shared)

    def _build(self, settings: TrainerConfig, inquiry: Inquiry) -> None:
        set_threads(settings.resources)
        self.seed = self.context.seed if settings.seed is None else settings.seed
        rng.seed_global(self.seed, "global")
        self.inexact = ""
        """Why the curve is not the one of its settings and seed; empty: it is."""
        self._say_batch_size(settings)
        me = weakref.proxy(self)  # a trainer that is forgotten goes at once, with its workers
        record = EpisodeRecord(settings.recording, lambda: me.logdir)
        self.reporter = Reporter(settings.callbacks, settings.logs, record)
        seen = inquiry.look()
        chosen = self.choose(settings, seen)
        self._settle({} if self.context.settled else chosen)
        settings = self.settings
        self.spaces = seen.spaces
        self.architecture = architecture(settings.model, self.spaces.observation_shape)
        check_vector_env(settings.environment, settings.envs, seen.limit)
        device = learning_device(settings.resources)
        networks = (self.spaces.layout, self.architecture)
        self.policy = build_policy(networks, settings.optimizer, self.seed, device)
        self.filters = make_filters(settings.filters, self.spaces.observation_shape)
        self.streams = {
            name: rng.generator(self.seed, name) for name in ("minibatch", "compute_action")
        }
        self.progress = Progress(settings.metrics)
        self.recent: NDArray[Any] = np.zeros(
            (0, *self.spaces.observation_shape), self.spaces.observation_dtype
        )
        actor = make_actor(self.spaces.layout, self.architecture)
        self.inference = InferencePolicy(
            actor, self.filters["observation"], self.spaces, settings.sampling.clip_actions
        )
        by_clock = bool(settings.by_clock)
        self.environment, self.level = resolve(
            settings.environment, by_clock, lambda _: inquiry.measured()
        )
        self._remembered = inquiry.as_data()
        self.fps = self.check_rendering(settings)
        self.workers: WorkerSet = self._make_workers(self.seed)
        while_evaluating, _ = evaluation_settings(settings, settings.evaluation)
        if settings.evaluation.evaluation_interval is not None:
            self.reporter.log("evaluation_config", settings.evaluation.evaluation_config)
        self.evaluators = Evaluators(
            settings.evaluation, self.seed, while_evaluating.resources, while_evaluating.logs
        )

    def step(self) -> dict[str, Any]:
        """One iteration: rounds of sampling and learning until it is long enough."""
        check_quota(self.settings.resources.memory)
        self._tell_global_vars({"timestep": self.progress.timesteps})
        at_start = self.evaluation_at_start()
        timers: dict[str, float] = {}
        length = IterationLength(self.settings.iteration)
        self.progress.begin_iteration()
        learner = self._round(timers)
        while not length.reached(self.progress.timesteps_this_iteration):
            learner = self._round(timers)
        result: dict[str, Any] = {
            **self.collect_metrics(),
            **system_usage(self.settings.logs),
            "learner": learner,
            "num_healthy_workers": self.workers.healthy(),
            **({"fake_sampler": True} if self.settings.sampling.fake_sampler else {}),
            "timers": timers,
            **({"exactness": self.exactness} if self.inexact else {}),
            **({"train_batch_size": self.settings.batch_size} if self.settings.rounded else {}),
            **at_start,
        }
        if is_due(self.settings.evaluation, self.iteration + 1):
            with timed(timers, "evaluation_time_ms"):
                result.update(self.evaluated(self.iteration + 1))
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Everything that decides the future, as plain data; nothing is flushed by it."""
        return {
            "policy": self.policy.get_state(),
            "filters": filters_.get_state(self.filters),
            "streams": {
                name: rng.get_generator_state(stream) for name, stream in self.streams.items()
            },
            "progress": self.progress.get_state(),
            "workers": self.workers.get_state(),
            "recent_observations": self.recent.copy(),
            "collected": agreement.described(self.settings),
            **({"settled": self._settled()} if self.before_auto else {}),
            **({"inexact": self.inexact} if self.inexact else {}),
            **self.reporter.get_state(),
        }

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Take back what `save_checkpoint` gave.

        Raises:
            ConfigError: it was saved with other filters, or by workers of another kind or number.
        """
        self._settle(checkpoint.get("settled", {}))
        agreement.check(checkpoint, self.settings)
        self._take_level()
        self.policy.set_state(checkpoint["policy"])
        filters_.set_state(self.filters, checkpoint["filters"])
        for name, stream in self.streams.items():
            rng.set_generator_state(stream, checkpoint["streams"][name])
        self.progress.set_state(checkpoint["progress"])
        self.inexact = str(checkpoint.get("inexact", ""))
        if checkpoint["workers"] is None:
            self._collect_anew()
        else:
            self.workers.set_state(checkpoint["workers"])
        self.reporter.set_state(checkpoint)
        self.recent = np.array(checkpoint["recent_observations"], dtype=self.recent.dtype)
        self._synchronise([])

    def adapted(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The state without its workers, if those of this trainer collect in another way.

        What was learnt and counted stays, new episodes are begun, and the state says why the curve
        is no longer exact; so does the log.
        """
        data = state["trainable"].get("data")
        if not isinstance(data, Mapping) or not data.get("workers"):
            return state
        self._settle(data.get("settled", {}))
        changes = agreement.changed(data, self.settings)
        if not changes:
            return state
        why = agreement.in_words(changes, int(data["progress"]["timesteps"]))
        before = data.get("inexact")
        logger.warning("%s; new episodes are begun, and the curve is no longer exact", why)
        anew = {
            **data,
            "workers": None,
            "inexact": f"{before}; {why}" if before else why,
        }
        return {**state, "trainable": {**state["trainable"], "data": anew}}

    def cleanup(self) -> None:
        """End the workers; put back what they needed of this process."""
        self._undo.close()

    # ---- what callers use --------------------------------------------------------------------

    @property
    def raw_user_config(self) -> dict[str, Any]:
        """The settings as they were given, without defaults; a copy."""
        return copy.deepcopy(dict(self._given))

    def remembers(self) -> dict[str, Any]:
        """How exactly the environment comes back: it is measured once for all trials of a sweep."""
        return self._remembered

    @property
    def exactness(self) -> str:  # type: ignore[override]  # measured per trial, not per class
        """What a checkpoint holds of the environments, measured: "A exact state" or weaker."""
        if self.inexact:
            return f"{LEVELS['D']}: {self.inexact}"
        return LEVELS["D" if self.progress.late else self.level]

    def collect_metrics(self, selected_workers: Sequence[int] | None = None) -> dict[str, Any]:
        """What the latest result says of episodes and steps: the same keys, the same numbers.

        Args:
            selected_workers: only what workers with these indices told; totals are always of all.
        """
        return self.progress.collect(selected_workers)

    # ---- inside ------------------------------------------------------------------------------

    def _settle(self, chosen: Mapping[str, Any]) -> None:
        """Give each setting that was left ``auto`` a value: the chosen one, or what it once was."""
        values = {key: chosen.get(key, self.before_auto[key]) for key in self._undecided}
        if values:
            self.settings = override(self.settings, values, "config")
        self.config = SettingsView(flatten(self.settings))

    def _settled(self) -> dict[str, Any]:
        """Setting that may be ``auto`` → its value, as a checkpoint keeps it."""
        return {key: self.config[key] for key in self.before_auto}

    def _complete(self, result: dict[str, Any], elapsed: float) -> dict[str, Any]:
        completed = super()._complete({"config": self._given, **result}, elapsed)
        self.reporter.train_result(self, completed)
        return completed

    def _round(self, timers: dict[str, float]) -> dict[str, float]:
        """Sample, learn, synchronise, count; returns the learner's statistics."""
        samples, learner = self._sample_and_learn(timers)
        with timed(timers, "synch_time_ms"):
            self._synchronise(samples)
        for one in samples:
            self.progress.count(one.index, one.count, one.episodes, one.perf)
            self.progress.late += one.late
        return learner

    def _sample_and_learn(
        self, timers: dict[str, float]
    ) -> tuple[Sequence[Sample], dict[str, float]]:
        if isinstance(self.workers, RankGroup):
            return self._learn_in_ranks(self.workers, timers)
        with timed(timers, "sample_time_ms"):
            samples = self.workers.sample()
        self.reporter.sampled(samples)
        with timed(timers, "learn_time_ms"):
            learner = self.learn([fragment for one in samples for fragment in one.fragments])
        self.reporter.learnt(self.policy, learner)
        return samples, learner

    def _take_level(self) -> None:
        """Promise what the checkpoint's trainer had measured, should it be something else."""
        of, remembered = self.settings, self.context.remembered
        restarts = of.envs.restart_failed_sub_environments
        known: Measured | None = known_by(of.environment, restarts, remembered)
        if known is None or of.environment.env_level == "C":
            return
        made, level = resolve(of.environment, bool(of.by_clock), lambda _: known)
        self._remembered = {name: remembered[name] for name in self._remembered}
        if made == self.environment and level == self.level:
            return
        self.workers.close()
        self.environment, self.level = made, level
        self.workers = self._make_workers(self.seed)

    def _worker_spec(self) -> WorkerSpec:
        settings = self.settings
        return WorkerSpec(
            seed=self.seed,
            index=0,
            num_workers=settings.workers.num_workers,
            environment=self.environment,
            envs=settings.envs,
            sampling=settings.sampling,
            filters=settings.filters,
            architecture=self.architecture,
            gamma=settings.gamma,
            steps=-(-settings.batch_size // max(1, settings.workers.num_workers)),
            resources=settings.resources,
            perf=settings.perf,
            logs=settings.logs,
            shows_logs=is_shown(),
            calls=self.reporter.calls,
            learner=self.learner_spec() if settings.workers.data_parallel else None,
            filming=RecordingPlan(settings.rendering, self.videos, self.fps) if self.fps else None,
        )

    @staticmethod
    def _say_batch_size(settings: TrainerConfig) -> None:
        if settings.rounded:
            logger.info(
                "train_batch_size: %s is rounded up to %s: whole rounds of %s worker(s) x %s "
                "environments x %s steps",
                *(settings.train_batch_size, settings.batch_size),
                max(1, settings.workers.num_workers),
                *(settings.sampling.num_envs_per_worker,),
                settings.sampling.rollout_fragment_length,
            )

    def _end_workers(self) -> None:
        self.workers.close()  # they may have been made anew

    def _make_workers(self, seed: int) -> WorkerSet:
        of = self.settings
        spec = replace(self._worker_spec(), seed=seed)
        return make_workers(spec, of.workers, of.recovery, of.metrics)

    def _collect_anew(self) -> None:
        """Other workers, which begin new episodes in streams of their own."""
        self.workers.close()
        self.workers = self._make_workers(
            rng.integer(self.seed, "restored", self.progress.timesteps)
        )
        if not self.settings.filters.synchronize_filters:
            known = filters_.get_state(self.filters)
            states = self.workers.get_state()
            self.workers.set_state([{**state, "filters": known} for state in states])

    @classmethod
    def _defines(cls, name: str) -> bool:
        above = cls.mro()[: cls.mro().index(Trainer)]
        return any(name in vars(one) for one in above)

    def _tell_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        self.policy.on_global_var_update(global_vars)
        self.workers.set_global_vars(global_vars)

    def broadcast(self) -> None:
        """Give the weights and the filters to all workers."""
        self._synchronise([])

    def _synchronise(self, samples: Sequence[Sample]) -> None:
        """Merge what the workers' filters saw, in worker order; give all of them the result."""
        merged = filters_.synchronise(self.filters, [one.deltas for one in samples])
        weights = self.policy.model.weights()
        self.inference.actor.load(weights)
        if isinstance(self.workers, RankGroup) and not samples:
            self.workers.load_policy(self.policy.get_state())
        self.workers.sync(weights, merged)
        if samples:
            self.recent = samples[0].recent
