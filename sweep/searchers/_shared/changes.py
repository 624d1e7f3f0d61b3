"""Trials of a request that are new or have changed since the request before."""

from collections.abc import Sequence

from sweep.history.trial import Trial
from sweep.searchers import Request


class Changes:
    """Follows the trials of one history from request to request, for caches of searchers.

    A cache is rebuilt from all trials if a request does not continue the one before.
    """

    def __init__(self) -> None:
        self._touched: Sequence[int] | None = None
        """List of changed trials of the followed history; None at first."""
        self._read: int = 0
        """Number of its entries that were processed."""
        self._recorded: int = 0
        """Number of trials of the last request that were recorded."""

    def continues(self, request: Request) -> bool:
        """Return whether a request is about the followed history."""
        return request.touched is not None and request.touched is self._touched

    def update(self, request: Request) -> list[int]:
        """Return the indices of the trials that may differ from those of the last request.

        They ascend, and include every trial that was not recorded at that time. All indices are
        returned for another history, or if the request does not say which trials have changed.
        """
        trials, touched = request.trials, request.touched or ()
        known = min(self._recorded, len(trials)) if self.continues(request) else 0
        changed = sorted({number for number in touched[self._read :] if number < known})
        self._touched, self._read = request.touched, len(touched)
        self._recorded = _recorded_count(trials)
        return [*changed, *range(known, len(trials))]


def _recorded_count(trials: Sequence[Trial]) -> int:
    """Return the number of trials before those that are in no ledger yet."""
    count = len(trials)
    while count and trials[count - 1].newest_event == 0:
        count -= 1
    return count
