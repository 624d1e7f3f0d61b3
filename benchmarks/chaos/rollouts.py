"""The trainer of sweeps whose rollout workers are killed; apart, as its imports take longest."""

from typing import Any

from benchmarks.chaos.workload import log_step
from trainables.algorithms import ppo


class Rollouts(ppo.PPO):
    """PPO with rollout workers that logs its steps."""

    def step(self) -> dict[str, Any]:
        """Log the step, then make it."""
        log_step(self.context, self.iteration + 1)
        return super().step()
