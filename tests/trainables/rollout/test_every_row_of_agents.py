"""Samplers of several agents give the rows that scripts lead to, whoever comes and goes."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.oracle.compare import require_batch, require_counted, require_sent
from tests.support.oracle.drawing import draw_rules, draw_several, stream_of
from tests.support.oracle.known import KNOWN, LEFT_OUT, TWO
from tests.support.oracle.rows import Rules
from tests.support.oracle.scripts import Script
from tests.support.oracle.several import SeveralRun
from tests.support.oracle.workers import several_spec, take_over
from trainables.rollout.agents.episodes import reward_filter_name
from trainables.rollout.agents.worker import AgentsWorker


def require_several(
    script: Script, rules: Rules, folder: Path, samples: int = 4, other: Path | None = None
) -> None:
    """Compare samples of a worker, one after the other, with what the script leads to.

    With an `other` folder a twin goes on after each sample where the worker stood, and the other
    way round.
    """
    asked: list[str] = []

    def mapping(agent: str, _: np.random.Generator) -> str:
        asked.append(agent)
        return rules.policies[agent]

    spec = several_spec(script, rules, folder, mapping=mapping)
    run, worker, twin = SeveralRun(script, rules), AgentsWorker(spec), None
    if other is not None:
        before = len(asked)
        twin = AgentsWorker(several_spec(script, rules, other, mapping=mapping))
        del asked[before:]  # what the twin began is not played
    for _ in range(samples):
        require_batch(worker.sample(), run.sample())
        assert sorted(asked) == sorted(agent for agent, _ in run.asked)
        for pid, policy in run.policies.items():
            require_counted(worker._filters, (pid, reward_filter_name(pid)), policy)
        if twin is not None:
            take_over(worker, twin)
            worker, twin = twin, worker
    worker.close()
    require_sent(run.sent, rules)


SEVERAL: dict[str, dict[str, Any]] = {
    "plain": {},
    "two policies": {"policies": TWO},
    "steps of agents": {"agent_steps": True, "policies": TWO},
    "clipped rewards": {"clip": 1.0},
    "filter": {"filtered": True, "policies": TWO},
    "frozen filter": {"filtered": True, "policies": TWO, "frozen": frozenset({"two"})},
    "scaled rewards": {"scaled": True, "policies": TWO},
    "previous choice": {"previous": True},
    "previous number": {"previous": True, "kind": "interval"},
    "unfiltered": {"filtered": True, "scaled": True, "unfiltered": True, "previous": True},
    "horizon": {"horizon": 4},
    "no end": {"no_done": True},
    "one environment": {"envs": 1, "steps": 4},
    "second worker": {"worker": (1, 3)},
}


@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", SEVERAL)
def test_rows_of_several_agents_are_those_of_their_script(
    name: str, whole: bool, folders: Iterator[Path]
) -> None:
    rules = Rules(**{"whole": whole, **SEVERAL[name]})
    stream = stream_of("several", name, whole)
    for folder in islice(folders, 2):
        script = draw_several(stream, rules.envs, horizon=rules.horizon)
        require_several(script, rules, folder)


@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", SEVERAL)
def test_rows_of_several_agents_continue_from_a_checkpoint(
    name: str, whole: bool, folders: Iterator[Path]
) -> None:
    rules = Rules(**{"whole": whole, **SEVERAL[name]})
    script = draw_several(stream_of("saved", name, whole), rules.envs, horizon=rules.horizon)
    require_several(script, rules, next(folders), samples=5, other=next(folders))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(25))
def test_rows_of_several_agents_are_those_of_their_script_whatever_the_rules(
    number: int, folders: Iterator[Path]
) -> None:
    stream = stream_of("rules of several", number)
    given = draw_rules(stream)
    if stream.random() < 0.6:
        given |= {"policies": TWO, "agent_steps": bool(stream.random() < 0.5)}
        given["frozen"] = frozenset({"two"} if stream.random() < 0.3 else ())
    rules = Rules(**given)
    script = draw_several(stream, rules.envs, episodes=6, horizon=rules.horizon)
    require_several(script, rules, next(folders), samples=6, other=next(folders))


@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", KNOWN)
def test_agents_that_come_and_go_have_their_rows(
    name: str, whole: bool, folders: Iterator[Path]
) -> None:
    script = KNOWN[name]
    changes: list[dict[str, Any]] = [{}, {"policies": TWO, "previous": True}]
    for more in [*changes, {"scaled": True, "fragment": 2}]:
        rules = Rules(**{"envs": len(script), "steps": 6, "fragment": 3, "whole": whole, **more})
        require_several(script, rules, next(folders), samples=6)


@pytest.mark.parametrize("whole", [False, True], ids=["fragments", "whole episodes"])
@pytest.mark.parametrize("name", LEFT_OUT)
def test_rewards_scale_as_if_rows_that_are_left_out_had_never_been(
    name: str, whole: bool, folders: Iterator[Path]
) -> None:
    for no_done in (False, True):
        rules = Rules(envs=1, steps=3, fragment=3, whole=whole, scaled=True, no_done=no_done)
        require_several(LEFT_OUT[name], rules, next(folders), samples=8)
