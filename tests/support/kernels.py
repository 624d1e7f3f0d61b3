"""The compiled kernel of PPO's steps, built for a test run; skips where it cannot be."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from trainables.learners.fused import compiled


@cache
def _built(wide: bool) -> Path | str:
    """The file, or why there is none; `wide` for float64."""
    folder = tempfile.mkdtemp(prefix="sweep-kernel-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if shutil.which("cc") is None:
        return "no C compiler is installed"
    return compiled.build(Path(folder, "kernel.so"), *(["-DWIDE"] if wide else []))


def kernel(bits: int | None = None, wide: bool = False) -> compiled.Kernel:
    """A kernel that uses registers of so many bits; None: the widest."""
    path = _built(wide)
    if isinstance(path, str):
        pytest.skip(path)
    try:
        return compiled.Kernel(path, bits)
    except OSError as error:
        pytest.skip(str(error))
