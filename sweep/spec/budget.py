"""What a sweep may cost: the key ``budget`` of a spec. Times are seconds."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from sweep.source import Source
from sweep.spec.sections import SETTINGS
from sweep.spec.validation import validate


class Budget(BaseModel):
    """What ends a sweep before all its trials have ended; whichever comes first."""

    model_config = SETTINGS

    time_s: float | None = Field(
        None, gt=0, description="Seconds that its drivers have run, restarts included."
    )
    cpu_hours: float | None = Field(
        None, gt=0, description="Hours of training of all trials together, times resources.cpu."
    )
    timesteps: float | None = Field(
        None, gt=0, description="Environment steps of all trials together."
    )
    target: float | None = Field(
        None, description="A trial's score that is good enough: so much, or so little with min."
    )
    patience: int | None = Field(
        None, ge=1, description="Trials that may end in a row without a better score than before."
    )
    min_delta: float = Field(
        0.0, ge=0, description="With patience: by how much a better score has to be better."
    )

    @property
    def is_set(self) -> bool:
        """Whether anything of it can be used up."""
        keys = ("time_s", "cpu_hours", "timesteps", "target", "patience")
        return any(getattr(self, key) is not None for key in keys)

    def changed(self, changes: Mapping[str, Any], source: Source | None = None) -> "Budget":
        """It with other values; BadConfig if they cannot work."""
        raw = {**self.model_dump(), **changes}
        return validate(Budget, raw, (source or Source()).below("budget"))


def check(budget: Budget, stop: Mapping[str, float], source: Source) -> None:
    """Raise BadConfig for a budget that contradicts itself or the stopping criteria."""
    if budget.min_delta and budget.patience is None:
        hint = "set budget.patience, or remove it"
        raise source.refuse(("budget", "min_delta"), budget.min_delta, "no value", hint)
    least = stop.get("timesteps_total")
    if least is not None and budget.timesteps is not None and budget.timesteps < least:
        problem = f"{budget.timesteps:g} steps for all trials are less than one trial takes"
        allowed = f"at least stop.timesteps_total: {least:g}"
        raise source.refuse(("budget", "timesteps"), budget.timesteps, allowed, problem=problem)
