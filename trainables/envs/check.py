"""Report on an environment: its spaces, its speed, and the exactness of its checkpoints.

A door for the command line. Numbers of speed are this machine's, of this moment; nothing else
depends on them.
"""

import contextlib
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Dict
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from trainables.checkpoint.state import pack
from trainables.core import rng
from trainables.core.settings import parse
from trainables.envs.agents import AgentsEnv
from trainables.envs.exactness.levels import EXACT, LEVELS, Measured
from trainables.envs.exactness.measuring import Inquiry, Look, resolve
from trainables.envs.exactness.random_actions import for_one_of
from trainables.envs.exactness.watching import Hangs, beat, watched
from trainables.envs.faults import closing, logging_once
from trainables.envs.make import Env, EnvironmentConfig, make_env, make_raw_env
from trainables.envs.spaces.masks import MASK
from trainables.envs.vector.base import VectorEnv
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError

WIDTH = 8
"""Environments of the second measure of speed."""

LONGEST_S = 10.0
"""A measure of speed ends when it took so long, if it has not made all its steps."""
AT_A_TIME = 20
"""Steps of all environments between two readings of the clock."""
SHORTEST_S = 1e-6
"""A shorter time counts as this."""

COSTS = ("steps_per_s", f"steps_per_s_in_{WIDTH}", "saved_bytes", "save_ms", "restore_ms")
"""Entries of a report that are None where they were not measured."""

GUESS = "probably"
"""In what the checker only suspects, such as that a bound of a space is too wide."""
_COLOUR = re.compile(r"\x1b\[\d+m")

Report = dict[str, Any]
Array = NDArray[Any]


@logging_once()
def check(
    env: str,
    env_config: Mapping[str, Any] | None = None,
    steps: int = 2000,
    timeout_s: float | None = None,
) -> Report:
    """Everything about an environment, as plain data.

    Args:
        env: a gymnasium id, or package.module:Name.
        env_config: keyword arguments for making it.
        steps: environment steps of each measure of speed; a slow environment makes fewer.
        timeout_s: seconds that one call of it may take; None: as settings have it.

    Raises:
        ConfigError: there is none of this name, it cannot be made, or a call of it hangs.
    """
    limit = {} if timeout_s is None else {"env_measure_timeout_s": timeout_s}
    config = parse(EnvironmentConfig, {"env": env, "env_config": dict(env_config or {}), **limit})
    with rng.preserve_global():
        rng.seed_global(0, "check")
        with contextlib.closing(Inquiry(config, anew=True)) as inquiry:
            unsupported = _unsupported(inquiry)
            masked = config if unsupported else _with_masks(config, inquiry.look())
            measured = None if unsupported or masked is not config else inquiry.measured()
        if masked is not config:
            with contextlib.closing(Inquiry(masked, anew=True)) as inquiry:
                measured = inquiry.measured()
        with watched(config):
            described = {**_describe(config), "unsupported": unsupported, **_level(measured)}
        costs: Report = dict.fromkeys(COSTS)
        if not unsupported:
            try:
                with watched(config):
                    costs |= _costs(masked, steps)
            except Exception as error:  # noqa: BLE001 whatever it raises is a finding
                described["breaches"].append(f"{type(error).__name__}: {error}")
        return {**described, **costs}


def _describe(config: EnvironmentConfig) -> Report:
    beat()
    with closing(make_raw_env(config)) as made:
        return {
            "env": config.env,
            "env_config": config.env_config,
            "observation_space": str(made.observation_space),
            "action_space": str(made.action_space),
            "time_limit": made.spec.max_episode_steps if made.spec else None,
            "breaches": _breaches(made),
        }


def _unsupported(inquiry: Inquiry) -> str:
    """Why no policy can live in its spaces; empty: it can."""
    try:
        inquiry.look()
    except Hangs:
        raise
    except ConfigError as error:
        return error.hint or str(error)
    return ""


def _with_masks(config: EnvironmentConfig, seen: Look) -> EnvironmentConfig:
    """Return settings that read the action masks in observations, where all agents have one.

    An environment may refuse the choices that they forbid, which nobody would train on.
    """
    every = [one.raw for one in seen.agents.values()] or [seen.spaces.raw]
    if not all(isinstance(one, Dict) and MASK in one.spaces for one in every):
        return config
    masked = config.model_copy(update={"action_mask": "observation"})
    try:
        with closing(make_env(masked)):
            return masked
    except ConfigError:  # what is called so is no mask of its actions
        return config


def _breaches(made: Env) -> list[str]:
    """Return the breaches of gymnasium's rules, as gymnasium's own checker sees them.

    They are rules for one agent; those for several are checked in each step.
    """
    if isinstance(made, AgentsEnv):
        return []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = []
        try:
            check_env(made.unwrapped, skip_render_check=True)
        except Exception as error:  # noqa: BLE001 whatever it raises is a finding
            found.append(f"{type(error).__name__}: {error}")
    warned = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    words = [" ".join(_COLOUR.sub("", text).split()) for text in [*warned, *found]]
    return list(dict.fromkeys(text.removeprefix("WARN: ") for text in words if GUESS not in text))


def _level(measured: Measured | None) -> Report:
    """Return the exactness; None: training there is impossible, so nothing was measured."""
    if measured is None:
        return {"level": None, "exactness": None, "reasons": [], "left_out": []}
    return {**measured.as_data(), "exactness": LEVELS[measured.level]}


def _costs(config: EnvironmentConfig, steps: int) -> Report:
    """Steps per second of one and of many; bytes and milliseconds of saving one."""
    made, level = resolve(config)
    report: Report = dict.fromkeys(COSTS)
    for name, width in (("steps_per_s", 1), (f"steps_per_s_in_{WIDTH}", WIDTH)):
        with closing(make_vector_env(made, width)) as envs:
            report[name] = _speed(envs, math.ceil(steps / width))
            if width == 1 and level in EXACT:
                report |= _saving(envs)
    return report


def _speed(envs: VectorEnv, ticks: int) -> float:
    seeds = list(range(envs.sub_env_count))
    actions = _drawn(envs, seeds, ticks)
    envs.reset(seeds)
    done, seconds = 0, 0.0
    while done < ticks and seconds < LONGEST_S:
        began = _own_time()
        for row in actions[done : done + AT_A_TIME]:
            beat()
            envs.step(row)
            done += 1
        seconds += max(_own_time() - began, SHORTEST_S)
    return done * envs.count / seconds


def _drawn(envs: VectorEnv, seeds: list[int], ticks: int) -> list[Array]:
    """Return the actions of so many steps, which are made to know the valid ones, if masks say."""
    drawing = [for_one_of(envs, i) for i in range(envs.count)]
    if not drawing[0].are_masked:
        drawn = [[one.draw(None) for one in drawing] for _ in range(ticks)]
        return [np.asarray(row) for row in drawn]
    actions, current = [], envs.reset(seeds)
    for _ in range(ticks):
        beat()
        actions.append(np.asarray([one.draw(current[i]) for i, one in enumerate(drawing)]))
        current = envs.step(actions[-1]).observations
    return actions


def _saving(envs: VectorEnv) -> Report:
    state = envs.get_state()
    packed = pack(state)
    size = len(packed.pickled) + sum(array.nbytes for array in packed.arrays)
    return {
        "saved_bytes": size,
        "save_ms": 1e3 * _seconds(envs.get_state),
        "restore_ms": 1e3 * _seconds(lambda: envs.set_state(state)),
    }


def _seconds(act: Callable[[], object]) -> float:
    """Return the seconds of a call, without the time in which other programs had the core."""
    began = _own_time()
    act()
    return max(_own_time() - began, SHORTEST_S)


def _own_time() -> float:
    """Seconds on a clock that stands still while this thread is ready to run and has no core."""
    try:
        text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
        return time.perf_counter() - int(text.split()[1]) / 1e9
    except (OSError, IndexError):
        return time.perf_counter()
