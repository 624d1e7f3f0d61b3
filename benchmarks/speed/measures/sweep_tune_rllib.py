"""Wall seconds of the 16 settings by Ray Tune and RLlib, 2 trials at a time.

Each trial saves a checkpoint at its end. Unlike with sweep, there is no tracker, and no checkpoint
during training.
"""

import json
import logging
import subprocess
import sys
import tempfile
import time

from benchmarks.speed.measures import clock
from benchmarks.speed.measures.settings16 import FIXED, SETTINGS, STEPS


def train_all(folder: str) -> None:
    """Train every setting in a trial with one CPU."""
    import ray
    from ray import tune
    from ray.rllib.algorithms.ppo import PPO

    from benchmarks.speed.measures.ppo_rllib import configure

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )

    def grid_of(name: str) -> dict[str, list[float]]:
        grid: dict[str, list[float]] = tune.grid_search(sorted({one[name] for one in SETTINGS}))
        return grid

    tuner = tune.Tuner(
        PPO,
        param_space=configure(
            num_epochs=FIXED["epochs"],
            lr=grid_of("lr"),
            minibatch_size=grid_of("minibatch"),
            entropy_coeff=grid_of("entropy"),
        ),
        run_config=tune.RunConfig(
            name="sixteen",
            storage_path=folder,
            stop={"num_env_steps_sampled_lifetime": STEPS},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
            verbose=0,
        ),
    )
    results = tuner.fit()
    steps = [one.metrics["num_env_steps_sampled_lifetime"] for one in results]
    if results.errors or len(steps) != len(SETTINGS) or min(steps) < STEPS:
        raise SystemExit(f"steps of {len(SETTINGS)} trials: {json.dumps(steps)}")
    ray.shutdown()


def main() -> None:
    """Run the program in a process of its own and measure it."""
    if len(sys.argv) > 1:
        train_all(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        subprocess.run(  # noqa: S603 this module
            [sys.executable, "-m", __spec__.name, folder], check=True, stdout=subprocess.DEVNULL
        )
        clock.print_figure(time.perf_counter() - began)


if __name__ == "__main__":
    main()
