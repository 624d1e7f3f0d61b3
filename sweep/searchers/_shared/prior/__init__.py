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
        description="Earlier results on which proposals are based: at first for two of three "
        "trials, later for more or fewer, depending on the success of these proposals. auto: "
        "sweep's own results in a few environments, used for ppo and dqn with mode max and a "
        "return as metric. none: no earlier results. A list such as [ppo/Pendulum-v1, my-sweep]: "
        "sweep's own results in these environments, for any trainable and metric, or earlier "
        "sweeps, by name or folder. root: all sweeps in the same root folder with the same "
        "trainable, metric and mode.",
    )
