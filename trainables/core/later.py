"""Changes to torch that wait for its import: it takes seconds, and not every process needs it."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Act = Callable[[Any], object]
_waiting: dict[str, Act] = {}


def with_torch(name: str, act: Act) -> None:
    """Do something with torch: now if it is imported, else right after its first import.

    Of what waits under one `name`, the latest alone is done.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        act(torch)
        return
    _waiting[name] = act
    if not any(isinstance(finder, _ActOnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ActOnImport())


class _ActOnImport(importlib.abc.MetaPathFinder):
    """Does what waits right after torch's first import."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            execute = loader.exec_module

            def execute_then_act(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:  # looking for torch, as libraries do, imports nothing
                    sys.meta_path.remove(self)
                for act in _waiting.values():
                    act(module)
                _waiting.clear()

            loader.exec_module = execute_then_act  # type: ignore[method-assign]
        return spec
