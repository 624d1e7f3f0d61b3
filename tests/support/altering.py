"""Trainables that change what holds for their whole process, and report what they found there."""

import logging
import multiprocessing
import os
import socket
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainables import Trainable, report
from trainables.function import get_checkpoint

found_in_this_module: list[int] = []


def look() -> dict[str, Any]:
    """Return what a plain program would find, as JSON."""
    import torch

    return {
        "folder": str(Path.cwd()),
        "variable": os.environ.get("LEFT"),
        "path": "left" in sys.path,
        "words": "left" in sys.argv,
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "grad": torch.is_grad_enabled(),
        "errors": np.geterr()["divide"],
        "filters": warnings.filters[0][0],
        "level": logging.getLogger().level,
        "handlers": len(logging.getLogger().handlers),
        "start": multiprocessing.get_start_method(allow_none=True),
        "timeout": socket.getdefaulttimeout(),
    }


def alter() -> None:
    """Change all of that."""
    import torch

    os.chdir("/")
    os.environ["LEFT"] = "1"
    sys.path.insert(0, "left")
    sys.argv.append("left")
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("medium")
    torch.set_grad_enabled(False)
    np.seterr(divide="raise")
    warnings.simplefilter("error")
    logging.getLogger().setLevel(7)
    logging.getLogger().addHandler(logging.NullHandler())
    multiprocessing.set_start_method("spawn", force=True)  # one may be set already
    socket.setdefaulttimeout(1.0)


class Altering(Trainable):
    """Reports whether it found its process as the first trial did, then changes it."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0
        self.seen = look()
        alter()

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {
            "value": float(self.count),
            **self.seen,
            "still": str(Path.cwd()),
            "pid": os.getpid(),
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


def function(config: Mapping[str, Any]) -> None:
    """The same as a function, and what its module holds."""
    seen = {**look(), "module": len(found_in_this_module)}
    alter()
    found_in_this_module.append(1)
    for i in range((get_checkpoint() or {"i": 0})["i"] + 1, 4):
        report({"value": i, **seen, "pid": os.getpid()}, checkpoint={"i": i})
