"""What every tracker promises; a new file among them is tested unasked."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sweep import trackers
from sweep.core import plugins
from sweep.ledger.ledger import Ledger
from tests.support.events import Story, tell_everything

NAMES = plugins.names(trackers.PACKAGE)

Contents = dict[str, object]


def test_the_trackers_that_people_look_for_are_found() -> None:
    assert {"mlflow", "optuna"} <= set(NAMES)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    told = Story.create(tmp_path)
    tell_everything(told)
    return told


def contents(root: Path) -> Contents:
    """What stands in every file that a tracker wrote: rows of databases, bytes of others."""
    found: Contents = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if path.name.startswith("sweep.db") or path.name.endswith(("-wal", "-shm", ".lock")):
            continue
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as connection:
                found[path.name] = sorted(connection.iterdump())
        else:
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def publish(name: str, story: Story, *pieces: int) -> None:
    """Hand over events in pieces of these sizes, each to a new tracker, as after a crash."""
    records = story.records
    start = 0
    for size in (*pieces, len(records)):
        with closing(trackers.find(name)(story.where)) as tracker:
            tracker.publish(records[start : start + size])
        start += size


def test_making_one_opens_nothing(name: str, story: Story) -> None:
    before = contents(story.where.folder.root)
    trackers.find(name)(story.where).close()
    assert contents(story.where.folder.root) == before


@pytest.mark.slow
def test_what_is_handed_over_again_changes_nothing(name: str, story: Story) -> None:
    publish(name, story)
    once = contents(story.where.folder.root)
    assert once
    publish(name, story)
    assert contents(story.where.folder.root) == once


def test_a_crash_between_any_two_batches_loses_nothing(name: str, story: Story) -> None:
    """After the pieces, handing over everything finds nothing left to add."""
    publish(name, story, 5, 7)
    pieces = contents(story.where.folder.root)
    publish(name, story)
    assert contents(story.where.folder.root) == pieces


def test_the_ledger_is_only_read(name: str, story: Story) -> None:
    before = Ledger(story.where.folder.ledger).read()
    publish(name, story)
    assert Ledger(story.where.folder.ledger).read() == before
