"""Runs a policy that was exported as safetensors, with numpy alone; an export has a copy of it.

    from policy import load
    policy = load("policy.safetensors")
    outputs = policy({"observation": observations})     # (N, …) → name of an output → (N, …)

The tensors are the constants of the policy's ONNX graph: weights, the filter's statistics, bounds
of actions. The file's metadata holds the graph as JSON: names of ``inputs`` and ``outputs``, and
``nodes``, each an operation of ONNX with its ``kind``, ``inputs``, ``outputs`` and ``attributes``.
The file contains no code.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = Any


def load(path: str | Path) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """Return the policy in a safetensors file as a function: inputs by name → outputs by name.

    Raises ValueError if the file holds no graph, or an operation that is not known here.
    """
    from safetensors import safe_open  # imported here: trainers that export nothing do without it

    with safe_open(path, framework="numpy") as file:
        graph = json.loads((file.metadata() or {}).get("graph", "null"))
        constants = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 no mapping
    if graph is None:
        raise ValueError(f"{path}: contains only weights, not an exported policy with its graph")
    if unknown := sorted({node["kind"] for node in graph["nodes"]} - OPERATIONS.keys()):
        raise ValueError(
            f"{path}: contains operations that this version does not know: {', '.join(unknown)}"
        )
    return lambda inputs: run(graph, constants, inputs, OPERATIONS)


def run(
    graph: Mapping[str, Any],
    constants: Mapping[str, Array],
    inputs: Mapping[str, Array],
    operations: Mapping[str, Callable[..., Any]],
) -> dict[str, Array]:
    """Run the nodes of a graph in order on inputs (name → array); return its outputs by name.

    `constants` are arrays by name, `operations` kind of a node → function. An empty name of a
    node's input stands for None.
    """
    values = {"": None, **constants, **{name: inputs[name] for name in graph["inputs"]}}
    for node in graph["nodes"]:
        operation = operations[node["kind"]]
        made = operation(*(values[name] for name in node["inputs"]), **node["attributes"])
        several = len(node["outputs"]) > 1
        values.update(zip(node["outputs"], made if several else [made], strict=True))
    return {name: values[name] for name in graph["outputs"]}


def _convolution(
    x: Array, kernels: Array, bias: Array | float = 0.0, strides: Sequence[int] = (1, 1)
) -> Array:
    """Return images (N, C, H, W) convolved with kernels (K, C, h, w), without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(x, kernels.shape[2:], axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1]]
    filtered = np.tensordot(windows, kernels, axes=((1, 4, 5), (1, 2, 3)))
    return np.moveaxis(filtered + bias, 3, 1)


def _normalize_batch(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float = 1e-5
) -> Array:
    """Return `x` (N, C, …) normalised by fixed statistics (C,), then scaled and shifted."""
    by = (-1, *[1] * (x.ndim - 2))
    deviations = np.sqrt(variance + epsilon)
    return (x - mean.reshape(by)) * (scale / deviations).reshape(by) + bias.reshape(by)


def _normalize_layer(
    x: Array, scale: Array, bias: Array, axis: int = -1, epsilon: float = 1e-5
) -> Array:
    """Return `x` normalised over the axes from `axis` on, then scaled and shifted."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + epsilon) * scale + bias


def slice_axes(
    x: Array, starts: list[int], ends: list[int], axes: list[int], steps: list[int] | None = None
) -> Array:
    """Return the slice of an array of numpy or a tensor of torch that ONNX's Slice describes."""
    taken = [slice(None)] * x.ndim
    for axis, first, last, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        taken[axis] = slice(first, None if last >= sys.maxsize else last, step)
    return x[tuple(taken)]


def _softmax(x: Array, axis: int) -> Array:
    """Return the softmax along an axis."""
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


#: Kind of an ONNX operation → function; those that exported policies use.
OPERATIONS: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "ArgMax": lambda x, axis, keepdims: np.argmax(x, axis, keepdims=bool(keepdims)),
    "BatchNormalization": _normalize_batch,
    "Cast": lambda x, to: x.astype(to),
    "Clip": np.clip,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Conv": _convolution,
    "Div": np.divide,
    "Elu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "Equal": np.equal,
    "Erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "Exp": np.exp,
    "Flatten": lambda x, axis: x.reshape(*x.shape[:axis], -1),
    "Gather": np.take,
    "Gemm": lambda x, weights, bias, transB: x @ (weights.T if transB else weights) + bias,  # noqa: N803 ONNX's
    "Identity": lambda x: x,
    "LayerNormalization": _normalize_layer,
    "LeakyRelu": lambda x, alpha=0.01: np.where(x > 0, x, alpha * x),
    "MatMul": np.matmul,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "ReduceMax": lambda x, axes, keepdims=1: x.max(tuple(axes), keepdims=bool(keepdims)),
    "ReduceMean": lambda x, axes, keepdims=1: x.mean(tuple(axes), keepdims=bool(keepdims)),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "Slice": slice_axes,
    "Softmax": _softmax,
    "Split": lambda x, axis=0, num_outputs=0, split=(): np.split(
        x, np.cumsum(split)[:-1] if split else num_outputs, axis
    ),
    "Squeeze": lambda x, axes: np.squeeze(x, tuple(axes)),
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Transpose": lambda x, perm: x.transpose(perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
}
