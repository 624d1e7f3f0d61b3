"""Environments: made, checked, stepped side by side, saved and restored.

make       makes the environment that the settings name
registry   environments by name
kinds      Atari, EnvPool, several agents, environments that a person steps together
external   environments that call the trainer
compiled   environments as functions of arrays, in JAX
calls      results that calls may return, and errors of calls as texts
spaces     observations and actions as flat rows
vector     many environments stepped side by side
state      the state of an environment, captured and put back
exactness  how exactly an environment comes back
check      what an environment is and costs
"""
