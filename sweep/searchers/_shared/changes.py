"""Trials of a request that are new or have changed since the request before."""

from collections.abc import Sequence

from sweep.history.trial import Trial
from sweep.searchers import Request


class Changes:
    """Reads which trials of a history have changed from request to request, for a searcher's cache.

    A request about another history names all trials as changed.
    """

    def __init__(self) -> None:
        self._touched: Sequence[int] | None = None
        """`Request.touched` of the last request; None before it."""
        self._read: int = 0
        """Number of entries of `_touched` that were processed."""
        self._recorded: int = 0
        """Number of first trials of the last request that the ledger had; later ones may be
        replaced."""

    def continues(self, request: Request) -> bool:
        """Return whether a request is about the same history as the last one."""
        return request.touched is not None and request.touched is self._touched

    def update(self, request: Request) -> list[int]:
        """Return the numbers of the trials that may have changed since the last request.

        They ascend, and include every trial that the ledger did not have then. All numbers are
        returned for another history, or if the request does not say which trials have changed. The
        request is remembered as the last one.
        """
        trials, touched = request.trials, request.touched or ()
        known = min(self._recorded, len(trials)) if self.continues(request) else 0
        changed = sorted({number for number in touched[self._read :] if number < known})
        self._touched, self._read = request.touched, len(touched)
        self._recorded = _recorded_count(trials)
        return [*changed, *range(known, len(trials))]


def _recorded_count(trials: Sequence[Trial]) -> int:
    """Return the number of trials before the first of those at the end that no ledger has yet."""
    count = len(trials)
    while count and trials[count - 1].newest_event == 0:
        count -= 1
    return count
