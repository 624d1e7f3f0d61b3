"""Sampled points of a spec's space, which the trainable checks before anything runs."""

from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.errors import BadConfig, Gathering, Source
from sweep.spec import SweepSpec
from sweep.spec.space import Settings, Space, initial
from trainables.core import rng
from trainables.errors import ConfigError
from trainables.trainable import Trainable

#: Number of points to check.
SAMPLES = 10


def draw_samples(space: Space, seed: int, count: int = SAMPLES) -> list[Settings]:
    """Return independent random points of the space; crossed grids take their values in turn."""
    return [
        initial.space_of(space, (), number).draw(rng.integer(seed, "samples", number))
        for number in range(count)
    ]


def complete_config(
    trainable: type[Trainable], spec: SweepSpec, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings with the additions that the stopping criteria and used metrics require."""
    names = {spec.metric, *spec.objectives, *spec.constraints, *spec.stop}
    return trainable.complete_config(trainable.show_metrics(config, names), spec.stop)


def check_samples(spec: SweepSpec, check_config: Callable[[Mapping[str, Any]], None]) -> None:
    """Let `check_config` check sampled settings.

    Raises BadConfig if it refused one; the message names the setting's line in the spec.
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
    """Return the trainable's error as one that names the setting's line in the spec.

    The line is in ``space`` for a searched key, else in ``config``.
    """
    names = error.place.split(".")
    for end in range(len(names), 0, -1):
        name = ".".join(names[:end])
        if name in space.parameters:
            path = ("space", *space.parameters[name].path)
            return source.refuse(path, error.value, error.allowed, error.hint)
    return source.refuse(("config", *names), error.value, error.allowed, error.hint)
