"""Workers that return experience from files, alone or in turn with workers that sample it.

A trainer learns from read rows as from sampled ones: a sample is one fragment (R, 1) of rows, with
several agents one for each policy. If the next row does not directly follow in time, the fragment
is truncated, so that the value is bootstrapped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np

from trainables.core import rng
from trainables.envs.spaces.actions import Spread
from trainables.errors import ConfigError, StoredDataError
from trainables.offline.batches import (
    Array,
    Batch,
    Columns,
    as_sent,
    batch_of,
    batch_of_agents,
    batch_of_lanes,
)
from trainables.offline.config import SAMPLER, IOContext
from trainables.offline.following import REMEDY, with_numbers
from trainables.offline.reader import InputReader, Rows, RowsByPolicy, as_batch
from trainables.offline.sources import make_reader
from trainables.policies.acting.actor import Weights
from trainables.policies.filters import Filter, is_filtering
from trainables.rollout.agents.worker import MultiAgentBatch, PolicySample
from trainables.rollout.batch import Fragment, Sample
from trainables.rollout.config import clipped
from trainables.rollout.episodes.metrics import RolloutMetrics
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_set import Arguments, WorkerSet
from trainables.rollout.workers.worker_spec import WorkerSpec

#: Name in a fragment → name in a batch that is read.
READ: Mapping[str, str] = {
    "observations": "obs",
    "actions": "actions",
    "rewards": "rewards",
    "terminated": "terminateds",
    "truncated": "truncateds",
    "new_obs": "new_obs",
    "t": "t",
    "eps_id": "eps_id",
}
#: Maximum number of latest observations that are kept.
RECENT_ROWS = 64
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RowTreatment:
    """The treatment that rows from files get, so that they are like sampled rows."""

    looks_ahead: bool = True
    """True if the algorithm learns from the observation after each row, which must be there."""
    clip_rewards: bool | float | None = None
    """Value of the setting ``clip_rewards``: True for signs, a number for a bound, False or None
    for neither."""
    no_done_at_end: bool = False
    """Value of the setting ``no_done_at_end``: True to learn from terminated rows as truncated
    ones."""

    @classmethod
    def of(cls, spec: WorkerSpec) -> Self:
        """Return the treatment that workers of this description give to sampled rows."""
        return cls(
            looks_ahead="new_obs" in spec.columns,
            clip_rewards=spec.effective_sampling.clip_rewards,
            no_done_at_end=spec.envs.no_done_at_end,
        )


#: The form of rows in files.
AS_READ = RowTreatment()


class SamplerInput(InputReader):
    """A reader whose batches are transitions that `workers` sample, for user-defined readers.

    The trainer's checkpoint contains its state.

    Args:
        in_lanes: True if each column of a fragment holds one agent's steps after another's.
        spread_of: function of a policy that returns how its actions are spread, see `as_sent`.
    """

    def __init__(
        self, workers: WorkerSet, in_lanes: bool, spread_of: Callable[[str], Spread | None]
    ) -> None:
        self.workers = workers
        self._in_lanes, self._spread_of = in_lanes, spread_of
        self._waiting: list[Batch] = []
        self._episodes: list[RolloutMetrics] = []
        self._unrolls = 0

    def next(self) -> Batch:
        """Return the oldest sampled batch that was not returned yet, column → rows (R, …).

        The workers sample if none is left; episodes that end are kept for `take_episodes`.
        """
        while not self._waiting:
            for sample in self.workers.sample():
                self._episodes += sample.episodes
                self._waiting += self._batches_of(sample)
        return self._waiting.pop(0)

    def take_episodes(self) -> list[RolloutMetrics]:
        """Return the episodes that ended in samples since the last call."""
        found, self._episodes = self._episodes, []
        return found

    def _batches_of(self, sample: Sample) -> list[Batch]:
        """Return a worker's sample as batches, without those that have no rows.

        Unless rows are in lanes or of several agents, each environment's rows get the next number
        (``unroll_id``).
        """
        if isinstance(sample, MultiAgentBatch):
            return [one] if (one := batch_of_agents(sample, self._spread_of)) else []
        found: list[Columns] = []
        for fragment in (as_sent(f, self._spread_of(DEFAULT_POLICY_ID)) for f in sample.fragments):
            if self._in_lanes:
                found.append(batch_of_lanes([fragment]))
            else:
                found.append(batch_of(fragment, None, self._unrolls))
                self._unrolls += fragment.valid.shape[1]
        return [one for one in found if len(one["obs"])]

    def get_state(self) -> dict[str, Any]:
        """Return ``waiting``, the batches not yet returned, and the number of ``unrolls``.

        The state of the sampling workers is not included.
        """
        return {"waiting": [dict(one) for one in self._waiting], "unrolls": self._unrolls}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the waiting batches and the number of unrolls that `get_state` returned."""
        self._waiting = [as_batch(one) for one in state["waiting"]]
        self._unrolls = int(state["unrolls"])


class ReadingWorkers(WorkerSet):
    """Workers that read experience instead of sampling it, or mix both.

    Args:
        count: minimum number of steps of a read sample: rows, or with several agents the steps that
            ``count_steps_by`` names.
        index: worker index of read samples, which no sampling worker has.
        sampling: workers that sample; None if nothing is sampled.
        make_filter: function of a policy (empty for a single one) that makes its filter of
            observations. The filter only counts observations; read rows stay unfiltered.
    """

    def __init__(
        self,
        context: IOContext,
        rows: Rows | RowsByPolicy,
        count: int,
        index: int,
        sampling: WorkerSet | None,
        learnt: RowTreatment,
        make_filter: Callable[[str], Filter],
    ) -> None:
        sources = context.offline.sources
        self._readers = {
            source: make_reader(source, rows, context) for source in sources if source != SAMPLER
        }
        self._shares = dict(sources)
        self._whole = context.offline.postprocess_inputs
        self._learnt = learnt
        self._stream = rng.generator(context.seed, "input")
        self._count, self._index, self._sampling = count, index, sampling
        self._make_filter = make_filter
        self._filters: dict[str, Filter] = {}
        """Policy → filter, for policies of which rows were read."""
        self._asked: SamplerInput | None = None

    @property
    def samples_for_reader(self) -> bool:
        """True if a user-defined reader has asked for sampled batches."""
        return self._asked is not None

    def take_sampler(self, sampler: "SamplerInput") -> None:
        """Use the workers that sample for a user-defined reader, to synchronise and close them."""
        self._asked, self._sampling = sampler, sampler.workers

    def sample(self) -> list[Sample]:
        """Return samples of one source, which is drawn by the sources' probabilities.

        For the source ``sampler`` the sampling workers sample. For others batches are read until
        they have at least `count` steps, and returned as one sample. Nothing is drawn if there is
        only one source. Raises StoredDataError for what cannot be read or learnt from.
        """
        source = next(iter(self._shares))
        if len(self._shares) > 1:
            shares = np.array([*self._shares.values()])
            # They add up to 1 up to `SMALL`, which numpy does not accept.
            drawn = self._stream.choice(len(shares), p=shares / shares.sum())
            source = list(self._shares)[int(drawn)]
        if self._sampling is not None and source == SAMPLER:
            return self._sampling.sample()
        batches: list[Batch] = []
        while sum(map(self._steps, batches)) < self._count:
            batches.append(self._readers[source].next())
        return [self._sample_of(batches, source)]

    def _steps(self, batch: Batch) -> int:
        """Return the number of rows of a batch."""
        return len(batch["obs"])

    def _sample_of(self, batches: Sequence[Batch], source: str) -> Sample:
        """Return read batches as one sample, marked with `was_read`.

        Its episodes are those that ended in a user-defined reader's samples. `source` is for
        errors.
        """
        read = {**self._sample_fields(batches, source), "episodes": self._episodes()}
        return Sample(**read, index=self._index, was_read=True)

    def _episodes(self) -> list[RolloutMetrics]:
        """Return the episodes that ended in a user-defined reader's samples since the last call.

        Empty if no reader has asked for samples.
        """
        return self._asked.take_episodes() if self._asked else []

    def _sample_fields(
        self, batches: Sequence[Columns], source: str, pid: str = ""
    ) -> dict[str, Any]:
        """Return the fields of a `Sample` for read batches of one policy, by name.

        The policy's filter, made at the first call, counts the rows' observations; the entry
        ``deltas`` has what it counted. `pid` is the policy, empty for a single one; `source` is for
        errors.
        """
        fragment = fragment_of(batches, self._whole, source, self._learnt)
        if pid not in self._filters:
            self._filters[pid] = self._make_filter(pid)
        observation_filter, observations = self._filters[pid], fragment.observations[:, 0]
        if is_filtering(observation_filter):
            observation_filter(observations)
        return {
            "fragments": [fragment],
            "episodes": [],
            "deltas": {"observation": observation_filter.get_delta(flush=True)},
            "recent": observations[-RECENT_ROWS:],
        }

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Send weights and merged filters to sampling workers.

        Set the filters that count read rows to the merged ones, which are by name: the policy, or
        ``observation`` for a single one. Those of policies that a restore has removed are dropped.
        """
        self._filters = {p: f for p, f in self._filters.items() if (p or "observation") in filters}
        for pid, one in self._filters.items():
            one.sync(filters[pid or "observation"])
        super().sync(weights, filters)

    def get_state(self) -> list[Any]:
        """Return the state of readers and source stream, then that of each sampling worker."""
        own = {
            "readers": {source: one.get_state() for source, one in self._readers.items()},
            "stream": rng.get_generator_state(self._stream),
            **({"sampler": self._asked.get_state()} if self._asked else {}),
        }
        return [own, *(self._sampling.get_state() if self._sampling else ())]

    def set_state(self, states: Sequence[Any]) -> None:
        """Restore the states that `get_state` returned; raises ConfigError for other sources."""
        reading, *sampling = states
        if reading.get("readers", {}).keys() != self._readers.keys():
            before = ", ".join(reading.get("readers", (SAMPLER,)))
            given = ", ".join(map(str, self._shares))
            raise ConfigError.of_checkpoint("input", given, before)
        for source, reader in self._readers.items():
            reader.set_state(reading["readers"][source])
        rng.set_generator_state(self._stream, reading["stream"])
        if self._asked:
            self._asked.set_state(reading["sampler"])
        if self._sampling:
            self._sampling.set_state(sampling)

    def healthy(self) -> int:
        """Return the number of sampling child processes that answered last; 0 without any."""
        return self._sampling.healthy() if self._sampling else 0

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """Call `function` with each sampling worker, also in child processes.

        Return the results; empty if nothing is sampled.
        """
        return self._sampling.foreach_worker(function) if self._sampling else []

    def local_worker(self) -> RolloutWorker | None:
        """Return the sampling worker in this process; None if there is none."""
        return self._sampling.local_worker() if self._sampling else None

    def remote_workers(self) -> list[Any]:
        """Return handles of the sampling workers in child processes, in order of their index.

        Empty if nothing is sampled.
        """
        return self._sampling.remote_workers() if self._sampling else []

    def pids(self) -> list[int]:
        """Return the process ids of the sampling child processes, in order of their index."""
        return self._sampling.pids() if self._sampling else []

    def close(self) -> None:
        """Close the sampling workers."""
        if self._sampling:
            self._sampling.close()

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        """Call a method of all sampling workers; return index → result, empty without them."""
        return self._sampling._ask(method, args) if self._sampling else {}


class ReadingAgents(ReadingWorkers):
    """`ReadingWorkers` for several agents; `agent_steps` is False to count environment steps."""

    def __init__(self, agent_steps: bool, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._agent_steps = agent_steps

    def _steps(self, batch: Batch) -> int:
        """Return the number of agent steps or environment steps of a batch, as set."""
        if not self._agent_steps:
            return int(batch["count"])
        return sum(len(columns["obs"]) for columns in batch["policy_batches"].values())

    def _sample_of(self, batches: Sequence[Batch], source: str) -> Sample:
        """Return read batches as one sample by policy; `source` is for errors.

        Their observations are counted in the policies' filters.
        """
        steps = sum(one["count"] for one in batches)
        common = {"index": self._index, "was_read": True, "env_steps": steps}
        each: dict[str, list[Columns]] = {}
        for batch in batches:
            for pid, columns in batch["policy_batches"].items():
                each.setdefault(pid, []).append(columns)
        by_policy = {
            pid: PolicySample(
                **self._sample_fields(parts, f"{source}, policy {pid}", pid), **common
            )
            for pid, parts in each.items()
        }
        none = np.zeros((0, 0), dtype=np.float32)
        ended = self._episodes()
        return MultiAgentBatch([], ended, {}, none, policy_batches=by_policy, **common)


def fragment_of(
    batches: Sequence[Columns], is_episode: bool, source: str, learnt: RowTreatment = AS_READ
) -> Fragment:
    """Return the rows of all read batches of one policy as one fragment (R, 1).

    A row that is not terminated and has no next row in its episode is marked as truncated. Missing
    numbers of steps and episodes are counted.

    Args:
        is_episode: True if rows that follow each other are a piece of an episode; False if each row
            stands alone.
        source: name in errors.
        learnt: treatment that sampled rows would get.

    Raises:
        StoredDataError: a column that is learnt from is missing.
    """
    common = set.intersection(*(set(one) for one in batches))
    for name in ("rewards", "terminateds"):
        if name not in common:
            problem = f"the column {name} is missing, and the policy learns from it"
            raise StoredDataError(source, problem, "read files that contain this column")
    if learnt.looks_ahead and "new_obs" not in common:
        problem = "the column new_obs is missing, and the policy learns from it"
        raise StoredDataError(source, problem, REMEDY)
    batches = [with_numbers(one) for one in batches]
    columns = {
        own: np.concatenate([one[name] for one in batches])[:, None]
        for own, name in READ.items()
        if name != "new_obs" or name in common
    }
    if not is_episode:
        columns["truncated"] = ~columns["terminated"]
    else:
        has_next = np.concatenate([one["has_next"] for one in batches])[:, None]
        columns["truncated"] |= ~has_next & ~columns["terminated"]
    if learnt.no_done_at_end:
        columns["truncated"] = columns["truncated"] | columns["terminated"]
        columns["terminated"] = np.zeros_like(columns["terminated"])
    columns["rewards"] = clipped(columns["rewards"], learnt.clip_rewards)
    shape = columns["terminated"].shape
    flags: dict[str, Array] = {"valid": np.ones(shape, bool), "autoreset": np.zeros(shape, bool)}
    return Fragment.from_columns({**columns, **flags})
