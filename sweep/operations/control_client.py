"""Send requests to the driver of a sweep from another process, and wait for its answer.

A request that the driver would refuse is refused here, before anything is written. If no driver
runs, the request stays in the ledger, and the next `sweep resume` handles it first.
"""

import contextlib
import getpass
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweep.core.errors import UsageError
from sweep.driver.control import RequestHandler
from sweep.driver.limits import present_budget
from sweep.driver.proposals import Proposer
from sweep.driver.start import launch
from sweep.driver.start.creation import resolving
from sweep.history.events import Suggested
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Answer, Request, Requests, Verb
from sweep.searchers import SearcherOptions
from sweep.views import lookup, reading

#: Seconds between two checks for an answer.
POLL_S = 0.05


def ask(
    folder: Folder, verb: Verb, body: Mapping[str, Any], patience_s: float
) -> tuple[Answer | None, bool]:
    """Write a request to the ledger, and wait for the answer of a running driver.

    `body` has the arguments of the `verb`. Waits at most `patience_s` seconds, and not at all if no
    driver runs. Returns the answer, and true if a driver runs. Without an answer it is None, and
    the request stays in the ledger for this driver or the next one.

    Raises:
        UsageError: the sweep cannot grant it, and nothing was written; or the driver refused it.
    """
    _check(folder, Request(verb, body))
    deadline = time.monotonic() + patience_s
    with contextlib.closing(Requests(folder.ledger)) as requests:
        number = requests.ask(verb, body)
        while True:
            driven = lookup.is_driven(folder)
            answer = requests.answer_to(number)
            if answer is not None and not answer.granted:
                raise UsageError(answer.text)
            if answer is not None or not driven or time.monotonic() > deadline:
                return answer, driven
            time.sleep(POLL_S)


def suggest(
    folder: Folder, settings: Mapping[str, Any], reason: str, author: str | None, patience_s: float
) -> tuple[Answer | None, bool]:
    """Ask a sweep to try `settings` in a new trial; wait `patience_s` seconds for the answer.

    `settings` has searched parameter → value, also only some. `reason` and `author` are texts for
    people. An `author` of None is replaced by the user name of this process. Returns the answer
    (None if there is none yet), and true if a driver runs. Raises UsageError if the suggestion is
    refused.
    """
    author = user() if author is None else author
    return ask(
        folder, Verb.SUGGEST, {"settings": settings, "author": author, "reason": reason}, patience_s
    )


def user() -> str:
    """Return the user name of this process, or the user id as text if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # for example in a container without this user
        return str(os.getuid())


def _apply_pending_requests(folder: Folder, history: History, trials: int) -> None:
    """Apply the requests that no driver has handled to `history`: limits, suggestions.

    The limits are numbers of trials and changed budgets. `trials` is the number of trials in the
    spec, which counts if no request has changed it. The suggestions are added to `open_suggestions`
    under negative numbers. Other requests are ignored.
    """
    history.wanted = history.wanted or trials
    with contextlib.closing(Requests(folder.ledger)) as requests:
        for request in requests.pending():
            if request.verb is Verb.SET:
                history.wanted = request.body.get("trials") or history.wanted
                history.changed_budget.update(request.body.get("budget", {}))
            if request.verb is Verb.SUGGEST:
                waiting = Suggested(request.body["settings"], "")
                history.open_suggestions = {**history.open_suggestions, -request.number: waiting}


def _check(folder: Folder, request: Request) -> None:
    """Raise UsageError if the driver would refuse the request, as far as the ledger shows now.

    For a clone or a pause the sweep's trainable is imported.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history = reading.history(ledger)
        spec = reading.spec_of(ledger)
        paths = tuple(ledger.provenance["paths"])
        kept = launch.pickled_of(folder, ledger, spec)
    driven = lookup.state(folder, history) in lookup.DRIVEN
    if request.verb in (Verb.SUGGEST, Verb.SET) and not driven:  # earlier ones are handled first
        _apply_pending_requests(folder, history, spec.trials)
    budget = present_budget(spec, history)
    handler = RequestHandler(history, driven=driven, budget=budget)
    if request.verb is Verb.SUGGEST:
        options = SearcherOptions(suggested=spec.searcher.options.get("suggested", 1.0))
        handler = RequestHandler(history, driven=driven, space=spec.space, options=options)
    if request.verb in (Verb.CLONE, Verb.PAUSE):  # no other request needs the trainable
        found = resolving.resolve(spec, paths, pickled=kept)
        proposer = Proposer(
            spec, found.searcher, found.scheduler.levels, dict, found.trainable.fixed_keys
        )
        handler = RequestHandler(history, proposer, found.trainable.can_save(spec.config), driven)
    answer = handler.decide(replace(request, term=history.term)).answer
    if not answer.granted:
        raise UsageError(answer.text)
