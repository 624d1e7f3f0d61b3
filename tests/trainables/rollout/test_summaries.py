"""Summaries of episodes: the same numbers in whichever order the episodes ended."""

import itertools
import math

from trainables.rollout.episodes.metrics import (
    RolloutMetrics,
    summarise,
    summarise_custom,
    summarise_policies,
)


def test_a_value_that_is_nan_makes_the_mean_and_both_bounds_nan_in_every_order() -> None:
    for values in itertools.permutations((1.0, math.nan, 3.0)):
        episodes = [
            RolloutMetrics(
                value, 1, custom_metrics={"x": value}, agent_rewards={"a": ("main", value)}
            )
            for value in values
        ]
        policies = summarise_policies(episodes)
        found = [
            *(value for name, value in summarise(episodes).items() if "reward" in name),
            *summarise_custom(episodes).values(),
            *(of["main"] for of in policies.values()),
        ]
        assert len(found) == 9
        assert all(map(math.isnan, found))
