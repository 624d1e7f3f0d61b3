"""A later end on resume: trials that had reached the old one continue as if it had never been."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.core.errors import UsageError
from sweep.driver.start.launch import Launch, open_context
from sweep.history.events import Status, StopChanged
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.views import explanation, lookup, reading
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.quadratic import Quadratic

SHORT, LONG = {"training_iteration": 6}, {"training_iteration": 18}
#: Not a number of rungs apart, so that the old end is no rung of the longer sweep.
ODD = {"training_iteration": 20}


def make(root: Path, stop: Mapping[str, Any] = SHORT, **changes: Any) -> Folder:
    plain: dict[str, Any] = {"scheduler": "fifo", "trials": 4, "deterministic": {"batch": 1}}
    return sweeps.make(root, **{**plain, "stop": dict(stop), **changes})


def curves(folder: Folder) -> list[Any]:
    past = sweeps.history(folder)
    return [
        [sweeps.curve(folder, trial.number, replica.index) for replica in trial.replicas]
        for trial in past.trials
    ]


def ends(folder: Folder) -> list[tuple[Status, int]]:
    return [(trial.status, trial.iteration) for trial in sweeps.history(folder).trials]


def test_all_trials_continue_as_if_the_end_had_been_later_from_the_beginning(
    tmp_path: Path,
) -> None:
    straight, longer = make(tmp_path / "straight", LONG), make(tmp_path / "longer")
    sweeps.run(straight)
    sweeps.run(longer)
    assert ends(longer) == [(Status.COMPLETED, 6)] * 4
    told: list[str] = []
    assert sweeps.run(longer, stop=LONG, say=told.append) == "finished"
    assert told == ["--stop: 4 ended trials can continue"]
    assert sweeps.decisions(longer) == sweeps.decisions(straight)
    assert curves(longer) == curves(straight)
    assert ends(longer) == [(Status.COMPLETED, 18)] * 4


def test_new_trials_and_the_next_driver_have_the_later_end_too(tmp_path: Path) -> None:
    straight, longer = make(tmp_path / "straight", LONG, trials=6), make(tmp_path / "longer")
    sweeps.run(straight)
    sweeps.run(longer)
    with open_context(Launch(longer, 1, "inline", stop=LONG)):
        pass  # a driver that is killed at once
    sweeps.run(longer, trials=6)
    assert curves(longer)[4:] == curves(straight)[4:]
    assert ends(longer) == [(Status.COMPLETED, 18)] * 6


@pytest.mark.parametrize(
    "scheduler",
    [
        {"name": "fifo"},
        {"name": "asha", "grace_period": 2, "reduction_factor": 3},
        {"name": "asha", "grace_period": 2, "reduction_factor": 3, "type": "stopping"},
        {"name": "median", "interval": 4, "n_startup_trials": 1},
        {"name": "pbt", "perturbation_interval": 4},
    ],
    ids=["fifo", "asha", "stopping", "median", "pbt"],
)
def test_kills_around_the_change_change_nothing(tmp_path: Path, scheduler: dict[str, Any]) -> None:
    stop = ODD if scheduler["name"] in ("asha", "pbt") else LONG
    folders = [make(tmp_path / place, scheduler=scheduler, trials=9) for place in ("one", "two")]
    whole, killed = folders
    sweeps.run(whole)
    sweeps.run(whole, stop=stop)
    while sweeps.drive(killed, kill_at=7) == "killed":
        pass
    with open_context(Launch(killed, 1, "inline", stop=stop)):
        pass
    while sweeps.drive(killed, kill_at=5) == "killed":
        pass
    assert sweeps.decisions(killed) == sweeps.decisions(whole)
    assert curves(killed) == curves(whole)
    furthest = max(trial.iteration for trial in sweeps.history(whole).trials)
    assert furthest == stop["training_iteration"]


def test_the_change_may_come_in_the_middle(tmp_path: Path) -> None:
    straight, longer = make(tmp_path / "straight", LONG), make(tmp_path / "longer")
    sweeps.run(straight)
    assert sweeps.drive(longer, kill_at=4) == "killed"
    sweeps.run(longer, stop=LONG)
    assert curves(longer) == curves(straight)


@pytest.mark.parametrize("watched", ["metric", "another result"])
def test_more_consecutive_results_are_a_later_end(tmp_path: Path, watched: str) -> None:
    """The loss stays below the bound, so 2 more consecutive results take 2 more iterations."""
    metric = {} if watched == "metric" else {"metric": "training_iteration", "mode": "max"}

    def stop(count: int) -> dict[str, Any]:
        return {"loss": {"<=": 100.0, "consecutive": count}, "training_iteration": 20}

    straight = make(tmp_path / "straight", stop(5), **metric)
    longer = make(tmp_path / "longer", stop(3), **metric)
    sweeps.run(straight)
    sweeps.run(longer)
    assert ends(longer) == [(Status.COMPLETED, 3)] * 4
    with pytest.raises(UsageError, match="is not later than the present end"):
        sweeps.run(longer, stop={"loss": {"<=": 100.0, "consecutive": 2}})
    sweeps.run(longer, stop={"loss": {"<=": 100.0, "consecutive": 5}})
    assert curves(longer) == curves(straight)
    assert ends(longer) == [(Status.COMPLETED, 5)] * 4


@pytest.mark.parametrize("kind", ["pbt", "pb2"])
def test_a_population_goes_on_as_if_it_had_never_ended(tmp_path: Path, kind: str) -> None:
    scheduler = {"name": kind, "perturbation_interval": 3}
    straight = make(tmp_path / "straight", LONG, scheduler=scheduler, trials=6)
    longer = make(tmp_path / "longer", scheduler=scheduler, trials=6)
    sweeps.run(straight)
    sweeps.run(longer)
    sweeps.run(longer, stop=LONG)
    assert [t.parent for t in sweeps.history(longer).trials if t.parent is not None]
    assert sweeps.decisions(longer) == sweeps.decisions(straight)


def test_asha_continues_the_best_to_the_new_top(tmp_path: Path) -> None:
    rungs = {"name": "asha", "grace_period": 2, "reduction_factor": 3}
    folder = make(tmp_path, scheduler=rungs, trials=18)
    sweeps.run(folder)
    tops = [trial.number for trial in sweeps.history(folder).with_status(Status.COMPLETED)]
    assert len(tops) > 3
    sweeps.run(folder, stop=LONG)
    past = sweeps.history(folder)
    done = [trial.number for trial in past.with_status(Status.COMPLETED)]
    assert 0 < len(done) < len(tops)
    assert set(done) < set(tops)
    assert all(past.trials[number].iteration == 18 for number in done)
    steps = explanation.explain(lookup.read(folder), done[0])["decisions"]
    reasons = [step["why"] for step in steps]
    moved = next(why for why in reasons if why.startswith("it ended as"))
    assert moved == (
        "it ended as training_iteration is 6, at least 6, and may continue to training_iteration=18"
    )
    assert any("promoted to rung 18" in why for why in reasons)


def test_further_seeds_continue_too(tmp_path: Path) -> None:
    """All seeds of a trial that is promoted to the new top train to it."""
    rungs = {"name": "asha", "grace_period": 2, "reduction_factor": 3}
    folder = make(tmp_path, scheduler=rungs, trials=27, seeds="auto")
    sweeps.run(folder)
    several = {t.number for t in sweeps.history(folder).trials if len(t.replicas) > 1}
    assert several
    sweeps.run(folder, stop=LONG)
    done = sweeps.history(folder).with_status(Status.COMPLETED)
    assert several & {trial.number for trial in done}
    for trial in done:
        assert [replica.iteration for replica in trial.replicas] == [18] * len(trial.replicas)


def test_who_ended_otherwise_stays_ended(tmp_path: Path) -> None:
    """One has met its target; the others had come to the end."""
    folder = make(
        tmp_path,
        stop={**SHORT, "loss": 1e-3},
        space={"lr": {"grid": [0.45, 0.001, 0.01]}},
        config={"noise": 0.0},
        trials=3,
    )
    sweeps.run(folder)
    before = ends(folder)
    assert before[0][0] is Status.COMPLETED
    assert before[0][1] < 6
    assert before[1:] == [(Status.COMPLETED, 6)] * 2
    sweeps.run(folder, stop=LONG)
    assert ends(folder) == [before[0], (Status.COMPLETED, 18), (Status.COMPLETED, 18)]
    # A harder target is a later end of those that had met the easier one.
    sweeps.run(folder, stop={"loss": 1e-9})
    after = ends(folder)
    assert before[0][1] < after[0][1] < 18
    assert after[1:] == [(Status.COMPLETED, 18), (Status.COMPLETED, 18)]


@pytest.mark.parametrize(
    ("changes", "later", "why"),
    [
        (
            {},
            {"training_iteration": 5},
            r"--stop training_iteration: 5 is not later than the present end, 6",
        ),
        ({}, {"timesteps_total": 5}, r"unknown stopping criterion 'timesteps_total'"),
        ({}, {"training_iteration": "x"}, r"stop.training_iteration"),
        ({}, {"training_iteration": {"<=": 7}}, "not later than the present end, 6"),
        (
            {"scheduler": {"name": "hyperband", "reduction_factor": 2}},
            LONG,
            "to brackets according to",
        ),
        ({"scheduler": {"name": "asha", "max_t": 6}}, LONG, "end at scheduler.max_t, 6"),
    ],
)
def test_an_end_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], later: dict[str, Any], why: str
) -> None:
    folder = make(tmp_path, **changes)
    sweeps.run(folder)
    before = Ledger(folder.ledger).read()
    with pytest.raises(UsageError, match=why) as refusal:
        sweeps.run(folder, stop=later)
    assert "\n" not in str(refusal.value)
    assert Ledger(folder.ledger).read() == before


def test_the_change_is_an_event_and_the_spec_of_all_readers(tmp_path: Path) -> None:
    rungs = {"name": "asha", "grace_period": 2, "reduction_factor": 3}
    folder = make(tmp_path, scheduler=rungs, trials=3)
    sweeps.run(folder)
    sweeps.run(folder, stop=SHORT)
    sweeps.run(folder, stop=LONG)
    with closing(Ledger(folder.ledger)) as ledger:
        events = [r.event for r in ledger.read() if isinstance(r.event, StopChanged)]
        assert events == [StopChanged(LONG, 18.0)]
        assert dict(reading.spec_of(ledger).stop) == LONG
        assert reading.scheduler_of(ledger).levels == (2, 6, 18)
    assert lookup.read(folder).aim.levels == (2, 6, 18)


def test_the_command_and_the_function_move_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, here = make(tmp_path), Here(capsys, tmp_path)
    sweeps.run(folder)
    options = ("--pool", "inline", "--stop")
    code, _, err = here("resume", "demo", *options, "training_iteration=9")
    assert code == 0
    assert "sweep: --stop: 4 ended trials can continue\n" in err
    code, out, err = here("resume", "demo", *options, "training_iteration=8")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    found = sweep.load("demo", root=tmp_path)
    again = found.resume(stop=LONG, pool="inline", jobs=1, progress=False)
    assert [trial.iterations for trial in again.trials] == [18] * 4
    assert ends(folder) == [(Status.COMPLETED, 18)] * 4


def test_a_linear_schedule_keeps_its_length_and_this_is_said(tmp_path: Path) -> None:
    class Scheduled(Quadratic):
        @classmethod
        def complete_config(
            cls, config: Mapping[str, Any], stop: Mapping[str, float]
        ) -> dict[str, Any]:
            return {"length": stop["training_iteration"], **config}

    folder = make(tmp_path, config={"noise": 0.1, "schedule": "linear"})
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Quadratic, "complete_config", Scheduled.complete_config)
        sweeps.run(folder)
        sweeps.run(folder, trials=5, stop=LONG, say=told.append)
    lengths = [trial.config["length"] for trial in sweeps.history(folder).trials]
    assert lengths == [6, 6, 6, 6, 18]
    assert told[1:] == [
        "--stop: existing trials keep length: 6, where their linear schedules end; "
        "new trials have 18"
    ]
