"""Optuna: a copy of the sweep in Optuna's own tables, for `optuna.load_study` and its dashboard.

The study has the sweep's name and its trials have the sweep's numbers. A trial is RUNNING until it
is finished, even while paused; its intermediate values are the metric over ``time_attr``, and the
last one is the value of a pruned trial, as in Optuna. A trial that was pruned or stopped with a
value is COMPLETE there, and its attribute ``status`` has its real status: Optuna's plots of
history, slices, EDF, ranks and importances omit all other states, which most trials of a sweep
would have. Choices that Optuna cannot store or distinguish are canonical JSON
(`sweep.history.optuna_terms`); the attribute ``settings`` always has the real values. No decision
depends on this copy. Optuna is imported with the first events. The study of a ledger on a server is
there, too (`_shared.optuna_storage`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweep import trackers
from sweep.history.events import Recorded
from sweep.trackers import TrackerContext
from trainables.core.importing import large_import

if TYPE_CHECKING:
    from sweep.trackers._shared.optuna_copy import Copy


class Tracker(trackers.Tracker):
    """Copies a sweep's history to a study in Optuna's tables."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._copy: Copy | None = None

    def publish(self, records: Sequence[Recorded]) -> None:
        """Write to the study what these events change; after a failure the study is read again."""
        with large_import():
            from sweep.trackers._shared.optuna_copy import Copy

        if self._copy is not None and self._copy.history.k != records[0].number - 1:
            self.close()
        if self._copy is None:
            self._copy = Copy(self._context, records[0].number - 1)
        try:
            self._copy.publish(records)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the database; the next `publish` opens it again."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def unreadable(self) -> str:
        """Return a text on why the tables are missing or cannot be read; empty if they can."""
        from sweep.trackers._shared.optuna_storage import place, unreadable

        return unreadable(place(self._context.folder))

    def differences(self) -> list[str]:
        """Return a text for each difference between the study and the whole ledger."""
        from sweep.trackers._shared.optuna_copy import differences

        return list(differences(self._context))

    def set_aside(self) -> None:
        """Delete the tables, since sending all events again would not repair everything."""
        from sweep.trackers._shared.optuna_storage import place, remove

        remove(place(self._context.folder))
