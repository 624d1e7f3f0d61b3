"""The policies of several agents: their settings, spaces and mapping, and changes to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.core.importing import import_path_of
from trainables.core.settings import Section, flatten, override
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.make import EnvironmentConfig, EnvSpaces, checked_spaces
from trainables.errors import ConfigError, nearest, shorten
from trainables.rollout.agents.mapping import (
    Binding,
    DictMapping,
    make_mapping,
    stream_outside_episodes,
)
from trainables.trainer.config import TrainerConfig

#: Settings of `TrainerConfig` that a policy may set for itself; it may set all of its algorithm.
OWN_SECTIONS = ("filters", "schedule")
#: Further settings that a policy may set for itself.
OWN = ("model", "gamma", "optimizer")
#: Settings of these sections that all policies share.
SHARED_OF_THOSE = ("synchronize_filters", "normalize_rewards", "schedule_timesteps")


@dataclass(frozen=True)
class Agents:
    """The setting ``multiagent`` in parsed form: policies and the mapping from agents to them."""

    policies: Mapping[str, Mapping[str, Any]]
    """Policy → settings that only this policy has, in the order of the policies' names."""
    given_spaces: Mapping[str, tuple[Any, Any]]
    """Policy → (observation space, action space), if the settings give them."""
    sources: Mapping[str, tuple[str, str]]
    """Policy → (file or folder of a trained policy, name there) that provides its weights."""
    mapping: Binding
    """Function of an agent and a random stream that returns the agent's policy."""
    trained: tuple[str, ...]
    """Names of the policies that learn, sorted; all policies if the settings name none."""
    agent_steps: bool = False
    """True if the batch size counts agent steps; False for environment steps."""

    @classmethod
    def of(cls, settings: TrainerConfig) -> "Agents":
        """Parse the setting ``multiagent``, which is valid; policies are sorted by name.

        Raises ConfigError if the path of the mapping function names none.
        """
        multiagent = with_policies_as_dict(settings.agents.multiagent)
        policies = multiagent["policies"]
        classic = {
            pid: own_settings
            for pid, own_settings in policies.items()
            if isinstance(own_settings, list | tuple)
        }
        own_settings = {pid: one[3] if pid in classic else one for pid, one in policies.items()}
        trained = multiagent.get("policies_to_train")
        # Policies are built in the order of their names.
        own = {pid: dict(own_settings[pid] or {}) for pid in sorted(own_settings)}
        sources = {pid: one.pop("restore", None) for pid, one in own.items()}
        return cls(
            own,
            {pid: (one[1], one[2]) for pid, one in classic.items() if one[1] is not None},
            {pid: _source(pid, one) for pid, one in sources.items() if one is not None},
            make_mapping(multiagent.get("policy_mapping_fn"), list(own_settings)),
            tuple(sorted(own_settings if trained is None else trained)),
            multiagent.get("count_steps_by") == "agent_steps",
        )


def _source(pid: str, entry: Any) -> tuple[str, str]:
    """Return (path, name there) of a trained policy, from the value of ``restore``.

    `entry` is a path, or a dict with ``path`` and ``policy``. `pid`, the new policy's name, stands
    for a name that is not given.
    """
    return (entry["path"], entry["policy"]) if isinstance(entry, Mapping) else (entry, pid)


def spaces_of(
    agents: Agents, inspection: Inspection, environment: EnvironmentConfig, like: Mapping[str, str]
) -> dict[str, EnvSpaces]:
    """Return policy → the spaces of its agents.

    The mapping is asked once for each agent. A policy that it gives to none has the spaces that the
    settings give, or else those that all agents have.

    Args:
        like: policy → agent whose spaces the policy has, for policies whose agents are not found by
            the mapping.

    Raises:
        ConfigError: the mapping returns an unknown policy, assigns agents of different spaces to
            one policy, or assigns no agent to a policy without given spaces although agents differ;
            or given spaces are not supported.
    """
    first_agents = {pid: (agent, inspection.agents[agent]) for pid, agent in like.items()}
    place = "multiagent.policy_mapping_fn"
    for agent, spaces in inspection.agents.items():
        pid = agents.mapping(agent, stream_outside_episodes(agent))
        if pid not in agents.policies:
            problem = f"it returned {shorten(pid)} for agent {agent!r}, which is not a policy"
            allowed = f"one of {', '.join(agents.policies)}"
            raise ConfigError(place, pid, allowed, problem=problem)
        other, known = first_agents.setdefault(pid, (agent, spaces))
        if (known.observation, known.action) != (spaces.observation, spaces.action):
            raise ConfigError(
                place,
                pid,
                hint="give them two policies",
                problem=f"agents {other} and {agent} share the policy {pid}, but have different "
                f"spaces: observations {known.raw} and {spaces.raw}, actions {known.action} and "
                f"{spaces.action}",
            )
    by_policy = {pid: spaces for pid, (_, spaces) in first_agents.items()}
    different = {repr((one.raw, one.action)) for one in inspection.agents.values()}
    for pid in agents.policies:
        if pid in agents.given_spaces and pid not in like:
            by_policy[pid] = checked_spaces(environment, *agents.given_spaces[pid])
        elif pid not in by_policy and len(different) > 1:
            problem = f"no agent of {environment.env} has this policy, and its spaces are unknown"
            hint = f"give them: {{{pid}: [null, observation space, action space, {{}}]}}"
            place = f"multiagent.policies.{pid}"
            raise ConfigError(place, None, hint=hint, problem=problem)
        elif pid not in by_policy:
            by_policy[pid] = inspection.spaces
    return by_policy


def inspections_by_policy(
    agents: Agents, inspection: Inspection, environment: EnvironmentConfig, like: Mapping[str, str]
) -> dict[str, Inspection]:
    """Return policy → the inspected environment with the policy's own spaces.

    Also counts the policy's agents, as `rows_per_step`, at least 1. `like` is policy → agent whose
    spaces the policy has, for policies whose agents the mapping does not find. Raises ConfigError
    if the mapping or the given spaces are not valid (`spaces_of`). A mapping function may assign
    other policies in each episode, so with a function each policy is counted as if it had all
    agents.
    """
    found = spaces_of(agents, inspection, environment, like)
    everybody = [*inspection.agents]
    of_each = {pid: len(everybody) for pid in found}
    if isinstance(agents.mapping, DictMapping):
        named = [agents.mapping(agent, stream_outside_episodes(agent)) for agent in everybody]
        of_each = {pid: named.count(pid) for pid in found}
    return {
        pid: Inspection(spaces, inspection.limit, rows_per_step=max(1, of_each[pid]))
        for pid, spaces in found.items()
    }


# ---- changes of policies -------------------------------------------------------------------------


def with_policies_as_dict(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of ``multiagent`` with its policies as a dict, name → settings or None."""
    policies = settings["policies"]
    named = dict(policies) if isinstance(policies, Mapping) else dict.fromkeys(policies)
    return {**settings, "policies": named}


def with_policies(
    settings: Mapping[str, Any],
    policies: Mapping[str, Any],
    agents: Mapping[str, EnvSpaces],
    mapping: Any,
    trained: Sequence[str] | None,
) -> dict[str, Any]:
    """Return a copy of ``multiagent`` with other policies, after one is added or removed.

    A mapping function is replaced by its import path.

    Args:
        settings: ``multiagent`` with its policies as a dict.
        policies: the new policies, name → settings.
        agents: agent → its spaces.
        mapping: new mapping; None to keep the present one, which becomes a dict of all agents if
            there was none.
        trained: policies that learn; None for those that learnt before and are not removed, or for
            all if the settings name none.

    Raises:
        ConfigError: the mapping is a function without an import path.
    """
    kept = settings.get("policies_to_train")
    if trained is None and kept is not None:
        trained = [pid for pid in kept if pid in policies]
    if mapping is None and (mapping := settings.get("policy_mapping_fn")) is None:
        before = make_mapping(None, list(settings["policies"]))
        mapping = {agent: before(agent, stream_outside_episodes(agent)) for agent in agents}
    elif callable(mapping) and (path := import_path_of(mapping)) is None:
        problem = f"{shorten(mapping)} cannot be imported by its name, which checkpoints store"
        hint = "put the function at the top of a module, or give a dict"
        raise ConfigError("policy_mapping_fn", shorten(mapping), hint=hint, problem=problem)
    elif callable(mapping):
        mapping = path
    learning = None if trained is None else list(trained)
    return {
        **settings,
        "policies": dict(policies),
        "policy_mapping_fn": mapping,
        "policies_to_train": learning,
    }


def agent_with_spaces(agents: Mapping[str, EnvSpaces], observation: Any, action: Any) -> str | None:
    """Return the first agent whose raw observation space and action space equal these, or None.

    `agents` is agent → spaces; both spaces must be equal.
    """
    asked = observation, action
    return next((one for one, its in agents.items() if (its.raw, its.action) == asked), None)


def policy_changes(present: Mapping[str, Any], began: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences between two values of ``multiagent`` as plain data for a checkpoint.

    `began` is the value when training began, `present` the current one; both have their policies as
    a dict. The result has all present ``policies``, each with its settings as ``own`` if they are
    new or changed, and mapping and policies to train if these changed. It is empty if the values
    are equal.
    """
    of_each = {
        pid: {} if one == began["policies"].get(pid, ...) else {"own": dict(one or {})}
        for pid, one in present["policies"].items()
    }
    keys = ("policy_mapping_fn", "policies_to_train")
    other = {key: present.get(key) for key in keys if present.get(key) != began.get(key)}
    same = of_each.keys() == began["policies"].keys() and not any(of_each.values())
    return {} if same and not other else {"policies": of_each, **other}


def apply_policy_changes(data: Mapping[str, Any], began: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``multiagent`` as it was when `policy_changes` returned `data`.

    `began` is its value when training began, of which a copy is returned if `data` is empty.
    """
    if not data:
        return dict(began)
    policies = {
        pid: one["own"] if "own" in one else began["policies"][pid]
        for pid, one in data["policies"].items()
    }
    return {**began, **data, "policies": policies}


# ---- settings of one policy ----------------------------------------------------------------------


def member_settings(settings: TrainerConfig, pid: str, changes: Mapping[str, Any]) -> TrainerConfig:
    """Return the settings of the trainer of policy `pid`: common ones, changed by its own.

    In them there is no evaluation, callback, picture, record of episodes, horizon or seed, and
    ``env_level`` is C, as the trainer of all policies has these.

    Args:
        settings: settings of the trainer of all policies.
        changes: settings that only this policy has.

    Raises:
        ConfigError: an own setting that is unknown or common to all policies.
    """
    allowed = _own_keys(type(settings))
    place = f"multiagent.policies.{pid}"
    for key, value in changes.items():
        if key not in allowed:
            shared = key in flatten(settings)
            if shared:
                problem = "cannot be set for one policy alone"
                hint = "write it next to multiagent, for all policies"
            else:
                problem, hint = "is not a setting of a policy", nearest(key, allowed)
            raise ConfigError(f"{place}.{key}", value, hint=hint.strip("; "), problem=problem)
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
        "record_env": False,
        "render_env": False,
        "callbacks": None,
        "seed": None,
    }
    return override(override(settings, changes, place), alone, place)


def _own_keys(config: type[TrainerConfig]) -> list[str]:
    """Return the keys that a policy in ``multiagent.policies`` may set for itself.

    They are all that `config` adds to `TrainerConfig`, and those of `OWN_SECTIONS` and `OWN`
    without `SHARED_OF_THOSE`.
    """
    keys: list[str] = []
    for name, one in config.model_fields.items():
        kind = one.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            if name in OWN_SECTIONS or name not in TrainerConfig.model_fields:
                keys += kind.model_fields
        elif name in OWN or name not in TrainerConfig.model_fields:
            keys.append(name)
    return [key for key in keys if key not in SHARED_OF_THOSE]
