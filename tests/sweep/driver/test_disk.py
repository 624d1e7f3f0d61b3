"""A disk that takes no more, and a sweep that may have only so much of it."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.errors import StorageError
from sweep.driver import limits
from sweep.driver.final_evaluation import FinalEvaluation, FinalEvaluator
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.curve import Point
from sweep.history.events import ParentCheckpoint, Recorded, Saved, Status
from sweep.history.history import History
from sweep.history.seeds import FIRST_TEST
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices.retention import needed_by_children
from tests.support import sweeps, trials
from tests.support.command_line import Here, write_spec


def sizes(folder: Folder) -> int:
    return sum(path.stat().st_size for path in folder.path.glob("trials/*/*.swck"))


def full_disk(root: Path) -> dict[str, Any]:
    return {
        "trainable": "tests.support.mishaps:DiskFull",
        "config": {"full": str(root / "full")},
        "metric": "value",
        "mode": "max",
        "scheduler": "fifo",
        "deterministic": None,
        "trials": 2,
    }


def test_a_full_disk_is_charged_to_nobody_and_the_sweep_goes_on_when_there_is_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    spec = write_spec(tmp_path, **full_disk(tmp_path))
    (tmp_path / "full").touch()
    for command in (("run", spec), ("resume", "demo")):
        code, _, err = here(*command, "--pool", "inline")
        assert code == 4
        assert err.count("No space left on device") == 1
        assert "earlier checkpoints are safe" in err
    folder = Folder(tmp_path / "sweeps", "demo")
    (trial,) = sweeps.history(folder).trials
    replica = trial.replicas[0]
    assert (trial.status, trial.iteration) == (Status.PAUSED, 3)
    assert (replica.crashes, replica.lost_slices) == ([], 0)
    (tmp_path / "full").unlink()
    assert here("resume", "demo", "--pool", "inline")[0] == 0
    for number in range(2):
        values = [row.metrics["value"] for row in sweeps.curve(folder, number)]
        assert values == [float(i) for i in range(1, 10)]


@pytest.mark.slow
def test_a_sweep_keeps_to_its_disk_and_what_is_needed_stays(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"searcher": "random", "scheduler": "fifo", "trials": 5}
    free = sweeps.make(tmp_path / "a", **changes)
    sweeps.run(free)
    one = sweeps.history(free).trials[0].replicas[0].newest_checkpoint
    assert one is not None
    most = 6 * one.size
    assert sizes(free) > most
    bound = sweeps.make(tmp_path / "b", checkpoint={"max_disk": most}, **changes)
    assert sweeps.run(bound) == "finished"
    assert 0 < sizes(bound) <= most
    past = sweeps.history(bound)
    best = past.ranked()[0].leader.best_checkpoint
    expected = sweeps.history(free).ranked()[0].leader.best_checkpoint
    assert best is not None
    assert expected is not None
    assert best.iteration == expected.iteration
    for trial in past.trials:
        named = {saved.file for saved in trial.replicas[0].checkpoints.values()}
        assert named == {path.name for path in bound.trial(trial.number).glob("*.swck")}
        assert sweeps.curve(bound, trial.number) == sweeps.curve(free, trial.number)


def test_checkpoints_of_tests_count_and_go(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, searcher="random", scheduler="fifo", trials=2)
    sweeps.run(folder)
    most = sizes(folder)
    with launch.open_context(Launch(folder, 1, "inline", max_disk=most)):
        pass
    with launch.open_context(
        Launch(folder, 1, "inline", final_evaluation=FinalEvaluation(2, 2))
    ) as (
        parts,
        _,
    ):
        assert FinalEvaluator(parts, lambda _: None).run() == "finished"
    assert 0 < sizes(folder) <= most
    past = sweeps.history(folder)
    assert past.ranked()[0].leader.best_checkpoint is not None
    for replica in [*past.replicas(*Status), *past.test_replicas(*Status)]:
        named = {saved.file for saved in replica.checkpoints.values()}
        its = folder.trial(replica.trial, replica.index)
        assert named == {path.name for path in its.glob("*.swck")}


def test_where_all_is_needed_the_sweep_pauses_and_says_with_what_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    changes = {"scheduler": "fifo", "deterministic": None, "limits": {"slice_s": 1e-9}}
    spec = write_spec(tmp_path, trials=1, **changes, checkpoint={"max_disk": "1KB"})
    code, _, err = here("run", spec, "--pool", "inline")
    assert code == 4
    assert "for checkpoints and logs to continue, but only 1 KB are allowed" in err
    folder = Folder(tmp_path / "sweeps", "demo")
    before = sweeps.history(folder).trials[0].iteration
    assert (before, sweeps.history(folder).ended) == (1, "failed")
    code, _, err = here("resume", "demo", "--pool", "inline", "--max-disk", "lots")
    assert (code, "a size such as" in err) == (2, True)
    assert here("resume", "demo", "--pool", "inline", "--max-disk", "1MB")[0] == 0
    assert sweeps.history(folder).trials[0].status is Status.COMPLETED
    assert [row.iteration for row in sweeps.curve(folder, 0)] == list(range(1, 10))


# ---- which goes first -------------------------------------------------------------------------


def history_of(*saved: tuple[int, Status, dict[int, int]]) -> History:
    """Trials: seconds per iteration, status, and iteration → size of its checkpoint."""
    made = []
    for number, (seconds, status, sizes) in enumerate(saved):
        trial = trials.trial(number, status)
        replica = trial.replicas[0]
        replica.curve = [Point(i, i, float(number), seconds=float(seconds)) for i in range(1, 11)]
        for iteration, size in sizes.items():
            name = f"{number}-{iteration}"
            replica.checkpoints[name] = Saved(iteration, name, name, size, float(number))
        made.append(trial)
    return trials.history(made, len(made))


def dropped(past: History, most: int) -> tuple[list[str], bool]:
    events, refusal = limits.choose_deletions(past, most)
    return sorted(digest for event in events for digest in event.digests), bool(refusal)


def test_the_cheapest_to_make_again_goes_first() -> None:
    done = Status.COMPLETED
    past = history_of((3, done, {4: 10, 5: 10}), (1, done, {9: 10}), (9, done, {10: 10}))
    assert dropped(past, 40) == ([], False)
    assert dropped(past, 39) == (["0-5"], False)  # 3 seconds after the one before it
    assert dropped(past, 25) == (["0-5", "1-9"], False)  # 9 seconds
    assert dropped(past, 10) == (["0-4", "0-5", "1-9"], False)
    assert dropped(past, 9) == (["0-4", "0-5", "1-9"], True)  # the best of the best stays


def test_only_the_training_after_the_checkpoint_before_is_made_again() -> None:
    done = Status.COMPLETED
    past = history_of((2, done, {4: 10, 5: 10}), (3, done, {1: 10}), (9, done, {10: 10}))
    assert dropped(past, 30) == (["0-5"], False)  # 2 seconds, where the first of 1 took 3


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([*Status]),
            st.dictionaries(st.integers(1, 10), st.integers(0, 20), max_size=4),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 200),
)
def test_what_goes_is_what_looking_at_every_checkpoint_each_time_would_find(
    saved: list[tuple[int, Status, dict[int, int]]], most: int
) -> None:
    past = history_of(*saved)
    spare = [
        one
        for replica in past.all_replicas
        if (one := limits._Deletable(replica, limits._needed(past, replica, past.best))).left
    ]
    over = sum(sum(sizes.values()) for _, _, sizes in saved) - most
    gone = []
    while over > 0 and spare:
        cheapest = min(spare, key=lambda one: one.cost_key)
        gone.append(cheapest.drop())
        over -= gone[-1].size
        spare = [one for one in spare if one.left]
    assert dropped(past, most) == (sorted(one.digest for one in gone), over > 0)


def test_what_was_let_go_is_not_let_go_again() -> None:
    past = history_of((1, Status.COMPLETED, {4: 10, 5: 10}), (3, Status.COMPLETED, {10: 10}))
    for most, gone in ((20, ["0-5"]), (20, []), (10, ["0-4"]), (10, [])):
        events, _ = limits.choose_deletions(past, most)
        past.extend([Recorded(1, 1, 0.0, event) for event in events])
        assert [digest for event in events for digest in event.digests] == gone


def test_what_may_be_gone_on_with_stays() -> None:
    past = history_of(
        (1, Status.PAUSED, {8: 10, 9: 10, 10: 10}),
        (1, Status.RUNNING, {7: 10, 8: 10, 9: 10}),
        (1, Status.FAILED, {8: 10, 9: 10}),
        (1, Status.PRUNED, {8: 10, 9: 10}),
        (1, Status.STOPPED, {9: 10}),
    )
    past.trials[3].replicas[0].was_waiting = True
    gone, refused = dropped(past, 1)
    assert (gone, refused) == (["0-8"], True)


def test_what_may_be_tried_again_stays_though_another_seed_still_runs() -> None:
    past = history_of(
        (1, Status.FAILED, {7: 10, 8: 10, 9: 10}),
        (9, Status.COMPLETED, {1: 1}),
        (1, Status.STOPPED, {8: 10, 9: 10}),
        (1, Status.RUNNING, {}),
    )
    for index, trial in enumerate(past.trials[2:], start=1):
        past.trials[0].replicas.append(replace(trial.replicas[0], trial=0, index=index))
    del past.trials[2:]
    assert dropped(past, 1) == (["0-7", "1-1"], True)


@pytest.mark.parametrize(
    ("status", "waited", "sibling", "stays"),
    [
        (Status.PAUSED, False, Status.PAUSED, True),
        (Status.PRUNED, True, Status.PRUNED, True),
        (Status.PRUNED, False, Status.PRUNED, False),
        (Status.FAILED, False, Status.RUNNING, True),
        (Status.STOPPED, False, Status.FAILED, True),
        (Status.STOPPED, False, Status.STOPPED, False),
        (Status.COMPLETED, False, Status.FAILED, False),
    ],
)
def test_a_birth_stays_while_its_child_may_go_on(
    status: Status, waited: bool, sibling: Status, stays: bool
) -> None:
    past = history_of((1, Status.COMPLETED, {8: 10, 9: 10}), (1, status, {}))
    child = past.trials[1].replicas[0]
    child.was_waiting = waited
    child.birth = ParentCheckpoint(0, 0, 9.0, past.trials[0].replicas[0].checkpoints["0-9"])
    past.trials[1].replicas.append(replace(child, index=1, status=sibling, birth=None))
    needed = needed_by_children(past, past.trials[0].replicas[0])
    assert needed == ({"0-9"} if stays else set())


@pytest.mark.parametrize(
    ("own", "stays"), [({}, True), ({10: 10}, True), ({10: 10, 11: 10}, False)]
)
def test_a_birth_stays_until_its_child_has_two_checkpoints_of_its_own(
    own: dict[int, int], stays: bool
) -> None:
    past = history_of((1, Status.COMPLETED, {9: 10}), (1, Status.RUNNING, own))
    parent = past.trials[0].replicas[0]
    birth = ParentCheckpoint(0, 0, 9.0, parent.checkpoints["0-9"])
    past.trials[1].replicas[0].birth = birth
    assert needed_by_children(past, parent) == ({"0-9"} if stays else set())


def test_all_trials_are_ranked_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    past = history_of(*[(1, Status.COMPLETED, {9: 10, 10: 10})] * 50)
    best, calls = past.best, list[str]()

    def rank(_past: History) -> Trial | None:
        calls.append("once")
        return best

    monkeypatch.setattr(History, "best", property(rank))
    gone, refused = dropped(past, 10)
    assert (len(gone), refused, calls) == (99, False, ["once"])


def test_of_a_test_stays_what_it_may_be_gone_on_with_and_nothing_when_it_has_ended() -> None:
    past = history_of(
        (1, Status.COMPLETED, {10: 10}),
        (1, Status.PAUSED, {7: 10, 8: 10, 9: 10}),
        (1, Status.COMPLETED, {9: 10, 10: 10}),
    )
    tests = [replace(past.trials.pop().replicas[0], trial=0) for _ in range(2)]
    past.trials[0].test_replicas = [
        replace(test, index=FIRST_TEST + place) for place, test in enumerate(tests)
    ]
    assert dropped(past, 1) == (["1-7", "2-10", "2-9"], True)


def test_what_a_bred_trial_would_fall_back_to_stays() -> None:
    past = history_of(
        (1, Status.STOPPED, {8: 10, 9: 10}), (1, Status.RUNNING, {}), (1, Status.COMPLETED, {1: 1})
    )
    parent = past.trials[0].replicas[0].checkpoints["0-9"]
    past.trials[1].replicas[0].birth = ParentCheckpoint(0, 0, 9.0, parent)
    assert dropped(past, 1) == (["0-8"], True)


def test_what_was_let_go_is_let_go_for_whoever_reads_the_ledger(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trials=3, scheduler="fifo", checkpoint={"max_disk": "2KB"})
    with contextlib.suppress(StorageError):
        sweeps.run(folder)
    kinds = [record.event.kind for record in Ledger(folder.ledger).read()]
    assert "drop" in kinds
    for trial in sweeps.history(folder).trials:
        for saved in trial.replicas[0].checkpoints.values():
            assert (folder.trial(trial.number) / saved.file).is_file()
