"""Every searcher proposes points of domains at the extremes of what a space may hold."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from sweep import searchers
from sweep.core import plugins
from sweep.history.events import Status
from sweep.history.optuna_terms import MOST_VALUES, decode, distribution, encode
from sweep.spec.space import Float, Int, Ordered, Space
from tests.support.searches import Search

#: Those that go through all points refuse such spaces.
NAMES = sorted(set(plugins.names(searchers.PACKAGE)) - {"brute_force", "grid"})
#: Options with which a few trials are past the random beginning.
SOON: dict[str, dict[str, Any]] = {
    "bohb": {"min_points": 4, "random_fraction": 0.1},
    "cmaes": {"population_size": 4},
    "gp": {"n_startup_trials": 3},
    "nsga2": {"population_size": 4},
    "nsga3": {"population_size": 4},
    "tpe": {"n_startup_trials": 4},
}
LARGEST = 2**53
FIXED: dict[str, dict[str, Any]] = {
    "thousandths_of_100000": {"uniform": [0, 100_000], "step": 0.001},
    "billionths": {"uniform": [0, 1], "step": 1e-9},
    "all_integers": {"randint": [-LARGEST, LARGEST]},
    "last_integers": {"randint": [LARGEST - 5, LARGEST]},
    "magnitudes_of_integers": {"lograndint": [1, LARGEST - 1]},
    "all_reals": {"uniform": [-8e307, 8e307]},
    "tiny_reals": {"uniform": [0, 1e-300]},
    "magnitudes": {"loguniform": [1e-300, 1e300]},
    "neighbours": {"uniform": [1.0, 1.0 + 2**-50]},
    "normal": {"normal": [1e300, 1e299]},
    "normal_steps": {"normal": [0, 1], "step": 1e-9},
}


def drawn(stream: np.random.Generator) -> dict[str, Any]:
    """Draw a parameter: a kind of range with bounds of any magnitude, with or without steps."""
    kind = stream.choice(["uniform", "loguniform", "randint", "lograndint", "stepped"])
    if kind == "stepped":
        step, count = 10.0 ** -int(stream.integers(0, 10)), int(10 ** stream.uniform(1, 9))
        return {"uniform": [0, float(f"{count * step:.10g}")], "step": step}
    if kind in ("randint", "lograndint"):
        least, most = sorted(int(2 ** stream.uniform(0, 53)) for _ in range(2))
        return {str(kind): [least, most + 1]}
    low, high = sorted(float(10 ** stream.uniform(-300, 300)) for _ in range(2))
    return {str(kind): [low, high]}


def spaces() -> list[dict[str, Any]]:
    """Return the fixed parameters as one space, then spaces drawn by chance."""
    streams = [np.random.default_rng(seed) for seed in range(3)]
    return [FIXED, *({f"x{n}": drawn(stream) for n in range(12)} for stream in streams)]


def ranges(raw: dict[str, Any]) -> dict[str, Ordered]:
    domains = Space.parse(raw).domains
    return {name: d for name, d in domains.items() if isinstance(d, Ordered)}


def nearness(domains: Mapping[str, Ordered], settings: Mapping[str, Any]) -> float:
    """Score settings by how near their quantiles are to 0.4."""
    return -math.fsum(abs(d.quantile(settings[key]) - 0.4) for key, d in domains.items())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "gp" else n for n in NAMES]
)
def test_each_proposal_is_a_point_of_the_domain(name: str) -> None:
    for raw in spaces()[: 2 if name == "gp" else None]:
        search = Search(name, raw, options=SOON.get(name), seed=2)
        search.ends = (Status.COMPLETED,)
        domains = ranges(raw)
        search.quality = partial(nearness, domains)
        for trial in search.run(6 if name == "gp" else 14).history.trials:
            outside = {k: v for k, v in trial.searched.items() if not domains[k].contains(v)}
            assert not outside


@pytest.mark.parametrize("view", ["modelled", "shown"])
def test_optuna_holds_each_value(view: Any) -> None:
    """What stands in a study is accepted there and is the same value when it is read."""
    stream = np.random.default_rng(3)
    for raw in spaces():
        for name, domain in ranges(raw).items():
            for quantile in (0.0, 1.0, *stream.random(5).tolist()):
                value = domain.value_at(quantile)
                coded = encode(domain, value, view)
                optuna.trial.create_trial(
                    value=0.0,
                    params={name: coded},
                    distributions={name: distribution(domain, view)},
                )
                again = decode(domain, coded, view)
                assert domain.contains(again)
                if isinstance(domain, Float | Int):
                    assert again == pytest.approx(value, rel=1e-9, abs=1e-9 * abs(domain.high))


def test_no_sampler_is_given_more_values_than_it_can_list() -> None:
    for raw in spaces():
        for domain in ranges(raw).values():
            known = distribution(domain)
            assert isinstance(known, FloatDistribution | IntDistribution)
            if known.step is not None:
                assert (known.high - known.low) / known.step < MOST_VALUES


def test_a_quantile_of_each_value_gives_it_back() -> None:
    for raw in (
        {"x": {"randint": [LARGEST - 5, LARGEST]}},
        {"x": {"uniform": [0, 1], "step": 0.1}},
    ):
        domain = ranges(raw)["x"]
        size = domain.size() or 0
        assert [domain.value_at(domain.quantile(domain.at_index(n))) for n in range(size)] == [
            domain.at_index(n) for n in range(size)
        ]
