"""A sweep's folder from somebody else: to look at it runs nothing that it names."""

import json
import math
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sweep.core.errors import DamagedLedger
from sweep.ledger import hold, lease
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.upkeep import ledger_check
from sweep.operations.upkeep.repair import repair
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import Here

CANARY = """
from pathlib import Path
from sweep.searchers.random import Searcher as Random
from sweep.trackers import Tracker as Base
from sweep.schedulers.fifo import Scheduler as Fifo
from tests.support.quadratic import Quadratic
Path(__file__).with_name("sang").touch()

class Scheduler(Fifo):
    time_attr = "timesteps_total"
    levels = (10.0, 30.0)

class Searcher(Random):
    pass

class Tracker(Base):
    def __init__(self, where):
        self.folder = where.folder.root

    def publish(self, records):
        (self.folder / "told").touch()

    def close(self):
        pass

class Trainable(Quadratic):
    pass
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Folder]:
    """A finished sweep whose parts lie in a module that says when it is run."""
    folder = sweeps.make(tmp_path / "sweeps", trackers=["optuna"])
    sweeps.run(folder)
    nest = tmp_path / "nest"
    nest.mkdir()
    (nest / "canary.py").write_text(CANARY)
    with closing(sqlite3.connect(folder.ledger)) as database, database:
        spec, provenance = map(
            json.loads, database.execute("SELECT spec, provenance FROM sweep").fetchone()
        )
        spec |= {"trainable": "canary:Trainable", "trackers": ["optuna", "canary:Tracker"]}
        spec |= {
            part: {"name": f"canary:{part.capitalize()}"} for part in ("scheduler", "searcher")
        }
        provenance |= {"paths": [str(nest)]}
        changed = (json.dumps(spec), json.dumps(provenance))
        database.execute("UPDATE sweep SET spec = ?, provenance = ?", changed)
    yield folder
    sys.modules.pop("canary", None)
    if str(nest) in sys.path:
        sys.path.remove(str(nest))


def has_sung(folder: Folder) -> bool:
    return (folder.root.parent / "nest" / "sang").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("ls",),
        ("status", "demo"),
        ("results", "demo"),
        ("best", "demo"),
        ("show", "demo", "0"),
        ("explain", "demo", "0"),
        ("report", "demo", "-o", "/dev/null"),
        ("curves", "demo"),
        ("gc", "demo"),
        ("export-schedule", "demo"),
        ("verify", "demo"),
        ("verify", "demo", "--repair"),
        ("sync", "demo"),
        ("stop", "demo", "0"),
        ("unpause", "demo"),
        ("set", "demo", "--trials", "12"),
    ],
    ids=" ".join,
)
def test_what_only_looks_imports_nothing_that_a_ledger_names(
    command: tuple[str, ...], foreign: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = Here(capsys, foreign.root)(*command)
    assert out or err
    assert not has_sung(foreign)
    assert "canary" not in sys.modules


def test_who_goes_on_with_it_runs_what_it_names(
    foreign: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    got = Here(capsys, foreign.root)("resume", "demo")
    assert got[0] == 0, got
    assert has_sung(foreign)
    assert (foreign.root / "told").exists()


@pytest.mark.parametrize("command", ["verify", "sync"])
def test_a_tracker_of_somebody_elses_is_said_to_be_left_out(
    command: str, foreign: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = Here(capsys, foreign.root)(command, "demo")
    assert "canary:Tracker" in out + err
    assert "this tracker is given as a path" in out + err


def test_a_scheduler_of_ones_own_is_looked_at_by_what_it_said_when_the_sweep_was_created(
    tmp_path: Path,
) -> None:
    seen = []
    for name in ("asha", "tests.support.own_scheduler:Own"):
        folder = sweeps.make(
            tmp_path / name[:4],
            scheduler={"name": name, "grace_period": 10, "time_attr": "timesteps_total"},
            stop={"timesteps_total": 90},
        )
        sweeps.run(folder)
        looked = lookup.read(folder)
        scores = [trial.score_at(30) for trial in looked.history.trials]
        seen.append((looked.aim.levels, looked.history.objective.time_attr, scores))
    assert seen[0] == seen[1]
    assert seen[1][:2] == ((10.0, 30.0, 90.0), "timesteps_total")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("pid = '*'", "its lease: pid: '*', not a whole number"),
        ("pid = -1", "its lease: pid: -1, not a whole number"),
        ("kernel = x'00'", "its lease: kernel"),
        ("host = 7.5, since = 'today'", "its lease: since: 'today', not"),
        ("renewed = '*'", "its lease: renewed: '*', not a whole number"),
        ("epoch = 9223372036854775807", "its lease: no term follows 9223372036854775807"),
    ],
)
def test_a_lease_that_no_driver_wrote_is_a_damage_and_nothing_is_done_by_it(
    foreign: Folder, change: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "delete_semaphores", None)  # who calls it fails
    kernel = lease.this_host().kernel
    with closing(sqlite3.connect(foreign.ledger)) as database, database:
        database.execute("UPDATE lease SET host = 'there', kernel = ?", (kernel,))
        database.execute(f"UPDATE lease SET {change}")  # noqa: S608 ours
    assert [damage.place for damage in ledger_check.check(foreign.ledger)] == ["lease"]
    with pytest.raises(DamagedLedger, match=re.escape(problem)), hold.hold(foreign, print):
        pass
    assert lookup.read(foreign).state is lookup.State.FINISHED
    before = len(Ledger(foreign.ledger).read())
    assert repair(foreign, print).repairs[0] == "the unreadable lease was released"
    with hold.hold(foreign, print) as held:
        events = Ledger(foreign.ledger).read()
        assert held.term > events[-1].term
    assert len(events) == before


@pytest.mark.parametrize("since", [1e300, -1e300, math.inf])
def test_a_lease_of_no_date_has_none(since: float) -> None:
    holder = lease.Lease(term=1, host="there", pid=7, taken_at=since)
    assert holder.describe() == "process 7 on there, since no date,"
