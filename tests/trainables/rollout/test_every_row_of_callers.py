"""Environments that call give the rows that their scripts lead to, whoever is heard when."""

from typing import Any

import numpy as np
import pytest

from tests.support.oracle.calling import CallingRun, Ways
from tests.support.oracle.compare import (
    require_batch,
    require_counted,
    require_episodes,
    require_fragments,
    require_sent,
)
from tests.support.oracle.drawing import (
    draw_alone,
    draw_rules,
    draw_schedule,
    draw_several,
    stream_of,
)
from tests.support.oracle.known import TWO
from tests.support.oracle.rows import Rules
from tests.support.oracle.scripts import SENT
from tests.support.oracle.workers import calling_spec
from trainables.rollout.agents.episodes import reward_filter_name
from trainables.rollout.external.workers import ExternalAgentsWorker, ExternalWorker

CALLING: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped rewards": {"clip": 1.0},
    "filter": {"filtered": True},
    "numbers": {"kind": "interval"},
    "horizon": {"horizon": 4},
    "no end": {"no_done": True},
    "second worker": {"worker": (1, 3)},
}
CALLING_AGENTS: dict[str, dict[str, Any]] = {
    **CALLING,
    "two policies": {"policies": TWO, "filtered": True},
    "steps of agents": {"agent_steps": True, "policies": TWO},
    "frozen filter": {"filtered": True, "policies": TWO, "frozen": frozenset({"two"})},
}

WAYS = {"later": Ways(), "at once": Ways(resets=True), "raises": Ways(resets=True, raises=True)}
pytestmark = pytest.mark.usefixtures("restarted_at_once")


def require_alone(rules: Rules, stream: np.random.Generator, how: Ways) -> None:
    """Compare the samples of a worker whose only agents call with what a script leads to."""
    SENT.clear()
    script, schedule = draw_alone(stream, rules.envs), draw_schedule(stream, rules.envs)
    spec = calling_spec(script, rules, schedule, is_alone=True, how=how)
    run = CallingRun(script, rules, schedule, is_alone=True, how=how)
    worker = ExternalWorker(spec)
    for _ in range(4):
        found, expected = worker.sample(), run.sample()
        require_episodes(found.episodes, expected.episodes)
        require_fragments(found.fragments, expected.fragments.get("one", []))
        require_counted(worker._filters, ("observation", "reward"), run.policies["one"])
    worker.close()
    require_sent(run.sent, rules)


def require_several(rules: Rules, stream: np.random.Generator, how: Ways) -> None:
    """Compare the samples of a worker whose agents call with what a script leads to."""
    SENT.clear()
    script = draw_several(stream, rules.envs, horizon=rules.horizon)
    schedule = draw_schedule(stream, rules.envs)
    spec = calling_spec(script, rules, schedule, is_alone=False, how=how)
    run = CallingRun(script, rules, schedule, is_alone=False, how=how)
    worker = ExternalAgentsWorker(spec)
    for _ in range(4):
        require_batch(worker.sample(), run.sample())
        for pid, policy in run.policies.items():
            require_counted(worker._filters, (pid, reward_filter_name(pid)), policy)
    worker.close()
    require_sent(run.sent, rules)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", CALLING)
def test_rows_of_an_agent_that_calls_are_those_of_its_script(
    name: str, whole: bool, how: str
) -> None:
    rules = Rules(**{"envs": 3, "whole": whole, **CALLING[name]})
    require_alone(rules, stream_of("calling", name, whole, how), WAYS[how])


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", CALLING_AGENTS)
def test_rows_of_several_agents_that_call_are_those_of_their_script(
    name: str, whole: bool, how: str
) -> None:
    rules = Rules(**{"envs": 3, "whole": whole, **CALLING_AGENTS[name]})
    require_several(rules, stream_of("agents that call", name, whole, how), WAYS[how])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(25))
def test_rows_of_agents_that_call_are_those_of_their_script_whatever_the_rules(
    number: int,
) -> None:
    stream = stream_of("rules of callers", number)
    given = {**draw_rules(stream), "previous": False, "scaled": False}  # they are refused
    how = list(WAYS.values())[int(stream.integers(len(WAYS)))]
    require_alone(Rules(**given), stream, how)
    if stream.random() < 0.6:
        given |= {"policies": TWO, "agent_steps": bool(stream.random() < 0.5)}
    require_several(Rules(**given), stream, how)
