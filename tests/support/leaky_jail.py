"""The jail of hostile checkpoints with a reader that does what the file says."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos import store_reader
from trainables.checkpoint import file


def _wait() -> None:
    began = time.process_time()
    while time.process_time() - began < 1.2:
        pass


def _fault() -> None:
    raise RuntimeError("not a CheckpointError")


def _process() -> None:
    subprocess.run(["true"], check=True)  # noqa: S607


_DEEDS: dict[bytes, Callable[[], object]] = {
    b"import": lambda: __import__("colorsys"),
    b"process": _process,
    b"open": lambda: Path(os.devnull).write_text("x"),
    b"slow": _wait,
    b"signal": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    b"fault": _fault,
}


def _read(path: Path, *_: object) -> file.Loaded:
    _DEEDS[path.read_bytes()]()
    return file.Loaded({}, {})


if __name__ == "__main__":
    vars(file)["read"] = _read
    store_reader.main()
