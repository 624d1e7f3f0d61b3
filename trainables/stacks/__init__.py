"""Many trials as lanes of one compiled program.

A *stack* has places for lanes of one shape. A *lane* is a trainer in such a place; all lanes
compute their next iteration together. Only this package and `trainables.envs.compiled` import JAX,
an optional dependency.

episodes      the running episodes of a lane
networks      perceptrons as functions of arrays
optimizer     a bound on gradients, and Adam
filtering     running mean and deviation of observations
n_step        transitions over several steps
replay        the latest transitions of a lane
ppo_program   a whole iteration of PPO: acting, advantages, gradient steps
dqn_program   a whole iteration of DQN: acting, replay, gradient steps
lanes         many lanes of one shape in one program, for any algorithm
evaluation    whole episodes of many lanes in one program, for any algorithm
stack         places of one shape on one device, and their lanes
trainer       the common part of trainers that are lanes: moves state into and out of a stack
ppo           PPO as a lane
dqn           DQN as a lane
"""

import trainables.envs.compiled  # noqa: F401 it sets flags that programs need, before jax is imported
