"""Values that change with the environment steps sampled so far.

A schedule's length is a setting, so that a stop which is changed later changes no old curve.
"""

from typing import Literal

from pydantic import Field

from trainables.core.settings import Section


class ScheduleConfig(Section):
    """How the learning rate changes."""

    lr: float = Field(default=2.5e-4, gt=0, description="Learning rate of the first update.")
    lr_schedule: Literal["constant", "linear"] = Field(
        default="constant",
        description="constant, or linear: from lr to 0 over schedule_timesteps.",
    )
    schedule_timesteps: int | None = Field(
        default=None,
        gt=0,
        description="Environment steps after which a linear schedule has reached 0.",
    )


def learning_rate(config: ScheduleConfig, timesteps: int) -> float:
    """The rate of an update that is made `timesteps` environment steps after the beginning."""
    if config.lr_schedule == "constant" or config.schedule_timesteps is None:
        return config.lr
    return config.lr * max(0.0, 1.0 - timesteps / config.schedule_timesteps)
