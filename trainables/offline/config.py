"""Settings for reading and writing a trainer's experience, and checks of them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field

from trainables.core.importing import import_path_of, load_callable
from trainables.core.settings import Section, WrongKey
from trainables.errors import ConfigError, in_yaml, shorten, type_of

if TYPE_CHECKING:
    from trainables.offline.reader import InputReader

#: Name of the source that samples from the environment.
SAMPLER = "sampler"
#: Name of the trial's own folder as output.
LOGDIR = "logdir"
#: The name of a source that is a list of files.
FILES = "files"
#: Tolerance of the sum of probabilities.
SMALL = 1e-6
#: Prefix of the names of data sets.
MINARI = "minari:"
#: Estimators, by the names that `input_evaluation` has for them.
ESTIMATORS = ("is", "wis", "simulation", "pdis", "dr")
#: Default estimators.
ESTIMATED = ["is", "wis"]
#: Names of the columns that may be written.
COLUMNS = (
    *("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds", "infos", "t"),
    *("eps_id", "agent_index", "unroll_id", "prev_actions", "prev_rewards"),
    *("action_logp", "action_prob", "vf_preds"),
)
#: Pattern of the path of a class or function.
PATH_OF_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
T = TypeVar("T")
#: Class or function that makes a user-defined reader or writer from an `IOContext`.
Maker: TypeAlias = Callable[..., Any]


def source_name(source: str | Maker) -> str:
    """Return the name of a source of experience in checkpoints.

    It is the text itself, or the path ``module:Name`` of a class, function or object.
    """
    if isinstance(source, str):
        return source
    named = source if hasattr(source, "__qualname__") else type(source)
    return f"{named.__module__}:{named.__qualname__}"


def is_user_defined(source: str) -> bool:
    """Return whether a value of ``input`` or ``output`` has the form ``package.module:Name``.

    A data set ``minari:NAME`` has not.
    """
    return bool(PATH_OF_CLASS.fullmatch(source)) and not source.startswith(MINARI)


def _with_path(source: Any) -> Any:
    """Return a value of ``input`` or ``output``, an importable class or function as its path.

    Other values are returned unchanged.
    """
    return (import_path_of(source) or source) if callable(source) else source


def _validate_estimators(names: Any) -> Any:
    """Return the value of ``input_evaluation`` as a list.

    Raises ValueError if it is no list or names an unknown estimator.
    """
    listed = isinstance(names, list | tuple)
    if not (listed and all(name in ESTIMATORS for name in names)):
        raise ValueError(f"a list in which each entry is one of {', '.join(ESTIMATORS)}")
    return list(names)


def _validate_columns(names: Any) -> Any:
    """Return the value of ``output_compress_columns`` unchanged.

    Raises ValueError if it is no list or names a column that is never written.
    """
    listed = isinstance(names, list | tuple)
    if not (listed and all(name in COLUMNS for name in names)):
        raise ValueError(f"a list in which each entry is one of {', '.join(COLUMNS)}")
    return list(names)


def _validate_sources(value: Any) -> Any:
    """Return the value of ``input`` as names or paths, with probabilities if there are several.

    Raises:
        ValueError: probabilities that are not allowed (WrongKey if they do not add up to 1), or a
            class without a path.
    """
    if isinstance(value, Mapping):
        shares = list(value.values())
        if not shares or not all(type(one) in (int, float) and one > 0 for one in shares):
            raise ValueError("a probability above 0 for each source")
        if abs(sum(shares) - 1.0) > SMALL:
            problem = f"the probabilities add up to {sum(shares):g}"
            raise WrongKey((), value, "1 in all", problem=problem)
        named = {_with_path(source): float(share) for source, share in value.items()}
        if any(callable(source) for source in named):
            raise ValueError("paths, or classes or functions that can be imported from a module")
        return {str(source): share for source, share in named.items()}
    return _with_path(value)


class OfflineConfig(Section):
    """Settings for learning from files, and for writing experience to files."""

    input: Annotated[
        Annotated[str, Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1)]
        | dict[str, float]
        | Maker,
        BeforeValidator(_validate_sources),
    ] = Field(
        default=SAMPLER,
        description="Source of experience: sampler (the environment); JSON or Parquet files, as a "
        "folder, a glob or a list; a Minari data set, as minari:NAME or its folder; an "
        "InputReader (trainables.offline.reader) or a function that returns one, as "
        "package.module:Name, in Python also the class or function itself; or a mix, {source: "
        "probability}.",
    )
    input_config: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments for a reader of your own, which finds them as `input_config` in "
        "its context.",
    )
    input_evaluation: Annotated[list[str], BeforeValidator(_validate_estimators)] = Field(
        default_factory=lambda: list(ESTIMATED),
        description="With stored experience: estimates of the policy's discounted return, "
        "reported under off_policy. is, wis, pdis and dr are computed from the first whole "
        "episodes that are read; simulation plays evaluation_num_episodes episodes in the "
        "environment.",
    )
    input_evaluation_num_episodes: int = Field(
        default=200,
        gt=0,
        description="Maximum number of stored episodes from which "
        "input_evaluation estimates returns.",
    )
    postprocess_inputs: bool = Field(
        default=False,
        description="For dqn. true: convert stored rows to transitions over n_step steps; false: "
        "learn from single steps, as they are stored.",
    )
    shuffle_buffer_size: int = Field(
        default=0,
        ge=0,
        description="Number of batches that are held in memory, from which the next one is drawn "
        "at random; 0 or 1: batches are taken in order.",
    )
    output: Annotated[str | Maker | None, BeforeValidator(_with_path)] = Field(
        default=None,
        description="Destination of sampled experience. null: none; logdir: the trial's folder; a "
        "path: the folder of this path; or package.module:Name, an OutputWriter "
        "(trainables.offline.writer) or a function that returns one, in Python also the class or "
        "function itself.",
    )
    output_config: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments for a writer of your own, which finds them as `output_config` in "
        "its context.",
    )
    output_compress_columns: Annotated[list[str], BeforeValidator(_validate_columns)] = Field(
        default_factory=list,
        description="Columns that are written compressed (LZ4), such as obs and new_obs of images.",
    )
    output_max_file_size: int = Field(
        default=64 * 2**20, gt=0, description="Size in bytes after which a new file is begun."
    )

    @property
    def sources(self) -> Mapping[str, float]:
        """Source of experience → probability; a list of files is one source, named ``files``."""
        if isinstance(self.input, dict):
            return self.input
        return {FILES if isinstance(self.input, list) else source_name(self.input): 1.0}

    @property
    def has_own_reader(self) -> bool:
        """True if ``input`` is or names a user-defined reader, perhaps among other sources."""
        return callable(self.input) or any(map(is_user_defined, self.sources))

    @property
    def has_own_writer(self) -> bool:
        """True if ``output`` is or names a user-defined writer, which receives the samples."""
        return callable(self.output) or is_user_defined(self.output or "")

    @property
    def reads_experience(self) -> bool:
        """True if any experience is read, from files or by a user-defined reader."""
        return self.sources.keys() != {SAMPLER}

    @property
    def only_reads(self) -> bool:
        """True if all experience is read: no environment is stepped for training."""
        return SAMPLER not in self.sources


def _return_none() -> None:
    """Return None; the default of functions that return something, or None."""


@dataclass(frozen=True, kw_only=True)
class IOContext:
    """The argument of a user-defined reader or writer, with the names of RLlib's `IOContext`."""

    config: Mapping[str, Any]
    """All settings of the trainer with their defaults, by key or attribute."""
    offline: OfflineConfig
    """Settings of reading and writing experience."""
    folder: Callable[[], str]
    """Function that returns the path of the trial's folder, which need not exist yet."""
    seed: int
    """Seed of random streams: the trial's seed, or a seed derived from it for workers that are made
    anew after a restore."""
    worker_index: int = 0
    """Index of the worker: always 0, the trainer's own process."""
    find_worker: Callable[[], Any] = _return_none
    """Function that returns the `RolloutWorker` that now samples in this process, or None."""
    find_sampler: Callable[[], "InputReader | None"] = _return_none
    """Function that `default_sampler_input` calls; it returns a reader of new samples, or None."""

    @property
    def log_dir(self) -> str:
        """Path of the trial's folder, which need not exist yet."""
        return self.folder()

    @property
    def input_config(self) -> Mapping[str, Any]:
        """The setting ``input_config``: arguments of the reader."""
        return self.offline.input_config

    @property
    def output_config(self) -> Mapping[str, Any]:
        """The setting ``output_config``: arguments of the writer."""
        return self.offline.output_config

    @property
    def worker(self) -> Any:
        """The `RolloutWorker` that now samples in the trainer's own process, or None."""
        return self.find_worker()

    def default_sampler_input(self) -> "InputReader | None":
        """Return a reader whose batches are sampled in the environment by the present policy.

        A user-defined reader that calls this while it is made may mix samples with other
        experience. The first call makes workers that sample. Returns None for a writer, if
        ``sampler`` is itself a source in `input`, and if it is first called later.
        """
        return self.find_sampler()


def make_user_defined(key: str, source: str | Maker, kind: type[T], context: IOContext) -> T:
    """Call a user's class or function, or ``package.module:Name``, with the context.

    Returns the reader or writer that it makes. Raises ConfigError, about the setting `key`, if the
    path cannot be imported, or that is no object of class `kind`; and whatever the call raises.
    """
    maker = load_callable(key, source, kind.__name__) if isinstance(source, str) else source
    made: object = maker(context)
    if not isinstance(made, kind):
        allowed = f"a class derived from {kind.__module__}.{kind.__name__}"
        problem = f"{shorten(source)} returned {type_of(made)}"
        raise ConfigError(key, source, allowed, problem=problem)
    return made


def _conflict(config: OfflineConfig, key: str, value: Any, allowed: Any, why: str) -> ConfigError:
    """Return the error for a setting that does not work with ``output``, or else ``input``."""
    other = "output" if config.output else f"input: {in_yaml(config.input)}"
    undo = "remove output" if config.output else "set input to sampler"
    return ConfigError.of_conflict(key, value, other, in_yaml(allowed), why, undo)


def check_statistics(config: OfflineConfig, flat: Mapping[str, Any], keeps_rows: bool) -> None:
    """Raise ConfigError for filters of observations or rewards that do not work with files.

    Both are refused if filtered rows would be written, and normalised rewards if experience is
    read. `flat` are all settings by key; `keeps_rows` is True if the algorithm filters rows when it
    learns from them.
    """
    only: dict[str, tuple[Any, str]] = {}
    if config.output and not keeps_rows:
        why = "filtered rows would be written, and a reader does not know their filter's statistics"
        only = {"observation_filter": ("NoFilter", why), "normalize_rewards": (False, why)}
    elif config.reads_experience:
        why = "it needs the returns of whole episodes, which files may not contain in order"
        only = {"normalize_rewards": (False, why)}
    for key, (allowed, why) in only.items():
        if flat[key] != allowed:
            raise _conflict(config, key, flat[key], allowed, why)


#: Setting that must have its default value if files are read → the reason.
OF_WHAT_IS_READ: Mapping[str, str] = {
    "horizon": "episodes in files end where they do; evaluation_config.horizon ends those played",
    "soft_horizon": "episodes in files end where they do",
}
#: Reason of several settings in `OF_WHAT_IS_SAMPLED`.
NOTHING_IS_SAMPLED = "nothing is sampled"
#: Setting that must have its default value if only files are read → the reason.
OF_WHAT_IS_SAMPLED: Mapping[str, str] = {
    "num_workers": NOTHING_IS_SAMPLED,
    "render_env": NOTHING_IS_SAMPLED,
    "monitor": "nothing is sampled, so there are no episodes to record",
    "explore": "nothing is sampled; evaluation_config.explore is of evaluations",
    "batch_mode": "the files determine the batches",
    "metrics_smoothing_episodes": "nothing is sampled; an evaluation computes its own means",
    "sampler_perf_stats_ema_coef": "nothing is sampled, so there are no times to measure",
    "remote_env_batch_wait_ms": "nothing is sampled, and evaluations wait for every environment",
}


def _check_arguments(config: OfflineConfig) -> None:
    """Raise ConfigError for arguments of a user-defined reader or writer if there is none.

    These are ``input_config`` and ``output_config``.
    """
    given = {
        "input": (config.input_config, config.has_own_reader),
        "output": (config.output_config, config.has_own_writer),
    }
    for key, (arguments, is_read) in given.items():
        if arguments and not is_read:
            problem = f"has no effect, because {key} is not a class or function that could read it"
            hint = f"remove it, or set {key} to package.module:Name"
            raise ConfigError(f"{key}_config", arguments, hint=hint, problem=problem)


def check_offline(config: OfflineConfig, flat: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings with which experience cannot be written or read.

    Settings without effect are refused, too. `flat` are all settings by key, `usual` the
    algorithm's defaults.
    """
    if config.output == "":
        allowed = "null, logdir, a folder or package.module:Name"
        raise ConfigError("output", config.output, allowed, problem="is empty")
    if config.output and config.only_reads:
        why = "nothing is sampled, so that there is nothing to write"
        other = f"input: {in_yaml(config.input)}"
        raise ConfigError.of_conflict("output", config.output, other, "null", why)
    _check_arguments(config)
    only: dict[str, tuple[Any, str]] = {
        "connectors": ((), "files contain no states of connectors"),
        "model.lstm_use_prev_action": (False, "files contain no previous actions"),
        "model.lstm_use_prev_reward": (False, "files contain no previous rewards"),
        "action_mask": (None, "files contain no masks"),
        "data_parallel": (False, "files are read and written by the trainer's own process"),
        "fake_sampler": (False, "the same batch would be returned forever"),
    }
    if config.reads_experience:
        only["sample_async"] = (False, "sampling and reading files take turns")
        only |= {key: (usual[key], why) for key, why in OF_WHAT_IS_READ.items()}
    if config.only_reads:
        only |= {key: (usual[key], why) for key, why in OF_WHAT_IS_SAMPLED.items()}
        if flat["record_env"] in (True, "rollout"):
            only["record_env"] = ("evaluation", NOTHING_IS_SAMPLED)
    flat = {**flat, **{f"model.{key}": value for key, value in flat["model"]}}
    for key, (allowed, why) in only.items() if config.output or config.reads_experience else ():
        if flat[key] != allowed:
            raise _conflict(config, key, flat[key], allowed, why)
