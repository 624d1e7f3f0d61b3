"""A rollout worker without a trainer: environments stepped by hand-written policies, and batches.

    worker = RolloutWorker(env_creator=lambda config: gymnasium.make("CartPole-v1"), policy=Policy)
    batch = worker.sample()

It is the trainers' rollout worker, made from an environment and policies written by hand.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from gymnasium.spaces import Space

from trainables.core import rng
from trainables.core.logs import LogConfig, set_level
from trainables.core.settings import Settings, flatten, parse
from trainables.envs.exactness.measuring import inspect
from trainables.envs.make import (
    EnvironmentConfig,
    EnvSpaces,
    agents_spaces,
    checked_spaces,
)
from trainables.envs.vector.config import VectorConfig, check_vector_env
from trainables.errors import ConfigError
from trainables.policies.acting import hand_written
from trainables.policies.acting.actor import Actor
from trainables.policies.filters import FilterConfig
from trainables.rollout.agents.episodes import PolicyPlan
from trainables.rollout.agents.mapping import Binding, make_mapping, stream_outside_episodes
from trainables.rollout.agents.worker import AgentsSpec, AgentsWorker, require_together
from trainables.rollout.batch import Sample
from trainables.rollout.callbacks import CallbacksConfig, make_calls
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers import worker
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.rollout.workers.worker_spec import WorkerSpec

#: Phases of callbacks that only a trainer has.
OF_TRAINERS = ("on_postprocess_traj", "on_train_result")


class WorkerConfig(Settings):
    """The settings of a worker without a trainer: those of trainers that concern sampling."""

    environment: EnvironmentConfig
    envs: VectorConfig = VectorConfig()
    sampling: SamplingConfig = SamplingConfig()
    filters: FilterConfig = FilterConfig()
    callbacks: CallbacksConfig = CallbacksConfig()
    logs: LogConfig = LogConfig()


class PolicySpec(NamedTuple):
    """A policy as the caller of `RolloutWorker` describes it: class, spaces and settings."""

    policy_class: Any
    """Class of the policy, or a callable that makes a policy from the same arguments."""
    observation_space: Space[Any] | None = None
    """Observation space of the policy's agents, as the environment declares it; None to use that of
    the environment, or of the first agent mapped to the policy."""
    action_space: Space[Any] | None = None
    """Action space of the policy's agents, as the environment declares it; None to use that of the
    environment, or of the first agent mapped to the policy."""
    config: Mapping[str, Any] | None = None
    """Settings of this policy, which override the common ones; None for the common ones."""


class RolloutWorker(worker.RolloutWorker):
    """Steps environments with policies and returns batches of the transitions, without end.

    Creating it sets the log level, seeds the process's global random streams, makes and closes one
    environment to inspect it, and makes and resets the worker's environments.

    Args:
        env_creator: environment as the setting ``env`` of a trainer takes it: a function of its
            settings, a class, a registered id or a path.
        policy: the policy's class, or (class, observation space, action space, settings), of which
            all but the class may be None; for several agents name → such a value. The class is
            called with an observation space, an action space and its settings. It has
            ``compute_actions(obs_batch, state_batches, …)``, which returns actions (N, …) as the
            environment takes them, the parts of a state (N, …), and further outputs (name → (N, …),
            columns of batches); or it has ``make_actor()``, as learning policies do.
        policy_mapping_fn: function or dict from agent to policy; None for the only policy, or for
            the policy with the agent's name.
        policy_config: settings of every policy; a policy's own settings override them.
        columns: additional columns of batches, as in `trainables.Callbacks.columns`.
        seed: seed of environments, action spaces and the global random streams.
        settings: trainer settings about environments, sampling and filters, by name:
            ``rollout_fragment_length``, ``num_envs_per_worker``, ``batch_mode``, ``horizon``,
            ``observation_filter``, ``env_config``, ``callbacks`` and others.
            ``native_vector_env`` is false unless it is given.

    Raises:
        ConfigError: an unknown setting, or a policy that does not fit the environment.
    """

    def __new__(cls, env_creator: Any, policy: Any, *_: Any, **__: Any) -> Self:  # noqa: ARG004
        """Make an object of the class for several agents if `policy` is a mapping."""
        has_agents = isinstance(policy, Mapping) and not issubclass(cls, _AgentsRolloutWorker)
        kind: Any = _AgentsRolloutWorker if has_agents else cls
        made: Self = super().__new__(kind)
        return made

    def __init__(
        self,
        env_creator: Any,
        policy: Any,
        policy_mapping_fn: Any = None,
        *,
        policy_config: Mapping[str, Any] | None = None,
        columns: Collection[str] = (),
        seed: int = 0,
        **settings: Any,
    ) -> None:
        by_name = policy if isinstance(policy, Mapping) else {DEFAULT_POLICY_ID: policy}
        common = dict(policy_config or {})
        self._given = {pid: _policy_spec(one, common) for pid, one in sorted(by_name.items())}
        self._mapping = make_mapping(policy_mapping_fn, [*by_name])
        config = parse(WorkerConfig, {"native_vector_env": False, **settings, "env": env_creator})
        set_level(config.logs)
        rng.seed_global(seed, "global")
        super().__init__(self._spec(config, frozenset(columns), seed))

    def sample(self) -> Sample:
        """Collect and return the next batch as the base class, but in arrays of its own.

        Later calls do not overwrite it.
        """
        sample = super().sample()
        return replace(sample, fragments=[one.copy() for one in sample.fragments])

    def _spec(self, config: WorkerConfig, columns: frozenset[str], seed: int) -> WorkerSpec:
        """Return the specification from which the base class makes the worker.

        `columns` are the additional columns of batches; a batch is one fragment of every
        environment. Makes and closes an environment to inspect it, unless this process has done so
        before.

        Raises:
            ConfigError: a callback that only trainers call, an environment that calls the trainer,
                or a vector setting that does not fit.
        """
        sampling, calls = config.sampling, make_calls(config.callbacks)
        for phase in OF_TRAINERS:
            if calls and calls.has_functions(phase):
                problem = "is never called by a worker outside a trainer, which does not learn"
                given = config.callbacks.callbacks
                raise ConfigError(f"callbacks.{phase}", given, hint="remove it", problem=problem)
        seen = inspect(config.environment)
        if seen.calls_trainer:
            env = config.environment.env
            problem = (
                f"{env} is an external environment, which calls the trainer, and a worker outside "
                "a trainer has none"
            )
            hint = "use an environment that can be stepped"
            raise ConfigError("env_creator", env, hint=hint, problem=problem)
        check_vector_env(config.environment, config.envs, seen.limit)
        return self._spec_class(
            seed=seed,
            index=0,
            num_workers=0,
            environment=config.environment,
            envs=config.envs,
            sampling=sampling,
            filters=config.filters,
            make_actor=_no_actor,
            gamma=1.0,
            steps=sampling.rollout_fragment_length * sampling.num_envs_per_worker,
            logs=config.logs,
            calls=calls,
            columns=columns,
        )

    @property
    def _spec_class(self) -> type[WorkerSpec]:
        """Class of the specification; `_AgentsRolloutWorker` has another one."""
        return WorkerSpec

    def _make_sampler(self, spec: WorkerSpec) -> Any:
        """Make the policy for the environments' spaces; return a sampler that acts with it.

        Sets `spec`, which then has the policy's actor, and the worker's weights to the policy's.
        Raises ConfigError if no policy can use the spaces, the caller's spaces are not those of the
        environment, or the class makes no policy for them.
        """
        env_spaces = checked_spaces(spec.environment, *self.envs.own_spaces)
        given = self._given[DEFAULT_POLICY_ID]
        for name, space, its in (
            ("observation_space", given.observation_space, env_spaces.raw),
            ("action_space", given.action_space, env_spaces.action),
        ):
            if space is not None and space != its:
                problem = f"{space} differs from the environment's {name}, {its}"
                hint = f"leave it out, or give the environment's {name}"
                raise ConfigError(f"policy.{name}", space, hint=hint, problem=problem)
        actor = self._make_actor(DEFAULT_POLICY_ID, env_spaces)
        self.spec = replace(spec, make_actor=lambda: actor)
        sampler = super()._make_sampler(self.spec)
        self._weights = actor.weights()
        return sampler

    def _make_actor(self, pid: str, env_spaces: EnvSpaces) -> Actor:
        """Create the caller's policy `pid` for these spaces, and return an actor that calls it.

        Raises ConfigError if its class cannot be called with spaces and settings, or makes no
        policy.
        """
        given = self._given[pid]
        seed = rng.integer(self.spec.seed, "policy spaces", pid) % 2**31
        return hand_written.make_actor(given.policy_class, env_spaces, given.config or {}, seed)


class _AgentsRolloutWorker(RolloutWorker, AgentsWorker):
    """A `RolloutWorker` for several agents, with one policy or more."""

    spec: AgentsSpec
    """Specification from which the worker was made."""

    @property
    def _spec_class(self) -> type[WorkerSpec]:
        """Class of the specification of a worker of several policies."""
        return AgentsSpec

    def _spec(self, config: WorkerConfig, columns: frozenset[str], seed: int) -> WorkerSpec:
        """Return the worker's specification, as the base class does; it has no policies yet.

        Raises ConfigError also for settings that several agents do not support.
        """
        require_together(flatten(config))
        return super()._spec(config, columns, seed)

    def sample(self) -> Any:
        """Collect and return the next `MultiAgentBatch`; later calls do not overwrite it."""
        return AgentsWorker.sample(self)

    def _make_sampler(self, spec: WorkerSpec) -> Any:
        """Make all policies; return a sampler that acts with them.

        Sets `spec`, which then has the policies, and the worker's weights to theirs. Raises
        ConfigError if the environment has one agent, a policy's spaces are unknown or not usable,
        or its class does not fit.
        """
        environment = spec.environment
        agents = agents_spaces(environment, *self.envs.own_spaces)
        if not agents:
            problem = f"{environment.env} has one agent, but several policies are given by name"
            hint = "give one policy class, or use an environment of several agents"
            raise ConfigError("policy", [*self._given], hint=hint, problem=problem)
        spaces = {
            pid: _policy_spaces(pid, given, environment, agents, self._mapping)
            for pid, given in self._given.items()
        }
        actors = {pid: self._make_actor(pid, of) for pid, of in spaces.items()}
        plans = {
            pid: PolicyPlan(_constant(actors[pid]), of, spec.columns, learns=True, gamma=1.0)
            for pid, of in spaces.items()
        }
        filters = dict.fromkeys(plans, spec.filters)
        assert isinstance(spec, AgentsSpec)  # noqa: S101 as `_spec_class` says
        more = {"policies": plans, "policy_filters": filters, "agents": agents}
        self.spec = replace(spec, **more, mapping=self._mapping)  # type: ignore[arg-type]
        sampler = AgentsWorker._make_sampler(self, self.spec)
        weights: Any = {pid: actor.weights() for pid, actor in actors.items()}
        self._weights = weights
        return sampler


def PolicyEvaluator(  # noqa: N802  it makes a worker
    env_creator: Any, policy_graph: Any, policy_mapping_fn: Any = None, **more: Any
) -> RolloutWorker:
    """Return a `RolloutWorker`; class and arguments have the names of earlier RLlib versions.

    `policy_graph` is the policy, `more` the other arguments of `RolloutWorker`.
    """
    return RolloutWorker(env_creator, policy_graph, policy_mapping_fn, **more)


def _policy_spec(policy: Any, common: Mapping[str, Any]) -> PolicySpec:
    """Return a `PolicySpec` from a class, or from a tuple of one to four of its fields.

    Its settings are those of `common`, overridden by the policy's own. Raises ConfigError for a
    longer or empty tuple.
    """
    if not isinstance(policy, Sequence):
        return PolicySpec(policy, config=common)
    if not 1 <= len(policy) <= len(PolicySpec._fields):
        allowed = "(class, observation space, action space, settings)"
        found = f"a tuple of {len(policy)}"
        raise ConfigError("policy", found, allowed, problem=f"it is {found}")
    given = PolicySpec(*policy)
    return given._replace(config={**common, **(given.config or {})})


def _policy_spaces(
    pid: str,
    spec: PolicySpec,
    environment: EnvironmentConfig,
    agents: Mapping[str, EnvSpaces],
    mapping: Binding,
) -> EnvSpaces:
    """Return a policy's spaces: those of its `spec`, and those that it lacks of its first agent.

    `agents` is agent → spaces; the policy's agents are those to which `mapping` assigns it. Raises
    ConfigError if the spec lacks a space and there is no such agent, or if no policy can use the
    spec's spaces.
    """
    observation, action = spec.observation_space, spec.action_space
    if observation is not None and action is not None:
        return checked_spaces(environment, observation, action)
    candidates = [
        of for agent, of in agents.items() if mapping(agent, stream_outside_episodes(agent)) == pid
    ]
    if not candidates:
        allowed = "(class, observation space, action space, settings)"
        has_one = observation is not None or action is not None
        given = "one space alone" if has_one else "a class alone"
        problem = f"{given} is given, and no agent has the policy, so its spaces are unknown"
        raise ConfigError(f"policy.{pid}", given, allowed, problem=problem)
    its = candidates[0]
    own = its.raw if observation is None else observation, its.action if action is None else action
    return checked_spaces(environment, *own)


def _constant(actor: Actor) -> Callable[[], Actor]:
    """Return a function that takes nothing and always returns this actor."""
    return lambda: actor


def _no_actor() -> Actor:
    """Raise AssertionError; stands in for `WorkerSpec.make_actor` until the spaces are known."""
    raise AssertionError("policies are made when the environments have declared their spaces")
