"""What the sweep in space.yaml trains: replace the toy problem by your own."""

from typing import Any

from trainables import get_checkpoint, report


def train(config: dict[str, Any]) -> None:
    """Report a score after every step, and what is needed to continue from there."""
    start = get_checkpoint() or {"x": 5.0, "speed": 0.0, "step": 0}
    x, speed = start["x"], start["speed"]
    for step in range(start["step"] + 1, config["steps"] + 1):
        gradient = 2.0 * (x - 3.0)  # of (x - 3)²
        speed = config["momentum"] * speed - config["lr"] * gradient
        x = x + speed
        state = {"x": x, "speed": speed, "step": step}
        report({"score": -((x - 3.0) ** 2)}, checkpoint=state)
