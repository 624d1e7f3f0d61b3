"""Lanes in processes of their own, made without a trainer (and so without torch)."""

from typing import Any

from trainables.envs.choice import make_lanes
from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig
from trainables.envs.remote import RemoteLanes
from trainables.envs.vector import Lanes, Place


def remote_lanes(
    env: str, count: int = 2, env_config: dict[str, Any] | None = None, **settings: Any
) -> RemoteLanes:
    lanes = lanes_of(env, count, env_config, remote_worker_envs=True, **settings)
    assert isinstance(lanes, RemoteLanes)
    return lanes


def lanes_of(
    env: str, count: int = 2, env_config: dict[str, Any] | None = None, **settings: Any
) -> Lanes:
    environment = EnvironmentConfig(env=env, env_config=env_config or {})
    return make_lanes(environment, count, LanesConfig(**settings), Place(seed=5, worker=1))
