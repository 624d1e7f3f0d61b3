"""Environments that call, whose every poll is scripted, and what sampling from them has to give.

A schedule says which environments of the script are heard in each poll, from the first poll to the
last and from the first again. An episode that fails is lost, or its environment raises.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.support.oracle.rows import Rules
from tests.support.oracle.scripts import (
    ACTIONS,
    AGENTS,
    ALL,
    BOX,
    ONLY,
    SENT,
    Follows,
    Moment,
    Played,
    Script,
    played,
)
from tests.support.oracle.several import Episode, SampledByPolicy, SeveralRun
from trainables.envs.external.polled import AGENT, ASYNC_RESET, Polled

Schedule = Sequence[Sequence[int]]


class _Place(Follows):
    """Where one of the environments stands; None is running as it begins."""

    is_running = False

    def __init__(self, index: int, episodes: Sequence[Played]) -> None:
        self.index, self._episodes = index, list(episodes)
        self.episode, self.t = -1, 0

    def begin(self) -> Played:
        self.episode += 1
        self.t, self.is_running = 0, True
        self._require_few()
        return self._current


class Called:
    """As RLlib's BaseEnv: it is polled, and given actions.

    Args:
        context: ``script``, ``schedule``, ``actions``, and whether it ``is_alone``, ``resets`` (the
            first observation of an episode comes as the one before ends) and ``raises`` (an episode
            that fails is none that is lost).
    """

    def __init__(self, context: Any) -> None:
        space = ACTIONS[context["actions"]]
        self._is_alone, self._resets = context["is_alone"], context["resets"]
        self._raises = context["raises"]
        self.observation_space: Any = BOX if self._is_alone else dict.fromkeys(AGENTS, BOX)
        self.action_space: Any = space if self._is_alone else dict.fromkeys(AGENTS, space)
        script: Script = context["script"]
        self._places = [_Place(i, episodes) for i, episodes in enumerate(script)]
        self._schedule: Schedule = context["schedule"]
        self._polls = 0
        self._answers: dict[int, Mapping[str, Any]] = {}

    def poll(self) -> Polled:
        polled = Polled({}, {}, {}, {}, {}, {}, {})
        found: dict[str, Any] = {name: getattr(polled, name) for name in polled._fields}
        for index in self._schedule[self._polls % len(self._schedule)]:
            place = self._places[index]
            if not place.is_running:
                first = place.begin().first
                self._say(found, place, Moment(first))
            else:
                self._step(found, place)
        self._polls += 1
        return polled

    def _step(self, found: dict[str, Any], place: _Place) -> None:
        try:
            moment = place.go_on(self._answers.pop(place.index, {}))
        except RuntimeError as error:
            place.is_running = False
            if self._raises:
                found["observations"][place.index] = error
                for key, over in (("terminateds", True), ("truncateds", False)):
                    found[key][place.index] = {ALL: over}
            else:
                found["lost"][place.index] = str(error)
            return
        self._say(found, place, moment)
        place.is_running = not moment.is_over

    def _say(self, found: dict[str, Any], place: _Place, moment: Moment) -> None:
        name = place.index
        found["observations"][name] = self._named(place.shown(moment.seen))
        found["rewards"][name] = self._named(moment.rewards)
        found["infos"][name] = self._named(moment.infos)
        for key, ends in (("terminateds", moment.terminated), ("truncateds", moment.truncated)):
            found[key][name] = {ALL: False, **dict.fromkeys(ends, True)}

    def _named(self, by_agent: Mapping[str, Any]) -> dict[str, Any]:
        """An only agent has another name."""
        if self._is_alone:
            return {AGENT: by_agent[ONLY]} if ONLY in by_agent else {}
        return dict(by_agent)

    def send_actions(self, actions: Mapping[int, Mapping[str, Any]]) -> None:
        for name, by_agent in actions.items():
            own = {ONLY: by_agent[AGENT]} if self._is_alone else by_agent
            self._answers[name] = own
            place = self._places[name]
            SENT[name, place.episode, place.t] = {a: np.array(one) for a, one in own.items()}

    def try_reset(self, name: int) -> Any:
        place = self._places[name]
        place.is_running = False
        if not self._resets:
            return ASYNC_RESET
        return {name: self._named(place.shown(place.begin().first))}


class Ways(NamedTuple):
    """How environments that call begin their episodes, and fail."""

    resets: bool = False
    """Whether the first observation of an episode comes as the one before ends."""
    raises: bool = False
    """Whether an episode that fails is one whose environment raises, and none that is lost."""


class CallingRun(SeveralRun):
    """All samples of a worker whose environments call, one after the other."""

    at_own_pace = True

    def __init__(
        self, script: Script, rules: Rules, schedule: Schedule, is_alone: bool, how: Ways
    ) -> None:
        super().__init__(script, rules)
        self._schedule, self._is_alone, self._how = schedule, is_alone, how
        self._counted: dict[int, tuple[int, int]] = {}
        """Of each environment the decisions and steps of its episode that this sample counted."""
        self._places: dict[int, Episode | None] = dict.fromkeys(range(rules.envs))
        self._next = [0] * rules.envs
        """Of each environment the episode of its script that begins next."""
        self._polls = self._started = 0
        self._seats: list[int] = []
        """Those that are free again; the first is taken first."""
        self.asked.clear()
        for lanes in self._lanes.values():
            lanes.clear()
        for returned in self._returned.values():
            returned.clear()

    def sample(self) -> SampledByPolicy:
        self._counted.clear()
        return super().sample()

    def _tick(self) -> tuple[int, int]:
        self._running = [one for one in self._places.values() if one is not None]
        for pid in self.policies:
            self._decide(pid)
        heard: Sequence[int] = []
        while not heard:
            heard = self._schedule[self._polls % len(self._schedule)]
            self._polls += 1
        fail = [i for i in heard if (one := self._places[i]) and self._moment(one).fails]
        lost = [] if self._how.raises else fail
        return self._sum(
            [self._lose(i) for i in lost] + [self._hear(i) for i in heard if i not in lost]
        )

    @staticmethod
    def _sum(each: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return sum(agents for agents, _ in each), sum(envs for _, envs in each)

    def _moment(self, episode: Episode) -> Moment:
        return played(self.script, episode.index, episode.number).steps[episode.at]

    def _hear(self, index: int) -> tuple[int, int]:
        """What one environment says; steps of agents and of the environment that are counted."""
        episode = self._places[index]
        if episode is None:
            self._begin(index)
            return 0, 0
        moment, known = self._moment(episode), _known(episode)
        if moment.fails:
            return self._fail(index, episode)
        episode.at += 1
        horizon = self.rules.horizon
        over = moment.is_over or (horizon is not None and episode.at >= horizon)
        self._settle(episode, moment, over)
        if over:
            self._leave_seat(index, faulty=False)
            if self._how.resets:
                self._begin(index)
        if self.rules.whole:
            return (_known(episode), episode.at) if over else (0, 0)
        more = _known(episode) - known, 1
        before = self._counted.get(episode.eps_id, (0, 0))
        self._counted[episode.eps_id] = before[0] + more[0], before[1] + more[1]
        return more

    def _fail(self, index: int, episode: Episode) -> tuple[int, int]:
        """An environment raises: what it brought to this sample is not counted any more."""
        self._drop(episode)
        self._leave_seat(index, faulty=True)
        if self._how.resets:
            self._begin(index)
        decisions, steps = self._counted.get(episode.eps_id, (0, 0))
        return -decisions, -steps

    def _lose(self, index: int) -> tuple[int, int]:
        """An episode is lost: what is known of it is learnt, cut off there."""
        episode = self._places[index]
        assert episode is not None
        known = _known(episode)
        for part in episode.parts.values():
            self._leave_out(part)
        self._leave_seat(index, faulty=True)
        return (known, episode.at) if self.rules.whole else (0, 0)

    def _begin(self, index: int) -> None:
        seat = heapq.heappop(self._seats) if self._seats else self._count
        worker, workers = self.rules.worker
        number = self._next[index]
        episode = Episode(index, number, self._started * workers + worker, seat)
        self._next[index] += 1
        self._started += 1
        self._places[index] = episode
        for agent in played(self.script, index, number).first:
            self._appear(episode, agent)

    def _leave_seat(self, index: int, faulty: bool) -> None:
        episode = self._places[index]
        assert episode is not None
        self._places[index] = None
        heapq.heappush(self._seats, episode.place)
        self._finish(episode, faulty)
        if self._is_alone:
            self._ended[-1].by_agent = None

    @property
    def _count(self) -> int:
        """Episodes that run."""
        return sum(one is not None for one in self._places.values())


def _known(episode: Episode) -> int:
    """Decisions of which it is known what followed."""
    return episode.decisions - sum(part.open is not None for part in episode.parts.values())
