"""What is seen while a sweep runs."""

import io
import json
from pathlib import Path

import pytest
from rich.text import Text

from sweep.cli import tables
from sweep.cli.live import Kind, LiveView, Narrator, PlainView, make_view
from sweep.cli.terminal import Terminal
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import Closed, End, Goal, Moved, Opened, Recorded, Status
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.pools import inline
from sweep.schedulers import SchedulerContext, asha
from sweep.views import overview, progress
from sweep.views.progress import Aim, Note
from tests.support import sweeps, trials


def screen(stream: io.StringIO | None = None, width: int = 80) -> Terminal:
    """A terminal on a stream that keeps what it is shown."""
    file = stream or io.StringIO()
    return Terminal(file, force_terminal=True, width=width, height=24, color_system=None)


def run(view: PlainView | LiveView, root: Path, **changes: object) -> None:
    folder = sweeps.make(root, **changes)
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, warnings):
        view.begin(parts, warnings)
        Driver(parts, view.update).run()
        view.end()


# ---- the live table -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["plain", "blanks  ", "", "x" * 12_000, "[b]no markup", "two\nlines ", "a\ttab"]
)
def test_plain_text_reaches_a_pipe_as_what_is_rendered_does(text: str) -> None:
    told, shown = io.StringIO(), io.StringIO()
    Terminal(told).say(text)
    Terminal(shown).show(Text(text), soft_wrap=True)
    assert told.getvalue() == shown.getvalue()


def test_the_live_table_shows_trials_progress_the_best_and_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.cli.live.REDRAW_S", 0.0)
    stream = io.StringIO()
    run(LiveView(screen(stream)), tmp_path)
    shown = stream.getvalue()
    assert "demo  tpe · asha · min loss" in shown
    assert "trial  iter" in shown
    assert "9 of 9 trials" in shown
    assert "best  trial" in shown
    assert "promoted to rung 3" in shown


@pytest.mark.parametrize("width", [80, 50])
def test_no_line_of_the_live_table_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("sweep.cli.live.REDRAW_S", 0.0)
    stream = io.StringIO()
    long = {f"a_rather_long_name_{i}": {"uniform": [0.0, 1.0]} for i in range(6)}
    run(LiveView(screen(stream, width)), tmp_path, space={"lr": 0.1, **long}, metric="loss")
    pictures = [line for line in stream.getvalue().splitlines() if "\x1b" not in line]
    assert pictures
    assert max(len(line) for line in pictures) <= width


def test_what_threads_say_is_shown_escaped(tmp_path: Path) -> None:
    stream = io.StringIO()
    view = LiveView(screen(stream))
    folder = sweeps.make(tmp_path)
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        view.begin(parts, [])
        view.say("tracker mlflow: \x1b[2J away")
        view.end()
    assert "tracker mlflow: \\x1b[2J away" in stream.getvalue()


@pytest.mark.slow
def test_a_terminal_that_goes_away_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.cli.live.REDRAW_S", 0.0)

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    for view in (LiveView, PlainView):
        run(view(screen(Gone())), tmp_path / view.__name__)
        history = sweeps.history(Folder(tmp_path / view.__name__, "demo"))
        assert history.ended == "finished"


# ---- plain text -----------------------------------------------------------------------------


def test_a_pipe_gets_plain_lines_without_control_codes_or_trailing_blanks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    pipe = io.StringIO()
    view = make_view(Terminal(pipe))
    assert isinstance(view, PlainView)
    run(view, tmp_path)
    lines = pipe.getvalue().splitlines()
    assert "\x1b" not in pipe.getvalue()
    assert all(line == line.rstrip() for line in lines)
    assert sum("starts: lr=" in line for line in lines) == 9


def test_warnings_are_shown(tmp_path: Path) -> None:
    pipe = io.StringIO()
    view = PlainView(Terminal(pipe))
    folder = sweeps.make(tmp_path)
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        view.begin(parts, ["torch was 1, is 2"])
    assert "warning: torch was 1, is 2" in pipe.getvalue()


# ---- narration ------------------------------------------------------------------------------


def told(*events: Opened | Closed | Moved, count: int = 12) -> list[tuple[Kind, str]]:
    past = trials.history([trials.trial(n, Status.PAUSED, [1.0]) for n in range(count)], count)
    records = [Recorded(k, 1, 0.0, event) for k, event in enumerate(events, start=1)]
    return [(line.kind, str(line)) for line in Narrator(past).lines(records)]


def closed(end: End, status: Status, reason: str = "why") -> Closed:
    return Closed(0, 0, 0, end, status, reason, skipped=())


def test_a_slice_that_merely_continues_is_no_news() -> None:
    goal = Goal(3.0)
    first, second = Opened(0, 0, 0, goal, "a"), Opened(0, 0, 1, goal, "b")
    assert [kind for kind, _ in told(first, closed(End.TIME, Status.PAUSED), second)] == [
        Kind.STARTED
    ]


def test_another_goal_is_a_promotion_with_its_reason() -> None:
    first, second = Opened(0, 0, 0, Goal(1.0), "a"), Opened(0, 0, 1, Goal(3.0), "promoted: b")
    assert told(first, second)[1] == (Kind.PROMOTED, "trial 0 promoted: b")


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (closed(End.DONE, Status.COMPLETED), Kind.FINISHED, "finished after 1 iteration"),
        (closed(End.CRASHED, Status.FAILED), Kind.FAILED, "failed"),
        (closed(End.LOST, Status.PAUSED), Kind.RETRIED, "is tried again: why"),
        (closed(End.ASKED, Status.PAUSED), Kind.SAVED, "is saved"),
        (closed(End.GOAL, Status.PAUSED), Kind.WAITS, "waits"),
    ],
)
def test_how_a_slice_ended_is_told(event: Closed, kind: Kind, words: str) -> None:
    ((found, text),) = told(event)
    assert found is kind
    assert words in text


def test_what_happens_to_many_trials_at_once_is_one_line() -> None:
    moves = [Moved(n, Status.PRUNED, "it waited") for n in range(12)]
    assert told(*moves) == [(Kind.STOPPED, "12 trials pruned: it waited")]
    moves[3] = Moved(3, Status.PRUNED, "it waited longer")
    said = "12 trials pruned, for instance trial 0: it waited"
    assert told(*moves) == [(Kind.STOPPED, said)]
    assert len(told(*moves[:3])) == 3
    again = [Moved(n, Status.PAUSED, "there is more to do") for n in range(12)]
    assert told(*again) == [(Kind.RETRIED, "12 trials continue: there is more to do")]


def test_a_skipped_checkpoint_is_told() -> None:
    event = Closed(0, 0, 0, End.TIME, Status.PAUSED, "", skipped=("ckpt: damaged",), saved=())
    assert told(event) == [(Kind.NOTICE, "trial 0 skips a checkpoint: ckpt: damaged")]


# ---- progress -------------------------------------------------------------------------------

PROMOTING = asha.Scheduler(asha.Options(max_t=9), SchedulerContext())
ASHA = Aim(PROMOTING.levels, {"training_iteration": 9}, PROMOTING.remaining_training)
FIFO = Aim((), {"training_iteration": 10})


def waiting(number: int, rung: int) -> Trial:
    """A trial that waits at a rung."""
    made = trials.trial(number, Status.PAUSED, [0.0] * rung)
    made.replicas[0].goal = Goal(rung, top=9)
    return made


def test_work_at_rungs_counts_although_no_trial_has_ended() -> None:
    past = trials.history([waiting(n, 1) for n in range(9)], 9)
    half_way = progress.fraction(past, ASHA)
    assert 0.2 < half_way < 0.6
    past.trials[0] = trials.trial(0, Status.COMPLETED, [0.0] * 9)
    assert progress.fraction(past, ASHA) > half_way


def test_a_whole_asha_sweep_comes_near_to_one_and_finished_is_one() -> None:
    lengths = [9] + [3] * 2 + [1] * 6
    past = trials.history([waiting(n, length) for n, length in enumerate(lengths)], 9)
    assert progress.fraction(past, ASHA) == pytest.approx(1.0)
    past.ended = "finished"
    assert progress.fraction(past, ASHA) == 1.0


def test_without_rungs_running_trials_count_by_their_way_to_the_stop() -> None:
    running = trials.trial(1, Status.RUNNING)
    past = trials.history([trials.trial(0, Status.COMPLETED, [1.0] * 10), running], 4)
    notes = {(1, 0): Note(5, 5.0, None)}
    assert progress.fraction(past, FIFO, notes) == pytest.approx((1 + 0.5) / 4)
    assert progress.fraction(past, Aim((), {}), notes) == pytest.approx(1 / 4)


def test_the_estimate_counts_only_what_this_driver_did() -> None:
    assert progress.time_left(10.0, 0.75, 0.5) == pytest.approx(10.0)
    assert progress.time_left(10.0, 0.5, 0.5) is None
    assert progress.time_left(10.0, 1.0, 1.0) == 0.0


def test_the_table_shows_what_the_pool_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline.Pool, "describe_speed", lambda _pool: "7 lanes of\x1b glass")
    stream = io.StringIO()
    run(LiveView(screen(stream)), tmp_path)
    assert "7 lanes of\\x1b glass" in stream.getvalue()


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"training_iteration": "x"}', "null"])
def test_a_torn_note_is_no_note(tmp_path: Path, content: str) -> None:
    folder = sweeps.make(tmp_path)
    folder.make_trial(0)
    past = trials.history([trials.trial(0, Status.RUNNING)], 1)
    (folder.trial(0) / "progress.json").write_text(content)
    assert progress.read_notes(folder, past) == {}
    (folder.trial(0) / "progress.json").write_text('{"training_iteration": 4, "score": 0.5}')
    assert progress.read_notes(folder, past) == {(0, 0): Note(4, 4.0, 0.5)}
    past.trials[0].replicas[0].curve = trials.trial(0, Status.RUNNING, [1.0] * 4).replicas[0].curve
    assert progress.read_notes(folder, past) == {}


def test_a_torn_note_does_not_hide_the_one_before_it(tmp_path: Path) -> None:
    folder, notes = sweeps.make(tmp_path), progress.NewestNotes()
    past = trials.history([trials.trial(0, Status.RUNNING)], 1)
    folder.make_trial(0)
    path = folder.trial(0) / "progress.json"
    assert notes.read(folder, past) == {}
    for content in (
        '{"training_iteration": 45, "score": 0.5}',
        "",
        '{"training_iteration": 45, "sc',
        '{"training_iteration": 45}',
    ):
        path.write_text(content)
        assert notes.read(folder, past) == {(0, 0): Note(45, 45.0, 0.5)}, content
    path.write_text('{"training_iteration": 46, "score": null}')
    assert notes.read(folder, past) == {(0, 0): Note(46, 46.0, 0.5)}
    past.trials[0].replicas[0].slices += 1
    path.write_text("")
    assert notes.read(folder, past) == {}, "the trial begins anew"


@pytest.mark.parametrize("worker", ["", "node-2-0"])
def test_the_workers_of_a_cluster_stand_beside_what_they_run(tmp_path: Path, worker: str) -> None:
    folder = sweeps.make(tmp_path)
    folder.make_trial(0)
    past = trials.history([trials.trial(0, Status.RUNNING)], 1)
    (folder.trial(0) / "progress.json").write_text(
        json.dumps({"training_iteration": 4, "score": 0.5, "worker": worker})
    )
    notes = progress.read_notes(folder, past)
    row = overview.running_replica(past, past.trials[0].replicas[0], notes, None, 0.0)
    assert row["worker"] == (worker or None)
    stream = io.StringIO()
    screen(stream).show(tables.running([row], "score", "training_iteration"))
    head, _, line = stream.getvalue().partition("\n")
    assert ("worker" in head, "node-2-0" in line) == (bool(worker), bool(worker))
