from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Here
from tests.support.events import Story, tell_everything
from tests.support.leftovers import Marked


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    """The command line, for sweeps in a folder of the test."""
    return Here(capsys, tmp_path / "sweeps")


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Marked]:
    """Marks of all processes of the test, which are killed at its end."""
    found = Marked()
    for name, value in found.variables.items():
        monkeypatch.setenv(name, value)
    yield found
    found.kill()


@pytest.fixture
def told(story: Story) -> Story:
    """The story of the test's own module, told to its end."""
    tell_everything(story)
    return story
