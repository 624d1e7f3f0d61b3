"""The report: one file that asks for nothing, with what there is to show and no more."""

import base64
import gzip
import json
import os
import re
import signal
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine import large
from sweep.operations.report import charts, markup, page, sections
from sweep.testing import CurvePoint, Simulation
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import Here, start
from tests.support.hostile_trainer import EVIL
from tests.support.processes import run_python
from tests.support.waiting import wait_until

HOSTILE: dict[str, Any] = {
    "trackers": (),
    "searcher": "random",
    "trials": 6,
    "trainable": "tests.support.hostile_trainer:train",
    "metric": EVIL,
    "objectives": {f"{EVIL}2": "min"},
    "config": {"fixed": EVIL},
    "space": {
        "x": {"uniform": [0.1, 1.0]},
        "kind": {"choice": [EVIL, "x"]},
        "fails": {"choice": [True, False]},
    },
}
PBT = {"name": "pbt", "perturbation_interval": 3}
SHORT: dict[str, Any] = {"stop": {"training_iteration": 1}}


def numbered(at: CurvePoint) -> dict[str, Any]:
    """A later trial is better in everything."""
    return {"score": float(at.trial), "cost": -float(at.trial)}


class Page(HTMLParser):
    """A page as a browser reads it: its elements, its sections and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._inside = ""
        self._id: str | None = None
        self.packed: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside, self._id = tag, dict(attrs).get("id")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside and self._id:
            self.packed[self._id] = self.packed.get(self._id, "") + data
        elif not self._inside:
            self.words.append(data)

    @property
    def sections(self) -> list[str]:
        return [attributes["id"] or "" for tag, attributes in self.elements if tag == "section"]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def data(self) -> Any:
        return json.loads(gzip.decompress(base64.b64decode(self.packed["data"])))


def built(root: Path, **changes: Any) -> Page:
    folder = sweeps.make(root, **{"trackers": (), "searcher": "random", **changes})
    sweeps.run(folder)
    return Page(page.build(lookup.read(folder), 0.0))


def test_sections_without_content_are_left_out(tmp_path: Path) -> None:
    plain = built(tmp_path, trials=4, scheduler="fifo")
    assert plain.sections == [
        *("learning", "best", "parallel", "slices", "search", "timeline", "time", "why", "space"),
    ]
    rungs = built(tmp_path, name="rungs", trials=40, config={"noise": 0.0}).sections
    assert {"rungs", "importance"} <= set(rungs)
    two = {"objectives": {"training_iteration": "min"}, "trials": 4, "scheduler": "fifo"}
    assert "front" in built(tmp_path, name="two", **two).sections
    bred = built(tmp_path, name="bred", trials=4, scheduler=PBT).sections
    assert "lineage" in bred


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("mean", "Over seeds, intervals contain the true mean with probability 95%."),
        ("worst", "Over seeds, intervals contain the true mean with probability 95%."),
        ("iqm", "Intervals are 95% bootstrap intervals of the iqm over seeds"),
    ],
)
def test_of_the_intervals_the_page_says_what_they_hold(kind: str, says: str) -> None:
    spec = {"trials": 2, "seeds": 3, "scheduler": "fifo", "aggregate": kind, **SHORT}
    with Simulation(spec, numbered) as made:
        made.run()
        assert says in Page(page.build(lookup.read(made.folder), 0.0)).text


@pytest.mark.parametrize(("low", "shown"), [(5.0, []), (4.0, ["[3.232, 6.101]"])])
def test_equal_scores_of_all_seeds_have_no_interval(low: float, shown: list[str]) -> None:
    """At the highest possible score, three seeds do not show how far others fall."""

    def at_ceiling(at: CurvePoint) -> dict[str, float]:
        return {"score": low if at.seed_index == 2 else 5.0}

    spec = {"trials": 1, "seeds": 3, "scheduler": "fifo", "stop": {"training_iteration": 1}}
    with Simulation(spec, at_ceiling) as made:
        made.run()
        sweep = lookup.read(made.folder)
        text = Page(page.build(sweep, 0.0)).text
    found = sections.interval(sweep.history.ranked()[0], 0)
    assert (found is None) is (not shown)
    assert re.findall(r"\[[\d.]+, [\d.]+\]", text) == shown


def test_a_choice_of_nothing_is_no_absent_setting() -> None:
    """`null`, as where gradients are not clipped; the other one stands under a condition."""
    space = {
        "clip": {"choice": [None, 40]},
        "norm": {"choice": [None, 1], "when": {"clip": 40}},
        "x": {"uniform": [0.0, 1.0]},
    }
    with Simulation({"trials": 8, "scheduler": "fifo", **SHORT, "space": space}, numbered) as made:
        made.run()
        sweep = lookup.read(made.folder)
        data, _ = page.content(sweep)
    trials = {trial.number: trial.searched for trial in sweep.history.trials}
    points = data["points"]
    for axis in (axis for axis in points["axes"] if "labels" in axis):
        shown = [None if v is None else axis["labels"][v] for v in axis["values"]]
        its = [trials[number] for number in points["trials"]]
        name = axis["name"]
        assert shown == [json.dumps(one[name]) if name in one else None for one in its]
    assert {one.get("norm", "absent") for one in trials.values()} == {None, 1, "absent"}


def test_what_is_left_out_of_a_picture_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MOST_TRIALS", 3)
    spec = {"trials": 8, "scheduler": "fifo", "objectives": {"cost": "min"}, **SHORT}
    with Simulation(spec, numbered) as made:
        made.run()
        text = Page(page.build(lookup.read(made.folder), 0.0)).text
    assert "the best so far. 3 of 8 trials are drawn: evenly chosen." in text
    assert (
        "beats in every objective. 3 of 8 trials are drawn: these and evenly chosen others." in text
    )


def test_a_sweep_that_has_not_begun_has_a_page_too(here: Here, tmp_path: Path) -> None:
    sweeps.make(here.root, trackers=())
    code, out, err = here("report", "demo", "-o", tmp_path / "page.html")
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'page.html'} (")
    assert Page((tmp_path / "page.html").read_text()).sections == ["space"]


def test_the_best_trials_stand_with_their_settings_and_intervals(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trackers=(), trials=3, seeds=3, scheduler="fifo")
    sweeps.run(folder)
    sweep = lookup.read(folder)
    text = Page(page.build(sweep, 0.0)).text
    best = sweep.history.ranked()[0]
    assert f"{best.score:.6g}" in text
    assert f"{best.searched['lr']:.3g}" in text
    assert "95% interval" in text
    assert "why" in Page(page.build(sweep, 0.0)).sections


def test_reasons_are_those_of_explain_with_their_numbers(tmp_path: Path) -> None:
    found = built(tmp_path)
    assert "promoted to rung 3" in found.text
    assert "places trials scores" in found.text.replace(
        "placestrialsscores", "places trials scores"
    )


def test_failures_have_their_reasons_and_tracebacks(tmp_path: Path) -> None:
    found = built(tmp_path, trials=3, config={"fail_at": 2})
    assert "failures" in found.sections
    assert "the trainable raised" in found.text
    assert "Traceback (most recent call last)" in found.text


def test_a_long_title_of_a_column_may_be_broken_after_each_part_of_it() -> None:
    """Otherwise a table with long names of settings runs over its card on paper."""
    drawn = markup.table(["model.weight_decay", "_x", "<b>"], [("1", "2", "3")], "nnn")
    titles = re.findall(r"<th class[^>]*>(.*?)</th>", drawn)
    assert titles == ["model.<wbr>weight_<wbr>decay", "_<wbr>x", "&lt;b&gt;"]


def test_nothing_that_is_named_outside_becomes_markup(tmp_path: Path) -> None:
    """Results, values of settings, messages of errors: each stands there as it is."""
    folder = sweeps.make(tmp_path, **HOSTILE)
    sweeps.run(folder)
    text = page.build(lookup.read(folder), 0.0)
    found = Page(text)
    assert EVIL in found.text
    assert f"ValueError: {EVIL}" in found.text
    assert json.dumps(EVIL)[1:-1] in json.dumps(found.data)
    assert not [its for its in found.elements if its[0] in ("img", "svg", "iframe", "object")]
    assert [tag for tag, _ in found.elements].count("script") == 3
    assert not any(key.startswith("on") for _, attributes in found.elements for key in attributes)


def test_a_page_asks_for_nothing_and_runs_only_its_own_scripts(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trackers=(), trials=1)
    text = page.build(lookup.read(folder), 0.0)
    found = Page(text)
    loaded = [
        value
        for tag, attributes in found.elements
        for key, value in attributes.items()
        if key in ("src", "href", "srcset", "action", "data") and not (value or "").startswith("#")
    ]
    assert loaded == []
    assert "http" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL).replace(
        'http-equiv="Content-Security-Policy"', ""
    )
    (policy,) = (a["content"] for t, a in found.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy
    script = re.search("script-src ([^;]*)", policy)
    assert script is not None
    assert re.fullmatch(r"('sha256-[\w+/=]+' ?){2}", script[1])


def test_the_page_is_small_and_soon_there_for_500_trials(tmp_path: Path) -> None:
    _measured(large.make(tmp_path, trials=500, iterations=100), megabytes=6, loops=8)


@pytest.mark.proof
def test_the_page_is_small_and_soon_there_for_5000_trials(tmp_path: Path) -> None:
    text = _measured(large.make(tmp_path, trials=5000, iterations=100), megabytes=15, loops=40)
    found = Page(text).text
    assert "800 of 5,000 curves are drawn" in found
    assert "of 500,000 values" in found
    assert "1,000 of 5,000 trials are drawn" in found


def _measured(folder: Any, megabytes: float, loops: float) -> str:
    """The page; it must be soon there once in three times: others have the machine, too.

    A loop is of five million numbers, a third of a second of a fast processor.
    """
    took = []
    for _ in range(3):
        began = time.process_time()  # of this process alone
        sum(number * number for number in range(5_000_000))
        read = time.process_time()
        text = page.build(lookup.read(folder), 0.0)
        took.append((time.process_time() - read) / (read - began))
        if took[-1] < loops:
            break
    assert min(took) < loops
    assert len(text.encode()) < megabytes * 1e6
    return text


def test_reading_writes_nothing_into_the_sweep(here: Here, tmp_path: Path) -> None:
    folder = sweeps.make(here.root, trackers=())
    sweeps.run(folder)

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in here.root.rglob("*") if path.is_file()}

    before = files()
    assert here("report", "demo", "-o", tmp_path / "page.html")[0] == 0
    assert files() == before
    assert not list(tmp_path.glob(".*"))


def test_the_file_is_called_after_the_sweep(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps.make(here.root, trackers=(), trials=1)
    monkeypatch.chdir(tmp_path)
    assert here("report", "demo")[1].startswith("demo.html (")
    assert (tmp_path / "demo.html").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_where_it_cannot_be_written_one_line_says_so(here: Here, tmp_path: Path) -> None:
    sweeps.make(here.root, trackers=(), trials=1)
    (tmp_path / "page.html").mkdir()
    code, out, err = here("report", "demo", "-o", tmp_path / "page.html")
    assert (code, out) == (2, "")
    assert "is a directory" in err
    code, out, err = here("report", "demo", "-o", tmp_path / "none" / "page.html")
    assert (code, out) == (2, "")
    assert f"there is no folder '{tmp_path / 'none'}'; create it first" in err


@pytest.mark.slow
def test_a_watched_page_is_renewed_until_the_sweep_ends(here: Here, tmp_path: Path) -> None:
    """While a driver has the sweep the page opens itself anew; the last one does not."""
    folder = sweeps.make(here.root, trackers=(), config={"step_s": 0.5})
    path = tmp_path / "page.html"
    running = start("resume", "demo", "--pool", "inline", cwd=tmp_path)
    try:
        wait_until(lambda: lookup.read(folder).state == "running")
        wait_until(lambda: here("pause", "demo")[0] == 0)
        watching = start("report", "demo", "-o", path, "--watch", cwd=tmp_path)
        try:
            wait_until(path.exists)
            assert "data-reload=" in path.read_text()[:200]
            running.send_signal(signal.SIGINT)
            assert running.wait(120) == 130
            assert watching.wait(120) == 0
        finally:
            watching.kill()
            watching.communicate()
    finally:
        running.kill()
        running.communicate()
    text = path.read_text()
    assert "data-reload=" not in text[:200]
    assert "stopped" in Page(text).text


def test_help_does_not_wait_for_the_report() -> None:
    script = (
        "import sys; from sweep.cli.main import main; main(['--help']); "
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'plotly', 'rich')])"
    )
    assert run_python(script).splitlines()[-1] == "[]"


def test_a_page_written_to_a_pipe_leaves_the_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        page.write(pipe, "a page")
        assert os.read(reading, 100) == b"a page"
    finally:
        os.close(reading)
    assert pipe.is_fifo()


def test_a_page_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        page.write(tmp_path / "page.html", "half a pair: \ud800")
    assert not list(tmp_path.iterdir())
