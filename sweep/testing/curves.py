"""What simulated trials report: a table, or a function of the trial and of its newest result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import UsageError
from trainables import Trainable

#: Key of a result that says how many simulated seconds its iteration took; without it, 1.
SECONDS = "time_this_iter_s"


@dataclass(frozen=True)
class CurvePoint:
    """One iteration that is about to be played."""

    trial: int
    replica: int
    iteration: int
    """From 1; a bred trial counts on from its parent."""
    config: Mapping[str, Any]
    """The trial's settings, as a trainable gets them."""
    before: Mapping[str, Any]
    """The result of the iteration before, of the parent where a bred trial begins; {}: none."""


#: Returns one iteration's result. It is asked again for iterations that a crash or a kill lost, so
#: it must not keep anything. What it raises is a crash of the trial; `sweep.errors.WorkerLost` is
#: the death of its worker. ``done: True`` ends the trial.
Curve = Callable[[CurvePoint], Mapping[str, Any]]
#: Trial → iteration → result; a trial is done at the end of its row.
Table = Sequence[Sequence[Mapping[str, Any]]]


def as_curve(given: Curve | Table) -> Curve:
    """The function that plays a table, or the function itself."""
    return given if callable(given) else _TableCurve(given)


@dataclass(frozen=True)
class _TableCurve:
    table: Table

    def __call__(self, at: CurvePoint) -> Mapping[str, Any]:
        row = self.table[at.trial] if at.trial < len(self.table) else ()
        if at.iteration > len(row):
            raise UsageError(
                f"the table of curves has no iteration {at.iteration} of trial {at.trial}; it has "
                f"{len(self.table)} trials, and {len(row)} iterations of this one"
            )
        return {"done": at.iteration == len(row), **row[at.iteration - 1]}


class Played(Trainable):
    """Stands in a spec for trials that are simulated and can save."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Never called; that it is there says that trials can save."""
        raise NotImplementedError


class PlayedWithoutSaving(Trainable):
    """Stands in a spec for trials that are simulated and cannot save."""
