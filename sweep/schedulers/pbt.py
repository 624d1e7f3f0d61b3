"""Population-based training.

Jaderberg et al., Population Based Training of Neural Networks, 2017. The population is ``trials``;
see `sweep.schedulers._shared.population`. A setting of an offspring is resampled with
`resample_probability`, otherwise multiplied by one of `perturbation_factors`, inside its domain; a
choice moves to a neighbour in the order of the spec.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers._shared.mutation import explore
from sweep.schedulers._shared.population import Population, PopulationOptions
from trainables.core import rng


class Options(PopulationOptions):
    """Options of population-based training: how offspring differ from their parents."""

    resample_probability: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Probability that a setting is drawn anew instead of perturbed.",
    )
    perturbation_factors: Annotated[tuple[float, ...], Field(strict=False, min_length=1)] = Field(
        (1.2, 0.8),
        description="Factors of a perturbation: a number is multiplied by one of them, chosen at "
        "random; the value of a choice is replaced with the one before or after it in the spec.",
    )


class Scheduler(Population):
    """Population-based training: offspring differ from their parents by random changes."""

    options: Options
    Options: ClassVar[type[BaseModel]] = Options

    def explore(
        self,
        history: History,
        parent: Trial,
        number: int,
        siblings: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return the parent's settings, with those in `mutated` perturbed or resampled.

        A choice moves to a neighbour. The random stream belongs to the offspring's `number`;
        history and siblings are not used.
        """
        return explore(
            self.context.space,
            parent.searched,
            self.mutated,
            rng.generator(self.context.seed, "explore", number),
            self.options.resample_probability,
            self.options.perturbation_factors,
        )
