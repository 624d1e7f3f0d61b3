"""Places for environments that follow scripts (`tests.support.oracle`), and ends of waiting."""

import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.oracle.scripts import SENT
from trainables.envs.vector import restarts
from trainables.evaluation import play
from trainables.rollout.external import sampler as external
from trainables.rollout.samplers import background


@pytest.fixture
def restarted_at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing waits before an environment that failed is made anew, however often it failed."""
    monkeypatch.setattr(restarts, "BACK_OFF_S", 0.0)
    for module in (restarts, play, external):
        monkeypatch.setattr(module, "MAX_FAILURES_IN_A_ROW", 10**6)
        caplog.set_level(logging.ERROR, module.__name__)


@pytest.fixture
def threads_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampling thread that gives nothing, or never rests, is an error before the test's time is
    over."""
    monkeypatch.setattr(background, "TIMEOUT_S", 60.0)


@pytest.fixture
def folders(
    restarted_at_once: None, threads_answer_in_time: None, tmp_path: Path
) -> Iterator[Path]:
    """A folder for each script, without end; what arrived at other environments is forgotten."""

    def made() -> Iterator[Path]:
        for number in count():
            SENT.clear()
            folder = tmp_path / str(number)
            folder.mkdir()
            yield folder

    return made()
