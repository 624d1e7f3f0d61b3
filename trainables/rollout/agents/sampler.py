"""The sampler of several agents: environments stepped, agents that come and go, whose policy acts.

A tick: of every environment the agents that have an observation → one batched decision per policy
→ a dict of actions for each environment → what came of it, agent by agent. An agent is given its
policy when it first appears in an episode, and has it for the episode. N environments.
"""

import logging
import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.agents import Seen
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.envs.vector.base import Step, VectorEnv
from trainables.envs.vector.config import VectorConfig
from trainables.errors import ConfigError, EnvError, NotFiniteError
from trainables.policies.acting.actor import Acted, Actor
from trainables.policies.exploration.actions import require_stateless
from trainables.policies.filters import Filter, MeanStdFilter, RewardScaler, is_filtering
from trainables.policies.inference import InferencePolicy
from trainables.rollout.agent_records import Cast
from trainables.rollout.agents.transitions import Row, Transitions
from trainables.rollout.batch import Fragment
from trainables.rollout.config import SamplingConfig
from trainables.rollout.episode import Episode, EpisodeTracker
from trainables.rollout.metrics import EpisodesInFlight, RolloutMetrics
from trainables.rollout.progress import PerfConfig, PerfStats
from trainables.rollout.recording import VideoRecorder
from trainables.rollout.samplers.episodes import warn_of_long_episodes

Array = NDArray[Any]
RECENT_ROWS = 64
#: (agent, number of its episode in the trial, or another name of it) → its policy.
Mapper = Callable[[str, int | str], str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PolicyPlan:
    """Actor, spaces and columns of one policy in a worker; it travels to children."""

    make_actor: Callable[[], Actor]
    spaces: EnvSpaces
    columns: frozenset[str]
    """Of fragments, beside those that every one has and those that the actor declares."""
    learns: bool
    """False: its filter stands still, too."""
    gamma: float
    """With which returns are discounted that scale rewards."""
    unfiltered: bool = False
    """True if its fragments are as `WorkerSpec.unfiltered` says."""


class CollectedByPolicy(NamedTuple):
    """The fragments of one call of `AgentsSampler.sample`, by policy."""

    fragments: dict[str, list[Fragment]]
    """Policy → its fragments; absent without a transition."""
    env_steps: int
    counted: int
    """Steps as they were asked for, of environments or of agents."""
    episodes: list[RolloutMetrics]
    """Those that ended, in the order of their end."""
    recent: dict[str, Array]
    """Policy → (≤ 64, D) the latest raw observations."""


@dataclass
class RunningEpisode:
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
    """Agent → (M + L,) with which its policy sees the next observation: the policy's memory, and
    what the connectors carry."""
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
        filters: by policy, and `of_rewards` where rewards are normalised; likewise.
        mapper: gives an agent its policy.
        agents: agent → its spaces.
        steps: that one `sample` has to bring: of environments, or of agents with `agent_steps`.
        agent_steps: what `steps` are.
        seed: of the trial.
        worker: index of the worker, and the number of all.
    """

    known_as = "several agents"
    at_own_pace = False
    """True if a sample is one fragment, as long as it takes."""

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
        self._plans: Mapping[str, PolicyPlan] = {}
        self._actors, self._filters = actors, filters
        self._agents = agents
        self._order = {agent: i for i, agent in enumerate(agents)}
        self._steps, self._agent_steps = steps, agent_steps
        self._seed = seed
        self._worker = worker
        self._index, workers = worker
        self._numbers = self._index * envs.count, workers * envs.count
        self.episodes = EpisodesInFlight(envs.count)
        self.perf = PerfStats(PerfConfig())
        self.latest: dict[str, Any] = {}
        self.watch: EpisodeTracker | None = None
        """The tracker that calls the callbacks, if there are any."""
        self.film: VideoRecorder | None = None
        """The recorder of the first environment, if a video is wanted."""
        self._missing = rng.generator(seed, "missing observations", self._index)
        self._streams: dict[str, np.random.Generator] = {}
        self._transitions: dict[str, Transitions] = {}
        self._connectors: dict[str, Connectors] = {}
        self._recent: dict[str, deque[Array]] = {}
        self._running: dict[Any, RunningEpisode] = {}
        """Environment → its episode."""
        self._players: dict[str, InferencePolicy] = {}
        """Policy → what plays with it, for callbacks that ask about agents."""
        self._asked_ahead: dict[int, dict[str, str]] = {}
        """Number of an episode → agent → its policy, where a callback asked before the agent
        appeared."""
        self._infos: Mapping[str, Any] = {}
        self._spent: Array = np.zeros(2)
        """Seconds of this tick in which observations were processed, and policies acted."""
        self._warned = self._warned_of_length = False
        self.have(plans, mapper, frozenset(plans))

    def have(
        self, plans: Mapping[str, PolicyPlan], mapper: Mapper, anew: Container[str]
    ) -> list[int]:
        """Act by these policies from now on; nothing is known yet of those that are `anew`.

        Returns:
            The environments in whose running episode an agent has a policy that is no more: those
            are to be dropped.
        """
        kept = {pid for pid in self._plans if pid in plans and pid not in anew}
        self._plans, self._mapper = plans, mapper
        for pid in [one for one in plans if one not in kept]:
            self._begin_policy(pid)
        for own in (
            *(self._streams, self._transitions, self._connectors, self._recent),
            self._players,
        ):
            in_order(own, plans)
        bound = {env: {*one.policies.values()} for env, one in self._running.items()}
        return [env for env, pids in bound.items() if pids - kept]

    def _begin_policy(self, pid: str) -> None:
        plan, called, config = self._plans[pid], self._called(pid), self._config
        self._streams[pid] = rng.generator(self._seed, "policy", self._index, pid)
        self._connectors[pid] = plan.spaces.connected(
            called,
            self._filters[pid],
            config.clip_actions,
            config.spreads_actions,
            exact=is_filtering(self._filters[pid]),
        )
        self._transitions[pid] = Transitions(
            called,
            self._actors[pid],
            self._connectors[pid],
            plan.spaces,
            plan.columns,
            self._worker,
            config.clip_rewards,
            self._scaler(pid),
            unfiltered=plan.unfiltered,
        )
        self._recent[pid] = deque(maxlen=RECENT_ROWS)
        self._players[pid] = InferencePolicy(self._actors[pid], plan.spaces, self._connectors[pid])
        require_stateless(self._actors[pid].exploration, self.known_as)

    def _called(self, pid: str) -> str:
        """Return the beginning of errors about a policy's transitions."""
        return f"{self.name}, policy {pid}"

    def _subject(self, what: str, pid: str) -> str:
        """Return the name under which a subject of a policy is logged."""
        return f"{what} of policy {pid}"

    def _scaler(self, pid: str) -> RewardScaler | None:
        stat = self._filters.get(of_rewards(pid))
        gamma = self._plans[pid].gamma
        return RewardScaler(0, gamma, stat) if isinstance(stat, MeanStdFilter) else None

    def start(self, seeds: list[int]) -> None:
        """Begin the first episode of every environment."""
        every = range(self._envs.count)
        if self.watch:
            self.watch.create(every)
        seen = self._envs.reset(seeds)
        if self.watch:
            self.watch.start(every, seen)
        self._running = {env: self._begun(env, one) for env, one in enumerate(seen)}
        if self.film:
            self.film.begin(1)

    @property
    def times(self) -> dict[str, float]:
        """Mean times of ticks, of each policy's connectors under `PREFIX`.

        Those at the environments are of all agents together.
        """
        seconds = {
            f"{pid}/{name}": one
            for pid, connectors in self._connectors.items()
            for name, one in connectors.seconds.items()
        }
        return {
            **self.perf.means(),
            **self.perf.connectors({**self._envs.connector_seconds(), **seconds}),
        }

    @property
    def described(self) -> dict[str, list[str]]:
        """Policy → what stands between the environments and it, and between it and them."""
        return {pid: one.described() for pid, one in self._connectors.items()}

    # ---- sampling --------------------------------------------------------------------------------

    def sample(self, stream: np.random.Generator) -> CollectedByPolicy:
        """Steps until there are enough; each policy draws from a stream of its own."""
        for recent in self._recent.values():
            recent.clear()
        fragments: dict[str, list[Fragment]] = {}
        episodes: list[RolloutMetrics] = []
        config = self._config
        whole = config.batch_mode == "complete_episodes"
        counted = env_steps = 0
        at_once = whole or self.at_own_pace
        while counted < self._steps:
            ticks = 0
            while ticks < config.rollout_fragment_length or at_once:
                more = self._tick(episodes, whole)
                counted += more[0] if self._agent_steps else more[1]
                env_steps += more[1]
                ticks += 1
                if whole and not self._warned_of_length:
                    lengths = self._unfinished()
                    self._warned_of_length = warn_of_long_episodes(self.name, config, lengths)
                if counted >= self._steps and (at_once or self._agent_steps):
                    break
            taken = self._take(whole)
            for pid, fragment in taken.items():
                fragments.setdefault(pid, []).append(fragment)
            self._warn_if_idle(taken, ticks)
        latest = {pid: np.stack(rows) for pid, rows in self._recent.items() if rows}
        return CollectedByPolicy(fragments, env_steps, counted, episodes, latest)

    def _unfinished(self) -> Array:
        """Return the lengths of the running episodes, in steps of their environments."""
        return self.episodes.lengths

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
        actions: dict[Any, dict[str, Any]] = {env: {} for env in self._running}
        for pid, who in asked.items():
            for (env_index, agent), action in zip(who, self._decide(pid, who), strict=True):
                actions[env_index][agent] = action
        deciding = clock() - processed
        step = self._envs.step([*actions.values()])  # type: ignore[arg-type]  # a dict for each
        self.latest.setdefault("infos", step.infos)
        self._count_times(processed - began, deciding, clock() - processed - deciding)
        over = step.terminated | step.truncated
        lengths = self.episodes.lengths + 1
        for env_index in self._running:
            self._settle_step(env_index, step, bool(over[env_index]), int(lengths[env_index]))
        ended = over.copy()
        ended[list(step.faults)] = True
        written = self.watch.after_step(step, 0) if self.watch else {}
        if self.film:
            self.perf.add_rendering(self.film.after_step(bool(ended[0])))
        finished = self.episodes.step(step.rewards, ended, step.faults, None, written)
        acted = 0
        for env_index, metrics in zip(np.flatnonzero(ended).tolist(), finished, strict=True):
            acted += 0 if metrics.faulty else self._running[env_index].acted
            episodes.append(self._ended(env_index, metrics, step))
        if whole:
            return acted, int(lengths[over].sum())
        return sum(map(len, asked.values())), self._envs.count

    def _asked(self) -> dict[str, list[tuple[Any, str]]]:
        """Policy → the agents that act in this tick, environment after environment."""
        asked: dict[str, list[tuple[Any, str]]] = {}
        for env, episode in self._running.items():
            for agent in episode.waiting:
                asked.setdefault(episode.policies[agent], []).append((env, agent))
        return {pid: asked[pid] for pid in self._plans if pid in asked}

    def _decide(self, pid: str, who: Sequence[tuple[Any, str]]) -> Array:
        """One batched decision of a policy, written down; the actions as environments take them."""
        running, transitions, actor = self._running, self._transitions[pid], self._actors[pid]
        began = time.perf_counter()
        seen = [running[env].waiting.pop(agent) for env, agent in who]
        self._recent[pid].extend(seen[-RECENT_ROWS:])
        connectors, size = self._connectors[pid], actor.memory_size
        memory = np.hstack([actor.initial_memory(len(who)), connectors.initial(len(who))])
        if memory.size:
            for i, (env, agent) in enumerate(who):
                memory[i] = running[env].memory.get(agent, memory[i])
        memory, carried = memory[:, :size], memory[:, size:]
        plan, raw = self._plans[pid], np.stack(seen)
        if plan.unfiltered:
            filtered, stored, carried = connectors.observe_both(raw, carried, plan.learns)
        else:
            filtered, carried = connectors.observe(raw, carried, plan.learns)
            stored = filtered
        processed = time.perf_counter()
        acted = self._done(pid, who, filtered, memory)
        self._spent += processed - began, time.perf_counter() - processed
        self._keep_latest(pid, filtered, acted)
        following = np.hstack([acted.memory, connectors.acted(carried, acted.actions)])
        rows = []
        for env, agent in who:
            episode = running[env]
            which = self._order[agent]
            rows.append(Row(episode.lanes[agent], episode.steps[agent], episode.number, which))
            episode.steps[agent] += 1
            episode.acted += 1
        first = transitions.decided(stored, memory, acted, rows)
        for i, (env, agent) in enumerate(who):
            running[env].open[agent] = first + i
            if following.size:
                running[env].memory[agent] = following[i]
            if (seen_by := self._watched(env)) is not None:
                outputs = acted.outputs_of(i, actor.fetches)
                seen_by.note_decision(agent, acted.actions[i], following[i], outputs)
        return connectors.send(acted.actions)

    def _count_times(self, asking: float, deciding: float, stepping: float) -> None:
        """Count the seconds of a tick.

        Args:
            asking: until it was known who acts.
            deciding: then, until the environments were sent their actions.
            stepping: then.
        """
        seeing, acting = self._spent.tolist()
        self._spent[:] = 0.0
        parts = [0.0, asking + seeing, acting, deciding - seeing - acting, stepping]
        self.perf.add(*np.cumsum(parts).tolist())

    def _keep_latest(self, pid: str, filtered: Array, acted: Acted) -> None:
        """Keep what is logged of a policy's decisions, if nothing is kept yet."""
        for what, one in (("policy inputs", filtered), ("policy outputs", acted)):
            self.latest.setdefault(self._subject(what, pid), one)

    def _watched(self, env_index: Any) -> Episode | None:
        """Return the running episode of an environment as callbacks see it; None without them."""
        return self.watch.running(env_index) if self.watch else None

    def _done(
        self, pid: str, who: Sequence[tuple[Any, str]], filtered: Array, memory: Array
    ) -> Acted:
        """Return the actions of these agents, drawn by their policy."""
        return self._actors[pid].act(filtered, memory, self._streams[pid])

    # ---- what came of a step ---------------------------------------------------------------------

    def _settle_step(self, env_index: int, step: Step, over: bool, length: int) -> None:
        """Write down what a step of one environment gave, or that it failed.

        `length` is the number of steps of its episode, this one included.
        """
        if env_index in step.faults:
            for transitions in self._transitions.values():
                transitions.drop_episode(self._running[env_index].number)
            return
        seen: Seen = step.final_observations[env_index] if over else step.observations[env_index]
        self._infos = step.infos.get(env_index, {}).get("agents", {})
        dead, limit = bool(step.terminated[env_index]), self._ends.hard_horizon
        is_cut = over and not dead and limit is not None and length >= limit
        self._settle(env_index, seen, over, dead, is_cut)

    def _settle(
        self, env_index: Any, seen: Seen, over: bool, dead: bool, is_cut: bool = False
    ) -> None:
        """Write down what a step of one environment gave to each of its agents.

        Where it is `over` for all of them, `dead` says that it was not only cut off, and `is_cut`
        that the horizon did so.
        """
        episode = self._running[env_index]
        ends = {*seen["terminated"], *seen["truncated"]}
        new = [] if over else [a for a in seen["observations"] if a not in ends]
        self._reward(env_index, episode, seen["rewards"], ends if not over else self._agents)
        for agent in [one for one in self._agents if one in episode.open]:
            if agent in ends or over:
                died = (dead and agent not in seen["truncated"]) or agent in seen["terminated"]
                shown = seen["observations"].get(agent)
                if shown is None and is_cut and agent not in ends:
                    self._leave_out(episode, agent)
                else:
                    self._end(env_index, episode, agent, shown, died)
            elif agent in seen["observations"]:
                observation = self._observed(episode, agent, seen["observations"][agent])
                self._close(episode, agent, observation)
                episode.waiting[agent] = observation
        for agent in new:
            if agent not in episode.waiting:
                self._appear(env_index, episode, agent, seen["observations"][agent])

    def _reward(
        self,
        env_index: Any,
        episode: RunningEpisode,
        rewards: Mapping[str, float],
        ended: Container[str],
    ) -> None:
        """Count rewards; one that appears with it has its policy, unless it has `ended`."""
        for agent, reward in rewards.items():
            if not math.isfinite(reward):
                where = f"{self.name}, environment {env_index}, episode {episode.number}"
                raise NotFiniteError(f"{where}: agent {agent!r} has the reward {reward}")
            if agent not in episode.policies:
                if agent in ended:
                    continue
                self._bind(env_index, episode, agent)
            episode.rewards[agent] += reward
            if agent in episode.open:
                self._row(episode, agent).reward += reward
            pid = episode.policies[agent]
            if agent in episode.memory and (carries := self._connectors[pid].memory_size):
                carried = episode.memory[agent][None, -carries:]
                carried[:] = self._connectors[pid].rewarded(carried, np.array([reward]))

    def _row(self, episode: RunningEpisode, agent: str) -> Row:
        return self._transitions[episode.policies[agent]].rows[episode.open[agent]]

    def _close(self, episode: RunningEpisode, agent: str, observation: Array | None) -> Row:
        row = self._row(episode, agent)
        del episode.open[agent]
        row.known, row.after = True, observation
        row.info = self._infos.get(agent)
        row.memory = episode.memory.get(agent)
        row.valid = bool((row.info or {}).get("training_enabled", True))
        return row

    def _end(
        self, env_index: Any, episode: RunningEpisode, agent: str, given: Array | None, dead: bool
    ) -> None:
        """An agent's trajectory ends, whether it is terminated or cut off."""
        lasting = self._ends.no_done_at_end
        pid = episode.policies[agent]
        if given is not None:
            observation = self._observed(episode, agent, given)
        elif dead and not lasting:
            observation = self._made_up(pid)
        elif lasting:
            self._leave_out(episode, agent)
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

    def _leave_out(self, episode: RunningEpisode, agent: str) -> None:
        """Leave out an agent's last decision, of which nobody knows what followed.

        Its environment did not know that the episode would end here, so an agent whose turn it was
        not has no observation whose value would go on. The decision before is bootstrapped instead.
        """
        self._transitions[episode.policies[agent]].drop_last(episode.open[agent])
        self._leave(episode, agent)

    def _leave(self, episode: RunningEpisode, agent: str) -> None:
        """Its lane is free again; it may come back in another trajectory."""
        for one in (episode.open, episode.lanes, episode.steps, episode.memory):
            one.pop(agent, None)

    def _appear(self, env_index: Any, episode: RunningEpisode, agent: str, given: Array) -> None:
        """An agent begins a trajectory."""
        if agent not in episode.policies:
            self._bind(env_index, episode, agent)
        episode.lanes[agent] = self._lane(env_index, episode, episode.policies[agent])
        episode.steps[agent] = 0
        episode.waiting[agent] = self._observed(episode, agent, given)

    def _lane(self, env_index: Any, episode: RunningEpisode, pid: str) -> int:
        """A lane of a policy that nobody is in."""
        taken = {lane for one, lane in episode.lanes.items() if episode.policies[one] == pid}
        return self._transitions[pid].lane(env_index, taken)

    def _bind(self, env_index: Any, episode: RunningEpisode, agent: str) -> None:
        ahead = self._asked_ahead.get(episode.number, {})
        pid = ahead.get(agent) or self._policy_of(env_index, episode.number, agent)
        episode.policies[agent] = pid
        episode.rewards[agent] = 0.0

    def _policy_of(self, env_index: Any, episode: int | str, agent: str) -> str:
        """Return the policy that the mapping names; ConfigError if it cannot play this agent."""
        pid = self._mapper(agent, episode)
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
        return pid

    def cast(self, env_index: Any, before: int) -> Cast:
        """Return who plays the episode of an environment that has had `before` others."""
        own, every = self._numbers
        return self._cast(env_index, before * every + own + env_index)

    def _cast(self, env_index: Any, number: int) -> Cast:
        me = weakref.ref(self)  # it holds the episodes that hold this

        def policy_of(agent: str) -> str:
            sampler = me()
            assert sampler is not None  # noqa: S101 as it plays the episode
            return sampler._ahead(env_index, number, agent)

        return Cast(self._players, policy_of)

    def _ahead(self, env_index: Any, number: int, agent: str) -> str:
        """Return the policy of an agent that may not have appeared yet; it then has this one."""
        running = self._running.get(env_index)
        if running is not None and running.number == number and agent in running.policies:
            return running.policies[agent]
        if agent not in self._agents:
            raise ValueError(f"no agent {agent!r}; there are {', '.join(self._agents)}")
        ahead = self._asked_ahead.setdefault(number, {})
        if agent not in ahead:
            ahead[agent] = self._policy_of(env_index, number, agent)
        return ahead[agent]

    def _observed(self, episode: RunningEpisode, agent: str, given: Array) -> Array:
        """(*S) of its own: an environment may write into what it gave."""
        row: Array = self._connectors[episode.policies[agent]].rows(np.asarray(given)[None])[0]
        return row

    def _made_up(self, pid: str) -> Array:
        """An observation that nothing is learnt from, as a terminated agent has no future."""
        space, connectors = self._plans[pid].spaces.raw, self._connectors[pid]
        space.seed(int(self._missing.integers(2**31)))
        row: Array = connectors.rows(connectors.at_env.observe_all([space.sample()]))[0]
        return row

    # ---- episodes --------------------------------------------------------------------------------

    def _begun(self, env_index: int, seen: Seen) -> RunningEpisode:
        """The next episode of an environment."""
        own, every = self._numbers
        number = int(self.episodes.counts[env_index]) * every + own + env_index
        episode = RunningEpisode(number)
        for agent, given in seen["observations"].items():
            self._appear(env_index, episode, agent, given)
        return episode

    def _ended(self, env_index: int, metrics: RolloutMetrics, step: Step) -> RolloutMetrics:
        """Return an episode's metrics with those of its agents, and begin the next episode."""
        episode = self._running[env_index]
        if not episode.acted and not metrics.faulty:
            raise EnvError(
                f"{self.name}, environment {env_index}, episode {episode.number}: it ended after "
                f"{metrics.length} step(s) without an observation of any agent; give one to each "
                "agent that shall act, in reset() or step()"
            )
        for transitions in self._transitions.values():
            transitions.end_episode(episode.number)
        self._asked_ahead.pop(episode.number, None)
        self._running[env_index] = self._begun(env_index, step.observations[env_index])
        rewards = {a: [episode.policies[a], total] for a, total in episode.rewards.items()}
        return metrics._replace(agent_rewards=rewards)

    def drop_episode(self, env_index: int, observation: Any) -> None:
        """Forget the running episode of one; its next begins with what is `Seen`."""
        for transitions in self._transitions.values():
            transitions.drop_episode(self._running[env_index].number)
        self._asked_ahead.pop(self._running[env_index].number, None)
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
            for episode in self._running.values():
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

    # ---- state -----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Entries ``episodes``, ``running``, ``transitions``, ``streams`` and ``missing``."""
        running = []
        for one in self._running.values():
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
        self._running = {
            env: RunningEpisode(
                number=int(one["number"]),
                acted=int(one["acted"]),
                waiting={agent: np.array(row) for agent, row in one["waiting"]},
                memory={agent: np.array(row) for agent, row in one["memory"]},
                **{name: dict(one[name]) for name in PLAIN},
            )
            for env, one in enumerate(state["running"])
        }
        for pid, transitions in self._transitions.items():
            transitions.set_state(state["transitions"][pid])
            rng.set_generator_state(self._streams[pid], state["streams"][pid])
        rng.set_generator_state(self._missing, state["missing"])


#: Fields of an episode that are dicts of plain values.
PLAIN = ("policies", "rewards", "open", "lanes", "steps")


def of_rewards(pid: str) -> str:
    """The name of a policy's filter of rewards, where its filter of observations has its own."""
    return f"{pid}/reward"


def in_order(own: dict[str, Any], policies: Iterable[str]) -> None:
    """Leave in `own` what is of these policies, in their order, which is that of checkpoints."""
    kept = {pid: own[pid] for pid in policies}
    own.clear()
    own.update(kept)


def _listed(rows: Mapping[str, Array]) -> list[list[Any]]:
    """In their order, which decides the order of rows in a decision."""
    return [[agent, row.copy()] for agent, row in rows.items()]
