"""What a trainer's class says of settings before a trainer is made from them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from trainables.config import TrainerConfig, check_fit
from trainables.envs import measuring
from trainables.envs.choice import make_lanes
from trainables.envs.lanes import check_lanes
from trainables.envs.render_check import check_pictures
from trainables.envs.watching import watched
from trainables.errors import ConfigError
from trainables.evaluation import (
    check_callbacks_of_evaluation,
    check_evaluation,
    evaluation_settings,
)
from trainables.periodic_evaluation import PeriodicEvaluation
from trainables.policies.architecture import architecture
from trainables.policies.device import learning_device
from trainables.resources import Environs
from trainables.rollout.filming import check_rendering
from trainables.settings import parse
from trainables.telling import check_callbacks


class Preflight(PeriodicEvaluation):
    """Whether settings can work, what follows from them, what a trial with them needs."""

    config_class: ClassVar[type[TrainerConfig]] = TrainerConfig
    settings: TrainerConfig

    @classmethod
    def check_fit(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that are fine one by one but do not fit together."""
        check_fit(settings)
        fake = settings.sampling.fake_sampler
        check_callbacks(settings.callbacks, settings.workers.num_workers, fake)
        evaluating, _ = evaluation_settings(settings, settings.evaluation)
        check_callbacks_of_evaluation(evaluating.callbacks, settings.evaluation)

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that cannot work.

        One environment is made and closed for all settings of this process that make the same.
        """
        settings = parse(cls.config_class, config)
        cls.check_fit(settings)
        learning_device(settings.resources)
        seen = measuring.look(settings.environment)
        architecture(settings.model, seen.spaces.observation_shape)
        if settings.evaluation.evaluation_config:
            plan = cls.evaluation_plan(settings)
            environments = (plan.environment, settings.environment)
            check_evaluation(environments, plan.lanes, settings.evaluation, seen.spaces)
        check_lanes(settings.environment, settings.lanes, seen.limit)
        if settings.environment.native_vector_env:
            with watched(settings.environment):
                make_lanes(settings.environment, 1, settings.lanes).close()
        environs = Environs(settings.resources.environs)
        try:
            cls.check_rendering(settings)
        finally:
            environs.undo()

    @classmethod
    def check_rendering(cls, settings: TrainerConfig) -> float:
        """How many pictures a second of a rollout's video has; 0 if nobody looks.

        Raises:
            ConfigError: somebody asks for pictures of what cannot be drawn.
        """
        value = settings.rendering.record_env
        fps = check_rendering(settings.environment, settings.rendering)
        if settings.rendering.records_evaluation:
            if value == "evaluation" and settings.evaluation.evaluation_interval is None:
                hint = "set evaluation_interval, or record_env: rollout"
                raise ConfigError("record_env", value, "rollout without evaluations", hint)
            check_pictures(cls.evaluation_plan(settings).environment, "record_env", value)
        return fps

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
        asked = settings.resources.request(settings.workers.num_workers)
        if settings.evaluation.evaluation_interval is not None:
            evaluating, _ = evaluation_settings(settings, settings.evaluation)
            more = evaluating.resources.request(settings.evaluation.evaluation_num_workers)
            for name in (one for one in asked if one.startswith("extra_")):
                asked[name] += more[name]
        return asked

    @classmethod
    def resource_help(cls, config: Mapping[str, Any]) -> str:
        """What to change when a trial asks for more than there is."""
        return (
            "num_workers and evaluation_num_workers set how many child processes a trial has, "
            "num_gpus what it learns on; this trial's settings: "
            f"{dict(config)}"
        )
