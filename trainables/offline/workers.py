"""Rollout workers that read what they give, alone or by turns with those that sample it.

A trainer learns from what is read as from what it samples: a sample is one fragment (R, 1) of rows,
with several agents one of each policy.
Where the next row does not follow in time, the fragment says truncated, as the value goes on there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from trainables.core import rng
from trainables.errors import ConfigError, StoredDataError
from trainables.offline.batches import Array, Batch, Columns
from trainables.offline.config import SAMPLER, IOContext
from trainables.offline.reader import Rows, RowsByPolicy
from trainables.offline.sources import make_reader
from trainables.policies.filters import NoFilter
from trainables.rollout.agents.worker import MultiAgentBatch, PolicySample
from trainables.rollout.batch import Fragment, Sample
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_set import Arguments, WorkerSet

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
RECENT_ROWS = 64
T = TypeVar("T")


class ReadingWorkers(WorkerSet):
    """Gives what is read, and where the sampler is among the sources what it samples.

    Args:
        context: the settings.
        rows: what rows must look like.
        count: steps of a sample that is read, at least: rows, or with several agents what
            ``count_steps_by`` says.
        index: of such a sample, which no worker that samples has.
        sampling: the workers that sample; None: nothing is sampled.
    """

    def __init__(
        self,
        context: IOContext,
        rows: Rows | RowsByPolicy,
        count: int,
        index: int,
        sampling: WorkerSet | None,
    ) -> None:
        sources = context.config.sources
        self._readers = {
            source: make_reader(source, rows, context) for source in sources if source != SAMPLER
        }
        self._shares = dict(sources)
        self._whole = context.config.postprocess_inputs
        self._stream = rng.generator(context.seed, "input")
        self._count, self._index, self._sampling = count, index, sampling

    def sample(self) -> list[Sample]:
        """What one source gives, drawn by its probability."""
        source = next(iter(self._shares))
        if len(self._shares) > 1:
            drawn = self._stream.choice(len(self._shares), p=list(self._shares.values()))
            source = list(self._shares)[int(drawn)]
        if self._sampling is not None and source == SAMPLER:
            return self._sampling.sample()
        batches: list[Batch] = []
        while sum(map(self._steps, batches)) < self._count:
            batches.append(self._readers[source].next())
        return [self._sample_of(batches, source)]

    def _steps(self, batch: Batch) -> int:
        return len(batch["obs"])

    def _sample_of(self, batches: Sequence[Batch], source: str) -> Sample:
        return Sample(**self._read(batches, source), index=self._index, was_read=True)

    def _read(self, batches: Sequence[Columns], source: str) -> dict[str, Any]:
        """What a sample of these batches of one policy has."""
        fragment = fragment_of(batches, self._whole, source)
        return {
            "fragments": [fragment],
            "episodes": [],
            "deltas": {"observation": NoFilter().get_delta()},
            "recent": fragment.observations[-RECENT_ROWS:, 0],
        }

    def get_state(self) -> list[Any]:
        """Of the readers and the stream that draws one, then of each worker that samples."""
        own = {
            "readers": {source: one.get_state() for source, one in self._readers.items()},
            "stream": rng.get_generator_state(self._stream),
        }
        return [own, *(self._sampling.get_state() if self._sampling else ())]

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave; ConfigError for that of other sources."""
        own, *sampling = states
        if own.get("readers", {}).keys() != self._readers.keys():
            allowed = f"{', '.join(own.get('readers', (SAMPLER,)))}, as in the checkpoint"
            raise ConfigError("input", list(self._shares), allowed)
        for source, reader in self._readers.items():
            reader.set_state(own["readers"][source])
        rng.set_generator_state(self._stream, own["stream"])
        if self._sampling:
            self._sampling.set_state(sampling)

    def healthy(self) -> int:
        """Child processes that answered last."""
        return self._sampling.healthy() if self._sampling else 0

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """``function(worker)`` of each that samples."""
        return self._sampling.foreach_worker(function) if self._sampling else []

    def local_worker(self) -> RolloutWorker | None:
        """The worker in this process that samples, if there is one."""
        return self._sampling.local_worker() if self._sampling else None

    def remote_workers(self) -> list[Any]:
        """Those in child processes, in the order of their indices."""
        return self._sampling.remote_workers() if self._sampling else []

    def pids(self) -> list[int]:
        """Of the child processes, by index."""
        return self._sampling.pids() if self._sampling else []

    def close(self) -> None:
        """End those that sample."""
        if self._sampling:
            self._sampling.close()

    def _ask(self, method: str, args: Arguments) -> dict[int, Any]:
        return self._sampling._ask(method, args) if self._sampling else {}


class ReadingAgents(ReadingWorkers):
    """The same with several agents.

    Args:
        agent_steps: steps are those of agents, not of environments.
        given: as `ReadingWorkers`.
    """

    def __init__(self, agent_steps: bool, *given: Any) -> None:
        super().__init__(*given)
        self._agent_steps = agent_steps

    def _steps(self, batch: Batch) -> int:
        if not self._agent_steps:
            return int(batch["count"])
        return sum(len(columns["obs"]) for columns in batch["policy_batches"].values())

    def _sample_of(self, batches: Sequence[Batch], source: str) -> Sample:
        steps = sum(one["count"] for one in batches)
        own = {"index": self._index, "was_read": True, "env_steps": steps}
        each: dict[str, list[Columns]] = {}
        for batch in batches:
            for pid, columns in batch["policy_batches"].items():
                each.setdefault(pid, []).append(columns)
        by_policy = {
            pid: PolicySample(**self._read(parts, f"{source}, policy {pid}"), **own)
            for pid, parts in each.items()
        }
        none = np.zeros((0, 0), dtype=np.float32)
        return MultiAgentBatch([], [], {}, none, policy_batches=by_policy, **own)


def fragment_of(batches: Sequence[Columns], whole: bool, source: str) -> Fragment:
    """All rows as one fragment (R, 1).

    Args:
        batches: that were read.
        whole: rows that follow each other are a piece of an episode; False: each stands alone.
        source: named in errors.
    """
    missing = {name for one in batches for name in (*READ.values(), "goes_on") if name not in one}
    if missing:
        raise StoredDataError(source, f"no column {min(missing)}, from which is learnt")
    columns = {
        own: np.concatenate([one[name] for one in batches])[:, None] for own, name in READ.items()
    }
    if not whole:
        columns["truncated"] = ~columns["terminated"]
    else:
        goes_on = np.concatenate([one["goes_on"] for one in batches])[:, None]
        columns["truncated"] |= ~goes_on & ~columns["terminated"]
    shape = columns["terminated"].shape
    flags: dict[str, Array] = {"valid": np.ones(shape, bool), "autoreset": np.zeros(shape, bool)}
    return Fragment.of({**columns, **flags})
