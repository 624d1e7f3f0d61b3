"""Environment steps per CPU second of rejax with the settings of `ppo_ours`.

rejax compiles PPO and its environments to one program of JAX. The compilation (8 to 11 s) is not
measured, and rejax's evaluations of the policy during training are switched off.
"""

import os
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
from rejax import PPO

from benchmarks.speed.measures import clock

STEPS = 800 * 256


def main() -> None:
    """Measure one call of the compiled program."""
    algorithm = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
        num_envs=8,
        num_steps=32,
        num_epochs=20,
        num_minibatches=1,
        learning_rate=1e-3,
        gamma=0.98,
        gae_lambda=0.8,
        clip_eps=0.2,
        ent_coef=0.0,
        total_timesteps=STEPS,
        eval_freq=STEPS,
        skip_initial_evaluation=True,
    )
    algorithm = algorithm.replace(eval_callback=lambda *_: 0.0)
    key = jax.random.PRNGKey(1)
    train = jax.jit(algorithm.train).lower(key).compile()
    began = time.process_time()
    state, _ = jax.block_until_ready(train(key))
    clock.print_figure(int(state.global_step) / (time.process_time() - began))


if __name__ == "__main__":
    main()
