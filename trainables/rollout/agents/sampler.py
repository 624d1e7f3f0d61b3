"""The sampler of several agents: steps environments whose agents appear and end at any time.

A tick: the agents of all environments that have an observation → one batched decision per policy →
a dict of actions for each environment → the consequences, agent by agent. An agent gets its policy
when it first appears in an episode and keeps it until the episode ends. N environments, *S the
shape of an observation, M numbers of the policy's memory, L of the connectors'.
"""

import logging
import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.kinds.agents import Seen
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.envs.vector.base import Step, VectorEnv
from trainables.envs.vector.config import VectorConfig
from trainables.errors import ConfigError, EnvError, NotFiniteError, shorten
from trainables.policies.acting.actor import Acted, Actor
from trainables.policies.acting.inference import InferencePolicy
from trainables.policies.exploration.actions import require_stateless
from trainables.policies.filters import Filter, MeanStdFilter, RewardScaler, is_filtering
from trainables.rollout.agents.episodes import (
    PLAIN,
    CollectedByPolicy,
    PolicyPlan,
    RunningEpisode,
    reward_filter_name,
)
from trainables.rollout.agents.transitions import Row, Transitions
from trainables.rollout.batch import Fragment
from trainables.rollout.config import SamplingConfig
from trainables.rollout.episodes.agent_records import EpisodePolicies
from trainables.rollout.episodes.episode import Episode, EpisodeTracker
from trainables.rollout.episodes.metrics import EpisodesInFlight, RolloutMetrics
from trainables.rollout.media.recording import VideoRecorder
from trainables.rollout.progress import PerfConfig, PerfStats
from trainables.rollout.samplers.episodes import warn_of_long_episodes

Array = NDArray[Any]
#: Maximum number of latest observations that are kept.
RECENT_ROWS = 64
#: Function of an agent and the number or name of its episode that returns the agent's policy.
Mapper = Callable[[str, int | str], str]

logger = logging.getLogger(__name__)


class AgentsSampler:
    """Steps N environments of several agents and collects the transitions of each policy.

    Args:
        name: name in errors, for example ``worker 0``.
        envs: environments; their observations are `trainables.envs.kinds.agents.Seen`.
        ends: settings of the ends of episodes (``horizon``, ``no_done_at_end``).
        actors: policy → actor, shared with the owner.
        filters: policy → filter of observations, and `reward_filter_name` → filter of rewards if
            rewards are normalised; shared with the owner.
        mapper: function (agent, episode number) → policy.
        agents: agent → its spaces.
        steps: minimum number of steps of one `sample`.
        agent_steps: True if `steps` counts agent steps, False for environment steps.
        worker: (index of the worker, number of workers).
    """

    environment_kind = "several agents"
    """Name of this kind of environment in errors."""
    has_one_fragment = False
    """True if a sample has one fragment per policy, however many steps it takes; False if a new
    fragment begins every ``rollout_fragment_length`` steps of the environments."""

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
        """Tracker that calls the callbacks; None if there are no callbacks."""
        self.film: VideoRecorder | None = None
        """Recorder of the first environment; None without videos and viewer."""
        self._random_stream = rng.generator(seed, "missing observations", self._index)
        self._streams: dict[str, np.random.Generator] = {}
        self._transitions: dict[str, Transitions] = {}
        self._connectors: dict[str, Connectors] = {}
        self._recent: dict[str, deque[Array]] = {}
        self._running: dict[Any, RunningEpisode] = {}
        """Environment → its running episode."""
        self._players: dict[str, InferencePolicy] = {}
        """Policy → `InferencePolicy`, for callbacks that ask about agents."""
        self._early_policies: dict[int, dict[str, str]] = {}
        """Number of an episode → agent → policy, for agents that callbacks asked about before they
        appeared."""
        self._infos: Mapping[str, Any] = {}
        self._tick_seconds: Array = np.zeros(2)
        """Seconds of the current tick spent on observations, and on the policies' decisions."""
        self._warned = self._warned_of_length = False
        self.set_policies(plans, mapper, frozenset(plans))

    def set_policies(
        self, plans: Mapping[str, PolicyPlan], mapper: Mapper, replaced: Container[str]
    ) -> list[int]:
        """Use these policies (`plans`: policy → plan) and this mapping from now on.

        Policies that are new or in `replaced` begin with an empty state, without stored rows.
        Returns the indices of the environments whose running episode must be dropped, because one
        of its agents has a policy that was removed or replaced. Raises ConfigError if a new
        policy's exploration has a state, which several agents do not support.
        """
        kept = {pid for pid in self._plans if pid in plans and pid not in replaced}
        self._plans, self._mapper = plans, mapper
        for pid in [one for one in plans if one not in kept]:
            self._begin_policy(pid)
        for own in (
            *(self._streams, self._transitions, self._connectors, self._recent),
            self._players,
        ):
            sort_policies(own, plans)
        bound = {env: {*one.policies.values()} for env, one in self._running.items()}
        return [env for env, pids in bound.items() if pids - kept]

    def _begin_policy(self, pid: str) -> None:
        """Make a policy's random stream, connectors, store of transitions and `InferencePolicy`.

        They replace those of a former policy of this name, with its stored rows. Raises ConfigError
        if the policy's exploration has a state, which several agents do not support.
        """
        plan, called, config = self._plans[pid], self._error_prefix(pid), self._config
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
        require_stateless(self._actors[pid].exploration, self.environment_kind)

    def _error_prefix(self, pid: str) -> str:
        """Return ``<name>, policy <pid>``, with which errors about a policy begin."""
        return f"{self.name}, policy {pid}"

    def _log_subject(self, subject: str, pid: str) -> str:
        """Return the name under which data of a policy are logged.

        It is ``<subject> of policy <pid>``; `subject` says which data they are, such as ``policy
        inputs``.
        """
        return f"{subject} of policy {pid}"

    def _scaler(self, pid: str) -> RewardScaler | None:
        """Return a new scaler of a policy's rewards, which updates the policy's reward filter.

        Returns None if its rewards are not normalised.
        """
        stat = self._filters.get(reward_filter_name(pid))
        gamma = self._plans[pid].gamma
        return RewardScaler(0, gamma, stat) if isinstance(stat, MeanStdFilter) else None

    def start(self, seeds: list[int]) -> None:
        """Reset all environments, each with its seed, and begin their first episodes.

        Calls ``on_episode_created`` and ``on_episode_start`` if there are callbacks, and takes the
        first picture. Raises ConfigError if the mapping gives an agent no policy of its spaces.
        """
        every = range(self._envs.count)
        if self.watch:
            self.watch.create(every)
        seen = self._envs.reset(seeds)
        if self.watch:
            self.watch.start(every, seen)
        self._running = {env: self._next_episode(env, one) for env, one in enumerate(seen)}
        if self.film:
            self.film.begin(1)

    @property
    def times(self) -> dict[str, float]:
        """Mean milliseconds per step by result key: of the parts of a step, and of connectors.

        A connector between environments and policy has ``connector_metrics/<policy>/<name>_ms``;
        those in the environments' own process are not divided by policy.
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
    def connector_descriptions(self) -> dict[str, list[str]]:
        """Policy → one line of text for each of its connectors to the environments, for logs."""
        return {pid: one.described() for pid, one in self._connectors.items()}

    # ---- sampling --------------------------------------------------------------------------------

    def sample(self, stream: np.random.Generator) -> CollectedByPolicy:
        """Step the environments until there are enough steps, and return the fragments by policy.

        A policy gets a fragment for every ``rollout_fragment_length`` steps of the environments,
        with whole episodes a single one of ended episodes. If agent steps are counted, or whole
        episodes, sampling ends with the step that reaches the minimum, else with a full fragment.
        Decisions whose next observation is not known yet come in a later sample. Logs a warning,
        once, if no agent acts or whole episodes are very long. `stream` is not used: each policy
        draws from its own stream.
        """
        for recent in self._recent.values():
            recent.clear()
        fragments: dict[str, list[Fragment]] = {}
        episodes: list[RolloutMetrics] = []
        config = self._config
        whole = config.batch_mode == "complete_episodes"
        counted = env_steps = 0
        at_once = whole or self.has_one_fragment
        while counted < self._steps:
            ticks = 0
            while ticks < config.rollout_fragment_length or at_once:
                more = self._tick(episodes, whole)
                counted += more[0] if self._agent_steps else more[1]
                env_steps += more[1]
                ticks += 1
                if whole and not self._warned_of_length:
                    lengths = self._running_lengths()
                    self._warned_of_length = warn_of_long_episodes(self.name, config, lengths)
                if counted >= self._steps and (at_once or self._agent_steps):
                    break
            taken = self._take_fragments(whole)
            for pid, fragment in taken.items():
                fragments.setdefault(pid, []).append(fragment)
            self._warn_if_idle(taken, ticks)
        latest = {pid: np.stack(rows) for pid, rows in self._recent.items() if rows}
        return CollectedByPolicy(fragments, env_steps, counted, episodes, latest)

    def _running_lengths(self) -> Array:
        """Return the lengths of the running episodes (N,), in environment steps."""
        return self.episodes.lengths

    def _tick(self, episodes: list[RolloutMetrics], whole: bool) -> tuple[int, int]:
        """Make one step of every environment; append the metrics of ended episodes to `episodes`.

        Calls the callbacks, takes a picture, and begins the next episodes. Returns (agent steps,
        environment steps): those of this step, or with `whole` all steps of the episodes that ended
        in this step, without faulty ones.
        """
        clock = time.perf_counter
        began = clock()
        asked = self._acting_agents()
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
            self._record_step(env_index, step, bool(over[env_index]), int(lengths[env_index]))
        ended = over.copy()
        ended[list(step.faults)] = True
        written = self.watch.after_step(step, 0) if self.watch else {}
        if self.film:
            self.perf.add_rendering(self.film.after_step(bool(ended[0])))
        finished = self.episodes.step(step.rewards, ended, step.faults, None, written)
        acted = 0
        for env_index, metrics in zip(np.flatnonzero(ended).tolist(), finished, strict=True):
            acted += 0 if metrics.faulty else self._running[env_index].acted
            episodes.append(self._finish_episode(env_index, metrics, step))
        if whole:
            return acted, int(lengths[over].sum())
        return sum(map(len, asked.values())), self._envs.count

    def _acting_agents(self) -> dict[str, list[tuple[Any, str]]]:
        """Return policy → (environment, agent) of the agents that act in the next step.

        Policies without such agents are absent.
        """
        asked: dict[str, list[tuple[Any, str]]] = {}
        for env, episode in self._running.items():
            for agent in episode.waiting:
                asked.setdefault(episode.policies[agent], []).append((env, agent))
        return {pid: asked[pid] for pid in self._plans if pid in asked}

    def _decide(self, pid: str, actors: Sequence[tuple[Any, str]]) -> Array:
        """Make and store one batched decision of a policy for these (environment, agent).

        Takes the agents' observations out of `RunningEpisode.waiting`, adds them to the statistics
        of the policy's filter if it learns, and draws from the policy's stream. Callbacks' episodes
        note each decision. Returns one action for each agent in the form that environments take.
        """
        running, transitions, actor = self._running, self._transitions[pid], self._actors[pid]
        began = time.perf_counter()
        observations = [running[env].waiting.pop(agent) for env, agent in actors]
        self._recent[pid].extend(observations[-RECENT_ROWS:])
        connectors, size = self._connectors[pid], actor.memory_size
        memory = np.hstack([actor.initial_memory(len(actors)), connectors.initial(len(actors))])
        if memory.size:
            for i, (env, agent) in enumerate(actors):
                memory[i] = running[env].memory.get(agent, memory[i])
        memory, carried = memory[:, :size], memory[:, size:]
        plan, raw = self._plans[pid], np.stack(observations)
        if plan.unfiltered:
            filtered, stored, carried = connectors.observe_both(raw, carried, plan.learns)
        else:
            filtered, carried = connectors.observe(raw, carried, plan.learns)
            stored = filtered
        processed = time.perf_counter()
        acted = self._choose_actions(pid, actors, filtered, memory)
        self._tick_seconds += processed - began, time.perf_counter() - processed
        self._keep_latest(pid, filtered, acted)
        following = np.hstack([acted.memory, connectors.after_actions(carried, acted.actions)])
        rows = []
        for env, agent in actors:
            episode = running[env]
            which = self._order[agent]
            rows.append(Row(episode.lanes[agent], episode.steps[agent], episode.number, which))
            episode.steps[agent] += 1
            episode.acted += 1
        first = transitions.add_decision(stored, memory, acted, rows)
        for i, (env, agent) in enumerate(actors):
            running[env].open[agent] = first + i
            if following.size:
                running[env].memory[agent] = following[i]
            if (seen_by := self._callback_episode(env)) is not None:
                outputs = acted.outputs_of(i, actor.fetches)
                seen_by.note_decision(agent, acted.actions[i], following[i], outputs)
        return connectors.send(acted.actions)

    def _count_times(self, asking: float, deciding: float, stepping: float) -> None:
        """Count the times of one step of all environments, in seconds.

        Args:
            asking: until the acting agents were known.
            deciding: from then until the actions were sent to the environments.
            stepping: from then until the environments had made their step.
        """
        seeing, acting = self._tick_seconds.tolist()
        self._tick_seconds[:] = 0.0
        parts = [0.0, asking + seeing, acting, deciding - seeing - acting, stepping]
        self.perf.add(*np.cumsum(parts).tolist())

    def _keep_latest(self, pid: str, filtered: Array, acted: Acted) -> None:
        """Put a policy's inputs and outputs into `latest`, for the log.

        Those of the policy that are there already stay.
        """
        for what, one in (("policy inputs", filtered), ("policy outputs", acted)):
            self.latest.setdefault(self._log_subject(what, pid), one)

    def _callback_episode(self, env_index: Any) -> Episode | None:
        """Return an environment's running episode as callbacks see it; None without callbacks."""
        return self.watch.running(env_index) if self.watch else None

    def _choose_actions(
        self, pid: str, actors: Sequence[tuple[Any, str]], filtered: Array, memory: Array
    ) -> Acted:
        """Return a policy's actions and outputs for R agents, drawn with the policy's stream.

        `actors` are their (environment, agent), `filtered` (R, *S) the filtered observations,
        `memory` (R, M) the recurrent states.
        """
        return self._actors[pid].act(filtered, memory, self._streams[pid])

    # ---- consequences of a step ------------------------------------------------------------------

    def _record_step(self, env_index: int, step: Step, has_ended: bool, length: int) -> None:
        """Record the consequences of a step in one environment.

        If the environment raised an error in the step, its episode's rows are dropped instead.
        `has_ended` says that the episode terminated or was truncated, `length` is its number of
        steps, including this one. Raises NotFiniteError for a reward that is not finite, and
        EnvError if an agent was cut off without a last observation.
        """
        if env_index in step.faults:
            for transitions in self._transitions.values():
                transitions.drop_episode(self._running[env_index].number)
            return
        shown = step.final_observations if has_ended else step.observations
        seen: Seen = shown[env_index]
        self._infos = step.infos.get(env_index, {}).get("agents", {})
        dead, limit = bool(step.terminated[env_index]), self._ends.hard_horizon
        is_cut = has_ended and not dead and limit is not None and length >= limit
        self._record_consequences(env_index, seen, has_ended, dead, is_cut)

    def _record_consequences(
        self, env_index: Any, step: Seen, has_ended: bool, dead: bool, is_cut: bool = False
    ) -> None:
        """Record rewards, next observations and ends of each agent of an environment after a step.

        Agents that appear begin a trajectory. `has_ended` says that the episode ended for all
        agents, `dead` that it terminated, `is_cut` that the setting ``horizon`` truncated it: then
        an agent that was not observed loses its latest decision.

        Raises NotFiniteError for a reward that is not finite, EnvError if an agent was cut off
        without a last observation, ConfigError if the mapping gives it no policy of its spaces.
        """
        episode = self._running[env_index]
        ends = {*step["terminated"], *step["truncated"]}
        new = [] if has_ended else [a for a in step["observations"] if a not in ends]
        self._reward(env_index, episode, step["rewards"], ends if not has_ended else self._agents)
        for agent in [one for one in self._agents if one in episode.open]:
            if agent in ends or has_ended:
                died = (dead and agent not in step["truncated"]) or agent in step["terminated"]
                shown = step["observations"].get(agent)
                if shown is None and is_cut and agent not in ends:
                    self._drop_last_decision(episode, agent)
                else:
                    self._end_trajectory(env_index, episode, agent, shown, died)
            elif agent in step["observations"]:
                observation = self._copy_observation(episode, agent, step["observations"][agent])
                self._complete_row(episode, agent, observation)
                episode.waiting[agent] = observation
        for agent in new:
            if agent not in episode.waiting:
                self._begin_trajectory(env_index, episode, agent, step["observations"][agent])

    def _reward(
        self,
        env_index: Any,
        episode: RunningEpisode,
        rewards: Mapping[str, float],
        ended_agents: Container[str],
    ) -> None:
        """Add a step's rewards (agent → reward) to the episode's sums and to the latest decisions.

        The state of the agent's connectors is updated as well. `ended_agents` are the agents that
        end with this step, all of them if the episode does. An agent that appears with its reward
        gets a policy; if it ends with this step, its reward is ignored instead.

        Raises:
            NotFiniteError: a reward is not finite.
            ConfigError: ``policy_mapping_fn`` gives a new agent no policy of its spaces.
        """
        for agent, reward in rewards.items():
            if not math.isfinite(reward):
                where = f"{self.name}, environment {env_index}, episode {episode.number}"
                problem = f"{where}: agent {agent!r} has the reward {reward}"
                raise NotFiniteError.of_environment(problem)
            if agent not in episode.policies:
                if agent in ended_agents:
                    continue
                self._bind(env_index, episode, agent)
            episode.rewards[agent] += reward
            if agent in episode.open:
                self._row(episode, agent).reward += reward
            pid = episode.policies[agent]
            if agent in episode.memory and (carries := self._connectors[pid].memory_size):
                carried = episode.memory[agent][None, -carries:]
                carried[:] = self._connectors[pid].after_rewards(carried, np.array([reward]))

    def _row(self, episode: RunningEpisode, agent: str) -> Row:
        """Return an agent's latest decision, whose next observation has not arrived yet."""
        return self._transitions[episode.policies[agent]].rows[episode.open[agent]]

    def _complete_row(self, episode: RunningEpisode, agent: str, observation: Array | None) -> Row:
        """Complete an agent's latest decision with what followed, and return its row.

        `observation` is the raw next observation (*S), or None. The row is no longer open, and not
        valid if the agent's info has ``training_enabled: False``.
        """
        row = self._row(episode, agent)
        del episode.open[agent]
        row.is_known, row.next_observation = True, observation
        row.info = self._infos.get(agent)
        row.memory = episode.memory.get(agent)
        row.valid = bool((row.info or {}).get("training_enabled", True))
        return row

    def _end_trajectory(
        self,
        env_index: Any,
        episode: RunningEpisode,
        agent: str,
        last_observation: Array | None,
        dead: bool,
    ) -> None:
        """End an agent's trajectory: it terminated if `dead`, else it was truncated.

        `last_observation` is the environment's; if it is None, a random one stands in after a
        termination, and a truncation raises EnvError, since bootstrapping needs it. With the
        setting ``no_done_at_end`` a terminated trajectory counts as truncated, and one without a
        last observation loses its last decision instead.
        """
        lasting = self._ends.no_done_at_end
        pid = episode.policies[agent]
        if last_observation is not None:
            observation = self._copy_observation(episode, agent, last_observation)
        elif dead and not lasting:
            observation = self._random_observation(pid)
        elif lasting:
            self._drop_last_decision(episode, agent)
            return
        else:
            raise EnvError(
                f"{self.name}, environment {env_index}, episode {episode.number}: agent "
                f"{agent!r} was cut off without a last observation, which is needed to estimate "
                "its later rewards; return one in the step that ends the episode, or set "
                "no_done_at_end: true, which leaves out the agent's last step"
            )
        row = self._complete_row(episode, agent, observation)
        row.terminated, row.truncated = dead and not lasting, not dead or lasting
        self._free_lane(episode, agent)

    def _drop_last_decision(self, episode: RunningEpisode, agent: str) -> None:
        """Drop an agent's latest decision, whose next observation is unknown; end its trajectory.

        This is for an agent that was not observed in the step that cut off its trajectory. The
        decision before, if it is in no fragment yet, is marked as truncated and bootstrapped
        instead.
        """
        self._transitions[episode.policies[agent]].drop_last(episode.open[agent])
        self._free_lane(episode, agent)

    def _free_lane(self, episode: RunningEpisode, agent: str) -> None:
        """Remove an agent's entries of the trajectory that ended, so that it may begin another.

        Its lane, the place on the environment axis of fragments, is free for other agents.
        """
        for one in (episode.open, episode.lanes, episode.steps, episode.memory):
            one.pop(agent, None)

    def _begin_trajectory(
        self, env_index: Any, episode: RunningEpisode, agent: str, observation: Array
    ) -> None:
        """Begin a trajectory of an agent with its first observation, on which it acts next.

        Assigns a lane, and a policy if the agent has none in this episode.
        """
        if agent not in episode.policies:
            self._bind(env_index, episode, agent)
        episode.lanes[agent] = self._lane(env_index, episode, episode.policies[agent])
        episode.steps[agent] = 0
        episode.waiting[agent] = self._copy_observation(episode, agent, observation)

    def _lane(self, env_index: Any, episode: RunningEpisode, pid: str) -> int:
        """Return an index on the environment axis of a policy's fragments for a new trajectory.

        No running agent of this environment uses the index.
        """
        taken = {lane for one, lane in episode.lanes.items() if episode.policies[one] == pid}
        return self._transitions[pid].lane(env_index, taken)

    def _bind(self, env_index: Any, episode: RunningEpisode, agent: str) -> None:
        """Assign a policy to an agent for the rest of the episode, with a return of 0 so far.

        It is the one that callbacks were told, or else that of the mapping. Raises ConfigError if
        there is no such policy, or its spaces are not those of the agent.
        """
        ahead = self._early_policies.get(episode.number, {})
        pid = ahead.get(agent) or self._policy_of(env_index, episode.number, agent)
        episode.policies[agent] = pid
        episode.rewards[agent] = 0.0

    def _policy_of(self, env_index: Any, episode: int | str, agent: str) -> str:
        """Return the policy that the mapping assigns to an agent in an episode.

        `episode` is the episode's number or name, which determines the mapping's random stream;
        `env_index` is named in errors. Raises ConfigError if there is no such policy, or its spaces
        are not those of the agent.
        """
        pid = self._mapper(agent, episode)
        if pid not in self._plans:
            raise ConfigError(
                "multiagent.policy_mapping_fn",
                pid,
                f"one of {', '.join(self._plans)}",
                problem=f"it returned {shorten(pid)} for agent {agent!r} of environment "
                f"{env_index}, which is not a policy",
            )
        agent_spaces, policy = self._agents[agent], self._plans[pid].spaces
        if (agent_spaces.observation, agent_spaces.action) != (policy.observation, policy.action):
            raise ConfigError(
                "multiagent.policy_mapping_fn",
                pid,
                hint="return a policy with the agent's spaces",
                problem=f"it returned {shorten(pid)}, with observations {policy.raw} and actions "
                f"{policy.action}, for agent {agent!r}, with observations {agent_spaces.raw} and "
                f"actions {agent_spaces.action}",
            )
        return pid

    def episode_policies(self, env_index: Any, before: int) -> EpisodePolicies:
        """Return the policies of the episode that an environment plays after `before` earlier ones.

        Callbacks ask them for an agent's policy. They hold only a weak reference to the sampler.
        """
        own, every = self._numbers
        return self._episode_policies(env_index, before * every + own + env_index)

    def _episode_policies(self, env_index: Any, number: int) -> EpisodePolicies:
        """Return the policies of the episode `number` in environment `env_index`, for callbacks."""
        me = weakref.ref(self)  # the sampler holds the episodes that hold this function

        def policy_of(agent: str) -> str:
            """Return the name of an agent's policy in this episode."""
            sampler = me()
            assert sampler is not None  # noqa: S101 as it plays the episode
            return sampler._early_policy(env_index, number, agent)

        return EpisodePolicies(self._players, policy_of)

    def _early_policy(self, env_index: Any, number: int, agent: str) -> str:
        """Return the policy that an agent has in an episode, or will get when it appears.

        The answer is kept, so that the agent does get this policy. Raises ValueError if there is no
        such agent, ConfigError if the mapping gives it no policy of its spaces.
        """
        running = self._running.get(env_index)
        if running is not None and running.number == number and agent in running.policies:
            return running.policies[agent]
        if agent not in self._agents:
            raise ValueError(
                f"there is no agent {agent!r}; the agents are {', '.join(self._agents)}"
            )
        ahead = self._early_policies.setdefault(number, {})
        if agent not in ahead:
            ahead[agent] = self._policy_of(env_index, number, agent)
        return ahead[agent]

    def _copy_observation(self, episode: RunningEpisode, agent: str, observation: Array) -> Array:
        """Return an observation as a row (*S) before the filter, copied from the environment's."""
        row: Array = self._connectors[episode.policies[agent]].rows(np.asarray(observation)[None])[
            0
        ]
        return row

    def _random_observation(self, pid: str) -> Array:
        """Return a random observation (*S), before the filter, of a policy's observation space.

        It stands in as the next observation of an agent that terminated without one; its value is
        never used. The space is seeded from a stream of the sampler that serves nothing else.
        """
        space, connectors = self._plans[pid].spaces.raw, self._connectors[pid]
        space.seed(int(self._random_stream.integers(2**31)))
        row: Array = connectors.rows(connectors.at_env.observe_all([space.sample()]))[0]
        return row

    # ---- episodes --------------------------------------------------------------------------------

    def _next_episode(self, env_index: int, step: Seen) -> RunningEpisode:
        """Return the next episode of an environment, begun with its agents' first observations.

        `step` has them; its rewards and ends are not read. The caller makes the episode the running
        one. Raises ConfigError if the mapping gives an agent no policy of its spaces.
        """
        own, every = self._numbers
        number = int(self.episodes.counts[env_index]) * every + own + env_index
        episode = RunningEpisode(number)
        for agent, given in step["observations"].items():
            self._begin_trajectory(env_index, episode, agent, given)
        return episode

    def _finish_episode(
        self, env_index: int, metrics: RolloutMetrics, step: Step
    ) -> RolloutMetrics:
        """Finish an episode and begin the next one with `step.observations`.

        Marks its stored rows as over. Returns `metrics` with ``agent_rewards``: agent → [policy,
        sum of its rewards]. Raises EnvError if no agent acted in the episode and it is not faulty.
        """
        episode = self._running[env_index]
        if not episode.acted and not metrics.faulty:
            raise EnvError(
                f"{self.name}, environment {env_index}, episode {episode.number}: it ended after "
                f"{metrics.length} step(s) without an observation of any agent; return one for "
                "each agent that should act, in reset() or step()"
            )
        for transitions in self._transitions.values():
            transitions.end_episode(episode.number)
        self._early_policies.pop(episode.number, None)
        self._running[env_index] = self._next_episode(env_index, step.observations[env_index])
        rewards = {a: [episode.policies[a], total] for a, total in episode.rewards.items()}
        return metrics._replace(agent_rewards=rewards)

    def drop_episode(self, env_index: int, observation: Any) -> None:
        """Drop the running episode of an environment; `observation` begins the next one.

        Its rows that are in no fragment yet are dropped, and it gets no metrics. `observation` is
        the `Seen` of the reset.
        """
        for transitions in self._transitions.values():
            transitions.drop_episode(self._running[env_index].number)
        self._early_policies.pop(self._running[env_index].number, None)
        self.episodes.drop(env_index)
        self._running[env_index] = self._next_episode(env_index, observation)

    # ---- fragments -------------------------------------------------------------------------------

    def _take_fragments(self, whole: bool) -> dict[str, Fragment]:
        """Move the finished rows out of the stores; return policy → fragment made of them.

        A row is finished once its next observation is known, with `whole` once its episode has
        ended. Policies without such rows are absent. Indices in `RunningEpisode.open` follow the
        rows that remain.
        """
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

    def _warn_if_idle(self, fragments: Mapping[str, Fragment], ticks: int) -> None:
        """Log a warning, once, if the latest `ticks` steps of each environment gave no fragment."""
        if fragments or self._warned:
            return
        self._warned = True
        logger.warning(
            "%s: %d steps of each environment passed without an agent that was asked to act; "
            "check that the environment returns observations for the agents that should act",
            *(self.name, ticks),
        )

    # ---- state -----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return the state as plain data, for `set_state`.

        ``episodes`` are counts, lengths and returns, ``running`` the `RunningEpisode` of each
        environment, ``transitions`` and ``streams`` by policy, ``missing`` the stream of random
        observations.
        """
        running = []
        for one in self._running.values():
            arrays = {"waiting": _agent_rows(one.waiting), "memory": _agent_rows(one.memory)}
            plain = {n: dict(getattr(one, n)) for n in PLAIN}
            running.append({"number": one.number, "acted": one.acted, **plain, **arrays})
        return {
            "episodes": self.episodes.get_state(),
            "running": running,
            "transitions": {pid: one.get_state() for pid, one in self._transitions.items()},
            "streams": {pid: rng.get_generator_state(one) for pid, one in self._streams.items()},
            "missing": rng.get_generator_state(self._random_stream),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned; raises KeyError if it lacks a policy."""
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
        rng.set_generator_state(self._random_stream, state["missing"])


def sort_policies(by_policy: dict[str, Any], policies: Iterable[str]) -> None:
    """Keep in `by_policy` (key → value) only the keys `policies`, in this order; changes it.

    Raises KeyError if one is missing. Checkpoints need this order.
    """
    kept = {pid: by_policy[pid] for pid in policies}
    by_policy.clear()
    by_policy.update(kept)


def _agent_rows(rows: Mapping[str, Array]) -> list[list[Any]]:
    """Return [agent, copy of its row] for each entry, in the dict's order, as plain data.

    The next decision stacks its rows in this order.
    """
    return [[agent, row.copy()] for agent, row in rows.items()]
