"""Environments that take a wrapper before a policy can live in them: each a function to name.

``env: benchmarks.wrapped:minigrid`` from this repository, or ``my_package.my_module:function``.
"""

from typing import Any

import gymnasium


def minigrid(env_id: str = "MiniGrid-Empty-5x5-v0", **config: Any) -> gymnasium.Env[Any, Any]:
    """A MiniGrid whose mission, a text, stands as numbers behind those of the picture."""
    from minigrid.wrappers import FlatObsWrapper

    made: gymnasium.Env[Any, Any] = FlatObsWrapper(gymnasium.make(env_id, **config))
    return made
