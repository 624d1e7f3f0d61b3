"""A proposal costs as much after many trials as after few: caches take in what has changed.

Operations of Python in the package are counted; numpy goes through rows in no time. How many rows a
model has is bounded by the searchers' own options.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from sweep import searchers
from sweep.core import plugins
from sweep.history.events import Closed, Created, End, Goal, Opened, Row, Status
from sweep.searchers import Request, gp
from sweep.spec.space import Settings
from tests.support.operations import Operations
from tests.support.searches import ENDS, LEVELS, MIXED, Search

#: Proposals over which a cost is averaged: two generations of nsga2.
COUNTED = 40
#: Options of searchers that would otherwise not use their models in every proposal.
MODELS: Mapping[str, Mapping[str, Any]] = {
    "bohb": {"random_fraction": 0.0},
    "gp": {"window": None},  # the choice of its trials goes through all, a fit takes far longer
    "tpe": {"random_fraction": 0.0, "window": 60},
}
#: Those that go through all points want a finite space.
NAMES = sorted({*plugins.names(searchers.PACKAGE)} - {"grid", "brute_force"})


class NoModel:
    """In the place of the process with torch."""

    def ask(
        self, request: Request, _options: Mapping[str, Any], _known: Sequence[FrozenTrial]
    ) -> Settings | str:
        return request.space.draw(request.seed)


def filled(name: str, trials: int) -> Search:
    """A search whose trials were drawn at random and have ended in all ways."""
    made = Search(name, MIXED, options=MODELS.get(name))
    for number in range(trials):
        point, status = made.space.draw(number), ENDS[number % len(ENDS)]
        made.record(
            Created(number, point.searched, dict(point.settings), made.history.k),
            Opened(number, 0, 0, Goal(LEVELS[0], LEVELS[-1]), ""),
            _end(made, number, status, point.settings),
        )
    return made


def _end(made: Search, number: int, status: Status, settings: Mapping[str, Any]) -> Closed:
    score = made.quality(settings) or 0.0
    count = 1 if status is Status.PAUSED else 3
    rows = tuple(Row(i, {"training_iteration": i, "score": score}) for i in range(1, 1 + count))
    end = End.CRASHED if status is Status.FAILED else End.DONE
    return Closed(number, 0, 0, end, status, "", rows=rows)


def cost(made: Search) -> float:
    """Operations for each of the next proposals, after one that fills the caches."""
    spent, number = Operations(), len(made.proposals)
    made.run(number + 1)
    for _ in range(COUNTED):
        with spent.counted():
            made.propose()
        made.run(len(made.proposals) + 1)
    return spent.count / COUNTED


@pytest.mark.parametrize("name", NAMES)
def test_a_proposal_costs_as_much_after_many_trials_as_after_few(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gp, "_helper", NoModel)
    few, many = cost(filled(name, 100)), cost(filled(name, 1_500))
    assert 0 < many <= 1.3 * few
