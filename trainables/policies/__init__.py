"""Policies: networks, distributions and filters; learning in torch, acting in numpy.

policy         base class of every policy that learns
torch_policy   policies that learn in torch: networks, optimiser and their state
networks       actor and critic in torch
layers         layers with orthogonal weights, and the trunk that actor and critic share
architecture   the keys `model` and `optimizer`
optimizers     the update rules of optimisers, by name
acting         actors: forward pass and sampling in numpy
distributions  sampling of actions from the outputs of a network
exploration    noise on actions or weights
inference      policies that act and do not learn
filters        running normalisation of observations and rewards
q              policies with one value per choice
bounded        policies whose actions lie between bounds, with twin critics
own            parts written by users: a torch module, a distribution
onnx           the policy as one file, in several formats
"""
