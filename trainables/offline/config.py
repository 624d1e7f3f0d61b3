"""What of a trainer's experience is written and read, and which settings that fits."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trainables.core.settings import Section
from trainables.errors import ConfigError

#: Where experience comes from that is not read.
SAMPLER = "sampler"
#: The trial's own folder, as a place to write into.
LOGDIR = "logdir"
#: Estimators, by the names that `input_evaluation` has for them.
ESTIMATORS = ("is", "wis", "simulation", "pdis")
PATH_OF_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _estimators(names: Any) -> Any:
    listed = isinstance(names, list | tuple)
    if not (listed and all(name in ESTIMATORS for name in names)):
        raise ValueError(f"a list of strings, each one of {', '.join(ESTIMATORS)}")
    return list(names)


class OfflineConfig(Section):
    """Learning from files and writing them."""

    input: str = Field(
        default=SAMPLER, description="Where experience comes from: sampler, the environment."
    )
    input_evaluation: Annotated[list[str], BeforeValidator(_estimators)] = Field(
        default_factory=lambda: ["is", "wis"],
        description="Estimators for experience of other policies; the sampler's needs none.",
    )
    postprocess_inputs: bool = Field(
        default=False, description="Whether experience that is read is postprocessed."
    )
    shuffle_buffer_size: int = Field(
        default=0, ge=0, description="Batches that are shuffled while they are read."
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


def check_offline(config: OfflineConfig, flat: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings with which experience cannot be written or read."""
    neutral: dict[str, Any] = {
        "input": SAMPLER,
        "postprocess_inputs": False,
        "shuffle_buffer_size": 0,
    }
    for key, value in neutral.items():
        if flat[key] != value:
            raise ConfigError(key, flat[key], repr(value), "reading experience is not built yet")
    if config.output is None:
        return
    if not config.output:
        allowed = "null, logdir, a folder or package.module:Name"
        raise ConfigError("output", config.output, allowed)
    why = "what is written is what the learner sees"
    only: dict[str, tuple[Any, str]] = {
        "observation_filter": ("NoFilter", f"{why}, and no reader would know these statistics"),
        "normalize_rewards": (False, f"{why}, and no reader would know these statistics"),
        "data_parallel": (False, "experience stays in the child that learns from it"),
        "fake_sampler": (False, "one batch would be written for ever"),
    }
    for key, (allowed, hint) in only.items():
        if flat[key] != allowed:
            raise ConfigError(key, flat[key], f"{allowed} with output", hint)
