"""What is shown without the results is what is shown with them."""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from sweep.core.errors import UsageError, WorkerLost
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.operations.upkeep.ledger_check import Damage
from sweep.operations.upkeep.verify import verify
from sweep.testing.curves import CurvePoint
from sweep.testing.pool import Pool, SimulatedClock
from sweep.testing.simulation import Simulation
from sweep.views import lookup, overview, progress
from sweep.views.lookup import Sweep

NOW = 2e9
SEARCHED = {"trials": 8, "stop": {"training_iteration": 9}, "space": {"x": {"uniform": [0, 1]}}}
PBT = {"name": "pbt", "perturbation_interval": 3}
SWEEPS: dict[str, dict[str, Any]] = {
    "crashes": {"scheduler": "asha", "limits": {"slice_s": 2, "max_failures": 3}},
    "seeds": {"scheduler": "asha", "seeds": {1: 2, 9: 3}, "trials": 5},
    "hyperband": {"scheduler": "hyperband", "score": {"mean_last": 2}},
    "population": {"scheduler": PBT, "score": "best", "trials": 4},
    "front": {"objectives": {"cost": "min"}, "constraints": {"cost": "<= 30"}, "score": "area"},
    "steps": {"scheduler": "fifo", "stop": {"timesteps_total": 90}},
}


def curve(at: CurvePoint) -> dict[str, Any]:
    """Ends badly in several ways, and has no score now and then."""
    if at.trial % 4 == 1 and at.iteration == 4:
        raise ValueError("always here")
    if at.trial % 4 == 2 and at.iteration == 2 and at.seed_index == 0:
        raise WorkerLost(None, 1, "gone")
    score = at.config["x"] * at.iteration + at.seed_index / 10
    told: dict[str, Any] = {"cost": 10 * at.trial - at.iteration, "timesteps_this_iter": 10}
    return told if (at.trial + at.iteration) % 3 == 0 else {**told, "score": score}


def shown(sweep: Sweep) -> str:
    """Everything that `ls`, `status`, `results` and `best` have to say."""
    data: list[Any] = [
        overview.overview(sweep, NOW),
        overview.status(sweep, progress.read_notes(sweep.folder, sweep.history), NOW),
        overview.results(sweep),
        sweep.fraction_at_term(),
    ]
    try:
        data.append(overview.best(sweep))
    except UsageError as error:
        data.append(str(error))
    return json.dumps(data)


def wrong(folder: Folder) -> list[Damage]:
    """What is wrong with results; simulated checkpoints are in no file."""
    return [damage for damage in verify(folder).damages if damage.part == "results"]


@pytest.mark.parametrize("name", SWEEPS)
def test_after_every_transaction_sums_show_what_the_results_show(name: str) -> None:
    looked: list[str] = []

    def look(_k: int) -> None:
        summed = lookup.read(simulation.folder, curves=False)
        assert summed.history.summed
        looked.append(shown(summed))
        assert looked[-1] == shown(lookup.read(simulation.folder))

    with Simulation({**SEARCHED, **SWEEPS[name]}, curve, slots=2) as simulation:
        simulation.run(on_turn=look, kills=[20])
        assert wrong(simulation.folder) == []
    assert len(set(looked)) > 10


@pytest.fixture
def folder() -> Iterator[Folder]:
    """A finished sweep of three trials."""
    with Simulation({**SEARCHED, "trials": 3}, lambda at: {"score": at.config["x"]}) as simulation:
        simulation.run()
        yield simulation.folder


def execute(folder: Folder, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(folder.ledger)) as database, database:
        return [database.execute(statement).fetchall() for statement in statements][-1]


def test_a_look_that_wants_no_curves_reads_no_results(folder: Folder) -> None:
    before = shown(lookup.read(folder, curves=False))
    execute(folder, "UPDATE results SET metrics = 'not read'")
    assert shown(lookup.read(folder, curves=False)) == before


@pytest.mark.parametrize(
    ("what", "value"), [("score", 7.0), ("seconds", 8.0), ("counters", {}), ("time", math.nan)]
)
def test_sums_that_the_results_do_not_come_to_are_found(
    folder: Folder, what: str, value: object
) -> None:
    ((k, text),) = execute(folder, "SELECT k, body FROM events WHERE kind = 'outcome' LIMIT 1")
    body = json.loads(text)
    body["sums"][what] = value
    execute(folder, f"UPDATE events SET body = '{json.dumps(body)}' WHERE k = {k}")  # noqa: S608
    (damage,) = wrong(folder)
    assert damage.place == "trial 0"
    assert damage.problem.startswith(f"event {k} records the sums Sums(")


def test_a_ledger_from_before_there_were_sums_is_read_whole(folder: Folder) -> None:
    before = shown(lookup.read(folder))
    execute(folder, "UPDATE events SET body = json_remove(body, '$.sums') WHERE kind = 'outcome'")
    sweep = lookup.read(folder, curves=False)
    assert not sweep.history.summed
    assert shown(sweep) == before


def test_a_metric_that_was_changed_is_read_from_the_results(folder: Folder) -> None:
    clock = SimulatedClock(curve, saves=True)
    other = Launch(folder, 1, metric="training_iteration")
    with launch.open_context(other, lambda slots: Pool(slots, clock)):
        pass
    sweep = lookup.read(folder, curves=False)
    assert not sweep.history.summed
    assert {trial.score for trial in sweep.history.trials} == {9.0}
    assert wrong(folder) == []


def test_a_score_on_the_way_is_not_made_up(folder: Folder) -> None:
    history: History = lookup.read(folder, curves=False).history
    with pytest.raises(ValueError, match="trial 0: a score at 3 needs its curve"):
        history.trials[0].score_at(3)
