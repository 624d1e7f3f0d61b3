"""Environments of EnvPool, in C++ (`env_engine: envpool`), as one vector environment.

EnvPool takes a seed only when a pool is made, and never reveals its state. So a new pool is made
for each seed, and a trial on it is not bit-exact. N environments.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from trainables.errors import ConfigError, nearest, shorten

Array = NDArray[Any]
#: Value of the setting `env_engine`.
ENVPOOL = "envpool"
#: Command that installs EnvPool.
EXTRA = "pip install 'sweep-rl[envpool]'"


class Pool(VectorEnv[Any, Any, Any]):
    """N environments of EnvPool, which runs them in C++, as a gymnasium vector environment.

    They are stepped in one thread unless `arguments` say otherwise.

    Args:
        env: id in EnvPool.
        num_envs: N.
        arguments: further arguments of EnvPool's ``make``.

    Raises:
        ConfigError: EnvPool is not installed, or cannot make them.
    """

    def __init__(self, env: str, num_envs: int, arguments: dict[str, Any]) -> None:
        try:
            import envpool
        except ImportError:
            hint, problem = f"install it: {EXTRA}", "EnvPool is not installed"
            raise ConfigError("env_engine", ENVPOOL, hint=hint, problem=problem) from None
        known = envpool.list_all_envs()
        if env not in known:
            hint = nearest(env, known).removeprefix("; ")
            hint = hint or "choose one of EnvPool's ids, or set env_engine to gymnasium"
            problem = f"EnvPool has no environment {shorten(env)}"
            raise ConfigError("env", env, hint=hint, problem=problem)
        given = {"num_threads": 1, **arguments, "num_envs": num_envs}
        self._make = partial(envpool.make, env, env_type="gymnasium", **given)
        try:
            self._pool = self._make_pool()
        except Exception as error:
            raised = f"it raised {type(error).__name__}: {error}"
            problem = f"EnvPool's {env} cannot be made from {shorten(arguments)}: {raised}"
            raise ConfigError("env_config", arguments, problem=problem) from error
        self.num_envs = num_envs
        self.metadata = self._pool.metadata
        with _without_warnings():
            self.single_observation_space = self._pool.single_observation_space
            self.single_action_space = self._pool.single_action_space
        self.spec = None  # EnvPool's is none of gymnasium's

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start all episodes; return observations (N, *O), and no info.

        With a seed, the environments are made anew, since EnvPool takes seeds only then, and each
        gets the seed plus its index. Raises ValueError if there are options.
        """
        if options is not None:
            raise ValueError(f"reset(options={options!r}): EnvPool's environments take no options")
        if seed is not None:
            self._pool.close()
            # Environment i has the seed + i, a number of 31 bits.
            self._pool = self._make_pool(seed=seed % (2**31 - self.num_envs))
        with _without_warnings():
            observations, _ = self._pool.reset()
        return observations, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Make one step of all environments; results as of gymnasium's vector environments.

        Infos, which EnvPool returns as bare arrays, are dropped: the last value is empty.
        """
        observations, rewards, terminated, truncated, _ = self._pool.step(np.asarray(actions))
        return observations, rewards, terminated, truncated, {}

    def close_extras(self, **_: Any) -> None:
        """Close the pool."""
        self._pool.close()

    def _make_pool(self, **seeded: Any) -> Any:
        """Return N new environments of EnvPool's ``make``, with these further arguments."""
        with _without_warnings():
            return self._make(**seeded)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide gymnasium's warning that EnvPool's bounds are float64 and its numbers float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
