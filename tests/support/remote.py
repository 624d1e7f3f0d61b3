"""Environments in processes of their own, made without a trainer (and so without torch)."""

from typing import Any

from trainables.envs.make import EnvironmentConfig
from trainables.envs.vector.base import VectorEnv, WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.factory import make_vector_env
from trainables.envs.vector.remote import RemoteVectorEnv


def remote_envs(
    env: str, count: int = 2, env_config: dict[str, Any] | None = None, **settings: Any
) -> RemoteVectorEnv:
    envs = vector_env_of(env, count, env_config, remote_worker_envs=True, **settings)
    assert isinstance(envs, RemoteVectorEnv)
    return envs


def vector_env_of(
    env: str, count: int = 2, env_config: dict[str, Any] | None = None, **settings: Any
) -> VectorEnv:
    environment = EnvironmentConfig(env=env, env_config=env_config or {})
    return make_vector_env(
        environment, count, VectorConfig(**settings), WorkerContext(seed=5, worker=1)
    )
