"""Environments that need a wrapper before a policy can act in them: one function for each.

A spec names such a function by its path: ``env: benchmarks.wrapped:minigrid`` in this repository,
or ``env: my_package.my_module:function`` elsewhere.
"""

from typing import Any

import gymnasium


def minigrid(env_id: str = "MiniGrid-Empty-5x5-v0", **config: Any) -> gymnasium.Env[Any, Any]:
    """Return a MiniGrid that appends its mission, a text, as numbers to those of the picture."""
    from minigrid.wrappers import FlatObsWrapper

    made: gymnasium.Env[Any, Any] = FlatObsWrapper(gymnasium.make(env_id, **config))
    return made
