"""Tests of the comparison of searches: tables, plays, figures and the page."""

import itertools
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks.search import (
    figures,
    game,
    log,
    ours,
    peers,
    plays,
    prior,
    prior_check,
    report,
    trained,
)
from benchmarks.search.__main__ import main
from benchmarks.search.game import ABSENT, Game, Parameter, Play
from benchmarks.search.peers import Best, Progress, Trial
from sweep.searchers._shared.prior import games
from tests.support.waiting import wait_until

SPACE: Mapping[str, list[Any]] = {
    "lr": ["log", 1e-4, 1e-1],
    "model.width": ["choice", [16, 32]],
    "act": ["choice", ["tanh", [1, 2]]],
    "n": ["logint", 1, 8],
}
SETTINGS, SEEDS, POINTS = 6, 4, 8


def write_table(path: Path, **changes: Any) -> Path:
    """Write a table of which row r is worth r, and every seed a little more or less."""
    rows = np.arange(SETTINGS, dtype=np.float32)[:, None]
    final = rows + np.linspace(-0.3, 0.3, SEEDS, dtype=np.float32)
    evals = final[:, :, None] * np.linspace(0.1, 1.0, POINTS, dtype=np.float32)
    arrays: dict[str, Any] = {
        "space": json.dumps(SPACE),
        "hp/lr": np.geomspace(1e-4, 1e-1, SETTINGS).astype(np.float32),
        "hp/model.width": np.array([16, 32] * 3, np.float32),
        "hp/act": np.array([json.dumps(word) for word in ["tanh", [1, 2]] * 3]),
        "hp/n": np.array([1, 2, np.nan, 4, 5, 8], np.float32),
        "evals": evals,
        "final": final,
        "steps": np.array(800),
        **changes,
    }
    with path.open("wb") as file:
        np.savez(file, **{f"toy/{key}": array for key, array in arrays.items()})
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "small.npz")


@pytest.fixture
def toy(table: Path) -> Game:
    (found,) = game.load(table)
    return found


# ---- tables -------------------------------------------------------------------------------------


def test_a_table_is_read_as_it_was_written(toy: Game) -> None:
    assert (toy.name, toy.points, toy.seeds, toy.steps) == ("toy", POINTS, SEEDS, 800)
    assert toy.rows[1] == {
        "lr": pytest.approx(4e-4, rel=0.01),
        "model.width": 32,
        "act": [1, 2],
        "n": 2,
    }
    assert "n" not in toy.rows[2], "a condition leaves it out"
    assert toy.rows[0]["lr"] == 1e-4, "rounding to 32 bits leaves no range"
    assert list(toy.worth) == pytest.approx(range(SETTINGS))


def test_what_lies_between_rows_is_answered_by_the_nearest(toy: Game) -> None:
    assert [toy.nearest(row) for row in toy.rows] == list(range(SETTINGS))
    near = {**toy.rows[3], "lr": toy.rows[3]["lr"] * 1.2}
    assert toy.nearest(near) == 3
    assert 0 < ABSENT < 1


def test_what_diverged_counts_as_the_least_value_of_the_table(tmp_path: Path) -> None:
    final = np.array([[1.0, np.nan], [2.0, np.inf], [3.0, 3.0], [4, 4], [5, 5], [6, 6]])
    (found,) = game.load(write_table(tmp_path / "t.npz", final=final, evals=np.ones((6, 2, 3))))
    assert found.final.tolist() == [[1, 1], [2, 1], [3, 3], [4, 4], [5, 5], [6, 6]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"final": np.ones((2, SEEDS))},
            r"toy: ValueError: 6 settings, evals .* and final \(2, 4\)",
        ),
        ({"space": json.dumps({"gone": ["uniform", 0, 1]})}, "toy: KeyError: 'toy/hp/gone'"),
        ({"final": np.ones((SETTINGS, SEEDS))}, "all its settings have the same score"),
        ({"evals": np.ones((6, 1, 2)), "final": np.ones((6, 1))}, "one seed; expected two or more"),
    ],
)
def test_a_file_that_is_no_table_says_why(changes: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        list(game.load(write_table(tmp_path / "t.npz", **changes)))
    (tmp_path / "text.npz").write_text("no table")
    with pytest.raises(ValueError, match="not a table of learning curves"):
        list(game.load(tmp_path / "text.npz"))


def test_places_and_values_of_a_parameter_are_inverse() -> None:
    for raw in (*trained.PPO.values(), *trained.DQN.values(), *trained.SAC.values()):
        parameter = Parameter.parse(list(raw))
        for place in (0.0, 0.3, 0.999):
            value = parameter.value_at(place)
            if parameter.kind == "choice":
                assert value in parameter.words
            else:
                assert parameter.words[0] <= value <= parameter.words[1]
            if parameter.kind in ("log", "uniform"):
                assert parameter.position_of(value) == pytest.approx(place, abs=1e-9)


def test_seeds_that_judge_are_never_seen(toy: Game) -> None:
    for number in range(5):
        play = Play(toy, number)
        for row in range(SETTINGS):
            seen = {
                play.value(row, trial, seed, POINTS) for trial in range(20) for seed in range(3)
            }
            judging = [value for value in toy.final[row] if value not in seen]
            assert len(seen) == SEEDS // 2
            assert play.truth(row) == pytest.approx(np.mean(judging))
    splits = {Play(toy, number).truth(0) for number in range(20)}
    assert len(splits) > 2, "each play splits anew"


def test_further_seeds_of_a_trial_are_others(toy: Game) -> None:
    play = Play(toy, 0)
    for trial in range(10):
        assert play.value(3, trial, 0, 1) != play.value(3, trial, 1, 1)
        assert play.value(3, trial, 0, 1) == play.value(3, trial, 0, 1)


# ---- searches -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ours.METHODS)
def test_our_searches_are_whole_sweeps_that_end_with_their_budget(method: str, toy: Game) -> None:
    for workers in (1, 3):
        picks = list(ours.search(ours.METHODS[method], Play(toy, 1), workers, 4))
        assert 4 * POINTS <= picks[-1].points < (4 + 3 * workers) * POINTS
        assert all(one.points <= other.points for one, other in itertools.pairwise(picks))
        assert picks[-1].row >= 3, "the better half of the rows"
        assert picks == list(ours.search(ours.METHODS[method], Play(toy, 1), workers, 4))


@pytest.mark.slow
def test_the_name_of_the_game_is_filled_in_and_keys_that_are_refused_are_a_word(toy: Game) -> None:
    keys = {"searcher": {"name": "tpe", "prior": "without-{game}.npz"}}
    assert ours.spec(keys, toy, 0, 2)["searcher"]["prior"] == "without-toy.npz"
    said: list[str] = []
    methods = {"wrong": {"schedular": "asha"}, "right": {"searcher": "random"}}
    selection = plays.Selection((), methods, list(peers.methods()), 1, [1])
    left = plays.available(selection, toy, said.append)
    assert list(left.methods) == ["right"]
    assert said[0].startswith("wrong is skipped: ")
    assert "schedular" in said[0]
    assert {"Optuna TPE, Hyperband", "Ray Tune ASHA"} <= set(left.peers)
    assert all(" is skipped: " in line for line in said)


@pytest.mark.slow
@pytest.mark.parametrize("method", peers.methods())
def test_a_peer_is_asked_and_told_until_its_budget_is_used_up(method: str, toy: Game) -> None:
    kind = peers.methods()[method]
    if reason := peers.obstacle(kind, toy):
        pytest.skip(reason)
    for workers in (1, 3):
        picks = list(peers.run_search(kind.make(toy, 1), Play(toy, 1), workers, 6))
        assert 6 * POINTS <= picks[-1].points < 6 * POINTS + 3
        assert picks[-1].row >= 2


class OneByOne:
    """A search that trains the rows of a table one after the other, for two points each."""

    def __init__(self, toy: Game, seeds: int) -> None:
        self.rows = list(toy.rows)
        self.seeds = seeds
        self.told: list[tuple[int, int]] = []

    def ask(self) -> Trial | None:
        if not self.rows:
            return None
        return Trial(SETTINGS - len(self.rows), self.rows.pop(0), seeds=self.seeds)

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        self.told.append((trial.number, point))
        return point < 2

    def best(self, told: Mapping[int, Progress]) -> Best | None:
        return peers.best_of_longest(told)


def test_workers_train_at_once_and_each_seed_is_paid_for(toy: Game) -> None:
    made = OneByOne(toy, 1)
    assert [pick.points for pick in peers.run_search(made, Play(toy, 0), 1, 10)] == list(
        range(1, 13)
    )
    assert made.told == [(n, point) for n in range(6) for point in (1, 2)]
    made = OneByOne(toy, 3)
    picks = list(peers.run_search(made, Play(toy, 0), 2, 10))
    assert [pick.points for pick in picks] == list(range(3, 39, 3))
    assert made.told[:4] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert picks[-1].row == 5
    assert len(list(peers.run_search(OneByOne(toy, 1), Play(toy, 0), 1, 1))) == POINTS


# ---- figures ------------------------------------------------------------------------------------


def rows(method: str, regrets: list[list[float | None]]) -> list[dict[str, Any]]:
    """Searches as they stand in the file of plays."""
    return [
        {
            "table": "t",
            "game": "toy",
            "method": method,
            "workers": 1,
            "play": play,
            "steps": 800,
            "by": "optuna 5.0" if method.startswith("Optuna") else "",
            "regret": regret,
            "excess": regret,
            "seconds": 1.0,
        }
        for play, regret in enumerate(regrets)
    ]


def falling(first: float, each: float) -> list[float | None]:
    """Return a regret that falls at every look, and stays at 0."""
    return [max(0.0, first - each * look) for look in range(len(plays.LOOKS))]


def test_methods_are_compared_on_the_plays_that_all_have_played() -> None:
    slow, quick = [falling(48.0, 2.0)] * 5, [falling(48.0, 4.0)] * 3
    never: list[list[float | None]] = [[None, *[50.0] * 24]] * 4
    played = [*rows("asha, tpe", slow), *rows("Optuna X", quick), *rows("own", never)]
    found = figures.sum_up(played)
    (its,) = found["games"]
    assert its["plays"] == 3
    assert its["methods"]["asha, tpe"]["reached"] == [16.0, 16.0, 16.0]
    assert its["methods"]["Optuna X"]["reached"] == [4.0, 4.0, 4.0]
    assert its["methods"]["own"]["reached"] == [None, None, None]
    assert its["methods"]["own"]["regret"][0][:2] == [100.0, 50.0]
    assert its["methods"]["own"]["excess"][0] is None
    assert its["beside"]["asha, tpe"] == ["Optuna X", 0.0, 0.0, 0.0]
    assert its["beside"]["own"] == ["Optuna X", 50.0, 50.0, 50.0]
    page = report.text(found)
    assert "**Peers** (optuna 5.0) are used" in page
    assert "| toy | 1 | **own** | Optuna X | +50.0 (+50.0 to +50.0) | too few plays |" in page
    assert "**toy** (t), 800 steps a training, 3 plays:" in page
    many = [*rows("asha, tpe", [falling(48.0, 2.0)] * 10), *rows("Optuna X", [dips()] * 10)]
    assert "| -40.0 (-40.0 to -40.0) | **won** |" in report.text(figures.sum_up(many))


def test_the_page_begins_with_the_regret_of_the_default_and_of_the_best_peer() -> None:
    lines = {"asha, tpe": 48.0, "default": 30.0, "Optuna X": 40.0, "Optuna Y": 44.0}
    played = [row for name, first in lines.items() for row in rows(name, [[first] * 25] * 2)]
    page = report.text(figures.sum_up(played))
    answer = page.split("\n\n")[1].replace("\n", " ")
    assert "settings that score 30 % (median: 30 %) lower than the best ones" in answer
    best_other = "Settings of the best other method, Optuna X, score 40 % (median: 40 %) lower."
    assert best_other in answer
    assert "(`asha` with `tpe`), sweep's settings score 48 % (median: 48 %) lower." in answer
    assert "with the same seeds for all methods, 2 times with one worker;" in page.replace(
        "\n", " "
    )
    assert "| **default** | 30, 30 | 30, 30 |" in page
    assert "| toy | 1 | **default** | Optuna X | -10.0 " in page
    assert "| toy | 1 | **asha, tpe** |" not in page, "only the default stands beside the best peer"


def test_the_page_shows_the_means_of_each_collection_of_games() -> None:
    regrets = {"asha, tpe": (48.0, 20.0), "default": (30.0, 15.0), "Optuna X": (40.0, 5.0)}
    of_file = {"landscapes": [f"game {n}" for n in range(report.COLLECTION)], "own": ["toy"]}
    played = [
        {**row, "game": game, "table": table}
        for method, values in regrets.items()
        for value, (table, games) in zip(values, of_file.items(), strict=True)
        for game in games
        for row in rows(method, [[value] * 25] * 2)
    ]
    page = report.text(figures.sum_up(played)).replace("\n", " ")
    assert "the means are 30 % against 40 % on the 4 games of ARLBench" in page
    assert "15 % against 5 % on the 1 game of sweep's own tables." in page
    assert "Only the 4 games of ARLBench" in page
    alone = [row for row in played if row["table"] == "own"]
    assert "By collection" not in report.text(figures.sum_up(alone)).replace("\n", " ")


def dips() -> list[float | None]:
    """Return a regret that is 0 at once, then 40 for long."""
    return [0.0, *[40.0] * 19, *[0.0] * 4, 40.0]


def test_what_is_reached_must_also_be_kept() -> None:
    kept = [*dips()[:-1], 0.0]
    played = [*rows("asha, tpe", [falling(48.0, 2.0)]), *rows("own", [kept])]
    found = figures.sum_up(played)
    assert found["games"][0]["methods"]["own"]["reached"][0] == plays.LOOKS[20]


def test_the_newest_pick_that_was_paid_for_is_looked_at() -> None:
    picks = [peers.Pick(points, points, 0.0) for points in (2, 3, 5, 9, 50)]
    seen, points = plays._picks_at(picks, [1, 2, 4, 5, 8, 16])
    assert [pick and pick.points for pick in seen] == [None, 2, 3, 5, 5, 9]
    assert points == 16
    assert plays._picks_at(picks[:2], [1, 2, 4, 5, 8, 16])[1] == 3


def test_a_search_that_ends_itself_is_shown_beside_the_one_that_goes_on() -> None:
    whole = [{**row, "spent": 64.0} for row in rows("asha, tpe", [falling(48.0, 2.0)] * 2)]
    ended = [{**row, "spent": 16.0} for row in rows("asha, tpe, settled", [falling(48.0, 3.0)] * 2)]
    found = figures.sum_up([*whole, *ended])
    saved, more = found["games"][0]["settled"]["asha, tpe, settled"]
    assert saved == 0.75
    assert more == ended[0]["regret"][-1] - whole[0]["regret"][-1]
    assert "| mean | | | 75% |" in report.text(found)


def test_claims_are_held_against_their_errors_and_those_of_the_judges() -> None:
    near = [0.5] * len(plays.LOOKS)
    far = [1.5] * len(plays.LOOKS)
    early = [9.0] * 12 + [0.5] * 13  # looks before 8 trainings do not count
    played = rows("own", [falling(48.0, 2.0)] * 3)
    played = [
        {**row, "errors": errors} for row, errors in zip(played, (near, far, early), strict=True)
    ]
    found = figures.sum_up([*played, *rows("Optuna X", [falling(48.0, 2.0)] * 3)])
    (its,) = found["games"]
    assert its["methods"]["own"]["within"] == [0.667, 1.0, 39]
    assert "within" not in its["methods"]["Optuna X"]
    assert "| toy | 67%, 100% |" in report.text(found)


def test_picks_at_marks_are_those_that_stand_after_all_ends_of_slices(toy: Game) -> None:
    marks = [look * toy.points for look in plays.LOOKS if look <= 4]
    keys, play = ours.METHODS["asha, random"], Play(toy, 0)
    every = plays._picks_at(ours.search(keys, play, 2, 4), marks)
    assert plays._picks_at(ours.search(keys, play, 2, 4, marks), marks)[0] == every[0]
    picks = [pick for pick in every[0] if pick is not None and pick.error is not None]
    assert picks
    for pick in picks:
        assert pick.error is not None
        error = math.hypot(pick.error, play.standard_error(pick.row))
        assert plays._errors(play, pick) == round(abs(pick.claim - play.truth(pick.row)) / error, 3)


# ---- the command --------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_plays_goes_on_and_writes_figures_page_and_picture(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "OWN_TABLES", tmp_path / "none")
    own, out = tmp_path / "mine.yaml", tmp_path / "out"
    own.write_text("searcher: random\nscheduler: {name: asha, grace_period: 2}\n")
    names = [
        "asha, tpe",
        "mine",
        "Optuna TPE, successive halving",
        "SMAC3 multi-fidelity",
    ]
    words = ["--table", str(table), "--table", "gone.npz", "--spec", str(own), "--jobs", "1"]
    words += ["--trainings", "2", "--out", str(out), "--methods", *names]
    main([*words, "--plays", "1", "--play-only"])
    path = out / "plays.jsonl"
    first = path.read_text()
    assert not (out / "search.md").exists()
    path.write_text(first + '{"torn')
    main([*words, "--plays", "2"])
    assert path.read_text().startswith(first), "what was played is not played again"
    keys = [tuple(row[k] for k in ("method", "workers", "play")) for row in log.read(path)]
    assert len(keys) == len(set(keys)) == 3 * 2 * 2
    found = report.read(out / "results.json")
    assert {(one["game"], one["workers"], one["plays"]) for one in found["games"]} == {
        *{("toy", 1, 2), ("toy", 8, 2)}
    }
    page = (out / "search.md").read_text()
    assert page == report.text(found)
    assert "| **mine** |" in page
    assert (out / "search.svg").read_text().count("<svg") == 1


def test_without_plays_the_page_is_written_from_the_figures(tmp_path: Path) -> None:
    stored = tmp_path / "results.json"
    stored.write_bytes(report.RESULTS.read_bytes())
    main(["--report-only", "--out", str(tmp_path)])
    assert stored.read_bytes() == report.RESULTS.read_bytes()
    assert (tmp_path / "search.md").read_bytes() == report.PAGE.read_bytes()


def test_a_method_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--methods", "ahsa"])
    assert "no method is called 'ahsa'; there are: asha, tpe;" in capsys.readouterr().err


@pytest.mark.slow
def test_a_table_of_our_own_trainers_is_trained_and_can_be_played(tmp_path: Path) -> None:
    words = ["ppo-cartpole", "--settings", "2", "--seeds", "2", "--points", "2", "--episodes", "1"]
    words += ["--steps", "1024", "--jobs", "1", "--out", str(tmp_path)]
    trained.main(words)
    path = tmp_path / "ppo-cartpole.jsonl"
    before = path.read_text()
    trained.main(words)
    assert path.read_text() == before, "what was trained is not trained again"
    assert all(math.isfinite(value) for row in log.read(path) for value in row["evals"])
    with np.load(tmp_path / "ppo-cartpole.npz") as file:
        assert int(file["ppo-cartpole/steps"]) == 1024
        assert file["ppo-cartpole/evals"].shape == (2, 2, 2)


@pytest.mark.proof
def test_trainings_of_a_table_can_be_lanes_of_one_program(tmp_path: Path) -> None:
    words = ["ppo-cartpole", "--settings", "1", "--seeds", "4", "--points", "2", "--episodes", "1"]
    words += ["--steps", "1024", "--lanes", "3", "--out", str(tmp_path)]
    trained.main(words)
    path = tmp_path / "ppo-cartpole.jsonl"
    lines = sorted(path.read_text().splitlines())
    assert len({(row["setting"], row["seed"]) for row in log.read(path)}) == 4
    path.write_text("\n".join(lines[:3]) + "\n")
    trained.main(words)
    assert sorted(path.read_text().splitlines()) == lines, "a lane's curve is its own"
    with np.load(tmp_path / "ppo-cartpole.npz") as file:
        assert int(file["ppo-cartpole/steps"]) == 1024


def test_the_page_says_what_was_played() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.text(report.read())


def test_a_table_of_more_settings_has_those_of_a_smaller_one() -> None:
    task = trained.TASKS["dqn-cartpole"]
    few, many = (trained.settings(task, trained.Size(settings=n)) for n in (30, 100))
    assert (len(few), len(many)) == (30, 100)
    assert many[:30] == few
    assert len({one["lr"] for one in many}) == 100


def test_a_training_of_another_length_is_another_training() -> None:
    of_sizes = (
        set(trained.runs("dqn-cartpole", trained.Size(2, 1, points, steps, episodes)))
        for points, steps, episodes in [(3, 90, 1), (2, 90, 1), (3, 60, 1), (3, 90, 2)]
    )
    assert len(set().union(*of_sizes)) == 8


def test_the_prior_reads_tables_with_our_names_and_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(SETTINGS, dtype=np.float32)[:, None]
    final = np.concatenate([rows, rows], axis=1)
    own: dict[str, list[Any]] = {"tau": ["log", 1e-3, 1e-1], "model.hidden": ["choice", [[16]]]}
    arrays: dict[str, Any] = {
        "own/space": json.dumps(own),
        "own/algorithm": "dqn",
        "own/env": "CartPole-v1",
        "own/hp/tau": np.geomspace(1e-3, 1e-1, SETTINGS),
        "own/hp/model.hidden": np.array(["[16]", "[128]"] * 3),
        "own/final": final,
        "other/space": json.dumps({"one_minus_gamma": ["log", 1e-3, 1e-1], "epochs": [1, 16]}),
        "other/algorithm": "ppo",
        "other/hp/one_minus_gamma": np.geomspace(1e-3, 1e-1, SETTINGS),
        "other/hp/epochs": np.array([1, 2, 4, 8, 16, 16]),
        "other/final": -final,
    }
    np.savez(tmp_path / "tables.npz", **arrays)
    out = tmp_path / "out.npz"
    monkeypatch.setattr("sys.argv", ["prior", str(tmp_path / "tables.npz"), "--out", str(out)])
    prior.main()
    with np.load(out) as made:
        dqn = {c.key: made["dqn/CartPole-v1/points"][:, n] for n, c in columns("dqn")}
        ppo = {c.key: made["ppo/other/points"][:, n] for n, c in columns("ppo")}
        assert list(dqn["model.hidden"]) == [0, 1] * 3
        assert np.all(np.diff(dqn["tau"]) > 0)
        assert np.isnan(dqn["lr"]).all()
        assert ppo["gamma"] == pytest.approx(np.linspace(0, 1, SETTINGS), abs=1e-3)
        assert ppo["num_sgd_iter"] == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1])
        assert np.all(np.diff(made["dqn/CartPole-v1/places"]) > 0)
        assert np.all(np.diff(made["ppo/other/places"]) < 0)


def test_settings_with_equal_scores_get_equal_places_in_the_prior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: dict[str, Any] = {
        "flat/space": json.dumps({"lr": ["log", 1e-4, 1e-2]}),
        "flat/algorithm": "dqn",
        "flat/hp/lr": np.geomspace(1e-4, 1e-2, SETTINGS),
        "flat/final": np.array([[-200.0]] * (SETTINGS - 1) + [[-150.0]]),
    }
    np.savez(tmp_path / "flat.npz", allow_pickle=False, **table)
    out = tmp_path / "out.npz"
    monkeypatch.setattr("sys.argv", ["prior", str(tmp_path / "flat.npz"), "--out", str(out)])
    prior.main()
    with np.load(out) as made:
        *equal, best = made["dqn/flat/places"].tolist()
    assert len({*equal}) == 1
    assert equal[0] < 0 < best < 0.5


def columns(trainable: str) -> list[tuple[int, Any]]:
    return list(enumerate(games.COLUMNS[trainable]))


@pytest.mark.parametrize("name", ["CartPole-v1", "cc_cartpole_ppo", "ppo-cartpole"])
def test_no_prior_of_a_game_has_seen_it_under_any_name(name: str) -> None:
    others = prior.other_games(name, "ppo")
    assert "ppo/CartPole-v1" not in others
    assert len(others) == 5


def test_the_check_of_the_prior_leaves_the_game_itself_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = np.random.default_rng(0)
    rates = np.exp(stream.uniform(np.log(1e-5), np.log(1e-2), 60))
    final = np.repeat(-abs(np.log(rates / 3e-3))[:, None], 4, axis=1)
    tables: dict[str, Any] = {}
    for name in ("CartPole-v1", "Unseen-v0"):
        space = json.dumps({"learning_rate": ["log", 1e-5, 1e-2]})
        tables |= {f"{name}/space": np.array(space), f"{name}/hp/learning_rate": rates}
        tables |= {f"{name}/final": final, f"{name}/evals": np.repeat(final[..., None], 3, axis=2)}
    np.savez(tmp_path / "two.npz", **tables)
    monkeypatch.setattr("sys.argv", ["prior_check", str(tmp_path / "two.npz")])
    prior_check.main()
    _, first, second, mean = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first[:2] == ["CartPole-v1", "5"]
    assert second[:2] == ["Unseen-v0", "6"]
    assert float(second[2]) > 0.75  # a rate that is good in the known games is good here
    assert float(second[3]) > 0.5
    assert mean[0] == "mean"


def wait_for_ever(path: str) -> dict[str, Any]:
    Path(path).write_text(str(os.getpid()))
    threading.Event().wait()
    return {}


@pytest.mark.slow
def test_the_searches_of_a_killed_benchmark_end_with_it(tmp_path: Path) -> None:
    marker, out = tmp_path / "pid", tmp_path / "plays.jsonl"
    code = (
        "from pathlib import Path; from benchmarks.search import log; "
        "from tests.benchmarks.test_search import wait_for_ever; "
        f"log.append_results(Path({str(out)!r}), wait_for_ever, [({str(marker)!r},)], 1)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: marker.exists() and marker.read_text() != "")
    child = int(marker.read_text())
    assert psutil.pid_exists(child)
    parent.kill()
    parent.wait()
    wait_until(lambda: not psutil.pid_exists(child))


def test_the_readme_has_the_distances_that_were_measured() -> None:
    stored = report.read()
    games = [game for game in stored["games"] if game["workers"] == 1]
    places = [stored["looks"].index(trainings) for trainings in (4, figures.REACHED_AT)]
    means = report._over_games(games, np.mean)
    cells = [
        ", ".join(f"{means[method][place]:.0f} %" for place in places)
        for method in ("default", "Ray Tune ASHA", "Optuna TPE, Hyperband")
    ]
    readme = (report.PAGE.parents[1] / "README.md").read_text("utf-8")
    repetitions = report._counts(games).removesuffix(" times with one worker")
    assert f"over {len(games)} tasks, {repetitions} repetitions" in readme
    assert "| {} | {} (ASHA) | {} (TPE, Hyperband) |".format(*cells) in readme
