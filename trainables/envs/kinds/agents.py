"""Environments of several agents as one: what each agent sees, is rewarded with, and how it ends.

Three interfaces are known by their methods, so that no package of theirs has to be installed:
PettingZoo's parallel environments, its turn-based ones (through PettingZoo's own converter), and
environments of dicts with ``__all__`` (RLlib's ``MultiAgentEnv``). All of them become a
`gymnasium.Env` whose observation is that of all agents and whose action is a dict, agent →
action; so whatever is done with one environment (side by side, in a process of its own, restarted,
captured, replayed, measured) is done with these as well.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from trainables.envs.calls.contract import EnvContractError
from trainables.envs.spaces.connectors import EnvConnector, OwnSpaces
from trainables.envs.spaces.masks import ActionMask, AgentSpacesEnv, Source
from trainables.errors import ConfigError, shorten

ALL = "__all__"
"""Key that stands for all agents in dicts that say which agents have ended."""
COMMON = "__common__"
"""Key in an environment's dict of infos, for the info that concerns all agents."""
#: One step as `AgentsEnv` returns it in place of an observation: plain data that can be compared.
Seen = Mapping[str, Any]
#: Agent → value.
ByAgent = Mapping[str, Any]


def step_record(
    observations: ByAgent,
    rewards: Mapping[str, float],
    terminated: Iterable[str] = (),
    truncated: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the results of one step of all agents as a dict of plain data.

    The keys are ``observations``, ``rewards`` (agent → value), ``terminated`` and ``truncated``
    (lists of agents).
    """
    return {
        "observations": dict(observations),
        "rewards": dict(rewards),
        "terminated": list(terminated),
        "truncated": list(truncated),
    }


class AgentsSpace(spaces.Space[Any]):
    """The space of an environment of several agents: agent → space, of all that may take part."""

    def __init__(self, by_agent: Mapping[str, spaces.Space[Any]]) -> None:
        super().__init__()
        self.of = dict(by_agent)

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        """Return agent → sample of its space, drawn from that space's stream; `mask` is ignored."""
        return {agent: space.sample() for agent, space in self.of.items()}

    def seed(self, seed: Any = None) -> list[Any]:
        """Seed each agent's space with a stream of its own; return what their `seed` returned."""
        given = np.random.SeedSequence(seed).generate_state(len(self.of))
        return [space.seed(int(one)) for space, one in zip(self.of.values(), given, strict=True)]

    def contains(self, x: Any) -> bool:
        """Return whether every agent in `x` is known and its value is in its space.

        Agents may be absent.
        """
        return isinstance(x, Mapping) and all(
            agent in self.of and self.of[agent].contains(one) for agent, one in x.items()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentsSpace) and self.of == other.of

    def __hash__(self) -> int:
        return hash(tuple(self.of))

    def __repr__(self) -> str:
        return f"AgentsSpace({self.of})"


class AgentsConnector(EnvConnector):
    """The connector at an environment of several agents: one `EnvConnector` for each.

    It converts each agent's observations to arrays, and rows of numbers to actions.
    """

    def __init__(self, own_spaces: OwnSpaces, by_agent: Mapping[str, EnvConnector]) -> None:
        self.own_spaces, self.of = own_spaces, by_agent
        self.observes = self.acts = True
        self.depth, self.note = 0, ""
        self.observation_space = AgentsSpace(
            {a: one.observation_space for a, one in by_agent.items()}
        )
        self.action_space = AgentsSpace({a: one.action_space for a, one in by_agent.items()})

    @property
    def seconds(self) -> dict[str, float]:
        """Name of a conversion → total time of all agents, seconds."""
        total: dict[str, float] = {}
        for one in self.of.values():
            for name, seconds in one.seconds.items():
                total[name] = total.get(name, 0.0) + seconds
        return total

    def observe(self, observation: Seen) -> Seen:
        """Return the record of a step, a dict, with its ``observations`` converted to new arrays.

        They are agent → observation, and copied, since environments may overwrite one that is still
        in use.
        """
        each = observation["observations"].items()
        arrays = {a: np.array(self.of[a].observe(one)) for a, one in each}
        return {**observation, "observations": arrays}

    def act(self, row: ByAgent) -> dict[str, Any]:
        """Return agent → action as the environment takes it, for agent → row."""
        return {agent: self.of[agent].act(one) for agent, one in row.items()}

    def row(self, action: ByAgent) -> dict[str, Any]:
        """Return agent → row for agent → action: the inverse of `act`."""
        return {agent: self.of[agent].row(one) for agent, one in action.items()}


class _Stepped(NamedTuple):
    """The results of one step of the wrapped environment."""

    observations: ByAgent
    """Agent → observation, of the agents that are present."""
    rewards: ByAgent
    """Agent → reward."""
    terminated: ByAgent
    """Agent → True if it has ended by itself; the key `ALL`, if present, is for all agents."""
    truncated: ByAgent
    """Agent → True if it was cut off; the key `ALL`, if present, is for all agents."""
    infos: ByAgent
    """Agent → info; the key `COMMON`, if present, has the info for all agents."""
    is_over: bool
    """True if the episode has ended for all agents."""


class AgentsEnv(gymnasium.Env[Any, Any]):
    """An environment of several agents as one `gymnasium.Env`, with agent → action as its action.

    Args:
        env: environment of PettingZoo (parallel or turn-based), or in RLlib's form.
        read: makes a `_Stepped` of what ``env.step`` returned.
        observation_spaces: agent → observation space, for all agents that may ever take part.
        action_spaces: agent → action space, for the same agents.
        observe: function from what all agents observe to what each one sees; None for no change.
        masks: agent → reader of its action mask; empty for no masks.
    """

    observation_space: AgentsSpace
    """Observation space of each agent."""
    action_space: AgentsSpace
    """Action space of each agent."""

    def __init__(
        self,
        env: Any,
        read: "Read",
        observation_spaces: Mapping[str, spaces.Space[Any]],
        action_spaces: Mapping[str, spaces.Space[Any]],
        observe: Callable[[ByAgent], ByAgent] | None = None,
        masks: Mapping[str, ActionMask] | None = None,
    ) -> None:
        self.env = env
        self._read = read
        self.observation_space = AgentsSpace(observation_spaces)
        self.action_space = AgentsSpace(action_spaces)
        self._observe = observe or _unchanged
        self._masked = _mask_adder(masks or {})
        self._asked: list[str] = []
        """Agents that act in the next step: those with a new observation that have not ended."""

    @property
    def unwrapped(self) -> Any:
        """The innermost environment."""
        return getattr(self.env, "unwrapped", self.env)

    @property
    def metadata(self) -> dict[str, Any]:  # type: ignore[override]  # that of what was named
        """The wrapped environment's metadata, such as its render modes; empty if it has none."""
        return getattr(self.env, "metadata", None) or {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode.

        Return a record, as `step` does, with the present agents' observations, of a turn-based game
        only that of the agent whose turn it is, and no info. Raises EnvContractError for a wrong
        result.
        """
        given = self.env.reset(seed=seed, options=options)
        if not isinstance(given, tuple) or len(given) != 2:
            raise EnvContractError(
                f"reset() returned {shorten(given)}; expected (observations, infos), two "
                "dicts with agents as keys"
            )
        observations = self._observed(given[0], "reset")
        active = self._active()
        shown = {a: one for a, one in observations.items() if active is None or a == active}
        self._asked = list(shown)
        return step_record(self._masked(shown, ()), {}), {}

    def step(self, action: ByAgent) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Make one step with agent → action, of the agents that got an observation last.

        Actions of other agents are ignored. Returns a record in place of an observation: a dict of
        ``observations`` and ``rewards`` by agent, and the lists of agents ``terminated`` and
        ``truncated``; the sum of all rewards; whether the episode was terminated, and whether it
        was truncated, for all agents; and an info with ``agents`` (infos by agent) and ``common``
        (infos for all), if there are any. In a turn-based game the record has the observations of
        the agent whose turn it is and of agents that ended; of all agents when the episode ends.
        Raises EnvContractError for a wrong result.
        """
        taken = {a: one for a, one in action.items() if a in self._asked}
        stepped = self._read(self.env, self.env.step(taken))
        observations = self._observed(stepped.observations, "step")
        rewards = {a: _as_float(a, one) for a, one in stepped.rewards.items()}
        self._require_known(rewards, "rewards")
        terminated = [a for a, flag in stepped.terminated.items() if flag and a != ALL]
        truncated = [a for a, flag in stepped.truncated.items() if flag and a != ALL]
        self._require_known([*terminated, *truncated], "ends")
        ended, active = {*terminated, *truncated}, self._active()
        shown = {
            a: one
            for a, one in observations.items()
            if active is None or a == active or a in ended or stepped.is_over
        }
        self._asked = [a for a in shown if a not in ended]
        cut = bool(stepped.truncated.get(ALL, not terminated))
        dead = [*shown] if stepped.is_over and not cut else terminated
        infos = {a: dict(one) for a, one in stepped.infos.items() if one}
        common = infos.pop(COMMON, None)
        return (
            step_record(self._masked(shown, dead), rewards, terminated, truncated),
            float(sum(rewards.values())),
            stepped.is_over and not cut,
            stepped.is_over and cut,
            {**({"agents": infos} if infos else {}), **({"common": common} if common else {})},
        )

    def render(self) -> Any:
        """Return what the wrapped environment's `render` returns, such as a picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the wrapped environment, if it has such a method."""
        if callable(close := getattr(self.env, "close", None)):
            close()

    def _active(self) -> str | None:
        """Return the agent whose turn it is in a turn-based game, "" after the game's end.

        Returns None in other environments.
        """
        game = getattr(self.env, "aec_env", None)
        if game is None or type(self.env).__name__ != TURNS:
            return None
        return str(game.agent_selection) if game.agents else ""

    def _observed(self, observations: Any, method: str) -> ByAgent:
        """Check agent → observation, which `method` returned; return what each agent is to see.

        That is decided by the user's `observation_fn`, if there is one. Raises EnvContractError for
        anything but a dict of known agents.
        """
        if not isinstance(observations, Mapping):
            raise EnvContractError(
                f"{method}() gave the observations {shorten(observations)}; "
                "expected a dict with agents as keys"
            )
        if ALL in observations:
            raise EnvContractError(
                f"{method}() gave an observation for an agent called {ALL}, which stands for all "
                "agents in dicts of ends; give it another name"
            )
        self._require_known(observations, f"{method}() observations")
        return self._observe(dict(observations))

    def _require_known(self, agents: Iterable[str], place: str) -> None:
        """Raise EnvContractError for an agent that has no spaces; `place` begins the message."""
        known = self.observation_space.of
        for agent in agents:
            if agent not in known:
                raise EnvContractError(
                    f"{place}: the agent {agent!r} is not one of possible_agents: "
                    f"{', '.join(map(repr, known))}; name there every agent that may take part"
                )


# Functions are none of an environment's state, as the objects that they use would be.


def _unchanged(values: ByAgent) -> ByAgent:
    """Return the observations unchanged."""
    return values


def _mask_adder(
    masks: Mapping[str, ActionMask],
) -> Callable[[ByAgent, Iterable[str]], ByAgent]:
    """Return a function that adds each agent's action mask to its observation.

    It takes agent → observation, and the agents that have ended, whose masks may forbid everything.
    Without `masks` it returns the observations unchanged; it raises EnvContractError for a missing
    or invalid mask.
    """

    def masked(values: ByAgent, dead: Iterable[str]) -> ByAgent:
        """Return the agents' observations with action masks, if the environment has masks."""
        if not masks:
            return values
        gone = set(dead)
        return {a: masks[a].masked(one, {}, is_over=a in gone) for a, one in values.items()}

    return masked


def _as_float(agent: str, reward: Any) -> float:
    """Return an agent's reward as a float; raises EnvContractError if it is not a number."""
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise EnvContractError(
            f"step() gave the agent {agent!r} the reward {shorten(reward)}; expected a real number"
        ) from None


# -------------------------------------------------------------------------------------------------
# The interfaces.

#: Agent → space.
Spaces = dict[str, spaces.Space[Any]]
#: A function of the environment and what its `step` returned.
Read = Callable[[Any, Any], _Stepped]
#: Name of PettingZoo's wrapper class around a turn-based game.
TURNS = "turn_based_aec_to_parallel_wrapper"


def as_single_env(
    env: Any,
    place: str,
    observe: Callable[[ByAgent], ByAgent] | None = None,
    source: Source | None = None,
) -> AgentsEnv | None:
    """Wrap an environment of several agents as one `gymnasium.Env`; None if it has one agent.

    A turn-based one is converted by PettingZoo first.

    Args:
        place: the setting ``env``, for errors.
        observe: function of all agents' observations; its attribute ``observation_space`` is a
            function (agent, agent → space) → the agent's space.
        source: source of the action masks, or None for no masks.

    Raises:
        ConfigError: an agent has no name or lacks a space, PettingZoo's converter is missing or
            fails, or an agent has no such action masks.
    """
    if hasattr(env, "agent_iter"):
        env = _converted(env, place)
    if (game := getattr(getattr(env, "aec_env", None), "unwrapped", None)) is not None:
        # PettingZoo makes it with the first agent that ends, and reads it as if it were there: an
        # environment that has played would look unlike a new one, which it is not.
        vars(game).setdefault("_skip_agent_selection", None)
    found = _spaces_of(env)
    if found is None:
        return None
    of_observations, of_actions, read = found
    named = all(isinstance(agent, str) for agent in of_observations)
    if not (named and of_observations and of_observations.keys() == of_actions.keys()):
        allowed = "agents named by text, each with an observation space and an action space"
        problem = (
            f"{place} has observation spaces for {[*of_observations]} and action spaces for "
            f"{[*of_actions]}"
        )
        raise ConfigError("env", place, allowed, problem=problem)
    if (space_of := getattr(observe, "observation_space", None)) is not None:
        of_observations = {agent: space_of(agent, of_observations) for agent in of_observations}
    masks = _masks(of_observations, of_actions, source)
    of_observations |= {agent: one.observation_space for agent, one in masks.items()}
    return AgentsEnv(env, read, of_observations, of_actions, observe, masks)


def _spaces_of(env: Any) -> tuple[Spaces, Spaces, Read] | None:
    """Return agent → observation space, agent → action space, and the function that reads a step.

    Returns None for an environment of one agent.
    """
    if hasattr(env, "possible_agents") and callable(getattr(env, "observation_space", None)):
        agents = [*env.possible_agents]
        observed = {agent: env.observation_space(agent) for agent in agents}
        return observed, {agent: env.action_space(agent) for agent in agents}, _read_parallel
    observations, actions = (_by_agent(env, kind) for kind in ("observation_space", "action_space"))
    return None if observations is None or actions is None else (observations, actions, _read_dicts)


def _masks(
    of_observations: Spaces, of_actions: Spaces, source: Source | None
) -> dict[str, ActionMask]:
    """Return agent → wrapper that adds its action mask to observations; empty without a source.

    Raises ConfigError for the source ``info``, which several agents do not have, or if an agent's
    observations have no mask or its actions no choice.
    """
    if source is None:
        return {}
    if source == "info":
        problem = "info cannot be used with several agents, whose masks are in their observations"
        hint = "set it to observation, and let observations be Dicts with the key action_mask"
        raise ConfigError("action_mask", source, hint=hint, problem=problem)
    pairs = {
        agent: AgentSpacesEnv(one, of_actions[agent]) for agent, one in of_observations.items()
    }
    return {agent: ActionMask(one, source) for agent, one in pairs.items()}


def _converted(env: Any, place: str) -> Any:
    """Convert PettingZoo's turn-based environment to its parallel interface.

    Raises ConfigError, about the setting ``env`` with the value `place`, if that is not possible.
    """
    try:
        from pettingzoo.utils import conversions  # type: ignore[import-untyped]
    except ImportError as error:
        problem = f"the agents of {place} take turns, which needs PettingZoo's converter"
        hint = "install it: pip install 'sweep-rl[agents]'"
        raise ConfigError("env", place, hint=hint, problem=problem) from error
    try:
        if getattr(env, "metadata", {}).get("is_parallelizable", False):
            return conversions.aec_to_parallel(env)
        return conversions.turn_based_aec_to_parallel(env)
    except AttributeError as error:
        problem = (
            f"the agents of {place} take turns, but it is not an AECEnv of PettingZoo: {error}"
        )
        hint = "derive its class from pettingzoo.AECEnv"
        raise ConfigError("env", place, hint=hint, problem=problem) from error


def _by_agent(env: Any, kind: str) -> Spaces | None:
    """Return agent → space of an environment in RLlib's form; None if it declares none.

    `kind` is ``observation_space`` or ``action_space``.
    """
    if not (hasattr(env, "possible_agents") or hasattr(env, "get_agent_ids")):
        return None
    found = getattr(env, f"{kind}s", None) or getattr(env, kind, None)
    if isinstance(found, spaces.Dict):
        found = found.spaces
    return dict(found) if isinstance(found, Mapping) else None


def _read_parallel(env: Any, returned: Any) -> _Stepped:
    """Check the result of a step of a parallel PettingZoo environment, and return its parts.

    The episode is over when no agent is left. Raises EnvContractError for any other result.
    """
    if not isinstance(returned, tuple) or len(returned) != 5:
        raise EnvContractError(
            f"step() returned {shorten(returned)}; expected (observations, rewards, terminations, "
            "truncations, infos), five dicts with agents as keys"
        )
    return _Stepped(*returned, is_over=not env.agents)


def _read_dicts(_: Any, returned: Any) -> _Stepped:
    """Check the result of a step of an environment in RLlib's form, and return its parts.

    The episode is over when ``__all__`` is set. Raises EnvContractError for any other result, and
    the environment's own exception if that is given in place of the observations.
    """
    if not isinstance(returned, tuple) or len(returned) != 5:
        raise EnvContractError(
            f"step() returned {shorten(returned)}; expected (observations, rewards, terminateds, "
            f"truncateds, infos), five dicts with agents as keys; terminateds and truncateds also "
            f"have the key {ALL}"
        )
    observations, rewards, terminated, truncated, infos = returned
    if isinstance(observations, Exception):
        if not terminated.get(ALL):
            raise EnvContractError(
                f"step() returned the exception {observations!r} in place of observations, but "
                f"terminateds has no {ALL}: True; end the episode of an environment that failed "
                "for all agents"
            )
        raise observations
    if ALL not in terminated and ALL not in truncated:
        raise EnvContractError(
            f"step() gave terminateds {shorten(terminated)} and truncateds "
            f"{shorten(truncated)}; expected the key {ALL} in one of them, which says "
            "whether the episode is over for all agents"
        )
    ends = bool(terminated.get(ALL)), bool(truncated.get(ALL))
    cut = {**truncated, ALL: ends[1] and not ends[0]}
    return _Stepped(observations, rewards, terminated, cut, infos or {}, is_over=any(ends))
