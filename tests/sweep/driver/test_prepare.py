from sweep import spec as specs
from sweep.driver import prepare
from trainables.algorithms.ppo import PPO

SPEC = """
name: small
trials: 4
trainable: ppo
metric: episode_reward_mean
mode: max
config: {env: CartPole-v1, num_workers: 3, num_cpus_per_worker: 2}
space: {lr: {loguniform: [1e-5, 1e-2]}}
stop: {training_iteration: 1}
"""


def test_T7_a_trial_takes_the_cores_of_its_children_too() -> None:
    assert prepare.cores_per_trial(specs.parse(SPEC, "small.yaml"), PPO) == 7.0
