"""Which checkpoints go when all of a sweep's together are too large: a function of its history.

Kept is what somebody needs: of a replica that may go on its newest two and its best, what trials
bred from it would fall back to, and the best of the best trial; of a test that has ended nothing.
Of the others the one goes first that takes the fewest seconds of training to make again. Sizes are
bytes; a file that two checkpoints share counts for both.
"""

from collections import defaultdict
from collections.abc import Sequence

from sweep import estimates
from sweep.checkpoints import ALWAYS_KEPT, needed_by_children
from sweep.events import FINISHED, Saved, Status
from sweep.history import History, Replica
from sweep.seeds import is_test
from sweep.spec.sizes import in_words
from sweep.wishes import Dropped


def to_drop(history: History, most: int | None) -> tuple[list[Dropped], str]:
    """What goes so that the rest is at most `most`; and in words why that is not enough, or ""."""
    if most is None:
        return [], ""
    everyone = [*history.replicas(*Status), *history.tests(*Status)]
    over = sum(saved.size for r in everyone for saved in r.checkpoints.values()) - most
    if over <= 0:
        return [], ""
    needed = {id(replica): _needed(history, replica) for replica in everyone}
    kept = {id(replica): dict(replica.checkpoints) for replica in everyone}
    gone: dict[tuple[int, int], list[str]] = defaultdict(list)
    while over > 0:
        spare = [
            (_seconds(replica, saved, [*kept[id(replica)].values()]), replica, saved)
            for replica in everyone
            for digest, saved in kept[id(replica)].items()
            if digest not in needed[id(replica)]
        ]
        if not spare:
            break
        _, replica, saved = min(spare, key=_first_to_go)
        del kept[id(replica)][saved.digest]
        gone[replica.trial, replica.index].append(saved.digest)
        over -= saved.size
    dropped = [Dropped(*place, tuple(digests)) for place, digests in sorted(gone.items())]
    return dropped, _refusal(over + most, most) if over > 0 else ""


def _refusal(left: int, most: int) -> str:
    return (
        f"checkpoint.max_disk: {in_words(left)} of checkpoints are needed to go on, "
        f"{in_words(most)} are allowed; `sweep resume` with --max-disk goes on with more"
    )


def _first_to_go(candidate: tuple[float, Replica, Saved]) -> tuple[float, int, int, int]:
    seconds, replica, saved = candidate
    return seconds, replica.trial, replica.index, saved.iteration


def _seconds(replica: Replica, saved: Saved, kept: Sequence[Saved]) -> float:
    """Training from the checkpoint before, or from the beginning, to this one."""
    before = max((s.iteration for s in kept if s.iteration < saved.iteration), default=0)
    span = range(before + 1, saved.iteration + 1)
    return estimates.total(p.seconds for p in replica.curve if p.iteration in span)


def _needed(history: History, replica: Replica) -> set[str]:
    """Digests that stay; all of a replica that runs, whose slice may rely on any."""
    if replica.status is Status.RUNNING:
        return set(replica.checkpoints)
    if is_test(replica.index) and replica.status in FINISHED:
        return set()
    kept: list[Saved | None] = []
    trial = history.trials[replica.trial]
    if replica.status not in FINISHED or replica.waited or trial.status is Status.FAILED:
        by_age = sorted(replica.checkpoints.values(), key=lambda saved: saved.iteration)
        kept += [*by_age[-ALWAYS_KEPT:], replica.best_checkpoint]
    if history.ranked()[:1] == [trial]:
        kept.append(replica.best_checkpoint)
    found = {saved.digest for saved in kept if saved is not None}
    return found | needed_by_children(history, replica)
