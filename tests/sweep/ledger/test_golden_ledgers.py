"""Ledgers as releases wrote them, one dump for each revision, read and gone on with today.

A dump is never changed; a new revision adds its own, told by `tests.support.events`.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sweep.history.events import Status
from sweep.ledger import hold, storage, upgrade
from sweep.ledger.folder import Folder
from sweep.operations.upkeep import ledger_check
from tests.support import sweeps

DUMPS = sorted((Path(__file__).parents[2] / "golden").glob("ledger-*.sql"))


@pytest.fixture(params=DUMPS, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest, tmp_path: Path, either_database: str) -> Folder:
    folder, dump = Folder(tmp_path, "golden"), request.param.read_text()
    folder.path.mkdir()
    if either_database == "sqlite":
        with closing(sqlite3.connect(folder.ledger)) as database:
            database.executescript(dump)
        return folder
    server, url = (request.getfixturevalue(name) for name in ("server", "storage_url"))
    storage.create_database(folder.ledger, url, "0" * 32)
    schema = f"sweep_{'0' * 32}"
    with server.admin(url.rpartition("/")[2]) as connection:
        connection.execute(f"CREATE SCHEMA {schema}; SET search_path TO {schema}; {dump}".encode())
    return folder


def test_there_is_a_dump_of_every_revision() -> None:
    assert [path.stem for path in DUMPS] == [
        f"ledger-{number}" for number in upgrade.known_revisions()
    ]


def test_a_ledger_of_every_release_is_read_and_gone_on_with(
    golden: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "LEASE_S", 0.0)  # a machine that is gone held it
    hold.upgrade(golden, print)
    assert ledger_check.check(golden.ledger) == []
    past = sweeps.history(golden)
    assert (past.k, past.term, past.wanted, past.ended) == (28, 3, 6, "")
    statuses = ["COMPLETED", "PRUNED", "FAILED", "STOPPED", "RUNNING"]
    assert [trial.status.value for trial in past.trials] == statuses
    assert [trial.iteration for trial in past.trials] == [9, 3, 5, 1, 0]
    assert [trial.number for trial in past.ranked()] == [3, 2, 1, 0]
    before = [sweeps.curve(golden, trial) for trial in range(4)]
    assert [len(rows) for rows in before] == [9, 3, 5, 1]
    assert before[2][2].metrics["info/score"] == 3 - 1 / 3

    assert sweeps.run(golden) == "finished"
    assert ledger_check.check(golden.ledger) == []
    past = sweeps.history(golden)
    assert past.trials[4].status is Status.STOPPED  # as was asked for while nobody drove it
    assert len(past.trials) == 6
    assert [sweeps.curve(golden, trial) for trial in range(4)] == before
