"""Trainables without save_checkpoint, in a module of its own, as a user's would be."""

from pathlib import Path
from typing import Any

from trainables import Trainable


class Unsaveable(Trainable):
    def step(self) -> dict[str, Any]:
        return {"loss": 1.0, "done": self.iteration + 1 >= self.config["n"]}


class Sloped(Trainable):
    """Its loss falls by its slope; it notes each step in a file."""

    def step(self) -> dict[str, Any]:
        with Path(self.config["log"]).open("a") as log:
            log.write(f"{self.config['slope']} {self.iteration + 1}\n")
        return {"loss": 10.0 - self.config["slope"] * (self.iteration + 1)}


class SlopedSaving(Sloped):
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        pass
