"""The keys of a spec beside ``space`` that say what is searched: forbid, initial, warm_start."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer, ValidationInfo

from sweep.errors import Source
from sweep.space import Space
from trainables.core.settings import Settings


class WarmStart(Settings):
    """Another sweep whose trials searchers see too."""

    sweep: str = Field(min_length=1, description="Name of the other sweep, or its folder.")
    best: int | None = Field(
        None, ge=1, description="How many of its trials are taken, the best ones; none: all."
    )
    trials: Literal["completed", "all"] = Field(
        "completed", description="Whether trials that ended early are taken too (all)."
    )


def _read_list(of: str, example: str) -> BeforeValidator:
    def read(raw: Any) -> Any:
        if isinstance(raw, list | tuple):
            return tuple(raw)
        raise ValueError(f"a list of {of}, such as {example}")

    return BeforeValidator(read)


def _read_space(raw: Any, info: ValidationInfo) -> Space:
    if isinstance(raw, Space):
        return raw
    if isinstance(raw, Mapping):
        return Space.parse(raw, source_of(info.context), info.data.get("forbid", ()))
    raise ValueError("a mapping such as lr: {loguniform: [1e-5, 1e-2]}")


def source_of(context: Any) -> Source:
    """The source that a model is validated with."""
    source: Source = context["source"] if context else Source()
    return source


def check_number(initial: Sequence[Any], trials: int, source: Source) -> None:
    """Raise BadConfig if there are more first settings than trials, which they are counted in."""
    if len(initial) > trials:
        hint = f"raise trials to {len(initial)}, or leave some out"
        allowed = f"at most trials: {trials} settings"
        raise source.refuse(("initial",), f"a list of {len(initial)}", allowed, hint)


SpaceField = Annotated[
    InstanceOf[Space],
    BeforeValidator(_read_space),
    PlainSerializer(lambda space: dict(space.raw)),
]
ForbidField = Annotated[
    tuple[Any, ...],
    Field(strict=False),
    _read_list("combinations", '["lr > 0.01 and layers > 3"]'),
]
InitialField = Annotated[
    tuple[Any, ...],
    Field(strict=False),
    _read_list("settings", "[{lr: 1e-3}]"),
]
