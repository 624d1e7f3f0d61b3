"""Losses compiled by torch: the setting `learner_compile`, its requirement, and the compilation."""

import os
import shutil
from collections.abc import Callable
from typing import Any, TypeVar, cast

from trainables.errors import ConfigError

Loss = TypeVar("Loss", bound=Callable[..., Any])
#: Description of the setting `learner_compile`.
DESCRIPTION = (
    "Compile the loss and its gradient to C++ (torch.compile) at the first batch; the results are "
    "the same up to rounding. Compiling takes 10 to 60 s in every process that learns, which pays "
    "for large networks and long trainings. Needs a C++ compiler."
)


def check_compiler() -> None:
    """Raise ConfigError if no C++ compiler is installed."""
    compilers = [name for name in (os.environ.get("CXX"), "g++", "clang++") if name]
    if not any(shutil.which(name) for name in compilers):
        problem = "true cannot be used here, because there is no C++ compiler"
        hint = "install one, such as g++, or name yours in the environment variable CXX"
        raise ConfigError("learner_compile", True, hint=hint, problem=problem)


def compile_loss(loss: Loss) -> Loss:
    """Return a loss function as one that torch compiles at its first call (`torch.compile`).

    Batches may have any number of rows. Imports torch, and sets it to compile in this process,
    without child processes.
    """
    import torch
    from torch._inductor import config

    config.compile_threads = 1  # compile in this process: a trial's only children are its workers
    return cast(Loss, torch.compile(loss, dynamic=True))
