"""Spaces of every kind as flat rows, and back.

observations  observations as rows
images        which observations are images, their layout and their scale
actions       rows as actions
connectors    the list of steps between an environment and a policy
masks         which actions are valid
leaves        nested spaces as named leaves
"""
