"""What of a trainer's experience is written and read, and which settings that fits."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from trainables.core.importing import load
from trainables.core.settings import Section
from trainables.errors import ConfigError

#: Where experience comes from that is not read.
SAMPLER = "sampler"
#: The trial's own folder, as a place to write into.
LOGDIR = "logdir"
#: The name of a source that is a list of files.
FILES = "files"
#: By how much probabilities may miss 1.
SMALL = 1e-6
#: Estimators, by the names that `input_evaluation` has for them.
ESTIMATORS = ("is", "wis", "simulation", "pdis", "dr")
#: Those that are asked for by default.
ESTIMATED = ["is", "wis"]
PATH_OF_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
T = TypeVar("T")


def _estimators(names: Any) -> Any:
    listed = isinstance(names, list | tuple)
    if not (listed and all(name in ESTIMATORS for name in names)):
        raise ValueError(f"a list of strings, each one of {', '.join(ESTIMATORS)}")
    return list(names)


def _sources(given: Any) -> Any:
    if isinstance(given, Mapping):
        shares = list(given.values())
        if not shares or not all(type(one) in (int, float) and one > 0 for one in shares):
            raise ValueError("a probability above 0 for each source")
        if abs(sum(shares) - 1.0) > SMALL:
            raise ValueError(f"probabilities that add up to 1; these are {sum(shares):g} in all")
        return {str(source): float(share) for source, share in given.items()}
    return given


class OfflineConfig(Section):
    """Learning from files and writing them."""

    input: Annotated[
        Annotated[str, Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1)]
        | dict[str, float],
        BeforeValidator(_sources),
    ] = Field(
        default=SAMPLER,
        description="Where experience comes from: sampler, which is the environment; files of JSON "
        "or Parquet: a folder, a glob, or a list of them; minari:NAME or the folder of a data set; "
        "package.module:Name, a trainables.offline.reader.InputReader; or {source: probability} of "
        "several.",
    )
    input_evaluation: Annotated[list[str], BeforeValidator(_estimators)] = Field(
        default_factory=lambda: list(ESTIMATED),
        description="Estimates of the policy's discounted return, in each result under off_policy: "
        "is, wis, pdis and dr from the first whole episodes that are read, and simulation, which "
        "plays evaluation_num_episodes.",
    )
    input_evaluation_num_episodes: int = Field(
        default=200, gt=0, description="Episodes from which is estimated, at most."
    )
    postprocess_inputs: bool = Field(
        default=False,
        description="Whether what is read becomes transitions over n_step steps, too; false: it is "
        "learnt from as it stands, step by step.",
    )
    shuffle_buffer_size: int = Field(
        default=0,
        ge=0,
        description="Batches of a window from which the next one is drawn; 0: they come in order.",
    )
    output: str | None = Field(
        default=None,
        description="Where sampled experience is written: null: nowhere; logdir: into the trial's "
        "folder; a folder; or package.module:Name, a trainables.offline.writer.OutputWriter.",
    )
    output_compress_columns: list[str] = Field(
        default_factory=list,
        description="Columns that are written packed (LZ4): obs and new_obs of images, say.",
    )
    output_max_file_size: int = Field(
        default=64 * 2**20, gt=0, description="Bytes after which a new file is begun."
    )

    @property
    def sources(self) -> Mapping[str, float]:
        """Source → probability; a list of files is one source, named ``files``."""
        if isinstance(self.input, dict):
            return self.input
        return {self.input if isinstance(self.input, str) else FILES: 1.0}

    @property
    def reads(self) -> bool:
        """Whether anything is read."""
        return self.sources.keys() != {SAMPLER}

    @property
    def only_reads(self) -> bool:
        """Whether no environment is stepped for training."""
        return SAMPLER not in self.sources


@dataclass(frozen=True, kw_only=True)
class IOContext:
    """What a reader or writer of one's own is made with."""

    config: OfflineConfig
    log_dir: Callable[[], str]
    """The trial's folder."""
    seed: int
    """Of the trial's streams."""
    worker_index: int = 0
    """Always the trainer's own process."""


def make_own(key: str, path: str, kind: type[T], context: IOContext) -> T:
    """What ``package.module:Name`` makes with the context; ConfigError if it is no such thing."""
    made: object = load(key, path, kind.__name__)(context)
    if not isinstance(made, kind):
        allowed = f"a class derived from {kind.__module__}.{kind.__name__}"
        raise ConfigError(key, path, allowed, f"it made a {type(made).__name__}")
    return made


def check_offline(config: OfflineConfig, flat: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings with which experience cannot be written or read."""
    if config.output == "":
        allowed = "null, logdir, a folder or package.module:Name"
        raise ConfigError("output", config.output, allowed)
    if config.output and config.only_reads:
        hint = "nothing is sampled that could be written"
        raise ConfigError("output", config.output, "null with this input", hint)
    why = "what stands in files is what a learner sees"
    only: dict[str, tuple[Any, str]] = {
        "observation_filter": ("NoFilter", f"{why}, and knows no statistics of a filter"),
        "normalize_rewards": (False, f"{why}, and knows no statistics of rewards"),
        "connectors": ((), f"{why}, and what connectors carry is not in them"),
        "model.lstm_use_prev_action": (False, f"{why}, and no previous actions stand in it"),
        "model.lstm_use_prev_reward": (False, f"{why}, and no previous rewards stand in it"),
        "normalize_actions": (False, f"{why}, and actions in files are the environment's"),
        "action_mask": (None, f"{why}, and files hold no masks"),
        "data_parallel": (False, "files are read and written by the trainer's own process"),
        "fake_sampler": (False, "one batch would be given for ever"),
    }
    if config.reads:
        only["sample_async"] = (False, "files are read in turn with sampling")
    if config.only_reads:
        only["num_workers"] = (0, "nothing is sampled")
        only["render_env"] = (False, "nothing is sampled")
    word = "output" if config.output else "this input"
    flat = {**flat, **{f"model.{key}": value for key, value in flat["model"]}}
    for key, (allowed, hint) in only.items() if config.output or config.reads else ():
        if flat[key] != allowed:
            raise ConfigError(key, flat[key], f"{allowed} with {word}", hint)
