"""A few points of a spec's space, to see before anything runs whether the trainable takes them."""

from collections.abc import Callable, Mapping
from typing import Any

from sweep.source import Source
from sweep.space import Settings, Space, initial
from sweep.spec import SweepSpec
from trainables import rng
from trainables.errors import ConfigError

#: How many points are looked at.
COUNT = 10


def draw(space: Space, seed: int, count: int = COUNT) -> list[Settings]:
    """Independent random points of the space; values of grids in turn, as trials take them."""
    return [
        initial.space_of(space, (), number).draw(rng.integer(seed, "samples", number))
        for number in range(count)
    ]


def check(spec: SweepSpec, check_config: Callable[[Mapping[str, Any]], None]) -> None:
    """Show the trainable some points of the space.

    Raises:
        BadConfig: it refused one; says where in the spec that setting stands.
    """
    for point in draw(spec.space, spec.seed):
        try:
            check_config(spec.space.nest(point.settings, spec.config))
        except ConfigError as error:
            raise _refusal(error, spec.source, spec.space) from None


def _refusal(error: ConfigError, source: Source, space: Space) -> Exception:
    """The trainable's refusal with its place in the spec: in ``space`` if the key is searched."""
    parts = error.place.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        if name in space.parameters:
            path = ("space", *space.parameters[name].path)
            return source.refuse(path, error.value, error.allowed, error.hint)
    return source.refuse(("config", *parts), error.value, error.allowed, error.hint)
