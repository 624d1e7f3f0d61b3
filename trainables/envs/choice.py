"""Which lanes the settings ask for; decided by them alone, never by measuring speed."""

from trainables.envs.inprocess import InProcessLanes
from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig
from trainables.envs.native import make_native
from trainables.envs.remote import RemoteLanes
from trainables.envs.vector import Lanes, Place


def make_lanes(
    environment: EnvironmentConfig,
    num_envs: int,
    config: LanesConfig | None = None,
    place: Place | None = None,
) -> Lanes:
    """N lanes of the environment.

    Args:
        environment: what to make.
        num_envs: N.
        config: how to step it; by default without horizon, restarts and processes.
        place: of the worker.

    Raises:
        ConfigError: the environment cannot be made, or has no native vector form.
    """
    config = config or LanesConfig()
    place = place or Place()
    if environment.native_vector_env:
        return make_native(environment, num_envs, config, place)
    if config.remote_worker_envs:
        return RemoteLanes(environment, num_envs, config, place)
    return InProcessLanes(environment, num_envs, config, place)
