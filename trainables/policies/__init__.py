"""Policies: networks, distributions and filters; learning in torch, acting in numpy.

policy         what every policy that learns has
torch_policy   learns in torch: networks, optimiser and their state
networks       actor and critic in torch
layers         layers with orthogonal weights, and the shared trunk
architecture   the keys `model` and `optimizer`
optimizers     the steps of optimisers by name
acting         acts in numpy
distributions  how actions are drawn
exploration    how an actor tries other actions than the best
inference      a policy that plays and does not learn
filters        running normalisation of observations and rewards
q              policies that hold a value for each choice
bounded        policies whose actions lie between bounds, with twin critics
own            parts that a person brings: a torch module, a distribution
onnx           the policy as one file, in several formats
"""
