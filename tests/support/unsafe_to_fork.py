"""A function whose module makes its process one that is not to be forked, as the settings say.

A thread is lost in a forked process, with whatever lock it holds; a GPU that was opened is of no
use there.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.slices import isolated
from tests.support import dying

if file := os.environ.get(dying.DEVICE):
    isolated._DEVICES = (file,)  # type: ignore[misc,assignment]
    device = Path(file).open()  # noqa: SIM115 it stays open
else:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def dies(config: Mapping[str, Any]) -> None:
    """Train as `dying.dies` does."""
    dying.dies(config)
