"""Test seeds: the best trials are trained anew, and the search never notices."""

import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.cli.trial_tables import final_evaluation_remarks
from sweep.core.errors import DamagedLedger
from sweep.driver.context import criteria_of
from sweep.driver.final_evaluation import FinalEvaluation, FinalEvaluator
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import Goal, Status
from sweep.history.objective import Objective
from sweep.history.replica import Replica
from sweep.history.seeds import FIRST_TEST, seed_of
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.report import sections
from sweep.spec import Stop
from sweep.spec.objective import Score
from sweep.views import final_evaluation as final_evaluation_view
from sweep.views import lookup, overview, progress
from sweep.views.lookup import State
from sweep.views.progress import Aim
from tests.support import sweeps
from tests.support.command_line import Here, write_spec
from tests.support.quadratic import Quadratic, expected_loss
from trainables.core import rng

THREE = FinalEvaluation(seeds=3, top=2)


def evaluate_finally(
    folder: Folder, final_evaluation: FinalEvaluation = THREE, kill_at: int | None = None
) -> str:
    """Run it; with `kill_at` the driver ends after so many transactions."""
    with launch.open_context(Launch(folder, 2, "inline", final_evaluation=final_evaluation)) as (
        parts,
        _,
    ):
        return sweeps.run_until(kill_at, lambda watch: FinalEvaluator(parts, watch))


@pytest.fixture
def swept(tmp_path: Path) -> Folder:
    folder = sweeps.make(tmp_path)
    sweeps.run(folder)
    return folder


def test_the_best_are_trained_to_the_top_under_seeds_that_no_decision_has_seen(
    swept: Folder,
) -> None:
    assert evaluate_finally(swept) == "finished"
    past = sweeps.history(swept)
    best = past.ranked()[:2]
    assert [trial.number for trial in past.trials if trial.test_replicas] == sorted(
        t.number for t in best
    )
    for trial in best:
        seeds = [rng.integer(7, "test", trial.number, index) for index in range(3)]
        assert final_evaluation_view.scores(trial) == [
            expected_loss(trial.config, 9, seed) for seed in seeds
        ]
        assert {test.status for test in trial.test_replicas} == {Status.COMPLETED}
        assert (swept.path / "trials" / f"{trial.number}.test2").is_dir()


def test_test_seeds_train_past_a_target_and_end_where_training_ends(tmp_path: Path) -> None:
    """A target ends a training at its luckiest moment, which a test must not repeat."""
    folder = sweeps.make(tmp_path, stop={"training_iteration": 9, "loss": {"<=": 1e9}})
    sweeps.run(folder)
    assert evaluate_finally(folder) == "finished"
    past = sweeps.history(folder)
    assert {trial.iteration for trial in past.trials} == {1}
    tests = [test.iteration for trial in past.trials for test in trial.test_replicas]
    assert tests == [9] * 6


def test_a_counter_ends_a_test_even_if_it_is_the_metric() -> None:
    ends = Stop({"training_iteration": 9, "score": 5})
    for metric, left in (("training_iteration", {*ends}), ("score", {"training_iteration"})):
        wanted = Objective(metric, "max", Score())
        test = Replica(0, FIRST_TEST, wanted, joined_at=Goal())
        assert {*criteria_of(test, ends).at_least} == left


def test_test_seeds_are_never_seeds_of_the_search() -> None:
    seeds = {seed_of(7, trial, index) for trial in range(5) for index in range(50)}
    tests = {seed_of(7, t, FIRST_TEST + index) for t in range(5) for index in range(50)}
    assert len(seeds | tests) == 500


@pytest.mark.slow
def test_the_search_goes_on_as_if_there_had_been_no_exam(tmp_path: Path) -> None:
    """Nothing of the search changes, and topped up it proposes and decides the same."""
    tested, never = sweeps.make(tmp_path / "a"), sweeps.make(tmp_path / "b")
    for folder in (tested, never):
        sweeps.run(folder)
    before, counted = sweeps.decisions(tested), overview.status_counts(sweeps.history(tested))
    evaluate_finally(tested)
    assert sweeps.decisions(tested) == before
    assert overview.status_counts(sweeps.history(tested)) == counted
    assert sweeps.history(tested).ended == "finished"
    for folder in (tested, never):
        sweeps.run(folder, trials=12)
    assert sweeps.decisions(tested) == sweeps.decisions(never)


def test_an_exam_of_a_sweep_that_was_interrupted_leaves_it_resumable(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        plan = parts.scheduler.plan(parts.history, 1)
        assert plan.fresh
    sweeps.run(folder)
    past = sweeps.history(folder)
    with launch.open_context(Launch(folder, 1, "inline")):
        pass
    assert lookup.read(folder).state is State.INTERRUPTED
    evaluate_finally(folder)
    assert lookup.read(folder).state is State.INTERRUPTED
    assert sweeps.run(folder) == "finished"
    assert len(sweeps.history(folder).trials) == len(past.trials)


def outcome_of(folder: Folder) -> list[Any]:
    return [
        (test.trial, test.index, test.status, sweeps.final_state(folder, test),
         sweeps.curve(folder, test.trial, test.index))
        for test in sweeps.history(folder).test_replicas(*Status)
    ]  # fmt: skip


@pytest.mark.slow
def test_an_exam_that_is_killed_after_every_event_equals_the_uninterrupted_one(
    swept: Folder, tmp_path: Path
) -> None:
    other = sweeps.make(tmp_path / "other")
    sweeps.run(other)
    evaluate_finally(other)
    killed = 0
    while evaluate_finally(swept, kill_at=1 + killed % 3) == "killed":
        killed += 1
    assert killed > 5
    assert outcome_of(swept) == outcome_of(other)


def test_a_larger_exam_adds_to_a_smaller_one_and_the_same_again_trains_nothing(
    swept: Folder,
) -> None:
    evaluate_finally(swept, FinalEvaluation(seeds=2, top=1))
    first = outcome_of(swept)
    evaluate_finally(swept, FinalEvaluation(seeds=3, top=2))
    assert [test for test in outcome_of(swept) if test in first] == first
    assert len(outcome_of(swept)) == 6
    before = len(Ledger(swept.ledger).read())
    evaluate_finally(swept, FinalEvaluation(seeds=2, top=2))
    assert len(Ledger(swept.ledger).read()) == before + 1


def test_a_final_evaluation_of_an_unknown_trial_is_a_damaged_ledger(
    swept: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a ledger from elsewhere: it is refused in one line, and `sweep verify` names it."""
    evaluate_finally(swept, FinalEvaluation(2, 1))
    with closing(sqlite3.connect(swept.ledger)) as database, database:
        change = "UPDATE events SET body = json_set(body, '$.trials[0]', ?) WHERE kind = 'exam'"
        assert database.execute(change, (9,)).rowcount == 1
    here = Here(capsys, swept.root)
    code, _, err = here("best", "demo")
    assert code == DamagedLedger.exit_code
    assert "a final evaluation names the trials [9], but only 9 exist" in err
    assert len(err.strip().splitlines()) == 1
    code, out, _ = here("verify", "demo")
    assert code == 6
    assert "tests trial 9, which no event creates" in out


@pytest.mark.parametrize("stop", [{}, {"score": 100.0}])
def test_where_only_a_budget_ends_trials_a_test_goes_as_far_as_its_trial_came(
    tmp_path: Path, stop: dict[str, float]
) -> None:
    thin = {"scheduler": "fifo", "deterministic": None, "limits": {"slice_s": 1e-9}}
    folder = sweeps.make(tmp_path, trials=1, stop=stop, budget={"timesteps": 60}, **thin)
    assert sweeps.run(folder) == "finished"
    assert evaluate_finally(folder, FinalEvaluation(2, 1), kill_at=4) == "killed"
    assert progress.final_evaluation_fraction(
        sweeps.history(folder), Aim((), stop)
    ) == pytest.approx(2 / 12)
    assert evaluate_finally(folder, FinalEvaluation(2, 1), kill_at=100) == "finished"
    (trial,) = sweeps.history(folder).trials
    assert (trial.status, trial.iteration) == (Status.PRUNED, 6)
    assert [(test.status, test.iteration) for test in trial.test_replicas] == [
        (Status.COMPLETED, 6)
    ] * 2


def test_all_tests_of_a_trial_go_equally_far_though_it_went_on_between_two_exams(
    tmp_path: Path,
) -> None:
    thin = {"scheduler": "fifo", "deterministic": None, "limits": {"slice_s": 1e-9}, "stop": {}}
    folder = sweeps.make(tmp_path, trials=1, budget={"timesteps": 60}, **thin)
    sweeps.run(folder)
    evaluate_finally(folder, FinalEvaluation(1, 1))
    sweeps.run(folder, budget={"timesteps": 120})
    assert evaluate_finally(folder, FinalEvaluation(2, 1)) == "finished"
    (trial,) = sweeps.history(folder).trials
    assert (trial.iteration, [test.iteration for test in trial.test_replicas]) == (12, [6, 6])


def test_while_it_runs_the_status_says_so(swept: Folder) -> None:
    with launch.open_context(Launch(swept, 1, "inline", final_evaluation=THREE)) as (parts, _):
        FinalEvaluator(parts, lambda _: None)._decide()
        sweep = lookup.read(swept)
        assert sweep.state is State.TESTING
        assert final_evaluation_view.progress_text(
            sweep.history, THREE.begin_event(sweep.history, 1, "inline")
        ).startswith("0 of 6 tests")
    assert lookup.read(swept).state is State.FINISHED


def test_a_test_that_failed_is_told_and_its_score_does_not_count(swept: Folder) -> None:
    evaluate_finally(swept)
    sweep = lookup.read(swept)
    best = sweep.history.ranked()[0]
    best.test_replicas[1].status = Status.FAILED
    report = final_evaluation_view.report(sweep)
    assert report is not None
    tested = report["trials"][0]
    assert (tested["ended"], tested["without_score"], len(tested["scores"])) == (3, 1, 2)


class Diverging(Quadratic):
    """Under the second test seed its loss is not a number."""

    def step(self) -> dict[str, Any]:
        diverges = self.context.trial_id.endswith(f"_{FIRST_TEST + 1}")
        return {**super().step(), **({"loss": math.nan} if diverges else {})}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"not_finite": "prune"}, Status.PRUNED),
        ({"not_finite": "fail"}, Status.FAILED),
        ({"not_finite": "continue"}, Status.COMPLETED),
    ],
)
def test_tests_that_ended_without_a_score_are_counted_and_told(
    tmp_path: Path, changes: dict[str, Any], status: Status
) -> None:
    folder = sweeps.make(
        tmp_path, trainable="tests.sweep.driver.test_final_evaluation:Diverging", limits=changes
    )
    sweeps.run(folder)
    evaluate_finally(folder, FinalEvaluation(3, 1))
    data = overview.best(lookup.read(folder))
    (tested,) = data["final_evaluation"]["trials"]
    trial = sweeps.history(folder).trials[tested["trial"]]
    assert trial.test_replicas[1].status is status
    assert (tested["ended"], tested["without_score"], len(tested["scores"])) == (3, 1, 2)
    assert any(
        " of 2 seeds, 1 of 3 without a score; " in line for line in final_evaluation_remarks(data)
    )


def test_a_test_that_ended_at_its_time_limit_counts_as_in_the_search(tmp_path: Path) -> None:
    changes = {"scheduler": "fifo", "trials": 1, "limits": {"trial_s": 1e-9}}
    folder = sweeps.make(tmp_path, **changes)
    sweeps.run(folder)
    evaluate_finally(folder, FinalEvaluation(2, 1))
    (trial,) = sweeps.history(folder).ranked()
    assert [r.status for r in (*trial.replicas, *trial.test_replicas)] == [Status.STOPPED] * 3
    assert final_evaluation_view.scores(trial) == [test.score_at() for test in trial.test_replicas]


# ---- the command ----------------------------------------------------------------------------


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    here = Here(capsys, tmp_path / "sweeps")
    assert here("run", write_spec(tmp_path), "--pool", "inline")[0] == 0
    return here


def test_best_says_in_two_lines_how_much_was_luck_and_how_sure_the_pick_is(here: Here) -> None:
    _, out, _ = here("best", "demo")
    expected, runner_up = out.splitlines()[2:4]
    assert re.fullmatch(
        r"# expected on a new seed: \S+ ± \S+; its score of \S+ is \S+ "
        r"(better by luck|worse by bad luck)",
        expected,
    )
    assert re.fullmatch(
        r"# runner-up: trial \d, expected \S+ ± \S+; best of all with probability 0\.\d\d against "
        r"0\.\d\d; (they are told|.* more seeds? of both would (not )?tell them) apart",
        runner_up,
    )
    assert f"sweep best demo --root {here.root} --test-seeds 10" in out


def test_of_one_score_nothing_is_said_of_luck(here: Here, tmp_path: Path) -> None:
    space = {"fail_at": {"grid": [1, 99]}}
    spec = write_spec(tmp_path, name="half", trials=2, searcher="grid", space=space)
    assert here("run", spec, "--pool", "inline")[0] == 1
    code, out, _ = here("best", "half")
    assert (code, here.json("best", "half")["scored"]) == (0, 1)
    assert "luck" not in out


def test_equal_test_scores_are_shown_without_an_interval(here: Here, tmp_path: Path) -> None:
    """They do not show how much seeds differ."""
    calm = write_spec(tmp_path, name="calm", config={"noise": 0.0, "target": 1.0})
    assert here("run", calm, "--pool", "inline")[0] == 0
    code, out, _ = here("best", "calm", "--test-seeds", "3", "--pool", "inline", "--jobs", "1")
    assert code == 0
    assert re.search(r"# *trial \d: \S+ under each of 3 seeds; \S+ in the search", out)
    assert "[" not in "".join(line for line in out.splitlines() if "under each" in line)
    (first, *_) = here.json("best", "calm")["final_evaluation"]["trials"]
    assert first["estimate"] == {"value": first["scores"][0], "low": None, "high": None}
    section = sections.test_seeds(lookup.read(Folder(here.root, "calm")))
    assert section is not None
    (comparison,) = re.findall(r"\[[^]]*\]", "".join(str(part) for part in section.body))
    assert comparison.startswith("[0."), "only the probability has an interval"


def test_best_trains_under_test_seeds_and_then_shows_them_again_for_nothing(here: Here) -> None:
    code, out, _ = here("best", "demo", "--test-seeds", "3", "--pool", "inline", "--jobs", "1")
    assert code == 0
    final_evaluation_remarks = [line for line in out.splitlines() if line.startswith("#")]
    assert any("under test seeds (mean, 95% interval)" in line for line in final_evaluation_remarks)
    assert any(
        "of 3 seeds; " in line and "in the search" in line for line in final_evaluation_remarks
    )
    assert any(" beats one of trial " in line for line in final_evaluation_remarks)
    again = here("best", "demo")
    assert [line for line in out.splitlines() if line in again[1].splitlines()]
    final_evaluation = here.json("best", "demo")["final_evaluation"]
    assert (final_evaluation["done"], final_evaluation["wanted"], final_evaluation["seeds"]) == (
        6,
        6,
        3,
    )
    assert (
        0.0
        <= final_evaluation["comparison"]["low"]
        <= final_evaluation["comparison"]["high"]
        <= 1.0
    )
    assert "6 tests" not in again[1]
    assert "test2" in here("show", "demo", here.json("best", "demo")["trial"])[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--test-seeds", "1"], ["--test-seeds", "1", "2<=x"]),
        (["--test-seeds", "many"], ["--test-seeds", "many"]),
        (["--test-seeds", "3", "--top", "0"], ["--top", "0"]),
        (["--top", "3"], ["--top: has no effect", "--test-seeds"]),
        (["--jobs", "3"], ["--jobs: has no effect", "--test-seeds"]),
    ],
)
def test_options_that_cannot_work_are_refused(
    here: Here, options: list[str], words: list[str]
) -> None:
    code, _, err = here("best", "demo", *options)
    assert code == 2
    assert all(word in err for word in words), err
    assert len(err.strip().splitlines()) == 1
