"""Kinds of environments that need code of their own.

agents     environments of several agents, as one
atari      DeepMind's wrappers
pool       EnvPool's environments
together   a person's own environments that are stepped together
"""
