"""Environments that call the trainer, instead of being called by it.

An `ExternalEnv` plays in a thread of its own and asks for each action. It has one agent, or several
whose observations, actions and rewards come in dicts. To a sampler it looks as any environment that
is polled does (`poll`, `send_actions`, `try_reset`, as RLlib's BaseEnv): dicts, episode → agent →
what it sees, for all episodes that wait for an action now.
"""

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from trainables.envs.external.polled import (
    AGENT,
    ASYNC_RESET,
    ByAgent,
    EpisodeError,
    EpisodeLost,
    Full,
    Polled,
    Values,
)
from trainables.envs.external.values import (
    checked,
    checked_action,
    checked_logp,
    describe_place,
    is_number,
)
from trainables.envs.kinds.agents import ALL
from trainables.errors import EnvError, shorten

logger = logging.getLogger(__name__)

#: Largest number of an episode's steps that wait to be polled; a caller that logs more is blocked.
MOST_QUEUED = 64
#: Number of ended episodes that are remembered.
REMEMBERED = 10_000
#: Seconds that a poll waits for an event.
POLL_S = 0.1
#: Seconds that `close` waits for the thread.
CLOSE_S = 5.0
#: Stands for an argument that was not given.
_NOTHING: Any = object()


@dataclass
class _Event:
    """An observation on which agents act, or the end of an episode.

    It has what happened since the previous event. All dicts are agent → value.
    """

    observations: ByAgent
    """Agent → observation, of the agents that act now, or whose episode ends."""
    actions: ByAgent | None
    """Agent → action that the environment chose itself; None if the policy is to choose, or at an
    end."""
    logps: ByAgent
    """Agent → log-probability of its action in `actions`, as far as the environment knows it."""
    ended: str
    """``terminated`` or ``truncated`` for the episode's last event; else empty."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum of rewards since the previous event."""
    infos: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Agent → info since its previous event, with the entry ``training_enabled``."""
    done: list[str] = field(default_factory=list)
    """Agents that have died since the previous event, while the episode continues."""
    policies: dict[str, str] = field(default_factory=dict)
    """Agent → policy, of agents for which the client asked, to choose actions itself."""

    @property
    def asks(self) -> bool:
        """True if the environment waits for the policy's actions."""
        return self.actions is None and not self.ended


@dataclass
class _Episode:
    """A running episode: events that wait for the trainer, and what happened since the last one."""

    training_enabled: bool
    """True if the trainer may learn from the episode."""
    changed: threading.Condition
    """Condition that is notified when the trainer has taken an event or answered."""
    events: deque[_Event] = field(default_factory=deque)
    """Events that the trainer has not taken yet, oldest first."""
    answer: Any = None
    """Latest actions from the trainer: an action, or agent → action; None before the first."""
    pending: bool = False
    """True while the environment waits for actions."""
    needs_answer: bool = False
    """True if the event that the trainer took last asks for actions, and has none yet."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum of rewards since the latest event."""
    infos: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Agent → info since its latest observation."""
    done: list[str] = field(default_factory=list)
    """Agents that have died since the latest event."""
    acting: set[str] = field(default_factory=set)
    """Agents that have acted in the episode and not died."""
    dead_agents: set[str] = field(default_factory=set)
    """Agents that have died."""
    policies: dict[str, str] = field(default_factory=dict)
    """Agent → its policy in this episode, for agents of which the client has asked for it."""
    last_call_at: float = 0.0
    """`time.monotonic` of the environment's latest call for this episode."""

    def add(self, rewards: ByAgent, infos: ByAgent, effects: Iterable[str]) -> None:
        """Add what the latest actions led to: rewards are summed, and infos merged, by agent.

        `effects` are the agents that died: they do not act any more. Sets `last_call_at`.
        """
        for agent, reward in rewards.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + float(reward)
        for agent, info in infos.items():
            self.infos.setdefault(agent, {}).update(info or {})
        self.done += effects
        self.dead_agents.update(effects)
        self.acting.difference_update(effects)
        self.last_call_at = time.monotonic()

    def put(self, event: _Event) -> None:
        """Append an event for the trainer; it gets rewards, infos and deaths since the last one.

        Infos of agents that the event does not concern wait for a later one. The event decides
        whether the episode is `pending`; its agents are added to `acting`. Sets `last_call_at`.
        """
        event.rewards, self.rewards = self.rewards, {}
        event.done, self.done = self.done, []
        event.policies = {**self.policies}
        enabled = {"training_enabled": self.training_enabled}
        for agent in {*event.observations, *event.done, *(self.acting if event.ended else ())}:
            event.infos[agent] = {**enabled, **self.infos.pop(agent, {})}
        if not event.ended:
            self.acting.update(event.observations)
        self.events.append(event)
        self.pending = event.asks
        self.last_call_at = time.monotonic()


class ExternalEnv:
    """An environment that calls the trainer for actions, instead of being stepped by it.

    Derive from it and override `run`, which plays in its own thread and may start others. With
    several agents both spaces are dicts by agent, and so are observations, actions, rewards and
    infos: each call names the agents that it concerns, and agents may act at different times.

    Args:
        action_space: space of the actions that `get_action` returns.
        observation_space: space of the observations.
    """

    episode_timeout_s: float | None = None
    """Time after which an episode that makes no call is given up, seconds; None for never."""

    def __init__(self, action_space: Any, observation_space: Any) -> None:
        self.action_space = action_space
        self.observation_space = observation_space
        self.has_agents = not isinstance(action_space, spaces.Space)
        """True if the environment has several agents."""
        self._actions = action_space if self.has_agents else {AGENT: action_space}
        self._observations = observation_space if self.has_agents else {AGENT: observation_space}
        self._mapper: Callable[[str, str], str] | None = None
        """Function (agent, episode) → policy, or None before there are policies."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        """Notified when an event can be polled, or when no more will come."""
        self._episodes: dict[str, _Episode] = {}
        self._waiting: dict[str, _Episode] = {}
        """Episodes with events, even if they have ended, in order of arrival."""
        self._ended: dict[str, str] = {}
        """Episode → how it ended, for the latest ones."""
        self._lost: dict[str, str] = {}
        """Episode → reason of its loss, until that was polled."""
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_over = self._is_closed = False

    # ---- what a person writes, and calls -----------------------------------------------------

    def run(self) -> None:
        """Play episodes for ever, by calling the methods below; override this.

        After `close`, the next call of such a method, except `log_returns`, raises SystemExit here.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run()")

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begin an episode; return its id, a new one if none is given.

        With ``training_enabled=False`` the episode counts in the metrics, but nothing is learnt
        from it. Waits until the trainer has taken or dropped all events of an ended episode with
        this id. Raises EpisodeError if the id's episode is running, SystemExit after `close`.
        """
        episode_id = uuid.uuid4().hex if episode_id is None else episode_id
        with self._lock:
            if episode_id in self._episodes:
                raise EpisodeError(f"episode {episode_id!r} runs already; end it first")
            if (before := self._waiting.get(episode_id)) is not None:  # its end is not polled yet
                before.changed.wait_for(
                    lambda: self._waiting.get(episode_id) is not before or self._is_stopped
                )
            self._require_open()
            changed = threading.Condition(self._lock)
            self._episodes[episode_id] = _Episode(
                training_enabled, changed, last_call_at=time.monotonic()
            )
            self._ended.pop(episode_id, None)
        return episode_id

    def get_action(self, episode_id: str, observation: Any) -> Any:
        """Return the policy's action for an observation; blocks until the trainer has chosen it.

        Raises EpisodeError for an observation outside its space or an episode that is not running,
        EpisodeLost if it cannot continue, SystemExit after `close`.
        """
        self.ask(episode_id, observation)
        return self.answer(episode_id)

    def log_action(self, episode_id: str, observation: Any, action: Any, logp: Any = None) -> None:
        """Report an action that the environment itself chose, not the policy.

        Blocks while `MOST_QUEUED` steps of the episode wait for the trainer. Raises EpisodeError
        for a value outside its space or an episode that is not running, EpisodeLost if it cannot
        continue, SystemExit after `close`.

        Args:
            observation: observation for which the action was chosen.
            logp: its log-probability when it was chosen, or None to use that of the present policy.
        """
        self._add_event(episode_id, observation, action, logp)

    def log_returns(
        self,
        episode_id: str,
        reward: Any,
        info: Mapping[str, Any] | None = None,
        multiagent_done_dict: Mapping[str, bool] | None = None,
    ) -> None:
        """Report a reward of the previous action; several are summed.

        Raises EpisodeError for invalid values, an agent that has not acted, or an episode that is
        not running (then SystemExit after `close`), and EpisodeLost if it cannot continue.

        Args:
            info: info of the step that the action led to.
            multiagent_done_dict: agent → True if it has died: it acts no more, while the episode
                continues for the others.
        """
        brought = self._check_effects(episode_id, reward, info, multiagent_done_dict)
        with self._lock:
            episode = self._require_running(episode_id)
            self._require_acted(episode_id, episode, brought)
            episode.add(*brought)

    def end_episode(self, episode_id: str, observation: Any, truncated: bool = False) -> None:
        """End an episode with its last observation.

        Truncated agents need a last observation, since their future has a value. Blocks while
        `MOST_QUEUED` steps of the episode wait for the trainer. Raises EpisodeError for an invalid
        observation or an episode that is not running, EpisodeLost if it is lost already, SystemExit
        after `close`.
        """
        ended = "truncated" if truncated else "terminated"
        self._add_event(episode_id, observation, ended=ended)

    # ---- the same without waiting, for servers -----------------------------------------------

    def ask(self, episode_id: str, observation: Any) -> None:
        """Request the policy's action for an observation; `answer` waits for it and returns it.

        Blocks only while `MOST_QUEUED` steps of the episode wait for the trainer. Raises
        EpisodeError for an invalid observation or an episode that is not running, EpisodeLost if it
        cannot continue, SystemExit after `close`.
        """
        self._add_event(episode_id, observation)

    def step_episode(
        self,
        episode_id: str,
        observation: Any,
        reward: Any,
        info: Mapping[str, Any] | None,
        done: Mapping[str, bool] | None,
        **event: Any,
    ) -> None:
        """Report the results of the previous action and the next event at once, without waiting.

        Results are reward, `info`, and agents that are `done`: agent → value, or the value of the
        only agent; without infos or deaths, these are None. The `event` is an ``action`` with its
        ``logp``, or how the episode ``ended``, or nothing, which requests an action.

        Raises Full if too many events wait, EpisodeError for invalid values or an episode that is
        not running, EpisodeLost if it cannot continue, SystemExit after `close`; then nothing was
        done.
        """
        brought = self._check_effects(episode_id, reward, info, done)
        self._add_event(episode_id, observation, effects=brought, **event)

    def policies_of(self, episode_id: str, agents: Collection[str]) -> dict[str, str]:
        """Return agent → its policy in this episode, chosen now for agents that have none yet.

        For callers that choose actions themselves. Raises EpisodeError if there is no mapping yet,
        or if it fails, for an unknown agent, and if the episode is not running (EpisodeLost if it
        is lost).
        """
        with self._lock:
            episode = self._require_running(episode_id)
            for agent in [one for one in agents if one not in episode.policies]:
                ((_, place, _),) = self._by_agent(episode_id, "a policy", {agent: None})
                if self._mapper is None:
                    raise EpisodeError(
                        f"{place}: there are no policies yet; try again when training has begun"
                    )
                try:
                    episode.policies[agent] = self._mapper(agent, episode_id)
                except Exception as error:
                    why = f"policy_mapping_fn raised {type(error).__name__}: {error}"
                    raise EpisodeError(f"{place}: {why}") from error
            return {agent: episode.policies[agent] for agent in agents}

    def is_running(self, episode_id: str) -> bool:
        """Return whether an episode with this id is running."""
        return episode_id in self._episodes

    def is_polled(self, episode_id: str) -> bool:
        """Return whether no event of an episode waits for the trainer.

        True for an ended episode whose id may be used again, and for an unknown one.
        """
        return episode_id not in self._waiting

    def answer(self, episode_id: str, timeout_s: float | None = None) -> Any:
        """Wait for the action that `ask` requested, and return it.

        Raises TimeoutError if there is none within `timeout_s` seconds (None: no limit),
        EpisodeError or EpisodeLost if the episode is not running, SystemExit after `close`.
        """
        with self._lock:
            episode = self._require_running(episode_id)

            def is_settled() -> bool:
                """Return whether all pending actions were taken, or the episode is gone."""
                return not episode.pending or self._is_gone(episode_id, episode)

            if not episode.changed.wait_for(is_settled, timeout_s):
                raise TimeoutError
            self._require_open()
            if episode.pending:
                self._require_running(episode_id)
            return episode.answer

    # ---- what a sampler calls ----------------------------------------------------------------

    def start(self) -> None:
        """Start the thread that calls `run`; a second call does nothing."""
        if self._thread is None:
            name = f"environment {type(self).__name__}"
            self._thread = threading.Thread(target=self._play, name=name, daemon=True)
            self._thread.start()

    def poll(self) -> Polled:
        """Take the oldest waiting event of each episode; waits up to `POLL_S` seconds for one.

        Called by the trainer's worker. The result is empty if none came. Episodes that were silent
        for `episode_timeout_s` are given up and reported as lost. Raises EnvError if the
        environment's thread raised, or ended although more steps are needed.
        """
        with self._lock:
            self._changed.wait_for(
                lambda: self._waiting or self._lost or self._failed or self._is_over, POLL_S
            )
            self._give_up_silent()
            if self._failed is not None:
                kind, what = type(self).__name__, type(self._failed).__name__
                raise EnvError(f"{kind}.run() raised {what}: {self._failed}") from self._failed
            if self._is_over and not self._waiting:
                raise EnvError(
                    f"{type(self).__name__}.run() has returned, but the trainer needs more "
                    "steps; let run() play until the trainer closes the environment"
                )
            return self._take_events()

    def send_actions(self, actions: Values) -> None:
        """Answer the events of the latest poll that ask for actions: episode → agent → action.

        Their callers are woken up. Actions for other episodes are ignored. A single agent's name is
        `AGENT`.
        """
        with self._lock:
            for episode_id, by_agent in actions.items():
                episode = self._episodes.get(episode_id)
                if episode is not None and episode.needs_answer:
                    episode.answer = dict(by_agent) if self.has_agents else by_agent[AGENT]
                    episode.needs_answer = episode.pending = False
                    episode.changed.notify_all()

    def take_mapper(self, mapper: Callable[[str, str], str]) -> None:
        """Set the function (agent, episode) → policy, by which `policies_of` chooses."""
        self._mapper = mapper

    def try_reset(self, episode_id: Any) -> Any:
        """Return `ASYNC_RESET`: this environment begins its episodes itself, so none is reset."""
        return ASYNC_RESET

    def abandon(self, reason: str, episodes: Iterable[Any] | None = None) -> None:
        """End the running ones of `episodes`, or all running ones for None, as lost for `reason`.

        The environment's next call for one raises EpisodeLost. Waiting events of all of them, also
        of ended ones, are dropped, and no poll reports them as lost.
        """
        with self._lock:
            for episode_id in list(self._episodes if episodes is None else episodes):
                if episode_id in self._episodes:
                    self._lose(episode_id, reason)
                self._lost.pop(episode_id, None)
                self._drop_events(episode_id)
            if episodes is None:
                self._lost.clear()
                for episode_id in list(self._waiting):
                    self._drop_events(episode_id)

    def close(self) -> None:
        """End the environment's thread: its calls, waiting ones too, then raise SystemExit there.

        A call of `log_returns` does not. Waits up to `CLOSE_S` seconds for the thread's end, and
        logs a warning if it does not end. The thread itself may call this. A second call only waits
        again.
        """
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()
            self._wake_callers()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(CLOSE_S)
        if thread.is_alive():
            logger.warning(
                "%s.run() does not end within %s s after close(); its thread is abandoned",
                *(type(self).__name__, CLOSE_S),
            )

    # ---- inside ------------------------------------------------------------------------------

    def _play(self) -> None:
        """Call `run` and record how it ended; the thread's main function.

        An exception is logged unless the environment was closed, and wakes up all callers.
        """
        try:
            self.run()
        except SystemExit:
            pass
        except BaseException as error:
            if not self._is_closed:
                logger.exception("%s.run() raised", type(self).__name__)
            with self._lock:
                self._failed = error
                self._wake_callers()
        finally:
            with self._lock:
                self._is_over = True
                self._changed.notify_all()

    def _add_event(
        self,
        episode_id: str,
        observation: Any,
        action: Any = _NOTHING,
        logp: Any = None,
        ended: str = "",
        effects: tuple[ByAgent, ByAgent, list[str]] | None = None,
    ) -> None:
        """Append an event of an episode for the trainer, and wake the trainer up.

        Without an `action` and an end, it asks for one. An end (`ended`) removes the episode. Waits
        while too many events of the episode wait; with `effects` (rewards, infos, deaths, which are
        added first) raises Full instead. Raises EpisodeError for invalid values or an episode that
        is not running, EpisodeLost, or SystemExit after `close`.
        """
        event = self._event(episode_id, observation, action, logp, ended)
        with self._lock:
            episode = self._require_running(episode_id)

            def has_room() -> bool:
                """Return whether an event can be queued, or the episode is gone."""
                gone = self._is_gone(episode_id, episode)
                return gone or len(episode.events) < MOST_QUEUED

            if effects is None:
                episode.changed.wait_for(has_room)
            elif not has_room():
                raise Full(
                    f"episode {episode_id!r}: {MOST_QUEUED} of its steps are waiting already; "
                    "send fewer at once"
                )
            self._require_open()
            self._require_running(episode_id)
            brought: tuple[ByAgent, ByAgent, list[str]] = effects or ({}, {}, [])
            self._require_acted(episode_id, episode, brought)
            self._require_parts(episode_id, episode, event, brought[2])
            episode.add(*brought)
            episode.put(event)
            self._waiting.setdefault(episode_id, episode)
            self._changed.notify_all()
            if ended:
                self._remember(episode_id, "it has ended already")

    def _take_events(self) -> Polled:
        """Remove the oldest event of each episode that has one, and the list of lost episodes.

        Return them in RLlib's form of a poll, and wake up callers that wait for room.
        """
        polled = Polled({}, {}, {}, {}, {}, {}, dict(self._lost), {}, {})
        self._lost.clear()
        fields: dict[str, Any] = {name: getattr(polled, name) for name in polled._fields}
        for episode_id, episode in list(self._waiting.items()):
            event = episode.events.popleft()
            episode.needs_answer = event.asks
            if not episode.events:
                del self._waiting[episode_id]
            episode.changed.notify_all()
            for name in ("observations", "rewards", "infos", "logps", "policies"):
                fields[name][episode_id] = getattr(event, name)
            died = dict.fromkeys(event.done, True)
            fields["terminateds"][episode_id] = {**died, ALL: event.ended == "terminated"}
            fields["truncateds"][episode_id] = {ALL: event.ended == "truncated"}
            if event.actions is not None:
                fields["off_policy_actions"][episode_id] = event.actions
        return polled

    def _give_up_silent(self) -> None:
        """End episodes that have made no call for longer than `episode_timeout_s`, as lost.

        Only those that wait for no action and have no event that was not polled. Each is logged as
        a warning.
        """
        if (limit := self.episode_timeout_s) is None:
            return
        latest = time.monotonic() - limit
        for episode_id, episode in list(self._episodes.items()):
            if episode.last_call_at < latest and not (episode.events or episode.pending):
                why = f"it was silent for {limit:g} s (episode_timeout_s)"
                logger.warning("episode %r is abandoned: %s", episode_id, why)
                self._lose(episode_id, why)

    def _wake_callers(self) -> None:
        """Wake up all callers that wait, also those that wait for the end of an episode's events.

        Callers hold the lock.
        """
        for episode in (*self._episodes.values(), *self._waiting.values()):
            episode.changed.notify_all()

    def _drop_events(self, episode_id: str) -> None:
        """Drop an episode's waiting events, if there are any, and wake up its callers."""
        if (episode := self._waiting.pop(episode_id, None)) is not None:
            episode.changed.notify_all()

    def _lose(self, episode_id: str, reason: str) -> None:
        """End a running episode as lost, drop its events, and wake up its caller.

        The next poll reports it, with the `reason`.
        """
        episode = self._episodes[episode_id]
        self._remember(episode_id, f"it is lost: {reason}")
        self._waiting.pop(episode_id, None)
        self._lost[episode_id] = reason
        episode.changed.notify_all()

    def _remember(self, episode_id: str, end: str) -> None:
        """Remove a running episode, and keep `end`, how it ended, for later error messages.

        Of ended episodes only the `REMEMBERED` latest ones are kept.
        """
        del self._episodes[episode_id]
        self._ended[episode_id] = end
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _require_running(self, episode_id: str) -> _Episode:
        """Return a running episode; raises EpisodeLost or EpisodeError if it is not running.

        If it is not, and the environment was closed, raises SystemExit.
        """
        episode = self._episodes.get(episode_id)
        if episode is None:
            self._require_open()
            how = self._ended.get(episode_id, "start_episode() was not called for it")
            kind = EpisodeLost if how.startswith("it is lost") else EpisodeError
            raise kind(f"episode {shorten(episode_id)} is not running: {how}")
        return episode

    @property
    def _is_stopped(self) -> bool:
        """True if the environment was closed or its thread has failed."""
        return self._is_closed or self._failed is not None

    def _is_gone(self, episode_id: str, episode: _Episode) -> bool:
        """Return whether `episode` is not running any more, perhaps because all has stopped."""
        return self._is_stopped or self._episodes.get(episode_id) is not episode

    def _require_open(self) -> None:
        """Raise SystemExit if the environment was closed or its thread has failed."""
        if self._is_stopped:
            raise SystemExit("the trainer has closed the environment")

    # ---- what a call is given --------------------------------------------------------------------

    def _by_agent(
        self, episode_id: str, subject: str, values: Any
    ) -> Iterator[tuple[str, str, Any]]:
        """Yield agent, its name in errors, and its value, for each agent in a call's `values`.

        With one agent, `values` is its value. Raises EpisodeError for an unknown agent, or if
        `values` of several agents are no dict. `subject` names the value in errors.
        """
        if not self.has_agents:
            yield AGENT, describe_place(episode_id), values
            return
        names = ", ".join(map(repr, self._actions))
        if not isinstance(values, Mapping):
            raise EpisodeError(
                f"{describe_place(episode_id)}: {subject} {shorten(values)} is not a dict with "
                f"agents as keys; the agents are {names}"
            )
        for agent, one in values.items():
            where = describe_place(episode_id, agent)
            if agent not in self._actions:
                raise EpisodeError(
                    f"{where}: {subject} of an unknown agent; the agents are {names}"
                )
            yield agent, where, one

    def _check_effects(
        self, episode_id: str, reward: Any, info: Any, done: Any
    ) -> tuple[ByAgent, ByAgent, list[str]]:
        """Return agent → reward, agent → info, and the agents that have died.

        Raises EpisodeError if the arguments of a call are not valid.
        """
        rewards = {}
        for agent, place, value in self._by_agent(episode_id, "reward", reward):
            if not is_number(value):
                raise EpisodeError(
                    f"{place}: the reward {shorten(value)} is not a number that float32 can hold"
                )
            rewards[agent] = value
        infos = {}
        for agent, place, value in self._by_agent(episode_id, "info", info) if info else ():
            if not isinstance(value, Mapping):
                raise EpisodeError(f"{place}: info {shorten(value)} is not a dict")
            infos[agent] = value
        died = {agent: flag for agent, flag in (done or {}).items() if flag}
        if died and (ALL in died or not self.has_agents):
            why = (
                "multiagent_done_dict ends the episode for single agents; to end it for all "
                "agents, call end_episode()"
            )
            raise EpisodeError(f"{describe_place(episode_id)}: {why}")
        left = self._by_agent(episode_id, "an end", died) if died else ()
        return rewards, infos, [agent for agent, _, _ in left]

    def _event(self, episode_id: str, observation: Any, action: Any, logp: Any, end: str) -> _Event:
        """Return the event that a call's arguments describe.

        `end` is ``terminated`` or ``truncated`` for the last event, else empty. Raises EpisodeError
        for values outside their spaces, and if actions are not those of the observed agents.
        """
        observations = {
            agent: checked(self._observations[agent], one, f"{where}: observation")
            for agent, where, one in self._by_agent(episode_id, "observation", observation)
        }
        actions, logps = None, {}
        if action is not _NOTHING:
            actions = {
                agent: checked_action(self._actions[agent], one, f"{where}: action")
                for agent, where, one in self._by_agent(episode_id, "action", action)
            }
            if odd := actions.keys() ^ observations.keys():
                why = "one call must contain actions and observations of the same agents"
                raise EpisodeError(f"{describe_place(episode_id, min(odd))}: {why}")
        if logp is not None:
            logps = {
                agent: checked_logp(self._actions[agent], one, where)
                for agent, where, one in self._by_agent(episode_id, "logp", logp)
            }
        return _Event(observations, actions, logps, end)

    def _require_acted(
        self, episode_id: str, episode: _Episode, brought: tuple[ByAgent, ByAgent, list[str]]
    ) -> None:
        """Raise EpisodeError for rewards or deaths of agents that have not acted.

        `brought` are rewards, infos and deaths, as `_check_effects` returned them. Does nothing if
        there is only one agent.
        """
        rewards, _, done = brought
        for agent in (*rewards, *done) if self.has_agents else ():
            if agent not in episode.acting | episode.dead_agents:
                what = "a reward" if agent in rewards else "an end"
                where = describe_place(episode_id, agent)
                raise EpisodeError(f"{where}: {what} was given for an agent that has not acted")

    def _require_parts(
        self, episode_id: str, episode: _Episode, event: _Event, done: list[str]
    ) -> None:
        """Raise EpisodeError if an event names no agent, or one that has died before.

        Also if an agent is truncated without a last observation. `done` are agents that have just
        died.
        """
        observations, ended = event.observations, event.ended
        if not (observations or ended):
            raise EpisodeError(
                f"{describe_place(episode_id)}: the call has no agent's observation; give at "
                "least one"
            )
        if ended == "truncated":
            wrong = episode.acting - {*done} - observations.keys()
            why = (
                "the episode is truncated, so the last observation of this agent is needed to "
                "estimate its later rewards; give this observation, too"
            )
        else:
            wrong = set() if ended else observations.keys() & {*episode.dead_agents, *done}
            why = "this agent has ended, so it cannot act again in this episode"
        if wrong:
            raise EpisodeError(f"{describe_place(episode_id, min(wrong))}: {why}")
