"""Perceptrons as functions of arrays: layers by name, whose weights are (inputs, outputs).

A program's arrays may be larger than those of a policy, and have zeros beyond them. With ``tanh``
and ``relu`` units whose weights and biases are zero return 0 and have gradients of exactly 0, so
they stay as they are in every step of the optimiser.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

Weights = dict[str, Array]
"""``<layer>.weight`` and ``<layer>.bias`` of each layer, and further learned arrays."""


#: Widths of layers are rounded up to a multiple of this number of units, at least.
LEAST_UNITS = 8


def program_width(units: int) -> int:
    """Return the number of units that a program has for a layer of `units` units.

    This is the next multiple of 8, or of an eighth of the next power of two if that is more. Thus
    few programs serve many widths, and few units are computed in vain: on a CPU, layers of twice
    the width take 1.5 to 2.3 times as long.
    """
    step = max(LEAST_UNITS, (1 << (units - 1).bit_length()) // 8)
    return -(-units // step) * step


def weight_shapes(layers: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, ...]]:
    """Return ``<layer>.weight`` and ``<layer>.bias`` → shape, for layer → (inputs, outputs)."""
    found: dict[str, tuple[int, ...]] = {}
    for layer, sizes in layers.items():
        found |= {f"{layer}.weight": sizes, f"{layer}.bias": sizes[1:]}
    return found


def pad(array: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of a program's larger `shape` that begins with `array` and is 0 elsewhere.

    An array with fewer axes than `shape` becomes the first row.
    """
    own = np.asarray(array)
    made = np.zeros(shape, own.dtype)
    made[_corner(own.shape, shape)] = own
    return made


def unpad(array: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the part, of the shape `shape`, of a program's larger array; undoes `pad`."""
    whole = np.asarray(array)
    own: NDArray[Any] = whole[_corner(shape, whole.shape)].reshape(shape)
    return own


def _corner(part: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the index, in an array of `shape`, of a part of shape `part` at its beginning.

    If `part` has fewer axes, the index of the first axes is 0.
    """
    first = (0,) * (len(shape) - len(part))
    return (*first, *(slice(size) for size in part))


def run_hidden(weights: Weights, layers: Sequence[str], is_relu: Array, x: Array) -> Array:
    """Run several hidden layers with activations on features (…, D); return the output (…, H).

    `layers` are their names from input to output; `is_relu` () is False for ``tanh``.
    """
    for name in layers:
        x = run_last(weights, name, x)
        x = activate(is_relu, x)
    return x


def run_last(weights: Weights, layer: str, units: Array) -> Array:
    """Run the layer of this name, without activation, on units (…, H); return (…, outputs)."""
    return units @ weights[f"{layer}.weight"] + weights[f"{layer}.bias"]


def _activate(is_relu: Array, x: Array) -> Array:
    """Return ``relu`` of an array if the flag () is True, else ``tanh``."""
    return jnp.where(is_relu, jnp.maximum(x, 0.0), jnp.tanh(x))


def _activation_jvp(
    primals: tuple[Array, Array], tangents: tuple[Any, Array]
) -> tuple[Array, Array]:
    """Return activation and its derivative along a tangent, for JAX: the rule of `activate`.

    The derivative needs only the activations, which saves memory.
    """
    y = activate(*primals)
    return y, jnp.where(primals[0], jnp.where(y > 0, 1.0, 0.0), 1.0 - y * y) * tangents[1]


#: Function `_activate`, which JAX differentiates by `_activation_jvp`.
activate = jax.custom_jvp(_activate)
activate.defjvp(_activation_jvp)
