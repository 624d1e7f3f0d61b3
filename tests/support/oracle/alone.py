"""What environments of one agent have to give, step after step of all of them."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.oracle.rows import Carried, Ended, Lane, Policy, Row, Rules
from tests.support.oracle.scripts import ALL, ONLY, Moment, Script, observation, played
from trainables.policies.acting.actor import Actor


@dataclass
class _Environment:
    """Where one environment stands."""

    index: int
    episode: int = 0
    """Of its script."""
    at: int = 0
    """Steps of it."""
    count: int = 0
    """Episodes before, as metrics count them."""
    length: int = 0
    total: float = 0.0
    since: int = 0
    """Steps since the horizon began to be counted."""
    returned: float = 0.0
    """The discounted return of rewards."""
    carried: Carried = field(default_factory=Carried)
    before: Row | None = None
    """The episode's row before."""
    lane: list[Row] = field(default_factory=list)
    """Rows that were not given away."""

    def shown(self) -> Any:
        """The observation."""
        return observation(self.index, self.episode, self.at, ONLY)

    def begin(self) -> None:
        """The next episode of the script."""
        self.episode += 1
        self.at, self.carried, self.returned, self.since = 0, Carried(), 0.0, 0

    def forget(self) -> None:
        """The next episode of the metrics."""
        self.count += 1
        self.length, self.total, self.before = 0, 0.0, None


@dataclass
class Sampled:
    """What one sample has to give."""

    fragments: list[list[Lane]]
    episodes: list[Ended]


class AloneRun:
    """All samples of one worker, one after the other."""

    def __init__(self, script: Script, rules: Rules, actor: Actor | None = None) -> None:
        self.script, self.rules = script, rules
        self.policy = Policy(rules, actor=actor)
        self.envs = [_Environment(i) for i in range(rules.envs)]
        self._ended: list[Ended] = []
        self._pieces: list[tuple[list[Row], float | None]] = []
        """Of whole episodes: the rows of each, and the value of what comes next if it goes on."""

    def sample(self) -> Sampled:
        """The next one."""
        self._ended = []
        if self.rules.whole:
            return Sampled(self._whole(), self._ended)
        rounds = self.rules.steps // (self.rules.fragment * self.rules.envs)
        return Sampled([self._fragment() for _ in range(rounds)], self._ended)

    def _fragment(self) -> list[Lane]:
        for _ in range(self.rules.fragment):
            self._tick()
        lanes = []
        for env in self.envs:
            lanes.append(Lane(env.lane, self.policy.judge(env.shown(), env.carried)))
            env.lane = []
        return lanes

    def _whole(self) -> list[list[Lane]]:
        self._pieces = []
        while sum(len(rows) for rows, _ in self._pieces) < self.rules.steps:
            self._tick()
        fragments: list[list[Lane]] = []
        lane = Lane()
        for rows, following in self._pieces:
            lane.rows += rows
            if following is not None:
                lane.last_values = following
                fragments.append([lane])
                lane = Lane()
        return [*fragments, *([[lane]] if lane.rows else [])]

    def _tick(self) -> None:
        """One step of every environment."""
        self.policy.count([env.shown() for env in self.envs])
        rows = [self._decided(env) for env in self.envs]
        moments = [played(self.script, e.index, e.episode).steps[e.at] for e in self.envs]
        rewards = [0.0 if m.fails else m.rewards.get(ONLY, 0.0) for m in moments]
        self._learn(rows, rewards)
        for env, row, moment, reward in zip(self.envs, rows, moments, rewards, strict=True):
            env.at += 1
            env.length += 1
            env.since += 1
            env.total += reward
            env.carried.reward += reward
            self._follow(env, row, moment)

    def _decided(self, env: _Environment) -> Row:
        place = env.index, env.episode, env.at
        seen, decision = self.policy.decide(env.shown(), env.carried, place)
        is_plain = self.policy.actor is None
        row = Row(
            seen,
            decision.action,
            decision.value,
            env.carried.memory if is_plain else None,
            env.length,
            self.rules.number(env.index, env.count),
            state_out=decision.memory if is_plain else None,
            logp=decision.logp,
        )
        if env.before is not None:
            row.prev_actions, row.prev_rewards = env.before.actions, env.before.rewards or 0.0
        env.carried.acted(self.rules, decision)
        return row

    def _learn(self, rows: list[Row], rewards: list[float]) -> None:
        """Rewards as they are learnt from; all returns of a step are counted before it scales."""
        clipped = [self.policy.learnt(one) for one in rewards]
        for env, reward in zip(self.envs, clipped, strict=True):
            env.returned = env.returned * self.rules.gamma + reward
        if self.rules.scaled:
            self.policy.returns += [env.returned for env in self.envs]
            clipped = [self.policy.scale(one) for one in clipped]
        for row, reward in zip(rows, clipped, strict=True):
            row.rewards = reward

    def _follow(self, env: _Environment, row: Row, moment: Moment) -> None:
        """Write down what followed a decision, and begin the next episode if it is over."""
        horizon = self.rules.horizon
        is_late = horizon is not None and env.since >= horizon
        over = moment.is_over or (is_late and not self.rules.soft)
        env.lane.append(row)
        env.before = row
        self._write(env, row, moment, over)
        over = over or moment.fails
        if over:
            env.begin()
        if over or is_late:
            env.since = 0
            self._end(env, moment.fails, goes_on=not over)

    def _write(self, env: _Environment, row: Row, moment: Moment, over: bool) -> None:
        if moment.fails:
            row.infos, row.truncated = {}, True
            self._drop(env)
            return
        row.infos = dict(moment.infos.get(ONLY, {}))
        row.valid = bool(row.infos.get("training_enabled", True))
        row.terminated = over and ALL in moment.terminated and not self.rules.no_done
        row.truncated = over and not row.terminated
        row.new_obs = self.policy.hold(env.shown(), env.carried)
        if row.truncated:
            row.final_values = self.policy.judge(env.shown(), env.carried)

    @staticmethod
    def _drop(env: _Environment) -> None:
        """Nothing of a faulty episode is learnt, as far as it was not given away."""
        for row in reversed(env.lane):
            if row is not env.lane[-1] and (row.terminated or row.truncated):
                break
            row.valid = False

    def _end(self, env: _Environment, faulty: bool, goes_on: bool) -> None:
        self._ended.append(Ended(env.total, env.length, faulty))
        env.forget()
        if self.rules.whole:
            following = self.policy.judge(env.shown(), env.carried) if goes_on else None
            if goes_on:
                env.lane[-1].final_values = None
            self._pieces.append((env.lane, following))
            env.lane = []
