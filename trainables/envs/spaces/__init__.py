"""Spaces of every kind as flat rows, and back.

observations  observations as rows
actions       rows as actions
masks         which actions are valid
leaves        nested spaces as named leaves
"""
