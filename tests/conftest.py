"""What every test may rely on: a terminal's signals arrive, and a key of the tests' own.

A background job of a shell and nohup ignore SIGINT and SIGHUP, and children inherit that.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def nothing_detached() -> Iterator[None]:
    """No command leaves a process behind, unless a test says so, and waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEP_ATTACH", "later")
        yield


@pytest.fixture(autouse=True, scope="session")
def own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the key that signs checkpoints; nobody's real one is touched."""
    folder = tmp_path_factory.mktemp("configuration")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CONFIG_HOME", str(folder))
        yield folder
