"""A trainable without save_checkpoint, in a module of its own, as a user's would be."""

from typing import Any

from trainables import Trainable


class Unsaveable(Trainable):
    def step(self) -> dict[str, Any]:
        return {"loss": 1.0, "done": self.iteration + 1 >= self.config["n"]}
