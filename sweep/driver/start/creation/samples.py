"""Sampled points of a spec's space: the trainable checks them, and they decide widths of stacks."""

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from sweep.core.errors import BadConfig, Gathering, Source
from sweep.spec import SweepSpec
from sweep.spec.space import Settings, Space, initial
from trainables.core import rng
from trainables.errors import ConfigError
from trainables.trainable import Trainable

#: Number of points to check.
SAMPLES = 10
#: Number of points by which the share of a shape is estimated.
DRAWN = 256


def draw_samples(space: Space, seed: int, count: int = SAMPLES) -> list[Settings]:
    """Draw `count` random points of the space; crossed grids take their values in turn.

    The points follow from `seed` alone.
    """
    return [
        initial.space_of(space, (), number).draw(rng.integer(seed, "samples", number))
        for number in range(count)
    ]


def complete_config(
    trainable: type[Trainable], spec: SweepSpec, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the trainable's settings, completed as the spec's stop criteria and metrics need.

    `config` are those at a point of the space, nested as in a spec; it is not changed.
    """
    names = {spec.metric, *spec.objectives, *spec.constraints, *spec.stop}
    return trainable.complete_config(trainable.show_metrics(config, names), spec.stop)


def check_samples(spec: SweepSpec, check_config: Callable[[Mapping[str, Any]], None]) -> None:
    """Check the configs of `SAMPLES` points of the space with the function `check_config`.

    The function raises ConfigError for a config that it rejects. Raises BadConfig for the first
    rejected config; the message contains the line of each wrong setting in the spec.
    """
    for point in draw_samples(spec.space, spec.seed):
        try:
            check_config(spec.space.nest(point.settings, spec.config))
        except ConfigError as error:
            found = Gathering(spec.source)
            for one in error.mistakes:
                found.add(refusal(one, spec.source, spec.space))
            found.check()


def refusal(error: ConfigError, source: Source, space: Space) -> BadConfig:
    """Return a trainable's error about a setting as one that names the setting's line in the spec.

    The line is in ``space`` for a searched key, else in ``config``.
    """
    names = error.place.split(".")
    mistake = (error.value, error.allowed, error.hint, error.problem)
    for end in range(len(names), 0, -1):
        name = ".".join(names[:end])
        if name in space.parameters:
            path = ("space", *space.parameters[name].path)
            return source.refuse(path, *mistake)
    return source.refuse(("config", *names), *mistake)


class StackWidths:
    """The widths of a sweep's stacks: how many trials each compiled program trains side by side.

    A trial is one of `lanes` lanes, and trials whose settings have the same shape share a stack. On
    some devices the last bits of a lane's numbers depend on the width of its stack. So a trial's
    width is one of its settings, and follows from the spec and the number of lanes alone: never
    from the trials that run at a time, which a kill may change.
    """

    def __init__(self, spec: SweepSpec, trainable: type[Trainable], lanes: int) -> None:
        self._spec, self._trainable, self._lanes = spec, trainable, lanes

    def width(self, config: Mapping[str, Any]) -> int:
        """Return the number of lanes in a trial's stack.

        It is the least power of two not below the number of lanes times the share of random points
        of the space with the trial's shape, and at most the number of lanes. `config` are all
        settings of the trial but this.
        """
        expected = self._lanes * self._drawn[self._shape(config)] / DRAWN
        width = 1
        while width < expected:
            width *= 2
        return min(width, self._lanes)

    @functools.cached_property
    def _drawn(self) -> Counter[Hashable]:
        """Shape → number of the `DRAWN` random points of the space that have it."""
        spec = self._spec
        points = draw_samples(spec.space, spec.seed, DRAWN)
        configs = (spec.space.nest(point.settings, spec.config) for point in points)
        return Counter(self._shape(complete_config(self._trainable, spec, one)) for one in configs)

    def _shape(self, config: Mapping[str, Any]) -> Hashable:
        """Return the shape of a lane with these settings, by which lanes may share a stack.

        Returns None if the trainable refuses the settings.
        """
        try:
            return self._trainable.lane_shape(self._trainable.as_lane(config, self._lanes))
        except ConfigError:
            return None
