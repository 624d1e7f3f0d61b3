"""Our searches on a game: scheduler, searcher and pick are the real ones, on the simulated pool.

Nothing of ours is imported at the top: peers are also played where only they are installed.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

from benchmarks.search.game import Game, Play, Settings
from benchmarks.search.peers import Pick

if TYPE_CHECKING:
    from sweep.testing import CurvePoint

Keys = Mapping[str, Any]
OTHERS = "{others}"
"""Stands, as the value of ``prior``, for all games of the prior but the one that is played."""
SETTLED = ", settled"
"""End of the name of a method that is another one with a budget by which it ends itself."""
ASHA: Keys = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
#: Method → keys of a spec. In their text ``{game}`` is the game's name.
METHODS: Mapping[str, Keys] = {
    "asha, tpe": {"searcher": "tpe", "scheduler": ASHA},
    "asha, tpe, seeds": {"searcher": "tpe", "scheduler": ASHA, "seeds": "auto"},
    "asha, tpe, 3 seeds": {"searcher": "tpe", "scheduler": ASHA, "seeds": 3},
    "asha, tpe, prior": {
        "searcher": {"name": "tpe", "prior": OTHERS},
        "scheduler": ASHA,
    },
    "asha, random": {"searcher": "random", "scheduler": ASHA},
    f"asha, tpe{SETTLED}": {"searcher": "tpe", "scheduler": ASHA, "budget": {"settled": 0.02}},
    "asha, random, prior": {
        "searcher": {"name": "random", "prior": OTHERS},
        "scheduler": ASHA,
    },
    "hyperband, tpe, prior": {
        "searcher": {"name": "tpe", "prior": OTHERS},
        "scheduler": {**ASHA, "name": "hyperband"},
    },
    "random": {"searcher": "random", "scheduler": "fifo"},
}
#: Kind of a parameter in a table → in a spec.
KINDS = {"log": "loguniform", "int": "randint", "logint": "lograndint"}


def search(keys: Keys, play: Play, workers: int, trainings: int) -> Iterator[Pick]:
    """The pick after each end of a slice.

    Raises:
        UsageError: this version of the project refuses the keys.
    """
    from sweep.history.events import Closed
    from sweep.history.history import History
    from sweep.testing import simulate

    game = play.game
    per_point = game.steps / game.points
    answering: dict[int, int] = {}

    def row_of(trial: int, config: Settings) -> int:
        if trial not in answering:
            answering[trial] = game.nearest(_flat(game, config))
        return answering[trial]

    def curve(at: "CurvePoint") -> Mapping[str, Any]:
        row = row_of(at.trial, at.config)
        value = play.value(row, at.trial, at.seed_index, at.iteration)
        return {"score": value, "timesteps_this_iter": per_point}

    course = simulate(spec(keys, game, play.number, trainings), curve, workers)
    history, points = History(course.history.objective), 0
    for record in course.records:
        history.extend([record])
        if not isinstance(record.event, Closed):
            continue
        points += len(record.event.rows)
        best = history.best
        if best is not None and best.score is not None:
            yield Pick(points, row_of(best.number, best.config), best.score)


def spec(keys: Keys, game: Game, seed: int, trainings: int) -> dict[str, Any]:
    """The spec of one search that ends after so many full trainings."""
    from benchmarks.search import prior

    space: dict[str, Any] = {
        name: {KINDS.get(parameter.kind, parameter.kind): list(parameter.words)}
        for name, parameter in game.space.items()
    }
    if OTHERS in str(keys):  # a prior reads our settings
        for name, expression in prior.our_settings(game.space).items():
            space.setdefault(name, {"value": expression})
    return {
        "metric": "score",
        "mode": "max",
        "trials": trainings * game.points,  # more than it can begin: the budget ends it
        "space": space,
        "stop": {"training_iteration": game.points},
        "seed": seed,
        **_for_game(keys, game),
        "budget": {"timesteps": trainings * game.steps, **keys.get("budget", {})},
    }


def refused(keys: Keys, game: Game) -> str:
    """Why this version of the project cannot search so; empty: it can."""
    try:
        from sweep.errors import UsageError
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
    """The game's settings out of a trial's, in which dotted names are nested."""
    return {name: reduce(getitem, name.split("."), config) for name in game.space}
