"""Users' environments in RLlib's form that are stepped together, as a vector environment.

Such a class has `vector_reset`, `reset_at` and `vector_step`, and is made with ``num_envs``;
`reset_at` starts the next episode of an environment. N environments.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.spaces.leaves import leaf_values, named_leaves
from trainables.errors import EnvError, shorten

Array = NDArray[Any]
#: Methods that make up RLlib's form.
METHODS = ("vector_reset", "reset_at", "vector_step")
#: Parts of a step, in order.
PARTS = ("observations", "rewards", "terminateds", "truncateds", "infos")


def has_form(env: Any) -> bool:
    """Return whether an object or class is a vector environment in RLlib's form, by its methods."""
    return all(callable(getattr(env, name, None)) for name in METHODS)


def is_vector_class(creator: Any) -> bool:
    """Return whether `creator` is a class whose objects step several environments together."""
    return isinstance(creator, type) and (issubclass(creator, VectorEnv) or has_form(creator))


class SteppedTogether(VectorEnv[Any, Any, Any]):
    """A vector environment in RLlib's form as one of gymnasium.

    Its spaces are those of one of N.
    """

    def __init__(self, env: Any, num_envs: int) -> None:
        self.env = env
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.spec = None
        self._latest: Any = []
        """Latest observation of each environment: an array (N, *O), or a list for nested spaces."""

    def reset(
        self, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start all episodes, or those flagged in `options`' ``reset_mask`` (N,), without a seed.

        Return the observations of all N environments, copied, and an empty info. Raises EnvError
        for a wrong result.
        """
        if options is None:
            seeds = [None if seed is None else _seed(seed, i) for i in range(self.num_envs)]
            given = self._call("vector_reset", 2, seeds=seeds, options=None)
            self._latest = self._copy_rows(self._rows("vector_reset", "observations", given[0]))
            return self._batched(), {}
        for i in np.flatnonzero(options["reset_mask"]).tolist():
            row = self._call("reset_at", 2, i)[0]
            self._require_fitting("reset_at", i, row)
            self._latest[i] = copy.deepcopy(row)
        return self._batched(), {}

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Make one step of all environments; results as of gymnasium's vector environments.

        Observations are copied; ended episodes are not reset. Raises EnvError for a wrong result.
        """
        given = self._call("vector_step", 5, self._by_env(actions))
        columns = [
            self._rows("vector_step", name, one) for name, one in zip(PARTS, given, strict=True)
        ]
        self._latest = self._copy_rows(columns[0])
        rewards, terminated, truncated = map(np.array, columns[1:4])
        infos: dict[str, Any] = {}
        for i, info in enumerate(columns[4]):
            infos = self._add_info(infos, dict(info), i)
        flags = terminated.astype(np.bool_), truncated.astype(np.bool_)
        return self._batched(), rewards.astype(np.float64), *flags, infos

    def close_extras(self, **_: Any) -> None:
        """Call the object's `close`, or RLlib's `stop`; does nothing if it has neither."""
        for name in ("close", "stop"):
            end: Callable[[], Any] | None = getattr(self.env, name, None)
            if callable(end):
                end()
                return

    def _call(self, method: str, parts: int, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of the object; EnvError unless it returns a tuple of `parts` items."""
        given = getattr(self.env, method)(*args, **kwargs)
        if not isinstance(given, tuple) or len(given) != parts:
            expected = ", ".join(PARTS) if parts == len(PARTS) else "observations, infos"
            raise EnvError(f"{method}() returned {shorten(given)}; expected ({expected})")
        return given

    def _by_env(self, actions: Any) -> list[Any]:
        """Return the actions of all environments, batched, as a list with one for each."""
        space = self.single_action_space
        if space.shape is not None:
            return list(actions)
        return list(iterate(batch_space(space, self.num_envs), actions))

    def _copy_rows(self, rows: Any) -> Any:
        """Return a copy of the observations, since environments may overwrite them.

        It is an array (N, *O), or a list for a Dict or Tuple space.
        """
        space = self.single_observation_space
        is_plain = space.shape is not None
        return np.array(rows, space.dtype) if is_plain else copy.deepcopy(list(rows))

    def _batched(self) -> Any:
        """Return a copy of the latest observations as one array, or a Dict or Tuple of arrays."""
        space = self.single_observation_space
        if space.shape is not None:
            return self._latest.copy()
        empty: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, self._latest, empty)

    def _rows(self, method: str, name: str, rows: Any) -> Any:
        """Return `rows` if it has one entry for each environment; `name` is the part of the result.

        Raises EnvError otherwise, or if an observation does not fit its space.
        """
        if not hasattr(rows, "__len__") or len(rows) != self.num_envs:
            raise EnvError(
                f"{method}() returned the {name} {shorten(rows)}; expected {self.num_envs} of "
                "them, one per environment"
            )
        for i, row in enumerate(rows) if name == "observations" else ():
            self._require_fitting(method, i, row)
        return rows

    def _require_fitting(self, method: str, i: int, row: Any) -> None:
        """Raise EnvError if observation `row` of environment `i` does not fit its space."""
        space = self.single_observation_space
        if space.shape is None and not _has_parts(space, row):
            seen = f"{method}() returned the observation {shorten(row)} for environment {i}"
            raise EnvError(f"{seen}; expected an observation in {space}")
        if space.shape is not None and np.shape(row) != space.shape:
            seen = f"{method}(): the observation of environment {i} has shape {np.shape(row)}"
            raise EnvError(f"{seen}; expected {space.shape}, as its space promises")


def _has_parts(space: spaces.Space[Any], row: Any) -> bool:
    """Return whether an observation has all parts of a Dict or Tuple, in their shapes."""
    try:
        found = [np.shape(one) for one in leaf_values(space, row)]
    except (IndexError, KeyError, TypeError, ValueError):
        return False
    return found == [leaf.shape for leaf in named_leaves(space, "").values()]


def _seed(seed: int, index: int) -> int:
    """Return the seed of environment `index` for the seed of all N."""
    return rng.integer(int(seed), "together", index) % 2**31
