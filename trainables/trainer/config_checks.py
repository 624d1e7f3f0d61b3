"""What a trainer's class says of settings before a trainer is made from them."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from trainables.core.resources import EnvironmentVariables, ResourcesConfig
from trainables.core.settings import parse
from trainables.envs.exactness import measuring
from trainables.envs.exactness.rendering import check_pictures
from trainables.envs.vector.config import check_vector_env
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError
from trainables.evaluation.config import (
    check_callbacks_of_evaluation,
    check_evaluation,
    evaluation_settings,
)
from trainables.policies.architecture import architecture
from trainables.rollout.recording import check_rendering
from trainables.trainer.config import TrainerConfig, validate_config
from trainables.trainer.evaluation import PeriodicEvaluation
from trainables.trainer.reporting import check_callbacks


class ConfigChecks(PeriodicEvaluation):
    """Whether settings can work, what follows from them, what a trial with them needs."""

    config_class: ClassVar[type[TrainerConfig]] = TrainerConfig
    settings: TrainerConfig

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that are fine one by one but do not fit together."""
        validate_config(settings)
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
        cls.validate_config(settings)
        learning_device(settings.resources)
        seen = measuring.look(settings.environment)
        architecture(settings.model, seen.spaces.observation_shape)
        if settings.evaluation.evaluation_config:
            plan = cls.evaluation_plan(settings)
            environments = (plan.environment, settings.environment)
            check_evaluation(environments, plan.envs, settings.evaluation, seen.spaces)
        check_vector_env(settings.environment, settings.envs, seen.limit)
        if settings.environment.native_vector_env:
            measuring.once(
                settings.environment,
                f"native {settings.envs!r}",
                lambda: make_vector_env(settings.environment, 1, settings.envs).close(),
            )
        environs = EnvironmentVariables(settings.resources.environs)
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


# -------------------------------------------------------------------------------------------------
# Where a policy learns: the device, and the threads of the trainer's own process.


def learning_device(resources: ResourcesConfig) -> torch.device:
    """The CPU, or with ``num_gpus`` the first GPU that torch sees.

    Raises:
        ConfigError: GPUs are asked for and torch sees none.
    """
    for key in ("num_gpus", "num_gpus_per_worker"):
        asked = getattr(resources, key)
        if asked and not torch.cuda.is_available():
            raise ConfigError(
                key,
                asked,
                "0 on this machine, where torch sees no GPU",
                f"check the CUDA installation: nvidia-smi must list a GPU, and torch must be built "
                f"for CUDA (torch.version.cuda is {torch.version.cuda})",
            )
    return torch.device("cuda" if resources.num_gpus else "cpu")


def set_threads(resources: ResourcesConfig) -> None:
    """Give torch its threads; the number of inter-op threads can be set once in a process.

    Raises:
        ConfigError: torch has begun to work in this process with another inter-op number.
    """
    intra, inter = resources.threads
    torch.set_num_threads(intra)
    if inter is None or inter == torch.get_num_interop_threads():
        return
    try:
        torch.set_num_interop_threads(inter)
    except RuntimeError as error:
        raise ConfigError(
            "tf_session_args.inter_op_parallelism_threads",
            inter,
            f"{torch.get_num_interop_threads()} in this process, where torch has begun to work",
            "use one number in all trainers of a process, or leave it out",
        ) from error
