"""What people ask of a running sweep, from another process: followed once or not at all."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import UsageError
from sweep.driver.driver import Driver
from sweep.driver.final_evaluation import FinalEvaluation, FinalEvaluator
from sweep.driver.start import launch
from sweep.history.events import Opened, Recorded, Status
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Requests, Verb
from sweep.operations import control_client
from sweep.pools import inline
from sweep.views import lookup as look
from tests.support import sweeps
from tests.support.quadratic import expected_loss
from trainables.core import rng

When = Callable[[History], bool]


class Person:
    """Asks for something as soon as the sweep has come to a place, as another process would."""

    def __init__(self, folder: Folder, *wishes: tuple[When, Verb, dict[str, Any]]) -> None:
        self.requests = Requests(folder.ledger)
        self.wishes = list(wishes)
        self.numbers: list[int] = []

    def look(self, history: History) -> None:
        while self.wishes and self.wishes[0][0](history):
            _, verb, body = self.wishes.pop(0)
            self.numbers.append(self.requests.ask(verb, body))

    @property
    def answers(self) -> list[str]:
        found = [self.requests.answer_to(number) for number in self.numbers]
        return [f"{a.granted}: {a.text}" if a else "" for a in found]


def drive(folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run to the end; the driver looks for requests at every turn."""
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    with (
        closing(person.requests),
        launch.open_context(launch.Launch(folder, 1, "inline")) as (parts, _),
    ):

        def watch(_records: Sequence[Recorded]) -> None:
            person.look(parts.history)

        return Driver(parts, watch).run()


def trial_at(number: int, iteration: int) -> When:
    return lambda history: (
        len(history.trials) > number and history.trials[number].iteration >= iteration
    )


def losses(folder: Folder, number: int) -> list[Any]:
    return [row.metrics["loss"] for row in sweeps.curve(folder, number)]


def known(folder: Folder, number: int, upto: int = 9) -> list[float]:
    config = sweeps.history(folder).trials[number].config
    seed = rng.integer(7, "trial", number, 0)
    return [expected_loss(config, k, seed) for k in range(1, upto + 1)]


def test_a_stopped_trial_ends_where_it_stands_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.thin(tmp_path)
    person = Person(folder, (trial_at(1, 3), Verb.STOP, {"trials_named": [1]}))
    assert drive(folder, person, monkeypatch) == "finished"
    trials = sweeps.history(folder).trials
    assert [t.status for t in trials] == [Status.COMPLETED, Status.STOPPED, Status.COMPLETED]
    assert (trials[1].iteration, trials[1].reason) == (3, "stopped by a person")
    assert losses(folder, 1) == known(folder, 1, 3)


def test_a_held_trial_is_not_run_before_it_is_let_go_and_its_curve_is_the_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.thin(tmp_path)
    person = Person(
        folder,
        (trial_at(0, 2), Verb.PAUSE, {"trials_named": [0]}),
        (trial_at(2, 5), Verb.UNPAUSE, {"trials_named": [0]}),
    )
    assert drive(folder, person, monkeypatch) == "finished"
    assert person.wishes == []
    opened = [r.event for r in Ledger(folder.ledger).read() if isinstance(r.event, Opened)]
    order = [event.trial for event in opened]
    first_of_others = order.index(1)
    assert set(order[first_of_others : order.index(2) + 5]) == {1, 2}
    assert losses(folder, 0) == known(folder, 0)
    assert {t.status for t in sweeps.history(folder).trials} == {Status.COMPLETED}


def test_an_exam_is_asked_as_a_search_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sweep that is finished: its driver pauses, gets other slots and leaves."""
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    folder = sweeps.thin(tmp_path, trials=1)
    sweeps.run(folder)
    wishes: list[tuple[When, Verb, dict[str, Any]]] = [
        (
            lambda past: any(test.iteration == 2 for test in past.test_replicas(*Status)),
            Verb.PAUSE,
            {},
        ),
        (lambda past: past.suspended and not past.test_replicas(Status.RUNNING), Verb.UNPAUSE, {}),
        (lambda past: past.test_replicas(*Status)[0].iteration == 4, Verb.SET, {"jobs": 3}),
        (
            lambda past: past.test_replicas(*Status)[0].iteration == 5,
            Verb.CLONE,
            {"trials_named": [0]},
        ),
        (lambda past: past.test_replicas(*Status)[0].iteration == 6, Verb.STOP, {}),
    ]
    states = []
    request = launch.Launch(folder, 1, "inline", final_evaluation=FinalEvaluation(3, 1))
    with launch.open_context(request) as (parts, _):

        def watch(_records: Sequence[Recorded]) -> None:
            if wishes and wishes[0][0](parts.history):
                states.append(str(look.read(folder).state))
                control_client.ask(folder, *wishes.pop(0)[1:], patience_s=0.0)

        assert FinalEvaluator(parts, watch).run() == "stopped"
    assert states == ["testing", "paused", "testing", "testing", "testing"]
    with closing(Requests(folder.ledger)) as requests:
        answers = [requests.answer_to(number) for number in range(1, 6)]
    told = [answer.text for answer in answers if answer is not None and answer.granted]
    assert len(told) == 5
    assert told[3].endswith("; it runs when `sweep resume` continues the search")
    assert told[-1] == "running trials save and stop; continue with `sweep best --test-seeds`"
    assert [test.status for test in sweeps.history(folder).test_replicas(*Status)] == [
        Status.PAUSED
    ]
    for verb, body in ((Verb.PAUSE, {}), (Verb.SET, {"jobs": 3}), (Verb.STOP, {})):
        with pytest.raises(UsageError, match=f"{verb}: no driver is running"):
            control_client.ask(folder, verb, body, 0.0)


class Elastic(inline.Pool):
    """One whose number of slots may change."""

    def resize(self, slots: int) -> None:
        self.slots = slots


@pytest.mark.parametrize(
    ("pool", "told", "slots"),
    [
        (Elastic, "3 at once, because limits and resources allow no more", 3),
        (
            inline.Pool,
            "still 1 at once, because this pool cannot change its number of slots; "
            "`sweep resume` with another --pool uses 3",
            1,
        ),
    ],
)
def test_who_sets_more_jobs_than_there_can_be_is_told_how_many_there_are(
    pool: type[inline.Pool], told: str, slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    folder = sweeps.thin(tmp_path, limits={"slice_s": 1e-9, "max_concurrent": 3})
    person = Person(folder, (trial_at(0, 2), Verb.SET, {"jobs": 8}))
    with (
        closing(person.requests),
        launch.open_context(launch.Launch(folder, 1, "inline"), pool) as (parts, _),
    ):

        def watch(_records: Sequence[Recorded]) -> None:
            person.look(parts.history)

        Driver(parts, watch).run()
        assert (person.answers, parts.pool.slots) == ([f"True: {told}"], slots)
    assert sweeps.history(folder).jobs == 3


@pytest.mark.slow
def test_a_hold_outlives_drivers_and_is_lifted_where_none_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.thin(tmp_path)
    person = Person(folder, (trial_at(1, 4), Verb.PAUSE, {"trials_named": [1]}))
    assert drive(folder, person, monkeypatch) == "finished"
    for _ in range(2):
        trial = sweeps.history(folder).trials[1]
        assert (trial.status, trial.iteration, trial.hold) == (Status.PAUSED, 4, "pause")
        sweeps.run(folder)
    with closing(Requests(folder.ledger)) as requests:
        requests.ask(Verb.UNPAUSE, {"trials_named": [1]})
    sweeps.run(folder)
    assert sweeps.history(folder).trials[1].status is Status.COMPLETED
    assert losses(folder, 1) == known(folder, 1)


def test_schedulers_pass_over_a_held_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of the first rung is held there: another one is promoted in its place or none."""
    free = sweeps.make(tmp_path / "a", searcher="random", deterministic=None)
    sweeps.run(free)
    best = sweeps.history(free).ranked()[0].number
    folder = sweeps.make(tmp_path / "b", searcher="random", deterministic=None)
    person = Person(folder, (trial_at(best, 1), Verb.PAUSE, {"trials_named": [best]}))
    assert drive(folder, person, monkeypatch) == "finished"
    trials = sweeps.history(folder).trials
    assert trials[best].status is Status.PAUSED
    assert trials[best].iteration < sweeps.history(free).trials[best].iteration
    assert len(trials) == 9


def test_a_clone_has_the_settings_that_were_asked_for_and_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.thin(
        tmp_path, space={"lr": {"loguniform": [1e-3, 0.9]}, "x0": {"uniform": [1, 9]}}
    )
    wish = {"trials_named": [0], "settings": {"lr": 0.25}, "from_checkpoint": False}
    person = Person(folder, (trial_at(0, 2), Verb.CLONE, wish))
    assert drive(folder, person, monkeypatch) == "finished"
    past = sweeps.history(folder)
    assert (len(past.trials), past.searched_count) == (4, 3)
    (clone,) = [trial for trial in past.trials if trial.clone_of is not None]
    assert (clone.clone_of, clone.parent, clone.status) == (0, None, Status.COMPLETED)
    assert clone.searched == {**past.trials[0].searched, "lr": 0.25}
    assert losses(folder, clone.number) == known(folder, clone.number)


def test_a_clone_may_go_on_from_its_parents_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.thin(tmp_path)
    wish = {"trials_named": [1], "settings": {"lr": 0.25}, "from_checkpoint": True}
    person = Person(folder, (trial_at(1, 5), Verb.CLONE, wish))
    drive(folder, person, monkeypatch)
    (clone,) = [trial for trial in sweeps.history(folder).trials if trial.clone_of == 1]
    assert clone.parent == 1
    assert [row.iteration for row in sweeps.curve(folder, clone.number)] == [6, 7, 8, 9]


def test_a_paused_sweep_begins_nothing_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.thin(tmp_path)
    turns: list[int] = []

    def later(history: History) -> bool:
        turns.append(history.k)
        return len(turns) > 10

    person = Person(folder, (trial_at(0, 2), Verb.PAUSE, {}), (later, Verb.UNPAUSE, {}))
    assert drive(folder, person, monkeypatch) == "finished"
    assert len(set(turns[3:])) == 1
    assert all(losses(folder, number) == known(folder, number) for number in range(3))


def test_the_total_of_trials_is_changed_while_the_sweep_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.thin(tmp_path)
    person = Person(folder, (trial_at(0, 2), Verb.SET, {"trials": 5}))
    assert drive(folder, person, monkeypatch) == "finished"
    assert len(sweeps.history(folder).trials) == 5
    assert person.answers == ["True: 5 trials in all"]


def test_a_request_that_cannot_be_granted_changes_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes: list[tuple[Verb, dict[str, Any], str]] = [
        (Verb.STOP, {"trials_named": [1, 7]}, "trial 7 does not exist"),
        (Verb.UNPAUSE, {"trials_named": [1]}, "trial 1 is not paused"),
        (Verb.UNPAUSE, {}, "the sweep as a whole is not paused"),
        (Verb.SET, {"trials": 1}, "is less than the 2 trials that exist already"),
        (
            Verb.CLONE,
            {"trials_named": [0], "settings": {"lr": 7.0}, "from_checkpoint": False},
            "--set lr: 7.0 is not allowed",
        ),
        (
            Verb.CLONE,
            {"trials_named": [0], "settings": {"Ir": 0.1}, "from_checkpoint": False},
            "unknown searched setting 'Ir'; expected one of lr",
        ),
    ]
    folder = sweeps.thin(tmp_path)
    person = Person(folder, *((trial_at(1, 2), verb, body) for verb, body, _ in wishes))
    drive(folder, person, monkeypatch)
    assert {t.status for t in sweeps.history(folder).trials} == {Status.COMPLETED}
    with closing(Requests(folder.ledger)) as requests:
        for number, (_, _, text) in zip(person.numbers, wishes, strict=True):
            answer = requests.answer_to(number)
            assert answer is not None
            assert not answer.granted
            assert text in answer.text


@pytest.mark.slow
def test_what_was_asked_of_a_driver_that_has_gone_is_not_done_by_the_next(tmp_path: Path) -> None:
    folder = sweeps.thin(tmp_path)
    sweeps.run(folder)
    with closing(Requests(folder.ledger)) as requests:
        number = requests.ask(Verb.STOP, {})
        assert sweeps.run(folder, trials=4) == "finished"
        answer = requests.answer_to(number)
        assert answer is not None
        assert not answer.granted


def test_asking_where_no_driver_runs_waits_for_the_next_and_refuses_what_it_would(
    tmp_path: Path,
) -> None:
    folder = sweeps.thin(tmp_path)
    sweeps.run(folder)
    asked = control_client.ask(folder, Verb.SET, {"trials": 5}, patience_s=60.0)
    assert asked == (None, False)
    with pytest.raises(UsageError, match="no driver is running"):
        control_client.ask(folder, Verb.STOP, {}, patience_s=60.0)
    with pytest.raises(UsageError, match="has ended"):
        control_client.ask(folder, Verb.PAUSE, {"trials_named": [1]}, patience_s=60.0)
    sweeps.run(folder)
    assert len(sweeps.history(folder).trials) == 5
