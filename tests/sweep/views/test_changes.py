"""Changes of the space and of the end are shown wherever a sweep is."""

import re
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.driver.tracking import sync
from sweep.history.events import SpaceChanged, StopChanged
from sweep.ledger.folder import Folder
from sweep.operations.report import page
from sweep.trackers._shared.mlflow_content import Content
from sweep.views import lookup, overview
from tests.support import sweeps
from tests.support.command_line import Here

WIDE: dict[str, Any] = {"lr": {"loguniform": [0.001, 0.9]}, "noise": {"choice": [0.0, 0.1]}}
NARROW = {**WIDE, "lr": {"loguniform": [0.01, 0.5]}}
SPACE = (
    "the space changed after trial 3: lr is 0.01 to 0.5, both included, on a log scale, instead of "
    "0.001 to 0.9, both included, on a log scale"
)
END = "the end moved after trial 5: training_iteration is 9, instead of 6"


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Four trials in a wide space, two in a narrow one, and a later end for all."""
    folder = sweeps.make(
        tmp_path_factory.mktemp("changed"),
        space=WIDE,
        config=None,
        searcher="random",
        scheduler="fifo",
        stop={"training_iteration": 6},
        trials=4,
    )
    sweeps.run(folder)
    sweeps.run(folder, trials=6, space=NARROW)
    sweeps.run(folder, stop={"training_iteration": 9})
    return folder


def test_each_change_has_its_place_and_both_sides(changed: Folder) -> None:
    found = sweep.load("demo", root=changed.root).changes
    assert [(one.key, one.trials, one.text) for one in found] == [
        ("space", 4, SPACE),
        ("stop", 6, END),
    ]
    assert (found[1].before, found[1].after) == (
        {"training_iteration": 6},
        {"training_iteration": 9},
    )
    written = {r.number: r for r in lookup.read(changed).records}
    assert isinstance(written[found[0].event].event, SpaceChanged)
    assert isinstance(written[found[1].event].event, StopChanged)
    assert [one.time for one in found] == [written[one.event].time for one in found]


def test_a_second_change_begins_at_the_first(tmp_path: Path) -> None:
    short = {"training_iteration": 1}
    folder = sweeps.make(tmp_path, space=WIDE, config=None, scheduler="fifo", stop=short, trials=1)
    sweeps.run(folder, space=NARROW, stop={"training_iteration": 2})
    sweeps.run(folder, space=WIDE, stop={"training_iteration": 4})
    first, _, space, end = lookup.read(folder).changes
    assert first.text.startswith("the space changed before the first trial: lr is 0.01 to 0.5")
    assert space.before["lr"].startswith("0.01 to 0.5")
    assert space.after["lr"].startswith("0.001 to 0.9")
    assert end.text == "the end moved after trial 0: training_iteration is 4, instead of 2"


def test_status_and_results_tell_of_changes(
    changed: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, changed.root)
    for command in ("status", "results"):
        lines = here(command, "demo")[1].splitlines()
        assert {SPACE, END} <= set(lines)
        told = here.json(command, "demo")["changes"]
        assert [one["text"] for one in told] == [SPACE, END]
        assert told == overview.changes(lookup.read(changed))
        assert told[1]["before"] == {"training_iteration": 6}


def test_a_trial_shows_the_changes_since_it_began(
    changed: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, changed.root)
    for number, texts in ((0, [SPACE, END]), (4, [END])):
        assert [one["text"] for one in here.json("show", "demo", number)["changes"]] == texts
        lines = here("show", "demo", number)[1].splitlines()
        assert [line for line in lines if line in (SPACE, END)] == texts


def test_a_sweep_without_changes_tells_of_none(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trials=2, scheduler="fifo", stop={"training_iteration": 1})
    sweeps.run(folder)
    sweeps.run(folder, trials=3)
    assert lookup.read(folder).changes == []
    data, _ = page.content(lookup.read(folder))
    assert data["learning"]["ends"] == data["search"]["changes"] == []
    assert data["points"]["since"] == 0
    assert "from before the space changed" not in page.build(lookup.read(folder), 0.0)


def test_the_report_lists_changes_and_marks_earlier_trials_and_ends(changed: Folder) -> None:
    now = lookup.read(changed)
    html = page.build(now, 0.0)
    for text in (SPACE, END):
        assert f": T{text[1:]}.</p>" in html
    assert "* marks trials from before the space changed." in html
    assert "Rings are trials from before the space changed." in html
    table = html[html.index('<section id="best">') :].partition("</section>")[0]
    numbers = re.findall(r'<tr><td class="n">(\d+\*?)</td>', table)
    assert sorted(numbers) == ["0*", "1*", "2*", "3*", "4", "5"]
    data, _ = page.content(now)
    assert data["learning"]["ends"] == [6.0]
    assert data["points"]["since"] == 4
    assert [what for _, what in data["search"]["changes"]] == ["space", "stop"]
    assert 0 < data["search"]["changes"][0][0] < data["search"]["end"]


def test_the_sweeps_run_in_mlflow_tells_of_changes(changed: Folder) -> None:
    content = Content(sync.tracker_context(changed))
    records = lookup.read(changed).records
    first = next(r.number for r in records if isinstance(r.event, SpaceChanged))
    content.extend(records[: first - 1])
    assert "sweep.changes" not in content.sweep_tags()
    content.extend(records[first - 1 :])
    tags = content.sweep_tags()
    assert tags["sweep.changes"].splitlines() == [SPACE, END]
    assert tags["mlflow.note.content"].endswith(f"\n- {SPACE}\n- {END}\n")
