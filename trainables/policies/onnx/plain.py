"""A policy exported as safetensors, run with numpy alone; a copy of this file lies beside it.

    from policy import load
    policy = load("policy.safetensors")
    outputs = policy({"observation": observations})     # (N, …) → name of an output → (N, …)

The tensors are the constants of the policy's ONNX graph: weights, the filter's statistics, bounds
of actions. The file's metadata holds the graph itself, as JSON: names of ``inputs`` and
``outputs``, and ``nodes``, each an operation of ONNX with its ``kind``, ``inputs``, ``outputs``
and ``attributes``. Nothing in the file is code.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

Array = Any


def load(path: str | Path) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The policy in a file: inputs by name → outputs by name.

    Raises:
        ValueError: the file holds no policy, or an operation that is not known here.
    """
    with safe_open(path, framework="numpy") as file:
        graph = json.loads((file.metadata() or {}).get("graph", "null"))
        constants = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 no mapping
    if graph is None:
        raise ValueError(f"{path}: holds tensors without a graph: weights alone, no policy")
    if unknown := sorted({node["kind"] for node in graph["nodes"]} - OPERATIONS.keys()):
        raise ValueError(f"{path}: operations that are not known here: {', '.join(unknown)}")
    return lambda inputs: run(graph, constants, inputs, OPERATIONS)


def run(
    graph: Mapping[str, Any],
    constants: Mapping[str, Array],
    inputs: Mapping[str, Array],
    operations: Mapping[str, Callable[..., Any]],
) -> dict[str, Array]:
    """The outputs of a graph, node after node."""
    values = {**constants, **{name: inputs[name] for name in graph["inputs"]}}
    for node in graph["nodes"]:
        operation = operations[node["kind"]]
        made = operation(*(values[name] for name in node["inputs"]), **node["attributes"])
        several = len(node["outputs"]) > 1
        values.update(zip(node["outputs"], made if several else [made], strict=True))
    return {name: values[name] for name in graph["outputs"]}


def _convolution(x: Array, kernels: Array, bias: Array, strides: list[int]) -> Array:
    """(N, C, H, W) with kernels (K, C, h, w), without padding → (N, K, H', W')."""
    windows = np.lib.stride_tricks.sliding_window_view(x, kernels.shape[2:], axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1]]
    filtered = np.tensordot(windows, kernels, axes=((1, 4, 5), (1, 2, 3)))
    return np.moveaxis(filtered, 3, 1) + bias[:, None, None]


def _softmax(x: Array, axis: int) -> Array:
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


#: ONNX's operations, as far as exported policies use them.
OPERATIONS: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "ArgMax": lambda x, axis, keepdims: np.argmax(x, axis, keepdims=bool(keepdims)),
    "Cast": lambda x, to: x.astype(to),
    "Clip": np.clip,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Conv": _convolution,
    "Div": np.divide,
    "Equal": np.equal,
    "Exp": np.exp,
    "Flatten": lambda x, axis: x.reshape(*x.shape[:axis], -1),
    "Gather": np.take,
    "Gemm": lambda x, weights, bias, transB: x @ (weights.T if transB else weights) + bias,  # noqa: N803 ONNX's
    "Identity": lambda x: x,
    "MatMul": np.matmul,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "ReduceMax": lambda x, axes, keepdims=1: x.max(tuple(axes), keepdims=bool(keepdims)),
    "ReduceMean": lambda x, axes, keepdims=1: x.mean(tuple(axes), keepdims=bool(keepdims)),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "Softmax": _softmax,
    "Split": lambda x, axis, num_outputs: np.split(x, num_outputs, axis),
    "Squeeze": lambda x, axes: np.squeeze(x, tuple(axes)),
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Transpose": lambda x, perm: x.transpose(perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
}
