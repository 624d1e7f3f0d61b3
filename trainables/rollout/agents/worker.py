"""A rollout worker of several policies, with its spec and its batches."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import row_shape
from trainables.errors import ConfigError, WorkerError, in_yaml
from trainables.policies import filters as filters_
from trainables.policies.acting.actor import Actor, Weights
from trainables.policies.filters import Filter, FilterConfig, make_filters
from trainables.rollout.agents.episodes import CollectedByPolicy, PolicyPlan, reward_filter_name
from trainables.rollout.agents.sampler import AgentsSampler, Mapper, sort_policies
from trainables.rollout.batch import PackedSample, Sample
from trainables.rollout.workers.access import name_of_policy
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec

T = TypeVar("T")
#: Key → the only value that it may have with several policies, and the reason.
NEEDED: Mapping[str, tuple[Any, str]] = {
    "sample_async": (False, "agents are stepped and learnt from in turn"),
    "fake_sampler": (False, "there is no single batch to repeat"),
    "data_parallel": (False, "each policy learns in the trainer's own process"),
    "soft_horizon": (False, "the episodes of all agents end together"),
    "remote_env_batch_wait_ms": (0.0, "all environments are stepped together"),
    "restore": (None, "each policy has its own: multiagent.policies.NAME.restore"),
}


def require_together(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first setting (key → value) that several policies do not support.

    Keys are those of `NEEDED`; one that is missing counts as supported.
    """
    for key, (value, why) in NEEDED.items():
        if settings.get(key, value) != value:
            other = "several policies"
            raise ConfigError.of_conflict(key, settings[key], other, in_yaml(value), why)


@dataclass(frozen=True)
class PolicySample(Sample):
    """The transitions of one policy's agents in one worker."""

    env_steps: int = 0
    """Number of environment steps of the `MultiAgentBatch`, the same for each of its policies."""

    @property
    def count(self) -> int:
        """Number of environment steps, not of the agents' transitions."""
        return self.env_steps


@dataclass(frozen=True)
class MultiAgentBatch(Sample):
    """The transitions of one call of a worker's `sample`, by policy.

    Its own `fragments`, `deltas` and `recent` are empty; the policies' batches have them.
    """

    policy_batches: Mapping[str, PolicySample] = field(default_factory=dict)
    """Policy → transitions of its agents; without fragments if its agents did not act."""
    env_steps: int = 0
    """Number of environment steps, with whole episodes those of the ended episodes."""
    counted_steps: int = 0
    """Number of environment steps, or of agent steps if the setting `count_steps_by` says so. An
    agent's step counts when it acts, though its transition may come in a later batch; with whole
    episodes when its episode ends."""

    @property
    def count(self) -> int:
        """Number of environment steps."""
        return self.env_steps

    def __getitem__(self, name: str) -> Any:
        """Return the `PolicySample` of the policy `name`; raises KeyError if there is none."""
        return self.policy_batches[name]

    def keys(self) -> Collection[str]:
        """Return the names of the policies."""
        return self.policy_batches.keys()

    def split_by_episode(self) -> Any:
        """Return policy → list of views (L, 1), one for each piece of an agent's trajectory."""
        return {pid: one.split_by_episode() for pid, one in self.policy_batches.items()}

    def slice(self, start: int, stop: int) -> Self:
        """Raise WorkerError: agents act at different times, so slice the batch of a policy."""
        raise WorkerError("a batch of several agents cannot be sliced by step: slice batch[policy]")

    def timeslices(self, size: int) -> list[Self]:
        """Raise WorkerError, as `slice` does."""
        return [self.slice(0, size)]

    def shuffled(self, stream: np.random.Generator) -> Self:
        """Return a copy with each policy's valid rows in random order within each fragment.

        The order is drawn from `stream`.
        """
        batches = self.policy_batches
        return self._with_batches({pid: one.shuffled(stream) for pid, one in batches.items()})

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return all parts as one batch, joined policy by policy, else equal to the last part.

        It has the episodes of all parts, and the sums of their numbers of steps.
        """
        each: dict[str, list[PolicySample]] = {}
        for one in parts:
            for pid, batch in one.policy_batches.items():
                each.setdefault(pid, []).append(batch)
        steps = sum(one.env_steps for one in parts)
        counted = sum(one.counted_steps for one in parts)
        joined = {
            pid: replace(PolicySample.concat(batches), env_steps=sum(b.env_steps for b in batches))
            for pid, batches in each.items()
        }
        whole = super().concat(parts)
        return replace(whole, policy_batches=joined, env_steps=steps, counted_steps=counted)

    def compress(
        self, bulk: bool = False, columns: Sequence[str] = ("observations", "new_obs")
    ) -> "PackedAgents":
        """Return the batch with these columns of each policy compressed, as `Sample.compress`.

        Raises WorkerError if a column does not hold numbers.
        """
        packed = {pid: one.compress(bulk, columns) for pid, one in self.policy_batches.items()}
        return PackedAgents(self._with_batches({}), [], packed)

    def _with_batches(self, policy_batches: Mapping[str, Any]) -> Self:
        """Return a copy with these policy batches (policy → batch) instead of its own."""
        return replace(self, policy_batches=policy_batches)

    def agent_steps(self) -> int:
        """Return the number of the agents' transitions, summed over all policies."""
        return sum(one.steps for b in self.policy_batches.values() for one in b.fragments)


@dataclass(frozen=True)
class PackedAgents(PackedSample):
    """A batch of several agents with some columns compressed."""

    policies: Mapping[str, PackedSample]
    """Policy → its compressed batch."""

    def decompress(self) -> Sample:
        """Return the original batch, equal to the bit."""
        batches = {pid: one.decompress() for pid, one in self.policies.items()}
        changes: dict[str, Any] = {"policy_batches": batches}
        return replace(self.sample, **changes)


@dataclass(frozen=True)
class AgentsSpec(WorkerSpec):
    """The specification of a worker of several policies; it is sent to child processes."""

    policies: Mapping[str, PolicyPlan] = field(default_factory=dict)
    """Policy → its actor, spaces and columns."""
    policy_filters: Mapping[str, FilterConfig] = field(default_factory=dict)
    """Policy → settings of its filters."""
    agents: Mapping[str, EnvSpaces] = field(default_factory=dict)
    """Agent → its spaces."""
    mapping: Callable[[str, np.random.Generator], str] | None = None
    """Function of an agent and a random stream that returns the agent's policy; None if each agent
    has the policy of its own name."""
    agent_steps: bool = False
    """True if `steps`, the minimum of a sample, counts agent steps; False for environment steps."""

    @property
    def worker_class(self) -> type[RolloutWorker]:
        """Class of the worker that is made from the specification."""
        return AgentsWorker


class Actors(dict[str, Actor]):
    """Policy → its actor; it has an actor's methods, so a worker treats it like a single actor."""

    explore = True

    def load(self, weights: Mapping[str, Any]) -> None:
        """Load weights (policy → weights) into the actors; other policies keep theirs.

        Raises KeyError if there is no such policy.
        """
        for pid, one in weights.items():
            self[pid].load(one)

    def weights(self) -> dict[str, Any]:
        """Return policy → its weights as its actor stores them (`Actor.weights`), for logs."""
        return {pid: actor.weights() for pid, actor in self.items()}

    @property
    def exploration(self) -> "Actors":
        """The object itself, whose state is empty: several agents have no stateful exploration."""
        return self

    def get_state(self) -> dict[str, Any]:
        """Return an empty dict."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Ignore the empty state."""

    def on_global_var_update(self, global_vars: Mapping[str, Any]) -> None:
        """Pass the global variables, such as the steps sampled so far, to all actors."""
        for actor in self.values():
            actor.on_global_var_update(global_vars)


class AgentsWorker(RolloutWorker):
    """Collects transitions of the agents of several policies with the weights it last received."""

    spec: AgentsSpec
    """Specification from which the worker was made."""
    #: Class of the sampler.
    sampler_class: ClassVar[type[AgentsSampler]] = AgentsSampler

    def _make_sampler(self, spec: WorkerSpec) -> AgentsSampler:
        """Make the actors and filters of all policies, and return the sampler that uses them.

        The worker keeps them as well, and logs the agents' spaces.
        """
        assert isinstance(spec, AgentsSpec)  # noqa: S101 as `worker_class` says
        self._log("spaces", {agent: one.described() for agent, one in spec.agents.items()})
        self._actor: Any = Actors({pid: plan.make_actor() for pid, plan in spec.policies.items()})
        self._actors: Actors = self._actor
        for actor in self._actors.values():
            actor.explore = spec.sampling.explore
        self._filters: dict[str, Filter] = {}
        for pid in spec.policies:
            self._filters |= _filters(spec, pid)
        return self.sampler_class(
            f"worker {spec.index}",
            spec.effective_sampling,
            spec.policies,
            envs=self.envs,
            ends=spec.envs,
            actors=self._actors,
            filters=self._filters,
            mapper=_mapper(spec),
            agents=spec.agents,
            steps=spec.steps,
            agent_steps=spec.agent_steps,
            seed=spec.seed,
            worker=(spec.index, max(1, spec.num_workers)),
        )

    def change_policies(self, changes: Mapping[str, Any], filter_states: Mapping[str, Any]) -> None:
        """Continue with other policies, which a trainer added, removed or replaced.

        Running episodes in which an agent has a policy that is removed or replaced are dropped, and
        the next ones begin. New policies have no weights until they are sent.

        Args:
            changes: field of the specification → new value.
            filter_states: policy to be created anew → (``observation`` and ``reward`` → state of
                this filter); other policies keep their filters.
        """
        spec = self.spec = replace(self.spec, **changes)
        for pid, seen in filter_states.items():
            self._actors[pid] = spec.policies[pid].make_actor()
            self._actors[pid].explore = spec.sampling.explore
            made = _filters(spec, pid)
            filters_.set_state(made, by_name(pid, seen))
            self._filters |= made
        sort_policies(self._actors, spec.policies)
        sort_policies(self._filters, [one for pid in spec.policies for one in _filters(spec, pid)])
        self._weights = {pid: one for pid, one in self._weights.items() if pid in self._actors}
        lost = self._sampler.set_policies(spec.policies, _mapper(spec), frozenset(filter_states))
        self._begin_next_episodes(lost)
        if self._sampler.film and 0 in lost:
            self._sampler.film.resume(int(self._sampler.episodes.counts[0]) + 1, 0)

    def _make_sample(self, collected: Any) -> MultiAgentBatch:
        """Return the sampler's `CollectedByPolicy` as a batch.

        The batch has the filters' statistics since the last sample, which a later one does not
        repeat. Every policy has an entry, without fragments if its agents made no transition.
        """
        assert isinstance(collected, CollectedByPolicy)  # noqa: S101 as its sampler gives it
        deltas, index = self.get_filters(flush_after=True), self.spec.index
        none = np.zeros((0, 0), dtype=np.float32)
        batches = {
            pid: PolicySample(
                collected.fragments.get(pid, []),
                [],
                {
                    name: deltas[one]
                    for name, one in (("observation", pid), ("reward", reward_filter_name(pid)))
                    if one in deltas
                },
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
            perf=self._sampler.times,
            index=index,
            policy_batches=batches,
            env_steps=collected.env_steps,
            counted_steps=collected.counted_steps,
        )

    def _log_sample(self, sample: Sample) -> None:
        """Log examples of a sample's data, of each policy; each subject is logged only once.

        At level DEBUG all are logged again after many rounds. Only worker 0 logs.
        """
        assert isinstance(sample, MultiAgentBatch)  # noqa: S101 as `_make_sample` gives it
        self._log_sizes()
        for pid, batch in sample.policy_batches.items():
            if len(batch.recent):
                self._log(f"raw observations of policy {pid}", batch.recent)
            for fragment in batch.fragments[:1]:
                self._log(f"sample batch of policy {pid}", fragment.arrays)
        for subject, value in self._sampler.latest.items():
            self._log(subject, value)
        self._log("connectors", self._sampler.connector_descriptions)
        self._log("filters", {name: type(one).__name__ for name, one in self._filters.items()})
        self._log("policy", self._actors.weights())

    # ---- policies --------------------------------------------------------------------------------

    @property
    def policies(self) -> Mapping[str, Actor]:
        """Policy → its actor."""
        return self._actors

    def foreach_trainable_policy(self, function: Callable[[Actor, str], T]) -> list[T]:
        """Return ``function(policy, name)`` for each policy that learns."""
        plans = self.spec.policies
        return [function(actor, pid) for pid, actor in self._actors.items() if plans[pid].learns]

    def _weights_of(self, pid: str) -> Weights:
        """Return the weights (name → array) that the policy `pid` received last.

        Raises KeyError if it has received none.
        """
        return dict(self._weights[pid])

    def set_weights(
        self, weights: Mapping[str, Weights], global_vars: Mapping[str, Any] | None = None
    ) -> None:
        """Load weights (policy → weights); set the global variables unless they are None.

        Policies that are not named keep theirs. Raises ConfigError if there is no such policy;
        nothing is changed.
        """
        by_name = {name_of_policy(self._actors, pid): one for pid, one in weights.items()}
        for pid, one in by_name.items():
            self._actors[pid].load(one)
        known: dict[str, Any] = {**self._weights, **by_name}
        self._weights = known
        if global_vars is not None:
            self.set_global_vars(global_vars)


def _filters(spec: AgentsSpec, pid: str) -> dict[str, Filter]:
    """Return new filters of one policy: its name → filter of observations.

    If rewards are normalised there is also ``<pid>/reward`` → their filter.
    """
    spaces = spec.policies[pid].spaces
    shape = row_shape(spaces.filtered)
    made = make_filters(spec.policy_filters[pid], shape, masks=spaces.masks)
    return by_name(pid, made)


def by_name(pid: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return `filters` with the keys that a worker of several policies uses.

    ``observation`` becomes the policy's name, ``reward`` becomes ``<pid>/reward``; values are
    filters, their states or anything else.
    """
    names = {"observation": pid, "reward": reward_filter_name(pid)}
    return {names[name]: one for name, one in filters.items()}


def _mapper(spec: AgentsSpec) -> Mapper:
    """Return the function (agent, episode's number or name) → policy.

    Each call gives the user's mapping a random stream derived from seed, episode and agent. Without
    a mapping the policy has the agent's name.
    """
    mapping, seed = spec.mapping, spec.seed

    def mapper(agent: str, episode: int | str) -> str:
        """Return the name of an agent's policy, drawn from the episode's own stream."""
        if mapping is None:
            return agent
        return mapping(agent, rng.generator(seed, "mapping", episode, agent))

    return mapper


def checked(sample: MultiAgentBatch, spec: AgentsSpec) -> MultiAgentBatch:
    """Return a child's sample unchanged; its columns and shapes are not checked.

    Raises WorkerError if it has fewer steps than `spec` requires, or unknown policies.
    """
    where = f"rollout worker {spec.index} returned garbage instead of a sample"
    if sample.counted_steps < spec.steps:
        raise WorkerError(f"{where}: {sample.counted_steps} steps; expected at least {spec.steps}")
    if unknown := sorted(set(sample.policy_batches) - set(spec.policies)):
        raise WorkerError(f"{where}: policies {unknown}; expected {sorted(spec.policies)}")
    return sample
