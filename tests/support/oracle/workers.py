"""Workers that sample what scripts say, made without a trainer."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.oracle.calling import Schedule, Ways
from tests.support.oracle.players import Plain
from tests.support.oracle.rows import COLUMNS, Rules
from tests.support.oracle.scripts import ACTIONS, BOX, Script, as_config
from trainables.envs.make import (
    EnvironmentConfig,
    EnvSpaces,
    ObservationSettings,
    agents_spaces,
    checked_spaces,
    make_env,
)
from trainables.envs.vector.config import VectorConfig
from trainables.evaluation.agents import AgentsPlayer, Mapper
from trainables.evaluation.play import Plan
from trainables.policies import filters
from trainables.policies.acting.inference import InferencePolicy
from trainables.policies.filters import FilterConfig, NoFilter
from trainables.rollout.agents.episodes import PolicyPlan
from trainables.rollout.agents.worker import AgentsSpec
from trainables.rollout.config import SamplingConfig
from trainables.rollout.external.workers import ExternalAgentsSpec, ExternalSpec
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec

HERE = "tests.support.oracle.scripts"


def environment(script: Script, rules: Rules, folder: Path, env: str) -> EnvironmentConfig:
    """The environments that follow a script."""
    config = as_config(script, folder, rules.kind)
    made = EnvironmentConfig(env=f"{HERE}:{env}", env_config=config, env_level="C")
    return made.with_observation_settings(
        ObservationSettings(previous=(rules.previous, rules.previous))
    )


def alone_spec(script: Script, rules: Rules, folder: Path, **envs: Any) -> WorkerSpec:
    """What a worker with environments of one agent is made from."""
    of = environment(script, rules, folder, "Alone")
    return WorkerSpec(**{**_fields(of, rules), "envs": vector_config(rules, **envs)})


def several_spec(script: Script, rules: Rules, folder: Path, **more: Any) -> AgentsSpec:
    """What a worker with environments of several agents is made from; `more` are its fields."""
    of = environment(script, rules, folder, "Several")
    return AgentsSpec(**{**_agents_fields(of, rules), **more})


def calling_spec(
    script: Script, rules: Rules, schedule: Schedule, is_alone: bool, how: Ways
) -> WorkerSpec:
    """What a worker is made from whose environments call."""
    config: dict[str, Any] = {"script": script, "schedule": schedule, "actions": rules.kind}
    config |= {"is_alone": is_alone, **how._asdict()}
    env = "tests.support.oracle.calling:Called"
    of = EnvironmentConfig(env=env, env_config=config, env_level="C")
    if is_alone:
        return ExternalSpec(**_fields(of, rules))
    return ExternalAgentsSpec(**_agents_fields(of, rules))


def _agents_fields(of: EnvironmentConfig, rules: Rules) -> dict[str, Any]:
    env = make_env(of)
    agents = agents_spaces(of, env.observation_space, env.action_space)
    spaces_ = next(iter(agents.values()))
    plans = {
        pid: PolicyPlan(
            partial(Plain, rules.kind),
            spaces_,
            COLUMNS,
            pid not in rules.frozen,
            rules.gamma,
            rules.unfiltered,
        )
        for pid in dict.fromkeys(rules.policies.values())
    }
    return {
        **_fields(of, rules),
        "policies": plans,
        "policy_filters": dict.fromkeys(plans, filter_config(rules)),
        "agents": agents,
        "mapping": lambda agent, _: rules.policies[agent],
        "agent_steps": rules.agent_steps,
    }


def _fields(of: EnvironmentConfig, rules: Rules) -> dict[str, Any]:
    index, workers = rules.worker
    return {
        "seed": rules.seed,
        "index": index,
        "num_workers": workers if workers > 1 else 0,
        "environment": of,
        "envs": vector_config(rules),
        "sampling": sampling_config(rules),
        "filters": filter_config(rules),
        "make_actor": partial(Plain, rules.kind),
        "gamma": rules.gamma,
        "steps": rules.steps,
        "columns": COLUMNS,
        "unfiltered": rules.unfiltered,
    }


def vector_config(rules: Rules, **more: Any) -> VectorConfig:
    """How environments end and are restarted."""
    return VectorConfig(
        horizon=rules.horizon,
        soft_horizon=rules.soft,
        no_done_at_end=rules.no_done,
        restart_failed_sub_environments=True,
        **more,
    )


def sampling_config(rules: Rules) -> SamplingConfig:
    """How is sampled."""
    return SamplingConfig(
        num_envs_per_worker=rules.envs,
        rollout_fragment_length=rules.fragment,
        batch_mode="complete_episodes" if rules.whole else "truncate_episodes",
        clip_rewards=rules.clip,
    )


def filter_config(rules: Rules) -> FilterConfig:
    """What is normalised."""
    kind = "MeanStdFilter" if rules.filtered else "NoFilter"
    return FilterConfig(observation_filter=kind, normalize_rewards=rules.scaled)


def take_over(worker: RolloutWorker, twin: RolloutWorker) -> None:
    """Let a twin go on where a worker stands, with its environments and what it saved."""
    twin.envs.close()
    sampler, own = worker._sampler, twin._sampler
    name = "_envs" if hasattr(sampler, "_envs") else "envs"
    twin.envs = worker.envs
    setattr(own, name, worker.envs)
    own.set_state(copy.deepcopy(sampler.get_state()))
    filters.set_state(twin._filters, copy.deepcopy(filters.get_state(worker._filters)))


def evaluation_plan(script: Script, rules: Rules, folder: Path, env: str) -> Plan:
    """How an evaluation plays in one environment that follows a script."""
    of, envs = environment(script, rules, folder, env), vector_config(rules)
    return Plan(of, explore=False, width=1, envs=envs, clip_actions=True)


def player(plan: Plan, rules: Rules, mapping: Mapper) -> InferencePolicy:
    """What plays in an evaluation: one policy, or those of several agents."""
    env = make_env(plan.environment)
    agents = agents_spaces(plan.environment, env.observation_space, env.action_space)
    if not agents:
        return _inference(rules, checked_spaces(plan.environment, BOX, ACTIONS[rules.kind]))
    spaces_ = next(iter(agents.values()))
    each = {pid: _inference(rules, spaces_) for pid in dict.fromkeys(rules.policies.values())}
    return AgentsPlayer(each, mapping)


def _inference(rules: Rules, spaces_: EnvSpaces) -> InferencePolicy:
    connectors = spaces_.connected("evaluation", NoFilter(), clip=True, normalize=False)
    return InferencePolicy(Plain(rules.kind), spaces_, connectors)
