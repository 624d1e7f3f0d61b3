"""A metric that no result has ends the sweep; another one goes on with what was trained."""

import io
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.cli.live import PlainView
from sweep.cli.terminal import Terminal
from sweep.core.errors import UnknownMetric
from sweep.driver import session
from sweep.driver.start.launch import Launch
from sweep.driver.tracking import sync
from sweep.history.events import Closed, MetricChanged, Status, TermEnded
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers import find
from tests.support import sweeps
from tests.support.command_line import Here, write_spec
from tests.support.quadratic import Quadratic
from trainables import Trainable

ONE_BY_ONE: dict[str, Any] = {"deterministic": None}


class Evaluated(Quadratic):
    """Its score comes with every fourth result, and once a result late."""

    def step(self) -> dict[str, Any]:
        result = super().step()
        iteration = self.iteration + 1
        has = iteration % 4 == 0 if iteration > 5 else iteration == 5
        return {**result, "evaluation": {"score": result["score"]}} if has else result


class Odd(Trainable):
    """Reports what is not a number."""

    def step(self) -> dict[str, Any]:
        return {
            "losses": np.zeros((2, 3)),
            "several": [1.0, 2.0],
            "told": "all is well",
            "info": {"loss": 1.0, "lr": 0.1},
            "nothing": None,
            "done": self.iteration == 1,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        pass


def refused(folder: Folder, **options: Any) -> str:
    with pytest.raises(UnknownMetric) as caught:
        sweeps.run(folder, **options)
    return str(caught.value)


def iterations(folder: Folder) -> list[int]:
    return [trial.iteration for trial in sweeps.history(folder).trials]


# ---- the end ------------------------------------------------------------------------------------


def test_the_sweep_ends_when_a_trial_at_its_first_rung_never_had_the_metric(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(tmp_path, metric="los", **ONE_BY_ONE)
    said = refused(folder)
    assert said.startswith(
        "metric: trial 0 reached its rung at training_iteration 1, but its results had no metric "
        "'los'; they have: loss, score, "
    )
    command = f"`sweep resume {folder.in_commands} --metric loss`"
    assert f"did you mean 'loss'? The training is kept: {command} continues the sweep" in said
    assert iterations(folder) == [1]
    assert [t.status for t in sweeps.history(folder).trials] == [Status.PAUSED]
    *_, last = Ledger(folder.ledger).read()
    assert last.event == TermEnded("failed", said)


@pytest.mark.parametrize("scheduler", ["fifo", "asha"])
def test_a_wrong_metric_is_reported_once(tmp_path: Path, scheduler: str) -> None:
    folder = sweeps.make(tmp_path, metric="los", scheduler=scheduler, **ONE_BY_ONE)
    shown = io.StringIO()
    with pytest.raises(UnknownMetric) as caught:
        session.run_driver(Launch(folder, 2, "loky"), PlainView(Terminal(shown)))
    assert "'los'" in str(caught.value)
    assert "trial 0 starts" in shown.getvalue()
    lines = shown.getvalue().splitlines()
    assert not [line for line in lines if "los" in line.replace("loss", "") and "·" not in line]


@pytest.mark.parametrize("pool", ["inline", "loky", "stack"])
def test_a_trial_without_the_metric_ends_at_its_goal_in_any_pool(tmp_path: Path, pool: str) -> None:
    rungs = {"name": "asha", "grace_period": 3, "reduction_factor": 3}
    changes = {"trainable": "tests.support.laned:Laned", "scheduler": rungs, "trials": 2}
    folder = sweeps.make(tmp_path, metric="los", **changes)
    said = refused(folder, pool=pool)
    assert "at training_iteration 3, but its results had no metric 'los'; they have: loss" in said
    assert "\n" not in said
    assert set(iterations(folder)) == {3}


def test_without_rungs_it_ends_when_a_trial_has_come_to_its_end(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, metric="los", scheduler="fifo", **ONE_BY_ONE)
    assert "trial 0 reached its end, but its results had no metric 'los'" in refused(folder)
    assert iterations(folder) == [9]


def test_in_batches_it_ends_after_the_batch(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, metric="los", limits={"slice_s": 1e-9})
    refused(folder)
    assert iterations(folder) == [1, 1, 1, 1]


def test_what_crashes_before_it_reports_does_not_count(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, metric="los", trials=2, config={"fail_at": 1}, **ONE_BY_ONE)
    assert sweeps.run(folder) == "finished"
    assert {t.status for t in sweeps.history(folder).trials} == {Status.FAILED}


def test_a_metric_that_one_trial_has_ends_nothing(tmp_path: Path) -> None:
    class_of = f"{__name__}:OnlyAbove"
    space = {"lr": {"grid": [0.2, 0.4]}}
    changes = {"scheduler": "fifo", "space": space, "searcher": "random", "trials": 2}
    folder = sweeps.make(tmp_path, trainable=class_of, metric="above", **changes)
    assert sweeps.run(folder) == "finished"
    assert [trial.score for trial in sweeps.history(folder).trials] == [1.0, None]


class OnlyAbove(Quadratic):
    """Has the metric where the step size is small."""

    def step(self) -> dict[str, Any]:
        result = super().step()
        return {**result, "above": 1.0} if self.settings["lr"] < 0.3 else result


def test_slices_that_run_then_save_and_are_kept(tmp_path: Path) -> None:
    """Trial 0 comes to its end while the other one, on its long way, is in another process."""
    space = {"step_s": {"grid": [0.0, 0.3]}}
    stop = {"timesteps_total": 300, "loss": -1.0}
    changes = {"scheduler": "fifo", "searcher": "random", "trials": 4, "space": space, "stop": stop}
    folder = sweeps.make(tmp_path, metric="los", **changes, **ONE_BY_ONE)
    refused(folder, slots=2, pool="loky")
    trials = sweeps.history(folder).trials
    assert len(trials) <= 3  # nothing new began
    ended = [t for t in trials if t.status is Status.COMPLETED]
    assert ended
    for trial in trials:
        saved = trial.replicas[0].newest_checkpoint
        assert trial.status in (Status.COMPLETED, Status.PAUSED)
        assert trial.iteration == (0 if saved is None else saved.iteration)


@pytest.mark.slow
def test_a_driver_that_is_killed_anywhere_ends_with_the_same_words(tmp_path: Path) -> None:
    straight = sweeps.make(tmp_path / "straight", metric="los")
    said = refused(straight)
    for kill_at in range(1, 7):
        folder = sweeps.make(tmp_path / str(kill_at), metric="los")
        assert sweeps.drive(folder, kill_at=kill_at) == "killed"
        assert refused(folder) == said.replace(straight.in_commands, folder.in_commands)
        assert sweeps.decisions(folder) == sweeps.decisions(straight)
    assert refused(straight) == said  # and a resume that changes nothing


# ---- evaluations, episodes ----------------------------------------------------------------------


def test_an_evaluation_is_waited_for_until_two_were_due(tmp_path: Path) -> None:
    trainable, config = f"{__name__}:Evaluated", {"evaluation_interval": 4}
    stop = {"training_iteration": 27}
    changes = {"trainable": trainable, "config": config, "stop": stop, "trials": 9, **ONE_BY_ONE}
    folder = sweeps.make(tmp_path / "wrong", metric="evaluation/scor", **changes)
    said = refused(folder)
    assert "reached its rung at training_iteration 9, but" in said  # rungs: 1, 3, 9, 27
    assert "did you mean 'evaluation/score'?" in said
    right = sweeps.make(tmp_path / "right", metric="evaluation/score", **changes)
    assert sweeps.run(right) == "finished"


def test_a_trial_that_ends_before_a_second_evaluation_ends_the_sweep_only_at_its_end(
    tmp_path: Path,
) -> None:
    config, stop = {"evaluation_interval": 8}, {"training_iteration": 9}
    changes = {"config": config, "stop": stop, "trials": 3, "scheduler": "fifo", **ONE_BY_ONE}
    folder = sweeps.make(tmp_path, metric="evaluation/score", **changes)
    assert "reached its end" in refused(folder)
    assert iterations(folder) == [9, 9, 9]


def test_where_trials_are_ended_without_a_score_the_sweep_ends_with_the_reason_all_the_same(
    tmp_path: Path,
) -> None:
    scheduler = {"name": "asha", "type": "stopping", "grace_period": 1, "reduction_factor": 3}
    changes = {"scheduler": scheduler, "config": {"evaluation_interval": 50}, **ONE_BY_ONE}
    folder = sweeps.make(tmp_path, metric="evaluation/score", **changes)
    refused(folder)
    assert len(iterations(folder)) == 9


def test_a_budget_that_is_used_up_before_an_evaluation_was_due_is_no_mistake(
    tmp_path: Path,
) -> None:
    changes = {"config": {"evaluation_interval": 50}, "budget": {"timesteps": 30}, **ONE_BY_ONE}
    folder = sweeps.make(tmp_path, metric="evaluation/score", **changes)
    assert sweeps.run(folder) == "finished"


class Playing(Quadratic):
    """An episode ends with the second result; means over episodes come with it."""

    def step(self) -> dict[str, Any]:
        result, ended = super().step(), self.iteration > 0
        more = {"episode_reward_mean": 1.0} if ended else {}
        return {**result, **more, "episodes_this_iter": int(ended)}


def test_a_mean_over_episodes_is_waited_for_until_one_has_ended(tmp_path: Path) -> None:
    changes = {"trainable": f"{__name__}:Playing", **ONE_BY_ONE}
    right = sweeps.make(tmp_path / "right", metric="episode_reward_mean", **changes)
    assert sweeps.run(right) == "finished"
    wrong = sweeps.make(tmp_path / "wrong", metric="episode_rewards", **changes)
    refused(wrong)
    assert max(iterations(wrong)) == 3  # rungs: 1, 3, 9


# ---- what is not a number ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "named"),
    [
        ("losses", "'losses' is an array of shape (2, 3), not a number"),
        ("several", "'several' is a list of 2, not a number"),
        ("told", "'told' is the text 'all is well', not a number"),
        ("info", "'info' is a nested dict with loss, lr, not a number"),
        ("info", "did you mean 'info/loss' or 'info/lr'?"),
        ("nothing", "'nothing' is None, not a number"),
    ],
)
def test_a_metric_that_is_no_number_is_named_as_what_it_is(
    tmp_path: Path, metric: str, named: str
) -> None:
    trainable = f"{__name__}:Odd"
    folder = sweeps.make(
        tmp_path, trainable=trainable, metric=metric, scheduler="fifo", config={}, **ONE_BY_ONE
    )
    assert named in refused(folder)


# ---- another metric -----------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, ONE_BY_ONE])
def test_another_metric_goes_on_as_if_it_had_been_there_from_the_first(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    straight = sweeps.make(tmp_path / "straight", **changes)
    sweeps.run(straight)
    folder = sweeps.make(tmp_path / "renamed", metric="los", **changes)
    refused(folder)
    assert sweeps.run(folder, metric="loss") == "finished"
    assert sweeps.decisions(folder) == sweeps.decisions(straight)
    closed = [r.event for r in Ledger(folder.ledger).read() if isinstance(r.event, Closed)]
    rows = [(event.trial, row.iteration) for event in closed for row in event.rows]
    assert len(rows) == len(set(rows))  # nothing was trained twice
    one, other = sweeps.history(folder), sweeps.history(straight)
    for mine, its in zip(one.replicas(*Status), other.replicas(*Status), strict=True):
        found, expected = mine.best_checkpoint, its.best_checkpoint
        assert found is not None
        assert expected is not None
        assert (found.iteration, found.value) == (expected.iteration, expected.value)


def test_another_metric_is_an_event_and_holds_for_whoever_comes_later(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, metric="los")
    refused(folder)
    assert "--metric loss" in refused(folder, metric="lss")
    sweeps.run(folder, metric="loss")
    sweeps.run(folder, trials=12)
    sweeps.run(folder, metric="loss")  # it is the metric already
    changes = [r.event for r in Ledger(folder.ledger).read() if isinstance(r.event, MetricChanged)]
    assert changes == [MetricChanged("lss"), MetricChanged("loss")]
    assert sweeps.history(folder).objective.metric == "loss"


def test_a_finished_sweep_is_ranked_by_what_its_results_already_hold(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, metric="x", scheduler="fifo", searcher="random", trials=4)
    sweeps.run(folder)
    by_x = [trial.number for trial in sweeps.history(folder).ranked()]
    sweeps.run(folder, metric="loss")
    past = sweeps.history(folder)
    last = {t.number: sweeps.curve(folder, t.number)[-1].metrics for t in past.trials}
    assert [t.number for t in past.ranked()] == sorted(last, key=lambda n: last[n]["loss"])
    assert by_x == sorted(last, key=lambda n: last[n]["x"])
    for replica in past.replicas(*Status):
        for saved in replica.checkpoints.values():
            at = replica.value_at(saved.iteration)
            assert at is not None
            assert math.isclose(saved.value or 0.0, at.value or 0.0, rel_tol=0, abs_tol=0)


@pytest.mark.parametrize(
    ("metric", "why"), [("a//b", "a path into the results"), ("x", "is the metric already")]
)
def test_a_name_that_cannot_be_one_is_refused_before_anything_is_written(
    here: Here, tmp_path: Path, metric: str, why: str
) -> None:
    changes = {"searcher": "random", "scheduler": "fifo", "objectives": {"x": "min"}}
    assert here("run", write_spec(tmp_path, **changes), "--pool", "inline")[0] == 0
    last = Ledger(Folder(here.root, "demo").ledger).last
    code, _, err = here("resume", "demo", "--metric", metric, "--pool", "inline")
    assert code == 2
    assert why in err
    assert Ledger(Folder(here.root, "demo").ledger).last == last


def test_the_command_line_says_it_in_one_line_and_everything_shows_the_new_metric(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, metric="los", deterministic=None)
    code, out, err = here("run", spec, "--pool", "inline", "--jobs", 1)
    assert (code, out.count("TRIAL")) == (2, 0)
    (line,) = [text for text in err.splitlines() if text.startswith("sweep: metric: ")]
    assert f"`sweep resume demo --root {tmp_path}/sweeps --metric loss`" in line
    assert here.json("status", "demo")["state"] == "stopped"
    assert here("resume", "demo", "--metric", "loss", "--pool", "inline", "--jobs", 1)[0] == 0
    assert here.json("status", "demo")["metric"] == "loss"
    best = here.json("best", "demo")
    assert best["metric"] == "loss"
    assert best["score"] == min(t["score"] for t in here.json("results", "demo")["trials"])
    assert here("verify", "demo")[0] == 0


# ---- copies -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:sqlalchemy.exc.SADeprecationWarning")
def test_copies_are_made_equal_to_what_the_new_metric_says(tmp_path: Path) -> None:
    """Of several seeds: curve and score of a trial's run are of the metric."""
    changes = {"scheduler": "fifo", "searcher": "random", "trials": 2, "seeds": 2}
    stop = {"training_iteration": 3}
    folder = sweeps.make(tmp_path, metric="x", trackers=["mlflow", "optuna"], stop=stop, **changes)
    sweeps.run(folder)
    assert [sent.missing for sent in sync.send(folder, print, 600.0)] == [0, 0]
    before = differences(folder)
    assert before == {"mlflow": [], "optuna": []}
    sweeps.run(folder, metric="loss", trials=3)
    assert differences(folder)["optuna"]
    assert [sent.missing for sent in sync.send(folder, print, 600.0)] == [0, 0]
    assert differences(folder) == {"mlflow": [], "optuna": []}
    moved = Folder(tmp_path / "killed", "demo")
    shutil.copytree(folder.root, moved.root)
    with_nothing_remembered = Ledger(moved.ledger)
    for name in ("mlflow", "optuna"):
        with_nothing_remembered.set_published(name, 0)
    assert [sent.missing for sent in sync.send(moved, print, 600.0)] == [0, 0]
    assert differences(moved) == {"mlflow": [], "optuna": []}


def differences(folder: Folder) -> dict[str, list[str]]:
    return {
        name: find(name)(sync.tracker_context(folder)).differences()  # type: ignore[attr-defined]
        for name in ("mlflow", "optuna")
    }
