"""Loky's resource tracker process, without the rest of joblib.

It needs three small modules; joblib's packages above them import numpy and more, a quarter of a
second of CPU time while a sweep starts. So those packages are replaced by empty ones while the
three are imported.
"""

import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

#: Packages above the three modules.
_PACKAGES = ("joblib", "joblib.externals", "joblib.externals.loky", "joblib.externals.loky.backend")


@contextlib.contextmanager
def _empty_packages() -> Iterator[None]:
    """Put empty modules in the place of joblib's packages inside the block.

    So loky's tracker can be imported without importing joblib. Does nothing if joblib is imported.
    """
    found = None if _PACKAGES[0] in sys.modules else find_spec(_PACKAGES[0])
    if found is None or not found.submodule_search_locations:
        yield
        return
    top = Path(found.submodule_search_locations[0]).parent
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(top.joinpath(*name.split(".")))]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in _PACKAGES:
            del sys.modules[name]


with _empty_packages():
    from joblib.externals.loky.backend.resource_tracker import main  # noqa: F401 it is called here
