"""The sampler of several agents: environments stepped, agents that come and go, whose policy acts.

A tick: of every environment the agents that have an observation → one batched decision per policy
→ a dict of actions for each environment → what came of it, agent by agent. An agent is given its
policy when it first appears in an episode, and has it for the episode. N environments.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.agents import Seen
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionAdapter
from trainables.envs.spaces.observations import Rows, make_preprocessor
from trainables.envs.vector.base import Step, VectorEnv
from trainables.envs.vector.config import VectorConfig
from trainables.errors import ConfigError, EnvError
from trainables.policies.actor import Actor
from trainables.policies.filters import Filter
from trainables.rollout.agents.transitions import Row, Transitions
from trainables.rollout.batch import Fragment
from trainables.rollout.config import SamplingConfig
from trainables.rollout.episode import EpisodeTracker
from trainables.rollout.metrics import EpisodesInFlight, RolloutMetrics
from trainables.rollout.progress import PerfConfig, PerfStats

Array = NDArray[Any]
RECENT_ROWS = 64
#: (agent, number of its episode in the trial) → its policy.
Mapper = Callable[[str, int], str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PolicyPlan:
    """How one policy acts in a worker; it travels to children."""

    make_actor: Callable[[], Actor]
    spaces: EnvSpaces
    columns: frozenset[str]
    """Of fragments, beside those that every one has and those that the actor declares."""
    learns: bool
    """False: its filter stands still, too."""


class CollectedByPolicy(NamedTuple):
    """What one `AgentsSampler.sample` collected."""

    fragments: dict[str, list[Fragment]]
    """Policy → its fragments; absent without a transition."""
    env_steps: int
    episodes: list[RolloutMetrics]
    """Those that ended, in the order of their end."""
    recent: dict[str, Array]
    """Policy → (≤ 64, D) the latest raw observations."""


@dataclass
class _Episode:
    """The running episode of one environment."""

    number: int
    """No two in a trial are alike."""
    policies: dict[str, str] = field(default_factory=dict)
    """Agent → its policy, for the episode."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum so far."""
    waiting: dict[str, Array] = field(default_factory=dict)
    """Agent → (*S) the raw observation on which it acts in the next tick."""
    open: dict[str, int] = field(default_factory=dict)
    """Agent → the row of its policy of which it is not known yet what follows."""
    lanes: dict[str, int] = field(default_factory=dict)
    """Agent → its trajectory's lane."""
    steps: dict[str, int] = field(default_factory=dict)
    """Agent → steps of its trajectory."""
    memory: dict[str, Array] = field(default_factory=dict)
    """Agent → (M,) with which its policy sees the next observation."""
    acted: int = 0
    """Decisions of all agents in it."""


class AgentsSampler:
    """Steps N environments of several agents.

    Args:
        name: how errors call it, for example ``worker 0``.
        config: how to sample.
        plans: policy → how it acts.
        envs: are stepped; their observations are `trainables.envs.agents.Seen`.
        ends: how they are cut off.
        actors: by policy; they are shared with their owner.
        filters: by policy; likewise.
        mapper: gives an agent its policy.
        agents: agent → its spaces.
        steps: that one `sample` has to bring: of environments, or of agents with `agent_steps`.
        agent_steps: what `steps` are.
        seed: of the trial.
        worker: index of the worker, and the number of all.
    """

    film = None

    def __init__(
        self,
        name: str,
        config: SamplingConfig,
        plans: Mapping[str, PolicyPlan],
        *,
        envs: VectorEnv,
        ends: VectorConfig,
        actors: Mapping[str, Actor],
        filters: Mapping[str, Filter],
        mapper: Mapper,
        agents: Mapping[str, EnvSpaces],
        steps: int,
        agent_steps: bool,
        seed: int,
        worker: tuple[int, int],
    ) -> None:
        self.name = name
        self._config = config
        self._envs, self._ends = envs, ends
        self._plans = plans
        self._actors, self._filters = actors, filters
        self._mapper = mapper
        self._agents = agents
        self._steps, self._agent_steps = steps, agent_steps
        self._seed = seed
        index, workers = worker
        self._numbers = index * envs.count, workers * envs.count
        self.episodes = EpisodesInFlight(envs.count)
        self.perf = PerfStats(PerfConfig())
        self.latest: dict[str, Any] = {}
        self.watch: EpisodeTracker | None = None
        """Where there are callbacks: what calls them."""
        self._streams = {pid: rng.generator(seed, "policy", index, pid) for pid in plans}
        self._missing = rng.generator(seed, "missing observations", index)
        clip = config.clip_rewards
        self._transitions = {
            pid: Transitions(
                f"{name}, policy {pid}", actors[pid], filters[pid], plan.spaces, plan.columns, clip
            )
            for pid, plan in plans.items()
        }
        self._sent = {
            pid: ActionAdapter(plan.spaces.action, config.clip_actions)
            for pid, plan in plans.items()
        }
        self._as_rows = {
            pid: Rows(plan.spaces.observation, f"{name}, policy {pid}")
            for pid, plan in plans.items()
        }
        self._recent: dict[str, deque[Array]] = {pid: deque(maxlen=RECENT_ROWS) for pid in plans}
        self._running: list[_Episode] = []
        self._infos: Mapping[str, Any] = {}
        self._warned = False
        for pid in plans:
            self._refuse_stateful(pid)

    def start(self, seeds: list[int]) -> None:
        """Begin the first episode of every environment."""
        every = range(self._envs.count)
        if self.watch:
            self.watch.create(every)
        seen = self._envs.reset(seeds)
        if self.watch:
            self.watch.start(every, seen)
        self._running = [self._begun(env, one) for env, one in enumerate(seen)]

    # ---- sampling --------------------------------------------------------------------------------

    def sample(self, stream: np.random.Generator) -> CollectedByPolicy:
        """Steps until there are enough; each policy draws from a stream of its own."""
        for recent in self._recent.values():
            recent.clear()
        fragments: dict[str, list[Fragment]] = {}
        episodes: list[RolloutMetrics] = []
        whole = self._config.batch_mode == "complete_episodes"
        counted = env_steps = 0
        while counted < self._steps:
            ticks = 0
            while ticks < self._config.rollout_fragment_length or whole:
                more = self._tick(episodes, whole)
                counted += more[0] if self._agent_steps else more[1]
                env_steps += more[1]
                ticks += 1
                if counted >= self._steps and (whole or self._agent_steps):
                    break
            taken = self._take(whole)
            for pid, fragment in taken.items():
                fragments.setdefault(pid, []).append(fragment)
            self._warn_if_idle(taken, ticks)
        latest = {pid: np.stack(rows) for pid, rows in self._recent.items() if rows}
        return CollectedByPolicy(fragments, env_steps, episodes, latest)

    def _tick(self, episodes: list[RolloutMetrics], whole: bool) -> tuple[int, int]:
        """One step of every environment.

        Returns:
            Steps of agents and of environments; where episodes stay `whole`, those of the episodes
            that ended in it.
        """
        clock = time.perf_counter
        began = clock()
        asked = self._asked()
        processed = clock()
        actions: list[dict[str, Any]] = [{} for _ in self._running]
        for pid, who in asked.items():
            for (env_index, agent), action in zip(who, self._decide(pid, who), strict=True):
                actions[env_index][agent] = action
        decided = clock()
        step = self._envs.step(actions)  # type: ignore[arg-type]  # a dict for each environment
        self.perf.add(began, processed, decided, decided, clock())
        over = step.terminated | step.truncated
        lengths = self.episodes.lengths + 1
        for env_index in range(self._envs.count):
            self._settle(env_index, step, bool(over[env_index]))
        ended = over.copy()
        ended[list(step.faults)] = True
        written = self.watch.after_step(step, 0) if self.watch else {}
        finished = self.episodes.step(step.rewards, ended, step.faults, None, written)
        acted = 0
        for env_index, metrics in zip(np.flatnonzero(ended).tolist(), finished, strict=True):
            acted += 0 if metrics.faulty else self._running[env_index].acted
            episodes.append(self._ended(env_index, metrics, step))
        if whole:
            return acted, int(lengths[over].sum())
        return sum(map(len, asked.values())), self._envs.count

    def _asked(self) -> dict[str, list[tuple[int, str]]]:
        """Policy → the agents that act in this tick, environment after environment."""
        asked: dict[str, list[tuple[int, str]]] = {}
        for env_index, episode in enumerate(self._running):
            for agent in episode.waiting:
                asked.setdefault(episode.policies[agent], []).append((env_index, agent))
        return {pid: asked[pid] for pid in self._plans if pid in asked}

    def _decide(self, pid: str, who: Sequence[tuple[int, str]]) -> Array:
        """One batched decision of a policy, written down; the actions as environments take them."""
        running, transitions, actor = self._running, self._transitions[pid], self._actors[pid]
        seen = [running[env].waiting.pop(agent) for env, agent in who]
        self._recent[pid].extend(seen[-RECENT_ROWS:])
        observations = np.stack(seen)
        filtered = self._filters[pid](observations, update=self._plans[pid].learns)
        memory = actor.initial_memory(len(who))
        if actor.memory_size:
            for i, (env, agent) in enumerate(who):
                memory[i] = running[env].memory.get(agent, memory[i])
        acted = actor.act(filtered, memory, self._streams[pid])
        rows = []
        for env, agent in who:
            episode = running[env]
            rows.append(Row(episode.lanes[agent], episode.steps[agent], episode.number))
            episode.steps[agent] += 1
            episode.acted += 1
        first = transitions.decided(filtered, memory, acted, rows)
        for i, (env, agent) in enumerate(who):
            running[env].open[agent] = first + i
            if actor.memory_size:
                running[env].memory[agent] = acted.memory[i]
        return self._sent[pid](acted.actions)

    # ---- what came of a step ---------------------------------------------------------------------

    def _settle(self, env_index: int, step: Step, over: bool) -> None:
        """Write down what a step of one environment gave to each of its agents."""
        episode = self._running[env_index]
        if env_index in step.faults:
            for transitions in self._transitions.values():
                transitions.drop_episode(episode.number)
            return
        seen: Seen = step.final_observations[env_index] if over else step.observations[env_index]
        self._infos = step.infos.get(env_index, {}).get("agents", {})
        ends = {*seen["terminated"], *seen["truncated"]}
        new = [] if over else [a for a in seen["observations"] if a not in ends]
        self._reward(env_index, episode, seen["rewards"], ends if not over else self._agents)
        for agent in [one for one in self._agents if one in episode.open]:
            if agent in ends or over:
                dead = bool(step.terminated[env_index]) and agent not in seen["truncated"]
                dead = dead or agent in seen["terminated"]
                self._end(env_index, episode, agent, seen["observations"].get(agent), dead)
            elif agent in seen["observations"]:
                observation = self._observed(episode, agent, seen["observations"][agent])
                self._close(episode, agent, observation)
                episode.waiting[agent] = observation
        for agent in new:
            if agent not in episode.waiting:
                self._appear(env_index, episode, agent, seen["observations"][agent])

    def _reward(
        self,
        env_index: int,
        episode: _Episode,
        rewards: Mapping[str, float],
        ended: Container[str],
    ) -> None:
        """Count rewards; one that appears with it has its policy, unless it has `ended`."""
        for agent, reward in rewards.items():
            if agent not in episode.policies:
                if agent in ended:
                    continue
                self._bind(env_index, episode, agent)
            episode.rewards[agent] += reward
            if agent in episode.open:
                self._row(episode, agent).reward += reward

    def _row(self, episode: _Episode, agent: str) -> Row:
        return self._transitions[episode.policies[agent]].rows[episode.open[agent]]

    def _close(self, episode: _Episode, agent: str, observation: Array | None) -> Row:
        row = self._row(episode, agent)
        del episode.open[agent]
        row.known, row.after = True, observation
        row.info = self._infos.get(agent)
        row.memory = episode.memory.get(agent)
        row.valid = bool((row.info or {}).get("training_enabled", True))
        return row

    def _end(
        self, env_index: int, episode: _Episode, agent: str, given: Array | None, dead: bool
    ) -> None:
        """An agent's trajectory ends, whether it is terminated or cut off."""
        lasting = self._ends.no_done_at_end
        pid = episode.policies[agent]
        if given is not None:
            observation = self._observed(episode, agent, given)
        elif dead and not lasting:
            observation = self._made_up(pid)
        elif lasting:
            self._row(episode, agent).dropped = True
            self._leave(episode, agent)
            return
        else:
            raise EnvError(
                f"{self.name}, environment {env_index}, episode {episode.number}: agent {agent!r} "
                "was cut off without a last observation, whose value goes on; give it one in the "
                "step that ends the episode, or set no_done_at_end: true, which leaves out its "
                "last step"
            )
        row = self._close(episode, agent, observation)
        row.terminated, row.truncated = dead and not lasting, not dead or lasting
        self._leave(episode, agent)

    def _leave(self, episode: _Episode, agent: str) -> None:
        """Its lane is free again; it may come back in another trajectory."""
        for one in (episode.open, episode.lanes, episode.steps, episode.memory):
            one.pop(agent, None)

    def _appear(self, env_index: int, episode: _Episode, agent: str, given: Array) -> None:
        """An agent begins a trajectory."""
        if agent not in episode.policies:
            self._bind(env_index, episode, agent)
        pid = episode.policies[agent]
        taken = {lane for one, lane in episode.lanes.items() if episode.policies[one] == pid}
        episode.lanes[agent] = self._transitions[pid].lane(env_index, taken)
        episode.steps[agent] = 0
        episode.waiting[agent] = self._observed(episode, agent, given)

    def _bind(self, env_index: int, episode: _Episode, agent: str) -> None:
        pid = self._mapper(agent, episode.number)
        if pid not in self._plans:
            raise ConfigError(
                "multiagent.policy_mapping_fn",
                pid,
                f"one of {', '.join(self._plans)}",
                f"it gave that for agent {agent!r} of environment {env_index}",
            )
        own, policy = self._agents[agent], self._plans[pid].spaces
        if (own.observation, own.action) != (policy.observation, policy.action):
            raise ConfigError(
                "multiagent.policy_mapping_fn",
                pid,
                f"a policy with the spaces of agent {agent!r}",
                f"the agent sees {own.raw} and does {own.action}; the policy sees {policy.raw} "
                f"and does {policy.action}",
            )
        episode.policies[agent] = pid
        episode.rewards[agent] = 0.0

    def _observed(self, episode: _Episode, agent: str, given: Array) -> Array:
        """(*S) of its own: an environment may write into what it gave."""
        row: Array = self._as_rows[episode.policies[agent]](np.asarray(given)[None])[0]
        return row

    def _made_up(self, pid: str) -> Array:
        """An observation that nothing is learnt from, as a terminated agent has no future."""
        space = self._plans[pid].spaces.raw
        space.seed(int(self._missing.integers(2**31)))
        row: Array = self._as_rows[pid](make_preprocessor(space)(space.sample())[None])[0]
        return row

    # ---- episodes --------------------------------------------------------------------------------

    def _begun(self, env_index: int, seen: Seen) -> _Episode:
        """The next episode of an environment."""
        own, every = self._numbers
        number = int(self.episodes.counts[env_index]) * every + own + env_index
        episode = _Episode(number)
        for agent, given in seen["observations"].items():
            self._appear(env_index, episode, agent, given)
        return episode

    def _ended(self, env_index: int, metrics: RolloutMetrics, step: Step) -> RolloutMetrics:
        """What is said of an episode; the next one begins."""
        episode = self._running[env_index]
        if not episode.acted and not metrics.faulty:
            raise EnvError(
                f"{self.name}, environment {env_index}, episode {episode.number}: it ended after "
                f"{metrics.length} step(s) without an observation of any agent; give one to each "
                "agent that shall act, in reset() or step()"
            )
        for transitions in self._transitions.values():
            transitions.end_episode(episode.number)
        self._running[env_index] = self._begun(env_index, step.observations[env_index])
        rewards = {a: [episode.policies[a], total] for a, total in episode.rewards.items()}
        return metrics._replace(agent_rewards=rewards)

    def drop_episode(self, env_index: int, observation: Any) -> None:
        """Forget the running episode of one; its next begins with what is `Seen`."""
        for transitions in self._transitions.values():
            transitions.drop_episode(self._running[env_index].number)
        self.episodes.drop(env_index)
        self._running[env_index] = self._begun(env_index, observation)

    # ---- fragments -------------------------------------------------------------------------------

    def _take(self, whole: bool) -> dict[str, Fragment]:
        """Policy → what its agents did since the last call."""
        taken: dict[str, Fragment] = {}
        for pid, transitions in self._transitions.items():
            fragment, moved = transitions.take(whole)
            if fragment is not None:
                taken[pid] = fragment
            for episode in self._running:
                of = episode.policies
                for agent in [a for a in episode.open if of[a] == pid]:
                    episode.open[agent] = moved[episode.open[agent]]
        return taken

    def _warn_if_idle(self, taken: Mapping[str, Fragment], ticks: int) -> None:
        if taken or self._warned:
            return
        self._warned = True
        logger.warning(
            "%s: %d steps of each environment passed without an agent that was asked to act; does "
            "it give observations to the agents that shall?",
            *(self.name, ticks),
        )

    def _refuse_stateful(self, pid: str) -> None:
        exploration = self._actors[pid].exploration
        exploration.begin(0)
        if exploration.get_state():
            hint = "agents come and go, so its noise has no step to follow"
            allowed = "one whose noise does not go on from step to step, with several agents"
            raise ConfigError("exploration_config", type(exploration).__name__, allowed, hint)

    # ---- state -----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Entries ``episodes``, ``running``, ``transitions``, ``streams`` and ``missing``."""
        running = []
        for one in self._running:
            arrays = {"waiting": _listed(one.waiting), "memory": _listed(one.memory)}
            plain = {n: dict(getattr(one, n)) for n in PLAIN}
            running.append({"number": one.number, "acted": one.acted, **plain, **arrays})
        return {
            "episodes": self.episodes.get_state(),
            "running": running,
            "transitions": {pid: one.get_state() for pid, one in self._transitions.items()},
            "streams": {pid: rng.get_generator_state(one) for pid, one in self._streams.items()},
            "missing": rng.get_generator_state(self._missing),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.episodes.set_state(state["episodes"])
        self._running = [
            _Episode(
                number=int(one["number"]),
                acted=int(one["acted"]),
                waiting={agent: np.array(row) for agent, row in one["waiting"]},
                memory={agent: np.array(row) for agent, row in one["memory"]},
                **{name: dict(one[name]) for name in PLAIN},
            )
            for one in state["running"]
        ]
        for pid, transitions in self._transitions.items():
            transitions.set_state(state["transitions"][pid])
            rng.set_generator_state(self._streams[pid], state["streams"][pid])
        rng.set_generator_state(self._missing, state["missing"])


#: Fields of an episode that are dicts of plain values.
PLAIN = ("policies", "rewards", "open", "lanes", "steps")


def _listed(rows: Mapping[str, Array]) -> list[list[Any]]:
    """In their order, which decides the order of rows in a decision."""
    return [[agent, row.copy()] for agent, row in rows.items()]
