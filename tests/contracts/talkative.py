"""A trainable that writes to its output, by itself and through a child process."""

import os
import sys
from typing import Any

from trainables import Trainable


class Talkative(Trainable):
    def step(self) -> dict[str, Any]:
        sys.stdout.write("said by python\n")
        sys.stdout.flush()
        os.system("echo said by a child")  # noqa: S605, S607 a shell is the child
        return {"loss": 0.0}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None
