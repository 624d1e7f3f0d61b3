"""An environment that does, at a step of its life, what environments do to people."""

import ctypes
import os
import time
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

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
        self.kept: list[bytes] = []

    def step(self, action: Any) -> Any:
        self.lived += 1
        observation, reward, ended, cut, info = super().step(action)  # type: ignore[no-untyped-call]  # gymnasium's own
        if self.lived < AT:
            return observation, reward, ended, cut, info
        if self.what in _DEEDS:
            _DEEDS[self.what](self)
        observation = _OBSERVATIONS.get(self.what, lambda seen: seen)(observation)
        return observation, _REWARDS.get(self.what, reward), ended, cut, info


def _raise(_: Misbehaves) -> None:
    raise ZeroDivisionError("the world ended")


def _segfault(_: Misbehaves) -> None:
    ctypes.string_at(0)


def _hang(_: Misbehaves) -> None:
    """In C, with the interpreter's lock held: no signal handler and no other thread runs."""
    ctypes.PyDLL(None).sleep(3600)


def _leak(env: Misbehaves) -> None:
    env.kept.append(os.urandom(1024) * (1024 * 60))
    time.sleep(0.05)


def _slow(_: Misbehaves) -> None:
    time.sleep(0.01)


_DEEDS = {"raise": _raise, "segfault": _segfault, "hang": _hang, "leak": _leak, "slow": _slow}
_OBSERVATIONS: dict[str, Any] = {
    "NaN seen": lambda seen: np.full_like(seen, np.nan),
    "shape": lambda seen: seen[:3],
    "text": lambda _: "an observation",
    "huge": lambda seen: np.full_like(seen, 1e30),
}
_REWARDS: dict[str, Any] = {"inf": float("inf"), "no reward": None, "reward of two": [1.0, 2.0]}
