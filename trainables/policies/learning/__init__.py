"""Policies that learn in torch, and the update rules of optimisers.

torch_policy  policies that learn in torch: networks, optimiser and their state
networks      actor and critic in torch
layers        layers with orthogonal weights, and the trunk that actor and critic share
optimizers    the update rules of optimisers, by name
sending       several arrays sent to a device in one transfer
"""
