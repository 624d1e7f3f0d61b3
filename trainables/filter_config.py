"""Which filters the settings ask for, and how they are made."""

from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic import Field, field_validator

from trainables.errors import ConfigError
from trainables.filters import (
    ConcurrentMeanStdFilter,
    Filter,
    MeanStdFilter,
    NoFilter,
    make_reward_stat,
)
from trainables.importing import load
from trainables.settings import Section

#: Makes a filter for rows of a shape; what it gives is a `Filter`.
Maker: TypeAlias = Callable[[tuple[int, ...]], Any]
KINDS = ("NoFilter", "MeanStdFilter", "ConcurrentMeanStdFilter")
#: Those that one thread may use while another reads and synchronises them.
CONCURRENT_KINDS = ("NoFilter", "ConcurrentMeanStdFilter")


class FilterConfig(Section):
    """Normalisation of what the policy sees and learns from."""

    observation_filter: str | Maker = Field(
        default="NoFilter",
        description="NoFilter; MeanStdFilter: minus the running mean, by the running deviation; "
        "ConcurrentMeanStdFilter: the same for threads; or package.module:Name, called with the "
        "shape.",
    )
    observation_filter_clip: float | None = Field(
        default=10.0,
        gt=0,
        description="Filtered observations are clipped to ± this many standard deviations; null: "
        "they are not.",
    )
    synchronize_filters: bool = Field(
        default=True,
        description="Workers filter with what all have seen; false: each with what it has seen.",
    )
    normalize_rewards: bool = Field(
        default=False,
        description="Divide rewards by the deviation of the discounted return; clip to ±10.",
    )

    @field_validator("observation_filter", mode="before")
    @classmethod
    def _known_or_made(cls, value: object) -> object:
        named = isinstance(value, str) and (value in KINDS or ":" in value)
        if named or callable(value):
            return value
        names = ", ".join(f"'{kind}'" for kind in KINDS)
        raise ValueError(f"{names}, package.module:Name or a callable")


def make_filter(config: FilterConfig, shape: tuple[int, ...]) -> Filter:
    """The observation filter that the settings name, for rows of this shape.

    Raises:
        ConfigError: what a callable gave is no `Filter`.
    """
    kind = config.observation_filter
    if kind == "NoFilter":
        return NoFilter()
    if kind == "MeanStdFilter":
        return MeanStdFilter(shape, config.observation_filter_clip)
    if kind == "ConcurrentMeanStdFilter":
        return ConcurrentMeanStdFilter(shape, config.observation_filter_clip)
    place = "observation_filter"
    make = load(place, kind, "a filter's class or callable") if isinstance(kind, str) else kind
    made = make(shape)
    if not isinstance(made, Filter):
        methods = ", ".join(sorted(n for n in vars(Filter) if n[0] != "_"))
        raise ConfigError(
            place, kind, "a callable that gives a filter", f"{made!r} needs {methods} and a call"
        )
    return made


def make_filters(
    config: FilterConfig, shape: tuple[int, ...], concurrent: bool = False
) -> dict[str, Filter]:
    """The filters of a worker: ``observation``, and ``reward`` where rewards are scaled.

    Args:
        config: the settings.
        shape: of an observation.
        concurrent: rewards are counted in one thread and synchronised by another.
    """
    filters: dict[str, Filter] = {"observation": make_filter(config, shape)}
    if config.normalize_rewards:
        filters["reward"] = make_reward_stat(concurrent)
    return filters
