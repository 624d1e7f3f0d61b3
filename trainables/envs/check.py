"""Report on an environment: its spaces, its speed, and the exactness of its checkpoints.

Used by `sweep check-env`. Speeds are measured on this machine at this moment; nothing depends on
them.
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
from trainables.envs.calls.faults import closing, logging_once
from trainables.envs.exactness.levels import EXACT, LEVELS, Measured
from trainables.envs.exactness.measuring import Inquiry, Inspection, resolve
from trainables.envs.exactness.random_actions import actions_for_one
from trainables.envs.exactness.watching import Hangs, announce_call, watched
from trainables.envs.kinds.agents import AgentsEnv
from trainables.envs.make import Env, EnvironmentConfig, make_env, make_raw_env
from trainables.envs.spaces.masks import MASK
from trainables.envs.vector.base import VectorEnv
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError

WIDTH = 8
"""Number of environments that the second measurement of speed steps together."""

LONGEST_S = 10.0
"""Time after which a measurement of speed ends early, seconds."""
STEPS_PER_READING = 20
"""Steps between two readings of the clock."""
SHORTEST_S = 1e-6
"""Lower bound of measured times, so that no speed is a division by 0, seconds."""

COSTS = ("steps_per_s", f"steps_per_s_in_{WIDTH}", "saved_bytes", "save_ms", "restore_ms")
"""Keys of a report on speed and saving, which are None if they were not measured."""

GUESS = "probably"
"""Word in gymnasium's warnings about mere suspicions, such as that a bound is too wide."""
#: Pattern of terminal colours.
_COLOUR = re.compile(r"\x1b\[\d+m")

#: Result of the check as plain data, for printing or JSON.
Report = dict[str, Any]
Array = NDArray[Any]


@logging_once()
def check(
    env: str,
    env_config: Mapping[str, Any] | None = None,
    steps: int = 2000,
    timeout_s: float | None = None,
) -> Report:
    """Measure an environment and return a report on it, as plain data; for `sweep check-env`.

    Makes environments and plays them; the global random streams are preserved. The keys are
    ``env``, ``env_config``, ``observation_space``, ``action_space``, ``time_limit``, ``breaches``,
    ``unsupported`` (why no policy can use its spaces, or ""), ``level``, ``exactness``,
    ``reasons``, ``unsaved_attributes`` and `COSTS`. The last are None if no policy can use its
    spaces, or if that raised, which is then one of the breaches. A call that hangs in this process,
    not in the child that measures exactness, ends the process with a message.

    Args:
        env: a gymnasium id, or package.module:Name.
        steps: environment steps of each measurement of speed; a slow environment makes fewer.
        timeout_s: longest time for one call of the environment, seconds; None for the setting's
            default.

    Raises:
        ConfigError: the environment does not exist, cannot be made, or hangs.
    """
    limit = {} if timeout_s is None else {"env_measure_timeout_s": timeout_s}
    config = parse(EnvironmentConfig, {"env": env, "env_config": dict(env_config or {}), **limit})
    with rng.preserve_global():
        rng.seed_global(0, "check")
        with contextlib.closing(Inquiry(config, always_measures=True)) as inquiry:
            unsupported = _unsupported(inquiry)
            masked = config if unsupported else _with_masks(config, inquiry.inspect())
            measured = None if unsupported or masked is not config else inquiry.measured()
        if masked is not config:
            with contextlib.closing(Inquiry(masked, always_measures=True)) as inquiry:
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
    """Make an environment; return entries of a report: its settings, spaces, limit, breaches.

    Spaces are texts, ``time_limit`` is in steps or None, and ``breaches`` are sentences about
    gymnasium's rules. The environment is played for them, and closed. Raises ConfigError if it
    cannot be made.
    """
    announce_call()
    with closing(make_raw_env(config)) as env:
        return {
            "env": config.env,
            "env_config": config.env_config,
            "observation_space": str(env.observation_space),
            "action_space": str(env.action_space),
            "time_limit": env.spec.max_episode_steps if env.spec else None,
            "breaches": _breaches(env),
        }


def _unsupported(inquiry: Inquiry) -> str:
    """Return the reason why no policy can use the environment's spaces; empty if one can.

    Also a reason why it cannot be made. Raises Hangs if a call does not return in time.
    """
    try:
        inquiry.inspect()
    except Hangs:
        raise
    except ConfigError as error:
        return "; ".join(filter(None, (error.problem, error.hint))) or str(error)
    return ""


def _with_masks(config: EnvironmentConfig, inspection: Inspection) -> EnvironmentConfig:
    """Return settings that read action masks from observations, if every agent has one there.

    Makes and closes an environment to try them. If not every agent has a mask, or that fails,
    returns `config` itself. An environment may refuse actions that its mask forbids.
    """
    every = [one.raw for one in inspection.agents.values()] or [inspection.spaces.raw]
    if not all(isinstance(one, Dict) and MASK in one.spaces for one in every):
        return config
    masked = config.model_copy(update={"action_mask": "observation"})
    try:
        with closing(make_env(masked)):
            return masked
    except ConfigError:  # what is called so is not a mask of its actions
        return config


def _breaches(env: Env) -> list[str]:
    """Return the breaches of gymnasium's rules that gymnasium's own checker finds, as sentences.

    The checker plays the environment. Mere suspicions (`GUESS`) and repetitions are left out. Empty
    for several agents, for which those rules do not hold; their steps are checked one by one.
    """
    if isinstance(env, AgentsEnv):
        return []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = []
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:  # noqa: BLE001 whatever it raises is a finding
            found.append(f"{type(error).__name__}: {error}")
    warned = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    words = [" ".join(_COLOUR.sub("", text).split()) for text in [*warned, *found]]
    return list(dict.fromkeys(text.removeprefix("WARN: ") for text in words if GUESS not in text))


def _level(measured: Measured | None) -> Report:
    """Return the exactness with which the environment is restored, as entries of a report.

    They are ``level``, its description as ``exactness``, and the lists ``reasons`` and
    ``unsaved_attributes``: None and empty if nothing was measured.
    """
    if measured is None:
        return {"level": None, "exactness": None, "reasons": [], "unsaved_attributes": []}
    return {**measured.as_data(), "exactness": LEVELS[measured.level]}


def _costs(config: EnvironmentConfig, steps: int) -> Report:
    """Return the entries `COSTS` of a report: speeds of one and of `WIDTH` environments, of saving.

    About `steps` environment steps are made for each speed. The costs of saving are None unless the
    environment's running episode can be restored.
    """
    made, level = resolve(config)
    report: Report = dict.fromkeys(COSTS)
    for name, width in (("steps_per_s", 1), (f"steps_per_s_in_{WIDTH}", WIDTH)):
        with closing(make_vector_env(made, width)) as envs:
            report[name] = _speed(envs, math.ceil(steps / width))
            if width == 1 and level in EXACT:
                report |= _saving(envs)
    return report


def _speed(envs: VectorEnv, ticks: int) -> float:
    """Step all environments `ticks` times with random actions; return environment steps per second.

    The environments are reset first, and each step counts once per environment. Ends early after
    `LONGEST_S` seconds.
    """
    seeds = list(range(envs.sub_env_count))
    actions = _drawn(envs, seeds, ticks)
    envs.reset(seeds)
    done, seconds = 0, 0.0
    while done < ticks and seconds < LONGEST_S:
        began = _running_time()
        for row in actions[done : done + STEPS_PER_READING]:
            announce_call()
            envs.step(row)
            done += 1
        seconds += max(_running_time() - began, SHORTEST_S)
    return done * envs.count / seconds


def _drawn(envs: VectorEnv, seeds: list[int], ticks: int) -> list[Array]:
    """Return random actions (N, …) for each of `ticks` steps, drawn in advance.

    With action masks the environments are reset with `seeds` and stepped here, to learn the masks.
    """
    drawing = [actions_for_one(envs, i) for i in range(envs.count)]
    if not drawing[0].are_masked:
        drawn = [[one.draw(None) for one in drawing] for _ in range(ticks)]
        return [np.asarray(row) for row in drawn]
    actions, current = [], envs.reset(seeds)
    for _ in range(ticks):
        announce_call()
        actions.append(np.asarray([one.draw(current[i]) for i, one in enumerate(drawing)]))
        current = envs.step(actions[-1]).observations
    return actions


def _saving(envs: VectorEnv) -> Report:
    """Measure ``saved_bytes`` of the environments' state, ``save_ms`` and ``restore_ms``.

    The size is that of a pickle with its arrays. The state is restored once.
    """
    state = envs.get_state()
    packed = pack(state)
    size = len(packed.pickled) + sum(array.nbytes for array in packed.arrays)
    return {
        "saved_bytes": size,
        "save_ms": 1e3 * _seconds(envs.get_state),
        "restore_ms": 1e3 * _seconds(lambda: envs.set_state(state)),
    }


def _seconds(act: Callable[[], object]) -> float:
    """Call `act`; return its seconds, without those in which other programs had the core.

    They are at least `SHORTEST_S`.
    """
    began = _running_time()
    act()
    return max(_running_time() - began, SHORTEST_S)


def _running_time() -> float:
    """Return the time of a clock that stops while this thread waits for a core, seconds.

    On systems that do not count the waiting, the clock does not stop.
    """
    try:
        text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
        return time.perf_counter() - int(text.split()[1]) / 1e9
    except (OSError, IndexError):
        return time.perf_counter()
