"""What the commands show of trials with several seeds."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweep.cli import tables, trial_tables
from sweep.cli.live import LiveView, PlainView
from sweep.cli.terminal import Terminal
from sweep.driver.driver import Driver
from sweep.driver.final_evaluation import FinalEvaluation, FinalEvaluator
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import Goal, Recorded, Status
from sweep.history.replica import Replica
from sweep.history.seeds import FIRST_TEST, seed_of
from sweep.views import explanation, lookup, overview, progress
from sweep.views.progress import Aim, Note
from tests.support import sweeps, trials
from tests.support.command_line import Here, write_spec
from tests.sweep.operations.test_export import PPO

THREE = {"seeds": 3, "trials": 3, "stop": {"training_iteration": 3}, "searcher": "random"}


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    here = Here(capsys, tmp_path / "sweeps")
    assert here("run", write_spec(tmp_path, **THREE), "--pool", "inline", "--jobs", 2)[0] == 0
    return here


def test_tables_have_a_column_of_seeds_and_json_their_scores(here: Here) -> None:
    _, out, _ = here("results", "demo")
    assert "seeds" in out
    assert "3: " in out
    data = here.json("results", "demo")
    for row in data["trials"]:
        assert row["score"] == pytest.approx(sum(row["scores"]) / 3)
    assert here.json("status", "demo")["counts"].keys() <= {"COMPLETED", "PRUNED"}


def test_the_curves_of_a_trials_seeds_are_shown_as_a_band(here: Here) -> None:
    best = here.json("best", "demo")
    data = here.json("show", "demo", best["trial"])
    assert [row["iteration"] for row in data["band"]] == [1, 2, 3]
    last = data["band"][-1]
    assert last["mean"] == pytest.approx(best["score"])
    assert (last["least"], last["greatest"]) == (min(best["scores"]), max(best["scores"]))
    lines = here("show", "demo", best["trial"])[1].splitlines()
    assert any("of 3 seeds, 3 values" in line for line in lines)
    drawn = {line.split()[0]: line.split()[1] for line in lines if "▁" in line or "█" in line}
    assert set(drawn) == {"greatest", "mean", "least"}
    assert max("".join(drawn.values())) in drawn["greatest"]  # on one scale
    assert min("".join(drawn.values())) in drawn["least"]


def test_a_trial_of_one_seed_has_no_band(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trials=1)
    sweeps.run(folder)
    assert overview.show(lookup.read(folder), 0, [])["band"] == []


def test_the_best_trial_is_shown_with_the_scores_of_its_seeds(here: Here) -> None:
    _, out, _ = here("best", "demo")
    data = here.json("best", "demo")
    assert "# mean of 3 seeds: " in out
    assert "the best trial has one seed" not in out
    assert (len(data["scores"]), data["aggregate"], data["final_evaluation"]) == (3, "mean", None)


def test_one_trial_is_shown_seed_by_seed_with_the_decisions_about_each(here: Here) -> None:
    best = here.json("best", "demo")["trial"]
    data = here.json("show", "demo", best)
    assert [row["seed"] for row in data["seeds"]] == [seed_of(7, best, r) for r in range(3)]
    whats = [decision["what"] for decision in data["decisions"]]
    assert {"slice 0 to 1", "seed 1, slice 0 to 1", "seed 2, slice 0 to 1"} <= set(whats)
    _, out, _ = here("show", "demo", best)
    made = out.partition("\ncheckpoints\n")[2].partition("\n\n")[0].splitlines()
    assert made[0].split() == ["trial", "iter", "value", "bytes", "SHA-256"]
    names = [
        f"{best}.{c['seed_index']}" if c["seed_index"] else f"{best}" for c in data["checkpoints"]
    ]
    assert [line.split()[0] for line in made[1:]] == names
    assert len(set(names)) == 3
    assert f"{best}.2" in out
    assert here("show", "demo", best, "--log")[1].count("==> ") in (0, 3)


def test_if_seeds_ended_at_different_iterations_their_range_is_shown() -> None:
    seeds = [
        {"seed_index": index, "iterations": n} for index, n in ((0, 22), (1, 32), (FIRST_TEST, 1))
    ]
    steps = {"steps": 54, "own_steps": 54}
    assert trial_tables.iterations_text({**steps, "seeds": seeds}) == "22 to 32 iterations"
    alike = {**steps, "seeds": seeds[1:], "iterations": 32}
    assert trial_tables.iterations_text(alike) == "32 iterations"


def test_the_exported_model_is_the_network_that_did_best_and_the_card_says_of_which_seed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    spec = write_spec(tmp_path, **{**PPO, "trials": 1, "seeds": 2, "name": "two"})
    assert here("run", spec, "--pool", "inline")[0] == 0
    _, said, _ = here("export-model", "two", "--out", tmp_path / "out")
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    compared = card["played"]["compared"]
    assert {row["seed_index"] for row in compared} == {0, 1}
    assert card["seed_index"] == max(compared, key=lambda row: row["mean"])["seed_index"]
    assert (card["seed"], card["seeds"]) == (seed_of(7, 0, card["seed_index"]), 2)
    name = "0.1" if card["seed_index"] else "0"
    assert said.startswith(f"trial {name} of two, ")
    assert f"- seed: {card['seed']} (trial {name})\n" in (tmp_path / "out" / "card.md").read_text()
    tested = {**card, "out": None, "seed_index": FIRST_TEST}
    assert trial_tables.card(tested).startswith("trial 0.test0 of two, ")


# ---- while it runs --------------------------------------------------------------------------


def test_further_seeds_are_printed_one_by_one_with_their_reasons(tmp_path: Path) -> None:
    pipe = io.StringIO()
    view = PlainView(Terminal(pipe))
    plan = {1: 2, 3: 3}
    folder = sweeps.make(tmp_path, **{**THREE, "seeds": plan, "scheduler": "asha"})
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        view.begin(parts, [])
        Driver(parts, view.update).run()
    lines = pipe.getvalue().splitlines()
    assert sum("starts: lr=" in line for line in lines) == 3
    why = " gets seed 1, promoted to 2 seeds: loss "
    assert any(why in line for line in lines)
    assert all(" gets seed " in line for line in lines if " seeds: loss " in line)
    assert any(" seed 1 finished after 3 iterations, loss" in line for line in lines)


def test_a_further_seed_with_a_later_goal_than_its_trial_is_printed_once(tmp_path: Path) -> None:
    """A trial that has met a target stays at the goal that it had then."""
    pipe = io.StringIO()
    view = PlainView(Terminal(pipe))
    stop = {"training_iteration": 3, "loss": {"<=": 1e9}}
    more = {"seeds": {3: 2}, "scheduler": "asha", "stop": stop}
    folder = sweeps.make(tmp_path, **{**THREE, **more})
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        view.begin(parts, [])
        Driver(parts, view.update).run()
    told = [line for line in pipe.getvalue().splitlines() if "promoted to 2 seeds" in line]
    assert len(told) == 1
    assert " gets seed 1, promoted to 2 seeds: " in told[0]


def test_explain_tells_why_each_seed_was_added_with_its_numbers(tmp_path: Path) -> None:
    plan = {1: 2, 3: 3}
    folder = sweeps.make(tmp_path, **{**THREE, "seeds": plan, "scheduler": "asha"})
    sweeps.run(folder)
    with launch.open_context(
        Launch(folder, 1, "inline", final_evaluation=FinalEvaluation(2, 1))
    ) as (
        parts,
        _,
    ):
        FinalEvaluator(parts, lambda _: None).run()
    sweep = lookup.read(folder)
    steps = [step for t in range(3) for step in explanation.explain(sweep, t)["decisions"]]
    added = [step for step in steps if step["what"].startswith("got seed ")]
    assert len(added) == sum(len(trial.replicas) - 1 for trial in sweep.history.trials)
    assert any("promoted" in str(step["facts"]) for step in added)
    assert "test" not in str([step["what"] for step in steps])


def test_a_final_evaluation_is_shown_with_its_own_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.cli.live.REDRAW_S", 0.0)
    folder = sweeps.make(tmp_path, **{**THREE, "seeds": 1})
    sweeps.run(folder)
    pipe, screen = io.StringIO(), io.StringIO()
    plain = PlainView(Terminal(pipe))
    live = LiveView(Terminal(screen, force_terminal=True, width=80, height=24, color_system=None))
    with launch.open_context(
        Launch(folder, 1, "inline", final_evaluation=FinalEvaluation(2, 2))
    ) as (
        parts,
        _,
    ):
        for view in (plain, live):
            view.begin(parts, [])

        def watch(recorded: Sequence[Recorded]) -> None:
            plain.update(recorded)
            live.update(recorded)

        FinalEvaluator(parts, watch).run()
        assert progress.final_evaluation_fraction(parts.history, Aim((), {})) == 1.0
        live.end()
    assert "test 1 finished after 3 iterations, loss" in pipe.getvalue()
    assert "4 of 4 tests of trials" in screen.getvalue()
    assert ".test1" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_each_running_seed_has_a_row_and_a_note_of_its_own() -> None:
    trial = trials.trial(4, Status.RUNNING, [1.0])
    second = Replica(4, 1, trial.objective, status=Status.RUNNING, goal=Goal(9))
    trial.replicas.append(second)
    past = trials.history([*(trials.trial(n, Status.PAUSED) for n in range(4)), trial], 5)
    assert progress.running(past) == trial.replicas
    notes = {(4, 1): Note(3, 3.0, 0.5)}
    rows = [overview.running_replica(past, r, notes, None, 0.0) for r in progress.running(past)]
    assert [(row["name"], row["iteration"], row["value"]) for row in rows] == [
        ("4", 1, 1.0),
        ("4.1", 3, 0.5),
    ]
    shown = io.StringIO()
    Terminal(shown).show(tables.running(rows, "score", "training_iteration"))
    assert "4.1" in shown.getvalue()


def test_the_progress_of_a_trial_is_the_mean_of_its_seeds() -> None:
    trial = trials.trial(0, Status.RUNNING, [1.0] * 4)
    trial.replicas.append(Replica(0, 1, trial.objective, status=Status.RUNNING))
    past = trials.history([trial], 1)
    aim = Aim((), {"training_iteration": 8})
    trial.replicas[0].last_metrics = {"training_iteration": 4}
    assert progress.fraction(past, aim) == pytest.approx(0.25)
    assert progress.fraction(past, aim, {(0, 1): Note(8, 8.0, None)}) == pytest.approx(0.75)


def test_a_stopped_final_evaluation_says_how_to_continue(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, **{**THREE, "seeds": 1})
    sweeps.run(folder)
    with launch.open_context(
        Launch(folder, 1, "inline", final_evaluation=FinalEvaluation(2, 2))
    ) as (
        parts,
        _,
    ):

        def watch(recorded: Sequence[Recorded]) -> None:
            if parts.history.test_replicas(Status.COMPLETED):
                evaluator.ask_to_stop()

        evaluator = FinalEvaluator(parts, watch)
        assert evaluator.run() == "stopped"
    data = overview.best(lookup.read(folder))
    assert lookup.read(folder).state is lookup.State.FINISHED
    shown = io.StringIO()
    Terminal(shown).show(trial_tables.best(data))
    again = f"sweep best demo --root {folder.root} --test-seeds 2 --top 2"
    assert f"# 1 of 4 tests have ended; continue with: {again}" in shown.getvalue()
