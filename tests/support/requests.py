"""People who ask something of a simulated sweep, once, as soon as its history is such."""

import contextlib
from collections.abc import Callable

from sweep.history.history import History
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Requests, Verb
from sweep.testing import Simulation
from sweep.views import reading


def asks(
    simulation: Simulation, verb: Verb, trial: int, when: Callable[[History], bool]
) -> Callable[[int], None]:
    """For `Simulation.run(seen=…)`: asks for `verb` of a trial when the history is such."""
    asked: list[int] = []

    def seen(_k: int) -> None:
        if not asked and when(history_of(simulation)):
            with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
                asked.append(requests.ask(verb, {"trials_named": [trial]}))

    return seen


def history_of(simulation: Simulation) -> History:
    """As its ledger has it."""
    with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
        return reading.history(ledger)
