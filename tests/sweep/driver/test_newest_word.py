"""What `sweep resume` is told is newer than what `sweep set` asked for before it, and holds."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import IllegalMove, UsageError
from sweep.driver.start import launch
from sweep.history.events import Event, LimitsChanged, Moved, Status, TermBegan
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Answer, Requests, Verb, answer_writer
from sweep.operations import control_client
from tests.support import sweeps


@pytest.mark.parametrize("killed", [False, True])
def test_what_resume_is_told_holds_over_what_was_asked_before(tmp_path: Path, killed: bool) -> None:
    """Also where its driver was killed as soon as it had begun; who says nothing changes nothing.

    The second trial ended with the budget, and both requests would bring it back.
    """
    folder = sweeps.thin(tmp_path, budget={"timesteps": 120})
    sweeps.run(folder)
    assert [trial.status for trial in sweeps.history(folder).trials][1:] == [Status.PRUNED]
    for body in ({"trials": 4, "max_disk": 10**8}, {"budget": {"timesteps": 150, "patience": 9}}):
        control_client.ask(folder, Verb.SET, body, patience_s=60.0)
    told: dict[str, Any] = {"trials": 5, "budget": {"timesteps": None}}
    if killed:
        with launch.open_context(launch.Launch(folder, 1, "inline", **told)):
            pass
        sweeps.run(folder)
    else:
        sweeps.run(folder, **told)
    for _ in range(2):
        past = sweeps.history(folder)
        assert [trial.status for trial in past.trials] == [Status.COMPLETED] * 5
        assert (past.wanted, past.max_disk) == (5, 10**8)
        assert past.changed_budget == {"timesteps": None, "patience": 9}
        sweeps.run(folder)
    with closing(Ledger(folder.ledger)) as ledger, closing(Requests(folder.ledger)) as requests:
        changes = [r.event for r in ledger.read() if isinstance(r.event, LimitsChanged)]
        assert requests.pending() == []
        assert [(c.trials, dict(c.budget)) for c in changes] == [
            (4, {}),
            (None, {"timesteps": 150, "patience": 9}),
            (5, {"timesteps": None}),
        ]


def test_requests_are_answered_with_the_newer_word_or_not_at_all(tmp_path: Path) -> None:
    folder = sweeps.thin(tmp_path)
    sweeps.run(folder)
    refused: list[Event] = [
        TermBegan("host", 1, 6),
        LimitsChanged(4),
        Moved(0, Status.PRUNED, "it has ended"),
    ]
    with closing(Ledger(folder.ledger)) as ledger, closing(Requests(folder.ledger)) as requests:
        number, last = requests.ask(Verb.SET, {"trials": 4}), ledger.last
        answers = answer_writer({number: Answer(True, "4 trials in all")})
        with pytest.raises(IllegalMove):
            ledger.append(None, refused, answers)
        assert (ledger.last, requests.answer_to(number)) == (last, None)
        ledger.append(None, refused[:2], answers)
        assert (ledger.last, requests.pending()) == (last + 2, [])


def test_a_total_that_resume_cannot_have_leaves_requests_as_they_are(tmp_path: Path) -> None:
    folder = sweeps.thin(tmp_path)
    sweeps.run(folder)
    control_client.ask(folder, Verb.SET, {"trials": 4}, patience_s=60.0)
    with pytest.raises(UsageError, match="is less than the 3 trials that exist already"):
        sweeps.run(folder, trials=2)
    with closing(Requests(folder.ledger)) as requests:
        assert len(requests.pending()) == 1
    sweeps.run(folder)
    assert len(sweeps.history(folder).trials) == 4


def test_a_number_that_the_ledger_cannot_hold_is_refused_and_damages_nothing(
    tmp_path: Path,
) -> None:
    folder, large = sweeps.thin(tmp_path), 10**20
    with pytest.raises(UsageError, match="is not allowed; expected at most 1000000"):
        sweeps.run(folder, trials=large)
    with pytest.raises(UsageError, match=r"--budget patience: 10+ is not allowed"):
        sweeps.run(folder, budget={"patience": large})
    for body in ({"trials": large}, {"jobs": large}, {"budget": {"timesteps": large}}):
        with pytest.raises(UsageError, match=f"{large}"):
            control_client.ask(folder, Verb.SET, body, patience_s=0.0)
    with closing(Requests(folder.ledger)) as requests:
        assert requests.pending() == []
    assert sweeps.history(folder).wanted == 0
