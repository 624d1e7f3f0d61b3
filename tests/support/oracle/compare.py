"""Comparing what samplers give with what scripts lead to."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from tests.support.oracle.rows import COLUMNS, Ended, Lane, Policy, Row, Rules, sent
from tests.support.oracle.scripts import SENT
from tests.support.oracle.several import SampledByPolicy
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.batch import Fragment
from trainables.rollout.episodes.metrics import RolloutMetrics


def require_episodes(found: Sequence[RolloutMetrics], expected: Sequence[Ended]) -> None:
    """Compare the episodes that ended, in the order of their end."""
    assert [_said(one) for one in found] == [
        (one.total, one.length, one.faulty, one.by_agent) for one in expected
    ]


def _said(one: RolloutMetrics) -> tuple[Any, ...]:
    by_agent = one.agent_rewards
    said = None if by_agent is None else {a: (pid, sum_) for a, (pid, sum_) in by_agent.items()}
    return one.total_reward, one.length, one.faulty, said


def require_fragments(
    found: Sequence[Fragment], expected: Sequence[list[Lane]], columns: frozenset[str] = COLUMNS
) -> None:
    """Compare all fragments of a sample."""
    for fragment, lanes in zip(found, expected, strict=True):
        require_fragment(fragment, lanes, columns)


def require_fragment(
    found: Fragment, lanes: Sequence[Lane], columns: frozenset[str] = COLUMNS
) -> None:
    """Compare a fragment with its lanes, row by row and column by column.

    Of the columns that can be requested it has these.
    """
    arrays = found.columns
    assert columns <= arrays.keys()
    length = max(len(lane.rows) for lane in lanes)
    assert found.valid.shape == (length, len(lanes))
    for number, lane in enumerate(lanes):
        begins = length - len(lane.rows)
        assert found.autoreset[:begins, number].all()
        assert not found.valid[:begins, number].any()
        assert not found.autoreset[begins:, number].any()
        for t, row in enumerate(lane.rows, begins):
            where = f"row {t} of lane {number}: step {row.t} of episode {row.eps_id}"
            require_row({name: one[t, number] for name, one in arrays.items()}, row, where)
        if lane.last_values is not None:
            given = found.last_values[0, number]
            require_equal(given, lane.last_values, f"last_values of lane {number}")


def require_row(found: Mapping[str, Any], row: Row, where: str) -> None:
    """Compare the columns of one row; of those that can be requested, the ones that are there."""
    for name in (one.name for one in fields(row)):
        expected = getattr(row, name)
        if expected is None or (name in COLUMNS and name not in found):
            continue
        if name == "infos":
            assert found[name] == expected, f"{where}: {name}"
        else:
            require_equal(found[name], expected, f"{where}: {name}")


def require_equal(found: Any, expected: Any, where: str) -> None:
    """Compare numbers, up to how they are rounded; one number stands for as many as there are."""
    one, other = (np.asarray(numbers, np.float64) for numbers in (found, expected))
    fits = other.shape in ((), one.shape)
    near = fits and np.all(np.abs(one - other) <= 1e-5 + 1e-4 * np.abs(other))
    assert near, f"{where}: {found}, expected {expected}"


def require_counted(found: Mapping[str, Any], names: tuple[str, str], policy: Policy) -> None:
    """Compare how much the filters of these names have counted, of observations and of rewards."""
    numbers = len(policy.counted), len(policy.returns)
    for name, expected in zip(names, numbers, strict=True):
        state = found[name].get_state() if name in found else {}
        counted = sum(state[part]["count"] for part in ("base", "delta")) if state else 0
        assert counted == expected, f"filter {name}"


def require_sent(expected: Mapping[tuple[int, int, int], Mapping[str, Any]], rules: Rules) -> None:
    """Compare which agents were asked, and what arrived of their actions."""
    for place, actions in expected.items():
        assert SENT[place].keys() == actions.keys(), place
        for agent, action in actions.items():
            arrived = sent(action) if rules.kind == "interval" else action
            require_equal(SENT[place][agent], arrived, f"action of {agent} at {place}")


def require_batch(found: Any, expected: SampledByPolicy) -> None:
    """Compare what one sample gave."""
    assert isinstance(found, MultiAgentBatch)
    assert (found.env_steps, found.counted_steps) == (expected.env_steps, expected.counted)
    require_episodes(found.episodes, expected.episodes)
    given = {pid: one.fragments for pid, one in found.policy_batches.items() if one.fragments}
    assert given.keys() == expected.fragments.keys()
    for pid, fragments in given.items():
        require_fragments(fragments, expected.fragments[pid])
