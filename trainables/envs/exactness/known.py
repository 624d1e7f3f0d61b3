"""Levels that need not be measured: those of gymnasium's classic control with default settings.

They were measured with gymnasium `GYMNASIUM`, and a test measures them again. If anything is
different, in the environment's settings, the registry or gymnasium's version, the level is
measured.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium

from trainables.envs import registry
from trainables.envs.compiled import is_compiled
from trainables.envs.exactness.levels import Measured
from trainables.envs.make import EnvironmentConfig, ObservationSettings

#: Version of gymnasium that was measured.
GYMNASIUM = "1.4.0"

#: Settings that do not change the level; native vector environments were measured, too.
_FREE = ("native_vector_env", "env_level", "env_replay_limit", "env_measure_timeout_s")
#: Package of the environments.
_MODULES = "gymnasium.envs.classic_control"


class _Registered(NamedTuple):
    """The registration of an environment in gymnasium."""

    entry_point: str
    """Entry point of the environment."""
    vector_entry_point: str | None = None
    """Entry point of the environment's native vector environment; None if it has none."""


#: Id → registration of the environments at level A.
EXACT_STATE: Mapping[str, _Registered] = {
    "CartPole-v1": _Registered(
        f"{_MODULES}.cartpole:CartPoleEnv", f"{_MODULES}.cartpole:CartPoleVectorEnv"
    ),
    "Acrobot-v1": _Registered(f"{_MODULES}.acrobot:AcrobotEnv"),
    "MountainCar-v0": _Registered(f"{_MODULES}.mountain_car:MountainCarEnv"),
    "MountainCarContinuous-v0": _Registered(
        f"{_MODULES}.continuous_mountain_car:Continuous_MountainCarEnv"
    ),
    "Pendulum-v1": _Registered(f"{_MODULES}.pendulum:PendulumEnv"),
}


def known_level(config: EnvironmentConfig) -> Measured | None:
    """Return the exactness of an environment that was measured in advance, such as CartPole-v1.

    It is level A, also for each environment that is a function of JAX arrays. Returns None if it
    must be measured: others, other versions, or settings that might change it.
    """
    if is_compiled(config.env):  # pure functions: the one array of the state is all of it
        return Measured("A") if config.env_level in ("auto", "A") else None
    registered = EXACT_STATE.get(config.env)
    if registered is None or registry.find(config.env) is not None:
        return None
    same = _is_registered_so(config.env, registered) and gymnasium.__version__ == GYMNASIUM
    there = not config.is_native or registered.vector_entry_point is not None
    return Measured("A") if same and there and _is_plain(config) else None


def _is_registered_so(name: str, expected: _Registered) -> bool:
    """Return whether gymnasium's registration of `name` has the expected entry points, alone.

    With arguments or wrappers it is another one.
    """
    spec = gymnasium.registry.get(name)
    if spec is None or spec.kwargs or spec.additional_wrappers:
        return False
    return (spec.entry_point, spec.vector_entry_point) == expected


def _is_plain(config: EnvironmentConfig) -> bool:
    """Return whether all settings that might change the environment's exactness have defaults.

    False if `env_level` asks for B or C.
    """
    free: dict[str, Any] = {name: getattr(config, name) for name in _FREE}
    plain = EnvironmentConfig(env=config.env, **free)
    asked = config.env_level in ("auto", "A")
    return (
        asked
        and dict(config) == dict(plain)
        and config.observation_settings == ObservationSettings()
    )
