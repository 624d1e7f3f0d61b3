"""Evaluations play the episodes that the scripts of their environments lead to."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.oracle.compare import require_episodes, require_sent
from tests.support.oracle.drawing import draw_alone, draw_several, stream_of
from tests.support.oracle.evaluated import evaluate
from tests.support.oracle.known import KNOWN, TWO
from tests.support.oracle.rows import Policy, Rules
from tests.support.oracle.scripts import Script, observation
from tests.support.oracle.workers import evaluation_plan, player
from trainables.envs.kinds.agents import step_record
from trainables.evaluation.agents import AgentsPlayer
from trainables.evaluation.play import play


def require_evaluated(script: Script, rules: Rules, folder: Path, env: str) -> None:
    """Compare the episodes of an evaluation with what the script leads to."""
    asked: list[str] = []

    def mapping(agent: str, _: np.random.Generator) -> str:
        asked.append(agent)
        return rules.policies[agent]

    plan = evaluation_plan(script, rules, folder, env)
    found = play(player(plan, rules, mapping), plan, rules.seed, range(6))
    policies = {pid: Policy(rules) for pid in rules.policies.values()}
    expected = evaluate(script, rules, 6, policies, is_alone=env == "Alone")
    require_episodes([one.metrics for one in found], expected.episodes)
    assert [one.faults for one in found] == expected.faults
    if env == "Several":
        assert sorted(asked) == sorted(expected.asked)
    require_sent(expected.sent, rules)


EVALUATED: dict[str, dict[str, Any]] = {
    "plain": {},
    "two policies": {"policies": TWO},
    "previous choice": {"previous": True},
    "previous number": {"previous": True, "kind": "interval"},
    "horizon": {"horizon": 4},
}


@pytest.mark.parametrize("name", KNOWN)
def test_agents_that_come_and_go_are_evaluated(name: str, folders: Iterator[Path]) -> None:
    changes: list[dict[str, Any]] = [{}, {"policies": TWO, "previous": True}]
    for more in changes:
        require_evaluated(KNOWN[name][:1], Rules(**more), next(folders), "Several")


@pytest.mark.parametrize("env", ["Alone", "Several"])
@pytest.mark.parametrize("name", EVALUATED)
def test_an_evaluation_plays_as_the_script_says(
    name: str, env: str, folders: Iterator[Path]
) -> None:
    rules = Rules(**EVALUATED[name])
    stream = stream_of("evaluated", name, env)
    for folder in islice(folders, 2):
        draw = draw_alone if env == "Alone" else draw_several
        require_evaluated(draw(stream, 1), rules, folder, env)


def test_the_mapping_is_asked_once_of_an_agent_whoever_wants_to_know(
    folders: Iterator[Path],
) -> None:
    """Also where callbacks ask before it appears."""
    asked: list[str] = []

    def mapping(agent: str, _: np.random.Generator) -> str:
        asked.append(agent)
        return "one"

    rules = Rules()
    plan = evaluation_plan(KNOWN["agents take turns"], rules, next(folders), "Several")
    plays = player(plan, rules, mapping)
    assert isinstance(plays, AgentsPlayer)
    memory = plays.begin(3)[None]
    for _ in range(2):
        assert plays.policy_for("a", memory[0]) == "one"
    given = np.empty(1, dtype=object)
    for t in range(2):
        given[0] = step_record({"a": observation(0, 0, t, "a")}, {})
        plays.act_each(given, memory, [None])
    assert asked == ["a"]
