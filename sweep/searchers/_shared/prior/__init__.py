"""Start a search with settings that did well on other games or in earlier sweeps.

games    results on other games, as a file of the package
model    expected performance of settings, from games
sources  the package's games, and earlier sweeps
mixture  a searcher that uses the prior as long as its proposals do well

Mallik et al., PriorBand, 2023, section 4, mix a prior with random sampling in a similar way: the
share of each follows from how its proposals have done so far.
"""

from typing import Literal

from pydantic import Field

from sweep.searchers import SearcherOptions


class PriorOptions(SearcherOptions):
    """Options of searchers that can start with settings from earlier results."""

    prior: Literal["auto", "none", "root"] | list[str] = Field(
        "auto",
        description="Earlier results whose best settings are proposed first. auto: those of other "
        "games, if the package has several of them for the trainable (ppo), the metric is a return "
        "and mode is max; none: no earlier results; a list such as [ppo/Pendulum-v1, my-sweep]: "
        "these games, whatever the trainable and the metric are, and these earlier sweeps, by name "
        "or folder; root: every sweep in the same root with the same trainable, metric and mode.",
    )
