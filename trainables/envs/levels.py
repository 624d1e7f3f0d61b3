"""How exactly environments come back from a checkpoint: measured, never believed.

Levels:

    A  exact state: a restored copy does the same to the bit
    B  seed and action replay: every episode begins in an environment made anew, and one that is
       played again does the same to the bit, whatever was played in between
    C  episode boundary: the episode in flight is dropped on restore, and the next one starts from
       a seed derived from the trial's
    D  nothing is exact: the same seed and actions did not do the same twice, or the clock steers
       (`trainables.config.TrainerConfig.by_clock`); environments come back from an exact state
       where they have one, otherwise as at C

The level depends on the environment and its settings alone, not on the clock or on a seed.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainables import rng
from trainables.envs.comparison import SEED, Episodes, state_failure
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError

logger = logging.getLogger(__name__)
SLOW_S = 20.0
"""A measurement that took so long is told."""

Level = Literal["A", "B", "C", "D"]
LEVELS: Mapping[Level, str] = {
    "A": "A exact state",
    "B": "B seed and action replay",
    "C": "C episode boundary",
    "D": "D not bit-exact",
}
#: Levels at which the episodes in flight come back.
EXACT: tuple[Level, ...] = ("A", "B")


@dataclass(frozen=True)
class Measured:
    """A level, and why it is no better one."""

    level: Level
    reasons: tuple[str, ...] = ()
    """For each level that was tried and does not hold, why."""
    left_out: tuple[str, ...] = ()
    """Attributes of the environment that cannot be read."""


_measured: dict[str, Measured] = {}


def resolve(
    config: EnvironmentConfig, by_clock: bool = False, restarts: bool = False
) -> tuple[EnvironmentConfig, Level]:
    """The settings by which environments are made and saved, and the level that is promised.

    The `env_level` of these settings is the level at which environments come back.

    Args:
        config: the environment.
        by_clock: the clock steers the training: nothing is exact, so nothing that costs time is
            done for it.
        restarts: environments that fail are made anew, as they are while measuring then.

    Raises:
        ConfigError: `env_level` asks for more than was measured.
    """
    if config.env_level == "C":
        return config, "D" if by_clock else "C"
    measured = measure(config, restarts)
    if config.env_level not in ("auto", measured.level):
        raise ConfigError(
            "env_level", config.env_level, "auto, or C", f"{config.env} is {measured.reasons[0]}"
        )
    if by_clock:
        cheap = measured.level in ("A", config.env_level)
        return _made_at(config, measured.level if cheap else "C"), "D"
    made: Level = "C" if measured.level == "D" else measured.level
    return _made_at(config, made), measured.level


def _made_at(config: EnvironmentConfig, level: Level) -> EnvironmentConfig:
    return EnvironmentConfig(**{**dict(config), "env_level": level})


def measure(config: EnvironmentConfig, restarts: bool = False) -> Measured:
    """The level of an environment; measured once in each process.

    With `env_level` A or B only that level is tried. Nothing of a training is touched: all copies
    are made for the purpose and the global streams are put back.
    """
    key = repr(({**dict(config), "env_replay_limit": None}, restarts))
    if key not in _measured:
        streams = rng.capture_global()
        rng.seed_global(SEED, "measure")
        began = time.perf_counter()
        try:
            _measured[key] = _measure(config, restarts)
        finally:
            rng.restore_global(streams)
        _tell_if_slow(config, _measured[key].level, time.perf_counter() - began)
    return _measured[key]


def _tell_if_slow(config: EnvironmentConfig, level: Level, seconds: float) -> None:
    if seconds < SLOW_S:
        return
    one = f"env_level: {level} measures only that, " if level in EXACT else ""
    logger.warning(
        "%s is slow: it took %.0f s to measure that it comes back at level %s, which every process "
        "does once; %senv_level: C nothing",
        *(config.env, seconds, level, one),
    )


def _measure(config: EnvironmentConfig, restarts: bool) -> Measured:
    reasons: list[str] = []
    left_out: list[str] = []
    if config.env_level != "B":
        why_not, left_out = state_failure(config, restarts)
        if not why_not:
            return Measured("A")
        reasons.append(f"not A: {why_not}")
    if config.env_level == "A" or config.native_vector_env:
        return Measured("C", tuple(reasons or ["not B: it is a native vector"]), tuple(left_out))
    level, why_not = _measure_episodes(config)
    if why_not:
        reasons.append(f"not B: {why_not}")
    return Measured(level, tuple(reasons), tuple(left_out))


def _measure_episodes(config: EnvironmentConfig) -> tuple[Level, str]:
    """B, or a weaker level and why."""
    episodes = Episodes(config)
    try:
        if why_not := episodes.chance_failure():
            return "D", why_not
        why_not = episodes.replay_failure()
        if not why_not and config.env_level != "B":
            why_not = episodes.memory_failure()
    except Exception as error:  # noqa: BLE001 what breaks in any way is not exact; training will say why
        return "C", f"it raised {type(error).__name__}: {error}"
    finally:
        episodes.close()
    return ("C", why_not) if why_not else ("B", "")
