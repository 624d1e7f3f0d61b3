"""A rollout worker of several policies: its plan, its sample, and what is different from one's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError, WorkerError
from trainables.policies.actor import Actor, Weights
from trainables.policies.filters import Filter, FilterConfig, make_filters
from trainables.rollout.agents.sampler import AgentsSampler, CollectedByPolicy, PolicyPlan
from trainables.rollout.batch import Sample
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec

T = TypeVar("T")


@dataclass(frozen=True)
class PolicySample(Sample):
    """What one policy's agents did in one worker; its time is that of the environments."""

    env_steps: int = 0

    @property
    def count(self) -> int:
        """Environment steps."""
        return self.env_steps


@dataclass(frozen=True)
class MultiAgentBatch(Sample):
    """What one worker collected in one iteration, by policy."""

    policy_batches: Mapping[str, PolicySample] = field(default_factory=dict)
    """Policy → what its agents did; absent where none of them acted."""
    env_steps: int = 0

    @property
    def count(self) -> int:
        """Environment steps."""
        return self.env_steps

    def agent_steps(self) -> int:
        """Steps of all agents."""
        return sum(one.steps for b in self.policy_batches.values() for one in b.fragments)


@dataclass(frozen=True)
class AgentsSpec(WorkerSpec):
    """Everything a worker of several policies is made from; it travels to children."""

    policies: Mapping[str, PolicyPlan] = field(default_factory=dict)
    policy_filters: Mapping[str, FilterConfig] = field(default_factory=dict)
    agents: Mapping[str, EnvSpaces] = field(default_factory=dict)
    """Agent → its spaces."""
    mapping: Callable[[str, np.random.Generator], str] | None = None
    """(agent, stream of this binding) → its policy."""
    agent_steps: bool = False
    """Whether `steps` are those of agents."""

    @property
    def worker_class(self) -> type[RolloutWorker]:
        """What is made from it."""
        return AgentsWorker


class Actors(dict[str, Actor]):
    """Policy → its actor; given the same things as one actor."""

    explore = True

    def load(self, weights: Mapping[str, Any]) -> None:
        """Adopt policy → weights."""
        for pid, one in weights.items():
            self[pid].load(one)

    def weights(self) -> dict[str, Any]:
        """Policy → what it plays with."""
        return {pid: actor.weights() for pid, actor in self.items()}

    @property
    def exploration(self) -> "Actors":
        """Itself: it has the state of all, which is none (`AgentsSampler` refuses others)."""
        return self

    def get_state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Take note of the steps that were sampled so far."""
        for actor in self.values():
            actor.on_global_var_update(global_vars)


class AgentsWorker(RolloutWorker):
    """Collects what the agents of several policies do, with the weights it was last given."""

    spec: AgentsSpec

    def _make_sampler(self, spec: WorkerSpec) -> AgentsSampler:
        assert isinstance(spec, AgentsSpec)  # noqa: S101 as `worker_class` says
        self._actor: Any = Actors({pid: plan.make_actor() for pid, plan in spec.policies.items()})
        self._actors: Actors = self._actor
        for actor in self._actors.values():
            actor.explore = spec.sampling.explore
        self._filters: dict[str, Filter] = {
            pid: make_filters(
                spec.policy_filters[pid], plan.spaces.observation_shape, masks=plan.spaces.masks
            )["observation"]
            for pid, plan in spec.policies.items()
        }
        seed, mapping = spec.seed, spec.mapping

        def mapper(agent: str, episode: int) -> str:
            if mapping is None:
                return agent
            return mapping(agent, rng.generator(seed, "mapping", episode, agent))

        return AgentsSampler(
            f"worker {spec.index}",
            spec.effective_sampling,
            spec.policies,
            envs=self.envs,
            ends=spec.envs,
            actors=self._actors,
            filters=self._filters,
            mapper=mapper,
            agents=spec.agents,
            steps=spec.steps,
            agent_steps=spec.agent_steps,
            seed=seed,
            worker=(spec.index, max(1, spec.num_workers)),
        )

    def _sampled(self, collected: Any) -> MultiAgentBatch:
        assert isinstance(collected, CollectedByPolicy)  # noqa: S101 as its sampler gives it
        deltas, index = self.get_filters(flush_after=True), self.spec.index
        none = np.zeros((0, 0), dtype=np.float32)
        batches = {
            pid: PolicySample(
                collected.fragments.get(pid, []),
                [],
                {"observation": deltas[pid]},
                collected.recent.get(pid, none),
                index=index,
                env_steps=collected.env_steps,
            )
            for pid in self.spec.policies
        }
        return MultiAgentBatch(
            [],
            collected.episodes,
            {},
            none,
            perf=self._sampler.perf.means(),
            index=index,
            policy_batches=batches,
            env_steps=collected.env_steps,
        )

    def _log_sample(self, sample: Sample) -> None:
        """Log what the data look like, where that has not been done."""
        assert isinstance(sample, MultiAgentBatch)  # noqa: S101 as `_sampled` gives it
        for pid, batch in sample.policy_batches.items():
            for fragment in batch.fragments[:1]:
                self._log(f"sample batch of policy {pid}", fragment.arrays)
        self._log("filters", {name: type(one).__name__ for name, one in self._filters.items()})
        self._log("policy", self._actors.weights())

    # ---- policies --------------------------------------------------------------------------------

    def get_policy(self, policy_id: str = "") -> Actor | None:
        """The policy with this name, which acts and does not learn; None if there is none."""
        return self._actors.get(policy_id)

    def for_policy(self, function: Callable[[Actor], T], policy_id: str = "") -> T:
        """``function(policy)`` of one policy."""
        return function(self._actors[self._known(policy_id)])

    def foreach_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """``function(policy, name)`` of each policy."""
        return [function(actor, pid) for pid, actor in self._actors.items()]

    def foreach_trainable_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """``function(policy, name)`` of each policy that learns."""
        plans = self.spec.policies
        return [function(actor, pid) for pid, actor in self._actors.items() if plans[pid].learns]

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Weights]:
        """Policy → weights, of these policies or of all."""
        chosen = self._actors if policies is None else [self._known(pid) for pid in policies]
        return {pid: dict(self._weights[pid]) for pid in chosen}

    def set_weights(
        self, weights: Mapping[str, Weights], global_vars: Mapping[str, Any] | None = None
    ) -> None:
        """Adopt policy → weights, and the global variables if given."""
        for pid, one in weights.items():
            self._actors[self._known(pid)].load(one)
        known: dict[str, Any] = {**self._weights, **weights}
        self._weights = known
        if global_vars is not None:
            self.set_global_vars(global_vars)

    def _known(self, pid: str) -> str:
        if pid not in self._actors:
            raise ConfigError("policy_id", pid, f"one of {', '.join(self._actors)}")
        return pid


def checked(sample: MultiAgentBatch, spec: AgentsSpec) -> MultiAgentBatch:
    """`sample` if it is one of this worker's; WorkerError otherwise."""
    where = f"rollout worker {spec.index} returned garbage instead of a sample"
    steps = sample.agent_steps() if spec.agent_steps else sample.env_steps
    if steps < spec.steps:
        raise WorkerError(f"{where}: {steps} steps, expected at least {spec.steps}")
    if unknown := sorted(set(sample.policy_batches) - set(spec.policies)):
        raise WorkerError(f"{where}: policies {unknown}, expected {sorted(spec.policies)}")
    return sample
