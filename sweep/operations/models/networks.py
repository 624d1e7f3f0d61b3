"""Compare the networks of one trial on fresh episodes, and restore the best one.

A trial is picked by its expected score under a new seed, but an export needs one network. The
candidates are the best and the newest checkpoint of each seed, and all play the same new episodes.
The best mean of several is partly luck, so the winner then plays as many further episodes; the card
shows the results of these.

The episodes depend only on the sweep's seed and the trial, so the same history gives the same
network.
"""

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from sweep.core import stats
from sweep.driver.start import launch
from sweep.history.events import Saved
from sweep.history.replica import Replica
from sweep.history.seeds import replica_name, seed_of
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.operations.models import trained
from sweep.operations.models.trained import Choice, Restored
from sweep.spec import SweepSpec
from trainables.checkpoint.file import Loaded
from trainables.core import rng
from trainables.errors import EnvError, MissingCheckpoint, printable
from trainables.trainable import Trainable

#: Function that shows a message to the user.
Say = Callable[[str], None]

#: The value of `Choice.checkpoint` that asks for a comparison of the trial's networks.
COMPARED = "compared"
#: Default number of episodes that each network plays.
EPISODES = 20
#: Budget of environment steps of all networks together, for each requested episode. No further
#: network plays when it is exhausted.
STEPS_PER_EPISODE = 25_000
#: Episodes between two checks of a network's share of the step budget.
BATCH = 5
#: Metric that averages over episodes → the value of a single episode.
_EPISODE_VALUES = {
    "episode_reward_mean": "episode_reward",
    "episode_reward_min": "episode_reward",
    "episode_reward_max": "episode_reward",
    "episode_len_mean": "episode_len",
}
#: Beginnings of the names of such metrics, before the slash.
_METRIC_PREFIXES = ("", "evaluation")


@dataclass(frozen=True)
class Network:
    """A candidate for the export: the policy in one checkpoint of a trial, under one seed."""

    replica: Replica
    """Replica (the trial under one seed) that trained the network."""
    saved: Saved
    """Ledger entry of the checkpoint."""

    @property
    def name(self) -> str:
        """Trial, seed and iteration as a text, such as ``trial 3.1, iteration 40``."""
        its = replica_name(self.replica.trial, self.replica.index)
        return f"trial {its}, iteration {self.saved.iteration}"


@dataclass(frozen=True)
class Record:
    """Statistics of one value, such as the return, over the episodes that a network played."""

    episodes: int
    """Number of played episodes."""
    mean: float
    """Mean of the episodes' values."""
    deviation: float | None
    """Standard deviation over episodes; None if there was only one."""
    error: float | None
    """Standard error of the mean; None if there was only one episode."""
    steps: float
    """Number of environment steps of all episodes together."""

    @classmethod
    def of(cls, values: Sequence[float], steps: float) -> "Record":
        """Compute the statistics of the episodes' `values`; they took `steps` environment steps."""
        count = len(values)
        spread = stats.pooled_spread([values])
        deviation = None if spread is None else spread.deviation
        error = None if deviation is None else deviation / math.sqrt(count)
        return cls(count, stats.mean(values), deviation, error, steps)


def candidates(trial: Trial) -> list[Network]:
    """Return the best and newest checkpoint of each seed, first the best one of the best seed.

    Seeds that are catching up are left out, since they are at another point of their training. Test
    seeds are included. A checkpoint that is both is listed once; without any the list is empty.
    """
    leader, networks = trial.leader, {}
    others = [one for one in (*trial.compared_replicas, *trial.test_replicas) if one is not leader]
    for replica in (leader, *others):
        for saved in (replica.best_checkpoint, replica.newest_checkpoint):
            if saved is not None:
                networks[replica.index, saved.digest] = Network(replica, saved)
    return list(networks.values())


def candidates_digest(trial: Trial) -> str:
    """Return a digest in hexadecimal that changes with the candidates.

    That of a single checkpoint is its own digest.
    """
    digests = [network.saved.digest for network in candidates(trial)]
    return digests[0] if len(digests) == 1 else sha256(" ".join(digests).encode()).hexdigest()


@contextlib.contextmanager
def restore_chosen(
    folder: Folder, choice: Choice, episodes: int, say: Say = lambda _: None
) -> Iterator[tuple[Restored, dict[str, Any]]]:
    """Restore the chosen checkpoint, or the best network of a comparison.

    Yields the restored trainable, which is stopped at the end, and the entry ``played`` of a
    model's card. A single checkpoint plays fresh episodes, too.

    Args:
        choice: trial and checkpoint, or `COMPARED`.
        episodes: episodes that each network plays; 0 for none, and to take the best network by the
            metric.
        say: called with a message for each network that plays.

    Raises:
        UsageError: no such trial or checkpoint.
        TrainableError: the checkpoint is unusable.
    """
    if choice.checkpoint == COMPARED and episodes:
        with _restore_best(folder, choice, episodes, say) as found:
            yield found
        return
    compares = choice.checkpoint == COMPARED
    one = replace(choice, checkpoint="best") if compares else choice
    with trained.restored(folder, one) as restored:
        table = _Comparison(restored.spec, restored.trial, episodes, say)
        if not episodes:
            yield restored, table.card_entry("no fresh episodes were requested")
            return
        network = Network(restored.replica, restored.saved)
        why = table.check(restored.trainable, network)
        remarks = ("only this checkpoint was requested", why)
        yield restored, table.card_entry("; ".join(filter(None, remarks)))


@contextlib.contextmanager
def _restore_best(
    folder: Folder, choice: Choice, episodes: int, say: Say
) -> Iterator[tuple[Restored, dict[str, Any]]]:
    """Let the trial's networks play, and yield the best one's trainable with the card's entry.

    The best one then plays further episodes for the card. The trainable is stopped at the end.
    Raises MissingCheckpoint if a driver deletes all checkpoints at each of several attempts.
    """
    # The import takes seconds, and a driver may train meanwhile, so the history is read after it.
    cls = launch.trainable_of(folder)
    with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        logdir = Path(scratch)
        for left in reversed(range(trained.ATTEMPTS)):
            looked = trained.read_trial(folder, choice.trial)
            table = _Comparison(looked.spec, looked.trial, episodes, say)
            try:
                best = table.compare(folder, cls, logdir)
            except MissingCheckpoint:  # a driver deleted all of them meanwhile
                if not left:
                    raise
            else:
                break
        network, loaded = best
        trainable = trained.make_trainable(
            cls, looked.spec, looked.trial, network.replica, loaded, logdir
        )
        try:
            why = table.check(trainable, network) if table.can_play else ""
            spec, trial, its = looked.spec, looked.trial, network.replica
            seed = seed_of(spec.seed, trial.number, its.index)
            about = (loaded.header, seed, looked.versions)
            restored = Restored(trainable, spec, trial, its, network.saved, *about)
            yield restored, table.card_entry("; ".join(filter(None, (table.remark, why))))
        finally:
            trainable.stop()


def _load_available(
    folder: Folder, networks: Sequence[Network]
) -> Iterator[tuple[Network, Loaded]]:
    """Yield each network whose checkpoint still exists, with the checkpoint's content.

    A driver may have deleted some; raises MissingCheckpoint if it deleted all.
    """
    count = 0
    for network in networks:
        try:
            loaded = trained.load(folder, network.replica, network.saved)
        except MissingCheckpoint:
            if not count and network is networks[-1]:
                raise
            continue
        count += 1
        yield network, loaded


class _Comparison:
    """Lets the networks of one trial play the same episodes, with a budget of environment steps."""

    def __init__(self, spec: SweepSpec, trial: Trial, episodes: int, say: Say) -> None:
        self.remark = ""
        """The reason why the comparison is incomplete; empty if it is complete."""
        self._spec = spec
        self._trial = trial
        self._episodes = episodes
        self._say = say
        self._most_steps = STEPS_PER_EPISODE * max(episodes, EPISODES)
        self._steps_left = float(self._most_steps)
        self._records: list[tuple[Network, Record | str]] = []
        """Each network that has played, with its statistics, or with the reason why it has none."""
        self._fresh: Record | None = None

    @property
    def episode_value(self) -> str | None:
        """Key of the episode's value in the metric: ``episode_reward`` or ``episode_len``.

        It is None if the metric is no mean, least or greatest value over episodes.
        """
        place, _, name = self._spec.metric.rpartition("/")
        return _EPISODE_VALUES.get(name) if place in _METRIC_PREFIXES else None

    def compare(self, folder: Folder, cls: type[Trainable], logdir: Path) -> tuple[Network, Loaded]:
        """Let the networks play the same episodes. Returns the best network and its checkpoint.

        If they cannot be compared, it is the first candidate. `remark` has the reason for that, or
        says that the step budget ended the comparison early. Raises UsageError if the trial has no
        checkpoint, MissingCheckpoint if a driver deleted all of them.
        """
        networks = candidates(self._trial)
        if not networks:
            trained.find_checkpoint(self._trial.leader, "best")  # raises
        self.remark = self._find_obstacle(networks)
        share = self._steps_left / (len(networks) + 1)
        best: tuple[Network, Loaded] | None = None
        for place, (network, loaded) in enumerate(_load_available(folder, networks)):
            best = best or (network, loaded)
            if place and self._steps_left <= share:
                self.remark = self._describe_partial(place, len(networks))
            if self.remark or not self.can_play:
                break
            self._say(f"network {place + 1} of {len(networks)}: {network.name}")
            make = partial(
                trained.make_trainable, cls, self._spec, self._trial, network.replica, loaded
            )
            if self._wins(network, make(logdir), share):
                best = network, loaded
        assert best is not None  # noqa: S101 else it has raised
        if not self.can_play:
            self.remark = f"its networks were not compared: {self._records[0][1]}"
        return best

    def _find_obstacle(self, networks: Sequence[Network]) -> str:
        """Return the reason why the networks cannot be compared; empty if they can.

        There is only one, or the metric is not about episodes.
        """
        if len(networks) == 1:
            return "it is the only network of these settings that has a checkpoint"
        if self.episode_value is None:
            metric = self._spec.metric
            why = f"{metric} does not average episodes, so the best one by that metric was taken"
            return f"its networks were not compared: {why}"
        return ""

    @property
    def can_play(self) -> bool:
        """True before any network has tried to play, and if one of those that tried could."""
        return not self._records or any(isinstance(found, Record) for _, found in self._records)

    def check(self, trainable: Trainable, network: Network) -> str:
        """Let the best network play fresh episodes, and keep their statistics for the card.

        Returns the reason if it cannot play, or else an empty text.
        """
        self._say(f"fresh episodes: {network.name}")
        share = self._most_steps / (len(self._records) + 1)
        found = self._play(trainable, "fresh", share)
        if isinstance(found, str):
            return found
        self._fresh = found
        return ""

    def _describe_partial(self, played: int, networks: int) -> str:
        """Return the remark that the step budget sufficed for `played` of the networks."""
        steps = f"{self._most_steps:,} environment steps were used up"
        return f"{played} of {networks} networks were compared: {steps}"

    def _wins(self, network: Network, trainable: Trainable, share: float) -> bool:
        """Let a network play, and stop its trainable. Returns true if it is the best so far.

        Its statistics are kept for the card. `share` is the number of environment steps after which
        it begins no further episodes.
        """
        try:
            found = self._play(trainable, "compared", share)
        finally:
            trainable.stop()
        self._records.append((network, found))
        ranked = [(self._rank(*one), one[0]) for one in self._records]
        return max(ranked, key=lambda one: one[0])[1] is network

    def _rank(self, network: Network, record: Record | str) -> tuple[Any, ...]:
        """Return a sort key, greater for a better network.

        Networks that played come first, ordered by the mean of their episodes, then by the recorded
        metric; of equal ones the newer, then that of the earlier seed is greater.
        """
        sign = 1.0 if self._spec.mode == "max" else -1.0
        known = isinstance(record, Record)
        mean = sign * record.mean if isinstance(record, Record) else -math.inf
        value = network.saved.value
        recorded = -math.inf if value is None else sign * value
        return known, mean, recorded, network.saved.iteration, -network.replica.index

    def _play(self, trainable: Trainable, stream: str, share: float) -> Record | str:
        """Play `_episodes` episodes with seeds of the `stream`, fewer if they take `share` steps.

        Returns their statistics, or the reason why there are none: the trainable does not play, the
        environment fails in the first `BATCH` episodes, or a reward is not finite. A later failure
        drops its batch and ends them. The steps are taken from the budget.
        """
        values: list[float] = []
        steps, episode_value = 0.0, self.episode_value or "episode_reward"
        for begun in range(0, self._episodes, BATCH):
            if steps >= share:
                break
            seed = rng.integer(self._spec.seed, "export", self._trial.number, stream, begun)
            count = min(BATCH, self._episodes - begun)
            try:
                played = trainable.play(count, seed, most_steps=self._most_steps)
            except NotImplementedError as error:
                return str(error)
            except EnvError as error:
                if not values:
                    return (printable(str(error)).splitlines() or [type(error).__name__])[0]
                break
            values += [one[episode_value] for one in played]
            taken = math.fsum(one["episode_len"] for one in played)
            steps, self._steps_left = steps + taken, self._steps_left - taken
        if not all(map(math.isfinite, values)):
            return "a reward of its episodes is not finite"
        return Record.of(values, steps)

    def card_entry(self, remark: str) -> dict[str, Any]:
        """Return the entry ``played`` of the card.

        Its keys are ``asked`` (episodes), ``fresh`` (a `Record` as a mapping, or None), ``by`` (the
        key of its value in an episode, or None), ``compared`` (a mapping for each network that has
        played, or tried to) and the `remark`.
        """
        rows = [
            {
                "seed_index": network.replica.index,
                "name": replica_name(network.replica.trial, network.replica.index),
                "iteration": network.saved.iteration,
                "digest": network.saved.digest,
                **(asdict(found) if isinstance(found, Record) else {"not_played": found}),
            }
            for network, found in self._records
        ]
        fresh = None if self._fresh is None else asdict(self._fresh)
        episode_value = None if fresh is None else self.episode_value or "episode_reward"
        asked = self._episodes
        return {
            "asked": asked,
            "by": episode_value,
            "fresh": fresh,
            "compared": rows,
            "remark": remark,
        }
