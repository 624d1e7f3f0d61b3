"""Gradient steps: clipping of the gradient's norm, and Adam (Kingma & Ba 2015) as in torch."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from trainables.stacks.networks import Weights


class Adam(NamedTuple):
    """The optimiser's settings; each ()."""

    beta1: Array
    """Decay of the first moments."""
    beta2: Array
    """Decay of the second moments."""
    eps: Array
    """Number added to the root of the second moments."""
    weight_decay: Array
    """Weight decay."""


class Learnt(NamedTuple):
    """Weights and the optimiser's moments of their gradients."""

    weights: Weights
    """Weights by name."""
    first: Weights
    """First moments of the gradients."""
    second: Weights
    """Second moments of the gradients."""
    updates: Array
    """Number of optimiser steps so far, (), a float."""


def clip(gradient: Weights, bound: Array) -> tuple[Weights, Array]:
    """Return the gradient scaled to a norm of at most `bound` (), and its original norm ()."""
    norm = jnp.sqrt(sum(jnp.vdot(one, one) for one in gradient.values()))
    scale = jnp.minimum(1.0, bound / (norm + 1e-6))
    return {name: one * scale for name, one in gradient.items()}, norm


def descend(settings: Adam, rate: Array, at: Learnt, gradient: Weights) -> Learnt:
    """Return weights and moments after one step of Adam, computed as by `torch.optim.Adam`."""
    updates = at.updates + 1.0
    bias1, bias2 = 1.0 - settings.beta1**updates, 1.0 - settings.beta2**updates
    weights, first, second = {}, {}, {}
    for name, now in gradient.items():
        ahead = now + settings.weight_decay * at.weights[name]
        m = settings.beta1 * at.first[name] + (1.0 - settings.beta1) * ahead
        v = settings.beta2 * at.second[name] + (1.0 - settings.beta2) * ahead**2
        first[name], second[name] = m, v
        root = jnp.sqrt(v) / jnp.sqrt(bias2) + settings.eps
        weights[name] = at.weights[name] - (rate / bias1) * (m / root)
    return Learnt(weights, first, second, updates)
