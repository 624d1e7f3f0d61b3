"""Environments: made, checked, stepped side by side, saved and restored.

make       makes the environment that the settings name
registry   environments by name
pool       EnvPool's environments
together   a person's own environments that are stepped together
agents     environments of several agents, as one
external   environments that call the trainer
compiled   environments as functions of arrays, in JAX
contract   what reset and step may return
faults     faults in words; closing an environment
spaces     observations and actions as flat rows
vector     many environments stepped side by side
state      the state of an environment, captured and put back
exactness  how exactly an environment comes back
atari      DeepMind's wrappers
rendering  pictures
check      what an environment is and costs
"""
