"""Population-based training.

Jaderberg et al., Population Based Training of Neural Networks, 2017. The population is ``trials``;
see `sweep.schedulers._shared.population`. A child's setting is drawn anew with
`resample_probability`, otherwise multiplied by one of `perturbation_factors`, inside its domain; a
choice moves to a neighbour in the order of the spec.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import SchedulerContext
from sweep.schedulers._shared.mutation import Exploration, stream_of
from sweep.schedulers._shared.population import Population, PopulationOptions


class Options(PopulationOptions):
    """How children differ from their parents."""

    resample_probability: float = Field(
        0.25, ge=0, le=1, description="How often a setting is drawn anew instead of perturbed."
    )
    perturbation_factors: Annotated[tuple[float, ...], Field(strict=False, min_length=1)] = Field(
        (1.2, 0.8), description="What a number is multiplied by, one of these at random."
    )


class Scheduler(Population):
    """Breeds with random changes."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        super().__init__(options, context)
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self._exploration = Exploration(
            options.resample_probability, options.perturbation_factors, self.mutated
        )

    def explore(
        self,
        history: History,
        parent: Trial,
        number: int,
        siblings: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """The parent's settings, each perturbed or drawn anew."""
        stream = stream_of(self.context, number)
        return self._exploration.explore(self.context.space, parent.searched, stream)
