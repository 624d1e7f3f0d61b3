"""Values that change with the number of environment steps sampled so far.

The length of a schedule is a setting of its own, so that a later change of the stop criterion does
not change the values so far.
"""

import itertools
import sys
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field

from trainables.core.settings import Section

#: (Environment steps, value) of each point.
Points: TypeAlias = tuple[tuple[int, float], ...]


#: Description of allowed schedules, for error messages.
SHAPES = "'constant' or 'linear', or points [[environment steps, value], …] with rising steps"


def _is_size(value: object) -> bool:
    """Return whether a value is a finite number of at least 0."""
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max  # type: ignore[operator]


def _parse_schedule(schedule: object) -> object:
    """Return the setting of a schedule, its points as tuples; ValueError if it is no schedule."""
    if schedule in ("constant", "linear"):
        return schedule
    if not isinstance(schedule, list | tuple) or not schedule:
        raise ValueError(SHAPES)
    points = [tuple(one) if isinstance(one, list | tuple) else () for one in schedule]
    numbers = all(
        len(one) == 2 and type(one[0]) is int and _is_size(one[1]) and one[0] >= 0 for one in points
    )
    if not numbers or any(b[0] <= a[0] for a, b in itertools.pairwise(points)):
        raise ValueError(SHAPES)
    return tuple((steps, float(value)) for steps, value in points)


#: Course of a value over the environment steps.
Schedule: TypeAlias = Annotated[
    Literal["constant", "linear"] | Points, BeforeValidator(_parse_schedule)
]


class ScheduleConfig(Section):
    """Settings of the learning rate, and of its change with environment steps."""

    lr: float = Field(default=2.5e-4, gt=0, description="Initial learning rate.")
    lr_schedule: Schedule = Field(
        default="constant",
        description="Course of lr: constant; linear, to 0 over schedule_timesteps; or points "
        "[[environment steps, rate], …], interpolated linearly, which replace lr.",
    )
    schedule_timesteps: int | None = Field(
        default=None,
        gt=0,
        description="Environment steps after which linear schedules reach 0; null: the sweep's "
        "stop.timesteps_total.",
    )


def schedule_value(first: float, schedule: Schedule, length: int | None, timesteps: int) -> float:
    """Return the value of a scheduled setting after `timesteps` environment steps.

    Args:
        first: initial value; not used if the schedule is a list of points.
        schedule: ``constant``, ``linear`` or points (steps, value). Between points it is linear;
            before the first one and after the last one it is constant.
        length: environment steps after which a linear schedule is 0; None keeps it constant.
        timesteps: environment steps sampled so far by all workers.
    """
    if not isinstance(schedule, str):
        steps, values = zip(*schedule, strict=True)
        return float(np.interp(timesteps, steps, values))
    if schedule == "constant" or length is None:
        return first
    return first * max(0.0, 1.0 - timesteps / length)


def learning_rate(config: ScheduleConfig, timesteps: int) -> float:
    """Return the scheduled learning rate after `timesteps` environment steps of all workers."""
    return schedule_value(config.lr, config.lr_schedule, config.schedule_timesteps, timesteps)
