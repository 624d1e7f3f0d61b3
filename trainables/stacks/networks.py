"""Perceptrons as functions of arrays: layers by name, whose weights are (inputs, outputs)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

Weights = dict[str, Array]
"""``<layer>.weight`` and ``<layer>.bias`` of each layer, and further learned arrays."""


def run_hidden(weights: Weights, layers: Sequence[str], activation: str, x: Array) -> Array:
    """Return the output (…, H) of several hidden layers for features (…, D).

    Args:
        weights: weights of these layers, and maybe of others.
        layers: names of the layers, from input to output.
        activation: ``tanh`` or ``relu``.
        x: the features.
    """
    for name in layers:
        x = run_last(weights, name, x)
        x = jnp.tanh(x) if activation == "tanh" else jax.nn.relu(x)
    return x


def run_last(weights: Weights, layer: str, units: Array) -> Array:
    """Return the outputs (…, A) of a layer without activation for units (…, H)."""
    return units @ weights[f"{layer}.weight"] + weights[f"{layer}.bias"]
