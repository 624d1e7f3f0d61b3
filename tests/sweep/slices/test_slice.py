from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.driver.decisions import slice_end_event
from sweep.history.events import End, Goal, Status
from sweep.history.objective import Objective
from sweep.history.replica import Replica
from sweep.slices import cache, checkpoints
from sweep.slices import slice as slice_module
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.retention import Retention
from sweep.slices.slice import first_line, run_slice
from sweep.spec import CheckpointPolicy
from sweep.spec.objective import Score
from sweep.spec.sections import Limits
from tests.support.processes import run_python
from tests.support.quadratic import expected_loss
from tests.support.slices import slice_spec
from tests.support.sweeps import stable
from trainables import Trainable, trainable
from trainables.checkpoint import file
from trainables.errors import WorkerError


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    """Each test begins and ends without a live trainable."""
    cache.forget()
    yield
    cache.forget()


def keeping(**keys: Any) -> Retention:
    return Retention.from_spec(CheckpointPolicy(**keys))


def curve(*outcomes: SliceOutcome) -> list[tuple[int, dict[str, Any]]]:
    return [(row.iteration, stable(row.metrics)) for o in outcomes for row in o.rows]


def go_on(spec: SliceSpec, outcome: SliceOutcome, goal: Goal) -> SliceOutcome:
    sources = tuple(sorted(outcome.saved, key=lambda saved: -saved.iteration))
    return run_slice(replace(spec, sources=sources, goal=goal, number=spec.number + 1))


def test_a_slice_ends_at_its_goal_with_a_checkpoint_there(tmp_path: Path) -> None:
    outcome = run_slice(slice_spec(tmp_path))
    assert outcome.end is End.GOAL
    assert [row.iteration for row in outcome.rows] == [1, 2, 3, 4, 5]
    assert outcome.saved[-1].iteration == 5
    assert outcome.rows[-1].metrics["loss"] == expected_loss({"noise": 0.1}, 5, 11)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", ["Quadratic", "RayStyle", "quadratic_function"])
def test_head_and_tail_equal_the_straight_run(tmp_path: Path, name: str, cached: bool) -> None:
    trainable = f"tests.support.quadratic:{name}"
    spec = slice_spec(tmp_path / "a", trainable=trainable)
    straight = run_slice(replace(spec, goal=Goal(10)))
    cache.forget()
    spec = slice_spec(tmp_path / "b", trainable=trainable)
    head = run_slice(spec)
    if not cached:
        cache.forget()
    tail = go_on(spec, head, Goal(10))
    assert tail.source == 5
    assert curve(head, tail) == curve(straight)


def test_a_trial_is_the_same_alone_and_after_three_others_in_the_same_worker(
    tmp_path: Path,
) -> None:
    """RayStyle draws from the global streams, as other people's code does."""
    spec = slice_spec(tmp_path / "a", trainable="tests.support.quadratic:RayStyle")
    alone = run_slice(spec)
    cache.forget()
    for number in range(1, 4):
        other = slice_spec(tmp_path / str(number), trainable=spec.trainable, trial=number, seed=99)
        run_slice(other)
    after = run_slice(replace(spec, folder=str(slice_spec(tmp_path / "b").folder)))
    assert curve(after) == curve(alone)


def test_a_slice_whose_time_is_up_ends_at_the_next_checkpoint(tmp_path: Path) -> None:
    outcome = run_slice(slice_spec(tmp_path, slice_s=1e-9))
    assert (outcome.end, len(outcome.rows), len(outcome.saved)) == (End.TIME, 1, 1)


def test_a_slice_that_is_asked_to_stop_saves_and_ends(tmp_path: Path) -> None:
    spec = slice_spec(tmp_path)
    Path(spec.stop_file).touch()
    outcome = run_slice(spec)
    assert (outcome.end, len(outcome.rows), len(outcome.saved)) == (End.ASKED, 1, 1)


def test_a_function_ends_only_at_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    config = {"save_every": 4}
    name = "tests.support.quadratic:quadratic_function"
    outcome = run_slice(slice_spec(tmp_path, config, trainable=name, slice_s=1e-9))
    assert [row.iteration for row in outcome.rows] == [1, 2, 3, 4]


FUNCTION = "tests.support.quadratic:quadratic_function"


@pytest.mark.parametrize("save_every", [1, 5, 12, 100])
def test_a_function_that_reports_twelve_times_has_twelve_iterations(
    tmp_path: Path, save_every: int
) -> None:
    config = {"iterations": 12, "save_every": save_every}
    policy = keeping(every=1000, keep_best=0)
    spec = slice_spec(tmp_path, config, trainable=FUNCTION, goal=Goal(99), policy=policy)
    outcome = run_slice(spec)
    assert (outcome.end, outcome.reason) == (End.DONE, "")
    assert [row.iteration for row in outcome.rows] == [*range(1, 13)]
    assert len({row.metrics["loss"] for row in outcome.rows}) == 12
    # What the last report saved is there for an export; an earlier one was not due.
    assert [saved.iteration for saved in outcome.saved] == [12] * (12 % save_every == 0)


@pytest.mark.parametrize("cached", [True, False])
def test_a_function_that_was_paused_at_its_last_report_ends_without_another(
    tmp_path: Path, cached: bool
) -> None:
    spec = slice_spec(tmp_path, {"iterations": 4}, trainable=FUNCTION, goal=Goal(4))
    head = run_slice(spec)
    if not cached:
        cache.forget()
    tail = go_on(spec, head, Goal(9, top=9))
    assert (tail.end, tail.source, tail.rows, tail.saved) == (End.DONE, 4, (), ())
    replica = Replica(0, 0, Objective("loss", "min", Score()), goal=Goal(9, top=9))
    event = slice_end_event(replica, tail, (), Limits())
    assert (event.status, event.reason) == (
        Status.COMPLETED,
        "the trainable reported that it is done",
    )


def test_who_asks_a_function_to_stop_is_heard_at_its_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the next look for the file would come long after that checkpoint."""
    monkeypatch.setattr(slice_module, "LOOK_S", 1e9)
    spec = slice_spec(
        tmp_path,
        {"save_every": 4},
        trainable="tests.support.quadratic:quadratic_function",
        goal=Goal(50),
    )
    Path(spec.stop_file).touch()
    outcome = run_slice(spec)
    assert (outcome.end, len(outcome.rows)) == (End.ASKED, 4)


def test_what_cannot_be_saved_runs_to_its_goal_in_one_slice(tmp_path: Path) -> None:
    name = "tests.sweep.unsaveable:Unsaveable"
    spec = slice_spec(
        tmp_path, {"n": 4}, trainable=name, paths=(str(Path.cwd()),), goal=Goal(), slice_s=1e-9
    )
    outcome = run_slice(spec)
    assert (outcome.end, len(outcome.rows), outcome.saved) == (End.DONE, 4, ())


def test_a_crash_keeps_all_results(tmp_path: Path) -> None:
    spec = slice_spec(tmp_path, {"fail_at": 5}, policy=keeping(every=3, keep_best=0))
    outcome = run_slice(spec)
    assert outcome.end is End.CRASHED
    assert [row.iteration for row in outcome.rows] == [1, 2, 3, 4]
    assert [saved.iteration for saved in outcome.saved] == [3]
    assert outcome.error_at == 5
    assert "RuntimeError: fail_at: 5" in outcome.error


def test_a_rollout_worker_that_died_is_a_lost_process_not_a_crash(tmp_path: Path) -> None:
    name = "tests.support.mishaps:LosesAWorker"
    paths = (str(Path.cwd()),)
    spec = slice_spec(tmp_path, {}, trainable=name, paths=paths, goal=Goal(9))
    outcome = run_slice(spec)
    assert (outcome.end, [row.iteration for row in outcome.rows]) == (End.LOST, [1, 2])
    event = slice_end_event(
        Replica(0, 0, Objective("value", "max", Score())), outcome, (), Limits()
    )
    assert event.status is Status.PAUSED
    assert event.reason.endswith("WorkerDied: rollout worker 1 died; exit code -9; retry 1 of 3")


def _with_a_note() -> Exception:
    error = ValueError("boom")
    error.add_note("a note")
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("boom\nsecond line"), "RuntimeError: boom"),
        (
            RuntimeError("boom\n\nTraceback (most recent call last):\nOther: 1"),
            "RuntimeError: boom",
        ),
        (RuntimeError(), "RuntimeError"),
        (_with_a_note(), "ValueError: boom"),
        (ExceptionGroup("two", [OSError(1), OSError(2)]), "ExceptionGroup: two (2 sub-exceptions)"),
        (SyntaxError("bad", ("file.py", 1, 1, "x y\n")), "SyntaxError: bad"),
        (
            WorkerError("worker 1 hangs\n\n  a stack"),
            "trainables.errors.WorkerError: worker 1 hangs",
        ),
    ],
)
def test_of_an_error_its_kind_and_the_first_line_that_it_says_are_told(
    error: Exception, words: str
) -> None:
    assert first_line(error) == words


def test_a_crash_is_told_with_the_kind_and_the_first_line_of_its_error(tmp_path: Path) -> None:
    here = (str(Path.cwd()),)
    spec = slice_spec(tmp_path, {}, trainable=f"{__name__}:LinesLong", paths=here, goal=Goal(9))
    event = slice_end_event(
        Replica(0, 0, Objective("x", "max", Score())), run_slice(spec), (), Limits()
    )
    assert event.reason == "iteration 1 raised RuntimeError: boom; it will be retried once"
    assert "second line" in event.error


class LinesLong(Trainable):
    """Its error has two lines."""

    def step(self) -> dict[str, Any]:
        """Raise it."""
        raise RuntimeError("boom\nsecond line")


def test_a_new_best_is_saved_between_two_intervals(tmp_path: Path) -> None:
    config = {"lr": 0.9, "x0": 3.001, "noise": 5.0}
    policy = keeping(every=100, keep_best=1)
    outcome = run_slice(slice_spec(tmp_path, config, policy=policy, goal=Goal(20)))
    losses = {row.iteration: row.metrics["loss"] for row in outcome.rows}
    best = min(losses, key=lambda iteration: losses[iteration])
    assert best in {saved.iteration for saved in outcome.saved}


@pytest.mark.parametrize("change", ["trial", "replica", "sweep_id"])
def test_a_checkpoint_of_somebody_else_is_not_taken(tmp_path: Path, change: str) -> None:
    spec = slice_spec(tmp_path)
    head = run_slice(spec)
    cache.forget()
    changes: dict[str, Any] = {change: "x" if change == "sweep_id" else 1}
    stranger = replace(spec, **changes)
    outcome = go_on(stranger, head, Goal(10))
    assert outcome.source == 0
    assert "belongs elsewhere" in outcome.skipped[0]


def test_a_slice_that_was_given_up_and_goes_on_takes_no_file_of_the_one_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "HELD_S", 0.0)  # each is written, and then let go
    # Two machines may take equally long; a checkpoint holds the seconds that it took.
    monkeypatch.setattr(trainable, "time", SimpleNamespace(monotonic=lambda: 0.0))
    head = run_slice(slice_spec(tmp_path, goal=Goal(2)))
    spec = slice_spec(tmp_path, sources=head.saved, number=2, policy=keeping(every=1))
    tail = run_slice(replace(spec, goal=Goal(5)))
    given_up = run_slice(replace(spec, number=1, goal=Goal(40)))  # and lets go of its older ones
    assert curve(given_up)[: len(tail.rows)] == curve(tail)
    for saved in tail.saved:
        assert file.verify(tmp_path / saved.file, saved.digest)["step"] == saved.iteration


def test_from_a_damaged_checkpoint_it_falls_back_to_the_one_before(tmp_path: Path) -> None:
    spec = slice_spec(tmp_path)
    straight = run_slice(replace(spec, goal=Goal(10)))
    head = run_slice(slice_spec(tmp_path / "b"))
    cache.forget()
    newest = tmp_path / "b" / head.saved[-1].file
    newest.write_bytes(newest.read_bytes()[:-40])
    tail = go_on(slice_spec(tmp_path / "b"), head, Goal(10))
    assert tail.source == 4
    assert newest.name in tail.skipped[0]
    assert curve(tail) == curve(straight)[4:]


def test_the_seed_decides_the_trial(tmp_path: Path) -> None:
    one, two = (run_slice(slice_spec(tmp_path / str(seed), seed=seed)) for seed in (1, 2))
    assert curve(one) != curve(two)


def test_a_process_that_runs_slices_imports_nothing_that_only_specs_and_reports_need() -> None:
    heavy = {"ruamel", "optuna", "mlflow", "plotly", "rich", "alembic", "pandas", "pydantic"}
    asked = (
        "import sys\nimport sweep.pools.loky, sweep.slices.slice\n"
        f"print(sorted({heavy!r} & {{name.partition('.')[0] for name in sys.modules}}))"
    )
    assert run_python(asked) == "[]\n"
