"""Many trials as lanes of one compiled program.

A *stack* has places of one shape. A trainer that is put into one becomes a lane, and all lanes make
their next iteration together. JAX, an optional package, is imported by this room alone.

environments  those that can be stepped inside a program, as functions of arrays
episodes      the running episodes of a lane
networks      perceptrons as functions of arrays
optimizer     a bound on gradients, and Adam
filtering     running mean and deviation of observations
n_step        transitions over several steps
replay        the latest transitions of a lane
ppo_program   a whole iteration of PPO: acting, advantages, gradient steps
dqn_program   a whole iteration of DQN: acting, replay, gradient steps
lanes         many lanes of one shape in one program, whatever they learn by
stack         places of one shape on one device, and their lanes
trainer       a trainer that is a lane: what it learns in a stack, and holds outside of it
ppo           of these, PPO
dqn           of these, DQN
"""

import os

# With jax 0.10.2 a `while_loop` in a `scan` over lanes stood still for ever on a CPU, in two games
# of eleven, unless this was said before its first import; it costs nothing.
_FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()
