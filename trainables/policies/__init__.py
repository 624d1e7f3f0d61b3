"""Policies: networks, distributions and filters; learning in torch, acting in numpy.

torch_policy   learns: networks, optimiser and their state
networks       actor and critic in torch
layers         layers with orthogonal weights, and the shared trunk
architecture   the key `model`
actor          acts in numpy
recurrent      acts with an LSTM in numpy
distributions  how actions are drawn
exploration    how an actor tries other actions than the best
bounded        an actor of numbers between bounds, and how it explores
twins          actor, twin critics and targets of off-policy algorithms
inference      a policy that plays and does not learn
filters        running normalisation of observations and rewards
onnx           the policy as one file
"""
