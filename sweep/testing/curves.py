"""Results of simulated trials: from a table, or a function of the trial and its newest result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import UsageError
from trainables import Trainable

#: Key of a result with the simulated duration of its iteration, in seconds; 1 by default.
SECONDS = "time_this_iter_s"


@dataclass(frozen=True)
class CurvePoint:
    """The iteration whose result is to be simulated."""

    trial: int
    """Number of the trial."""
    seed_index: int
    """Index of the seed among the trial's seeds, from 0."""
    iteration: int
    """Number of the iteration, from 1; offspring continue their parent's count."""
    config: Mapping[str, Any]
    """Settings of the trial, as a trainable gets them."""
    before: Mapping[str, Any]
    """Previous result of the trial, at first its parent's; ``{}`` if there is none."""


#: A function that returns the result of an iteration. It is called again for iterations that were
#: lost by a crash or a kill, so it must keep no state. An exception simulates a crash of the trial,
#: `sweep.core.errors.WorkerLost` the death of its worker. ``done: True`` ends the trial.
Curve = Callable[[CurvePoint], Mapping[str, Any]]
#: Results by trial and iteration; a trial is done at the end of its row.
Table = Sequence[Sequence[Mapping[str, Any]]]


def as_curve(curve: Curve | Table) -> Curve:
    """Return the function of a curve; a table becomes a function that looks its results up.

    That function adds ``done`` to each result, true for the last of a trial unless the table says
    otherwise. It raises UsageError beyond the table's end.
    """
    if callable(curve):
        return curve

    def read(point: CurvePoint) -> Mapping[str, Any]:
        """Return a trial's result from the table; raise UsageError if the table lacks it."""
        row = curve[point.trial] if point.trial < len(curve) else ()
        if point.iteration > len(row):
            raise UsageError(
                f"the table of curves has no iteration {point.iteration} of trial {point.trial}; "
                f"it has {len(curve)} trials, and {len(row)} iterations of this one"
            )
        return {"done": point.iteration == len(row), **row[point.iteration - 1]}

    return read


class Played(Trainable):
    """Placeholder for the trainable of simulated trials that can save checkpoints."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Raise NotImplementedError; only its presence declares that trials can save."""
        raise NotImplementedError


class PlayedWithoutSaving(Trainable):
    """Placeholder for the trainable of simulated trials that cannot save checkpoints."""
