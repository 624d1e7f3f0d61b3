"""What a population found, exported and replayed as one chain of trials."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from sweep.cli.main import main
from sweep.core.errors import UsageError
from sweep.history.events import Closed, Status
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Requests, Verb
from sweep.testing import Simulation, check_kills, simulate
from tests.support import sweeps
from tests.sweep.schedulers.test_pbt import SPEC, curve

STEPS = [
    {"from": 0, "settings": {"x": 0.9}},
    {"from": 3, "settings": {"x": 0.7}},
    {"from": 9, "settings": {"x": 0.5}},
]


def replay(schedule: Any, **more: Any) -> dict[str, Any]:
    return {**SPEC, "trials": 1, "scheduler": {"name": "pbt_replay", "schedule": schedule}, **more}


def test_a_schedule_is_replayed_as_one_chain() -> None:
    course = simulate(replay(STEPS), curve, slots=2)
    trials = course.history.trials
    assert [t.searched["x"] for t in trials] == [0.9, 0.7, 0.5]
    assert [t.parent for t in trials] == [None, 0, 1]
    assert [t.iteration for t in trials] == [3, 9, 12]
    assert [t.status for t in trials] == [Status.PRUNED, Status.PRUNED, Status.COMPLETED]


def test_settings_that_a_step_does_not_name_are_inherited_or_drawn() -> None:
    space = {
        "x": {"uniform": [0.1, 1.0]},
        "y": {"uniform": [0.1, 1.0]},
        "kind": {"choice": ["a", "b"]},
        "depth": {"randint": [1, 3], "when": {"kind": "b"}},
    }
    steps = [
        {"from": 0, "settings": {"x": 0.9, "kind": "a"}},
        {"from": 3, "settings": {"x": 0.7}},
        {"from": 9, "settings": {"kind": "b"}},
    ]
    first, second, last = simulate({**replay(steps), "space": space}, curve).history.trials
    assert second.searched == {**first.searched, "x": 0.7}
    assert last.searched == {**second.searched, "kind": "b", "depth": last.searched["depth"]}
    assert last.status is Status.COMPLETED


def test_a_killed_replay_is_the_same() -> None:
    check_kills(replay(STEPS), curve)


@pytest.mark.parametrize("from_checkpoint", [False, True])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_clone_is_trained_beside_the_chain(
    monkeypatch: pytest.MonkeyPatch, from_checkpoint: bool, slots: int
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    body = {"trials_named": [0], "settings": {"x": 0.2}, "from_checkpoint": from_checkpoint}
    spec = replay(STEPS, limits={"slice_s": 1})
    with Simulation(spec, curve, slots) as simulation:
        asked: list[int] = []

        def seen(_k: int) -> None:
            with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
                saved = any(isinstance(r.event, Closed) and r.event.saved for r in ledger.read())
            if saved and not asked:
                with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
                    asked.append(requests.ask(Verb.CLONE, body))

        trials = simulation.run(on_turn=seen).history.trials
    chain = [trial for trial in trials if trial.clone_of is None]
    assert [t.searched["x"] for t in chain] == [0.9, 0.7, 0.5]
    assert [t.iteration for t in chain] == [3, 9, 12]
    (clone,) = (trial for trial in trials if trial.clone_of == 0)
    assert (clone.searched["x"], clone.iteration) == (0.2, 12)
    assert clone.status is Status.COMPLETED


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = sweeps.make(
        tmp_path_factory.mktemp("population"),
        trials=4,
        scheduler={"name": "pbt", "perturbation_interval": 3},
        config={},
        trackers=(),
    )
    sweeps.run(folder)
    return folder


def child(folder: Folder) -> int:
    """A completed trial that was bred."""
    past = sweeps.history(folder)
    return next(t.number for t in past.with_status(Status.COMPLETED) if t.parent is not None)


def test_the_replay_of_an_exported_lineage_learns_what_the_lineage_learnt(
    population: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without noise a curve depends on the settings and their times alone."""
    number, file = child(population), tmp_path / "schedule.yaml"
    root = str(population.root)
    asked = ["export-schedule", "demo", "--trial", str(number), "--out", str(file), "--root", root]
    assert main(asked) == 0
    assert "steps in" in capsys.readouterr().out
    again = sweeps.make(
        tmp_path,
        name="again",
        trials=1,
        config={},
        scheduler={"name": "pbt_replay", "schedule": str(file)},
        trackers=(),
    )
    sweeps.run(again)
    wanted = sweeps.history(population).trials[number]
    found = sweeps.history(again).trials[-1]
    assert found.parent is not None
    assert found.searched == wanted.searched
    assert found.score == wanted.score


def test_the_schedule_names_the_ancestors_and_when_they_began(
    population: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    number = child(population)
    asked = ["export-schedule", "demo", "--trial", str(number), "--root", str(population.root)]
    assert main([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    past = sweeps.history(population)
    steps = data["schedule"]
    assert steps[0]["from"] == 0
    assert past.trials[steps[0]["trial"]].parent is None
    assert steps[-1]["trial"] == number
    assert all(past.trials[s["trial"]].searched == s["settings"] for s in steps)
    assert main(asked) == 0
    assert capsys.readouterr().out.startswith(f"# trial {number} of demo")


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        ("foo", "--trial: 'foo' is not allowed; expected best, or the number of a trial"),
        ("-1", "--trial: '-1' is not allowed; expected best, or the number of a trial"),
        ("99", "trial 99 does not exist"),
    ],
)
def test_a_lineage_of_no_trial_is_refused(
    population: Folder, capsys: pytest.CaptureFixture[str], trial: str, says: str
) -> None:
    asked = ["export-schedule", "demo", "--trial", trial, "--root", str(population.root)]
    assert main(asked) == 2
    assert says in capsys.readouterr().err


REFUSED: list[tuple[dict[str, Any], str]] = [
    (replay(STEPS, trials=2), "trials: 2 trials are too many"),
    (replay(STEPS[1:]), "let the first step start at 0"),
    (replay([*STEPS, STEPS[1]]), "not in the order in which they start"),
    (
        replay([{"from": 0, "settings": {"y": 1}}]),
        "'y' is not a searched parameter; expected one of x",
    ),
    (replay([{"from": 0, "settings": {"x": 7.0}}]), "0.1 to 1.0, both included"),
    (
        {**replay(STEPS), "forbid": [{"x": [0.7]}]},
        "settings that are allowed together",
    ),
    (replay("nowhere.yaml"), "write one with `sweep export-schedule`"),
    (replay([{"settings": {"x": 0.5}}]), "is missing"),
]


@pytest.mark.parametrize(("spec", "says"), REFUSED)
def test_what_cannot_work_is_refused_before_anything_runs(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        simulate(spec, curve)


def test_a_sweep_replays_what_the_file_said_when_it_was_created(tmp_path: Path) -> None:
    file = tmp_path / "schedule.yaml"
    text = "time_attr: training_iteration\nschedule: [{from: 0, settings: {x: 0.9}}, {from: 3, "
    file.write_text(f"{text}settings: {{x: 0.7}}, trial: 5}}]\n")
    with Simulation(replay(str(file)), curve) as simulation:
        file.unlink()
        trials = simulation.run().history.trials
    assert [(t.searched["x"], t.iteration) for t in trials] == [(0.9, 3), (0.7, 12)]


def test_a_file_that_counts_otherwise_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "schedule.yaml"
    file.write_text("time_attr: timesteps_total\nschedule: [{from: 0, settings: {x: 0.5}}]\n")
    with pytest.raises(UsageError, match="counts in timesteps_total, not in"):
        simulate(replay(str(file)), curve)


def test_a_file_with_a_mistake_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "schedule.yaml"
    file.write_text("time_attr: training_iteration\nschedules: []\n")
    with pytest.raises(UsageError, match=r"schedule\.yaml:2: schedules"):
        simulate(replay(str(file)), curve)
