"""A rollout worker: its environments, actor, filters and streams, and the whole of their state.

The same object serves in the trainer's own process and in a child. It needs numpy only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from trainables import filters as filters_
from trainables import rng
from trainables.envs.choice import make_lanes
from trainables.envs.lanes import LanesConfig
from trainables.envs.levels import Level
from trainables.envs.make import EnvironmentConfig, EnvSpaces, checked_spaces
from trainables.envs.vector import Lanes, Place
from trainables.errors import WorkerError
from trainables.filter_config import FilterConfig, make_filters
from trainables.filters import Filter
from trainables.policies.actor import Actor, Weights
from trainables.resources import ResourcesConfig
from trainables.rollout.batch import Fragment
from trainables.rollout.episodes import EpisodeSampler
from trainables.rollout.metrics import Episode
from trainables.rollout.sampler import Sampler, SamplingConfig

Array = NDArray[Any]
SAMPLERS: Mapping[str, type[Sampler]] = {
    "truncate_episodes": Sampler,
    "complete_episodes": EpisodeSampler,
}


@dataclass(frozen=True)
class WorkerSpec:
    """Everything a worker is made from; it travels to children."""

    seed: int
    """Seed of the trial's streams."""
    index: int
    """Which worker of its trainer."""
    num_workers: int
    """Child processes that collect; 0: the trainer's own process does."""
    environment: EnvironmentConfig
    lanes: LanesConfig
    sampling: SamplingConfig
    filters: FilterConfig
    activation: str
    """Of the policy's networks."""
    gamma: float
    steps: int
    """Environment steps per `sample`: exactly so many, or at least, of whole episodes."""
    level: Level
    """What a checkpoint holds of the environments."""
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    """What a child is given."""

    #: How errors call the process that is made from it.
    role: ClassVar[str] = "rollout worker"

    def build(self) -> "RolloutWorker":
        """The worker, in the process that it lives in."""
        return RolloutWorker(self)


@dataclass(frozen=True)
class Sample:
    """What one worker collected in one iteration."""

    fragments: list[Fragment]
    """They may be buffers that the worker writes again in its next `sample`."""
    episodes: list[Episode]
    """Those that ended, in the order of their end."""
    deltas: dict[str, Any]
    """What each filter saw since it was last synchronised."""
    recent: Array
    """(≤ 64, D) the latest raw observations of this iteration."""


class RolloutWorker:
    """Collects fragments with the weights it was last given."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        place = Place(spec.seed, spec.index, spec.num_workers)
        self.lanes = make_lanes(
            spec.environment, spec.sampling.num_envs_per_worker, spec.lanes, place
        )
        spaces_ = _read_spaces(spec, self.lanes)
        self._actor = Actor(spaces_.discrete, spec.activation)
        self._filters: dict[str, Filter] = make_filters(spec.filters, spaces_.observation_size)
        self._stream = rng.generator(spec.seed, "policy", spec.index)
        parts = (self.lanes, self._actor, self._filters)
        name = f"worker {spec.index}"
        make = SAMPLERS[spec.sampling.batch_mode]
        self._sampler = make(name, spec.sampling, spaces_, parts, (spec.gamma, spec.steps))
        units = range(self.lanes.unit_count)
        self.lanes.seed_spaces([self._seed(i, "spaces") for i in units])
        self._sampler.start([self._seed(i) for i in units])

    def sample(self) -> Sample:
        """Exactly, or with whole episodes at least, as many steps as the spec says."""
        collected = self._sampler.sample(self._stream)
        deltas = self.get_filters(flush_after=True)
        return Sample(collected.fragments, collected.episodes, deltas, collected.recent)

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Adopt the learner's weights, and the merged filters if they are synchronised."""
        self._actor.load(weights)
        if self.spec.filters.synchronize_filters:
            self.sync_filters(filters)

    def get_filters(self, flush_after: bool = False) -> dict[str, Any]:
        """What each filter saw since it was last flushed; `flush_after` does it now."""
        return {name: one.get_delta(flush_after) for name, one in self._filters.items()}

    def sync_filters(self, filters: Mapping[str, Any]) -> None:
        """Adopt the states of the master's filters; deltas since the last flush are kept.

        Raises:
            WorkerError: a filter of this worker has no state among them.
        """
        missing = sorted(set(self._filters) - set(filters))
        if missing:
            raise WorkerError(
                f"worker {self.spec.index} has no state for its filter(s) {', '.join(missing)}; "
                f"there are: {', '.join(sorted(filters)) or 'none'}"
            )
        for name, one in self._filters.items():
            one.sync(filters[name])

    def get_state(self) -> dict[str, Any]:
        """Entries ``stream``, ``sampler``, ``level``, ``environments``, ``lanes``, and ``filters``.

        Weights are the trainer's, which gives them to every worker with `sync`. So are filters,
        unless each worker keeps its own.
        """
        exact = self.spec.level == "A"
        own = not self.spec.filters.synchronize_filters
        return {
            "stream": rng.get_generator_state(self._stream),
            "sampler": self._sampler.get_state(),
            "level": self.spec.level,
            "environments": self.lanes.get_state() if exact else None,
            "lanes": self.lanes.get_counters(),
            **({"filters": filters_.get_state(self._filters)} if own else {}),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave.

        Environments without an exact state drop the episode in flight and begin the next one from a
        seed of (trial, worker, environment, episode).
        """
        rng.set_generator_state(self._stream, state["stream"])
        self._sampler.set_state(state["sampler"])
        self.lanes.set_counters(state["lanes"])
        if self.spec.filters.synchronize_filters:
            self.get_filters(flush_after=True)  # what was seen since then never happened
        else:
            filters_.set_state(self._filters, state["filters"])
        if state["level"] == "A":
            self.lanes.set_state(state["environments"])
        else:
            self._begin_next_episodes()

    def close(self) -> None:
        """Let go of the environments."""
        self.lanes.close()

    def _begin_next_episodes(self) -> None:
        per_unit = self.lanes.count // self.lanes.unit_count
        for i in range(self.lanes.unit_count):
            first = i * per_unit
            episode = int(self._sampler.episodes.counts[first]) + 1
            observations = self.lanes.restart(i, self._seed(i, "episode", episode))
            for offset in range(per_unit):
                self._sampler.drop_episode(first + offset, observations[offset])

    def _seed(self, unit: int, *path: rng.Name) -> int:
        # Some simulators take seeds of 31 bits only.
        return rng.integer(self.spec.seed, "env", self.spec.index, unit, *path) % 2**31


def _read_spaces(spec: WorkerSpec, lanes: Lanes) -> EnvSpaces:
    return checked_spaces(spec.environment, lanes.observation_space, lanes.action_space)
