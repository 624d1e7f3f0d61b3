"""Gradients of perceptrons in closed form, in numpy: a step costs its arithmetic, not its calls.

A step of a small network in torch spends its time in hundreds of calls for a few matrix products.
Here related parameters lie in one array, results are computed in place, and there is no graph.
Arrays have units as rows and the B rows of a minibatch as columns, (units, B), so that sums over
units are a few long vector operations.

ppo            the losses of PPO and A2C, their gradients, and minibatches
dqn            the loss of Q-learning, and its gradient
distributions  log-probabilities and entropies of actions, and their gradients
perceptrons    actor and critic: forward and backward pass
stacks         an actor, or stacked critics, of an off-policy algorithm
twins          the losses of SAC and TD3, and their gradients
squashed       Gaussians squashed by tanh, and their gradients
compiled       the steps of PPO and A2C in C (kernel.c), if it is built
flat           weights, gradient and moments as vectors, and optimiser steps on them
policy         a policy whose weights are such vectors, without torch
initial        the initial weights of such a policy
shared         a torch policy whose parameters are views of such vectors
"""
