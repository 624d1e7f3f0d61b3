"""The report's pictures as PNG files."""

from pathlib import Path

import pytest
from PIL import Image

from sweep.operations.report import page, pictures
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import Here


def test_each_picture_is_a_file_that_shows_every_trial(here: Here, tmp_path: Path) -> None:
    """Also where words of users would be no formula."""
    space = {"lr": {"loguniform": [1e-3, 0.9]}, "kind": {"choice": ["$", "$frac{$"]}}
    folder = sweeps.make(here.root, trials=30, searcher="random", space=space, trackers=())
    sweeps.run(folder)
    code, out, err = here("report", "demo", "--png", tmp_path / "pictures")
    assert (code, err) == (0, "")
    written = sorted((tmp_path / "pictures").iterdir())
    assert [path.stem for path in written] == sorted(pictures.PICTURES)
    assert out.split()[::3] == [str(path) for path in written]
    for path in written:
        with Image.open(path) as image:
            assert min(image.size) > 200
            assert len(image.convert("L").getcolors() or ()) > 20  # not one colour alone
    data, _ = page.content(lookup.read(folder))
    (axes,) = pictures.PICTURES["curves"](data).axes  # type: ignore[union-attr]
    assert len(axes.lines) == 30
    parallel = pictures.PICTURES["parallel"](data)
    assert parallel is not None
    assert len(parallel.axes[0].lines) == 30 + 3  # and an axis for each setting and the score


def test_a_sweep_without_results_has_no_pictures(here: Here, tmp_path: Path) -> None:
    sweeps.make(here.root)
    code, out, _ = here("report", "demo", "--png", tmp_path / "none")
    assert (code, out) == (0, "demo has no results to draw yet\n")
    assert here("report", "demo", "--png", tmp_path / "none", "--watch")[0] == 2
    (tmp_path / "file").touch()
    code, _, err = here("report", "demo", "--png", tmp_path / "file" / "inside")
    assert (code, len(err.splitlines())) == (4, 1)


def test_a_picture_that_cannot_be_drawn_is_left_out_and_the_others_are_written(
    here: Here, tmp_path: Path
) -> None:
    apart = {"metric": "loss", "trackers": (), "config": {"kind": "far apart"}, "stop": {}}
    trainable = "tests.sweep.cli.test_absurd_results:train"
    sweeps.run(sweeps.make(here.root, trainable=trainable, trials=3, scheduler="fifo", **apart))
    code, out, err = here("report", "demo", "--png", tmp_path / "pictures")
    assert code == 0, err
    assert "sweep: curves.png is left out, as matplotlib cannot draw it: " in err
    written = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert [Path(path).name for path in out.split()[::3]] == written
    assert "parallel.png" in written


def test_where_every_trial_breaks_a_constraint_none_is_the_best_so_far(tmp_path: Path) -> None:
    limits = {"loss": "<= -1"}
    folder = sweeps.make(tmp_path, trackers=(), trials=3, scheduler="fifo", constraints=limits)
    sweeps.run(folder)
    sweep = lookup.read(folder)
    data, _ = page.content(sweep)
    assert data["search"]["best"]["trials"] == []
    (written,) = pictures.write(sweep, tmp_path / "pictures", pytest.fail, ["search"])
    assert written.is_file()


def test_an_interval_without_an_end_is_not_drawn(here: Here, tmp_path: Path) -> None:
    sweep = lookup.read(sweeps.make(here.root))
    curve = {"trial": 0, "place": 0, "early": False, "x": [1.0, 2.0], "y": [1.0, 2.0]}
    learning = {"time": "x", "curves": [{**curve, "low": [None, 1.0], "high": [None, 3.0]}]}
    figure = pictures.PICTURES["curves"]({"metric": sweep.spec.metric, "learning": learning})
    assert figure is not None
    figure.savefig(tmp_path / "curves.png")
