"""Lets a Python with this folder in its path find few packages: those of a machine with a GPU.

torch, numpy, gymnasium, pydantic and pytest, each with the packages that it needs itself.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

TORCH = {"torch", "torchgen", "functorch", "sympy", "mpmath", "networkx", "jinja2", "markupsafe"}
TORCH |= {"filelock", "typing_extensions", "fsspec", "setuptools", "triton"}
NUMPY = {"numpy", "gymnasium", "farama_notifications", "cloudpickle"}
PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}
PYTEST = {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"}
FOUND = TORCH | NUMPY | PYDANTIC | PYTEST


class Few:
    """Finds no other installed package."""

    find_distributions = PathFinder.find_distributions
    invalidate_caches = PathFinder.invalidate_caches

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or name.partition(".")[0] in FOUND:
            return spec
        where = [spec.origin or "", *(spec.submodule_search_locations or ())]
        return None if any("site-packages" in one for one in where) else spec


sys.meta_path[sys.meta_path.index(PathFinder)] = Few
