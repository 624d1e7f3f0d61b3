"""MuJoCo's own objects in the state of an environment, as plain data.

The integration state alone is not enough: rewards of Ant and Humanoid read what the last step
derived, so every array of the simulation's data of fixed size comes along. Arrays of contacts and
constraints have no fixed size; each step computes them again before anything reads them.

MuJoCo is an extra and is imported here only before an environment of its own is made: where it has
not been imported, none of its objects exist.
"""

import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainables.errors import EnvError

logger = logging.getLogger(__name__)


def log_warnings(entry_point: object) -> None:
    """Make MuJoCo send its warnings to the log, if `entry_point` is in ``gymnasium.envs.mujoco``.

    By default MuJoCo writes each warning to a file MUJOCO_LOG.TXT in the current folder. Imports
    MuJoCo; does nothing if it is missing, or if somebody has set a handler of warnings.
    """
    if not str(entry_point).startswith("gymnasium.envs.mujoco."):
        return
    with contextlib.suppress(ImportError, AttributeError):  # it is missing, or an older one
        import mujoco

        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(_log)


def _log(text: str) -> None:
    """Log a warning of MuJoCo at INFO; MuJoCo calls this."""
    logger.info("MuJoCo: %s", text)


def is_data(value: Any) -> bool:
    """Return whether `value` is a MuJoCo simulation's data (MjData)."""
    mujoco = sys.modules.get("mujoco")
    return mujoco is not None and isinstance(value, mujoco.MjData)


def is_model(value: Any) -> bool:
    """Return whether `value` is a MuJoCo simulation's model (MjModel)."""
    mujoco = sys.modules.get("mujoco")
    return mujoco is not None and isinstance(value, mujoco.MjModel)


def is_renderer(value: Any) -> bool:
    """Return whether `value` is gymnasium's renderer of a MuJoCo simulation, which has no state."""
    drawing = sys.modules.get("gymnasium.envs.mujoco.mujoco_rendering")
    return drawing is not None and isinstance(value, drawing.MujocoRenderer)


def why_no_picture(env: Any) -> str:
    """Return the reason why an environment's MuJoCo renderer cannot draw here; else "".

    Ask before drawing: a second attempt to draw without OpenGL would end the process.
    """
    if not any(is_renderer(value) for value in vars(env.unwrapped).values()):
        return ""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if screen or os.environ.get("MUJOCO_GL", "glfw") != "glfw":
        return ""
    return (
        "MuJoCo finds no screen; set the variable MUJOCO_GL=egl (or osmesa) before python starts, "
        "or extra_python_environs: {MUJOCO_GL: egl}"
    )


def capture_data(data: Any) -> dict[str, Any]:
    """Return a copy of a simulation's data: its integration state, and arrays of fixed size.

    The entries are ``integration``, a vector, and ``arrays``, name → array.
    """
    mujoco: Any = sys.modules["mujoco"]
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.zeros(mujoco.mj_stateSize(data.model, kind))
    mujoco.mj_getState(data.model, data, integration, kind)
    empty = mujoco.MjData(data.model)
    fixed = {name for name, array in _arrays(empty).items() if array.size}
    arrays = {name: array.copy() for name, array in _arrays(data).items() if name in fixed}
    return {"integration": integration, "arrays": arrays}


def restore_data(data: Any, state: Mapping[str, Any]) -> None:
    """Write what `capture_data` returned into the data of an equal model."""
    mujoco: Any = sys.modules["mujoco"]
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(data.model, data, np.array(state["integration"]), kind)
    for name, array in state["arrays"].items():
        getattr(data, name)[...] = array


def fingerprint_model(model: Any) -> str:
    """Return the SHA-256 of all arrays of a model and its time step, hexadecimal."""
    digest = hashlib.sha256()
    arrays = {**_arrays(model), "timestep": np.array(model.opt.timestep), **_arrays(model.opt)}
    for name, array in arrays.items():
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_model(model: Any, expected: str) -> None:
    """Raise EnvError unless `fingerprint_model` of the model is `expected`."""
    if fingerprint_model(model) != expected:
        raise EnvError(
            "the MuJoCo model of a new environment is not the one that was saved: an environment "
            "that changes its model has no exact state; set env_level: B, which replays its "
            "episode, or env_level: C, which drops it"
        )


def _arrays(value: Any) -> dict[str, Any]:
    """Return attribute → array of the writable arrays among an object's attributes."""
    named = {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
    return {
        name: array
        for name, array in named.items()
        if isinstance(array, np.ndarray) and array.flags.writeable
    }
