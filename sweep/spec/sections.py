"""The sections of a spec: small settings that stand under one key each. Times are seconds."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

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


class CheckpointPolicy(BaseModel):
    """Which checkpoints are written, and which are kept."""

    model_config = SETTINGS

    every: int = Field(1, ge=1, description="Iterations between two checkpoints of a slice.")
    keep_last: int = Field(2, ge=1, description="How many of a trial's newest checkpoints stay.")
    keep_best: int = Field(1, ge=0, description="How many of a trial's best checkpoints stay.")


class Resources(BaseModel):
    """What one trial is given."""

    model_config = SETTINGS

    cpu: int = Field(1, ge=1, le=1024, description="Processor cores of a trial.")


class Limits(BaseModel):
    """How long and how often."""

    model_config = SETTINGS

    slice_s: float = Field(
        30.0, gt=0, description="Seconds after which a slice ends at its next checkpoint."
    )
    max_failures: int = Field(
        3, ge=0, description="How often a trial whose worker died is tried again."
    )


class Deterministic(BaseModel):
    """Decisions in an order that depends on nothing but the spec."""

    model_config = SETTINGS

    batch: int = Field(
        ge=1, le=10_000, description="Slices that must be done before the next are decided."
    )
