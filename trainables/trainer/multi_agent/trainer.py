"""The trainer of several policies: one sampler for all agents, and a complete learner per policy.

Each policy is a *member*: a trainer of the algorithm's own class, with its settings, filter,
streams, replay and other parts, which learns from its agents' transitions. So every algorithm
learns here as it does with one policy, and a checkpoint contains its members' checkpoints.
Sampling, synchronising, evaluating and counting are done here, once for all of them.
"""

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Space

from trainables.core import rng
from trainables.core.logs import OneTimeLog
from trainables.core.settings import SettingsView, flatten, override, parse
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.spaces.connectors import row_shape
from trainables.errors import ConfigError, shorten
from trainables.evaluation.agents import AgentsPlayer
from trainables.offline.batches import WRITTEN_IN_LANES
from trainables.offline.config import IOContext
from trainables.offline.estimators import Estimates
from trainables.offline.reader import RowsByPolicy
from trainables.offline.workers import ReadingAgents, ReadingWorkers, RowTreatment
from trainables.policies import filters as filters_
from trainables.rollout.agents.episodes import PolicyPlan
from trainables.rollout.agents.worker import (
    AgentsSpec,
    MultiAgentBatch,
    by_name,
    require_together,
)
from trainables.rollout.batch import Sample
from trainables.rollout.callbacks import make_calls
from trainables.rollout.external.workers import ExternalAgentsSpec
from trainables.rollout.workers.access import name_of_policy
from trainables.rollout.workers.worker_set import WorkerSet
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainable import TrialContext, gives_data
from trainables.trainer import policy_files
from trainables.trainer.base.policy import Policy
from trainables.trainer.config import TrainerConfig, timed
from trainables.trainer.multi_agent.agents import (
    Agents,
    agent_with_spaces,
    apply_policy_changes,
    inspections_by_policy,
    member_settings,
    policy_changes,
    with_policies,
    with_policies_as_dict,
)
from trainables.trainer.multi_agent.member import (
    MemberContext,
    do_nothing,
    member_class,
    member_key,
)
from trainables.trainer.trainer import Trainer


@functools.cache
def multi_agent_class(algorithm: type[Trainer]) -> type[Trainer]:
    """Return the class, derived from `MultiAgentTrainer` and `algorithm`, for several policies.

    It is made once per algorithm.
    """
    more = {"algorithm": algorithm, "__module__": algorithm.__module__}
    return type(algorithm.__name__, (MultiAgentTrainer, algorithm), more)


class MultiAgentTrainer(Trainer):
    """Base of trainers of several policies: samples for all, and has a trainer per policy.

    `multi_agent_class` derives the class of an algorithm.
    """

    algorithm: ClassVar[type[Trainer]]
    """Trainer class of the algorithm, from which members are made."""
    samples_on: ClassVar[bool] = False  # all policies learn between two rounds
    written_columns: ClassVar[frozenset[str]] = WRITTEN_IN_LANES

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Any:
        """Return this class, which already has several policies."""
        return cls

    # ---- settings --------------------------------------------------------------------------------

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that several policies, or one of them, do not support.

        They are those of `require_together`, the callback ``on_postprocess_traj``, and for each
        policy what its algorithm refuses.
        """
        require_together(flatten(settings))
        calls = make_calls(settings.callbacks)
        if calls and calls.has_functions("on_postprocess_traj"):
            problem = (
                "cannot be used with several policies, because an agent's rows are in several "
                "fragments"
            )
            hint = "remove it, or use on_sample_end, which sees all of them"
            place, given = "callbacks.on_postprocess_traj", settings.callbacks.callbacks
            raise ConfigError(place, given, hint=hint, problem=problem)
        agents = Agents.of(settings)
        for pid, own in agents.policies.items():
            cls.algorithm.validate_config(member_settings(settings, pid, own))
        super().validate_config(settings)

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that cannot work on this machine and environment.

        An environment and the networks are tried, as by every trainer, and the files of trained
        policies that the setting ``restore`` of a policy names are read.
        """
        super().check_config(config)
        for pid, source in Agents.of(parse(cls.config_class, config)).sources.items():
            policy_files.read_source(member_key(pid), *source)

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return setting → value, the same for all policies, for settings that may be ``auto``.

        ``learner`` is torch if policies need different ones. ``normalize_actions`` is True if a
        policy needs it, unless the environment calls the trainer or a policy has a distribution of
        its own. Raises ConfigError if a policy's settings do not work with its agents.
        """
        agents = Agents.of(settings)
        of_policy = inspections_by_policy(agents, inspection, settings.environment, {})
        chosen = [
            cls.algorithm.choose(member_settings(settings, pid, own), of_policy[pid])
            for pid, own in agents.policies.items()
        ]
        differ = len({one.get("learner") for one in chosen}) > 1
        agreed = {**chosen[0], **({"learner": "torch"} if differ else {})}
        # Where some agents have choices alone, spreading leaves them as they are.
        own = [member_settings(settings, pid, one).model for pid, one in agents.policies.items()]
        spreads = any(one["normalize_actions"] for one in chosen) and not inspection.calls_trainer
        spreads = spreads and all(one.custom_action_dist is None for one in own)
        return {**agreed, "normalize_actions": spreads}

    @classmethod
    def _settle_stepping(cls, settings: TrainerConfig) -> TrainerConfig:
        """Return the settings with `native_vector_env: false`.

        Raises ConfigError if it is set to true.
        """
        if settings.environment.native_vector_env is True:
            other, allowed = "several policies", "auto or false"
            why = "an environment of several agents has no vector form"
            raise ConfigError.of_conflict("native_vector_env", True, other, allowed, why)
        return override(settings, {"native_vector_env": False}, "config")

    # ---- made ------------------------------------------------------------------------------------

    def _build_policy(self, settings: TrainerConfig, inspection: Inspection) -> None:
        """Create the trainer of each policy, and load the weights that their ``restore`` names.

        An error while these are read is stored in the policy's trainer, to be raised unless a
        checkpoint is restored. The global random streams are seeded.
        """
        self.agents = Agents.of(settings)
        self._initial_agents = with_policies_as_dict(settings.agents.multiagent)
        self._seen = inspection
        self.spaces = inspection.spaces
        self._members: dict[str, Trainer] = {}

        def begin(agents: Agents, members: Mapping[str, Trainer]) -> None:
            """Load trained weights into the policies that are to start from them."""
            for pid, source in agents.sources.items():
                try:
                    members[pid].load_trained(member_key(pid), *source)
                except ConfigError as error:
                    members[pid]._unread_source = error

        self._estimates: dict[str, Estimates] = {}
        self._set_policies(settings, {}, begin)
        rng.seed_global(self.seed, "global")
        self.agent_steps = 0
        """Steps of all agents so far."""
        self.filters, self.streams, self.parts = {}, {}, {}
        self.recent = np.zeros((0, 0), dtype=np.float32)

    def _set_policies(
        self,
        settings: TrainerConfig,
        like: Mapping[str, str],
        begin: Callable[[Agents, Mapping[str, Trainer]], None],
    ) -> set[str]:
        """Use the policies of these settings; those with unchanged settings keep their state.

        Trainers of other former policies are ended. Sets `agents`, `policy` and `inference`.

        Args:
            settings: settings with ``multiagent``.
            like: policy → agent whose spaces the policy has, for policies whose agents are not
                found by the mapping.
            begin: function that is called with the parsed settings and the new policies' trainers,
                to set initial weights; it may raise an error, and then nothing is changed.

        Returns:
            Names of the new policies.
        """
        agents = Agents.of(settings)
        seen = inspections_by_policy(agents, self._seen, settings.environment, like)
        stay = {
            pid for pid in self.members if agents.policies.get(pid) == self.agents.policies[pid]
        }
        members = {
            pid: self.members[pid]
            if pid in stay
            else self._make_member(settings, pid, own, seen[pid])
            for pid, own in agents.policies.items()
        }
        begin(agents, {pid: one for pid, one in members.items() if pid not in stay})
        for pid in self.members.keys() - stay:
            self.members[pid].cleanup()
        self.agents, self._members = agents, members
        self.policy = next(iter(members.values())).policy  # where one is asked for
        players = {pid: one.inference for pid, one in members.items()}
        self.inference = AgentsPlayer(players, agents.mapping)
        return members.keys() - stay

    def _make_member(
        self, settings: TrainerConfig, pid: str, changes: Mapping[str, Any], inspection: Inspection
    ) -> Trainer:
        """Create the trainer of policy `pid`, whose own settings are `changes`.

        `inspection` is the environment as the policy's agents see it.
        """
        me = weakref.proxy(self)

        def broadcast() -> None:
            """Send the weights of all policies to the workers."""
            me.broadcast()

        # Experience is written for all policies together.
        config = {**flatten(member_settings(settings, pid, changes)), "output": None}
        plain = {one.name: getattr(self.context, one.name) for one in fields(TrialContext)}
        plain["seed"] = rng.integer(self.seed, "agents", pid)
        kind = member_class(self.algorithm)  # type: ignore[arg-type]  # mypy: no class is hashable
        made = kind(config, MemberContext(**plain, inspection=inspection, broadcast=broadcast))
        made.reporter.log = OneTimeLog(f"trainer, policy {pid}")
        # Choices are made for all policies; a checkpoint with other choices keeps them.
        made._undecided = tuple(key for key in self._undecided if key != "native_vector_env")
        return made

    def worker_spec(self) -> AgentsSpec:
        """Return the specification of workers, with each policy's own part of it.

        Columns that ``output`` and callbacks request are added to those of every policy.
        """
        alone = {pid: one.worker_spec() for pid, one in self.members.items()}
        base = Trainer.worker_spec(self)
        more = base.columns
        trained = self.agents.trained
        kind = ExternalAgentsSpec if self.calls_trainer else AgentsSpec
        return kind(
            **{one.name: getattr(base, one.name) for one in fields(WorkerSpec)},
            policies={
                pid: PolicyPlan(
                    spec.make_actor,
                    self.members[pid].spaces,
                    spec.columns | more,
                    pid in trained,
                    spec.gamma,
                    spec.unfiltered,
                )
                for pid, spec in alone.items()
            },
            policy_filters={pid: spec.filters for pid, spec in alone.items()},
            agents=self._seen.agents,
            mapping=self.agents.mapping,
            agent_steps=self.agents.agent_steps,
        )

    def _make_reading(
        self, context: IOContext, index: int, sampling: WorkerSet | None, spec: WorkerSpec
    ) -> ReadingWorkers:
        """Return workers that read experience by policy, from the setting ``input``.

        Also stores what `_make_estimates` reads. `sampling` are workers that also sample, which the
        returned ones own, or None. `index` is the worker index of what is read, `spec` the
        specification of workers.
        """
        me, settings = weakref.proxy(self), self.settings
        rows = RowsByPolicy(
            lambda: {pid: one.row_form(is_multi_agent=True) for pid, one in me.members.items()}
        )
        self._estimate_from = context, rows
        asked = spec.columns.union(*(one.worker_spec().columns for one in self.members.values()))
        learnt = RowTreatment.of(replace(spec, columns=asked))
        given = context, rows, settings.batch_size, index, sampling, learnt

        def make(pid: str) -> filters_.Filter:
            """Return a new filter of the policy's kind."""
            member: Trainer = me.members[pid]
            shape = row_shape(member.spaces.filtered)
            return filters_.make_filter(member.settings.filters, shape)

        return ReadingAgents(self.agents.agent_steps, *given, make)

    def _make_estimates(self) -> dict[str, Any]:
        """Return policy → off-policy estimates (`Estimates.of`), for the policies that learn.

        Policies without an estimate are left out. The first call reads the episodes from files.
        """
        estimates = {}
        for pid in self.agents.trained:
            member = self.members[pid]
            estimate = self._estimates.get(pid) or Estimates(
                *self._estimate_from, member.spaces, member.settings.gamma, pid
            )
            self._estimates[pid] = estimate
            estimates[pid] = estimate.of(member.likelihoods_of_unfiltered, self.iteration + 1)
        return {pid: one for pid, one in estimates.items() if one}

    # ---- training --------------------------------------------------------------------------------

    def training_step(self) -> dict[str, Any]:
        """Sample for all policies; let each one that is trained learn from its agents' rows.

        Then the workers get all weights and filters, and steps and episodes are counted. Returns
        policy → the learner's statistics, for the policies that learn and of which there were rows.
        """
        self.set_global_vars({"timestep": self.progress.timesteps})
        with timed(self.timers, "sample_time_ms"):
            samples = self.workers.sample()
        self.reporter.sampled(samples)
        shares = self._samples_by_policy(samples)
        learner: dict[str, Any] = {}
        with timed(self.timers, "learn_time_ms"):
            for pid in self.agents.trained:
                member = self.members[pid]
                member.workers.samples = shares[pid]  # type: ignore[attr-defined]  # a member's
                if any(one.fragments for one in shares[pid]):
                    learner[pid] = member.training_step()
                else:  # agents that acted without known consequences have updated filters, too
                    filters_.synchronise(member.filters, [one.deltas for one in shares[pid]])
                    member.skip_round(sum(one.count for one in samples))
        self.end_round(samples)
        for member in self.members.values():
            member.progress.timesteps = self.progress.timesteps
        return learner

    def _samples_by_policy(self, samples: Sequence[Sample]) -> dict[str, list[Sample]]:
        """Return policy → its part of each sample, in the order of the samples.

        Counts the agents' steps, and stores each policy's newest observations in its trainer.
        """
        shares: dict[str, list[Sample]] = {pid: [] for pid in self.members}
        for one in samples:
            assert isinstance(one, MultiAgentBatch)  # noqa: S101 as `worker_spec` makes workers
            self.agent_steps += one.agent_steps()
            for pid, batch in one.policy_batches.items():
                shares[pid].append(batch)
                if len(batch.recent):
                    self.members[pid].recent = batch.recent
        return shares

    def step(self) -> dict[str, Any]:
        """Make one iteration, and return its result.

        It also has the number of agents' transitions in the samples, as ``agent_timesteps_total``
        and ``agent_timesteps_this_iter``.
        """
        before = self.agent_steps
        result = super().step()
        counted = {"agent_timesteps_total": self.agent_steps}
        return {**result, **counted, "agent_timesteps_this_iter": self.agent_steps - before}

    def _synchronise(self, samples: Sequence[Sample]) -> None:
        """Send the weights and filters of all policies to the workers; `samples` are ignored.

        Members have merged the samples' filter statistics before. Each acting policy in this
        process gets its weights, too.
        """
        weights: dict[str, Any] = {}
        for pid, member in self.members.items():
            weights[pid] = member.policy.acting_weights()
            member.inference.actor.load(weights[pid])
        self.workers.sync(weights, self.filter_states())

    def filter_states(self) -> dict[str, Any]:
        """Return filter → state of all policies' filters, by their names in a worker.

        They are ``<policy>`` and, with normalised rewards, ``<policy>/reward``.
        """
        states = {pid: one.filter_states() for pid, one in self.members.items()}
        return {name: one for pid, of in states.items() for name, one in by_name(pid, of).items()}

    # ---- checkpoints -----------------------------------------------------------------------------

    @gives_data
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the common state, and ``members``: policy → the checkpoint of its trainer.

        If policies were added or removed since training began, ``agents`` has these changes and
        ``like``, policy → an agent with its spaces.
        """
        others = policy_changes(
            with_policies_as_dict(self.settings.agents.multiagent), self._initial_agents
        )
        if others:
            others["like"] = self._example_agents()
        # An algorithm's additions are in its members' checkpoints.
        together = Trainer.save_checkpoint(self, checkpoint_dir)
        return {**together, **({"agents": others} if others else {})}

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state that `save_checkpoint` returned, with the policies of that time.

        Policies are removed, or made anew and added, until they are those of the state. Raises
        ConfigError if the state still has other policies than this trainer, or as
        `Trainer.load_checkpoint`.
        """
        others = dict(checkpoint.get("agents", {}))
        like = others.pop("like", {})
        self._apply_policies(apply_policy_changes(others, self._initial_agents), like, do_nothing)
        if checkpoint.get("members", {}).keys() != self.members.keys():
            had = ", ".join(checkpoint.get("members", {})) or "a single one"
            given = ", ".join(self.members)
            raise ConfigError.of_checkpoint("multiagent.policies", given, had)
        Trainer.load_checkpoint(self, checkpoint)
        of_members = [one.inexact for one in self.members.values()]
        reasons = [why for said in (self.inexact, *of_members) for why in said.split("; ") if why]
        self.inexact = "; ".join(dict.fromkeys(reasons))

    def as_computed_here(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a checkpoint's data with each policy's part as if its trainer had computed it.

        If it was computed in another way, that part has the reason why the curve is no longer
        exact. Data without ``members`` are returned unchanged.
        """
        given = data.get("members", {})
        members = {
            pid: self.members[pid].as_computed_here(one) if pid in self.members else one
            for pid, one in given.items()
        }
        return {**data, "members": members} if given else data

    def adapt_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a checkpoint's state so that it can be restored by this trainer.

        If its workers collected in another way, the returned state has no workers; state and log
        then name the reason why the curve is no longer exact. Members adapt their own parts when
        they load them.
        """
        return Trainer.adapt_state(self, state)

    def _learnt_state(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return ``members``, policy → its trainer's checkpoint, and ``agent_steps``.

        `checkpoint_dir` is passed to `save_checkpoint` of each member.
        """
        members = {pid: one.save_checkpoint(checkpoint_dir) for pid, one in self.members.items()}
        return {"members": members, "agent_steps": self.agent_steps}

    def _restore_learnt(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore each policy's trainer and the agents' steps from a checkpoint."""
        for pid, member in self.members.items():
            member.load_checkpoint(checkpoint["members"][pid])
        self.agent_steps = int(checkpoint["agent_steps"])

    def cleanup(self) -> None:
        """End the workers and the members."""
        super().cleanup()
        for member in self.members.values():
            member.cleanup()

    # ---- policies --------------------------------------------------------------------------------

    def add_policy(
        self,
        policy_id: str,
        policy_cls: type[Trainer] | str | None = None,
        *,
        observation_space: Space[Any] | None = None,
        action_space: Space[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        policy_state: Mapping[str, Any] | None = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Sequence[str] | None = None,
    ) -> Policy:
        """Add a policy to the trainer, all workers, evaluations and checkpoints.

        Agents keep their policies until their running episodes end.

        Args:
            policy_cls: the algorithm or its name, which must be that of all policies; None for it.
            observation_space: observation space of its agents, given together with `action_space`;
                None to take the spaces of the agents that the mapping assigns to it.
            action_space: action space of its agents, given together with `observation_space`. Both
                must equal those of an agent.
            config: settings that only this policy has, as in ``multiagent.policies``.
            policy_state: state that `Policy.get_state` returned, of this or another trainer.
            policy_mapping_fn: agent → policy, a dict or an importable function; None if every agent
                keeps its policy.
            policies_to_train: names of the policies that learn; None for those that did, or all if
                all did.

        Returns:
            The new policy.

        Raises:
            ConfigError: the name exists, or the settings or spaces do not fit; nothing is changed.
            ValueError: `policy_state` is of another policy; nothing is changed.
        """
        if policy_id in self.members:
            problem = f"there is a policy {shorten(policy_id)} already"
            hint = f"choose another name than {', '.join(self.members)}"
            raise ConfigError("policy_id", policy_id, hint=hint, problem=problem)
        if policy_cls not in (None, self.algorithm, self.algorithm.__name__):
            name = self.algorithm.__name__
            problem = f"all policies of this trainer learn with its algorithm, {name}"
            hint = f"leave it out, or give {name}"
            raise ConfigError("policy_cls", policy_cls, hint=hint, problem=problem)
        like = self._example_agents()
        if observation_space is not None or action_space is not None:
            agent = agent_with_spaces(self._seen.agents, observation_space, action_space)
            if agent is None:
                given = f"{observation_space} and {action_space}"
                problem = f"no agent has the spaces {given}"
                hint = f"give those of one of the agents {', '.join(self._seen.agents)}"
                place = f"the spaces of {policy_id}"
                raise ConfigError(place, given, hint=hint, problem=problem)
            like[policy_id] = agent
        now = with_policies_as_dict(self.settings.agents.multiagent)
        policies = {**now["policies"], policy_id: dict(config or {})}
        changed = with_policies(
            now, policies, self._seen.agents, policy_mapping_fn, policies_to_train
        )

        def begin(agents: Agents, members: Mapping[str, Trainer]) -> None:
            """Load the trained weights or the given state into the new policy."""
            if policy_id in agents.sources:
                members[policy_id].load_trained(member_key(policy_id), *agents.sources[policy_id])
            if policy_state is not None:
                Policy(members[policy_id]).load_state_here(policy_state)

        self._apply_policies(changed, like, begin)
        return Policy(self.members[policy_id])

    def remove_policy(
        self,
        policy_id: str,
        *,
        policy_mapping_fn: Any = None,
        policies_to_train: Sequence[str] | None = None,
    ) -> None:
        """Remove a policy with its weights and transitions.

        Running episodes in which an agent has it are dropped, and their environments begin the next
        ones.

        Args:
            policy_mapping_fn: agent → policy; None to keep the mapping, if it assigns no agent to
                the policy.
            policies_to_train: names of the policies that learn; None for those that did.

        Raises:
            ConfigError: there is no such policy, an agent would still have it, it is the last one,
                or ``input`` reads experience.
        """
        policy_id = name_of_policy(self.members, policy_id)
        if self.settings.offline.reads_experience:
            problem = (
                f"{shorten(policy_id)} cannot be removed while the trainer reads files (input), "
                "because later batches may contain data of this policy"
            )
            raise ConfigError("policy_id", policy_id, hint="keep the policy", problem=problem)
        now = with_policies_as_dict(self.settings.agents.multiagent)
        policies = {pid: one for pid, one in now["policies"].items() if pid != policy_id}
        if not policies:
            problem = f"{shorten(policy_id)} is the last policy, which cannot be removed"
            raise ConfigError("policy_id", policy_id, hint="add another first", problem=problem)
        said = with_policies(now, policies, self._seen.agents, policy_mapping_fn, policies_to_train)
        like = {pid: agent for pid, agent in self._example_agents().items() if pid != policy_id}
        self._apply_policies(said, like, do_nothing)

    def _apply_policies(
        self,
        entry: Mapping[str, Any],
        like: Mapping[str, str],
        begin: Callable[[Agents, Mapping[str, Trainer]], None],
    ) -> None:
        """Use the policies of `entry`, a value of ``multiagent``, here and in every worker.

        Does nothing if it is the current value. Else settings, workers and evaluation follow, and
        the workers get all weights and filters. `like` is policy → agent whose spaces the policy
        has, for policies whose agents the mapping does not find; `begin` sets the initial weights
        of the new policies' trainers.

        Raises ConfigError, with nothing changed, if the settings or spaces do not fit, and any
        error of `begin`.
        """
        if entry == with_policies_as_dict(self.settings.agents.multiagent):
            return
        settings = override(self.settings, {"multiagent": entry}, "config")
        self.validate_config(settings)
        with rng.preserve_global():
            made = self._set_policies(settings, like, begin)
        self.settings = settings
        self.config = SettingsView(flatten(settings))
        self.evaluation.inference = self.inference
        for member in self.members.values():
            member.progress.timesteps = self.progress.timesteps
        spec = self.worker_spec()
        known = {pid: self.members[pid].filter_states() for pid in made}
        changes = {"policies": spec.policies, "policy_filters": spec.policy_filters}
        self.workers.change_policies({**changes, "mapping": spec.mapping}, known)
        self.set_global_vars({"timestep": self.progress.timesteps})
        self._synchronise([])

    def _example_agents(self) -> dict[str, str]:
        """Return policy → an agent that has the policy's spaces; absent if there is none."""
        agents = self._seen.agents
        each = {pid: one.spaces for pid, one in self.members.items()}
        like = {pid: agent_with_spaces(agents, one.raw, one.action) for pid, one in each.items()}
        return {pid: agent for pid, agent in like.items() if agent is not None}

    @property
    def members(self) -> Mapping[str, Trainer]:  # type: ignore[override]  # not of this class
        """Policy → its trainer, in the order of their names."""
        return self._members

    def compute_actions(
        self, observations: Mapping[Any, Any], explore: bool = False
    ) -> dict[Any, Any]:
        """Return agent → action of its policy, for raw observations by agent.

        With `explore` actions are drawn; otherwise they are the most probable ones. Every call
        starts from the policies' initial states, as at the start of an episode. The mapping gets
        the same random numbers in every call. Raises ConfigError if it returns an unknown policy.
        """
        actions = {}
        for agent, one in observations.items():
            stream = rng.generator(self.seed, "mapping", "compute_actions", agent)
            pid = self.agents.mapping(agent, stream)
            actions[agent] = self.compute_action(one, policy_id=pid, explore=explore)
        return actions

    def compute_gradients(self, batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return policy → gradients, and policy → the loss's parts, from policy → rows.

        Gradients are parameter → array. Policies that do not learn are left out. Raises ConfigError
        for an unknown policy.
        """
        both = {
            pid: self.members[pid].compute_gradients(one) for pid, one in self._trained_items(batch)
        }
        return {p: one[0] for p, one in both.items()}, {p: one[1] for p, one in both.items()}

    def apply_gradients(self, gradients: Mapping[str, Any]) -> Any:
        """Take one step of each policy's optimiser, and return policy → norm of its gradient.

        `gradients` are policy → (parameter → array). Policies that do not learn are left out. The
        workers get the weights. Raises ConfigError for an unknown policy.
        """
        return {
            pid: self.members[pid].apply_gradients(one)
            for pid, one in self._trained_items(gradients)
        }

    def learn_on_batch(self, batch: Any) -> dict[str, dict[str, float]]:
        """Take one gradient step of each policy from policy → rows, and return policy → statistics.

        Policies that do not learn are left out. The workers get the weights. Raises ConfigError for
        an unknown policy.
        """
        info = {}
        for pid, one in self._trained_items(batch):
            (info[pid],) = self.members[pid].learn_on_batch(one).values()
        return info

    def _trained_items(self, by_policy: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return (policy, its value in `by_policy`) for the policies that learn and are in it.

        They are in the order of the policies' names.

        Raises:
            ConfigError: a policy in `by_policy` is unknown.
        """
        for pid in by_policy:
            self.member(pid)
        return [(pid, by_policy[pid]) for pid in self.agents.trained if pid in by_policy]

    # ---- files -----------------------------------------------------------------------------------

    def describe_model(self) -> dict[str, Any]:
        """Return an empty dict, since there are several models."""
        return {}

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Write each policy to its own folder in `export_dir`; return ``policy/format`` → path.

        The errors are those of `Trainer._export_model`.
        """
        written: dict[str, str] = {}
        for pid, member in self.members.items():
            paths = member._export_model(export_formats, str(Path(export_dir) / pid))
            written |= {f"{pid}/{name}": path for name, path in paths.items()}
        return written
