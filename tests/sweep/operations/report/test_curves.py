"""Learning curves: thin without losing their ends and spikes, intervals over seeds, in dots."""

import io
import math
from pathlib import Path

import pytest

from benchmarks.engine import large
from sweep.cli import tables
from sweep.cli.terminal import Terminal
from sweep.core import stats
from sweep.history.events import Status
from sweep.operations.report import braille, curves
from sweep.operations.report.curves import Curve, thin
from sweep.testing import CurvePoint, Simulation
from sweep.views import lookup, overview
from tests.support import sweeps
from tests.support.command_line import Here


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return Here(capsys, tmp_path)


def test_a_thinned_curve_keeps_its_ends_and_its_spikes() -> None:
    points = [(float(i), math.sin(i / 50)) for i in range(5000)]
    points[1234] = (1234.0, 99.0)
    points[4321] = (4321.0, -99.0)
    found = thin(points, 100)
    assert 50 <= len(found) <= 100
    assert {points[0], points[-1], points[1234], points[4321]} <= set(found)
    assert found == sorted(found)
    assert thin(points[:100], 100) == points[:100]


def test_the_best_have_a_place_and_those_that_ended_early_are_marked(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trackers=())
    sweeps.run(folder)
    sweep = lookup.read(folder)
    drawn = {curve.trial: curve for curve in curves.curves(sweep, best=3).drawn}
    assert len(drawn) == 9
    ranked = [trial.number for trial in sweep.history.ranked()]
    assert [drawn[number].place for number in ranked[:4]] == [0, 1, 2, None]
    early = {number for number, curve in drawn.items() if curve.ended_early}
    assert early == {t.number for t in sweep.history.trials if t.status is not Status.COMPLETED}
    assert early


def test_several_seeds_are_their_mean_with_students_interval(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trackers=(), trials=3, seeds=3, scheduler="fifo")
    sweeps.run(folder)
    sweep = lookup.read(folder)
    for curve in curves.curves(sweep).drawn:
        replicas = sweep.history.trials[curve.trial].replicas
        values = [replica.curve[4].value or 0.0 for replica in replicas]
        expected = stats.mean_interval(values)
        assert curve.seeds == 3
        assert curve.points[4] == (5.0, expected.value)
        assert (curve.low[4], curve.high[4]) == (expected.low, expected.high)


def test_curves_of_a_score_that_is_a_mean_of_the_last_values_end_at_the_score(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(tmp_path, trackers=(), trials=3, score={"mean_last": 2})
    sweeps.run(folder)
    sweep = lookup.read(folder)
    history = sweep.history
    for curve in curves.curves(sweep).drawn:
        trial = history.trials[curve.trial]
        raw = [point.value or 0.0 for point in trial.replicas[0].curve]
        means = [stats.mean(raw[max(0, place - 1) : place + 1]) for place in range(len(raw))]
        assert [value for _, value in curve.points] == pytest.approx(means)
        assert curve.points[-1][1] == pytest.approx(trial.score)


def test_a_seed_that_met_its_stopping_criterion_keeps_its_last_value() -> None:
    """Otherwise the mean would end where the first seed does."""

    def game(at: CurvePoint) -> dict[str, float]:
        return {"score": float(at.iteration * (1 + at.seed_index))}

    spec = {"trials": 1, "seeds": 2, "scheduler": "fifo", "stop": {"score": 6}}
    with Simulation(spec, game) as made:
        made.run()
        sweep = lookup.read(made.folder)
    (curve,) = curves.curves(sweep).drawn
    assert curve.points == [(1, 1.5), (2, 3.0), (3, 4.5), (4, 5.0), (5, 5.5), (6, 6.0)]
    band = overview.show(sweep, 0, [])["band"]
    assert [row["greatest"] for row in band] == [2, 4, 6, 6, 6, 6]
    assert [row["least"] for row in band] == [1, 2, 3, 4, 5, 6]


def test_the_time_of_a_mean_never_falls() -> None:
    """The second seed is slower, and alone after the first has ended."""

    def game(at: CurvePoint) -> dict[str, float]:
        score = float(at.iteration * (3 - 2 * at.seed_index))
        return {"score": score, "games": at.iteration * (10 - 9 * at.seed_index)}

    by_games = {"name": "asha", "time_attr": "games", "grace_period": 900, "max_t": 900}
    with Simulation(
        {"trials": 1, "seeds": 2, "scheduler": by_games, "stop": {"score": 6}}, game
    ) as made:
        made.run()
        (curve,) = curves.curves(lookup.read(made.folder)).drawn
    times = [time for time, _ in curve.points]
    assert len(times) == 6
    assert times == sorted(times)


def test_each_mean_of_a_thinned_curve_has_its_own_interval() -> None:
    """Also where several iterations end at one time, as where no game ends in one."""

    def game(at: CurvePoint) -> dict[str, float]:
        return {
            "score": at.iteration % 7 + at.iteration * at.seed_index,
            "games": at.iteration // 3,
        }

    by_games = {"name": "asha", "time_attr": "games", "grace_period": 300, "max_t": 300}
    with Simulation({"seeds": 2, "scheduler": by_games}, game) as made:
        made.run()
        (curve,) = curves.curves(lookup.read(made.folder)).drawn
    assert len(curve.points) < 900
    assert len(curve.points) == len(curve.low) == len(curve.high)
    for (_, mean), low, high in zip(curve.points, curve.low, curve.high, strict=True):
        assert (low + high) / 2 == pytest.approx(mean)


def test_many_trials_are_thinned_and_that_is_counted(tmp_path: Path) -> None:
    folder = large.make(tmp_path, trials=1000, iterations=90)
    found = curves.curves(lookup.read(folder))
    assert (found.trials, found.points) == (1000, 90_000)
    assert len(found.drawn) == curves.MOST_CURVES
    assert found.shown == sum(len(curve.points) for curve in found.drawn) < 65_000


def test_a_rising_line_is_drawn_from_the_lower_left_to_the_upper_right() -> None:
    picture = braille.draw([Curve(0, [(0.0, 0.0), (9.0, 9.0)])], 4, 2)
    text = ["".join(character for character, _ in row) for row in picture.rows]
    assert text == ["  ⡠⠊", "⡠⠊  "]
    assert (picture.times, picture.values) == ((0.0, 9.0), (0.0, 9.0))


def test_later_curves_lie_on_top_and_a_level_one_is_in_the_middle() -> None:
    level = [(0.0, 1.0), (1.0, 1.0)]
    picture = braille.draw([Curve(0, level), Curve(1, level)], 3, 3)
    owners = [[owner for _, owner in row] for row in picture.rows]
    assert owners == [[None] * 3, [1] * 3, [None] * 3]


def test_numbers_of_any_size_are_drawn() -> None:
    widest = [(0.0, -1.7e308), (1.0, 1.7e308)]
    picture = braille.draw([Curve(0, widest)], 4, 2)
    assert picture.rows[1][0][0] != " "
    assert picture.rows[0][3][0] != " "
    closest = [(0.0, 0.0), (1.0, 5e-324)]  # of which there is no half
    assert len(braille.draw([Curve(0, closest)], 4, 2).rows) == 2


def test_the_terminal_shows_the_ends_of_both_axes_and_the_best(here: Here) -> None:
    folder = sweeps.make(here.root, trackers=())
    sweeps.run(folder)
    code, out, err = here("curves", "demo")
    assert (code, err) == (0, "")
    best = lookup.read(folder).history.ranked()[0]
    assert f"━ {best.number}: " in out
    assert out.startswith("demo: loss\n")
    assert "training_iteration" in out
    assert here.json("curves", "demo")["drawn"][-1]["trial"] == best.number


def test_a_sweep_without_a_result_has_no_curves(here: Here) -> None:
    sweeps.make(here.root, trackers=())
    code, out, _ = here("curves", "demo")
    assert code == 0
    assert "no trial has reported it yet" in out


def test_on_a_narrow_terminal_the_ends_of_the_axis_take_the_room_of_its_name() -> None:
    points = [(1e9, 0.0), (9e9, 1.0)]
    data = {"name": "demo", "metric": "x", "time_attr": "timesteps_total"}
    found = curves.Curves([Curve(0, points, place=0)], 1, 2, 2)
    with io.StringIO() as stream:
        Terminal(stream).show(tables.curves(data, found, (30, 12)))
        shown = stream.getvalue().splitlines()
    assert shown[-2].split() == ["1,000,000,000timesteps_total9,000,000,000"]
