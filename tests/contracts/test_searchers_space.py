"""Every searcher proposes points of any finite space: all kinds of domains, pinned, forbidden."""

import pytest

from sweep import plugins, searchers
from sweep.errors import BadSpace
from sweep.events import Status
from sweep.history import Trial
from sweep.searchers import Request
from sweep.space import Settings, Space
from tests.support.trials import objective, trial
from trainables import rng

NAMES = plugins.names(searchers.PACKAGE)
SPACE = Space.parse(
    {
        "float": {"uniform": [0.1, 0.4], "step": 0.1},
        "log": {"loguniform": [1, 21], "step": 10},
        "int": {"lograndint": [8, 24], "step": 8},
        "normal": {"normal": [0, 1], "bounds": [-1, 1], "step": 1},
        "weighted": {"choice": ["a", [1]], "weights": [1, 3]},
        "ordinal": {"ordinal": ["s", "m", "l"]},
        "turn": {"grid": [1, 2]},
    },
    forbid=[{"ordinal": "s", "int": 8}],
)


def ask(name: str, space: Space, count: int) -> list[Settings]:
    """Proposals; one that is forbidden is asked for again, as a driver does."""
    cls = searchers.find(name)
    searcher = cls(cls.Options())
    found: list[Settings] = []
    trials: list[Trial] = []
    for number in range(count):
        for attempt in range(50):
            seed = rng.integer(3, "search", number, attempt)
            try:
                point = searcher.suggest(Request(space, objective(), tuple(trials), (1.0,), seed))
            except BadSpace:
                continue
            found.append(point)
            break
        trials.append(trial(number, Status.COMPLETED, [float(number)], found[-1].searched))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_proposals_are_values_of_every_kind_of_domain(name: str) -> None:
    space = SPACE.pin({"turn": 2, "float": 0.3})
    found = ask(name, space, 15)
    assert len(found) == 15
    for point in found:
        assert list(point.searched) == list(SPACE.searched)
        assert all(SPACE.role(key).contains(value) for key, value in point.searched.items())
        assert (point.searched["turn"], point.searched["float"]) == (2, 0.3)
        assert (point.searched["ordinal"], point.searched["int"]) != ("s", 8)
    assert len({str(point.searched) for point in found}) > 5


@pytest.mark.parametrize("name", NAMES)
def test_where_everything_is_given_the_point_is_that(name: str) -> None:
    given = {"float": 0.1, "log": 1.0, "int": 16, "normal": 0.0, "weighted": "a"}
    given |= {"ordinal": "m", "turn": 1}
    (point,) = ask(name, SPACE.pin(given), 1)
    assert point.searched == given
