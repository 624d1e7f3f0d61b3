"""Trainers of several policies.

trainer  the trainer of several policies, and its members, one for each policy
agents   the policies of several agents, their mapping and their settings
"""
