"""What every searcher promises; a new file among them is tested unasked."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep import plugins, searchers
from sweep.events import Status
from sweep.history import Trial
from sweep.searchers import Request, Searcher
from sweep.space import Settings, Space
from tests.support.trials import objective, trial
from trainables import rng

NAMES = plugins.names(searchers.PACKAGE)
SPACE = Space.parse(
    {
        "lr": {"loguniform": [1e-5, 1e-1]},
        "gamma": {"choice": [0.9, 0.99, 1, False, [64, 64], None]},
        "epochs": {"randint": [1, 20]},
        "width": {"uniform": [0.0, 1.0], "step": 0.25},
        "filter": {"choice": ["none", "mean"]},
        "clip": {"uniform": [1.0, 10.0], "when": {"filter": "mean"}},
        "total": {"value": "epochs * 2"},
    }
)


def test_the_searchers_that_people_look_for_are_found() -> None:
    assert {"random", "tpe"} <= set(NAMES)


@pytest.fixture(params=NAMES)
def searcher(request: pytest.FixtureRequest) -> Searcher:
    return build(request.param)


def build(name: str) -> Searcher:
    cls = searchers.find(name)
    return cls(cls.Options())


def ask(searcher: Searcher, trials: Sequence[Trial], seed: int = 3) -> Settings:
    number = len(trials)
    request = Request(SPACE, objective(), trials, (1, 3), rng.integer(seed, "search", number))
    return searcher.suggest(request)


def judge(number: int, proposed: Settings) -> Trial:
    """A trial whose value follows from its settings; every third was paused at the first rung."""
    value = -abs(proposed.settings["epochs"] - 7) - proposed.settings["lr"]
    status = [Status.COMPLETED, Status.PAUSED, Status.PRUNED, Status.FAILED][number % 4]
    return trial(number, status, [value] * (3 if number % 3 else 1), proposed.searched)


def search(searcher: Searcher, trials: Sequence[Trial], count: int) -> list[Trial]:
    found = list(trials)
    for number in range(len(found), len(found) + count):
        found.append(judge(number, ask(searcher, found)))
    return found


def searched(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    return [made.searched for made in trials]


def test_each_proposal_lies_in_the_space(searcher: Searcher) -> None:
    for made in search(searcher, [], 20):
        for name, value in made.searched.items():
            assert SPACE.domains[name].contains(value), name
        assert ("clip" in made.searched) == (made.searched["filter"] == "mean")


def test_proposals_differ(searcher: Searcher) -> None:
    proposals = searched(search(searcher, [], 20))
    assert len({str(proposal) for proposal in proposals}) == 20


@pytest.mark.parametrize("name", NAMES)
def test_fifteen_and_fifteen_across_a_restart_equal_thirty(name: str) -> None:
    straight = searched(search(build(name), [], 30))
    head = search(build(name), [], 15)
    again = [judge(made.number, ask(build(name), head[: made.number])) for made in head]
    assert searched(search(build(name), again, 15)) == straight


def test_the_seed_of_the_sweep_decides(searcher: Searcher) -> None:
    assert ask(searcher, [], seed=1) != ask(searcher, [], seed=2)


def test_trials_that_still_run_are_no_obstacle(searcher: Searcher) -> None:
    running = [trial(n, Status.RUNNING, [], ask(searcher, []).searched) for n in range(12)]
    assert ask(searcher, running).searched


def test_trials_without_any_score_are_no_obstacle(searcher: Searcher) -> None:
    blank = ask(searcher, []).searched
    trials = [trial(n, status, [None], blank) for n, status in enumerate(list(Status) * 3)]
    assert ask(searcher, trials).searched


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(list(Status)), max_size=14), st.integers(0, 2**62))
def test_a_proposal_is_a_function_of_the_request(statuses: list[Status], seed: int) -> None:
    for name in NAMES:
        first = build(name)
        trials: list[Trial] = []
        for number, status in enumerate(statuses):
            proposed = ask(first, trials, seed)
            trials.append(trial(number, status, [float(number)], proposed.searched))
        assert ask(first, trials, seed) == ask(build(name), trials, seed)
