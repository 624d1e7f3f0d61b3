"""End a sweep whose first trials all failed with one error: a mistake in its program.

The result is a function of the history, so a sweep that was killed and resumed ends at the same
point. Trials that failed before such an end are not counted again, so that a resumed sweep can
continue.
"""

import itertools
import re

from sweep.history.events import FAIL_FAST, Status
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.trial import Trial
from trainables.errors import shorten

#: Pattern of numbers and addresses, which may differ between the texts of one error.
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
#: Pattern of a traceback's line that names a place in the source.
_FRAME = re.compile(r'  File "(.+)", line (\d+), in ')


def failure_reason(history: History, limit: int | None) -> str:
    """Return the reason, beginning with `FAIL_FAST`, to end the sweep; empty to continue.

    The sweep ends if its first `limit` trials failed with one error, no other trial got further,
    and a trial is still to be created or to end. Trials that failed before an earlier such end are
    not counted, and failures by a metric that is not finite are no such errors. A `limit` of None
    disables the check.
    """
    if limit is None or history.count(Status.FAILED) < limit:
        return ""
    if not (
        history.uncreated_trials
        or history.with_status(Status.WAITING, Status.RUNNING, Status.PAUSED)
    ):
        return ""
    until = history.failing_until
    counted = (t for t in history.trials if t.status is not Status.FAILED or _failed_at(t) > until)
    first = list(itertools.islice(counted, limit))
    if len(first) < limit or not all(map(_has_raised, first)):
        return ""
    errors = [_error_key(trial) for trial in first]
    if len({kind for kind, _ in errors}) > 1 or _has_further_trial(history, first):
        return ""
    what = f"first {limit} trials failed with the same error" if limit > 1 else "first trial failed"
    return f"{FAIL_FAST}: the {what}, so the sweep stops: {errors[0][1]}"


def _failed_at(trial: Trial) -> int:
    """Return the number of the event that opened or ended the newest failed slice of the trial."""
    return max(replica.queued_at for replica in trial.replicas if replica.status is Status.FAILED)


def _has_raised(trial: Trial) -> bool:
    """Return whether a trial failed by an exception or a lost process, and not by divergence."""
    failed = [replica for replica in trial.replicas if replica.status is Status.FAILED]
    return any(replica.crashes or replica.lost_slices for replica in failed)


def _has_further_trial(history: History, failed: list[Trial]) -> bool:
    """Return whether a replica that has not failed trained further than all failed trials."""
    furthest = max(
        _last_finished_iteration(replica) for trial in failed for replica in trial.replicas
    )
    others = history.replicas(*(status for status in Status if status is not Status.FAILED))
    return any(replica.iteration > furthest for replica in others)


def _last_finished_iteration(replica: Replica) -> int:
    """Return the last iteration that a replica finished, even if its result was lost."""
    return max([replica.iteration, *(at - 1 for at in replica.crashes)])


def _error_key(trial: Trial) -> tuple[tuple[str, ...], str]:
    """Return the key by which the errors of trials are compared, and the error as one line.

    The key has the traceback's innermost line with file and line number, and the message with
    numbers and addresses replaced. Without a traceback, it has the reason for the replica's status
    instead.
    """
    replica = next((r for r in trial.replicas if r.status is Status.FAILED), trial.replicas[0])
    lines = replica.error.splitlines()
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        said = replica.reason
        return (_NUMBERS.sub("#", said),), shorten(said)
    behind = lines[frames[-1] + 1 :]
    said = next((line for line in behind if line and not line[0].isspace()), replica.reason)
    return (lines[frames[-1]], _NUMBERS.sub("#", said)), said
