"""Trainers of several policies.

trainer  the trainer of several policies
member   the trainer of one policy among them
agents   the policies of several agents, their mapping and their settings
"""
