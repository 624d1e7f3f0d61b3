"""Values that change with the environment steps sampled so far.

A schedule's length is a setting, so that a stop which is changed later changes no old curve.
"""

import itertools
import sys
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field

from trainables.core.settings import Section

Points: TypeAlias = tuple[tuple[int, float], ...]


SHAPES = "'constant' or 'linear', or points [[environment steps, value], …] of rising steps"


def _is_size(value: object) -> bool:
    """Return whether a value is a finite number of at least 0."""
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max  # type: ignore[operator]


def _read(given: object) -> object:
    if given in ("constant", "linear"):
        return given
    if not isinstance(given, list | tuple) or not given:
        raise ValueError(SHAPES)
    points = [tuple(one) if isinstance(one, list | tuple) else () for one in given]
    numbers = all(
        len(one) == 2 and type(one[0]) is int and _is_size(one[1]) and one[0] >= 0 for one in points
    )
    if not numbers or any(b[0] <= a[0] for a, b in itertools.pairwise(points)):
        raise ValueError(SHAPES)
    return tuple((steps, float(value)) for steps, value in points)


#: How a value goes on from where it begins.
Schedule: TypeAlias = Annotated[Literal["constant", "linear"] | Points, BeforeValidator(_read)]


class ScheduleConfig(Section):
    """Settings of the learning rate and its schedule."""

    lr: float = Field(default=2.5e-4, gt=0, description="Learning rate of the first update.")
    lr_schedule: Schedule = Field(
        default="constant",
        description="constant; linear: from lr to 0 over schedule_timesteps; or points "
        "[[environment steps, rate], …], linear between them, in place of lr.",
    )
    schedule_timesteps: int | None = Field(
        default=None,
        gt=0,
        description="Environment steps after which a linear schedule has reached 0.",
    )


def due(first: float, schedule: Schedule, length: int | None, timesteps: int) -> float:
    """The value `timesteps` environment steps after the beginning.

    Args:
        first: the value at the beginning, unless the schedule is a list of points.
        schedule: how it goes on; before the first point and after the last it is constant.
        length: environment steps after which a linear schedule has reached 0.
        timesteps: sampled so far, by all workers.
    """
    if not isinstance(schedule, str):
        steps, values = zip(*schedule, strict=True)
        return float(np.interp(timesteps, steps, values))
    if schedule == "constant" or length is None:
        return first
    return first * max(0.0, 1.0 - timesteps / length)


def learning_rate(config: ScheduleConfig, timesteps: int) -> float:
    """The rate of an update that is made `timesteps` environment steps after the beginning."""
    return due(config.lr, config.lr_schedule, config.schedule_timesteps, timesteps)
