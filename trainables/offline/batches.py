"""A batch of transitions under the column names of files.

With several agents a batch has, as in files, ``policy_batches``, policy → such columns, and
``count``, the environment steps in which they were sampled.

The names are those of RLlib's SampleBatch: ``obs``, ``new_obs``, ``actions``, ``rewards``,
``terminateds``, ``truncateds``, ``t``, ``eps_id``, ``agent_index``, ``unroll_id``,
``prev_actions``, ``prev_rewards``, ``infos``, ``action_logp``, ``action_prob``, ``vf_preds``. T
steps, N environments, R rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import Spread
from trainables.rollout.agents.worker import MultiAgentBatch
from trainables.rollout.batch import Fragment

Array = NDArray[Any]
Columns: TypeAlias = Mapping[str, Array]
"""Name of a column in RLlib's files → its rows (R, …)."""
Batch: TypeAlias = Mapping[str, Any]
"""Columns of one agent, or, with several, a dict with ``policy_batches`` and ``count``."""
#: Columns that are requested of workers whose experience is written.
WRITTEN = frozenset({"new_obs", "t", "eps_id", "infos"})
#: Columns that are requested if rows are in lanes, as with several agents and environments that
#: call: only the worker knows which row came before.
WRITTEN_IN_LANES = WRITTEN | {"agent_index", "unroll_id", "prev_actions", "prev_rewards"}
#: Name in a file → name in a fragment, which every fragment has or some actor declares.
NAMES: Mapping[str, str] = {
    "obs": "observations",
    "new_obs": "new_obs",
    "actions": "actions",
    "rewards": "rewards",
    "terminateds": "terminated",
    "truncateds": "truncated",
    "infos": "infos",
    "t": "t",
    "eps_id": "eps_id",
    "action_logp": "logp",
    "vf_preds": "values",
}


def batch_of(fragment: Fragment, before: tuple[Array, Array] | None, unroll: int) -> Columns:
    """Return the valid rows of a fragment (T, N) as columns, environment after environment.

    Adds ``agent_index``, which is 0, ``unroll_id``, the previous actions and rewards, 0 before an
    episode's first step, and probabilities of actions if their logarithms are known.

    Args:
        fragment: fragment with the requested columns `WRITTEN`.
        before: actions (N, …) and rewards (N,) of the step before the fragment; None if episodes
            begin with it.
        unroll: number (``unroll_id``) of the rows of the first environment; the others have the
            following numbers.
    """
    arrays = fragment.columns
    steps, envs = fragment.valid.shape
    columns = {name: arrays[own] for name, own in NAMES.items() if own in arrays}
    columns["agent_index"] = np.zeros((steps, envs), dtype=np.int64)
    columns["unroll_id"] = np.broadcast_to(unroll + np.arange(envs), (steps, envs))
    for name, i in (("actions", 0), ("rewards", 1)):
        now = columns[name]
        first = np.zeros_like(now[0]) if before is None else before[i]
        previous = np.concatenate([first[None], now[:-1]])
        previous[fragment.t == 0] = 0
        columns[f"prev_{name}"] = previous
    return _valid_rows(fragment, columns)


def batch_of_lanes(fragments: Sequence[Fragment]) -> Columns:
    """Return the valid rows of one policy's fragments (T, lanes) as columns, lane after lane.

    A lane is a column of a fragment, with the steps of one agent after the other. There is at least
    one fragment; each needs the columns `WRITTEN_IN_LANES`. Adds probabilities of actions if their
    logarithms are known.
    """
    named = {**NAMES, **{name: name for name in WRITTEN_IN_LANES - WRITTEN}}
    parts = [
        _valid_rows(one, {n: one[own] for n, own in named.items() if own in one.columns})
        for one in fragments
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def as_sent(fragment: Fragment, spread: Spread | None) -> Fragment:
    """Return the fragment with actions as the environment got them, but not clipped.

    Log-probabilities become densities of these numbers, and previous actions are converted, too.
    `spread` is `ActionAdapter.spread`: factors and offsets (K,); None if actions are not spread
    over their bounds, when the fragment itself is returned.
    """
    if spread is None:
        return fragment
    half, middle = spread
    columns = {**fragment.arrays, "actions": fragment.actions * half + middle}
    if "logp" in columns:
        columns["logp"] = columns["logp"] - np.log(half).sum(dtype=np.float32)
    if "prev_actions" in columns:
        before = columns["prev_actions"] * half + middle
        before[fragment.t == 0] = 0  # there is no action before the first
        columns["prev_actions"] = before
    return Fragment.from_columns(columns)


def batch_of_agents(
    sample: MultiAgentBatch, spread_of: Callable[[str], Spread | None] = lambda _: None
) -> Batch | None:
    """Return one worker's sample of several agents as a batch by policy; None if no row is valid.

    `spread_of` is a function of a policy that returns how its actions are spread, see `as_sent`.
    """
    by_policy = {
        pid: batch_of_lanes([as_sent(fragment, spread_of(pid)) for fragment in one.fragments])
        for pid, one in sample.policy_batches.items()
        if one.fragments
    }
    found = {pid: columns for pid, columns in by_policy.items() if len(columns["obs"])}
    return {"count": sample.env_steps, "policy_batches": found} if found else None


def _valid_rows(fragment: Fragment, columns: Mapping[str, Array]) -> Columns:
    """Return the valid rows (R, …) of columns (T, N, …), environment after environment.

    Steps in which an environment only restarted are left out. Adds ``action_prob`` if there is
    ``action_logp``.
    """
    if "action_logp" in columns:
        columns = {**columns, "action_prob": np.exp(columns["action_logp"])}
    kept = (fragment.valid & ~fragment.autoreset).T.reshape(-1)
    return {
        name: column.swapaxes(0, 1).reshape(kept.size, *column.shape[2:])[kept]
        for name, column in columns.items()
    }
