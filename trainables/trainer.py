"""The trainer that every algorithm fills in: sample → learn → synchronise → evaluate → result.

An algorithm's file gives a config and `learn`. Everything that decides the future stands in
`save_checkpoint`; settings do not.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables import filters as filters_
from trainables import onnx_export, rng
from trainables.config import TrainerConfig
from trainables.envs.choice import make_lanes
from trainables.envs.lanes import check_lanes
from trainables.envs.levels import LEVELS, Level, measure
from trainables.envs.make import for_children, read_spaces
from trainables.envs.vector import Place
from trainables.errors import ConfigError, TrainableError, shorten
from trainables.evaluation import Plan, check_evaluation, evaluation_settings, is_due
from trainables.evaluation_workers import Evaluators
from trainables.filter_config import make_filters
from trainables.policies.actor import Actor
from trainables.policies.device import learning_device, set_threads
from trainables.policies.networks import ActorCritic
from trainables.policies.player import Player
from trainables.policies.torch_policy import TorchPolicy
from trainables.resources import Environs, check_quota
from trainables.rollout.batch import Fragment
from trainables.rollout.metrics import Progress, summarise
from trainables.rollout.worker import Sample, WorkerSpec
from trainables.rollout.worker_set import WorkerSet, make_workers
from trainables.settings import parse
from trainables.trainable import Trainable


class Trainer(Trainable):
    """Base of all algorithms; works alone: ``PPO({"env": "CartPole-v1"}).train()``."""

    config_class: ClassVar[type[TrainerConfig]] = TrainerConfig
    settings: TrainerConfig

    # ---- what an algorithm writes ------------------------------------------------------------

    def learn(self, fragments: list[Fragment]) -> dict[str, float]:
        """Improve the policy with what was sampled; returns the learner's statistics."""
        raise NotImplementedError(f"{type(self).__name__} must define learn(fragments)")

    @classmethod
    def check_fit(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that are fine one by one but do not fit together."""
        cut = settings.sampling.batch_mode == "truncate_episodes"
        if cut and settings.batch_size % settings.fragment_size:
            raise ConfigError(
                "train_batch_size",
                settings.train_batch_size,
                f"a multiple of {settings.fragment_size}",
                f"{max(1, settings.workers.num_workers)} worker(s) x "
                f"{settings.sampling.num_envs_per_worker} environments x "
                f"{settings.sampling.rollout_fragment_length} steps make one fragment",
            )
        if settings.schedule.lr_schedule == "linear" and not settings.schedule.schedule_timesteps:
            raise ConfigError(
                "schedule_timesteps",
                None,
                "the environment steps over which a linear lr_schedule runs",
                "set it, or stop.timesteps_total from which it is taken",
            )

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
        check_lanes(settings.environment, settings.lanes)
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
        self.level = self._measure_level()
        self.workers: WorkerSet = make_workers(
            self._worker_spec(), settings.workers, settings.recovery
        )
        self.evaluators = Evaluators(settings.evaluation, self.seed, settings.resources)

    def step(self) -> dict[str, Any]:
        """One iteration."""
        check_quota(self.settings.resources.memory)
        at_start = self._evaluation_at_start()
        timers: dict[str, float] = {}
        with _timed(timers, "sample_time_ms"):
            samples = self.workers.sample()
        with _timed(timers, "learn_time_ms"):
            learner = self.learn([fragment for one in samples for fragment in one.fragments])
        with _timed(timers, "synch_time_ms"):
            self._synchronise(samples)
        episodes = [episode for one in samples for episode in one.episodes]
        timesteps = sum(fragment.steps for one in samples for fragment in one.fragments)
        result: dict[str, Any] = {
            **self.progress.count(timesteps, episodes),
            "learner": learner,
            "num_healthy_workers": self.workers.healthy(),
            "timers": timers,
            **at_start,
        }
        if is_due(self.settings.evaluation, self.iteration + 1):
            with _timed(timers, "evaluation_time_ms"):
                result.update(self._evaluated())
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
        check_evaluation(cls._evaluation_plan(settings).environment, spaces)
        check_lanes(settings.environment, settings.lanes)
        if settings.environment.native_vector_env:
            make_lanes(settings.environment, 1, settings.lanes).close()

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

    # ---- what callers use --------------------------------------------------------------------

    @property
    def exactness(self) -> str:  # type: ignore[override]  # measured per trial, not per class
        """What a checkpoint holds of the environments, measured: "A exact state" or weaker."""
        return LEVELS[self.level]

    def evaluate(self) -> dict[str, float]:
        """Play `evaluation_num_episodes` fresh episodes; training is not touched by it.

        Gives ``episode_reward_{mean,min,max}``, ``episode_len_mean`` and ``episodes``.
        """
        seed = rng.integer(self.seed, "evaluation", self.iteration + 1)
        plan = self._evaluation_plan(self.settings)
        episodes = self.evaluators.play(self.player, plan, seed)
        return {**summarise(episodes), "episodes": len(episodes)}

    def compute_action(self, observation: NDArray[Any], explore: bool = False) -> Any:
        """The action for one raw observation (*O), as the environment wants it.

        The observation is flattened and filtered (without update), the action mapped back. With
        `explore` it is drawn from a stream of its own, so that training is not disturbed.
        """
        stream = self.streams["compute_action"] if explore else None
        return self.player.act(np.asarray(observation)[None], stream)[0]

    def describe_model(self) -> dict[str, Any]:
        """What the exported model takes and gives: plain data for its card."""
        return onnx_export.describe(self._policy_parts())

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Only ``onnx``: one file, checked on observations that this trainer really saw."""
        for name in export_formats:
            if name != "onnx":
                raise ConfigError("format", name, "onnx")
        path = onnx_export.export(self._policy_parts(), self.recent, Path(export_dir))
        return {"onnx": str(path)}

    # ---- evaluation, which an algorithm may change ---------------------------------------------

    def _before_evaluate(self) -> None:
        """Called before each evaluation."""

    def _evaluate(self) -> dict[str, Any]:
        """What an evaluation adds to the result."""
        return {"evaluation": self.evaluate()}

    def _evaluated(self) -> dict[str, Any]:
        streams = rng.capture_global()
        self._before_evaluate()
        evaluated: object = self._evaluate()
        rng.restore_global(streams)
        if not isinstance(evaluated, dict):
            raise TrainableError(
                f"{type(self).__name__}._evaluate() returned {shorten(evaluated)}; "
                f"expected a dict to add to the result"
            )
        return evaluated

    def _evaluation_at_start(self) -> dict[str, Any]:
        """The untrained policy's numbers, in the first result; a restored one has them behind it.

        So an evaluation that cannot work fails before anything is trained.
        """
        if self.iteration or self.settings.evaluation.evaluation_interval is None:
            return {}
        return {f"{name}_at_start": value for name, value in self._evaluated().items()}

    @staticmethod
    def _evaluation_plan(settings: TrainerConfig) -> Plan:
        changed, explore = evaluation_settings(settings, settings.evaluation)
        environment = changed.environment
        if settings.evaluation.evaluation_num_workers:
            environment = for_children(environment)
        width = changed.sampling.num_envs_per_worker
        return Plan(environment, explore, width, settings.lanes.horizon)

    # ---- inside ------------------------------------------------------------------------------

    def _policy_parts(self) -> onnx_export.PolicyParts:
        return onnx_export.PolicyParts(
            model=self.policy.model,
            observation_filter=self.filters["observation"],
            spaces=self.spaces,
            clip_actions=self.settings.sampling.clip_actions,
            player=self.player,
        )

    def _build_model(self) -> ActorCritic:
        sizes = (self.spaces.observation_size, self.spaces.action_size)
        stream = rng.torch_generator(self.seed, "init")
        return ActorCritic(sizes, self.spaces.discrete, self.settings.model, stream)

    def _worker_spec(self) -> WorkerSpec:
        settings = self.settings
        return WorkerSpec(
            seed=self.seed,
            index=0,
            num_workers=settings.workers.num_workers,
            environment=settings.environment,
            lanes=settings.lanes,
            sampling=settings.sampling,
            filters=settings.filters,
            activation=settings.model.activation,
            gamma=settings.gamma,
            steps=-(-settings.batch_size // max(1, settings.workers.num_workers)),
            level=self.level,
            resources=settings.resources,
        )

    def _measure_level(self) -> Level:
        settings, place = self.settings, Place(self.seed)
        return measure(
            lambda: make_lanes(settings.environment, 2, settings.lanes, place), self.seed
        )

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
