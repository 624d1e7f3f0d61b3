"""What one sweep takes over from another when it is created."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.driver.launch import Launch, opened
from sweep.errors import BadConfig
from sweep.history.events import Closed, Recorded, Warmed
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from tests.support import sweeps

SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-3, 0.9]},
    "target": {"choice": [1.0, 2.0]},
    "x0": {"uniform": [1, 3], "when": {"target": 2.0}},
}


def make(root: Path, **changes: Any) -> Folder:
    short: dict[str, Any] = {"scheduler": "fifo", "stop": {"training_iteration": 2}}
    short |= {"deterministic": {"batch": 1}, "space": SPACE, "trials": 4, "searcher": "tpe"}
    return sweeps.make(root, **{**short, **changes})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished sweep of 14 trials and one under ASHA."""
    folder = tmp_path_factory.mktemp("sweeps")
    sweeps.run(make(folder, name="first", trials=14))
    asha = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
    sweeps.run(make(folder, name="rungs", trials=9, scheduler=asha, stop={"training_iteration": 3}))
    return folder


def warmed(folder: Folder) -> Warmed:
    event = Ledger(folder.ledger).newest("warm")
    assert isinstance(event, Warmed)
    return event


def searched(folder: Folder) -> list[dict[str, Any]]:
    return [trial.searched for trial in sweeps.history(folder).trials]


def curves(trials: Sequence[Trial]) -> list[list[tuple[int, float, float | None]]]:
    """What searchers see of a curve; what its iterations cost is the other sweep's own matter."""
    return [[(p.iteration, p.time, p.value) for p in t.replicas[0].curve] for t in trials]


def test_the_other_sweeps_settings_and_curves_stand_in_our_own_ledger(root: Path) -> None:
    folder = make(root, name="all", warm_start={"sweep": "first"})
    mine, theirs = sweeps.history(folder), sweeps.history(Folder(root, "first"))
    assert [trial.searched for trial in mine.earlier] == searched(Folder(root, "first"))
    assert [trial.score for trial in mine.earlier] == [trial.score for trial in theirs.trials]
    assert curves(mine.earlier) == curves(theirs.trials)
    assert mine.trials == []
    assert [trial.number for trial in mine.earlier] == [-1 - n for n in range(14)]


def test_only_the_best_are_taken_if_that_is_asked(root: Path) -> None:
    folder = make(root, name="best", warm_start={"sweep": str(root / "first"), "best": 3})
    best = sweeps.history(Folder(root, "first")).ranked()[:3]
    assert [one["trial"] for one in warmed(folder).trials] == sorted(t.number for t in best)


def test_trials_that_ended_early_are_taken_only_if_that_is_asked(root: Path) -> None:
    completed = make(root, name="completed", warm_start={"sweep": "rungs"})
    everything = make(root, name="everything", warm_start={"sweep": "rungs", "trials": "all"})
    assert {one["status"] for one in warmed(completed).trials} == {"COMPLETED"}
    assert "it is PRUNED" in warmed(completed).left_out[0]
    assert len(warmed(everything).trials) == 9
    assert {trial.status.value for trial in sweeps.history(everything).earlier} == {
        "COMPLETED",
        "PRUNED",
    }


@pytest.mark.parametrize(
    ("space", "why"),
    [
        ({**SPACE, "lr": {"uniform": [0.0, 1e-9]}}, "lr .* is not 0.0 to 1e-09"),
        ({**SPACE, "more": {"choice": [1]}}, "it has no more"),
        ({**SPACE, "noise": 0.5}, "noise is 0.1, here 0.5"),
    ],
)
def test_what_does_not_fit_is_left_out_and_it_is_said_why(
    root: Path, tmp_path: Path, space: Any, why: str
) -> None:
    config = None if "noise" in space else {"noise": 0.1}
    start = {"sweep": str(root / "first")}
    folder = make(tmp_path, warm_start=start, space=space, config=config)
    assert warmed(folder).trials == ()
    assert len(warmed(folder).left_out) == 14
    assert re.search(why, warmed(folder).left_out[0])


def test_bred_trials_are_left_out(tmp_path: Path) -> None:
    """Their scores are owed to their ancestors' settings too."""
    pbt = {"name": "pbt", "perturbation_interval": 2}
    population = make(tmp_path, name="pbt", scheduler=pbt, stop={"training_iteration": 4})
    sweeps.run(population)
    bred = [trial for trial in sweeps.history(population).trials if trial.parent is not None]
    folder = make(tmp_path, name="new", warm_start={"sweep": "pbt", "trials": "all"})
    assert bred
    assert [one["trial"] for one in warmed(folder).trials] == [0, 1, 2, 3]
    reasons = tuple(f"trial {t.number}: it was bred from trial {t.parent}" for t in bred)
    assert warmed(folder).left_out == reasons


def test_a_seed_that_catches_up_does_not_count_here_either(tmp_path: Path) -> None:
    class Killed(BaseException):
        """The driver ends while the second seed is on its way."""

    def kill(recorded: Sequence[Recorded]) -> None:
        events = [record.event for record in recorded]
        if any(isinstance(event, Closed) and event.replica for event in events):
            raise Killed

    racing = {"replicas": 2, "racing": True, "stop": {"training_iteration": 4}}
    raced = make(tmp_path, name="raced", trials=1, limits={"slice_s": 1e-9}, **racing)
    with pytest.raises(Killed):
        sweeps.run(raced, watch=kill)
    theirs = sweeps.history(raced).trials[0]
    assert [replica.catching_up for replica in theirs.replicas] == [False, True]
    folder = make(tmp_path, name="new", warm_start={"sweep": "raced", "trials": "all"})
    assert [trial.score for trial in sweeps.history(folder).earlier] == [theirs.score]


def test_a_forbidden_trial_is_left_out(root: Path, tmp_path: Path) -> None:
    start = {"sweep": str(root / "first")}
    folder = make(tmp_path, warm_start=start, forbid=["target == 1.0"])
    assert {one["searched"]["target"] for one in warmed(folder).trials} == {2.0}
    assert any("is forbidden" in reason for reason in warmed(folder).left_out)


def test_a_setting_that_was_fixed_there_may_be_searched_here(root: Path, tmp_path: Path) -> None:
    space = {**SPACE, "noise": {"uniform": [0.0, 1.0]}}
    folder = make(tmp_path, warm_start={"sweep": str(root / "first")}, space=space, config=None)
    assert {one["searched"]["noise"] for one in warmed(folder).trials} == {0.1}


def test_searchers_learn_from_what_was_taken_over(root: Path, tmp_path: Path) -> None:
    """With 14 trials taken over, TPE's start-up is behind it: its first proposals differ."""
    start = {"sweep": str(root / "first")}
    warm, cold = make(tmp_path / "a", warm_start=start), make(tmp_path / "b")
    for folder in (warm, cold):
        sweeps.run(folder)
    assert len(searched(warm)) == 4
    assert searched(warm) != searched(cold)
    lucky = make(tmp_path / "c", searcher="random", warm_start=start)
    blind = make(tmp_path / "d", searcher="random")
    for folder in (lucky, blind):
        sweeps.run(folder)
    assert searched(lucky) == searched(blind)


def test_a_resume_needs_the_other_sweep_no_more(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "first", tmp_path / "first")
    straight = make(tmp_path, name="straight", warm_start={"sweep": "first"}, trials=5)
    halted = make(tmp_path, name="halted", warm_start={"sweep": "first"}, trials=2)
    shutil.rmtree(tmp_path / "first")
    sweeps.run(straight)
    sweeps.run(halted)
    sweeps.run(halted, trials=5)
    assert searched(straight) == searched(halted)
    with opened(Launch(halted, 1, "inline")) as (parts, _warnings):
        assert len(parts.history.earlier) == 14


@pytest.mark.parametrize(
    ("start", "place", "allowed"),
    [
        ({"sweep": "nowhere"}, "warm_start.sweep", "a sweep in"),
        ({"sweep": ""}, "warm_start.sweep", "at least 1 character"),
        ({"sweep": "first", "best": 0}, "warm_start.best", "greater than or equal to 1"),
        ({"sweep": "first", "trials": "some"}, "warm_start.trials", "'completed' or 'all'"),
        ({"sweep": "first", "bst": 1}, "warm_start.bst", "one of sweep, best, trials"),
        ("first", "warm_start", "a mapping"),
    ],
)
def test_a_warm_start_that_cannot_work_is_refused(
    root: Path, start: Any, place: str, allowed: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        make(root, name="new", warm_start=start)
    assert caught.value.key == place
    assert allowed in caught.value.allowed
    assert not (root / "new").exists()


def test_a_sweep_of_something_else_is_refused(root: Path) -> None:
    with pytest.raises(BadConfig, match=r"this one trains tests\.support\.quadratic:Quadratic"):
        make(
            root,
            name="new",
            trainable="tests.support.quadratic:RayStyle",
            warm_start={"sweep": "first"},
        )
