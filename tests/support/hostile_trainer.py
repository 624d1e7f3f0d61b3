"""A trainable whose results and errors are called as an attacker would call them."""

from collections.abc import Mapping
from typing import Any

from trainables import get_checkpoint, report

#: What ends a script, loads, links, is bold, and is a template to the library that draws.
EVIL = (
    "</script><img src=x onerror=window.evil=1><a href='javascript:window.evil=1'>x</a><b>bold%{x}"
)


def train(config: Mapping[str, Any]) -> None:
    """Reports under an evil name; one that is asked to fails with it."""
    start = get_checkpoint() or {"i": 0}
    for i in range(start["i"] + 1, 10):
        if config.get("fails") and i == 5:
            raise ValueError(EVIL)
        report({EVIL: config["x"] * i, f"{EVIL}2": float(i)}, checkpoint={"i": i})
