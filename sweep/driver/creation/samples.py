"""Points of a spec's space, to see before anything runs whether the trainable takes them."""

from collections.abc import Callable, Mapping
from typing import Any

from sweep.errors import BadConfig, Gathering, Source
from sweep.space import Settings, Space, initial
from sweep.spec import SweepSpec
from trainables.core import rng
from trainables.errors import ConfigError
from trainables.trainable import Trainable

#: Points that are shown.
SAMPLES = 10


def draw_samples(space: Space, seed: int, count: int = SAMPLES) -> list[Settings]:
    """Return independent random points of the space; grids take their values in turn."""
    return [
        initial.space_of(space, (), number).draw(rng.integer(seed, "samples", number))
        for number in range(count)
    ]


def completed(
    trainable: type[Trainable], spec: SweepSpec, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings completed by the criteria to stop and the metrics that count."""
    names = {spec.metric, *spec.objectives, *spec.constraints, *spec.stop}
    return trainable.complete_config(trainable.show_metrics(config, names), spec.stop)


def check_samples(spec: SweepSpec, check_config: Callable[[Mapping[str, Any]], None]) -> None:
    """Show the trainable some points of the space.

    Raises:
        BadConfig: it refused one; says where in the spec that setting stands.
    """
    for point in draw_samples(spec.space, spec.seed):
        try:
            check_config(spec.space.nest(point.settings, spec.config))
        except ConfigError as error:
            found = Gathering(spec.source)
            for one in error.all:
                found.add(refusal(one, spec.source, spec.space))
            found.check()


def refusal(error: ConfigError, source: Source, space: Space) -> BadConfig:
    """Return the trainable's refusal at its line of the spec; in ``space`` for a searched key."""
    names = error.place.split(".")
    for end in range(len(names), 0, -1):
        name = ".".join(names[:end])
        if name in space.parameters:
            path = ("space", *space.parameters[name].path)
            return source.refuse(path, error.value, error.allowed, error.hint)
    return source.refuse(("config", *names), error.value, error.allowed, error.hint)
