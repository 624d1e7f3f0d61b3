"""Our searches on a game: real scheduler, searcher and pick on the simulated pool.

The module imports our packages inside functions, because environments of peers may lack them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

from benchmarks.search.game import Game, Play, Settings
from benchmarks.search.peers import Pick

if TYPE_CHECKING:
    from sweep.history.events import Recorded
    from sweep.testing import CurvePoint

Keys = Mapping[str, Any]
"""Keys of a spec."""
OTHERS = "{others}"
"""Value of ``prior`` that is replaced by all games of the prior except the game that is played."""
SETTLED = ", settled"
"""Suffix of the name of a method that equals another one but ends itself (``budget.settled``)."""
ASHA: Keys = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
#: Optuna's model alone, without random proposals.
MODEL: Keys = {"name": "tpe", "prior": "none", "random_fraction": 0}
#: Searcher of a spec without one; its prior knows all other games.
DEFAULT: Keys = {"name": "tpe", "prior": OTHERS}
#: Method → keys of its spec. ``{game}`` in their values is replaced by the name of the game.
METHODS: Mapping[str, Keys] = {
    "asha, tpe": {"searcher": MODEL, "scheduler": ASHA, "seeds": 1},
    "asha, random": {"searcher": "random", "scheduler": ASHA, "seeds": 1},
    "asha, random, prior": {
        "searcher": {**DEFAULT, "name": "random"},
        "scheduler": ASHA,
        "seeds": 1,
    },
    "default, one seed": {"searcher": DEFAULT, "scheduler": ASHA, "seeds": 1},
    "default": {"searcher": DEFAULT, "scheduler": ASHA, "seeds": "auto"},
    "default without prior": {
        "searcher": {**DEFAULT, "prior": "none"},
        "scheduler": ASHA,
        "seeds": "auto",
    },
    f"default{SETTLED}": {
        "searcher": DEFAULT,
        "scheduler": ASHA,
        "seeds": "auto",
        "budget": {"settled": 0.02},
    },
    "hyperband, default": {
        "searcher": DEFAULT,
        "scheduler": {**ASHA, "name": "hyperband"},
        "seeds": 1,
    },
    "random": {"searcher": "random", "scheduler": "fifo", "seeds": 1},
}
#: Kind of a parameter in a table → kind of its domain in a spec.
KINDS = {"log": "loguniform", "int": "randint", "logint": "lograndint"}


def search(
    keys: Keys, play: Play, workers: int, trainings: int, marks: Sequence[float] = ()
) -> Iterator[Pick]:
    """Yield the picks at `marks`, and the last one.

    Args:
        trainings: budget, in full trainings.
        marks: ascending numbers of points after which the pick is yielded; empty to yield the
            pick after each end of a slice.

    Raises:
        UsageError: this version of the project refuses the keys.
    """
    from sweep.history.history import History
    from sweep.testing import simulate

    game = play.game
    per_point = game.steps / game.points
    rows: dict[int, int] = {}

    def row_of(trial: int, config: Settings) -> int:
        if trial not in rows:
            rows[trial] = game.nearest(_flat(game, config))
        return rows[trial]

    def curve(point: "CurvePoint") -> Mapping[str, Any]:
        row = row_of(point.trial, point.config)
        value = play.value(row, point.trial, point.seed_index, point.iteration)
        return {"score": value, "timesteps_this_iter": per_point}

    simulation = simulate(spec(keys, game, play.number, trainings), curve, workers)
    history = History(simulation.history.objective)
    for points, records in _parts(simulation.records, marks):
        history.extend(records)
        best = history.best
        if best is not None and best.score is not None:
            row, expected = row_of(best.number, best.config), history.expected(best)
            if expected is None or expected.error is None:
                yield Pick(points, row, best.score)
            else:
                yield Pick(points, row, expected.value, expected.error)


def _parts(
    records: Iterable["Recorded"], marks: Sequence[float]
) -> Iterator[tuple[int, list["Recorded"]]]:
    """Yield parts of the events from mark to mark, each with the points until its end.

    Without marks, a part ends with every slice.
    """
    from sweep.history.events import Closed

    points, part = 0, list["Recorded"]()
    for record in records:
        more = len(record.event.rows) if isinstance(record.event, Closed) else 0
        if any(points <= mark < points + more for mark in marks):
            yield points, part
            part = []
        part.append(record)
        points += more
        if not marks and isinstance(record.event, Closed):
            yield points, part
            part = []
    yield points, part


def spec(keys: Keys, game: Game, seed: int, trainings: int) -> dict[str, Any]:
    """Return the spec of one search with a budget of `trainings` full trainings."""
    from benchmarks.search import prior

    space: dict[str, Any] = {
        name: {KINDS.get(parameter.kind, parameter.kind): list(parameter.words)}
        for name, parameter in game.space.items()
    }
    if OTHERS in str(keys):  # the prior knows only our names
        for name, expression in prior.our_settings(game.space).items():
            space.setdefault(name, {"value": expression})
    return {
        "metric": "score",
        "mode": "max",
        "trials": trainings * game.points,  # more than the budget allows
        "space": space,
        "stop": {"training_iteration": game.points},
        "seed": seed,
        **_for_game(keys, game),
        "budget": {"timesteps": trainings * game.steps, **keys.get("budget", {})},
    }


def refusal(keys: Keys, game: Game) -> str:
    """Return the reason why this version refuses the keys; empty if it accepts them."""
    try:
        from sweep.core.errors import UsageError
    except ImportError as error:
        return f"the project cannot be imported here ({error})"
    try:
        next(search(keys, Play(game, 0), 1, 1), None)
    except UsageError as error:
        return str(error)
    return ""


def _for_game(value: Any, game: Game) -> Any:
    if isinstance(value, Mapping):
        return {key: _for_game(part, game) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_for_game(part, game) for part in value]
    if value == OTHERS:
        from benchmarks.search import prior

        return prior.other_games(game.name, game.algorithm)
    return value.replace("{game}", game.name) if isinstance(value, str) else value


def _flat(game: Game, config: Settings) -> Settings:
    """Return the game's settings from those of a trial, in which dotted names are nested."""
    return {name: reduce(getitem, name.split("."), config) for name in game.space}
