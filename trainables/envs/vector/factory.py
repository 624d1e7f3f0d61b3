"""The kind of vector environment that the settings request; does not depend on measured speed."""

from trainables.envs.make import EnvironmentConfig
from trainables.envs.vector.base import VectorEnv, WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.native import make_native
from trainables.envs.vector.remote import RemoteVectorEnv
from trainables.envs.vector.separate import InProcessVectorEnv


def make_vector_env(
    environment: EnvironmentConfig,
    num_envs: int,
    config: VectorConfig | None = None,
    place: WorkerContext | None = None,
) -> VectorEnv:
    """Make N environments that are stepped together, each in a new process if the settings say so.

    ``native_vector_env: auto`` makes separate ones.

    Args:
        num_envs: N.
        config: settings of their steps; by default no horizon, restarts or processes.
        place: the worker's place in its trial; by default that of a trainer without children.

    Raises:
        ConfigError: the environment cannot be made, or has no native vector form.
        Fault: the environment cannot be made in its process.
        EnvError: environments differ in their spaces.
    """
    config = config or VectorConfig()
    place = place or WorkerContext()
    if environment.is_native:
        return make_native(environment, num_envs, config, place)
    if config.remote_worker_envs:
        return RemoteVectorEnv(environment, num_envs, config, place)
    return InProcessVectorEnv(environment, num_envs, config, place)
