"""Short measurements of the rows of the table of speed with limits in this repository.

A row fails if the best of some rounds is less than `CLEARLY` times its goal. Both sides alternate
and are measured in CPU time of this process, so that a busy machine slows both.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits

from benchmarks import sampling
from benchmarks.speed.cases import CASES, Case
from benchmarks.speed.measures import clock
from benchmarks.speed.measures.ppo_ours import learner
from benchmarks.speed.measures.sampling import loop_of

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
    """Return the best ratio of up to `ROUNDS` rounds; stop when it is sufficient."""
    best = 0.0
    for _ in range(ROUNDS):
        rates = [clock.steps_per_cpu_second(one, SECONDS) for one in (ours, other)]
        best = max(best, case.ratio(*rates))
        if best >= CLEARLY * case.goal:
            break
    return best


def check(case: Case, ours: Callable[[], int], other: Callable[[], int]) -> None:
    best = best_share(case, ours, other)
    assert best >= CLEARLY * case.goal, (
        f"{case.name}: {best:.2f} at best; {case.goal:g} is the goal. See "
        f"python -m benchmarks.speed --only {case.name}"
    )


@pytest.mark.parametrize("case", SAMPLING, ids=[case.name for case in SAMPLING])
def test_sampling_has_not_become_slower_beside_its_limit(case: Case) -> None:
    _, env, envs, kind = case.ours.arguments
    check(case, *(loop_of(side, env, int(envs), kind) for side in ("ours", "limit")))


def test_the_learner_that_is_chosen_has_not_become_slower_beside_the_one_in_torch() -> None:
    check(ROWS["ppo-torch"], learner(), learner(learner="torch"))


def test_a_clear_regression_is_seen() -> None:
    case = ROWS["sampling-CartPole-v1-64-NoFilter"]
    slow = sampling.worker_loop(64, "NoFilter", {"native_vector_env": False})
    limit = loop_of("limit", "CartPole-v1", 64, "NoFilter")
    with pytest.raises(AssertionError, match="is the goal"):
        check(case, slow, limit)
