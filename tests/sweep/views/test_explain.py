"""`sweep explain`: each decision in words, with the numbers that it was based on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sweep.cli import trial_tables
from sweep.cli.main import main
from sweep.cli.terminal import Terminal
from sweep.history.events import Closed, Created, End, Goal, Opened, ParentCheckpoint, Status
from sweep.ledger.folder import Folder
from sweep.ledger.requests import Verb
from sweep.operations.control_client import ask
from sweep.views import explanation, lookup, overview
from tests.support import sweeps
from tests.support.events import Story

PBT = {"name": "pbt", "perturbation_interval": 3}
MEDIAN = {"name": "median", "n_startup_trials": 2, "interval": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A sweep under ASHA, done."""
    made = sweeps.make(tmp_path_factory.mktemp("asha"), searcher="random", trackers=())
    sweeps.run(made)
    return made


def explain(folder: Folder, trial: int) -> dict[str, Any]:
    return explanation.explain(lookup.read(folder), trial)


def best(folder: Folder) -> int:
    return sweeps.history(folder).ranked()[0].number


def test_a_promotion_is_told_with_its_place_and_the_scores_around_it(folder: Folder) -> None:
    number = best(folder)
    steps = explain(folder, number)["decisions"]
    assert [step["what"] for step in steps] == [
        "proposed",
        "started, up to 1",
        "paused",
        "continued, up to 3",
        "paused",
        "continued, up to 9",
        "completed",
    ]
    promoted = steps[3]
    (table,) = promoted["tables"]
    assert table["columns"] == ["places", "trials", "scores", "steps"]
    assert [row[1] for row in table["rows"]].count(number) == 1
    scores = [row[2] for row in table["rows"]]
    assert scores == sorted(scores)
    assert promoted["facts"]["rung"] == 1
    assert "promoted to rung 3" in promoted["why"]


def test_a_trial_that_was_left_behind_is_told_where_it_stands(folder: Folder) -> None:
    number = sweeps.history(folder).ranked()[-1].number
    data = explain(folder, number)
    assert data["status"] == "PRUNED"
    assert data["decisions"][-1]["what"] == "pruned"
    assert data["stands"]["facts"]["place"] == data["stands"]["facts"]["of"] == 9


def test_a_child_and_who_it_replaced_are_told(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler=PBT, trials=4, deterministic=None)
    sweeps.run(folder)
    child = explain(folder, 4)
    born, started = child["decisions"][:2]
    assert (born["what"], born["why"]) == ("bred", f"from trial {child['parent']}, iteration 3")
    assert started["facts"]["parent"] == child["parent"]
    assert started["tables"][1]["columns"] == ["settings", "parent's", "child's"]
    replaced = explain(folder, started["facts"]["replaces"])
    assert replaced["decisions"][-1]["why"].startswith("replaced: ")
    assert 4 in explain(folder, child["parent"])["children"]


def test_a_stopped_trial_is_told_what_it_was_compared_with(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler=MEDIAN, trials=9, searcher="random")
    sweeps.run(folder)
    pruned = sweeps.history(folder).with_status(Status.PRUNED)[0]
    last = explain(folder, pruned.number)["decisions"][-1]
    assert last["what"] == "pruned"
    assert last["facts"]["pruner"] == "MedianPruner"
    assert len(last["tables"][0]["rows"]) == last["facts"]["completed"] >= 2


def test_the_command_prints_words_and_numbers_or_json(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    root, number = str(folder.root), str(best(folder))
    assert main(["explain", "demo", number, "--root", root]) == 0
    text = capsys.readouterr().out
    assert "continued, up to 3" in text
    assert "place 1 of" in text
    assert "place  trial" in text
    assert main(["explain", "demo", number, "--root", root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trial"] == int(number)


def test_a_trial_that_does_not_exist_is_refused(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "demo", "99", "--root", str(folder.root)]) == 2
    assert "demo has trials 0 to 8" in capsys.readouterr().err


def test_decisions_about_several_seeds_are_told_once_and_ends_by_seed(tmp_path: Path) -> None:
    told = Story.create(tmp_path)
    told.begin()
    told.tell(Created(0, {}, {}, 0, replicas=2))
    both = [Opened(0, seed, 0, Goal(9.0), "a slot was free", {"of": 3}) for seed in (0, 1)]
    told.tell(*both)
    steps = explain(told.where.folder, 0)["decisions"]
    assert [(step["what"], step["facts"]) for step in steps] == [
        ("proposed", {}),
        ("started, up to 9", {"of": 3}),
    ]
    for seed, status in enumerate((Status.COMPLETED, Status.STOPPED)):
        told.tell(Closed(0, seed, 0, End.DONE, status, f"reason {seed}"))
    steps = explain(told.where.folder, 0)["decisions"]
    assert [(step["what"], step["why"]) for step in steps[2:]] == [
        ("seed 0 completed", "reason 0"),
        ("seed 1 stopped", "reason 1"),
    ]


def test_where_a_trials_settings_are_from_is_told(tmp_path: Path) -> None:
    space = {"lr": {"loguniform": [1e-3, 0.9]}, "target": {"uniform": [0.0, 1.0]}}
    first = [{"lr": 0.5}, {"lr": 0.5, "target": 0.25}]
    folder = sweeps.make(tmp_path, space=space, initial=first, trials=3, deterministic=None)
    sweeps.run(folder)
    for body in ({"from_checkpoint": False}, {"from_checkpoint": True}):
        ask(folder, Verb.CLONE, {"trials_named": [1], "settings": {}, **body}, 0.0)
    sweeps.run(folder)
    came = [explain(folder, number)["decisions"][0] for number in range(5)]
    newest = sweeps.history(folder).trials[4].replicas[0].birth
    assert isinstance(newest, ParentCheckpoint)
    assert [(step["what"], step["why"]) for step in came] == [
        ("given", "under initial, the rest by the searcher tpe"),
        ("given", "under initial"),
        ("proposed", "by the searcher tpe"),
        ("cloned", "from trial 1, by a person"),
        ("cloned", f"from trial 1, iteration {newest.saved.iteration}, by a person"),
    ]
    sweep = lookup.read(folder)
    shown = [overview.show(sweep, number, [])["decisions"][0]["what"] for number in range(5)]
    assert shown == ["given", "given", "proposed", "cloned", "cloned"]


def test_what_a_grid_gave_is_told_beside_what_the_searcher_chose(tmp_path: Path) -> None:
    space = {"lr": {"grid": [0.1, 0.5]}, "target": {"uniform": [0.0, 1.0]}}
    folder = sweeps.make(tmp_path, space=space, trials=2)
    sweeps.run(folder)
    came = [explain(folder, number)["decisions"][0] for number in range(2)]
    why = "in turn, as grid says, the rest by the searcher tpe"
    assert [(step["what"], step["why"]) for step in came] == [("given", why)] * 2


def test_a_score_that_nobody_reported_is_told_to_be_interpolated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asha = {"name": "asha", "grace_period": 1.5, "max_t": 9}
    folder = sweeps.make(tmp_path, scheduler=asha, searcher="random", trackers=())
    sweeps.run(folder)
    ranked = sweeps.history(folder).ranked()

    def shown(number: int) -> str:
        assert main(["explain", "demo", str(number), "--root", str(folder.root)]) == 0
        return " ".join(capsys.readouterr().out.split())

    promoted = shown(ranked[0].number)
    assert re.search(r"\(interpolated between \S+ at 1 and \S+ at 2\) is place 1 of", promoted)
    left = shown(ranked[-1].number)
    assert "scores at training_iteration 1.5, interpolated where a trial reported" in left


def test_a_clone_that_began_only_with_a_larger_budget_is_explained(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=1, budget={"timesteps": 30})
    sweeps.run(folder)
    ask(folder, Verb.CLONE, {"trials_named": [0], "settings": {}}, 0.0)
    sweeps.run(folder)
    sweeps.run(folder, budget={"timesteps": 1000})
    told = [step["what"] for step in explain(folder, 1)["decisions"]]
    assert told == ["cloned", "pruned", "waiting", "started, up to the end", "completed"]


def test_every_trial_can_be_explained(folder: Folder) -> None:
    import io

    for trial in sweeps.history(folder).trials:
        out = io.StringIO()
        Terminal(out).show(trial_tables.explanation(explain(folder, trial.number)))
        assert f"trial {trial.number} of demo" in out.getvalue()


def test_comparisons_that_change_nothing_are_printed_once_with_their_number(tmp_path: Path) -> None:
    import io

    folder = sweeps.make(
        tmp_path,
        searcher="random",
        trackers=(),
        scheduler={"name": "median", "n_startup_trials": 2},
        stop={"training_iteration": 9},
    )
    sweeps.run(folder)
    told = explain(folder, best(folder))
    assert [step["what"] for step in told["decisions"]][2::2] == ["paused"] * 8 + ["completed"]
    out = io.StringIO()
    Terminal(out).show(trial_tables.explanation(told))
    assert out.getvalue().count("continued, up to") == 1
    assert "continued, up to 9 after each of 8 comparisons (--json shows all)" in out.getvalue()
    assert "paused" not in out.getvalue()
    assert out.getvalue().count("compared with") == 1
