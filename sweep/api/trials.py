"""A trial and its checkpoints, as Python code sees them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sweep.core.errors import BadConfig, UsageError
from sweep.history.events import Saved
from sweep.history.replica import Replica
from sweep.history.trial import Trial as HistoryTrial
from sweep.operations.models import trained
from sweep.slices import store
from sweep.slices.store import Store
from sweep.views import formatting, lookup, overview
from trainables.checkpoint.opaque import write_files
from trainables.function import saved_by_function
from trainables.trainable import Trainable

if TYPE_CHECKING:
    from pandas import DataFrame


class Policy(Protocol):
    """A trained policy with its observation filters."""

    def compute_action(self, obs: Any, *, explore: bool = False) -> Any:
        """Return the action for one observation, both in the environment's format.

        With `explore` it is drawn from the policy, otherwise it is the most probable one. The
        filters are applied, and not changed.
        """

    def stop(self) -> None:
        """Release the policy's resources; the policy cannot be used afterwards."""


#: Fixed columns of `Sweep.results`, before and after the columns of settings and objectives.
FIRST_COLUMNS = (
    *("trial", "status", "score", "expected", "expected_error"),
    *("iterations", "steps", "own_steps"),
)
#: Last columns of `Sweep.results`.
LAST_COLUMNS = ("parent", "reason")


def result_row(row: overview.Data) -> dict[str, Any]:
    """Return a trial's data as a row of `Sweep.results`: column → value.

    `row` is one of the ``trials`` that `overview.results` returns.
    """
    first = {key: row[key] for key in FIRST_COLUMNS}
    first |= {f"config.{name}": value for name, value in row["settings"].items()}
    taken = {*first, *LAST_COLUMNS}
    others = {
        f"objectives/{name}" if name in taken else name: value
        for name, value in row.get("objectives", {}).items()
    }
    return first | others | {key: row[key] for key in LAST_COLUMNS}


class Trial:
    """One trial in the state in which it was read."""

    def __init__(self, sweep: lookup.Sweep, trial: HistoryTrial) -> None:
        self._sweep = sweep
        self._trial = trial

    def __repr__(self) -> str:
        said = formatting.settings(self.settings)
        score = formatting.number(self.score)
        return f"<trial {self.number}: {self.status}, score {score}, {said}>"

    @property
    def number(self) -> int:
        """Number of the trial in its sweep."""
        return self._trial.number

    @property
    def status(self) -> str:
        """Status: WAITING, RUNNING, PAUSED, COMPLETED, PRUNED, STOPPED or FAILED."""
        return self._trial.status.value

    @property
    def score(self) -> float | None:
        """Score by which the trial is compared; None before one, or if the metric diverged."""
        return self._trial.score

    @property
    def expected(self) -> float | None:
        """Expected score of the settings under a new seed at the end of training.

        It is None if the trial has no score yet, or one that is not finite.
        """
        found = self._sweep.history.expected(self._trial)
        return None if found is None else found.value

    @property
    def expected_error(self) -> float | None:
        """Standard error of `expected`.

        It is None with too few trials to estimate it, or if results do not depend on chance.
        """
        found = self._sweep.history.expected(self._trial)
        return None if found is None else found.error

    @property
    def settings(self) -> dict[str, Any]:
        """Searched settings by name, without those that are inactive in the trial."""
        return dict(self._trial.searched)

    @property
    def config(self) -> dict[str, Any]:
        """All settings of the trainable, nested: searched, fixed and computed ones."""
        return dict(self._trial.config)

    @property
    def iterations(self) -> int:
        """Number of training iterations that all compared seeds of the trial have finished.

        Those of a parent from whose checkpoint the trial began are included.
        """
        return self._trial.iteration

    @property
    def reason(self) -> str:
        """Reason for the status, in words."""
        return self._trial.reason

    @property
    def error(self) -> str:
        """Newest traceback, or a disk's message, of the seed that decides the status; else empty.

        It stays when a retry succeeds.
        """
        return self._trial.deciding_replica.error

    def results(self) -> "DataFrame":
        """Return all results of the trial's best seed, one row per iteration.

        The columns are ``iteration`` and the names of the results, with ``/`` between nested keys.
        """
        from pandas import DataFrame

        rows = lookup.read_results(self._sweep.folder, self._leader)
        first = {"iteration": 0}  # makes it the first column
        return DataFrame([{**first, **r.metrics, "iteration": r.iteration} for r in rows])

    def log(self) -> str:
        """Return the end of the trial's printed output, that of each seed after the other."""
        return lookup.read_log(self._sweep.folder, self._trial)

    def checkpoint(self, name: str | int = "best") -> "Checkpoint":
        """Return a checkpoint of the trial's best seed; UsageError if it does not exist.

        Nothing is read from it yet.

        Args:
            name: ``best`` by the metric, ``last``, or the iteration of a checkpoint.
        """
        saved = trained.find_checkpoint(self._leader, str(name), "checkpoint")
        its = store.of_sweep(self._sweep.folder).replica(self.number, self._leader.index)
        return Checkpoint(its.path(saved), saved, its)

    def load(self, checkpoint: str | int = "best") -> Trainable:
        """Return the best seed's trainable at a checkpoint; call its `stop()` after use.

        If the checkpoint was deleted since the trial was read, it is chosen again.

        Args:
            checkpoint: ``best`` by the metric, ``last``, or the iteration of a checkpoint.

        Raises:
            UsageError: no such checkpoint.
            TrainableError: the checkpoint is unusable.
        """
        now = self._sweep
        return trained.restore(now.folder, now.spec, self._trial, str(checkpoint))

    def load_policy(self, checkpoint: str | int = "best") -> Policy:
        """Return the best seed's policy at a checkpoint, with its filters; call `stop()` after use.

        `checkpoint` is ``best`` by the metric, ``last``, or the iteration of a checkpoint.

        Raises:
            UsageError: no such checkpoint, or the trainable has no `compute_action`.
            TrainableError: the checkpoint is unusable.
        """
        found: Any = self.load(checkpoint)
        if not callable(getattr(found, "compute_action", None)):
            found.stop()
            name = self._sweep.spec.trainable
            raise UsageError(
                f"{name} has no method compute_action(); use load(), which returns the trainable "
                "itself"
            )
        policy: Policy = found
        return policy

    @property
    def _leader(self) -> Replica:
        """Replica (the trial under one seed) with the best score."""
        return self._trial.leader


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a trial."""

    path: Path
    """Path of the checkpoint's file; if checkpoints are in object storage, the file may exist only
    there."""
    saved: Saved
    """The ledger's entry: iteration, digest, size, and the metric (``value``)."""
    _store: Store
    """Store of the replica's checkpoints, which has the file."""

    def __repr__(self) -> str:
        value = formatting.number(self.value)
        return f"<checkpoint of iteration {self.iteration}, value {value}: {self.path}>"

    @property
    def iteration(self) -> int:
        """Iteration after which the checkpoint was saved."""
        return self.saved.iteration

    @property
    def value(self) -> float | None:
        """Metric at the checkpoint's iteration; None if it was not reported, or not finite."""
        return self.saved.value

    def load(self, folder: str | Path | None = None) -> Any:
        """Return the saved data; of a checkpoint with files, write these to `folder` and return it.

        `folder` is not used otherwise.

        Raises:
            CheckpointError: it is unusable, or another user signed it.
            UsageError: it contains files, and `folder` is None.
        """
        loaded = self._store.read(self.saved)
        kept = saved_by_function(loaded.state["trainable"])
        if not kept["files"]:
            return kept["data"]
        if folder is None:
            problem = "this checkpoint contains files"
            raise BadConfig(
                "folder", folder, "a folder to which these files can be written", problem=problem
            )
        write_files(Path(folder), kept["files"])
        return Path(folder)
