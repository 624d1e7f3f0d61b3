"""Asking a sweep's driver for something from another process, and waiting for its answer.

What would be refused now is refused before anything is written. Where no driver runs, the request
stands in the ledger until `sweep resume` begins with it. Times are seconds.
"""

import contextlib
import getpass
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweep.driver import launch
from sweep.driver.control import RequestHandler
from sweep.driver.creation import resolving
from sweep.driver.proposals import Proposer
from sweep.errors import UsageError
from sweep.history.events import Suggested
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Answer, Request, Requests, Verb
from sweep.views import lookup, reading

#: Seconds between two looks for an answer.
LOOK_S = 0.05


def ask(
    folder: Folder, verb: Verb, body: Mapping[str, Any], patience_s: float
) -> tuple[Answer | None, bool]:
    """Ask for `verb`, and wait for the answer while a driver runs, `patience_s` at most.

    Returns the answer, None if no driver has looked at the request yet, and whether one runs.

    UsageError: it cannot be granted as the sweep stands, and nothing was written; or the driver
    has refused it.
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
            time.sleep(LOOK_S)


def suggest(
    folder: Folder, settings: Mapping[str, Any], why: str, by: str | None, patience_s: float
) -> tuple[Answer | None, bool]:
    """Suggest settings to a sweep, as `ask` does; `by` None is the user of this process."""
    author = user() if by is None else by
    return ask(folder, Verb.SUGGEST, {"settings": settings, "by": author, "why": why}, patience_s)


def user() -> str:
    """Return the name of the user of this process, or the number if the system has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as in a container whose users are not its host's
        return str(os.getuid())


def _foresee(folder: Folder, history: History, trials: int) -> None:
    """Take in what waits for the next driver and makes or takes room for suggestions.

    Args:
        folder: the sweep's.
        history: is changed.
        trials: the number that the first driver of a sweep is given.
    """
    history.wanted = history.wanted or trials
    with contextlib.closing(Requests(folder.ledger)) as requests:
        for request in requests.pending():
            if request.verb is Verb.SET:
                history.wanted = request.body.get("trials") or history.wanted
            if request.verb is Verb.SUGGEST:
                waiting = Suggested(request.body["settings"], "")
                history.suggested = {**history.suggested, -request.number: waiting}


def _check(folder: Folder, request: Request) -> None:
    """Refuse what the driver would refuse, as far as the ledger says."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history = reading.history(ledger)
        spec = reading.spec_of(ledger)
        paths = tuple(ledger.provenance["paths"])
        kept = launch.kept_of(folder, ledger, spec)
    driven = lookup.state(folder, history) in lookup.DRIVEN
    handler = RequestHandler(history, driven=driven)
    if request.verb is Verb.SUGGEST:
        if not driven:  # what was asked before is granted first
            _foresee(folder, history, spec.trials)
        handler = RequestHandler(history, driven=driven, space=spec.space)
    if request.verb in (Verb.CLONE, Verb.PAUSE):  # what else is asked needs no trainable
        found = resolving.resolve(spec, paths, kept=kept)
        proposer = Proposer(
            spec, found.searcher, found.scheduler.levels, dict, found.trainable.fixed_keys
        )
        handler = RequestHandler(history, proposer, found.trainable.can_save(), driven)
    answer = handler.decide(replace(request, term=history.term)).answer
    if not answer.granted:
        raise UsageError(answer.text)
