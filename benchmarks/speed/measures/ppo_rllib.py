"""Environment steps per CPU second of RLlib, in one process, with the settings of `ppo_ours`."""

import sys
from typing import Any

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from benchmarks.speed.measures import clock


def configure(**training: Any) -> PPOConfig:
    """Return RLlib's settings: 8 environments x 32 steps, one process, 64-64 tanh networks."""
    network = DefaultModelConfig(
        fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False
    )
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8, rollout_fragment_length=32)
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=256,
            clip_param=0.2,
            vf_clip_param=float("inf"),
            vf_loss_coeff=0.5,
            grad_clip=0.5,
            use_kl_loss=False,
            lambda_=0.8,
            gamma=0.98,
            **training,
        )
        .rl_module(model_config=network)
        .debugging(seed=1, log_level="ERROR")
    )


def main() -> None:
    """Measure 6 s of CPU time."""
    config = configure(num_epochs=20, minibatch_size=256, lr=1e-3, entropy_coeff=0.0)
    algorithm = config.build_algo()
    sampled = 0

    def iterate() -> int:
        nonlocal sampled
        before = sampled
        result = algorithm.train()
        sampled = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        return sampled - before

    clock.print_figure(clock.steps_per_cpu_second(iterate, 6.0, warm_up=5))
    algorithm.stop()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
