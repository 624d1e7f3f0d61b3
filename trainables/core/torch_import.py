"""Changes to torch that wait until torch is imported.

The import of torch takes seconds, and not every process needs it.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

#: Function that is called with the imported module.
Act = Callable[[Any], object]
#: Name → function to call with the torch module once it is imported.
_waiting: dict[str, Act] = {}


def when_torch_imported(name: str, act: Act) -> None:
    """Call ``act(torch)`` now if torch is imported, else right after its first import.

    A waiting call that was registered under the same `name` is replaced.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        act(torch)
        return
    _waiting[name] = act
    if not any(isinstance(finder, _TorchImportHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchImportHook())


class _TorchImportHook(importlib.abc.MetaPathFinder):
    """An import hook that calls the functions of `when_torch_imported` once torch is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return torch's spec with a loader that also calls the waiting functions.

        Returns None for every other module.
        """
        if fullname != "torch":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            execute = loader.exec_module

            def execute_then_act(module: ModuleType) -> None:
                """Execute torch's module, then call each waiting function once with it."""
                execute(module)
                if self in sys.meta_path:  # looking for torch, as libraries do, imports nothing
                    sys.meta_path.remove(self)
                for act in _waiting.values():
                    act(module)
                _waiting.clear()

            loader.exec_module = execute_then_act  # type: ignore[method-assign]
        return spec
