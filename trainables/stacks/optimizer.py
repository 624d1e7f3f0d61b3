"""Gradient steps: a bound on the gradient's norm, and Adam (Kingma & Ba 2015) as torch has it."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from trainables.stacks.networks import Weights


class Adam(NamedTuple):
    """The optimiser's settings; each ()."""

    beta1: Array
    beta2: Array
    eps: Array
    weight_decay: Array


class Learnt(NamedTuple):
    """Weights and what the optimiser remembers of their gradients."""

    weights: Weights
    first: Weights
    """First moments of the gradients."""
    second: Weights
    """Second moments."""
    updates: Array
    """() steps of the optimiser so far, as a number."""


def clip(gradient: Weights, bound: Array) -> tuple[Weights, Array]:
    """Return a gradient whose norm is at most `bound` (), and the norm () that it had."""
    norm = jnp.sqrt(sum(jnp.vdot(one, one) for one in gradient.values()))
    scale = jnp.minimum(1.0, bound / (norm + 1e-6))
    return {name: one * scale for name, one in gradient.items()}, norm


def descend(settings: Adam, rate: Array, at: Learnt, gradient: Weights) -> Learnt:
    """Return what one step of Adam makes of weights and moments, as `torch.optim.Adam` does."""
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
