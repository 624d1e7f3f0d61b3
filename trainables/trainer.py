"""The trainer that every algorithm fills in: sample → learn → synchronise → evaluate → result.

An algorithm's file gives a config and `learn`. Everything that decides the future stands in
`save_checkpoint`; settings do not.
"""

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables import filters as filters_
from trainables import rng
from trainables.config import TrainerConfig, check_fit
from trainables.envs.levels import LEVELS, resolve
from trainables.envs.make import read_spaces
from trainables.envs.vector import make_lanes
from trainables.evaluation import check_evaluation, is_due
from trainables.evaluation_workers import Evaluators
from trainables.filter_config import make_filters
from trainables.periodic_evaluation import PeriodicEvaluation
from trainables.policies.actor import Actor
from trainables.policies.device import learning_device, set_threads
from trainables.policies.networks import ActorCritic
from trainables.policies.player import Player
from trainables.policies.torch_policy import TorchPolicy
from trainables.policy_access import PolicyAccess
from trainables.resources import Environs, check_quota
from trainables.rollout.batch import Fragment
from trainables.rollout.metrics import Progress
from trainables.rollout.worker import Sample, WorkerSpec
from trainables.rollout.worker_set import WorkerSet, make_workers
from trainables.settings import parse
from trainables.trainable import TrialContext


class Trainer(PolicyAccess, PeriodicEvaluation):
    """Base of all algorithms; works alone: ``PPO({"env": "CartPole-v1"}).train()``."""

    config_class: ClassVar[type[TrainerConfig]] = TrainerConfig
    settings: TrainerConfig

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        context: TrialContext | None = None,
        env: str | None = None,
    ) -> None:
        missing = [name for name in ("config_class", "learn") if not self._defines(name)]
        if missing:
            raise NotImplementedError(f"{type(self).__name__} must define {' and '.join(missing)}")
        named = {} if env is None else {"env": env}
        super().__init__({**(config or {}), **named}, context)

    # ---- what an algorithm writes ------------------------------------------------------------

    def learn(self, fragments: list[Fragment]) -> dict[str, float]:
        """Improve the policy with what was sampled; returns the learner's statistics."""
        raise NotImplementedError(f"{type(self).__name__} must define learn(fragments)")

    @classmethod
    def check_fit(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that are fine one by one but do not fit together."""
        check_fit(settings)

    # ---- Trainable ---------------------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Build policy, filters and workers from the settings."""
        self.settings = parse(self.config_class, config)
        self.check_fit(self.settings)
        with ExitStack() as undo:
            undo.callback(Environs(self.settings.resources.environs).undo)
            self._build(self.settings)
            undo.callback(self.workers.close)
            undo.callback(self.evaluators.close)
            self._synchronise([])
            self._undo = undo.pop_all()

    def _build(self, settings: TrainerConfig) -> None:
        set_threads(settings.resources)
        self.seed = self.context.seed if settings.seed is None else settings.seed
        rng.seed_global(self.seed, "global")
        self.spaces = read_spaces(settings.environment)
        device = learning_device(settings.resources)
        self.policy = TorchPolicy(self._build_model(), settings.optimizer, device)
        self.filters = make_filters(settings.filters, self.spaces.observation_size)
        self.streams = {
            name: rng.generator(self.seed, name) for name in ("minibatch", "compute_action")
        }
        self.progress = Progress(settings.metrics)
        self.recent: NDArray[Any] = np.zeros((0, self.spaces.observation_size), dtype=np.float32)
        actor = Actor(self.spaces.discrete, settings.model.activation)
        self.player = Player(
            actor, self.filters["observation"], self.spaces, settings.sampling.clip_actions
        )
        self.environment, self.level = resolve(settings.environment, settings.sampling.sample_async)
        self.workers: WorkerSet = make_workers(
            self._worker_spec(), settings.workers, settings.recovery
        )
        self.evaluators = Evaluators(settings.evaluation, self.seed, settings.resources)

    def step(self) -> dict[str, Any]:
        """One iteration."""
        check_quota(self.settings.resources.memory)
        self._tell_global_vars({"timestep": self.progress.timesteps})
        at_start = self.evaluation_at_start()
        timers: dict[str, float] = {}
        with _timed(timers, "sample_time_ms"):
            samples = self.workers.sample()
        with _timed(timers, "learn_time_ms"):
            learner = self.learn([fragment for one in samples for fragment in one.fragments])
        with _timed(timers, "synch_time_ms"):
            self._synchronise(samples)
        episodes = [episode for one in samples for episode in one.episodes]
        result: dict[str, Any] = {
            **self.progress.count(sum(one.count for one in samples), episodes),
            "learner": learner,
            "num_healthy_workers": self.workers.healthy(),
            **({"fake_sampler": True} if self.settings.sampling.fake_sampler else {}),
            "timers": timers,
            **at_start,
        }
        if is_due(self.settings.evaluation, self.iteration + 1):
            with _timed(timers, "evaluation_time_ms"):
                result.update(self.evaluated())
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
        }

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Take back what `save_checkpoint` gave."""
        self.policy.set_state(checkpoint["policy"])
        filters_.set_state(self.filters, checkpoint["filters"])
        for name, stream in self.streams.items():
            rng.set_generator_state(stream, checkpoint["streams"][name])
        self.progress.set_state(checkpoint["progress"])
        self.workers.set_state(checkpoint["workers"])
        self.recent = np.array(checkpoint["recent_observations"], dtype=np.float32)
        self._synchronise([])

    def cleanup(self) -> None:
        """End the workers; put back what they needed of this process."""
        self._undo.close()

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that cannot work; one environment is made and closed."""
        settings = parse(cls.config_class, config)
        cls.check_fit(settings)
        learning_device(settings.resources)
        spaces = read_spaces(settings.environment)
        evaluated = cls.evaluation_plan(settings).environment
        if evaluated != settings.environment:
            check_evaluation(evaluated, spaces)
        if settings.environment.native_vector_env:
            make_lanes(settings.environment, 1).close()

    @classmethod
    def complete_config(
        cls, config: Mapping[str, Any], stop: Mapping[str, float]
    ) -> dict[str, Any]:
        """A schedule is as long as the training, unless its length is set."""
        completed = dict(config)
        if "timesteps_total" in stop and completed.get("schedule_timesteps") is None:
            completed["schedule_timesteps"] = int(stop["timesteps_total"])
        return completed

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> dict[str, float]:
        """``cpu``, ``gpu``, ``memory`` (bytes) of the trainer, ``extra_*`` of all its children."""
        settings = parse(cls.config_class, config)
        children = settings.workers.num_workers
        if settings.evaluation.evaluation_interval is not None:
            children += settings.evaluation.evaluation_num_workers
        return settings.resources.request(children)

    @classmethod
    def resource_help(cls, config: Mapping[str, Any]) -> str:
        """What to change when a trial asks for more than there is."""
        return (
            "num_workers and evaluation_num_workers set how many child processes a trial has, "
            "num_gpus what it learns on; this trial's settings: "
            f"{dict(config)}"
        )

    # ---- what callers use --------------------------------------------------------------------

    @property
    def raw_user_config(self) -> dict[str, Any]:
        """The settings as they were given, without defaults; a copy."""
        return copy.deepcopy(self.config)

    @property
    def exactness(self) -> str:  # type: ignore[override]  # measured per trial, not per class
        """What a checkpoint holds of the environments, measured: "A exact state" or weaker."""
        return LEVELS[self.level]

    def compute_action(self, observation: NDArray[Any], explore: bool = False) -> Any:
        """The action for one raw observation (*O), as the environment wants it.

        The observation is flattened and filtered (without update), the action mapped back. With
        `explore` it is drawn from a stream of its own, so that training is not disturbed.
        """
        stream = self.streams["compute_action"] if explore else None
        return self.player.act(np.asarray(observation)[None], stream)[0]

    # ---- inside ------------------------------------------------------------------------------

    def _build_model(self) -> ActorCritic:
        sizes = (self.spaces.observation_size, self.spaces.action_size)
        stream = rng.torch_generator(self.seed, "init")
        return ActorCritic(sizes, self.spaces.discrete, self.settings.model, stream)

    def _worker_spec(self) -> WorkerSpec:
        settings = self.settings
        return WorkerSpec(
            seed=self.seed,
            index=0,
            environment=self.environment,
            sampling=settings.sampling,
            filters=settings.filters,
            activation=settings.model.activation,
            gamma=settings.gamma,
            steps=-(-settings.batch_size // max(1, settings.workers.num_workers)),
            level=self.level,
            resources=settings.resources,
        )

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
        self.player.actor.load(weights)
        self.workers.sync(weights, merged)
        if samples:
            self.recent = samples[0].recent


@contextmanager
def _timed(timers: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    timers[name] = 1e3 * (time.perf_counter() - started)
