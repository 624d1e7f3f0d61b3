"""The same by Ray Tune with reused actors, without a tracker: trivial trials per second."""

import tempfile
import time

import ray
from ray import tune

from benchmarks.speed.measures import clock

TRIALS = 300


class Trivial(tune.Trainable):  # type: ignore[misc] # Ray is not installed here
    """One iteration that does nothing."""

    def setup(self, config: dict[str, float]) -> None:
        """Keep the setting."""
        self.x = config["x"]

    def step(self) -> dict[str, float | bool]:
        """Report it."""
        return {"score": self.x, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, float]:
        """The setting is all that there is."""
        return {"x": self.x}

    def load_checkpoint(self, checkpoint: dict[str, float]) -> None:
        """Take it back."""
        self.x = checkpoint["x"]

    def reset_config(self, new_config: dict[str, float]) -> bool:
        """The actor goes on with other settings."""
        self.x = new_config["x"]
        return True


def main() -> None:
    """Run them once, `import ray` left out and its start included, as the command's is with us."""
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
    clock.tell(TRIALS / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
