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
from sweep.history import History, Replica, Trial
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
    best = next(iter(history.ranked()), None)
    spare = [one for replica in everyone if (one := _Spare(history, replica, best)).left]
    gone: dict[tuple[int, int], list[str]] = defaultdict(list)
    while over > 0 and spare:
        cheapest = min(spare, key=lambda one: one.first)
        saved = cheapest.drop()
        gone[cheapest.replica.trial, cheapest.replica.index].append(saved.digest)
        over -= saved.size
        if not cheapest.left:
            spare.remove(cheapest)
    dropped = [Dropped(*place, tuple(digests)) for place, digests in sorted(gone.items())]
    return dropped, _refusal(over + most, most) if over > 0 else ""


def _refusal(left: int, most: int) -> str:
    return (
        f"checkpoint.max_disk: {in_words(left)} of checkpoints are needed to go on, "
        f"{in_words(most)} are allowed; `sweep resume` with --max-disk goes on with more"
    )


class _Spare:
    """What may go of one replica's checkpoints.

    Args:
        history: of the sweep.
        replica: one of its replicas.
        best: the best trial.
    """

    def __init__(self, history: History, replica: Replica, best: Trial | None) -> None:
        self.replica = replica
        self._kept = dict(replica.checkpoints)
        self._needed = _needed(history, replica, best)
        self.left: list[tuple[float, int, str]] = []
        """Seconds to make it again, iteration and digest of each, the first to go first."""
        self._look()

    @property
    def first(self) -> tuple[float, int, int, int]:
        """The first to go, as it is compared with those of others."""
        seconds, iteration, _ = self.left[0]
        return seconds, self.replica.trial, self.replica.index, iteration

    def drop(self) -> Saved:
        """Let the first go."""
        saved = self._kept.pop(self.left[0][-1])
        self._look()
        return saved

    def _look(self) -> None:
        kept = [*self._kept.values()]
        self.left = sorted(
            (_seconds(self.replica, saved, kept), saved.iteration, saved.digest)
            for saved in kept
            if saved.digest not in self._needed
        )


def _seconds(replica: Replica, saved: Saved, kept: Sequence[Saved]) -> float:
    """Training from the checkpoint before, or from the beginning, to this one."""
    before = max((s.iteration for s in kept if s.iteration < saved.iteration), default=0)
    span = range(before + 1, saved.iteration + 1)
    return estimates.total(p.seconds for p in replica.curve if p.iteration in span)


def _needed(history: History, replica: Replica, best: Trial | None) -> set[str]:
    """Digests that stay; all of a replica that runs, whose slice may rely on any."""
    if replica.status is Status.RUNNING:
        return set(replica.checkpoints)
    if is_test(replica.index) and replica.status in FINISHED:
        return set()
    kept: list[Saved | None] = []
    trial = history.trials[replica.trial]
    if trial.may_go_on(replica):
        by_age = sorted(replica.checkpoints.values(), key=lambda saved: saved.iteration)
        kept += [*by_age[-ALWAYS_KEPT:], replica.best_checkpoint]
    if trial is best:
        kept.append(replica.best_checkpoint)
    found = {saved.digest for saved in kept if saved is not None}
    return found | needed_by_children(history, replica)
