"""An environment, and a trainable, that do at a step of their lives what such do to people."""

import ctypes
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from tests.support.mishaps import Counter

#: At which step of its life it happens; two iterations of `SETTINGS` are over then.
AT = 75
#: PPO on it: 32 steps an iteration, in one environment.
SETTINGS: dict[str, Any] = {
    "env": "tests.support.misbehaving:Misbehaves",
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 32,
    "sgd_minibatch_size": 32,
    "num_sgd_iter": 1,
    "model": {"hidden": [8]},
}


class Misbehaves(CartPoleEnv):
    """CartPole; from step `AT` of its life on it does `what`."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.lived = 0

    def step(self, action: Any) -> Any:
        self.lived += 1
        observation, reward, ended, cut, info = super().step(action)  # type: ignore[no-untyped-call]  # gymnasium's own
        if self.lived < AT:
            return observation, reward, ended, cut, info
        if self.what in _DEEDS:
            _DEEDS[self.what]()
        observation = _OBSERVATIONS.get(self.what, lambda seen: seen)(observation)
        return observation, _REWARDS.get(self.what, reward), ended, cut, info


def _raise() -> None:
    raise ZeroDivisionError("the world ended")


def _segfault() -> None:
    ctypes.string_at(0)


def _hang() -> None:
    """In C, with the interpreter's lock held: no signal handler and no other thread runs."""
    ctypes.PyDLL(None).sleep(3600)


def _exhaust() -> None:
    """Ask for more memory than the process is given."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, hard))
    try:
        bytearray(2**30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _slow() -> None:
    time.sleep(0.01)


_DEEDS = {
    "raise": _raise,
    "segfault": _segfault,
    "hang": _hang,
    "exhaust": _exhaust,
    "slow": _slow,
}
_OBSERVATIONS: dict[str, Any] = {
    "NaN seen": lambda seen: np.full_like(seen, np.nan),
    "shape": lambda seen: seen[:3],
    "text": lambda _: "an observation",
    "huge": lambda seen: np.full_like(seen, 1e30),
}
_REWARDS: dict[str, Any] = {"inf": float("inf"), "no reward": None, "reward of two": [1.0, 2.0]}


class Light(Counter):
    """Needs no torch: at its third iteration it does ``what``."""

    def at(self, iteration: int) -> float:
        if iteration == 3 and self.config["what"] in _DEEDS:
            _DEEDS[self.config["what"]]()
        return float(iteration)
