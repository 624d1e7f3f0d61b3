"""What environments of several agents have to give, step after step of all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.oracle.rows import Carried, Ended, Lane, Policy, Row, Rules
from tests.support.oracle.scripts import AGENTS, ALL, BOX, Moment, Script, observation, played
from trainables.core import rng


@dataclass
class Decided:
    """A decision of an agent, and what becomes of it."""

    row: Row
    lane: int
    reward: float = 0.0
    """Sum of all since."""
    after: Any = None
    """The raw observation that followed."""
    carried: Carried = field(default_factory=Carried)
    """With which that is seen."""
    is_known: bool = False
    is_over: bool = False
    """Whether its episode is over."""
    is_dropped: bool = False

    @property
    def ended(self) -> bool:
        """Whether the part of its agent ended with it."""
        return self.row.terminated or self.row.truncated


@dataclass
class Part:
    """What an agent does from its appearance to its end."""

    lane: int
    waits: Any = None
    """The observation on which it acts next."""
    t: int = 0
    carried: Carried = field(default_factory=Carried)
    open: Decided | None = None
    before: Decided | None = None


@dataclass
class Episode:
    """The running episode of one environment."""

    index: int
    number: int
    """Of its script."""
    eps_id: int
    """Of the trial."""
    place: int
    """Whose lanes its agents are in."""
    at: int = 0
    total: float = 0.0
    decisions: int = 0
    policies: dict[str, str] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)

    def shown(self, agent: str) -> Any:
        """What an agent sees now."""
        return observation(self.index, self.number, self.at, agent)


@dataclass
class SampledByPolicy:
    """What one sample has to give."""

    fragments: dict[str, list[list[Lane]]]
    """Policy → its fragments; absent without one."""
    env_steps: int
    counted: int
    episodes: list[Ended]


class SeveralRun:
    """All samples of one worker, one after the other."""

    at_own_pace = False
    """Whether a sample is one fragment, as long as it takes."""

    def __init__(self, script: Script, rules: Rules) -> None:
        self.script, self.rules = script, rules
        names = dict.fromkeys(rules.policies.values())
        self.policies = {pid: Policy(rules, pid not in rules.frozen) for pid in names}
        self.asked: list[tuple[str, int]] = []
        """(agent, its episode) for each time that a policy had to be found for it."""
        self.sent: dict[tuple[int, int, int], dict[str, Any]] = {}
        """(environment, episode, steps before) → agent → the action."""
        self._missing = rng.generator(rules.seed, "missing observations", rules.worker[0])
        self._decided: dict[str, list[Decided]] = {pid: [] for pid in names}
        self._lanes: dict[str, list[tuple[int, int]]] = {pid: [] for pid in names}
        """Of each policy: environment and number in it."""
        self._returned: dict[str, list[float]] = {pid: [] for pid in names}
        """Of each lane the discounted return so far."""
        self._latest: dict[tuple[str, int], Row] = {}
        """The latest row of each lane that was given away."""
        self._ended: list[Ended] = []
        self._running = [self._begun(i, 0) for i in range(rules.envs)]

    # ---- samples ---------------------------------------------------------------------------------

    def sample(self) -> SampledByPolicy:
        """The next one."""
        rules, self._ended = self.rules, []
        at_once = rules.whole or self.at_own_pace
        fragments: dict[str, list[list[Lane]]] = {}
        env_steps = counted = 0
        while counted < rules.steps:
            ticks = 0
            while at_once or ticks < rules.fragment:
                by_agents, by_envs = self._tick()
                ticks += 1
                env_steps += by_envs
                counted += by_agents if rules.agent_steps else by_envs
                if counted >= rules.steps and (at_once or rules.agent_steps):
                    break
            for pid in self.policies:
                if lanes := self._take(pid):
                    fragments.setdefault(pid, []).append(lanes)
        return SampledByPolicy(fragments, env_steps, counted, self._ended)

    def _tick(self) -> tuple[int, int]:
        """One step of every environment; steps of agents and of environments that it counts."""
        decisions = sum(self._decide(pid) for pid in self.policies)
        whole = [0, 0]
        ends: list[tuple[Episode, bool]] = []
        for i, episode in enumerate(self._running):
            moment = played(self.script, i, episode.number).steps[episode.at]
            episode.at += 1
            horizon = self.rules.horizon
            over = moment.is_over or (horizon is not None and episode.at >= horizon)
            if moment.fails:
                self._drop(episode)
            else:
                self._settle(episode, moment, over)
            if over and not moment.fails:
                whole = [whole[0] + episode.decisions, whole[1] + episode.at]
            if over or moment.fails:
                ends.append((episode, moment.fails))
        for episode, fails in ends:
            self._end(episode, fails)
        return (whole[0], whole[1]) if self.rules.whole else (decisions, self.rules.envs)

    # ---- decisions -------------------------------------------------------------------------------

    def _decide(self, pid: str) -> int:
        """The decision of one policy for all of its agents that have an observation."""
        policy = self.policies[pid]
        who = [
            (episode, agent, part)
            for episode in self._running
            for agent, part in episode.parts.items()
            if part.waits is not None and episode.policies[agent] == pid
        ]
        policy.count([part.waits for _, _, part in who])
        for episode, agent, part in who:
            seen, decision = policy.decide(part.waits, part.carried)
            which = AGENTS.index(agent)
            memory, number = part.carried.memory, episode.eps_id
            row = Row(seen, decision.action, decision.value, memory, part.t, number, which)
            part.open = Decided(row, part.lane)
            self._decided[pid].append(part.open)
            part.carried.acted(self.rules, decision)
            part.t += 1
            part.waits = None
            episode.decisions += 1
            place = episode.index, episode.number, episode.at
            self.sent.setdefault(place, {})[agent] = decision.action
        return len(who)

    # ---- what came of a step ---------------------------------------------------------------------

    def _settle(self, episode: Episode, moment: Moment, over: bool) -> None:
        """Write down what a step gave to each agent."""
        ends = {*moment.terminated, *moment.truncated}
        self._reward(episode, moment.rewards, ends, over)
        for agent in AGENTS:
            part = episode.parts.get(agent)
            if part is not None and (over or agent in ends):
                self._leave(episode, agent, part, moment, over)
            elif part is not None and agent in moment.seen:
                self._close(part, episode.shown(agent), moment.infos.get(agent))
                part.waits = episode.shown(agent)
        for agent in moment.seen:
            if not (over or agent in ends or agent in episode.parts):
                self._appear(episode, agent)

    def _reward(
        self, episode: Episode, rewards: Mapping[str, float], ends: Iterable[str], over: bool
    ) -> None:
        """Count rewards; one that was never there and is over already is given none."""
        for agent, reward in rewards.items():
            episode.total += reward
            if agent not in episode.policies:
                if over or agent in ends:
                    continue
                self._bind(episode, agent)
            episode.rewards[agent] += reward
            part = episode.parts.get(agent)
            if part is not None and part.open is not None:
                part.open.reward += reward
                part.carried.reward += reward

    def _leave(self, episode: Episode, agent: str, part: Part, moment: Moment, over: bool) -> None:
        """The part of an agent ends, in a step in which it may see something."""
        decided, rules = part.open, self.rules
        assert decided is not None
        del episode.parts[agent]
        dead = agent in moment.terminated
        if over and agent not in moment.truncated:
            dead = dead or ALL in moment.terminated
        if agent in moment.seen:
            after = episode.shown(agent)
        elif rules.no_done:
            self._leave_out(part)
            return
        else:
            assert dead, "the script cuts an agent off without a last observation"
            after = self._made_up()
        self._close(part, after, moment.infos.get(agent))
        decided.row.terminated = dead and not rules.no_done
        decided.row.truncated = not decided.row.terminated

    def _leave_out(self, part: Part) -> None:
        """The last row of a part, whose end is not to be learnt; the one before it is cut off."""
        assert part.open is not None
        part.open.is_dropped = True
        before = part.before
        if before is not None and any(before is one for of in self._decided.values() for one in of):
            before.row.truncated = True

    def _close(self, part: Part, after: Any, info: Mapping[str, Any] | None) -> None:
        """It is known what followed a decision."""
        decided = part.open
        assert decided is not None
        decided.is_known, decided.after = True, after
        decided.carried = part.carried.copy()
        decided.row.state_out = part.carried.memory
        decided.row.infos = dict(info or {})
        decided.row.valid = bool(decided.row.infos.get("training_enabled", True))
        part.open, part.before = None, decided

    def _made_up(self) -> Any:
        """An observation of the space, of a stream of its own."""
        BOX.seed(int(self._missing.integers(2**31)))
        return BOX.sample()

    # ---- episodes --------------------------------------------------------------------------------

    def _begun(self, index: int, number: int) -> Episode:
        episode = Episode(index, number, self.rules.number(index, number), index)
        for agent in played(self.script, index, number).first:
            self._appear(episode, agent)
        return episode

    def _bind(self, episode: Episode, agent: str) -> None:
        self.asked.append((agent, episode.eps_id))
        episode.policies[agent] = self.rules.policies[agent]
        episode.rewards[agent] = 0.0

    def _appear(self, episode: Episode, agent: str) -> None:
        if agent not in episode.policies:
            self._bind(episode, agent)
        pid = episode.policies[agent]
        taken = {one.lane for a, one in episode.parts.items() if episode.policies[a] == pid}
        part = Part(self._lane(pid, episode.place, taken))
        part.waits = episode.shown(agent)
        episode.parts[agent] = part

    def _lane(self, pid: str, place: int, taken: set[int]) -> int:
        """The first lane of a place that nobody is in."""
        lanes = self._lanes[pid]
        own = [i for i, (other, _) in enumerate(lanes) if other == place]
        free = [i for i in own if i not in taken]
        if not free:
            lanes.append((place, len(own)))
            self._returned[pid].append(0.0)
            return len(lanes) - 1
        return free[0]

    def _drop(self, episode: Episode) -> None:
        """Nothing of a faulty episode is learnt, as far as it was not given away."""
        for decided in self._all():
            decided.is_dropped |= decided.row.eps_id == episode.eps_id

    def _end(self, episode: Episode, faulty: bool) -> None:
        self._finish(episode, faulty)
        self._running[episode.index] = self._begun(episode.index, episode.number + 1)

    def _finish(self, episode: Episode, faulty: bool) -> None:
        """An episode is over: its rows may be given away, also where episodes stay whole."""
        for decided in self._all():
            decided.is_over |= decided.row.eps_id == episode.eps_id
        by_agent = {a: (episode.policies[a], sum_) for a, sum_ in episode.rewards.items()}
        self._ended.append(Ended(episode.total, episode.at, faulty, by_agent))

    def _all(self) -> list[Decided]:
        return [one for of in self._decided.values() for one in of]

    # ---- fragments -------------------------------------------------------------------------------

    def _take(self, pid: str) -> list[Lane]:
        """The lanes of a policy's next fragment; none where there is no row."""
        rules, policy, all_ = self.rules, self.policies[pid], self._decided[pid]
        all_ = [one for one in all_ if not one.is_dropped]
        given = [one for one in all_ if one.is_known and (one.is_over or not rules.whole)]
        self._decided[pid] = [one for one in all_ if not any(one is other for other in given)]
        if not given:
            return []
        lanes = [[one for one in given if one.lane == i] for i in range(len(self._lanes[pid]))]
        self._learn(pid, lanes)
        made = []
        for lane in lanes:
            for decided in lane:
                row = decided.row
                row.new_obs = policy.hold(decided.after, decided.carried)
                if row.truncated:
                    row.final_values = policy.judge(decided.after, decided.carried)
            goes_on = bool(lane) and not lane[-1].ended
            last = policy.judge(lane[-1].after, lane[-1].carried) if goes_on else None
            made.append(Lane([one.row for one in lane], last))
        self._write_before(pid, lanes)
        return made

    def _learn(self, pid: str, lanes: list[list[Decided]]) -> None:
        """Rewards as they are learnt from, from the fragment's first row to its last."""
        policy, returned = self.policies[pid], self._returned[pid]
        length = max(map(len, lanes))
        for t in range(length):
            now = [
                (i, one[t - length + len(one)])
                for i, one in enumerate(lanes)
                if t >= length - len(one)
            ]
            for i, decided in now:
                decided.row.rewards = policy.learnt(decided.reward)
                if decided.row.t == 0:
                    returned[i] = 0.0
                returned[i] = returned[i] * self.rules.gamma + decided.row.rewards
            if self.rules.scaled:
                policy.returns += [returned[i] for i, _ in now]
                for _, decided in now:
                    decided.row.rewards = policy.scale(decided.row.rewards or 0.0)

    def _write_before(self, pid: str, lanes: list[list[Decided]]) -> None:
        """What was done and rewarded in the row before, which may have been given away."""
        for i, lane in enumerate(lanes):
            for decided in lane:
                before = self._latest.get((pid, i))
                if decided.row.t > 0:
                    assert before is not None
                    decided.row.prev_actions = before.actions
                    decided.row.prev_rewards = before.rewards or 0.0
                self._latest[pid, i] = decided.row
