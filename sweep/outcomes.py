"""What came of slices: their events, and which files may go after those are recorded."""

from concurrent.futures import Future

from sweep import checkpoints, verdicts
from sweep.assignment import SliceOutcome
from sweep.errors import LimitPassed
from sweep.events import Closed, Opened
from sweep.history import Replica
from sweep.parts import Parts
from sweep.warm import StaleProcess
from sweep.wishes import Dropped


def judge(parts: Parts, opened: Opened, future: Future[SliceOutcome]) -> Closed:
    """The event of a slice that is over."""
    replica = parts.history.replica(opened.trial, opened.replica)
    limits, error = parts.spec.limits, future.exception()
    if isinstance(error, LimitPassed):
        return verdicts.passed(replica, opened, error)
    if isinstance(error, StaleProcess):
        return verdicts.interrupted(replica, "its worker had to be replaced")
    if error is not None:
        return verdicts.lost(replica, opened, error, limits.max_failures)
    outcome = future.result()
    dropped = _no_longer_needed(parts, replica, outcome)
    return verdicts.judge(replica, outcome, dropped, limits)


def _no_longer_needed(parts: Parts, replica: Replica, outcome: SliceOutcome) -> tuple[str, ...]:
    """Digests of checkpoints that the policy spares, or from which the replica fell back."""
    known = list(replica.checkpoints.values())
    again = {saved.digest for saved in outcome.saved}
    kept = [saved for saved in known if saved.iteration <= outcome.source]
    left = [saved for saved in known if saved not in kept and saved.digest not in again]
    sign = parts.history.objective.sign
    spare = checkpoints.expendable([*kept, *outcome.saved], parts.spec.checkpoint, sign)
    needed = checkpoints.needed_by_children(parts.history, replica)
    return tuple(saved.digest for saved in (*left, *spare) if saved.digest not in needed)


def let_go(parts: Parts, event: Closed | Dropped) -> None:
    """Delete the files that the history has let go of, where no slice runs."""
    folder = parts.folder.trial(event.trial, event.replica)
    replica = parts.history.replica(event.trial, event.replica)
    checkpoints.sweep_up(folder, {saved.file for saved in replica.checkpoints.values()})
