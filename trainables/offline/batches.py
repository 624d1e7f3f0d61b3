"""A batch of transitions under the names that files have for its columns.

The names are those of RLlib's SampleBatch: ``obs``, ``new_obs``, ``actions``, ``rewards``,
``terminateds``, ``truncateds``, ``t``, ``eps_id``, ``agent_index``, ``unroll_id``,
``prev_actions``, ``prev_rewards``, ``infos``, ``action_logp``, ``action_prob``, ``vf_preds``. T
steps, N environments, R rows.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainables.rollout.batch import Fragment

Array = NDArray[Any]
Columns: TypeAlias = Mapping[str, Array]
"""Name → (R, …)."""
#: What is requested of workers whose experience is written.
WRITTEN = frozenset({"new_obs", "t", "eps_id", "infos"})
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
    """The valid rows of a fragment, environment after environment.

    Args:
        fragment: with the requested columns `WRITTEN`.
        before: the actions (N, …) and rewards (N,) of the step before its first one; None: every
            episode in it begins there.
        unroll: the number of its first environment's rows; the next one has the next number.
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
    if "action_logp" in columns:
        columns["action_prob"] = np.exp(columns["action_logp"])
    kept = (fragment.valid & ~fragment.autoreset).T.reshape(-1)
    return {
        name: column.swapaxes(0, 1).reshape(steps * envs, *column.shape[2:])[kept]
        for name, column in columns.items()
    }
