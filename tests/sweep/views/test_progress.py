"""How far a sweep says that it is, beside how far it turns out to have been."""

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from sweep import schedulers
from sweep import spec as specs
from sweep.core import plugins
from sweep.history.events import Closed, Goal, Opened, Recorded, Status
from sweep.history.history import History
from sweep.ledger.ledger import Ledger
from sweep.schedulers._shared import building
from sweep.spec import SweepSpec
from sweep.testing import CurvePoint, simulate
from sweep.testing.simulation import DEFAULTS
from sweep.views import progress, reading
from sweep.views.progress import Aim
from tests.contracts.test_schedulers import NEEDED
from tests.support import sweeps, trials
from tests.support.proofs import proofs_except

#: How far off a sweep may be from a third of the way on, as a share of all its work.
CLOSE = 0.25
SPACE = {"x": {"uniform": [0.1, 1.0]}, "n": {"choice": [1, 2, 4]}}
#: How far it may fall back.
BACK = 0.15
NAMES = plugins.names(schedulers.PACKAGE)
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"scheduler": {"name": name, **NEEDED.get(name, {})}} for name in NAMES},
    "pbt_replay": {"scheduler": {"name": "pbt_replay", **NEEDED["pbt_replay"]}, "trials": 1},
    "threshold": {"scheduler": {"name": "threshold", "lower": 0.2, "n_warmup_steps": 3}},
    "asha, stopping": {"scheduler": {"name": "asha", "type": "stopping"}},
    "asha, finishing 3": {"scheduler": {"name": "asha", "finish_best": 3}},
    "fifo, seeds": {"scheduler": "fifo", "seeds": 3, "trials": 9},
    "asha, seeds": {"scheduler": "asha", "seeds": 3, "trials": 9},
    "asha, seeds on the rungs": {"scheduler": "asha", "seeds": {9: 3}},
    "asha, seeds of auto": {"scheduler": "asha", "seeds": "auto"},
    "hyperband, seeds on the rungs": {"scheduler": "hyperband", "seeds": {12: 4}},
    "median, seeds": {"scheduler": "median", "seeds": 2, "trials": 12},
    "median, batches": {"scheduler": "median", "deterministic": {"batch": 4}},
    "asha, few": {"scheduler": {"name": "asha", "type": "stopping"}, "trials": 9},
    "a target": {"scheduler": "fifo", "stop": {"training_iteration": 12, "score": 0.4}},
}  # fmt: skip


def rising(at: CurvePoint) -> dict[str, Any]:
    """Trials rise to different heights, at different speeds; a little noise on it."""
    own = random.Random(at.trial * 1000 + 7)  # noqa: S311 a curve
    height, speed, seconds = own.random(), own.uniform(0.05, 0.5), 1 + own.random()
    luck = random.Random(at.trial * 7919 + at.iteration * 31 + at.seed_index)  # noqa: S311 likewise
    noise = luck.gauss(0, 0.05)
    score = height * (1 - 2.718 ** (-speed * at.iteration)) + noise
    return {"score": score, "time_this_iter_s": seconds}


def told(changes: Mapping[str, Any]) -> list[tuple[float, float]]:
    """(what was done of all that was to be, what was said), after each decision."""
    given = {
        "trials": 24,
        "space": SPACE,
        "stop": {"training_iteration": 12},
        "limits": {"slice_s": 4.0},
        "seed": 3,
        **changes,
    }
    course = simulate(given, rising, slots=3)
    raw = {**DEFAULTS, **given, "trainable": "sweep.testing.curves:Played"}
    spec = specs.parse(json.dumps(raw), "simulated")
    return read_again(course.records, building.settle_spec(spec, building.build(spec), False))


def read_again(records: Sequence[Recorded], spec: SweepSpec) -> list[tuple[float, float]]:
    """The same of a sweep that is over, event by event."""
    scheduler = building.build(spec)
    past = History(reading.objective_of(spec, scheduler.time_attr))
    rows = [len(r.event.rows) if isinstance(r.event, Closed) else 0 for r in records]
    found = []
    for record, done in zip(records, accumulate(rows), strict=True):
        past.extend([record])
        if isinstance(record.event, Opened):
            share = progress.fraction(past, Aim.of(scheduler, spec))
            found.append((done / sum(rows), share))
    assert progress.fraction(past, Aim.of(scheduler, spec)) == 1.0
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_from_a_third_on_a_sweep_is_about_as_far_as_it_says(name: str) -> None:
    found = told(VARIANTS[name])
    assert max(said for _, said in found) < 1.0
    late = [(done, said) for done, said in found if done >= 1 / 3]
    off = [f"{done:.2f}: {said:.2f}" for done, said in late if abs(said - done) > CLOSE]
    assert not off
    highest = accumulate((said for _, said in late), max)
    assert all(said > before - BACK for (_, said), before in zip(late, highest, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", proofs_except({"asha", "hyperband", "pbt", "median"}, NAMES))
def test_a_recorded_sweep_was_about_as_far_as_it_said(name: str, tmp_path: Path) -> None:
    """Trained by the driver itself, as its ledger has it: the simulator is not its own witness."""
    replayed = name == "pbt_replay"
    folder = sweeps.make(
        tmp_path,
        trials=1 if replayed else 24,
        scheduler=VARIANTS[name]["scheduler"],
        space=SPACE if replayed else {"lr": {"loguniform": [1e-3, 0.9]}},
        searcher="random",
        stop={"training_iteration": 12},
        trackers=[],
    )
    assert sweeps.run(folder) == "finished"
    with closing(Ledger(folder.ledger)) as ledger:
        found = read_again(ledger.read(), reading.spec_of(ledger))
    late = [(done, said) for done, said in found if done >= 1 / 3]
    assert [pair for pair in late if abs(pair[0] - pair[1]) > CLOSE] == []


@pytest.mark.parametrize("name", ["fifo", "hyperband", "bohb", "pbt", "pb2"])
def test_where_the_plan_says_what_is_left_it_is_as_far_as_it_says(name: str) -> None:
    late = [(done, said) for done, said in told(VARIANTS[name]) if done >= 1 / 3]
    assert all(said == pytest.approx(done, abs=0.03) for done, said in late)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.WAITING])
def test_while_anything_is_to_be_done_it_is_not_all_of_the_work(status: Status) -> None:
    aim = Aim((), {"training_iteration": 3})
    done = [trials.trial(n, Status.COMPLETED, [1.0] * 3) for n in range(400)]
    to_come = trials.history(done, wanted=401)
    assert progress.fraction(to_come, aim) == progress._MOST
    last = trials.trial(400, status, [1.0] * 3)
    last.replicas[0].goal = Goal(9)
    past = trials.history([*done, last], wanted=401)
    share = progress.fraction(past, aim)
    assert share < 1.0
    left = progress.time_left(100.0, share)
    assert left is not None
    assert left > 0.0


def test_trials_that_end_early_shorten_what_is_left() -> None:
    """Half of the trials have ended, each after a tenth of the way: so half of the work is done."""
    aim = Aim((), {"training_iteration": 100}, startup_trials=0)
    ended = [trials.trial(n, Status.PRUNED, [1.0] * 10) for n in range(50)]
    past = trials.history(ended, wanted=100)
    assert progress.fraction(past, aim) == pytest.approx(0.5, abs=0.15)
    never = Aim((), {"training_iteration": 100})
    assert progress.fraction(past, never) == pytest.approx(0.5, abs=0.1)
