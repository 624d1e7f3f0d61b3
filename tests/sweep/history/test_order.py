"""Orders of trials: what is kept while events come in is what a look at all trials finds."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine import large
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history import order
from sweep.history.events import Created, HoldChanged, Opened, Recorded, Status, UserHold
from sweep.history.history import History
from sweep.history.order import Key
from sweep.history.trial import Trial
from sweep.searchers import Request, tpe
from sweep.searchers._shared.prior import mixture
from sweep.testing import simulation
from sweep.testing.curves import CurvePoint
from sweep.testing.pool import Pool, SimulatedClock
from sweep.testing.simulation import Simulation
from tests.support.operations import Operations
from tests.support.proofs import proofs_except
from tests.support.trials import history, trial

KEYS: tuple[Key, ...] = (
    order.status_entry,
    *map(order.trial_status_key, Status),
    *map(order.replica_status_key, Status),
    *map(order.level_key, (1.0, 3.0, 9.0)),
    *(order.score_key, order.counted, order.parent_key, order.held, order.living),
    *(order.torn, order.interrupted, order.reported, order.tested),
)


def looked_up(past: History, key: Key) -> list[Any]:
    return sorted(entry for trial in past.trials if (entry := key(trial)) is not None)


def uneven(at: CurvePoint) -> dict[str, Any]:
    """Some trials crash, some have no score yet, many are equal."""
    if at.trial % 7 == 3 and at.iteration == 2:
        raise RuntimeError("it always does")
    score = {} if at.trial % 5 == 1 and at.iteration < 3 else {"score": at.trial * 37 % 6}
    return {**score, "timesteps_this_iter": 1.0}


SCHEDULERS: dict[str, Any] = {
    "fifo": "fifo",
    "asha": {"name": "asha", "max_t": 9},
    "stopping": {"name": "asha", "max_t": 9, "type": "stopping"},
    "hyperband": {"name": "hyperband", "max_t": 9},
    "pbt": {"name": "pbt", "perturbation_interval": 2},
    "seeds": {"name": "asha", "max_t": 9},
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_after_every_transaction_each_order_is_what_a_look_at_all_trials_finds(name: str) -> None:
    spec: dict[str, Any] = {
        "trials": 20,
        "scheduler": SCHEDULERS[name],
        "stop": {"training_iteration": 9},
        "limits": {"slice_s": 2.0},
    }
    if name in ("seeds", "pbt"):
        spec |= {"trials": 8, "seeds": 2 if name == "pbt" else {3: 2, 9: 3}}
    looks = Counter[str]()

    class Watched(simulation._Driver):
        def _watch_records(self, records: Sequence[Recorded]) -> None:
            for key in KEYS:
                assert list(self.history.order(key)) == looked_up(self.history, key), key
            looks["at orders"] += 1
            super()._watch_records(records)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "_Driver", Watched)
        with Simulation(spec, uneven, slots=3) as simulated:
            course = simulated.run(kills={9, 30})
    assert course.kills == 2
    assert looks["at orders"] > 20


def test_what_a_person_wants_is_seen_at_once_and_by_the_scheduler_too() -> None:
    past = history([trial(n, Status.PAUSED, [float(n)]) for n in range(3)], wanted=3)
    assert past.order(order.held) == []
    assert past.for_scheduler() is past
    past.extend([Recorded(1, 1, 0.0, HoldChanged(1, UserHold.PAUSE))])
    assert past.order(order.held) == [(1,)]
    seen = past.for_scheduler()
    assert [t.number for t in seen.with_status(Status.PAUSED)] == [0, 2]
    assert [t.number for t in past.with_status(Status.PAUSED)] == [0, 1, 2]


def test_settings_are_known_whatever_kind_of_number_they_are() -> None:
    past = history([trial(0, Status.PAUSED, searched={"x": 1, "y": [1, "a"]})], wanted=3)
    assert past.has_settings({"y": [1.0, "a"], "x": True})
    assert not past.has_settings({"x": 1})
    past.extend([Recorded(1, 1, 0.0, Created(1, {"x": 2}, {}, 0))])
    assert past.has_settings({"x": 2.0})


def test_a_held_trial_is_shown_as_one_that_has_ended_and_the_others_as_they_are() -> None:
    spec = {"trials": 9, "stop": {"training_iteration": 9}, "seeds": "auto", "scheduler": "asha"}
    with Simulation(spec, uneven, slots=3) as simulation:
        course = simulation.run()
    past = History(course.history.objective)
    for record in course.records:
        past.extend([record])
        if len(past.trials) > record.number % 6:
            hold = UserHold.PAUSE if record.number % 3 else UserHold.NONE
            past.extend([replace(record, event=HoldChanged(record.number % 6, hold))])
        seen = past.for_scheduler()
        shown = [one.for_scheduler() for one in past.trials]
        for key in KEYS:
            due = sorted(entry for one in shown if (entry := key(one)) is not None)
            assert list(seen.order(key)) == due


# ---- what a decision costs ----------------------------------------------------------------------


BUDGET = {"timesteps": 1e12, "cpu_hours": 1e6, "target": 1e6, "patience": 100_000}
COSTS: dict[str, dict[str, Any]] = {
    "fifo": {"scheduler": "fifo"},
    "asha": {"scheduler": {"name": "asha", "max_t": 9}, "iterations": 9},
    "stopping": {"scheduler": {"name": "asha", "max_t": 9, "type": "stopping"}, "iterations": 9},
    "hyperband": {"scheduler": {"name": "hyperband", "max_t": 9}, "iterations": 9},
    "pbt": {
        "scheduler": {"name": "pbt", "perturbation_interval": 1},
        "stop": {"training_iteration": 9},
        "wait": True,
    },
    "median": {"scheduler": "median", "iterations": 3},
    "seeds": {"scheduler": {"name": "asha", "max_t": 9}, "iterations": 9, "seeds": "auto"},
    "budget": {"scheduler": "fifo", "budget": BUDGET},
    "disk": {"scheduler": "fifo", "checkpoint": {"max_disk": "1MB"}},
    "qmc": {"scheduler": "fifo", "searcher": "qmc"},
}
#: Those of which each change is tried at once: of each family of schedulers one.
QUICK = {"asha", "pbt", "budget"}
#: Trials of a short sweep, enough for some to get further seeds at the top.
SHORT = 200
#: New trials with which every order is begun once, from all trials that there are.
FIRST = 20
#: Those after them, over which the cost is averaged.
MORE = 40


def cost_per_slice(root: Path, trials: int, **sweep: Any) -> float:
    """Return the operations for each slice of the next trials of a sweep that has so many trials.

    Slices are counted rather than trials, because only some trials get further seeds.
    """
    folder = large.make(root / str(trials), trials, **sweep)
    world, spent, opened = SimulatedClock(_flat, saves=True), Operations(), [0]

    def count(records: Sequence[Recorded]) -> None:
        opened[0] += sum(isinstance(record.event, Opened) for record in records)

    class Stepping(Driver):
        def _collect(self) -> None:
            world.advance()
            super()._collect()

    request = Launch(folder, 2, trials=trials + FIRST + MORE)
    with launch.open_context(request, lambda slots: Pool(slots, world)) as (parts, _warnings):
        turns = Stepping(parts, count).turns()
        with contextlib.closing(turns):
            while len(parts.history.trials) < trials + FIRST:
                next(turns)
            begun = opened[0]
            with spent.counted():
                while len(parts.history.trials) < trials + FIRST + MORE:
                    next(turns)
    return spent.count / (opened[0] - begun)


def _flat(at: CurvePoint) -> dict[str, Any]:
    return {"score": at.trial % 20 / 20 + 0.025}  # the same for the new trials of each sweep


@pytest.mark.parametrize(
    "name",
    # Sweeps with further seeds take long to create.
    proofs_except(QUICK, COSTS),
)
def test_a_slice_costs_as_much_in_a_long_sweep_as_in_a_short_one(name: str, tmp_path: Path) -> None:
    short = cost_per_slice(tmp_path, SHORT, **COSTS[name])
    long = cost_per_slice(tmp_path, 800, **COSTS[name])
    assert 0 < long <= 1.3 * short


@pytest.mark.proof
def test_a_slice_costs_as_much_in_a_sweep_of_thousands_of_trials(tmp_path: Path) -> None:
    for name, sweep in COSTS.items():
        trials = 2_000 if "seeds" in sweep else 5_000  # with further seeds it counts several times
        short = cost_per_slice(tmp_path / name, SHORT, **sweep)
        long = cost_per_slice(tmp_path / name, trials, **sweep)
        assert 0 < long <= 1.3 * short, name


#: The default: tpe with a prior and random proposals, beside rungs and further seeds.
DEFAULT: dict[str, Any] = {
    **COSTS["seeds"],
    "searcher": {"name": "tpe", "prior": ["ppo/CartPole-v1", "ppo/Acrobot-v1"]},
    "space": {"lr": {"loguniform": [1e-5, 1e-2]}, "gamma": {"uniform": [0.9, 0.999]}},
}


@pytest.mark.proof
def test_a_slice_of_the_default_costs_as_much_in_a_long_sweep_as_in_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many proposals of each kind: those of the prior cost the most."""
    share = mixture.prior_share

    def every_second(known: Sequence[Trial]) -> float:
        share(known)
        return float(len(known) % 2)

    def every_fourth(_searcher: tpe.Searcher, request: Request) -> float:
        return float(request.number % 4 == 0)

    monkeypatch.setattr(mixture, "prior_share", every_second)
    monkeypatch.setattr(tpe.Searcher, "_random_fraction", every_fourth)
    short = cost_per_slice(tmp_path, SHORT, **DEFAULT)
    long = cost_per_slice(tmp_path, 5_000, **DEFAULT)
    assert 0 < long <= 1.3 * short
