"""A trainable that notes the functions through which it is called, and how often it is made."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from tests.support.quadratic import Quadratic

PACKAGES = ("sweep.", "trainables.")


def chain() -> list[str]:
    """The functions of both packages that have led to the caller's caller, the first one first."""
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(PACKAGES):
            found.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return found[::-1]


class Traced(Quadratic):
    """Leaves ``chain.json`` in its trial's folder; `calls` counts what this process does."""

    calls: ClassVar[list[str]] = []

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Note that somebody has asked."""
        cls.calls.append("check")

    def setup(self, config: dict[str, Any]) -> None:
        """Note that one was made."""
        self.calls.append("setup")
        super().setup(config)

    def step(self) -> dict[str, Any]:
        """Note how it was called."""
        (Path(self.logdir) / "chain.json").write_text(json.dumps([*chain(), "Trainable.step"]))
        return super().step()
