"""Loky's process that tidies up after killed ones, without the rest of joblib.

All that it needs is three small modules; joblib's packages above them import numpy and more, a
quarter of a second of CPU time while a sweep starts. So those packages stand empty here. Only that
process may import this: everybody else would find no joblib.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_PACKAGES = ("joblib", "joblib.externals", "joblib.externals.loky", "joblib.externals.loky.backend")


def _without_their_code() -> None:
    """Let these packages be folders in which modules are found."""
    found = find_spec(_PACKAGES[0])
    if found is None or not found.submodule_search_locations:
        return  # the import below says what is missing
    top = Path(found.submodule_search_locations[0]).parent
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(top.joinpath(*name.split(".")))]
        sys.modules[name] = package


_without_their_code()

from joblib.externals.loky.backend.resource_tracker import main  # noqa: E402, F401 it is called here
