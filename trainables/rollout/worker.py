"""A rollout worker: its environments, actor, filters and streams, and the whole of their state.

The same object serves in the trainer's own process and in a child. It needs numpy only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables import rng
from trainables.envs.levels import Level
from trainables.envs.make import EnvironmentConfig, EnvSpaces, checked_spaces
from trainables.envs.vector import Lanes, make_lanes
from trainables.filters import Filter, FilterConfig, make_filters
from trainables.policies.actor import Actor, Weights
from trainables.resources import ResourcesConfig
from trainables.rollout.batch import Fragment
from trainables.rollout.metrics import Episode
from trainables.rollout.sampler import RECENT_ROWS, Sampler, SamplingConfig

Array = NDArray[Any]


@dataclass(frozen=True)
class WorkerSpec:
    """Everything a worker is made from; it travels to children."""

    seed: int
    """Seed of the trial's streams."""
    index: int
    """Which worker of its trainer."""
    environment: EnvironmentConfig
    sampling: SamplingConfig
    filters: FilterConfig
    activation: str
    """Of the policy's networks."""
    gamma: float
    rounds: int
    """Fragments per `sample`."""
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
    """Views of buffers that the worker writes again in its next `sample`."""
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
        self.lanes = make_lanes(spec.environment, spec.sampling.num_envs_per_worker)
        spaces_ = _read_spaces(spec, self.lanes)
        self._actor = Actor(spaces_.discrete, spec.activation)
        self._filters: dict[str, Filter] = make_filters(spec.filters, spaces_.observation_size)
        self._stream = rng.generator(spec.seed, "policy", spec.index)
        parts = (self.lanes, self._actor, self._filters)
        name = f"worker {spec.index}"
        self._sampler = Sampler(name, spec.sampling, spaces_, parts, spec.gamma)
        units = range(self.lanes.unit_count)
        self.lanes.seed_spaces([self._seed(i, "spaces") for i in units])
        self._sampler.start([self._seed(i) for i in units])
        self._fragments = [_allocate(spec, spaces_) for _ in range(spec.rounds)]

    def sample(self) -> Sample:
        """Exactly `rounds` fragments."""
        self._sampler.recent.clear()
        episodes: list[Episode] = []
        for fragment in self._fragments:
            episodes += self._sampler.collect(fragment, self._stream)
        deltas = {name: one.get_delta() for name, one in self._filters.items()}
        recent = np.concatenate(list(self._sampler.recent))[-RECENT_ROWS:]
        return Sample(self._fragments, episodes, deltas, recent)

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Adopt the learner's weights and the merged filters; the own deltas are then empty."""
        self._actor.load(weights)
        for name, one in self._filters.items():
            one.sync(filters[name])

    def get_state(self) -> dict[str, Any]:
        """Entries ``stream``, ``sampler``, ``level`` and ``environments``.

        Weights and filters are the trainer's, which gives them to every worker with `sync`.
        """
        exact = self.spec.level == "A"
        return {
            "stream": rng.get_generator_state(self._stream),
            "sampler": self._sampler.get_state(),
            "level": self.spec.level,
            "environments": self.lanes.get_state() if exact else [],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave.

        Environments without an exact state drop the episode in flight and begin the next one from a
        seed of (trial, worker, environment, episode).
        """
        rng.set_generator_state(self._stream, state["stream"])
        self._sampler.set_state(state["sampler"])
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


def _allocate(spec: WorkerSpec, spaces_: EnvSpaces) -> Fragment:
    shape: tuple[int, ...] = () if spaces_.discrete else (spaces_.action_size,)
    sampling = spec.sampling
    return Fragment.allocate(
        sampling.rollout_fragment_length,
        sampling.num_envs_per_worker,
        spaces_.observation_size,
        shape,
    )
