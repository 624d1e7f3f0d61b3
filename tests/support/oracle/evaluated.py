"""How the episodes of an evaluation go, one after the other in one environment."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.oracle.rows import Carried, Ended, Policy, Rules
from tests.support.oracle.scripts import Moment, Script, observation, played


@dataclass
class Evaluated:
    """What an evaluation has to give."""

    episodes: list[Ended] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    """How often the environment of each episode failed before."""
    asked: list[str] = field(default_factory=list)
    """The agent for each time that a policy had to be found."""
    sent: dict[tuple[int, int, int], dict[str, Any]] = field(default_factory=dict)
    """(environment, episode, steps before) → agent → the action."""


@dataclass
class _Going:
    """The running episode."""

    number: int
    at: int = 0
    total: float = 0.0
    policies: dict[str, str] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    carried: dict[str, Carried] = field(default_factory=dict)
    """Of agents that act."""


def evaluate(
    script: Script, rules: Rules, episodes: int, policies: dict[str, Policy], is_alone: bool
) -> Evaluated:
    """What so many episodes have to give; one whose environment fails is played by the next."""
    made, number = Evaluated(), 0
    while len(made.episodes) < episodes:
        faults = 0
        while (ended := _episode(script, rules, number, policies, made)) is None:
            faults += 1
            number += 1
        number += 1
        if is_alone:
            ended.by_agent = None
        made.episodes.append(ended)
        made.faults.append(faults)
    return made


def _episode(
    script: Script, rules: Rules, number: int, policies: dict[str, Policy], made: Evaluated
) -> Ended | None:
    """An episode; None: its environment fails."""
    plan, going = played(script, 0, number), _Going(number)
    there = list(plan.first)
    while True:
        _act(rules, going, there, policies, made)
        moment = plan.steps[going.at]
        if moment.fails:
            return None
        going.at += 1
        over = moment.is_over or going.at == rules.horizon
        _follow(rules, going, moment, over, made)
        if over:
            by_agent = {a: (pid, going.rewards[a]) for a, pid in going.policies.items()}
            return Ended(going.total, going.at, by_agent=by_agent)
        there = [a for a in moment.seen if a not in (*moment.terminated, *moment.truncated)]


def _act(
    rules: Rules, going: _Going, there: list[str], policies: dict[str, Policy], made: Evaluated
) -> None:
    """The decisions of all agents that see something."""
    for agent in there:
        _bind(rules, going, agent, made)
        carried = going.carried.setdefault(agent, Carried())
        raw = observation(0, going.number, going.at, agent)
        _, decision = policies[going.policies[agent]].decide(raw, carried)
        carried.acted(rules, decision)
        place = 0, going.number, going.at
        made.sent.setdefault(place, {})[agent] = decision.action


def _bind(rules: Rules, going: _Going, agent: str, made: Evaluated) -> None:
    """Give an agent its policy, for the episode."""
    if agent not in going.policies:
        made.asked.append(agent)
        going.policies[agent] = rules.policies[agent]
        going.rewards[agent] = 0.0


def _follow(rules: Rules, going: _Going, moment: Moment, over: bool, made: Evaluated) -> None:
    """Count what a step gave; who has ended forgets, and who was never there is given nothing."""
    ended = {*moment.terminated, *moment.truncated}
    for agent, reward in moment.rewards.items():
        going.total += reward
        if agent not in going.policies:
            if over or agent in ended:
                continue
            _bind(rules, going, agent, made)
        going.rewards[agent] += reward
        if agent in going.carried:
            going.carried[agent].reward += reward
    for agent in ended:
        going.carried.pop(agent, None)
