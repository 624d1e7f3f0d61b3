"""What has changed since a sweep was created is said when it goes on, and refused if so asked."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from tests.support import sweeps
from tests.support.command_line import Here


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return sweeps.make(tmp_path, trials=1, trackers=[])


def change(folder: Folder, path: str, value: Any) -> None:
    """As if it had been so when the sweep was created."""
    with closing(sqlite3.connect(folder.ledger)) as database, database:
        update = "UPDATE sweep SET provenance = json_set(provenance, ?, json(?))"
        assert database.execute(update, (path, json.dumps(value))).rowcount == 1


CHANGES = [
    ("$.versions.torch", "1.0.0", "torch was 1.0.0, is 2.13.0"),
    ("$.source", "0" * 64, "the trainable's source file has changed"),
    ("$.processor", "Another \x1b[31mOne", "the processor was Another \\x1b[31mOne, is "),
]


@pytest.mark.parametrize(("path", "was", "words"), CHANGES)
def test_what_has_changed_is_said_on_resume(
    path: str, was: str, words: str, folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder, path, was)
    code, out, _ = Here(capsys, folder.root)("resume", "demo")
    assert code == 0
    assert f"warning: {words}" in out
    assert out.count("resumed trials may not be exact") == 1


@pytest.mark.parametrize(("path", "was", "words"), CHANGES)
def test_strict_refuses_what_has_changed_and_writes_nothing(
    path: str, was: str, words: str, folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder, path, was)
    code, _, err = Here(capsys, folder.root)("resume", "demo", "--strict")
    assert code == 2
    assert words in err
    assert Ledger(folder.ledger).last == 0


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_nothing_is_said_where_nothing_has_changed(
    options: tuple[str, ...], folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = Here(capsys, folder.root)("resume", "demo", *options)
    assert (code, "may not be exact" in out) == (0, False)
