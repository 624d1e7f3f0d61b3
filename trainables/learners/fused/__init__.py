"""Gradients of perceptrons in closed form, in numpy: a step costs its arithmetic, not its calls.

A step of a small network in torch is mostly dispatch: hundreds of calls for a few products. Here
all that belongs together lies in one array, is computed in place and needs no graph. Arrays have
units as rows and the B rows of a minibatch as columns, (units, B), so that what is summed over
units is a few long vector operations.

ppo          the loss of PPO, its gradient, and the epochs over a batch
dqn          the loss of Q-learning, and its gradient
distributions  log-probabilities and entropies of actions, and their gradients
perceptrons  actor and critic, forwards and backwards
stacks       an actor, or critics side by side, of an off-policy algorithm
twins        the losses of SAC and TD3, and their gradients
squashed     Gaussians squashed by tanh, and their gradients
compiled     the steps of PPO and A2C in C (kernel.c), where it is built
flat         weights, gradient and Adam's moments as vectors, and steps on them
policy       a policy that lies in such vectors and needs no torch
initial      the initial weights of such a policy
shared       a policy of torch on such vectors
"""
