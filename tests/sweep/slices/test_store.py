"""Checkpoints in object storage: whole or absent, verified, cached, fenced."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sweep
from sweep.cli.main import main
from sweep.core.errors import BadConfig, StorageError, UsageError
from sweep.history.events import End, Goal, Saved
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.operations.upkeep import cleaning
from sweep.slices import cache
from sweep.slices import store as stores
from sweep.slices.messages import SliceOutcome
from sweep.slices.slice import run_slice
from sweep.slices.store import Store, SweepStore
from tests.support import sweeps
from tests.support.faulty_storage import FaultyStorage, failing, times
from tests.support.slices import slice_spec
from trainables.checkpoint import file, remote, segments
from trainables.checkpoint.remote import Remote, RemoteError
from trainables.errors import CorruptCheckpoint, MissingCheckpoint

SWEEP = "s" * 32
BASE = f"faulty://team/demo-{SWEEP}"
AWAY = OSError(errno.EBUSY, "Please reduce your request rate.")
#: Bytes of a large array, in chunks of `segments.CHUNK_BYTES`.
LARGE = segments.SEGMENT_BYTES


@pytest.fixture(autouse=True)
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty one with the mark of a sweep; waits are short."""
    monkeypatch.setattr(remote, "PATIENCE_S", 0.05)
    monkeypatch.setattr(remote, "FIRST_WAIT_S", 0.001)
    FaultyStorage.store.clear()
    Remote(BASE).write(stores.MARK, b'{"sweep": "%s"}' % SWEEP.encode())
    yield
    FaultyStorage.store.clear()


@pytest.fixture
def here(tmp_path: Path) -> Store:
    return Store(tmp_path / "here" / "trials" / "0", BASE)


def elsewhere(tmp_path: Path, name: str = "elsewhere") -> Store:
    """The same replica's, on a machine that has nothing on its disk."""
    folder = tmp_path / name / "trials" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    return Store(folder, BASE)


def write(
    store: Store, step: int = 1, number: int = 0, most: int = 10**9, **state: Any
) -> tuple[Saved, file.Saved]:
    header = {"sweep": SWEEP, "trial": 0, "replica": 0}
    written = file.write(store.folder, step, header, state or {"x": step})
    name = store.send(written, number, most)
    return Saved(step, written.digest, name, written.size), written


def in_storage() -> set[str]:
    """Names of what lies there, without the mark."""
    return set(Remote(BASE).sizes()) - {stores.MARK}


def run(folder: Path, number: int = 0, goal: int = 5, **more: Any) -> SliceOutcome:
    spec = slice_spec(folder, store=BASE, number=number, goal=Goal(goal), **more)
    return run_slice(spec)


# ---- what is written ----------------------------------------------------------------------------


def test_a_checkpoint_in_storage_is_read_if_no_disk_has_it(here: Store, tmp_path: Path) -> None:
    saved, _ = write(here, 3, 2, x=1.5)
    assert saved.file == f"2/ckpt-0000000003-{saved.digest}.swck"
    assert in_storage() == {f"trials/0/{saved.file}"}
    found = elsewhere(tmp_path)
    assert found.read(saved).state["x"] == 1.5
    found.verify(saved)
    assert not list(found.folder.iterdir())  # the copy is gone again


def test_segments_that_did_not_change_are_not_sent_again(here: Store, tmp_path: Path) -> None:
    array = np.zeros(LARGE, np.uint8)
    array[:] = np.arange(LARGE) // segments.CHUNK_BYTES
    first, _ = write(here, 1, 0, a=array)
    array[-1] += 1
    sent: list[str] = []
    after = Store(here.folder, BASE, sources=[first])
    with failing(lambda what, path: sent.append(path) if what == "put" else None):
        second, written = write(after, 2, 1, a=array)
    chunks = LARGE // segments.CHUNK_BYTES
    assert len(written.segments) == chunks
    assert len(sent) == 2  # one chunk and the file
    for saved in (first, second):
        found = elsewhere(tmp_path).read(saved).state["a"]
        assert found[-1] == chunks - 1 + (saved is second)


def test_the_file_that_names_the_segments_comes_last(here: Store) -> None:
    complete: list[bool] = []

    def look(what: str, path: str) -> None:
        if what == "put" and "/ckpt-" in path:
            there = {Path(name).name for name in in_storage()}
            complete.append({f.name for f in here.folder.glob("seg-*")} <= there)

    with failing(look):
        _, written = write(here, a=np.arange(LARGE, dtype=np.uint8))
    assert written.segments
    assert complete == [True]


def test_a_segment_that_the_storage_has_lost_is_sent_again(here: Store, tmp_path: Path) -> None:
    array = np.full(LARGE, 7, np.uint8)
    first, written = write(here, 1, 0, a=array)
    lost = min(written.segments)
    Remote(BASE).delete([f"trials/0/0/{lost}"])
    with pytest.raises(CorruptCheckpoint, match=f"the file {lost} of the checkpoint is missing"):
        elsewhere(tmp_path).read(first)
    second, _ = write(Store(here.folder, BASE, sources=[first]), 2, 1, a=array)
    assert elsewhere(tmp_path).read(second).state["a"][0] == 7
    assert elsewhere(tmp_path).read(first).state["a"][0] == 7  # the same bytes: healed


def test_a_segment_that_was_cut_off_on_its_way_hides_no_whole_one(
    here: Store, tmp_path: Path
) -> None:
    saved, written = write(here, 1, 10, a=np.full(LARGE, 7, np.uint8))
    Remote(BASE).write(f"trials/0/9/{min(written.segments)}", b"cut off")
    assert elsewhere(tmp_path).read(saved).state["a"][0] == 7


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"before": times(3, AWAY, "put")}, id="throttled"),
        pytest.param({"before": times(2, OSError(errno.EREMOTEIO, "500"), "put")}, id="500"),
        pytest.param({"after": times(1, TimeoutError(), "put")}, id="lost answer"),
        pytest.param({"before": times(1, AWAY, "list")}, id="busy afterwards"),
    ],
)
def test_a_temporary_fault_of_the_storage_is_survived(
    here: Store, tmp_path: Path, fault: dict[str, Any]
) -> None:
    with failing(**fault):
        saved, _ = write(here)
    assert elsewhere(tmp_path).read(saved).state["x"] == 1


def test_attempts_are_bounded_and_the_error_is_one_line(here: Store) -> None:
    tries = 0

    def fault(what: str, _path: str) -> None:
        nonlocal tries
        tries += what == "put"
        if what == "put":
            raise OSError(errno.EBUSY, "SlowDown\nRequestId: 1")

    with failing(fault), pytest.raises(RemoteError) as refused:
        write(here)
    assert str(refused.value) == f"{here.remote.url}/0: [Errno 16] SlowDown"
    assert 2 <= tries < 20


def test_a_storage_that_is_there_for_a_moment_of_the_minute_is_met(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def fault(_what: str, _path: str) -> None:
        if not 50.0 <= now < 53.0:
            raise AWAY

    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(remote, "PATIENCE_S", 60.0)
    monkeypatch.setattr(remote, "FIRST_WAIT_S", 0.25)
    with failing(fault):
        write(here)
    assert 50.0 <= now < 53.0


def test_what_cannot_pass_is_said_at_once(here: Store) -> None:
    calls: list[str] = []

    def expired(what: str, _path: str) -> None:
        calls.append(what)
        raise PermissionError("The provided token has expired.")

    with failing(expired), pytest.raises(RemoteError, match=r"The provided token has expired\.$"):
        write(here)
    assert calls == ["put"]


def test_an_upload_that_was_cut_is_never_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FaultyStorage, "cut", 100)
    outcome = run(tmp_path / "trials" / "0")
    assert (outcome.end, outcome.saved) == (End.UNSAVED, ())
    assert "100 of its" in outcome.error
    assert BASE in outcome.error


def test_a_slice_ends_resumable_where_the_storage_takes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "trials" / "0"
    first = run(folder, goal=2)
    with failing(times(10**6, AWAY, "put")):
        outcome = run(folder, 1, sources=first.saved[::-1])
    assert (outcome.end, outcome.saved) == (End.UNSAVED, ())
    went_on = run(folder, 2, sources=first.saved[::-1])
    assert (went_on.end, went_on.source) == (End.GOAL, 2)


# ---- what is read -------------------------------------------------------------------------------


def test_a_damaged_copy_on_the_disk_is_read_from_storage(here: Store) -> None:
    saved, _ = write(here)
    here.path(saved).write_bytes(b"damaged")
    assert here.read(saved).state["x"] == 1


def test_damage_on_the_way_is_no_damage(here: Store, tmp_path: Path) -> None:
    saved, _ = write(here)
    ruined = 0

    def ruin(what: str, path: str) -> None:
        nonlocal ruined
        if what == "get" and not ruined:
            ruined += 1
            Path(path).write_bytes(b"SWCK\x01\n" + bytes(100))

    with failing(after=ruin):
        assert elsewhere(tmp_path).read(saved).state["x"] == 1
    assert ruined == 1


def test_damage_in_storage_is_found_at_every_byte(here: Store, tmp_path: Path) -> None:
    saved, _ = write(here)
    its, content = here.remote, here.remote.read(saved.file)
    found = elsewhere(tmp_path)
    for position in range(0, len(content), 97):
        its.write(saved.file, content[:position] + b"\xff" + content[position + 1 :])
        if content[position] != 0xFF:
            with pytest.raises(CorruptCheckpoint, match=saved.file):
                found.read(saved)
    its.write(saved.file, content + bytes(1))  # more than the ledger names is not even fetched
    with pytest.raises(CorruptCheckpoint, match="the ledger says"):
        found.verify(saved)


def test_what_is_gone_is_lost_only_in_the_storage_of_the_sweep(here: Store, tmp_path: Path) -> None:
    saved, _ = write(here)
    here.remote.delete([saved.file])
    with pytest.raises(MissingCheckpoint, match="there is no such file"):
        elsewhere(tmp_path).read(saved)
    Remote(BASE).delete([stores.MARK])
    with pytest.raises(RemoteError, match=r"the folder contains no sweep\.json; copy"):
        elsewhere(tmp_path).read(saved)


def test_a_storage_that_is_away_costs_no_trial_its_checkpoints(tmp_path: Path) -> None:
    first = run(tmp_path / "a" / "trials" / "0", goal=2)
    other = tmp_path / "b" / "trials" / "0"
    cache.forget()  # as in another process
    with failing(times(10**6, AWAY, "get")):
        outcome = run(other, 1, sources=first.saved[::-1])
    assert (outcome.end, outcome.skipped) == (End.UNSAVED, ())
    assert "request rate" in outcome.error
    assert run(other, 2, sources=first.saved[::-1]).source == 2


# ---- the cache ----------------------------------------------------------------------------------


def test_the_disk_keeps_what_was_written_last_within_the_bound(here: Store) -> None:
    size = 0
    for step in range(1, 30):
        saved, written = write(here, step, most=20 * (size or 6000))
        os.utime(written.path, ns=(step, step))
        size = written.size
    left = sorted(path.name for path in here.folder.iterdir())
    assert 2 <= len(left) <= 20
    assert left[-1] == here.path(saved).name
    assert len(in_storage()) == 29


def test_what_is_not_in_storage_stays_on_the_disk(here: Store) -> None:
    unsent = file.write(here.folder.parent / "1", 1, {}, {"x": 1})
    os.utime(unsent.path, ns=(1, 1))
    sent = [write(here, step, most=0)[1].path for step in (1, 2, 3)]
    assert unsent.path.exists()
    assert not any(path.exists() for path in sent)


# ---- who may write what -------------------------------------------------------------------------


def test_a_worker_that_comes_back_changes_nothing(tmp_path: Path) -> None:
    """The same slice once more, from elsewhere, while the next one has begun."""
    folder = tmp_path / "a" / "trials" / "0"
    first = run(folder, 0, goal=2)
    second = run(folder, 1, goal=4, sources=first.saved[::-1])
    before = {name: FaultyStorage.store[f"/{name}"].getvalue() for name in _raw()}
    cache.forget()
    run(tmp_path / "b" / "trials" / "0", 0, goal=5)
    for name, content in before.items():
        assert FaultyStorage.store[f"/{name}"].getvalue() == content
    for saved in (*first.saved, *second.saved):
        elsewhere(tmp_path).verify(saved)


def _raw() -> set[str]:
    base = BASE.removeprefix("faulty://")
    return {f"{base}/{name}" for name in in_storage()}


def test_a_driver_that_comes_back_deletes_nothing_of_a_later_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path, checkpoints="faulty://team")
    sweeps.run(folder)
    stored, past = stores.of_sweep(folder), sweeps.history(folder)
    replica = past.trials[0].leader
    its = stored.replica(0, 0)
    later = f"{replica.slices}/ckpt-{1:010d}-{'a' * 64}.swck"
    over = f"{replica.slices - 1}/ckpt-{1:010d}-{'b' * 64}.swck"
    strange = f"{replica.slices - 1}/notes.txt"
    for name in (later, over, strange):
        its.remote.write(name, b"x")
    assert [spare.name for spare in stored.unnamed_files(past)] == [over]
    stored.sweep_up(past)
    assert {later, strange} <= its.remote.sizes().keys()
    assert over not in its.remote.sizes()
    assert replica.files <= its.remote.sizes().keys()


def test_a_deletion_that_comes_late_spares_what_came_after_it(here: Store, tmp_path: Path) -> None:
    """The same large array first in what nobody names, then in what a later slice has saved."""
    array = np.full(LARGE, 3, np.uint8)
    write(here, 1, 0, a=array)
    kept, written = write(Store(here.folder, BASE), 2, 1, a=array)
    stores._delete_unnamed(here, set(), 1)  # as it stood when slice 0 was over
    assert elsewhere(tmp_path).read(kept).state["a"][-1] == 3
    assert {Path(name).parent.name for name in in_storage()} == {"1"}
    stores._delete_unnamed(here, {kept.file}, 2)
    elsewhere(tmp_path).verify(kept)
    stores._delete_unnamed(here, set(), 2)
    assert in_storage() == set()
    assert written.segments


def test_what_rm_could_not_delete_there_gc_does(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, checkpoints="faulty://team")
    sweeps.run(folder)
    its = Remote(stores.of_sweep(folder).url)
    with failing(times(10**6, AWAY, "delete")), pytest.raises(StorageError, match="`sweep gc`"):
        cleaning.remove(folder)
    assert its.sizes()
    (left,) = tmp_path.glob(".demo.removed-*")
    assert list(cleaning.clean_root(tmp_path, print, dry_run=False)) == []
    os.utime(left, (0, 0))
    said: list[str] = []
    with failing(times(10**6, AWAY, "delete")):
        assert list(cleaning.clean_root(tmp_path, said.append, dry_run=False)) == []
    assert f"{left.name} was skipped: {its.url}" in said[0]
    (freed,) = cleaning.clean_root(tmp_path, print, dry_run=False)
    assert freed.checkpoints > 0
    assert its.sizes() == {}
    assert not list(tmp_path.glob(".demo*"))


def test_python_says_it_with_the_same_word(tmp_path: Path) -> None:
    spec: dict[str, Any] = {**sweeps.QUADRATIC, "trackers": [], "trials": 2}
    given = spec.pop("trainable")
    how: dict[str, Any] = {"root": tmp_path, "pool": "inline", "progress": False}
    with pytest.raises(BadConfig, match="--checkpoints"):
        sweep.run(given, checkpoints="team", **how, **spec)
    made = sweep.run(given, checkpoints="faulty://team", **how, **spec)
    assert made.best().checkpoint().path.is_file()
    with pytest.raises(
        StorageError, match=r"the folder contains no sweep.json; copy.*`sweep doctor --ch"
    ):
        sweep.resume("demo", checkpoints="faulty://other", trials=3, **how)
    assert len(sweep.resume("demo", checkpoints="faulty://team", trials=3, **how).trials) == 3


# ---- the URL ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://AKIA:hidden@bucket/x", "the URL contains a user, a key or a query"),
        ("s3://bucket/x?secret=hidden", "the URL contains a user, a key or a query"),
        ("s3://bucket/x#hidden", "the URL contains a user, a key or a query"),
        ("simplecache::s3://bucket", "the URL of a folder, such as s3://bucket/prefix"),
        ("bucket/x", "the URL of a folder, such as s3://bucket/prefix"),
        ("s3://", "the URL of a folder, such as s3://bucket/prefix"),
        ("ftps-of-mine://x/y", "the URL of a folder, such as s3://bucket/prefix"),
    ],
)
def test_a_url_that_names_a_secret_or_no_folder_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadConfig) as refused:
        stores.check(url)
    assert why in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_what_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_scheme: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.get_filesystem_class", missing)
    with pytest.raises(BadConfig, match=r"pip install 'sweep-rl\[s3\]'"):
        stores.check("s3://bucket/x")


def test_the_word_of_somebody_else_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path, checkpoints="faulty://team")
    assert stores.of_sweep(folder).url.startswith("faulty://team/demo-")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    with pytest.raises(Exception, match=r"another user chose .*run `sweep resume demo"):
        stores.of_sweep(folder)
    with monkeypatch.context() as trusting:
        trusting.setenv("XDG_CONFIG_HOME", str(tmp_path / "a third"))
        assert main(["trust", str(folder.checkpoints)]) == 0
        assert stores.of_sweep(folder).url.startswith("faulty://team/demo-")
        folder.checkpoints.write_text(folder.checkpoints.read_text().replace("team", "evil"))
        with pytest.raises(
            Exception, match=f"accept their choice, run `sweep trust {folder.checkpoints}`"
        ):
            stores.of_sweep(folder)
    folder.checkpoints.write_text(folder.checkpoints.read_text().replace("evil", "team"))
    sweeps.run(folder, checkpoints="faulty://team")  # now it is one's own
    assert stores.of_sweep(folder).url


def test_a_copied_folder_does_not_go_on_in_the_storage_of_the_first(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, checkpoints="faulty://team")
    sweeps.run(folder)
    before, other = in_storage(), Folder(tmp_path, "copy")
    shutil.copytree(folder.path, other.path)
    said = r"^copy: this folder is a copy of the sweep 'demo' and shares its checkpoints in faulty"
    with pytest.raises(UsageError, match=said):
        sweeps.run(other)
    assert in_storage() == before
    assert sweeps.run(folder) == "finished"
    shutil.rmtree(folder.path)
    assert sweeps.run(other) == "finished", "it was renamed"


def test_a_storage_without_the_sweep_is_no_place_to_go_on(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, checkpoints="faulty://team")
    with pytest.raises(Exception, match=r"the folder contains no sweep\.json; copy"):
        sweeps.run(folder, checkpoints="faulty://other")
    assert stores.of_sweep(folder).url.startswith("faulty://team/")
    FaultyStorage.store.clear()
    with pytest.raises(
        RemoteError,
        match=r"copy this sweep.s checkpoints there, or correct the URL or the endpoint",
    ):
        sweeps.run(folder)


def test_a_folder_on_a_disk_is_a_storage_too(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path / "root", checkpoints=f"file://{tmp_path}/store")
    sweeps.run(folder)
    past: History = sweeps.history(folder)
    other = Folder(tmp_path / "elsewhere", "demo")
    its = SweepStore(other, stores.of_sweep(folder).url).replica(past.best.number, 0)  # type: ignore[union-attr]
    its.folder.mkdir(parents=True)
    for saved in past.best.leader.checkpoints.values():  # type: ignore[union-attr]
        its.verify(saved)
    assert not list((tmp_path / "store").rglob(".tmp-*"))


def test_a_mark_of_another_program_is_that_of_another_sweep(tmp_path: Path) -> None:
    (tmp_path / stores.MARK).write_text("[1, 2]")
    with pytest.raises(RemoteError, match=r"the sweep\.json there names another sweep"):
        stores.require(f"file://{tmp_path}")
