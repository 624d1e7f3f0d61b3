"""Sampling from environments that call the trainer (`trainables.envs.external`).

workers  workers that collect from such an environment
sampler  answers the environment, and writes fragments
envs     the environment with the interface of a vector environment
"""
