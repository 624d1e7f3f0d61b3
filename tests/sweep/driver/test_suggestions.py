"""Settings that somebody suggests: tried once by the next new trial, whatever else happens."""

from contextlib import closing
from typing import Any

import pytest

from sweep.core.errors import UsageError
from sweep.history.events import Suggested
from sweep.ledger.requests import Requests, Verb
from sweep.operations import control_client
from sweep.searchers import SearcherOptions
from sweep.testing import CurvePoint, Simulation, SimulationResult
from sweep.views import explanation, lookup, overview

SPACE = {"x": {"uniform": [0.0, 1.0]}, "n": {"randint": [1, 5]}}
SPEC: dict[str, Any] = {"trials": 6, "space": SPACE, "stop": {"training_iteration": 2}}


@pytest.fixture(autouse=True)
def looks_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)


def curve(at: CurvePoint) -> dict[str, Any]:
    return {"score": at.config["x"]}


def suggest(simulation: Simulation, why: str = "", by: str = "ada", **settings: Any) -> None:
    """Suggest as another process does; the answer is not waited for."""
    control_client.suggest(simulation.folder, settings, why, by, 0.0)


def searched(course: SimulationResult, name: str = "x") -> list[Any]:
    return [trial.searched[name] for trial in course.history.trials]


def test_the_next_new_trial_has_the_suggested_settings_and_the_searcher_proposes_the_rest() -> None:
    with Simulation(SPEC, curve) as simulation:
        asked: list[int] = []

        def seen(k: int) -> None:
            if not asked and len(lookup.read(simulation.folder).history.trials) == 2:
                asked.append(k)
                suggest(simulation, x=0.25)

        course = simulation.run(on_turn=seen)
    past = course.history
    assert searched(course)[2] == 0.25
    assert searched(course).count(0.25) == 1
    assert 1 <= past.trials[2].searched["n"] <= 5
    assert (len(past.trials), past.searched_count, past.open_suggestions) == (6, 6, {}), (
        "it counts as searched"
    )
    events = [record.event for record in course.records]
    assert [event for event in events if isinstance(event, Suggested)] == [
        Suggested({"x": 0.25}, "ada")
    ]


def test_a_suggestion_without_a_driver_is_tried_first_when_the_sweep_goes_on() -> None:
    with Simulation(SPEC, curve) as simulation:
        suggest(simulation, x=0.25)
        suggest(simulation, x=0.75, n=3)
        course = simulation.run()
    assert searched(course)[:2] == [0.25, 0.75]
    assert course.history.trials[1].searched["n"] == 3


def test_a_suggestion_is_tried_once_whenever_its_driver_is_killed() -> None:
    with Simulation(SPEC, curve) as straight, Simulation(SPEC, curve) as killed:
        for one in (straight, killed):
            suggest(one, x=0.25)
        expected, found = straight.run(), killed.run(kills=range(2, 40))
        assert killed.killed > 10
    assert found.decisions == expected.decisions
    assert searched(found).count(0.25) == 1


def test_explain_and_results_name_the_author_and_the_reason() -> None:
    with Simulation(SPEC, curve) as simulation:
        suggest(simulation, why="worked last year", x=0.25)
        simulation.run()
        sweep = lookup.read(simulation.folder)
    (first, *_) = explanation.explain(sweep, 0)["decisions"]
    assert first["what"] == "suggested"
    assert first["why"] == "by ada: worked last year; n by the searcher random"
    rows = {row["trial"]: row["suggested"] for row in overview.results(sweep)["trials"]}
    assert rows == {0: "ada: worked last year", **dict.fromkeys(range(1, 6))}


def test_status_shows_the_suggestions_that_wait() -> None:
    with Simulation(SPEC, curve) as simulation:
        waiting: list[Any] = []

        def seen(_k: int) -> None:
            sweep = lookup.read(simulation.folder)
            waiting.extend(overview.status(sweep, {}, 0.0)["suggested"])

        suggest(simulation, x=0.25)
        simulation.run(on_turn=seen)
        assert overview.status(lookup.read(simulation.folder), {}, 0.0)["suggested"] == []
    assert waiting[0] == {"settings": {"x": 0.25}, "author": "ada", "reason": ""}


def test_initial_and_grid_lose_no_turn_to_a_suggestion() -> None:
    space = {**SPACE, "g": {"grid": ["a", "b"]}}
    spec = {**SPEC, "space": space, "trials": 5, "initial": [{"x": 0.5}, {"x": 0.6}]}
    with Simulation(spec, curve) as simulation:
        suggest(simulation, x=0.25)
        suggest(simulation, x=0.75, g="b")
        course = simulation.run()
    assert searched(course)[:4] == [0.25, 0.75, 0.5, 0.6]
    assert searched(course, "g") == ["a", "b", "a", "a", "a"]
    with Simulation({**spec, "trials": 3}, curve) as without:
        assert searched(without.run(), "g") == ["a", "a", "a"]


def test_a_suggestion_gets_the_value_of_a_grid_that_belongs_to_the_space_with_it() -> None:
    space = {**SPACE, "g": {"grid": ["a", "b"]}}
    with Simulation({**SPEC, "space": space, "forbid": [{"g": "a", "n": 3}]}, curve) as simulation:
        suggest(simulation, n=3)
        course = simulation.run()
    assert searched(course, "g")[0] == "b"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"x": 2.0}, "suggest: x: 2.0 is not allowed; expected 0.0 to 1.0"),
        ({"y": 0.5}, "suggest: y: there is no parameter y; expected one of x, n"),
        ({"x": 0.9, "n": 5}, "no point with"),
        ({"x": "high"}, "suggest: x: 'high' is not allowed"),
        ({}, "suggest: no settings are given; give at least one, such as lr=0.001"),
    ],
)
def test_what_does_not_belong_to_the_space_is_refused_before_anything_is_written(
    settings: dict[str, Any], message: str
) -> None:
    with Simulation({**SPEC, "forbid": ["x > 0.8 and n > 4"]}, curve) as simulation:
        with pytest.raises(UsageError) as refused:
            suggest(simulation, **settings)
        assert message in str(refused.value)
        assert len(str(refused.value).splitlines()) == 1
        with closing(Requests(simulation.folder.ledger)) as requests:
            assert requests.pending() == []


def test_a_driver_refuses_what_another_process_wrote_without_a_check() -> None:
    with (
        Simulation(SPEC, curve) as simulation,
        closing(Requests(simulation.folder.ledger)) as requests,
    ):
        number = requests.ask(Verb.SUGGEST, {"settings": {"x": 2.0}, "author": "eve"})
        course = simulation.run()
        answer = requests.answer_to(number)
    assert answer is not None
    assert not answer.granted
    assert course.history.tried_suggestions == 0


def test_a_sweep_whose_trials_are_all_taken_says_how_to_make_room() -> None:
    with Simulation({**SPEC, "trials": 2}, curve) as simulation:
        simulation.run()
        with pytest.raises(UsageError, match="all 2 trials are taken; `sweep set NAME --trials 3`"):
            suggest(simulation, x=0.25)
        control_client.ask(simulation.folder, Verb.SET, {"trials": 3}, 0.0)
        suggest(simulation, x=0.25)
        with pytest.raises(UsageError, match="all 3 trials are taken, 1 of them by suggestions"):
            suggest(simulation, x=0.75)
        assert searched(simulation.run())[2:] == [0.25]


# ---- the share of the trials that take suggestions ---------------------------------------------


def taking(share: float, name: str = "random") -> dict[str, Any]:
    """A sweep of ten trials, of which at most `share` take suggestions."""
    return {**SPEC, "trials": 10, "searcher": {"name": name, "suggested": share}}


def suggested(course: SimulationResult) -> list[int]:
    """The trials with suggestions."""
    return [trial.number for trial in course.history.trials if trial.suggestion is not None]


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.3, [3, 6, 9]), (0.5, [1, 3, 5]), (1.0, [0, 1, 2]), (1, [0, 1, 2])],
)
def test_at_most_a_share_of_the_trials_so_far_takes_suggestions(
    share: float, expected: list[int]
) -> None:
    with Simulation(taking(share), curve) as simulation:
        for x in (0.25, 0.5, 0.75):
            suggest(simulation, x=x)
        course = simulation.run()
    assert suggested(course) == expected
    assert [searched(course)[number] for number in expected] == [0.25, 0.5, 0.75]
    assert len(course.history.trials) == 10


@pytest.mark.parametrize("name", ["tpe", "random", "qmc", "gp", "cmaes", "nsga2", "bohb"])
def test_every_searcher_proposes_the_other_trials_and_none_is_waited_for(name: str) -> None:
    scheduler = {"scheduler": {"name": "asha", "grace_period": 1}} if name == "bohb" else {}
    with Simulation({**taking(0.3, name), **scheduler}, curve) as simulation:
        suggest(simulation, x=0.25)
        course = simulation.run()
    assert suggested(course) == [3]
    assert course.history.searched_count == 10


def test_a_share_of_suggestions_is_the_same_whenever_the_driver_is_killed() -> None:
    deterministic = {"deterministic": {"batch": 3}}
    for more in ({}, deterministic):
        spec = {**taking(0.3, "tpe"), **more}
        with Simulation(spec, curve) as straight, Simulation(spec, curve) as killed:
            for one in (straight, killed):
                for x in (0.25, 0.5, 0.75):
                    suggest(one, x=x)
            expected, found = straight.run(), killed.run(kills=range(2, 60))
            assert killed.killed > 10
        assert found.decisions == expected.decisions
        assert suggested(found) == [3, 6, 9]


def test_more_suggestions_than_the_share_allows_are_refused_with_the_number_that_makes_room() -> (
    None
):
    with Simulation(taking(0.29), curve) as simulation:
        for x in (0.25, 0.5):
            suggest(simulation, x=x)
        with pytest.raises(UsageError) as refused:
            suggest(simulation, x=0.75)
        control_client.ask(simulation.folder, Verb.SET, {"trials": 11}, 0.0)
        suggest(simulation, x=0.75)
        assert suggested(simulation.run()) == [3, 6, 10]
    assert str(refused.value) == (
        "suggest: searcher.suggested is 0.29, so at most 2 of 10 trials take suggestions; "
        "`sweep set NAME --trials 11` makes room for one more"
    )
    none = pytest.raises(UsageError, match="suggested is 0, so no trial takes suggestions")
    with Simulation(taking(0.0), curve) as simulation, none:
        suggest(simulation, x=0.75)


def test_the_answer_says_that_a_suggestion_waits_for_its_turn() -> None:
    with Simulation(taking(0.5), curve) as simulation:
        requests = closing(Requests(simulation.folder.ledger))
        with requests as asked:
            body = {"settings": {"x": 0.25}, "author": "ada"}
            number = asked.ask(Verb.SUGGEST, body)
            simulation.run()
            answer = asked.answer_to(number)
    assert answer is not None
    assert answer.text == (
        "x=0.25 will be tried by a later trial, since at most 0.5 of the trials take suggestions"
    )


def test_a_share_counts_as_its_decimal_text_says() -> None:
    counted = [SearcherOptions(suggested=share).most_suggested(100) for share in (0.29, 0.57, 0.07)]
    assert counted == [29, 57, 7]
