"""Trivial trials per second of Ray Tune with reused actors, without a tracker."""

import tempfile
import time

import ray
from ray import tune

from benchmarks.speed.measures import clock

TRIALS = 300


class Trivial(tune.Trainable):  # type: ignore[misc] # Ray is not installed here
    """Trainable with one iteration that only reports."""

    def setup(self, config: dict[str, float]) -> None:
        """Store the setting."""
        self.x = config["x"]

    def step(self) -> dict[str, float | bool]:
        """Return the setting as the score."""
        return {"score": self.x, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, float]:
        """Return the state: the setting."""
        return {"x": self.x}

    def load_checkpoint(self, checkpoint: dict[str, float]) -> None:
        """Restore the state."""
        self.x = checkpoint["x"]

    def reset_config(self, new_config: dict[str, float]) -> bool:
        """Store the setting of the next trial; the actor is reused."""
        self.x = new_config["x"]
        return True


def main() -> None:
    """Run the sweep once; the time includes the start of Ray, but not its import."""
    began = time.perf_counter()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as place:
        tune.run(
            Trivial,
            config={"x": tune.uniform(0.0, 1.0)},
            num_samples=TRIALS,
            reuse_actors=True,
            storage_path=place,
            verbose=0,
        )
    clock.print_figure(TRIALS / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
