"""What lies in a trial's folder: segments, signatures, and what a slice does when one is lost."""

import base64
import errno
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.cli.main import main
from sweep.core.errors import StorageError, UsageError
from sweep.driver import decisions
from sweep.history.events import End, Goal, Saved, Status
from sweep.history.objective import Objective
from sweep.history.replica import Replica
from sweep.slices import cache, retention
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.retention import Retention, expendable
from sweep.slices.slice import run_slice
from sweep.spec import CheckpointPolicy, Limits, Score
from sweep.spec.objective import Mode
from tests.support import sweeps, trials
from tests.support.quadratic import Quadratic
from tests.support.slices import slice_spec
from tests.support.sweeps import stable
from tests.support.trainers import differences
from trainables.checkpoint import container, file, segments, signing
from trainables.checkpoint.signing import Trust
from trainables.checkpoint.state import pack
from trainables.errors import StateError, WrongFormat

SMALL_PPO = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 16,
    "num_sgd_iter": 1,
    "model": {"hidden": [4]},
}
ME, YOU = Trust(b"m" * 32), Trust(b"y" * 32)


class Remembers(Quadratic):
    """A quadratic with a buffer of the values it has been at, large by the tests' measure."""

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self.buffer = np.zeros(500)

    def step(self) -> dict[str, Any]:
        result = super().step()
        self.buffer[self.iteration] = self.x
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {**super().save_checkpoint(checkpoint_dir), "buffer": self.buffer}

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        self.buffer = checkpoint["buffer"]


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    cache.forget()
    yield
    cache.forget()


@pytest.fixture
def remembering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SliceSpec:
    """A slice whose checkpoints have segments."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(segments, "CHUNK_BYTES", 400)
    return slice_spec(tmp_path / "0", trainable=f"{__name__}:Remembers")


def _go_on(spec: SliceSpec, outcome: SliceOutcome) -> SliceOutcome:
    cache.forget()
    sources = tuple(sorted(outcome.saved, key=lambda saved: -saved.iteration))
    return run_slice(replace(spec, sources=sources, goal=Goal(10), number=1))


def _curve(outcome: SliceOutcome) -> list[dict[str, Any]]:
    return [stable(row.metrics) for row in outcome.rows]


def _segments(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith("seg-")}


# ---- segments -----------------------------------------------------------------------------------


def test_sweeping_up_leaves_what_named_checkpoints_need(remembering: SliceSpec) -> None:
    outcome, folder = run_slice(remembering), Path(remembering.folder)
    before = _segments(folder)
    for kept in (outcome.saved, outcome.saved[-1:], ()):
        needed = {name for saved in kept for name in file.segments_of(folder / saved.file)}
        gone = retention.sweep_up(folder, [saved.file for saved in kept])
        assert _segments(folder) == needed
        assert before - needed == {name for name in gone if name.startswith("seg-")}
        before = needed
        for saved in kept:
            file.read(folder / saved.file, saved.digest)


def test_sweeping_up_leaves_all_segments_while_a_named_checkpoint_is_damaged(
    remembering: SliceSpec,
) -> None:
    outcome, folder = run_slice(remembering), Path(remembering.folder)
    before = _segments(folder)
    damaged = folder / outcome.saved[-1].file
    damaged.write_bytes(damaged.read_bytes()[:-1])
    retention.sweep_up(folder, [outcome.saved[-1].file])
    assert _segments(folder) == before
    damaged.unlink()
    retention.sweep_up(folder, [outcome.saved[-1].file])
    assert not _segments(folder)


def test_a_lost_segment_costs_the_checkpoints_that_name_it(remembering: SliceSpec) -> None:
    straight = run_slice(replace(remembering, goal=Goal(10), folder=f"{remembering.folder}-s"))
    head, folder = run_slice(remembering), Path(remembering.folder)
    older, newest = (file.segments_of(folder / s.file) for s in head.saved[-2:])
    (lost,) = newest - older
    (folder / lost).unlink()
    tail = _go_on(remembering, head)
    assert tail.source == head.saved[-2].iteration
    assert lost in tail.skipped[0]
    assert _curve(tail) == _curve(straight)[tail.source :]


def test_after_a_sweep_only_needed_segments_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembering: SliceSpec
) -> None:
    folder = sweeps.make(tmp_path / "sweep", trainable=remembering.trainable)
    assert sweeps.run(folder) == "finished"
    for trial in sweeps.history(folder).trials:
        where = folder.trial(trial.number)
        named = [where / saved.file for saved in trial.replicas[0].checkpoints.values()]
        assert _segments(where) == {n for path in named for n in file.segments_of(path)}
    plain = sweeps.make(tmp_path / "plain")
    sweeps.run(plain)
    assert [d[6] for d in sweeps.decisions(folder)] == [d[6] for d in sweeps.decisions(plain)]


@pytest.mark.parametrize("linked", ["trials", "trials/0"])
def test_a_trial_that_is_a_link_to_elsewhere_is_neither_swept_nor_written(
    linked: str, tmp_path: Path
) -> None:
    other = sweeps.make(tmp_path / "other", trials=1, scheduler="fifo")
    sweeps.run(other)
    before = {path.name for path in other.trial(0).iterdir()}
    folder = sweeps.make(tmp_path / "mine", trials=1, scheduler="fifo")
    place = folder.path / linked
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(other.path / linked)
    with pytest.raises(UsageError, match="symbolic link"):
        sweeps.run(folder)
    with pytest.raises(UsageError, match="symbolic link"):
        sweeps.run(folder)
    assert {path.name for path in other.trial(0).iterdir()} == before


# ---- what is lost, and what is not --------------------------------------------------------------


AWAY = {
    "stale": OSError(errno.ESTALE, "Stale file handle"),
    "timed out": OSError(errno.ETIMEDOUT, "Connection timed out"),
    "not connected": OSError(errno.ENOTCONN, "Transport endpoint is not connected"),
}
"""What a share that is away, or was mounted anew, says of any file."""


@pytest.mark.parametrize("how", ["newer program", "no memory", "no right", *AWAY])
def test_a_checkpoint_that_may_be_good_is_not_passed_over(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = slice_spec(tmp_path)
    head = run_slice(spec)
    raised = {
        "newer program": ("header_of", container, _newer),
        "no memory": ("parse", container, MemoryError()),
        "no right": ("_content", file, PermissionError(13, "Permission denied")),
        **{how: ("_content", file, error) for how, error in AWAY.items()},
    }[how]
    monkeypatch.setattr(raised[1], raised[0], _raising(raised[2]))
    tail = _go_on(spec, head)
    assert tail.end is (End.UNSAVED if how in AWAY else End.CRASHED)
    assert not tail.skipped
    assert head.saved[-1].file in tail.error


def _raising(error: Any) -> Any:
    def fail(*given: Any) -> None:
        raise error(*given) if callable(error) else error

    return fail


def _newer(_content: memoryview, source: Path) -> Exception:
    return WrongFormat(source, "needs a reader of format 2")


# ---- a disk that refuses ------------------------------------------------------------------------


class FullDisk:
    """Refuses the saves with these numbers."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        refused: Container[int],
        error: OSError = OSError(errno.ENOSPC, "No space left on device"),  # noqa: B008 never changed
    ) -> None:
        self.saves = 0
        self.error = error
        self.refused = refused
        self.write = file.write
        monkeypatch.setattr(file, "write", self)
        monkeypatch.setattr("sweep.slices.checkpoints.RETRY_S", 0.0)
        monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 0.0)

    def __call__(self, *arguments: Any) -> file.Saved:
        self.saves += 1
        if self.saves in self.refused:
            raise self.error
        return self.write(*arguments)


@pytest.mark.parametrize("refused", [{2, 3}, {5}, {5, 6}, {1, 3, 5}])
def test_a_refused_checkpoint_costs_nothing_but_itself(
    refused: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = run_slice(slice_spec(tmp_path / "s"))
    cache.forget()
    FullDisk(monkeypatch, refused)
    outcome = run_slice(slice_spec(tmp_path / "0"))
    assert outcome.end is End.GOAL
    assert outcome.saved[-1].iteration == 5
    assert _curve(outcome) == _curve(straight)


def test_a_disk_that_refuses_again_and_again_ends_the_slice_and_charges_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = run_slice(replace(slice_spec(tmp_path / "s"), goal=Goal(10)))
    cache.forget()
    disk = FullDisk(monkeypatch, range(3, 100))
    spec = slice_spec(tmp_path / "0", goal=Goal(10))
    head = run_slice(spec)
    assert (head.end, head.error) == (End.UNSAVED, "No space left on device")
    assert (disk.saves, len(head.rows), head.saved[-1].iteration) == (5, 5, 2)
    disk.refused = ()
    assert _curve(_go_on(spec, head)) == _curve(straight)[2:]
    replica = Replica(0, 0, Objective("loss", "min", Score(), "training_iteration"))
    closed = decisions.slice_end_event(replica, head, (), Limits(max_failures=0))
    assert closed.status is Status.PAUSED
    refusal = decisions.disk_refused([closed], tmp_path)
    assert refusal.startswith("trial 0: the disk did not store a checkpoint: No space left")


def test_a_disk_that_becomes_read_only_charges_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.EROFS, "Read-only file system")
    disk, unlink = FullDisk(monkeypatch, range(3, 100), error), Path.unlink

    def delete(path: Path, missing_ok: bool = False) -> None:
        if disk.saves >= 2:
            raise error
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", delete)
    outcome = run_slice(slice_spec(tmp_path, goal=Goal(10)))
    monkeypatch.undo()
    assert (outcome.end, outcome.error) == (End.UNSAVED, "Read-only file system")
    assert outcome.saved[-1].iteration == 2


@pytest.mark.parametrize("how", AWAY)
def test_a_share_that_is_away_takes_no_checkpoint_and_charges_nobody(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FullDisk(monkeypatch, range(1, 100), AWAY[how])
    outcome = run_slice(slice_spec(tmp_path))
    assert (outcome.end, outcome.error) == (End.UNSAVED, AWAY[how].strerror)


def test_a_sweep_on_a_full_disk_exits_with_code_4_and_is_resumed_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = sweeps.make(tmp_path / "a")
    assert sweeps.run(straight) == "finished"
    folder = sweeps.make(tmp_path / "b")
    disk = FullDisk(monkeypatch, range(7, 100))
    with pytest.raises(StorageError, match="No space left on device") as error:
        sweeps.run(folder)
    assert error.value.exit_code == 4
    disk.refused = ()
    assert sweeps.run(folder) == "finished"
    assert sweeps.decisions(folder) == sweeps.decisions(straight)


def test_a_disk_that_takes_no_log_charges_nobody(tmp_path: Path) -> None:
    def refused(_spec: SliceSpec) -> Any:
        raise OSError(errno.EROFS, "Read-only file system", "trials/0/log.txt")

    outcome = run_slice(slice_spec(tmp_path), refused)
    assert (outcome.end, outcome.rows) == (End.UNSAVED, ())
    assert outcome.error == "Read-only file system: trials/0/log.txt"


def test_a_process_that_can_open_no_further_file_is_lost(tmp_path: Path) -> None:
    def refused(_spec: SliceSpec) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(OSError, match="Too many open files"):
        run_slice(slice_spec(tmp_path), refused)


def test_an_error_of_the_trainables_own_is_not_the_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "mine")

    monkeypatch.setattr(Quadratic, "save_checkpoint", fail)
    outcome = run_slice(slice_spec(tmp_path))
    assert outcome.end is End.CRASHED
    assert "mine" in outcome.error


# ---- what is held in memory ---------------------------------------------------------------------


def test_of_quick_iterations_only_what_is_kept_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = tmp_path / "0"
    disk = FullDisk(monkeypatch, ())
    before = run_slice(slice_spec(at_once, goal=Goal(40)))
    assert disk.saves == 40
    cache.forget()
    disk.saves = 0
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 1e9)
    outcome = run_slice(slice_spec(tmp_path / "1", goal=Goal(40)))
    first = 1  # which is written at once
    assert disk.saves - first == len(outcome.saved) == 3
    kept = [(saved.iteration, saved.value) for saved in outcome.saved]
    assert kept == [(saved.iteration, saved.value) for saved in before.saved]
    for held, written in zip(outcome.saved, before.saved, strict=True):
        one, other = tmp_path / "1" / held.file, at_once / written.file
        assert _lasting(file.read(one).state) == _lasting(file.read(other).state)


def _lasting(state: Any) -> Any:
    """A state without its clock."""
    return {key: value for key, value in state.items() if key != "counters"}["trainable"]


def test_of_a_trainer_that_gives_copies_only_what_is_kept_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[int] = []

    def counted(state: Any) -> Any:
        packed.append(state["counters"]["training_iteration"])
        return pack(state)

    monkeypatch.setattr("sweep.slices.checkpoints.pack", counted)
    kept = {}
    for seconds in (0.0, 1e9):
        packed.clear()
        cache.forget()
        monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", seconds)
        folder = tmp_path / str(seconds)
        spec = slice_spec(folder, SMALL_PPO, trainable="ppo", metric="episode_reward_mean", sign=1)
        outcome = run_slice(replace(spec, goal=Goal(12)))
        kept[seconds] = [
            (saved.iteration, _lasting(file.read(folder / saved.file).state))
            for saved in outcome.saved
        ]
    assert packed == [1, *(iteration for iteration, _ in kept[1e9])]
    assert differences(kept[0.0], kept[1e9]) == []


def test_no_folder_is_made_for_the_checkpoints_of_a_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.trainable.temporary_folder", None)
    spec = slice_spec(tmp_path, SMALL_PPO, trainable="ppo", metric="episode_reward_mean")
    outcome = run_slice(replace(spec, goal=Goal(2)))
    assert (outcome.end, outcome.saved[-1].iteration) == (End.GOAL, 2)


def test_what_is_held_does_not_change_with_the_trainable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 1e9)
    spec = slice_spec(tmp_path, trainable=f"{__name__}:Remembers")
    older, newest = run_slice(spec).saved[-2:]
    for saved in (older, newest):
        data = file.read(tmp_path / saved.file).state["trainable"]["data"]
        assert np.count_nonzero(data["buffer"]) == saved.iteration


def test_a_large_checkpoint_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch, ())
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 1e9)
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_BYTES", 100)
    run_slice(slice_spec(tmp_path))
    assert disk.saves == 5


def test_checkpoints_are_held_as_long_as_all_together_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch, ())
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 1e9)
    policy = Retention.from_spec(CheckpointPolicy(every=1, keep_last=4, keep_best=0))
    spec = slice_spec(tmp_path / "0", goal=Goal(12), policy=policy)
    outcome = run_slice(spec)
    assert disk.saves - 1 == len(outcome.saved) == 4
    state = file.read(tmp_path / "0" / outcome.saved[-1].file).state
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_BYTES", int(2.9 * pack(state).size))
    cache.forget()
    disk.saves = 0
    run_slice(replace(spec, folder=str(tmp_path / "1")))
    assert disk.saves == 12


class Fails(Quadratic):
    """Raises in its fourth iteration."""

    def step(self) -> dict[str, Any]:
        if self.iteration == 3:
            raise RuntimeError("on purpose")
        return super().step()


class CannotSave(Quadratic):
    """Raises when its third iteration is saved."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        if self.iteration == 3:
            raise RuntimeError("no room for weights")
        return super().save_checkpoint(checkpoint_dir)


def test_an_error_in_saving_is_not_that_of_the_next_iteration(tmp_path: Path) -> None:
    outcome = run_slice(slice_spec(tmp_path, trainable=f"{__name__}:CannotSave"))
    assert (outcome.end, [row.iteration for row in outcome.rows]) == (End.CRASHED, [1, 2, 3])
    replica = Replica(0, 0, Objective("loss", "min", Score()))
    said = "saving after iteration 3 raised RuntimeError: no room for weights"
    event = decisions.slice_end_event(replica, outcome, (), Limits())
    assert (event.status, event.reason) == (Status.PAUSED, f"{said}; it will be retried once")
    replica.crashes = [event.error_at]
    event = decisions.slice_end_event(replica, outcome, (), Limits())
    assert event.status is Status.FAILED
    assert event.reason == f"{said}; the same happened before, so it is not retried"


def test_a_checkpoint_that_cannot_be_written_at_the_end_is_an_error_in_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held in memory is packed there."""

    write = file.write

    def refuse(folder: Path, step: int, *more: Any) -> file.Saved:
        if step == 5:
            raise StateError("weights", "a generator", "leave it out")
        return write(folder, step, *more)

    monkeypatch.setattr("sweep.slices.checkpoints.file.write", refuse)
    outcome = run_slice(slice_spec(tmp_path))
    event = decisions.slice_end_event(
        Replica(0, 0, Objective("loss", "min", Score())), outcome, (), Limits()
    )
    assert event.reason.startswith("saving after iteration 5 raised trainables.errors.StateError")


def test_a_crash_costs_one_iteration_also_of_what_was_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 1e9)
    outcome = run_slice(slice_spec(tmp_path, trainable=f"{__name__}:Fails"))
    assert (outcome.end, outcome.error_at) == (End.CRASHED, 4)
    assert "on purpose" in outcome.error
    assert (len(outcome.rows), outcome.saved[-1].iteration) == (3, 3)
    assert file.read(tmp_path / outcome.saved[-1].file).header["step"] == 3


@pytest.mark.parametrize("keep_best", [0, 1, 2])
@pytest.mark.parametrize("apart", [0.0, 1e9], ids=["long", "short"])
def test_of_short_iterations_only_new_bests_are_copied_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: float, keep_best: int
) -> None:
    copied: list[int] = []
    plain = Quadratic.get_state

    def counted(self: Quadratic) -> dict[str, Any]:
        copied.append(self.iteration)
        return plain(self)

    monkeypatch.setattr(Quadratic, "get_state", counted)
    monkeypatch.setattr("sweep.slices.checkpoints.APART_S", apart)
    policy = Retention.from_spec(CheckpointPolicy(keep_last=2, keep_best=keep_best))
    noisy = {"lr": 0.9, "x0": 3.001, "noise": 5.0}
    outcome = run_slice(slice_spec(tmp_path, noisy, goal=Goal(20), policy=policy))
    losses = [row.metrics["loss"] for row in outcome.rows]
    lowest = np.minimum.accumulate(losses)
    bests = [i for i in range(1, 21) if losses[i - 1] == lowest[i - 1]]
    assert 1 < len(bests) < 10
    if apart == 0.0 or keep_best == 2:  # the second best may be any of them
        assert copied == list(range(1, 21))
    else:
        assert copied == sorted({*(bests if keep_best else []), 20})
    assert outcome.saved[-1].iteration == 20


class FindsNoRoom(Quadratic):
    """Its own files find no room after the third iteration."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        if self.iteration > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().save_checkpoint(checkpoint_dir)


def test_what_was_held_before_the_disk_refused_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 1e9)
    monkeypatch.setattr("sweep.slices.checkpoints.RETRY_S", 0.0)
    outcome = run_slice(slice_spec(tmp_path, trainable=f"{__name__}:FindsNoRoom"))
    assert (outcome.end, outcome.error) == (End.UNSAVED, "No space left on device")
    assert outcome.saved[-1].iteration == 3


@pytest.mark.parametrize("refused", [{1}, {2}, {1, 2}])
def test_a_disk_that_refuses_what_was_held_is_asked_again_for_the_newest(
    refused: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FullDisk(monkeypatch, refused)
    monkeypatch.setattr("sweep.slices.checkpoints.HELD_S", 1e9)
    outcome = run_slice(slice_spec(tmp_path))
    assert (outcome.end, outcome.saved[-1].iteration) == (End.GOAL, 5)
    lost = len(refused & {2})  # the first was written at once, and is let go
    assert len(outcome.saved) == 2 - lost


# ---- signatures ---------------------------------------------------------------------------------


def test_the_drivers_key_signs_and_no_other_is_accepted(tmp_path: Path) -> None:
    spec = replace(slice_spec(tmp_path, trainable="tests.support.quadratic:RayStyle"), trust=ME)
    head = run_slice(spec)
    assert _go_on(spec, head).source == 5
    theirs = _go_on(replace(spec, trust=YOU), head)
    assert theirs.end is End.CRASHED
    assert "UntrustedCheckpoint" in theirs.error
    assert "sweep trust" in theirs.error
    assert not theirs.rows
    assert ME.key.hex() not in theirs.error
    accepted = Trust(YOU.key, frozenset({head.saved[-1].digest}))
    assert _go_on(replace(spec, trust=accepted), head).source == 5


def test_a_slice_does_not_show_its_key(tmp_path: Path) -> None:
    assert repr(ME.key) not in repr(replace(slice_spec(tmp_path), trust=ME))


def test_a_sweep_leaves_its_key_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    changes = {"scheduler": "fifo", "trials": 2, "trainable": "tests.support.quadratic:RayStyle"}
    folder = sweeps.make(tmp_path / "sweeps", **changes)
    sweeps.run(folder, pool="loky")
    sweeps.copy_to_optuna(folder)
    key = signing.user_trust().key
    forms = (key, key.hex().encode(), repr(key)[2:-1].encode(), base64.b64encode(key))
    files = [path for path in (tmp_path / "sweeps").rglob("*") if path.is_file()]
    signed = [path for path in files if b'"mac":' in path.read_bytes()]
    assert len(signed) >= 4
    texts = [*(path.read_bytes() for path in files), *(t.encode() for t in capfd.readouterr())]
    assert not any(form in text for form in forms for text in texts)


def test_sweep_trust_accepts_files_by_their_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    spec = replace(slice_spec(tmp_path, trainable="tests.support.quadratic:RayStyle"), trust=ME)
    saved = run_slice(spec).saved[-1]
    path = tmp_path / saved.file
    assert main(["trust", str(tmp_path / "nothing.swck")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["trust", str(path)]) == 0
    assert ME.name in capsys.readouterr().out
    assert file.read(path).header["step"] == 5


@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equal_checkpoints_the_newest_stays_as_the_best_one(mode: Mode) -> None:
    replica = trials.trial(0, Status.PAUSED, mode=mode).replicas[0]
    values = [7.0, 7.0, 5.0, 5.0, 6.0, 6.0]
    for iteration, value in enumerate(values, start=1):
        saved = Saved(iteration, f"{iteration}.swck", f"{iteration}", 1, value)
        replica.checkpoints[saved.digest] = saved
    policy = Retention.from_spec(CheckpointPolicy(keep_last=2, keep_best=1))
    gone = expendable(replica.checkpoints.values(), policy, replica.objective.sign)
    best = replica.best_checkpoint
    assert best is not None
    assert best.iteration == (2 if mode == "max" else 4)
    assert [saved.iteration for saved in gone] == [i for i in range(1, 5) if i != best.iteration]
