"""Environments as functions of arrays, for compiled programs and for single steps.

    env: jax:CartPole-v1              # one of `classic.KNOWN`
    env: jax:my_module:Corridor       # a class of your own, see `user_class`
    env: gymnax:Breakout-MinAtar      # one of the package gymnax
    env: brax:ant                     # one of the package brax
    env: playground:CheetahRun        # one of the package playground, MuJoCo Playground

This package and `trainables.stacks` import JAX, an optional dependency; this module does not.

contract       the form in which programs step an environment
classic        gymnasium's classic control in this form
user_class     a user's class in this form
gymnax_env     an environment of gymnax as such a class
physics_env    one of brax or MuJoCo Playground as such a class
packages       the import of such packages, and errors about names and settings
registry       the environment that a value of ``env`` names
gymnasium_env  one of them as a gymnasium environment, for play, exports and all other pools
"""

import os

#: Beginnings of names of environments that are functions of arrays.
PREFIXES = ("jax:", "gymnax:", "brax:", "playground:")

#: Flag of XLA.
#:
#: With jax 0.10.2 a `while_loop` in a `scan` over lanes hung on a CPU, in two games of eleven,
#: unless this flag was set before the first import of jax. It costs no time.
_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()


def is_compiled(name: str) -> bool:
    """Return whether a value of ``env`` names an environment of this package by its prefix."""
    return name.startswith(PREFIXES)
