"""What a person sees who opens `sweep ui` for the first time, in a browser."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.engine import large
from sweep.driver.tracking import sync
from sweep.operations.mlflow.page import Page
from sweep.trackers._shared.mlflow_view import MORE
from sweep.trackers.mlflow import Tracker
from tests.support import browser
from tests.support.command_line import Here, environment
from tests.support.events import Story, publish_with, tell_everything
from tests.support.mlflow_server import await_health
from tests.support.ports import free_port

CHROMIUM = browser.path()


@contextmanager
def page(root: Path, *options: str, name: str = "demo") -> Iterator[str]:
    """`sweep ui`; yields the address that it prints."""
    port = free_port()
    words = ["ui", name, "--root", str(root), "--port", str(port), "--no-open", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep.cli.main", *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        await_health(process, port)
        assert process.stdout is not None
        yield process.stdout.readline().decode().split()[0]
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGINT)
        process.communicate()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = Story.create(tmp_path_factory.mktemp("page"))
    tell_everything(story)
    publish_with(Tracker, story)
    return story.where.folder.root


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
def test_the_page_opens_at_the_trials_with_their_charts_and_without_the_assistant(
    root: Path,
) -> None:
    assert CHROMIUM is not None
    with page(root) as url, browser.opened(CHROMIUM) as seen:
        seen.go(url)
        names = ("stopped trial 3", "pruned trial 1", "\ntrial 0", "\ntrial 4")
        for word in (*names, "info/score", "\ninfo\n"):
            seen.until(f"document.body.innerText.includes({json.dumps(word)})")
        text = seen.text()
        assert sorted(names[:3], key=text.index) == list(names[:3])  # best first
        assert "Sort: sweep.order" in " ".join(text.split())
        seen.until("[...document.querySelectorAll('.dimension')].length == 4")
        dimensions = "[...document.querySelectorAll('.dimension')].map(d => d.textContent).join()"
        shown = seen.evaluate(dimensions)
        assert all(name in shown for name in ("lr", "layers", "net", "score"))
        assert text.index("info/score") < text.index("Parallel Coordinates")
        # A chart below the window is not drawn yet; its section is named all the same.
        assert text.index("Parallel Coordinates") < text.index("\ninfo\n")
        assert "Ask questions about" not in text
        seen.go(url.replace("CHART", "TABLE"))
        seen.until("document.body.innerText.includes('5 matching runs')")
        seen.until("document.body.innerText.includes('[64,64]')")


#: Lines in the line chart of a page; parallel coordinates are not scatter.
LINES = "document.querySelectorAll('.scatterlayer .trace').length"
#: Requests of the page for curves.
CURVES = "get-history-bulk"


@pytest.mark.proof
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
def test_the_page_of_hundreds_of_trials_begins_with_the_best_hundred(tmp_path: Path) -> None:
    """It asks for the curves of those alone, so it is as quick with thousands."""
    assert CHROMIUM is not None
    folder = large.make(tmp_path, 300, 100, name="many", trackers=["mlflow"])
    sync.send(folder, lambda _said: None, 600.0)
    with page(tmp_path, name="many") as url, browser.opened(CHROMIUM) as seen:
        seen.go(url)
        for words in ("100 matching runs", "Load more", f"many: {MORE}"):
            seen.until(f"document.body?.innerText.includes({json.dumps(words)})")
        seen.until("document.querySelectorAll('.dimension').length > 2")
        seen.until(f"{LINES} >= 100")
        asked = [url.count("run_ids=") for url in seen.requests if CURVES in url]
        assert asked == [100] * len(asked)
        assert 1 <= len(asked) <= 5  # one chart each, of those in observation_settings


@pytest.mark.parametrize("trials", [100, 101])
def test_the_command_says_when_its_page_does_not_begin_with_all_trials(
    trials: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large.make(tmp_path, trials, name="many", trackers=["mlflow"])
    monkeypatch.setattr(Page, "serve", lambda _page, _show: 0)
    code, _, err = Here(capsys, tmp_path)("ui", "many", "--port", free_port())
    said = f"sweep: of {trials} trials, the page begins with {MORE}\n"
    assert (code, err) == (0, said if trials > 100 else "")


@pytest.mark.slow
def test_the_page_is_served_at_the_address_that_is_asked_for(root: Path) -> None:
    with page(root, "--host", "localhost") as url:
        assert url.startswith("http://localhost:")
    assert Page(root, "demo", 5001, "0.0.0.0").server == "http://127.0.0.1:5001"  # noqa: S104
    assert Page(root, "demo", 5001, "::1").server == "http://[::1]:5001"
