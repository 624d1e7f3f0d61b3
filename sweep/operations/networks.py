"""The networks of one setting, compared on fresh episodes, of which the best one is handed over.

A setting is picked by what it is expected to score under a new seed; to be handed over is one
network. The candidates are the best and the newest checkpoint of each of its seeds. All of them
play the same episodes, which none of them was chosen by. The best mean of several is luck in part,
so the best one then plays as many others: the figures of the card are those.

The episodes are a function of the sweep's seed and the trial. So the same history hands over the
same network.
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

from sweep import stats
from sweep.driver import launch
from sweep.history.events import Saved
from sweep.history.replica import Replica
from sweep.history.seeds import replica_name, seed_of
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.operations import trained
from sweep.operations.trained import Choice, Restored
from sweep.spec import SweepSpec
from trainables.checkpoint.file import Loaded
from trainables.core import rng
from trainables.errors import EnvError, MissingCheckpoint, printable
from trainables.trainable import Trainable

Say = Callable[[str], None]

#: The value of `Choice.checkpoint` that has the networks of a setting compared.
COMPARED = "compared"
#: Episodes that each network plays, by default.
EPISODES = 20
#: Environment steps of all networks together, for each episode that is asked for: where they are
#: used up no further network plays.
STEPS_PER_EPISODE = 25_000
#: Episodes after which a network that has used up its share of the steps plays no more.
BATCH = 5
#: Metrics of episodes, wherever they stand in a result → what an episode is compared by.
_BY = {
    "episode_reward_mean": "episode_reward",
    "episode_reward_min": "episode_reward",
    "episode_reward_max": "episode_reward",
    "episode_len_mean": "episode_len",
}
_PLACES = ("", "evaluation")


@dataclass(frozen=True)
class Network:
    """A checkpoint of one seed."""

    replica: Replica
    saved: Saved

    @property
    def name(self) -> str:
        """Its seed and iteration, in words."""
        its = replica_name(self.replica.trial, self.replica.index)
        return f"trial {its}, iteration {self.saved.iteration}"


@dataclass(frozen=True)
class Record:
    """Results of the episodes of a network."""

    episodes: int
    mean: float
    deviation: float | None
    """Of single episodes; None: there was one."""
    error: float | None
    """Of the mean."""
    steps: float

    @classmethod
    def of(cls, values: Sequence[float], steps: float) -> "Record":
        """Sum up at least one episode."""
        count = len(values)
        spread = stats.pooled_spread([values])
        deviation = None if spread is None else spread.deviation
        error = None if deviation is None else deviation / math.sqrt(count)
        return cls(count, stats.mean(values), deviation, error, steps)


def candidates(trial: Trial) -> list[Network]:
    """Return the networks of a setting that can be had: the recorded best of the best seed first.

    Seeds that are catching up stand elsewhere in their training, and are left out.
    """
    leader, found = trial.leader, {}
    others = [one for one in (*trial.counted, *trial.tests) if one is not leader]
    for replica in (leader, *others):
        for saved in (replica.best_checkpoint, replica.newest):
            if saved is not None:
                found[replica.index, saved.digest] = Network(replica, saved)
    return list(found.values())


def key(trial: Trial) -> str:
    """Return the digest of what there is to choose from; of one network its checkpoint's."""
    digests = [network.saved.digest for network in candidates(trial)]
    return digests[0] if len(digests) == 1 else sha256(" ".join(digests).encode()).hexdigest()


@contextlib.contextmanager
def chosen(
    folder: Folder, choice: Choice, episodes: int, say: Say = lambda _: None
) -> Iterator[tuple[Restored, dict[str, Any]]]:
    """Restore the network that is wanted, with what its fresh episodes say of it, for a card.

    Args:
        folder: the sweep's.
        choice: the trial; the checkpoint, or `COMPARED`.
        episodes: that each network plays; 0: none, and the best one by the metric is taken.
        say: called with how far the comparison is.

    Raises:
        As `trained.restored`.
    """
    if choice.checkpoint == COMPARED and episodes:
        with _best(folder, choice, episodes, say) as found:
            yield found
        return
    compares = choice.checkpoint == COMPARED
    one = replace(choice, checkpoint="best") if compares else choice
    with trained.restored(folder, one) as restored:
        table = _Table(restored.spec, restored.trial, episodes, say)
        if not episodes:
            yield restored, table.card("no fresh episodes were asked for")
            return
        network = Network(restored.replica, restored.saved)
        why = table.check(restored.trainable, network)
        remarks = ("only this checkpoint was asked for", why)
        yield restored, table.card("; ".join(filter(None, remarks)))


@contextlib.contextmanager
def _best(
    folder: Folder, choice: Choice, episodes: int, say: Say
) -> Iterator[tuple[Restored, dict[str, Any]]]:
    cls = launch.trainable_of(folder)  # first: that takes seconds, in which a driver goes on
    with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        logdir = Path(scratch)
        for left in reversed(range(trained.CHOICES)):
            looked = trained.look(folder, choice.trial)
            table = _Table(looked.spec, looked.trial, episodes, say)
            try:
                best = table.compare(folder, cls, logdir)
            except MissingCheckpoint:  # a driver has deleted all of them meanwhile
                if not left:
                    raise
            else:
                break
        network, loaded = best
        trainable = trained.made(cls, looked.spec, looked.trial, network.replica, loaded, logdir)
        try:
            why = table.check(trainable, network) if table.can_play else ""
            spec, trial, its = looked.spec, looked.trial, network.replica
            seed = seed_of(spec.seed, trial.number, its.index)
            about = (loaded.header, seed, looked.versions)
            restored = Restored(trainable, spec, trial, its, network.saved, *about)
            yield restored, table.card("; ".join(filter(None, (table.remark, why))))
        finally:
            trainable.stop()


def _read(folder: Folder, networks: Sequence[Network]) -> Iterator[tuple[Network, Loaded]]:
    """Read those that a driver has not deleted meanwhile; MissingCheckpoint: it has all of them."""
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


class _Table:
    """Knowledge of the networks of one setting."""

    def __init__(self, spec: SweepSpec, trial: Trial, episodes: int, say: Say) -> None:
        self.remark = ""
        """The reason why nothing was compared, or not all."""
        self._spec = spec
        self._trial = trial
        self._episodes = episodes
        self._say = say
        self._most = STEPS_PER_EPISODE * max(episodes, EPISODES)
        self._left = float(self._most)
        self._played: list[tuple[Network, Record | str]] = []
        """Each with its record, or why it has none."""
        self._fresh: Record | None = None

    @property
    def by(self) -> str | None:
        """The value of an episode that the metric is a mean of; None: it is something else."""
        place, _, name = self._spec.metric.rpartition("/")
        return _BY.get(name) if place in _PLACES else None

    def compare(self, folder: Folder, cls: type[Trainable], logdir: Path) -> tuple[Network, Loaded]:
        """Have the networks play the same episodes; returns the best one and its checkpoint.

        That is the first candidate where they cannot be compared; `remark` says why.

        Raises:
            MissingCheckpoint: a driver has deleted all of them.
        """
        networks = candidates(self._trial)
        if not networks:
            trained.find_checkpoint(self._trial.leader, "best")  # raises
        self.remark = self._why_not(networks)
        share = self._left / (len(networks) + 1)
        best: tuple[Network, Loaded] | None = None
        for place, (network, loaded) in enumerate(_read(folder, networks)):
            best = best or (network, loaded)
            if place and self._left <= share:
                self.remark = self._used_up(place, len(networks))
            if self.remark or not self.can_play:
                break
            self._say(f"network {place + 1} of {len(networks)}: {network.name}")
            make = partial(trained.made, cls, self._spec, self._trial, network.replica, loaded)
            if self._wins(network, make(logdir), share):
                best = network, loaded
        assert best is not None  # noqa: S101 else it has raised
        if not self.can_play:
            self.remark = f"its networks were not compared: {self._played[0][1]}"
        return best

    def _why_not(self, networks: Sequence[Network]) -> str:
        """Return why they cannot be compared; empty: they can."""
        if len(networks) == 1:
            return "it is the only network of these settings that can be had"
        if self.by is None:
            metric = self._spec.metric
            why = f"{metric} is no mean of episodes, so it is the best one by that"
            return f"its networks were not compared: {why}"
        return ""

    @property
    def can_play(self) -> bool:
        """True if a network has played, or none has tried."""
        return not self._played or any(isinstance(found, Record) for _, found in self._played)

    def check(self, trainable: Trainable, network: Network) -> str:
        """Play the fresh episodes of the one that is handed over; returns why that cannot be."""
        self._say(f"fresh episodes: {network.name}")
        share = self._most / (len(self._played) + 1)
        found = self._play(trainable, "fresh", share)
        if isinstance(found, str):
            return found
        self._fresh = found
        return ""

    def _used_up(self, played: int, networks: int) -> str:
        steps = f"{self._most:,} environment steps were used up"
        return f"{played} of {networks} networks were compared: {steps}"

    def _wins(self, network: Network, trainable: Trainable, share: float) -> bool:
        """Have a network play, and return whether it is the best so far."""
        try:
            found = self._play(trainable, "compared", share)
        finally:
            trainable.stop()
        self._played.append((network, found))
        ranked = [(self._rank(*one), one[0]) for one in self._played]
        return max(ranked, key=lambda one: one[0])[1] is network

    def _rank(self, network: Network, found: Record | str) -> tuple[Any, ...]:
        sign = 1.0 if self._spec.mode == "max" else -1.0
        known = isinstance(found, Record)
        mean = sign * found.mean if isinstance(found, Record) else -math.inf
        value = network.saved.value
        recorded = -math.inf if value is None else sign * value
        return known, mean, recorded, network.saved.iteration, -network.replica.index

    def _play(self, trainable: Trainable, stream: str, share: float) -> Record | str:
        """Play episodes until they are enough or the share of the steps is used up.

        Returns why there are none: the trainable has none, they fail, or take too many steps.
        """
        values: list[float] = []
        steps, by = 0.0, self.by or "episode_reward"
        for begun in range(0, self._episodes, BATCH):
            if steps >= share:
                break
            seed = rng.integer(self._spec.seed, "export", self._trial.number, stream, begun)
            count = min(BATCH, self._episodes - begun)
            try:
                played = trainable.play(count, seed, most_steps=self._most)
            except NotImplementedError as error:
                return str(error)
            except EnvError as error:
                if not values:
                    return (printable(str(error)).splitlines() or [type(error).__name__])[0]
                break
            values += [one[by] for one in played]
            taken = math.fsum(one["episode_len"] for one in played)
            steps, self._left = steps + taken, self._left - taken
        if not all(map(math.isfinite, values)):
            return "a reward of its episodes is not finite"
        return Record.of(values, steps)

    def card(self, remark: str) -> dict[str, Any]:
        """Return the part of the card that says how they did."""
        rows = [
            {
                "seed_index": network.replica.index,
                "name": replica_name(network.replica.trial, network.replica.index),
                "iteration": network.saved.iteration,
                "digest": network.saved.digest,
                **(asdict(found) if isinstance(found, Record) else {"not_played": found}),
            }
            for network, found in self._played
        ]
        fresh = None if self._fresh is None else asdict(self._fresh)
        by = None if fresh is None else self.by or "episode_reward"
        asked = self._episodes
        return {"asked": asked, "by": by, "fresh": fresh, "compared": rows, "remark": remark}
