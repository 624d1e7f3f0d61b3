"""Gradient steps: clipping of the gradient's norm, and Adam (Kingma & Ba 2015) as in torch."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from trainables.stacks.networks import Weights


class Adam(NamedTuple):
    """The optimiser's settings; each ()."""

    beta1: Array
    """Decay of the first moments, ()."""
    beta2: Array
    """Decay of the second moments, ()."""
    eps: Array
    """Number added to the root of the second moments, ()."""
    weight_decay: Array
    """Fraction of each weight that is added to its gradient, ()."""


class OptimizerState(NamedTuple):
    """Learned weights of one trial, and Adam's moments of their gradients."""

    weights: Weights
    """Weights by name."""
    first: Weights
    """First moments of the gradients."""
    second: Weights
    """Second moments of the gradients."""
    updates: Array
    """Number of optimiser steps so far, (), a float."""


def clip(gradient: Weights, bound: Array) -> tuple[Weights, Array]:
    """Return the gradient scaled to a norm of at most `bound` (), and its original norm ().

    The norm is that of all arrays as one vector.
    """
    norm = jnp.sqrt(sum(jnp.vdot(one, one) for one in gradient.values()))
    scale = jnp.minimum(1.0, bound / (norm + 1e-6))
    return {name: one * scale for name, one in gradient.items()}, norm


def descend(
    settings: Adam, rate: Array, state: OptimizerState, gradient: Weights
) -> OptimizerState:
    """Return weights and moments after one step of Adam, computed as by `torch.optim.Adam`.

    `rate` () is the learning rate.
    """
    updates = state.updates + 1.0
    bias1, bias2 = 1.0 - settings.beta1**updates, 1.0 - settings.beta2**updates
    weights, first, second = {}, {}, {}
    for name, now in gradient.items():
        ahead = now + settings.weight_decay * state.weights[name]
        m = settings.beta1 * state.first[name] + (1.0 - settings.beta1) * ahead
        v = settings.beta2 * state.second[name] + (1.0 - settings.beta2) * ahead**2
        first[name], second[name] = m, v
        root = jnp.sqrt(v) / jnp.sqrt(bias2) + settings.eps
        weights[name] = state.weights[name] - (rate / bias1) * (m / root)
    return OptimizerState(weights, first, second, updates)
