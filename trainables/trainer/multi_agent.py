"""The trainer of several policies: one sampler for all agents, and for each policy a whole learner.

Each policy is a *member*: a trainer of the algorithm's own class, with its settings, filter,
streams, replay and whatever else it has, whose experience is its share of what the agents did. So
every algorithm learns here as it does alone, and what a checkpoint holds of a policy is what its
member saves. Sampling, synchronising, evaluating and counting are done here, once for all of them.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.core import rng
from trainables.core.importing import load
from trainables.core.settings import Section, flatten, override
from trainables.envs.exactness.measuring import Inquiry, Look
from trainables.envs.make import EnvironmentConfig, EnvSpaces
from trainables.envs.spaces.observations import make_preprocessor
from trainables.errors import ConfigError, nearest
from trainables.evaluation.agents import AgentsPlayer
from trainables.policies import filters as filters_
from trainables.policies.actor import Weights
from trainables.rollout.agents.sampler import PolicyPlan
from trainables.rollout.agents.worker import AgentsSpec, MultiAgentBatch
from trainables.rollout.batch import Sample
from trainables.rollout.callbacks import make_calls
from trainables.rollout.workers.worker_set import WorkerSet
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainable import TrialContext, gives_data
from trainables.trainer.classic import Policy
from trainables.trainer.config import TrainerConfig, timed
from trainables.trainer.trainer import Trainer

Mapper = Callable[[str, np.random.Generator], str]

#: Key → the only value that it may have with several policies, and why.
NEEDED: Mapping[str, tuple[Any, str]] = {
    "sample_async": (False, "agents are stepped and learnt from in turn"),
    "fake_sampler": (False, "there is no single batch to give for ever"),
    "data_parallel": (False, "each policy learns in the trainer's own process"),
    "compress_observations": (False, "what children send is not compressed"),
    "soft_horizon": (False, "an agent's episode ends with everybody's"),
    "remote_env_batch_wait_ms": (0.0, "all environments are stepped together"),
    "output": (None, "experience is written of one policy"),
    "input": ("sampler", "experience is read for one policy"),
    "record_env": (False, "nobody draws an environment of several agents"),
    "render_env": (False, "nobody draws an environment of several agents"),
    "normalize_rewards": (False, "rewards are those of agents, not of environments"),
}
#: Settings of `TrainerConfig` that a policy may have for itself, beside those of its algorithm.
OWN_SECTIONS = ("filters", "schedule")
OWN = ("model", "gamma", "optimizer")
SHARED_OF_THOSE = ("synchronize_filters", "normalize_rewards", "schedule_timesteps")


# ---- what is asked for ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Agents:
    """What ``multiagent`` says."""

    policies: Mapping[str, Mapping[str, Any]]
    """Policy → its own settings."""
    given: Mapping[str, tuple[Any, Any]]
    """Policy → the spaces that were given for it."""
    mapping: Mapper
    trained: tuple[str, ...]
    agent_steps: bool = False

    @classmethod
    def of(cls, settings: TrainerConfig) -> "Agents":
        """What the settings say; ConfigError for a mapping function that is not there."""
        said = settings.agents.multiagent
        policies = said["policies"]
        if not isinstance(policies, Mapping):
            policies = dict.fromkeys(policies)
        classic = {pid: own for pid, own in policies.items() if isinstance(own, list | tuple)}
        own = {pid: one[3] if pid in classic else one for pid, one in policies.items()}
        trained = said.get("policies_to_train")
        return cls(
            # Policies are built in the order of their names.
            {pid: dict(own[pid] or {}) for pid in sorted(own)},
            {pid: (one[1], one[2]) for pid, one in classic.items() if one[1] is not None},
            _mapper(said.get("policy_mapping_fn"), list(own)),
            tuple(sorted(own if trained is None else trained)),
            said.get("count_steps_by") == "agent_steps",
        )


@dataclass(frozen=True)
class _Named:
    """Agent → policy, by a dict; with one policy for all; or by the agent's name."""

    policies: tuple[str, ...]
    named: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, agent: str, stream: np.random.Generator) -> str:
        if agent in self.named:
            return self.named[agent]
        return self.policies[0] if len(self.policies) == 1 else agent


@dataclass(frozen=True)
class _Asked:
    """Agent → policy, by a person's function; it travels by its path."""

    function: Any

    def __call__(self, agent: str, stream: np.random.Generator) -> str:
        function = self.function
        if isinstance(function, str):
            function = load("multiagent.policy_mapping_fn", function, "a function")
        more = {"rng": stream} if "rng" in inspect.signature(function).parameters else {}
        pid: str = function(agent, **more)
        return pid


def _mapper(given: Any, policies: Sequence[str]) -> Mapper:
    if given is None or isinstance(given, Mapping):
        return _Named(tuple(policies), dict(given or {}))
    if isinstance(given, str):
        load("multiagent.policy_mapping_fn", given, "a function")
    return _Asked(given)


def spaces_of(agents: Agents, seen: Look, environment: EnvironmentConfig) -> dict[str, EnvSpaces]:
    """Policy → the spaces of its agents.

    Raises:
        ConfigError: the mapping gives an agent an unknown policy, gives one policy agents of
            different spaces, or never gives it any where agents differ.
    """
    found: dict[str, tuple[str, EnvSpaces]] = {}
    place = "multiagent.policy_mapping_fn"
    for agent, spaces in seen.agents.items():
        pid = agents.mapping(agent, rng.generator(0, "mapping", "look", agent))
        if pid not in agents.policies:
            hint = f"it gave that for agent {agent!r}"
            raise ConfigError(place, pid, f"one of {', '.join(agents.policies)}", hint)
        other, known = found.setdefault(pid, (agent, spaces))
        if (known.observation, known.action) != (spaces.observation, spaces.action):
            raise ConfigError(
                place,
                pid,
                "a policy for agents of the same spaces",
                f"{other} sees {known.raw} and does {known.action}, {agent} sees {spaces.raw} and "
                f"does {spaces.action}: give them two policies",
            )
    made = {pid: spaces for pid, (_, spaces) in found.items()}
    alike = {repr((one.raw, one.action)) for one in seen.agents.values()}
    for pid in agents.policies:
        if pid in agents.given:
            observation, action = agents.given[pid]
            box = make_preprocessor(observation).observation_space
            made[pid] = EnvSpaces(box, action, observation)
        elif pid not in made and len(alike) > 1:
            hint = f"no agent of {environment.env} has it, and agents differ: give it its spaces, "
            hint += f"policies: {{{pid}: [null, observation space, action space, {{}}]}}"
            raise ConfigError(f"multiagent.policies.{pid}", None, "a policy with agents", hint)
        elif pid not in made:
            made[pid] = seen.spaces
    return made


def member_settings(settings: TrainerConfig, pid: str, own: Mapping[str, Any]) -> TrainerConfig:
    """The settings of one policy's member; ConfigError for a key that all policies share."""
    allowed = _own_keys(type(settings))
    place = f"multiagent.policies.{pid}"
    for key, value in own.items():
        if key not in allowed:
            shared = key in flatten(settings)
            hint = "it is the same for all policies" if shared else nearest(key, allowed)
            raise ConfigError(f"{place}.{key}", value, "a setting of one policy", hint.strip("; "))
    alone = {
        "multiagent": {},
        "env_level": "C",
        "native_vector_env": False,
        "restart_failed_sub_environments": False,
        "remote_worker_envs": False,
        "env_step_timeout_s": None,
        "horizon": None,
        "evaluation_interval": None,
        "evaluation_num_workers": 0,
        "evaluation_config": {},
        "monitor": False,
        "callbacks": None,
        "seed": None,
    }
    return override(override(settings, own, place), alone, place)


def _own_keys(config: type[TrainerConfig]) -> list[str]:
    keys: list[str] = []
    for name, one in config.model_fields.items():
        kind = one.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            if name in OWN_SECTIONS or name not in TrainerConfig.model_fields:
                keys += kind.model_fields
        elif name in OWN or name not in TrainerConfig.model_fields:
            keys.append(name)
    return [key for key in keys if key not in SHARED_OF_THOSE]


# ---- one policy ----------------------------------------------------------------------------------


class _Shared(WorkerSet):
    """A member's workers: its share of what was sampled for all."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def sample(self) -> list[Sample]:
        """What its agents did in this round."""
        return self.samples

    def _ask(self, method: str, args: Any) -> dict[int, Any]:
        """Nothing: whatever workers are given or asked for concerns all policies."""
        return {}


@dataclass(frozen=True)
class _MemberContext(TrialContext):
    seen: Look | None = None
    """What there is to know of its agents."""


class _Known(Inquiry):
    """What is known of a member's agents; nothing is measured for it."""

    def __init__(self, config: EnvironmentConfig, seen: Look) -> None:
        super().__init__(config)
        self._seen = seen

    def look(self) -> Look:
        """What is known."""
        return self._seen


class _Member(Trainer):
    """What a policy's trainer does in another way than one that is alone."""

    context: _MemberContext
    workers: _Shared

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Any:
        return cls

    def _inquiry(self) -> Inquiry:
        assert self.context.seen is not None  # noqa: S101 as `_made` gives it
        return _Known(self.settings.environment, self.context.seen)

    def _make_workers(self, seed: int) -> WorkerSet:
        return _Shared()


@functools.cache
def _member_class(algorithm: type[Trainer]) -> type[Trainer]:
    return type(algorithm.__name__, (_Member, algorithm), {"__module__": algorithm.__module__})


# ---- all of them ---------------------------------------------------------------------------------


@functools.cache
def several(algorithm: type[Trainer]) -> type[Trainer]:
    """The form of an algorithm's trainer that has several policies."""
    more = {"algorithm": algorithm, "__module__": algorithm.__module__}
    return type(algorithm.__name__, (MultiAgentTrainer, algorithm), more)


class MultiAgentTrainer(Trainer):
    """Base of the trainers that `several` makes."""

    algorithm: ClassVar[type[Trainer]]
    samples_on: ClassVar[bool] = False  # all policies learn between two rounds
    members: dict[str, Trainer]
    """Policy → its trainer, in the order of their names."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Any:
        """Itself: it has been asked for."""
        return cls

    # ---- settings --------------------------------------------------------------------------------

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError also for what several policies cannot have, and for each of them."""
        flat = flatten(settings)
        for key, (value, why) in NEEDED.items():
            if flat[key] != value:
                raise ConfigError(key, flat[key], f"{value} with several policies", why)
        calls = make_calls(settings.callbacks)
        if calls and calls.wants("on_postprocess_traj"):
            place, allowed = "callbacks.on_postprocess_traj", "absent with several policies"
            hint = "an agent's rows lie in several fragments; on_sample_end sees all of them"
            raise ConfigError(place, settings.callbacks.callbacks, allowed, hint)
        agents = Agents.of(settings)
        for pid, own in agents.policies.items():
            cls.algorithm.validate_config(member_settings(settings, pid, own))
        super().validate_config(settings)

    @classmethod
    def choose(cls, settings: TrainerConfig, seen: Look) -> dict[str, Any]:
        """What every policy can have; torch computes gradients where they choose differently."""
        agents = Agents.of(settings)
        spaces = spaces_of(agents, seen, settings.environment)
        chosen = [
            cls.algorithm.choose(member_settings(settings, pid, own), Look(spaces[pid], seen.limit))
            for pid, own in agents.policies.items()
        ]
        return {
            key: one if all(other[key] == one for other in chosen) else cls.before_auto[key]
            for key, one in chosen[0].items()
        }

    @classmethod
    def _with_stepping(cls, settings: TrainerConfig, chosen: bool = True) -> TrainerConfig:
        """Environments of several agents are separate."""
        if settings.environment.native_vector_env is True:
            hint = "an environment of several agents has no vector form"
            raise ConfigError("native_vector_env", True, "auto or false", hint)
        return override(settings, {"native_vector_env": False}, "config")

    # ---- made ------------------------------------------------------------------------------------

    def _build_policy(self, settings: TrainerConfig, seen: Look) -> None:
        self.agents = Agents.of(settings)
        self._seen = seen
        self.spaces = seen.spaces
        spaces = spaces_of(self.agents, seen, settings.environment)
        self.members = {
            pid: self._made(settings, pid, own, Look(spaces[pid], seen.limit))
            for pid, own in self.agents.policies.items()
        }
        rng.seed_global(self.seed, "global")
        self.policy = next(iter(self.members.values())).policy  # where one is asked for
        self.agent_steps = 0
        """Steps of all agents so far."""
        self.filters, self.streams, self.parts = {}, {}, {}
        self.recent = np.zeros((0, 0), dtype=np.float32)
        players = {pid: one.inference for pid, one in self.members.items()}
        self.inference = AgentsPlayer(players, self.agents.mapping)

    def _made(
        self, settings: TrainerConfig, pid: str, own: Mapping[str, Any], seen: Look
    ) -> Trainer:
        config = flatten(member_settings(settings, pid, own))
        plain = {one.name: getattr(self.context, one.name) for one in fields(TrialContext)}
        plain["seed"] = rng.integer(self.seed, "agents", pid)
        kind = _member_class(self.algorithm)  # type: ignore[arg-type]  # mypy: no class is hashable
        return kind(config, _MemberContext(**plain, seen=seen))

    def worker_spec(self) -> WorkerSpec:
        """What workers are made from: each policy's own part of it, too."""
        alone = {pid: one.worker_spec() for pid, one in self.members.items()}
        base = Trainer.worker_spec(self)
        trained = self.agents.trained
        return AgentsSpec(
            **{one.name: getattr(base, one.name) for one in fields(WorkerSpec)},
            policies={
                pid: PolicyPlan(
                    spec.make_actor, self.members[pid].spaces, spec.columns, pid in trained
                )
                for pid, spec in alone.items()
            },
            policy_filters={pid: spec.filters for pid, spec in alone.items()},
            agents=self._seen.agents,
            mapping=self.agents.mapping,
            agent_steps=self.agents.agent_steps,
        )

    # ---- training --------------------------------------------------------------------------------

    def training_step(self) -> dict[str, Any]:
        """Sample for all, let each policy that is trained learn from its share; policy → what."""
        self.set_global_vars({"timestep": self.progress.timesteps})
        with timed(self.timers, "sample_time_ms"):
            samples = self.workers.sample()
        self.reporter.sampled(samples)
        shares = self._shares(samples)
        learner: dict[str, Any] = {}
        with timed(self.timers, "learn_time_ms"):
            for pid in self.agents.trained:
                member = self.members[pid]
                member.workers.samples = shares[pid]  # type: ignore[attr-defined]  # a member's
                if any(one.fragments for one in shares[pid]):
                    learner[pid] = member.training_step()
        self.end_round(samples)
        for member in self.members.values():
            member.progress.timesteps = self.progress.timesteps
        return learner

    def _shares(self, samples: Sequence[Sample]) -> dict[str, list[Sample]]:
        """Policy → its part of each sample."""
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
        """One iteration, which also counts the steps of agents."""
        before = self.agent_steps
        result = super().step()
        counted = {"agent_timesteps_total": self.agent_steps}
        return {**result, **counted, "agent_timesteps_this_iter": self.agent_steps - before}

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Give variables to all policies and workers, for example the ``timestep``."""
        for member in self.members.values():
            member.policy.on_global_var_update(global_vars)
        self.workers.set_global_vars(global_vars)

    def _synchronise(self, samples: Sequence[Sample]) -> None:
        """Give the weights and filters of all policies to the workers."""
        weights, merged = {}, {}
        for pid, member in self.members.items():
            weights[pid] = member.policy.model.acting_weights()
            member.inference.actor.load(weights[pid])
            merged[pid] = filters_.get_state(member.filters)["observation"]
        self.workers.sync(weights, merged)  # type: ignore[arg-type]  # of each policy

    def _date_actor(self) -> None:
        for member in self.members.values():
            member.progress.timesteps = self.progress.timesteps
            member._date_actor()

    # ---- checkpoints -----------------------------------------------------------------------------

    @gives_data
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """What all have together, and ``members``: policy → what its trainer saves."""
        settled = {key: self.config[key] for key in self.before_auto}
        members = {pid: one.save_checkpoint(checkpoint_dir) for pid, one in self.members.items()}
        return {
            "members": members,
            "progress": self.progress.get_state(),
            "agent_steps": self.agent_steps,
            "workers": self.workers.get_state(),
            "collected": dict(self._collected),
            "settled": settled,
            **({"inexact": self.inexact} if self.inexact else {}),
            **self.reporter.get_state(),
        }

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Take back what `save_checkpoint` gave.

        Raises:
            ConfigError: it has other policies, or as `Trainer.load_checkpoint`.
        """
        if checkpoint.get("members", {}).keys() != self.members.keys():
            had = ", ".join(checkpoint.get("members", {})) or "a single one"
            hint = f"the checkpoint's are {had}"
            raise ConfigError("multiagent.policies", [*self.members], "as in the checkpoint", hint)
        Trainer.load_checkpoint(self, checkpoint)  # what an algorithm adds is its members' own

    def adapted(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `Trainer.adapted`: what was learnt is the members' own."""
        return Trainer.adapted(self, state)

    def _take_learnt(self, checkpoint: Mapping[str, Any]) -> None:
        for pid, member in self.members.items():
            member.load_checkpoint(checkpoint["members"][pid])
        self.agent_steps = int(checkpoint["agent_steps"])

    def cleanup(self) -> None:
        """End the workers and the members."""
        super().cleanup()
        for member in self.members.values():
            member.cleanup()

    # ---- policies --------------------------------------------------------------------------------

    def member(self, policy_id: str) -> Trainer:
        """The trainer of one policy; ConfigError for an unknown one."""
        if policy_id not in self.members:
            raise ConfigError("policy_id", policy_id, f"one of {', '.join(self.members)}")
        return self.members[policy_id]

    def get_policy(self, policy_id: str = "") -> Policy | None:
        """The policy with this name; None if there is none."""
        member = self.members.get(policy_id)
        return None if member is None else Policy(member)

    def compute_action(self, obs: Any, *args: Any, policy_id: str = "", **more: Any) -> Any:
        """The action of one policy for one raw observation; see `Trainer.compute_action`."""
        if not policy_id and len(self.members) == 1:
            policy_id = next(iter(self.members))
        self._date_actor()
        return self.member(policy_id).compute_action(obs, *args, **more)

    compute_single_action = compute_action

    def compute_actions(
        self, observations: Mapping[Any, Any], explore: bool = False
    ) -> dict[Any, Any]:
        """Agent → action of its policy, for raw observations by agent."""
        actions = {}
        for agent, one in observations.items():
            stream = rng.generator(self.seed, "mapping", "compute_actions", agent)
            pid = self.agents.mapping(agent, stream)
            actions[agent] = self.compute_action(one, policy_id=pid, explore=explore)
        return actions

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Weights]:
        """Policy → weights, copied; of these policies or of all."""
        chosen = self.members if policies is None else policies
        return {pid: self.member(pid).policy.model.weights() for pid in chosen}

    def set_weights(self, weights: Mapping[str, Weights]) -> None:
        """Adopt policy → weights, here and in every worker; optimisers' moments stay.

        Raises:
            ConfigError: as `Trainer.set_weights`; it names the policy.
        """
        for pid, one in weights.items():
            self.member(pid).adopt(one, pid)
        self.broadcast()

    def import_policy_weights(self, path: str | Path, policy_id: str = "") -> None:
        """Adopt one policy's weights from a file; see `Trainer.import_policy_weights`."""
        self.member(policy_id).import_policy_weights(path)
        self.broadcast()

    def compute_gradients(self, batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Policy → gradients, and what goes with them, of policy → rows; frozen ones are left."""
        both = {pid: self.members[pid].compute_gradients(one) for pid, one in self._learnt(batch)}
        return {p: one[0] for p, one in both.items()}, {p: one[1] for p, one in both.items()}

    def apply_gradients(self, gradients: Mapping[str, Any]) -> Any:
        """One step of each policy's optimiser; policy → its gradient's norm."""
        norms = {
            pid: self.members[pid].apply_gradients(one) for pid, one in self._learnt(gradients)
        }
        self.broadcast()
        return norms

    def learn_on_batch(self, batch: Any) -> dict[str, dict[str, float]]:
        """One gradient step of each policy on policy → rows; frozen ones are left."""
        info = {}
        for pid, one in self._learnt(batch):
            (info[pid],) = self.members[pid].learn_on_batch(one).values()
        self.broadcast()
        return info

    def _learnt(self, by_policy: Mapping[str, Any]) -> list[tuple[str, Any]]:
        for pid in by_policy:
            self.member(pid)
        return [(pid, by_policy[pid]) for pid in self.agents.trained if pid in by_policy]

    # ---- files -----------------------------------------------------------------------------------

    def export_policy_model(self, export_dir: str, policy_id: str = "") -> str:
        """``policy.onnx`` of one policy; its path."""
        return self.member(policy_id).export_policy_model(export_dir)

    def export_policy_checkpoint(
        self, export_dir: str, filename_prefix: str = "model", policy_id: str = ""
    ) -> str:
        """The weights of one policy, without its filter; the file's path."""
        return self.member(policy_id).export_policy_checkpoint(export_dir, filename_prefix)

    def describe_model(self) -> dict[str, Any]:
        """Nothing: there are several models."""
        return {}

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Each policy in a folder of its own; ``policy/format`` → path."""
        written: dict[str, str] = {}
        for pid, member in self.members.items():
            paths = member._export_model(export_formats, str(Path(export_dir) / pid))
            written |= {f"{pid}/{name}": path for name, path in paths.items()}
        return written
