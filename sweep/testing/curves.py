"""Results of simulated trials: from a table, or a function of the trial and its newest result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import UsageError
from trainables import Trainable

#: Key of a result that says how many simulated seconds its iteration took; without it, 1.
SECONDS = "time_this_iter_s"


@dataclass(frozen=True)
class CurvePoint:
    """One iteration that is about to be simulated."""

    trial: int
    seed_index: int
    """0, or the number of a further seed of the trial."""
    iteration: int
    """From 1; a bred trial continues its parent's count."""
    config: Mapping[str, Any]
    """The trial's settings, as a trainable gets them."""
    before: Mapping[str, Any]
    """The previous result, at first the parent's; ``{}`` without one."""


#: Returns one iteration's result. It is called again for iterations that a crash or a kill lost, so
#: it must keep no state. An exception is a crash of the trial; `sweep.errors.WorkerLost` is the
#: death of its worker. ``done: True`` ends the trial.
Curve = Callable[[CurvePoint], Mapping[str, Any]]
#: Trial → iteration → result; a trial is done at the end of its row.
Table = Sequence[Sequence[Mapping[str, Any]]]


def as_curve(given: Curve | Table) -> Curve:
    """A curve that reads a table, or the given curve."""
    if callable(given):
        return given

    def read(at: CurvePoint) -> Mapping[str, Any]:
        row = given[at.trial] if at.trial < len(given) else ()
        if at.iteration > len(row):
            raise UsageError(
                f"the table of curves has no iteration {at.iteration} of trial {at.trial}; it has "
                f"{len(given)} trials, and {len(row)} iterations of this one"
            )
        return {"done": at.iteration == len(row), **row[at.iteration - 1]}

    return read


class Played(Trainable):
    """The trainable in the spec of simulated trials that can save."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Never called; its presence means that trials can save."""
        raise NotImplementedError


class PlayedWithoutSaving(Trainable):
    """The trainable in the spec of simulated trials that cannot save."""
