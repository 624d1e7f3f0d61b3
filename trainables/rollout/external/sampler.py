"""Sampling from environments that call the trainer (`trainables.envs.external`).

A tick: one batched decision per policy for all waiting agents → the actions are sent → the
environment is polled. The environment alone decides which episodes exist and which of them are
ready. Each agent has its own lane (`trainables.rollout.agents.transitions`), and rows whose
consequence is not known yet are stored in a later fragment. N episodes, M numbers of memory.
"""

import heapq
import logging
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.calls.faults import describe_fault
from trainables.envs.external.polled import AGENT, EpisodeLost, Polled
from trainables.envs.external.polling import PolledEnv, ended_episodes
from trainables.envs.kinds.agents import ALL, AgentsSpace, Seen, step_record
from trainables.envs.make import (
    EnvSpaces,
)
from trainables.envs.spaces.actions import rows_of
from trainables.envs.vector.restarts import MAX_FAILURES_IN_A_ROW, SETTING, STEPS_THAT_COUNT
from trainables.errors import EnvError, shorten
from trainables.policies.acting.actor import Acted
from trainables.policies.filters import EPSILON, MeanStdFilter, NoFilter
from trainables.rollout.agents.episodes import CollectedByPolicy, PolicyPlan, RunningEpisode
from trainables.rollout.agents.sampler import AgentsSampler, Mapper
from trainables.rollout.episodes.episode import Episode, EpisodeCallbacks
from trainables.rollout.episodes.metrics import RolloutMetrics, with_callback_data
from trainables.rollout.external.envs import CalledEnvs
from trainables.rollout.progress import PREFIX
from trainables.rollout.workers.access import DEFAULT_POLICY_ID

Array = NDArray[Any]

logger = logging.getLogger(__name__)


@dataclass
class _Episode(RunningEpisode):
    """A running episode of an environment that calls the trainer."""

    slot: int = 0
    """Smallest index that no other running episode has; stands in for an environment's index."""
    length: int = 0
    """Steps of the environment so far, each from one call for actions to the next."""
    total: float = 0.0
    """Sum of the rewards so far."""
    watch: EpisodeCallbacks | None = None
    """Object that calls the episode's callbacks; None if there are no callbacks."""
    start_counts: tuple[int, int] = (0, 0)
    """Values of `known_decisions` and `length` when the running call of `sample` began."""

    @property
    def known_decisions(self) -> int:
        """Number of decisions, of all agents, after which a reward and an observation have come."""
        return self.acted - len(self.open)


class ExternalSampler(AgentsSampler):
    """Answers an environment that calls the trainer, and writes fragments of the transitions.

    Its arguments are those of `AgentsSampler`. In an environment of one agent the agent is `AGENT`,
    and there is one policy.
    """

    environment_kind = "external environments"
    has_one_fragment = True
    _running: dict[Any, _Episode]  # type: ignore[assignment]  # by the environment's own ids
    """The environment's own id of an episode → running episode."""

    def __init__(
        self, *args: Any, envs: CalledEnvs, agents: Mapping[str, EnvSpaces], **more: Any
    ) -> None:
        self._base = envs.base
        self._polled_env = PolledEnv(envs.base, args[0], more["ends"].external_timeout_s)
        self._waiting_episodes: Sequence[Any] = ()
        """Episodes of the latest poll, which wait for actions."""
        self._failures: dict[Any, tuple[int, Exception]] = {}
        """Episode → number of its failures in a row, and the first exception."""
        self._episode_count = 0
        """Number of episodes begun."""
        self._free_slots: list[int] = []
        """Heap of the slots that have become free."""
        self.version = 0
        """Number of times that the worker received weights; sent to the environment's players."""
        self._own_choices: dict[tuple[Any, str], tuple[Any, float | None]] = {}
        """(episode, agent) → action that the environment chose itself, and its log-probability."""
        self._player_policies: Mapping[Any, Mapping[Any, str]] = {}
        """Episode → agent → policy that the environment's player uses for it."""
        self._is_alone = not isinstance(envs.observation_space, AgentsSpace)
        self._at_env = envs.connectors
        super().__init__(*args, envs=envs, agents=agents, **more)

    def set_policies(
        self, plans: Mapping[str, PolicyPlan], mapper: Mapper, replaced: Container[str]
    ) -> list[int]:
        """Use these policies, as `AgentsSampler.set_policies`; returns an empty list.

        Running episodes in which an agent's policy was removed or replaced are dropped here, and
        the environment is asked to abandon or reset them. It also gets a function (agent, episode)
        → policy if it has `take_mapper`.
        """
        lost = super().set_policies(plans, mapper, replaced)
        if callable(take := getattr(self._base, "take_mapper", None)):
            take(lambda agent, episode: self._policy_of(episode, episode, agent))
        self._drop_and_restart(lost)
        if lost and callable(abandon := getattr(self._base, "abandon", None)):
            abandon("an agent in it had a policy that is there no more", lost)
        return []

    def _error_prefix(self, pid: str) -> str:
        """Return ``<name>, policy <pid>``, the beginning of errors, or ``<name>`` for one agent."""
        return self.name if self._is_alone else super()._error_prefix(pid)

    def _log_subject(self, subject: str, pid: str) -> str:
        """Return the name under which data of a policy are logged; `subject` for a single agent."""
        return subject if self._is_alone else super()._log_subject(subject, pid)

    @property
    def recent(self) -> Sequence[Array]:
        """Latest raw observations (≤ 64) of the first policy, each (*S), the newest last."""
        return next(iter(self._recent.values()))

    @property
    def times(self) -> dict[str, float]:
        """Mean milliseconds per step by name, as `AgentsSampler.times`.

        A single agent's connectors are named without a policy.
        """
        own = f"{PREFIX}{DEFAULT_POLICY_ID}/" if self._is_alone else PREFIX
        return {name.replace(own, PREFIX): ms for name, ms in super().times.items()}

    def start(self, seeds: list[int]) -> None:
        """Do nothing: the environment begins its episodes itself."""

    def sample(self, stream: np.random.Generator) -> CollectedByPolicy:
        """Answer the environment until there are enough steps; return the fragments by policy.

        First gives the environment's own players the current policies, if it takes them. With
        ``complete_episodes`` only steps of finished episodes count. `stream` is not used. Raises
        EnvError if the environment has no event within ``external_timeout_s`` seconds, breaks the
        interface, or failed and may not be restarted.
        """
        if callable(take := getattr(self._base, "take_policies", None)):
            take(self.version, {pid: self._layers(pid) for pid in self._plans})
        for episode in self._running.values():
            episode.start_counts = episode.known_decisions, episode.length
        return super().sample(stream)

    def _running_lengths(self) -> Array:
        """Return the lengths of all running episodes, in environment steps."""
        return np.array([one.length for one in self._running.values()], dtype=np.int64)

    def _layers(self, pid: str) -> dict[str, Any] | None:
        """Return the entries of `Actor.as_layers` of policy `pid`, and those of its filter.

        The latter are ``mean``, ``scale`` (deviation), ``clip`` (or None) and ``exact``, True if
        observations are filtered in float64. Clients that act on their own compute actions with
        them. Returns None if the policy's network, spaces or filter are not of the kinds that
        clients can compute.
        """
        layers, seen_by = self._actors[pid].as_layers(), self._filters[pid]
        of, kind = self._plans[pid].spaces, type(seen_by)
        runs = isinstance(of.raw, spaces.Box) and isinstance(
            of.action, spaces.Discrete | spaces.Box
        )
        if layers is None or not runs or kind not in (NoFilter, MeanStdFilter):
            return None
        mean: Array = np.zeros(1)
        scale: Array = np.ones(1)
        clip = None
        if isinstance(seen_by, MeanStdFilter):
            mean, clip = seen_by.mean.reshape(-1), seen_by.clip
            scale = seen_by.std.reshape(-1) + EPSILON
        exact = self._connectors[pid].is_exact
        return {**layers, "mean": mean, "scale": scale, "clip": clip, "exact": exact}

    # ---- a tick ----------------------------------------------------------------------------------

    def _tick(self, episodes: list[RolloutMetrics], whole: bool) -> tuple[int, int]:
        """Decide for all waiting agents, send the actions, and process the environment's next poll.

        Waits until an episode has an event. Appends the metrics of ended, failed and lost episodes
        to `episodes`. Returns (agent steps, environment steps) that the poll completed, less those
        of failed episodes that this sample had counted; with `whole` all steps of episodes that
        ended.
        """
        clock = time.perf_counter
        began = clock()
        asked = self._acting_agents()
        processed = clock()
        actions: dict[Any, dict[str, Any]] = {}
        for pid, who in asked.items():
            for (env_id, agent), row in zip(who, self._decide(pid, who), strict=True):
                actions.setdefault(env_id, {})[agent] = self._at_env[agent].act(row)
        self._polled_env.send(
            [one for one in self._waiting_episodes if one in self._running], actions
        )
        sent = clock()
        polled = self._polled_env.poll()
        self._count_times(processed - began, sent - processed, clock() - sent)
        steps = [0, 0]
        for env_id, why in polled.lost.items():
            if env_id in self._running:
                episode = self._remove_episode(env_id)
                episodes.append(self._finish_lost(episode, why))
                steps = [
                    steps[0] + whole * episode.known_decisions,
                    steps[1] + whole * episode.length,
                ]
        self._player_policies = polled.policies
        over = [env_id for env_id in ended_episodes(polled) if env_id in self._running]
        self._waiting_episodes = list(dict.fromkeys([*polled.observations, *over]))
        for env_id in self._waiting_episodes:
            more = self._process_poll(env_id, polled, episodes, whole)
            steps = [steps[0] + more[0], steps[1] + more[1]]
        return steps[0], steps[1]

    def _process_poll(
        self, env_id: Any, polled: Polled, episodes: list[RolloutMetrics], whole: bool
    ) -> tuple[int, int]:
        """Process one episode's part of a poll; return (agent steps, environment steps) as `_tick`.

        If the episode failed, both are minus the steps that this sample had counted, or 0 with
        `whole`. Metrics of an episode that ended or failed are appended to `episodes`.
        """
        if (fault := self._fault(env_id, polled)) is not None:
            counted = self._replace_failed(env_id, fault, episodes)
            return (0, 0) if whole else (-counted[0], -counted[1])
        before = self._running.get(env_id)
        known, length = (before.known_decisions, before.length) if before and not whole else (0, 0)
        over, episode = self._record_outcome(env_id, polled, episodes)
        if whole and not over:
            return 0, 0
        return episode.known_decisions - known, episode.length - length

    def _choose_actions(
        self, pid: str, actors: Sequence[tuple[Any, str]], filtered: Array, memory: Array
    ) -> Acted:
        """Return a policy's decision for these agents, with the environment's own choices in it.

        An action that the environment chose itself replaces the policy's; its log-probability is
        the one that the environment sent, or else the policy's for that action. These choices are
        forgotten then. Raises ConfigError if the policy's exploration has no probabilities.
        """
        acted = super()._choose_actions(pid, actors, filtered, memory)
        choices = {
            i: self._own_choices.pop(one)
            for i, one in enumerate(actors)
            if one in self._own_choices
        }
        if choices:
            rows, actor = list(choices), self._actors[pid]
            actions = np.array(acted.actions)
            given = [action for action, _ in choices.values()]
            actions[rows] = rows_of(self._plans[pid].spaces.action, given)
            columns = {name: np.array(column) for name, column in acted.columns.items()}
            if "logp" in columns:
                likely = actor.likelihood(filtered[rows], memory[rows], actions[rows])
                columns["logp"][rows] = [
                    own if logp is None else logp
                    for (_, logp), own in zip(choices.values(), likely, strict=True)
                ]
            acted = Acted(actions, columns, acted.memory)
        return acted

    # ---- polls -----------------------------------------------------------------------------------

    def _parse_step(self, env_id: Any, polled: Polled) -> tuple[Seen, bool, bool]:
        """Return (step by agent, has terminated, was truncated) of an episode from a poll.

        Infos, and actions that the environment chose itself, are stored in the sampler. Raises
        EnvError if the poll breaks the interface.
        """
        by_agent = polled.observations.get(env_id, {})
        over = polled.terminateds.get(env_id, {}), polled.truncateds.get(env_id, {})
        if why := self._interface_breach(env_id, by_agent, over):
            raise EnvError(f"{self._episode_label(env_id)}: {why}")
        self._infos = self._rename_only_agent(polled.infos.get(env_id, {}))
        if said := polled.off_policy_actions.get(env_id):
            logps = polled.logps.get(env_id, {})
            for agent, action in self._rename_only_agent(said).items():
                self._own_choices[env_id, agent] = action, logps.get(agent)
        ends: list[list[str]] = [[], []]
        if not self._is_alone:
            ends = [[a for a, flag in one.items() if flag and a in self._agents] for one in over]
        shown = {
            agent: np.asarray(self._at_env[agent].observe(one))
            for agent, one in self._rename_only_agent(by_agent).items()
        }
        rewards = self._rename_only_agent(polled.rewards.get(env_id, {}))
        return step_record(shown, rewards, *ends), bool(over[0][ALL]), bool(over[1][ALL])

    def _rename_only_agent(self, by_agent: Mapping[Any, Any]) -> Mapping[str, Any]:
        """Return values by agent; in an environment of one agent, its key becomes `AGENT`."""
        if not self._is_alone or not by_agent or AGENT in by_agent:
            return by_agent
        (one,) = by_agent.values()
        return {AGENT: one}

    def _interface_breach(
        self, env_id: Any, by_agent: Any, ends: Sequence[Mapping[Any, Any]]
    ) -> str:
        """Return a sentence about how an episode's part of a poll breaks the interface, or "".

        `ends` are the dicts `terminateds` and `truncateds` of the episode.
        """
        if not isinstance(by_agent, Mapping):
            return (
                f"a poll gave the observations {shorten(by_agent)}; expected a dict with agents "
                "as keys"
            )
        fewest = 0 if env_id in self._running else 1
        if self._is_alone and not fewest <= len(by_agent) <= 1:
            expected = f"expected one, {{{AGENT!r}: observation}}"
            return f"a poll gave observations of {len(by_agent)} agents; {expected}"
        for agent in by_agent:
            if not self._is_alone and agent not in self._agents:
                names = ", ".join(map(repr, self._agents))
                return f"a poll gave an agent {agent!r}; there are {names}"
        if not all(isinstance(one, Mapping) and ALL in one for one in ends):
            return f"a poll gave no {{{ALL!r}: …}} in terminateds and truncateds"
        return ""

    def _record_outcome(
        self, env_id: Any, polled: Polled, finished: list[RolloutMetrics]
    ) -> tuple[bool, _Episode]:
        """Record what a poll says about an episode; return (True if it has ended, the episode).

        Begins the episode if it is new. If it ended, its metrics are appended to `finished`, unless
        it has no step, and the environment is asked to reset and to begin the next one.
        """
        given, terminated, truncated = self._parse_step(env_id, polled)
        over, episode, is_cut = terminated or truncated, self._running.get(env_id), False
        if episode is None:
            episode = self._begin(env_id, given, is_over=over)
        else:
            episode.length += 1
            limit = self._ends.hard_horizon
            is_cut = not over and limit is not None and episode.length >= limit
            over = over or is_cut
        self._record_consequences(env_id, given, over, terminated, is_cut)
        self._forget_choices(env_id, episode.waiting)
        reward = float(sum(given["rewards"].values()))
        episode.total += reward
        if episode.watch and episode.length:
            alone = self._infos.get(AGENT, {}) if self._is_alone else {"agents": self._infos}
            episode.watch.step(self._callback_observation(given, episode.watch), reward, alone)
        if over:
            self._remove_episode(env_id)
            self._failures.pop(env_id, None)
            if episode.length:
                finished.append(self._final_metrics(episode, None))
            self._begin_again(env_id, finished)
        return over, episode

    def _forget_choices(self, env_id: Any, waiting: Container[str]) -> None:
        """Forget the actions that the environment chose for agents of an episode that do not act.

        `waiting` are the agents that act next. The others' observations are not known, or their
        trajectories have ended, so that a later decision would get the action.
        """
        for one in [one for one in self._own_choices if one[0] == env_id and one[1] not in waiting]:
            del self._own_choices[one]

    def _begin(self, env_id: Any, step: Seen, is_over: bool = False) -> _Episode:
        """Begin the episode `env_id` with its first observations, call its callbacks, return it.

        They are ``on_episode_created`` and ``on_episode_start``. An episode that is over at once
        (`is_over`), or begins without an observation of the only agent, has no callbacks.
        """
        index, workers = self._numbers
        slot = heapq.heappop(self._free_slots) if self._free_slots else len(self._running)
        episode = _Episode(self._episode_count * workers + index, slot=slot)
        self._episode_count += 1
        self._running[env_id] = episode
        if self.watch and not is_over and (step["observations"] or not self._is_alone):
            episode.watch = self.watch.create_unattached(
                str(env_id), self._episode_policies(env_id, episode.number)
            )
            episode.watch.start(self._callback_observation(step))
        return episode

    def _callback_episode(self, env_index: Any) -> Episode | None:
        """Return a running episode as callbacks see it; None if there are no callbacks."""
        watch = self._running[env_index].watch
        return watch.episode if watch else None

    def _remove_episode(self, env_id: Any) -> _Episode:
        """Remove an episode from the running ones, free its index, and return it."""
        episode = self._running.pop(env_id)
        heapq.heappush(self._free_slots, episode.slot)
        return episode

    def _callback_observation(self, step: Seen, watch: EpisodeCallbacks | None = None) -> Any:
        """Return a step's observation as callbacks see it: (*O), or with several agents `step`.

        If the step has no observation of the only agent, the latest one of `watch` is returned.
        """
        if not self._is_alone:
            return step
        if watch and not step["observations"]:
            return watch.episode.last_observation
        return step["observations"][AGENT]

    def _begin_again(self, env_id: Any, finished: list[RolloutMetrics]) -> None:
        """Ask the environment to reset after an episode, and begin the next one if it answers.

        Without an answer a later poll begins the next episode. A reset that fails is repeated, and
        adds a faulty episode to `finished`.

        Raises:
            EnvError: it failed too often, or a horizon is set and the environment cannot be reset.
        """
        given = self._polled_env.reset(env_id)
        while isinstance(given, Exception):
            self._require_restart(env_id, given, 0)
            finished.append(RolloutMetrics(0.0, 0, faulty=True))
            given = self._polled_env.reset(env_id)
        if given is None and self._ends.hard_horizon is not None:
            raise EnvError(
                f"{self._episode_label(env_id)}: try_reset() returned nothing; with a horizon "
                f"({self._ends.horizon}) the environment needs a reset: let it return the first "
                "observation, or ASYNC_RESET if that comes in a later poll"
            )
        if given is not None and not isinstance(given, str):
            self._begin_from_observations(env_id, given)

    def _begin_from_observations(self, env_id: Any, first: Mapping[Any, Any]) -> None:
        """Begin an episode with the observations of a reset, agent → raw observation."""
        never = {env_id: {ALL: False}}
        given, _, _ = self._parse_step(env_id, Polled({env_id: first}, {}, never, never, {}, {}))
        self._begin_from_step(env_id, given)

    def _begin_from_step(self, env_id: Any, step: Seen) -> None:
        """Begin an episode with its first observations by agent, whose agents then wait to act."""
        self._begin(env_id, step)
        self._record_consequences(env_id, step, has_ended=False, dead=False)

    # ---- failures and losses ---------------------------------------------------------------------

    def _episode_label(self, env_id: Any) -> str:
        """Return ``<sampler's name>, episode <env_id>``, with which errors begin."""
        return f"{self.name}, episode {shorten(env_id)}"

    def _fault(self, env_id: Any, polled: Polled) -> Exception | None:
        """Return the exception that a poll gave in place of an episode's observation, or None.

        Raises EnvError if there is one, and the poll does not end the episode for all agents.
        """
        given: Any = polled.observations.get(env_id)
        each = given.values() if isinstance(given, Mapping) else (given,)
        fault = next((one for one in each if isinstance(one, Exception)), None)
        if fault is not None and not polled.terminateds.get(env_id, {}).get(ALL):
            raise EnvError(
                f"{self._episode_label(env_id)}: poll() returned the exception {fault!r} "
                f"in place of observations, but terminateds has no {ALL}: True; end the episode of "
                "an environment that failed for all agents"
            ) from fault
        return fault

    def _replace_failed(
        self, env_id: Any, fault: Exception, finished: list[RolloutMetrics]
    ) -> tuple[int, int]:
        """Drop an episode whose environment failed, add it to `finished`, and begin the next one.

        Returns the agent steps and environment steps of it that this sample has counted.

        Raises:
            EnvError: `restart_failed_sub_environments` is not set, or too many failures in a row.
        """
        episode = self._running.get(env_id)
        self._require_restart(env_id, fault, episode.length if episode else 0)
        counted = (0, 0)
        if episode is None:
            finished.append(RolloutMetrics(0.0, 0, faulty=True))
        else:
            known, length = episode.start_counts
            counted = episode.known_decisions - known, episode.length - length
            self._drop_running(env_id)
            finished.append(self._final_metrics(episode, fault))
        self._begin_again(env_id, finished)
        return counted

    def _require_restart(self, env_id: Any, fault: Exception, length: int) -> None:
        """Count a failure after `length` steps of an episode, and log it as a warning.

        Raises EnvError if the environment may not be restarted, or failed too often in a row.
        """
        name, failed = self._episode_label(env_id), f"its environment failed with {fault!r}"
        if not self._ends.restart_failed_sub_environments:
            advice = f"{SETTING} drops such an episode and begins the next one"
            raise EnvError(f"{name}: {failed}, at step {length}; {advice}") from fault
        times, first = self._failures.get(env_id, (0, fault))
        if length > STEPS_THAT_COUNT:
            times, first = 0, fault
        self._failures[env_id] = times + 1, first
        if times >= MAX_FAILURES_IN_A_ROW:
            raise EnvError(
                f"{name}: its environment failed {times + 1} times in a row, without an episode "
                f"that ended; it is not reset again. First it failed with {first!r}; at last with "
                f"{fault!r}"
            ) from first
        logger.warning("%s: %s; its episode is dropped", name, failed, exc_info=fault)

    def _drop_running(self, env_id: Any) -> None:
        """Remove a running episode, free its index, and drop its rows that are in no fragment yet.

        Callbacks are not called. Raises KeyError if `env_id` has no running episode.
        """
        number = self._remove_episode(env_id).number
        for transitions in self._transitions.values():
            transitions.drop_episode(number)

    def _drop_and_restart(self, env_ids: Sequence[Any]) -> None:
        """Drop these running episodes and their rows; begin new ones for those awaiting actions.

        An environment that cannot be reset begins its next episode with its agents' last
        observations; one that has `abandon` begins episodes itself. Raises EnvError if a reset
        fails.
        """
        asked = [e for e in env_ids if e in self._waiting_episodes or self._running[e].waiting]
        seen_last = {env_id: step_record(self._running[env_id].waiting, {}) for env_id in asked}
        for env_id in env_ids:
            self._drop_running(env_id)
        said, lost = self._own_choices, {*env_ids}
        self._own_choices = {one: action for one, action in said.items() if one[0] not in lost}
        if callable(getattr(self._base, "abandon", None)):
            return
        for env_id in asked:
            given = self._polled_env.reset(env_id)
            if isinstance(given, Exception):
                raise EnvError(
                    f"{self._episode_label(env_id)}: try_reset() {describe_fault(given)}"
                ) from given
            if given is None:
                self._own_choices |= {
                    one: action for one, action in said.items() if one[0] == env_id
                }
                self._begin_from_step(env_id, seen_last[env_id])
            elif not isinstance(given, str):
                self._begin_from_observations(env_id, given)

    def _finish_lost(self, episode: _Episode, reason: str) -> RolloutMetrics:
        """Finish an episode that the environment lost; return its metrics, marked as faulty.

        Its rows are kept and truncated at the latest step with a known next observation. Calls
        ``on_episode_end`` with `reason`, a text, in an `EpisodeLost`.
        """
        for agent in episode.lanes:
            which = self._order[agent]
            rows = [
                row
                for row in self._transitions[episode.policies[agent]].rows
                if (row.episode, row.agent) == (episode.number, which)
            ]
            for row in rows[-1:] if agent in episode.open else ():
                row.dropped = True
            for row in [one for one in rows if not one.dropped][-1:]:
                row.truncated = not row.terminated
        return self._final_metrics(episode, EpisodeLost(reason))

    def _final_metrics(self, episode: _Episode, error: Exception | None) -> RolloutMetrics:
        """Finish an episode's rows and callbacks, and return its metrics.

        Calls ``on_episode_end`` if there are callbacks. With an `error` the metrics are marked as
        faulty.
        """
        for transitions in self._transitions.values():
            transitions.end_episode(episode.number)
        self._early_policies.pop(episode.number, None)
        metrics = RolloutMetrics(episode.total, episode.length)
        if not self._is_alone:
            rewards = {a: [episode.policies[a], total] for a, total in episode.rewards.items()}
            metrics = metrics._replace(agent_rewards=rewards)
        if episode.watch:
            episode.watch.end(error)
        written = episode.watch.episode if episode.watch else None
        return with_callback_data(metrics, written, faulty=error is not None)

    def _lane(self, env_index: Any, episode: RunningEpisode, pid: str) -> int:
        """Return an index on the environment axis of a policy's fragments for a new trajectory.

        No running agent of this episode uses the index.
        """
        return super()._lane(self._running[env_index].slot, episode, pid)

    def _policy_of(self, env_index: Any, episode: int | str, agent: str) -> str:
        """Return the name of an agent's policy: the environment's choice, else the mapping's.

        Raises ConfigError if the mapping gives the agent no policy of its spaces.
        """
        bound = self._player_policies.get(env_index, {})
        return bound[agent] if agent in bound else super()._policy_of(env_index, episode, agent)

    # ---- state -----------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return ``begun``, the number of episodes begun, and ``streams``, the policies' streams.

        Running episodes are not stored.
        """
        streams = {pid: rng.get_generator_state(one) for pid, one in self._streams.items()}
        return {"begun": self._episode_count, "streams": streams}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned, and drop running episodes."""
        self._episode_count = int(state["begun"])
        for pid, one in state["streams"].items():
            rng.set_generator_state(self._streams[pid], one)
        self.forget()

    def forget(self) -> None:
        """Drop all running episodes and all rows that are in no fragment yet.

        Episodes that await actions begin again, if the environment can be reset.
        """
        for transitions in self._transitions.values():
            for row in transitions.rows:
                row.dropped = True
            transitions.take(False)
        self._failures.clear()
        self._drop_and_restart([*self._running])
