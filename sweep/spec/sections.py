"""The sections of a spec: small settings that stand under one key each. Times are seconds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sweep.spec.sizes import Size

SETTINGS = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Plugin(BaseModel):
    """A searcher or scheduler: its name, and options that its own model checks (see `build`)."""

    model_config = SETTINGS

    name: str = Field(description="A file among the plugins, or package.module:Name.", min_length=1)
    options: dict[str, Any] = Field(
        default_factory=dict, description="The plugin's own settings, by name."
    )

    def written(self) -> dict[str, Any]:
        """The plugin as it stands in a spec."""
        return {"name": self.name, **self.options}


def read_plugin(raw: Any) -> Any:
    """The fields of `Plugin` for what stands in a spec."""
    if isinstance(raw, Plugin):
        return raw
    named = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        raise ValueError("a name, or {name: …, option: value}")  # noqa: TRY004 pydantic reads it
    return {"name": named["name"], "options": {k: v for k, v in named.items() if k != "name"}}


def _check_gpu(gpu: float) -> float:
    if gpu > 1 and gpu != int(gpu):
        raise ValueError("a share such as 0.5, or a whole number of GPUs")
    return gpu


class CheckpointPolicy(BaseModel):
    """Which checkpoints are written, and which are kept."""

    model_config = SETTINGS

    every: int = Field(1, ge=1, description="Iterations between two checkpoints of a slice.")
    keep_last: int = Field(2, ge=1, description="How many of a trial's newest checkpoints stay.")
    keep_best: int = Field(1, ge=0, description="How many of a trial's best checkpoints stay.")
    max_disk: Size = Field(
        None, description="Size of all checkpoints of the sweep together, such as 20GB."
    )


class Resources(BaseModel):
    """What one trial is given."""

    model_config = SETTINGS

    cpu: int = Field(1, ge=1, le=1024, description="Processor cores of a trial.")
    gpu: Annotated[float, AfterValidator(_check_gpu)] = Field(
        0.0, ge=0, le=64, description="GPUs of a trial; below 1 several trials share one."
    )
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="Name → how much of it a trial takes, such as licences."
    )


class Machine(BaseModel):
    """What there is to share out among trials."""

    model_config = SETTINGS

    cpu: int | None = Field(None, ge=1, description="Processor cores; none: as many as it has.")
    gpu: int | None = Field(None, ge=0, description="GPUs; none: those that CUDA may use.")
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="Name → how much of it there is."
    )


class Limits(BaseModel):
    """How long and how often."""

    model_config = SETTINGS

    slice_s: float = Field(
        30.0, gt=0, description="Seconds after which a slice ends at its next checkpoint."
    )
    max_failures: int = Field(
        3, ge=0, description="How often a trial whose worker died is tried again."
    )
    trial_s: float | None = Field(
        None, gt=0, description="Seconds of training after which a trial is STOPPED, for good."
    )
    trial_memory: Size = Field(
        None, description="Memory of a trial's process and its children, such as 4GB; retried."
    )
    no_progress_s: float | None = Field(
        None, gt=0, description="Seconds without a finished iteration after which one is retried."
    )
    not_finite: Literal["go_on", "prune", "fail"] = Field(
        "go_on", description="What becomes of a trial whose metric is NaN or infinite."
    )
    max_concurrent: int | None = Field(
        None, ge=1, description="Trials at once at most, whatever --jobs says."
    )


class Deterministic(BaseModel):
    """Decisions in an order that depends on nothing but the spec."""

    model_config = SETTINGS

    batch: int = Field(
        ge=1, le=10_000, description="Slices that must be done before the next are decided."
    )
