"""Policies: networks, distributions and filters; learning in torch, acting in numpy.

policy        base class of every policy that learns
architecture  the keys `model` and `optimizer`
learning      policies that learn in torch, and the update rules of optimisers
acting        actors: forward pass and sampling in numpy; policies that act and do not learn
exploration   noise on actions or weights
filters       running normalisation of observations and rewards
q             policies with one value per choice
bounded       policies whose actions lie between bounds, with twin critics
own           parts written by users: a torch module, a distribution
onnx          the policy as one file, in several formats
"""
