"""The rows of the table of speed beside limits in this repository, briefly: none has regressed.

A row fails where the best of some rounds is below `CLEARLY` of the share that is to be reached.
Both sides run in turn and on the clock of this process, so a busy machine slows both.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits

from benchmarks import sampling
from benchmarks.speed.cases import CASES, Case
from benchmarks.speed.measures import clock
from benchmarks.speed.measures.ppo_ours import learner
from benchmarks.speed.measures.sampling import collector

pytestmark = pytest.mark.slow
CLEARLY, ROUNDS, SECONDS = 0.6, 6, 0.15
ROWS = {case.name: case for case in CASES}
SAMPLING = [case for name, case in ROWS.items() if name.startswith("sampling-")]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


def best_share(case: Case, ours: Callable[[], int], other: Callable[[], int]) -> float:
    """The best of some rounds; of no more than it needs."""
    best = 0.0
    for _ in range(ROUNDS):
        rates = [clock.steps_per_cpu_second(one, SECONDS) for one in (ours, other)]
        best = max(best, case.ratio(*rates))
        if best >= CLEARLY * case.at_least:
            break
    return best


def check(case: Case, ours: Callable[[], int], other: Callable[[], int]) -> None:
    best = best_share(case, ours, other)
    assert best >= CLEARLY * case.at_least, (
        f"{case.name}: {best:.2f} at best; {case.at_least:g} is to be reached. Look at "
        f"python -m benchmarks.speed --only {case.name}"
    )


@pytest.mark.parametrize("case", SAMPLING, ids=[case.name for case in SAMPLING])
def test_sampling_has_not_become_slower_beside_its_limit(case: Case) -> None:
    _, env, envs, kind = case.ours.arguments
    check(case, *(collector(whose, env, int(envs), kind) for whose in ("ours", "limit")))


def test_the_learner_that_is_chosen_has_not_become_slower_beside_the_one_in_torch() -> None:
    check(ROWS["ppo-torch"], learner(), learner(learner="torch"))


def test_a_clear_regression_is_seen() -> None:
    case = ROWS["sampling-CartPole-v1-64-NoFilter"]
    slow = sampling.worker_loop(64, "NoFilter", {"native_vector_env": False})
    limit = collector("limit", "CartPole-v1", 64, "NoFilter")
    with pytest.raises(AssertionError, match="is to be reached"):
        check(case, slow, limit)
