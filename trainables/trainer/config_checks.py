"""Checks of settings before a trainer is made, and the resources that the settings need."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from trainables.core import devices
from trainables.core.importing import import_object, large_import
from trainables.core.resources import EnvironmentVariables, ResourcesConfig
from trainables.core.settings import flatten
from trainables.core.torch_import import when_torch_imported
from trainables.envs.calls.faults import closing
from trainables.envs.exactness import measuring
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.exactness.rendering import check_pictures
from trainables.envs.make import EnvSpaces, is_vector_only, needs_policies
from trainables.envs.vector import config as vector_config
from trainables.envs.vector.config import check_vector_env
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError, NotImportable, in_yaml
from trainables.evaluation.config import (
    check_callbacks_of_evaluation,
    check_evaluation,
    evaluation_settings,
)
from trainables.learners.replay import ReplayConfig
from trainables.policies.architecture import Architecture, ModelConfig
from trainables.rollout.callbacks import episode_callbacks, make_calls
from trainables.rollout.media.recording import check_rendering
from trainables.trainable import Trainable
from trainables.trainer.config import TrainerConfig, has_policies, validate_config
from trainables.trainer.evaluation import evaluation_plan
from trainables.trainer.reporting import check_callbacks

T = TypeVar("T", bound=Trainable)

#: Key → the only value that it may have with data_parallel, and the reason.
NEEDED_BY_RANKS: dict[str, tuple[Any, str]] = {
    "ignore_worker_failures": (False, "all workers take every step together"),
    "batch_mode": ("truncate_episodes", "all workers need batches of one size"),
    "sample_async": (False, "a worker samples and learns in turn"),
    "compress_observations": (False, "observations stay in the child that learns from them"),
    "num_gpus": (0, "workers learn on the CPU"),
    "num_gpus_per_worker": (0, "workers learn on the CPU"),
}

#: Most bytes of a row of a replay in addition to observations and action: reward, flag, discount.
_OTHER_BYTES = 4 + 1 + 4
#: Units of a layer from which on a GPU is asked for actions.
WIDE = 256
#: Setting that makes workers ranks, which learn.
_RANKS = "data_parallel"
#: Name of such environments in messages.
_CALLER = "an external environment, which calls the trainer"
#: Advice for settings that lanes do not support.
_NO_LANES = "use a pool other than stack, which trains without lanes"
#: Reasons for settings that an environment that calls the trainer excludes.
_ONE = "such an environment is one object, which plays as many episodes at once as it likes"
_OWN_PACE = "the environment decides when it steps"
_NO_PICTURES = "such an environment is not drawn"
_AS_IT_SAYS = (
    "the values that it sends and receives are not converted: convert them in the environment"
)
#: Key → the values that it may have with an environment that calls the trainer, and the reason.
NEEDED_BY_CALLERS: dict[str, tuple[tuple[Any, ...], str]] = {
    "native_vector_env": ((False, "auto"), _ONE),
    "remote_worker_envs": ((False,), _ONE),
    "env_level": (("auto",), "its state is unknown, so its episodes cannot be restored (level D)"),
    "sample_async": ((False,), _OWN_PACE),
    "fake_sampler": ((False,), _OWN_PACE),
    "data_parallel": ((False,), "all workers need batches of one size"),
    "compress_observations": ((False,), "observations that children send are not compressed"),
    "soft_horizon": ((False,), "the environment itself ends its episodes"),
    "normalize_rewards": ((False,), "it may play several episodes at once"),
    "action_mask": ((None,), "it sends no masks"),
    "observation_fn": ((None,), "the environment says what each agent sees"),
    "connectors": (((),), _AS_IT_SAYS),
    "normalize_actions": ((False, "auto"), _AS_IT_SAYS),
    "model.lstm_use_prev_action": ((False,), _AS_IT_SAYS),
    "model.lstm_use_prev_reward": ((False,), _AS_IT_SAYS),
    "record_env": ((False, "evaluation"), _NO_PICTURES),
    "render_env": ((False,), _NO_PICTURES),
}


def check_calling_environment(settings: TrainerConfig) -> None:
    """Raise ConfigError for settings that an environment that calls the trainer rules out.

    They are those of `NEEDED_BY_CALLERS`, the callback ``on_postprocess_traj``, and evaluations in
    that environment.
    """
    flat = {**flatten(settings), **{f"model.{key}": value for key, value in settings.model}}
    for key, (values, why) in NEEDED_BY_CALLERS.items():
        if flat[key] not in values:
            only = " or ".join(map(in_yaml, values))
            raise ConfigError.of_conflict(key, flat[key], _CALLER, only, why)
    calls = make_calls(settings.callbacks)
    if calls and calls.has_functions(phase := "on_postprocess_traj"):
        hint = "remove it, or use on_sample_end, which sees all that was sampled"
        problem = f"cannot be used with {_CALLER}"
        given = settings.callbacks.callbacks
        raise ConfigError(f"callbacks.{phase}", given, hint=hint, problem=problem)
    environment = settings.environment
    plays = settings.evaluation.evaluation_interval is not None
    if plays and evaluation_plan(settings).environment.env == environment.env:
        problem = (
            f"{environment.env} is an external environment, which calls the trainer, so "
            "evaluations cannot step it"
        )
        hint = "name an environment that can be stepped, or remove evaluation_interval"
        place = "evaluation_config.env"
        raise ConfigError(place, environment.env, hint=hint, problem=problem)


def check_agents(settings: TrainerConfig, inspection: Inspection) -> None:
    """Raise ConfigError if ``multiagent`` does not fit the environment that was inspected.

    An environment of several agents needs policies by name, one of a single agent allows none.
    """
    policies = has_policies(settings.agents.multiagent)
    if inspection.agents and not policies:
        raise needs_policies(settings.environment, list(inspection.agents))
    if policies and not inspection.agents:
        env, names = settings.environment.env, list(settings.agents.multiagent["policies"])
        problem = f"{env} has one agent, but multiagent.policies defines {in_yaml(names)}"
        hint = (
            "remove multiagent, or use a multi-agent environment: PettingZoo's (parallel or AEC), "
            "or one that returns dicts with __all__, like RLlib's MultiAgentEnv"
        )
        raise ConfigError("env", env, hint=hint, problem=problem)


def check_together(settings: TrainerConfig) -> None:
    """Raise ConfigError for settings that are valid one by one but do not work together.

    The callbacks of training and of evaluations are made to check them.
    """
    validate_config(settings)
    fake, reads = settings.sampling.fake_sampler, settings.offline.reads_experience
    check_callbacks(settings.callbacks, settings.workers.num_workers, fake, reads)
    evaluating, _ = evaluation_settings(settings, settings.evaluation)
    check_callbacks_of_evaluation(evaluating.callbacks, settings.evaluation)


#: Keys of ``model`` that only some algorithms read.
OF_SOME = frozenset(
    {"custom_action_dist", "custom_model", "free_log_std", "log_std_init", "vf_share_layers"}
)


def check_model(model: ModelConfig, read: frozenset[str], name: str) -> None:
    """Raise ConfigError if a key of ``model`` is set that the algorithm `name` does not read.

    `read` are the keys of `OF_SOME` that the algorithm reads; other keys are not checked.
    """
    for key in sorted(OF_SOME - read):
        if (value := getattr(model, key)) is not None:
            problem = f"has no effect with {name}, which does not read it"
            raise ConfigError(f"model.{key}", value, hint="remove it", problem=problem)


def check_data_parallel(settings: TrainerConfig) -> None:
    """Raise ConfigError for settings that do not work with data-parallel learning.

    They are fewer than two workers, other values than in `NEEDED_BY_RANKS`, an LSTM, and the
    callback ``on_postprocess_traj``.
    """
    if settings.workers.num_workers < 2:
        number, why = settings.workers.num_workers, "each worker is a learner"
        allowed, undo = "2 or more", "remove data_parallel"
        raise ConfigError.of_conflict("num_workers", number, _RANKS, allowed, why, undo)
    sections = (settings.recovery, settings.sampling, settings.resources)
    given = {key: value for one in sections for key, value in one if key in NEEDED_BY_RANKS}
    for key, (allowed, why) in NEEDED_BY_RANKS.items():
        if given[key] != allowed:
            only, undo = in_yaml(allowed), "remove data_parallel"
            raise ConfigError.of_conflict(key, given[key], _RANKS, only, why, undo)
    if settings.model.use_lstm:
        place, undo = "model.use_lstm", "remove data_parallel"
        why = "each worker then learns from single rows, not from sequences"
        raise ConfigError.of_conflict(place, True, _RANKS, "false", why, undo)
    calls = make_calls(settings.callbacks)
    if calls and calls.has_functions("on_postprocess_traj"):
        raise ConfigError(
            "callbacks.on_postprocess_traj",
            settings.callbacks.callbacks,
            hint="remove it, or remove data_parallel",
            problem="cannot be used with data_parallel, because rows stay in the child that "
            "learns from them, where no trainer can show them",
        )


def check_by_trying(
    settings: TrainerConfig, networks: Callable[[TrainerConfig, EnvSpaces], object]
) -> None:
    """Raise ConfigError for settings that cannot work with this environment and machine.

    GPUs, networks, evaluation, vector settings, callbacks of native environments and pictures are
    tried. Environments are made and closed, most only once in a process for equal settings.
    `networks` returns the architecture, or raises ConfigError.
    """
    check_gpus(settings.resources)
    inspection = measuring.inspect(settings.environment)
    networks(settings, inspection.spaces)
    if settings.evaluation.evaluation_config:
        plan = evaluation_plan(settings)
        environments = (plan.environment, settings.environment)
        check_evaluation(environments, plan.envs, settings.evaluation, inspection.spaces)
    check_vector_env(settings.environment, settings.envs, inspection.limit)
    if settings.environment.is_native:
        unasked = measuring.measure_once(
            settings.environment, f"native {settings.envs!r}", lambda: _restarts_unasked(settings)
        )
        if unasked and (calls := make_calls(settings.callbacks)):
            calls.require_no_whole_episodes(is_vector_only(settings.environment))
    environs = EnvironmentVariables(settings.resources.environs)
    try:
        check_pictures_of(settings)
    finally:
        environs.undo()


def _restarts_unasked(settings: TrainerConfig) -> bool:
    """Return whether the native vector environment resets itself after episodes.

    One is made and closed to ask it.
    """
    with closing(make_vector_env(settings.environment, 1, settings.envs)) as envs:
        return envs.restarts_unasked


def why_separate(settings: TrainerConfig) -> str:
    """Return the reason why environments are better stepped one by one, not as a vector class.

    It is empty if there is none, as for an environment that exists only as a vector class. It
    decides ``native_vector_env: auto``. Creates the user's callbacks to see which they are.
    """
    count = settings.sampling.num_envs_per_worker
    if is_vector_only(settings.environment):
        return ""
    if why := vector_config.why_separate(settings.environment, settings.envs, count):
        return why
    if settings.rendering.records_rollout or settings.rendering.render_env:
        return "pictures are taken of a single environment"
    calls = make_calls(settings.callbacks)
    return "callbacks see each environment" if episode_callbacks(calls) else ""


def check_pictures_of(settings: TrainerConfig) -> float:
    """Return the frames per second of videos of sampling; 0 if no pictures are taken there.

    Makes an environment to draw it, if pictures are requested. Raises ConfigError if it cannot be
    rendered, PyAV is missing for a video, or ``record_env: evaluation`` meets no evaluations.
    """
    value = settings.rendering.record_env
    fps = check_rendering(settings.environment, settings.rendering)
    if settings.rendering.records_evaluation:
        if value == "evaluation" and settings.evaluation.evaluation_interval is None:
            problem = "evaluation has no effect, because there are no evaluations"
            hint = "set evaluation_interval too, or set record_env to rollout"
            raise ConfigError("record_env", value, hint=hint, problem=problem)
        check_pictures(evaluation_plan(settings).environment, "record_env", value)
    return fps


def resource_request(settings: TrainerConfig) -> dict[str, float]:
    """Return resource → number that a trainer with these settings needs.

    ``cpu``, ``gpu`` and ``memory`` (bytes) are those of its own process, ``extra_*`` those of all
    its children, with the children of evaluations if there are evaluations.
    """
    asked = settings.resources.request(settings.workers.num_workers)
    if settings.evaluation.evaluation_interval is not None:
        evaluating, _ = evaluation_settings(settings, settings.evaluation)
        more = evaluating.resources.request(settings.evaluation.evaluation_num_workers)
        for name in (one for one in asked if one.startswith("extra_")):
            asked[name] += more[name]
    return asked


# -------------------------------------------------------------------------------------------------
# The device on which a policy learns, and the threads of the trainer's own process.


def learning_device(resources: ResourcesConfig) -> str:
    """Return ``cpu``, or torch's name of the GPU, ``cuda``, if `num_gpus` is above 0.

    Raises ConfigError if GPUs are requested, also for children, and torch sees none.
    """
    check_gpus(resources)
    return devices.accelerator() if resources.num_gpus else "cpu"


def check_gpus(resources: ResourcesConfig) -> None:
    """Raise ConfigError if GPUs are requested and torch, imported only then, sees none."""
    for key in ("num_gpus", "num_gpus_per_worker"):
        if not (asked := getattr(resources, key)):
            continue
        if not devices.accelerator():
            import torch

            problem = f"{asked} cannot be used, because torch sees no GPU on this machine"
            hint = (
                "set it to 0, or check the CUDA installation: nvidia-smi must list a GPU, and "
                f"torch must be built for CUDA (torch.version.cuda is {torch.version.cuda})"
            )
            raise ConfigError(key, asked, hint=hint, problem=problem)


def why_acts_on_cpu(settings: TrainerConfig) -> str:
    """Return the reason why no policy can act on the GPU with these settings; empty if one can.

    Reasons are ``num_gpus: 0``, child processes, ``sample_async`` and an LSTM.
    """
    reasons = {
        "num_gpus is 0": not settings.resources.num_gpus,
        "num_workers is not 0, and children act on the CPU": settings.workers.num_workers > 0,
        "sample_async is true, so it would act while it learns": settings.sampling.sample_async,
        "model.use_lstm is true": settings.model.use_lstm,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def why_replay_on_cpu(settings: TrainerConfig, config: ReplayConfig, spaces: EnvSpaces) -> str:
    """Return the reason why a replay buffer cannot be on the GPU; empty if it can.

    It cannot if ``num_gpus`` is 0, if rows are filtered when they are drawn, or if it needs more
    than half of the trial's share of the GPU's memory.
    """
    share, filters = settings.resources.num_gpus, settings.filters
    if not share:
        return "num_gpus is 0"
    if filters.observation_filter != "NoFilter" or filters.normalize_rewards:
        key = "normalize_rewards" if filters.normalize_rewards else "observation_filter"
        return f"{key} is set, and rows are filtered on the CPU when they are drawn"
    sides = math.prod(spaces.observation_shape) * spaces.observation_dtype.itemsize
    action = math.prod(spaces.layout.shape) * spaces.layout.dtype.itemsize
    needed = config.buffer_size * (2 * sides + action + _OTHER_BYTES)
    held = share * devices.accelerator_bytes() / 2
    if needed <= held:
        return ""
    return (
        f"buffer_size: {config.buffer_size} needs {needed / 1e9:.3g} GB, and half of the trial's "
        f"share of the GPU is {held / 1e9:.3g} GB"
    )


def check_replay_on(settings: TrainerConfig, config: ReplayConfig, spaces: EnvSpaces) -> None:
    """Raise ConfigError if ``replay_on`` is gpu and `why_replay_on_cpu` has a reason against it."""
    if config.replay_on == "gpu" and (why := why_replay_on_cpu(settings, config, spaces)):
        raise ConfigError.of_conflict("replay_on", "gpu", "", "auto or cpu", why)


def holds_replay_on_gpu(settings: TrainerConfig, config: ReplayConfig, spaces: EnvSpaces) -> bool:
    """Return whether the replay buffer is to be on the GPU.

    ``replay_on: auto`` puts it there if observations are images. It is never there if rows are
    filtered when they are drawn, it does not fit, or ``num_gpus`` is 0.
    """
    is_asked = config.replay_on == "gpu" or len(spaces.observation_shape) == 3
    if config.replay_on == "cpu" or not is_asked:
        return False
    return not why_replay_on_cpu(settings, config, spaces)


def why_no_graphs(settings: TrainerConfig) -> str:
    """Return the reason why no gradient step can be a CUDA graph; empty if one can.

    Only the optimiser and ``learner_compile`` are looked at, not the machine.
    """
    if settings.optimizer.name not in ("adam", "adamw"):
        return f"optimizer.name is {settings.optimizer.name}"
    compiles = getattr(settings, "learner_compile", False)
    return "learner_compile is true" if compiles else ""


def pays_to_act_on_gpu(architecture: Architecture) -> bool:
    """Return whether networks are so large that a GPU acts faster.

    That is so with convolutions, a user's own module for images, or a layer of `WIDE` units.
    """
    is_own = architecture.custom_model is not None and len(architecture.shape) == 3
    return bool(architecture.filters) or is_own or max(architecture.hidden, default=0) >= WIDE


def set_threads(resources: ResourcesConfig) -> None:
    """Set the numbers of torch's threads in this process, now or when torch is imported.

    Torch is imported if the settings have a number of inter-op threads, which can be set once in a
    process.

    Raises:
        ConfigError: torch already works in this process with another number of inter-op threads.
    """
    intra, inter = resources.threads
    when_torch_imported("threads", lambda torch: torch.set_num_threads(intra))
    if inter is None:
        return
    with large_import():
        import torch

    if inter == torch.get_num_interop_threads():
        return
    try:
        torch.set_num_interop_threads(inter)
    except RuntimeError as error:
        begun = torch.get_num_interop_threads()
        raise ConfigError(
            "tf_session_args.inter_op_parallelism_threads",
            inter,
            hint="use one number in all trainers of a process, or leave it out",
            problem=f"{inter} cannot be set any more: torch already works with {begun} threads in "
            "this process",
        ) from error


def lane_class(cls: type[T], config: Mapping[str, Any], path: str) -> type[T] | None:
    """Return the subclass of a trainer's class that trains several trials in one compiled program.

    Returns None if the settings do not request that with ``lanes``.

    Args:
        path: path of the subclass, ``module:Class``; it is loaded by its name, since its module
            imports `cls`.

    Raises:
        ConfigError: the class has no such subclass, or JAX is missing.
    """
    if not isinstance(config, Mapping) or config.get("lanes") is None:
        return None
    trainers = [one for one in cls.mro() if issubclass(one, Trainable)]
    base = next(one for one in reversed(trainers) if "of" in vars(one) and one.can_be_lane())
    problem = (
        f"{cls.__name__} is derived from {base.__name__}, and a compiled program for several "
        "trials (lanes) would lack its changes"
    )
    if not cls.can_be_lane():
        raise ConfigError("lanes", config["lanes"], hint=_NO_LANES, problem=problem)
    try:
        lane_class: type[T] = import_object(path)  # type: ignore[assignment]
    except NotImportable as error:
        problem = f"training in lanes needs JAX, which cannot be imported ({error})"
        hint = "install it: pip install 'sweep-rl[jax]'"
        raise ConfigError("lanes", config["lanes"], hint=hint, problem=problem) from error
    if not issubclass(lane_class, cls):
        hint = f"{_NO_LANES}, or define its class method `of` too"
        raise ConfigError("lanes", config["lanes"], hint=hint, problem=problem)
    return lane_class
