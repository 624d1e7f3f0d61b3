"""The graph of a policy in other formats than ONNX, and one way to run files of every format.

``safetensors``: constants and graph as data, run by `plain` with numpy alone. ``torch-export``: a
program of torch.export, which torch loads without code of this project. Both are made from the ONNX
graph, so that they include preprocessing, filter and action mapping of any policy that has one.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.errors import ExportError
from trainables.policies.onnx import plain

Array = NDArray[Any]
#: Function of inputs by name that returns outputs by name, each (N, …).
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]

ONNX, SAFETENSORS, TORCH = "onnx", "safetensors", "torch-export"
#: Format → name of the policy's file.
FILES = {ONNX: "policy.onnx", SAFETENSORS: "policy.safetensors", TORCH: "policy.pt2"}
#: Name of the copy of `plain` beside the safetensors file.
READER = "policy.py"
#: Operation → names of its inputs after the first: shapes or axes, which become attributes.
_SHAPE_INPUTS = {
    **dict.fromkeys(("ReduceMax", "ReduceMean", "Squeeze", "Unsqueeze"), ("axes",)),
    "Reshape": ("shape",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Split": ("split",),
}


def load_model(path: Path) -> Run:
    """Return the policy in a file as a function: inputs by name → outputs by name, each (N, …).

    The suffix of the file's name decides its format; other suffixes than ``.safetensors`` and
    ``.pt2`` stand for ONNX. Loading a program of torch.export may run code that it contains. Raises
    ValueError if a safetensors file holds no graph, or an unknown operation.
    """
    if path.suffix == ".safetensors":
        return plain.load(path)
    if path.suffix == ".pt2":
        return _open_program(path)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, dict(inputs)), strict=True))


def _open_program(path: Path) -> Run:
    """Load a program of torch.export, and return it as a function of numpy arrays by name.

    Loading may run code that the file contains.
    """
    import torch

    program = torch.export.load(path).module()

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the program's outputs by name, given its inputs by name."""
        given = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in inputs.items()}
        with torch.no_grad():
            return {name: x.numpy() for name, x in program(given).items()}

    return run


def write(graph: bytes, path: Path) -> None:
    """Write a serialised ONNX model to `path` in the format that the suffix stands for.

    Other suffixes than ``.safetensors`` and ``.pt2`` stand for ONNX. Raises ExportError if the
    format does not support an operation of the graph, or torch cannot export it.
    """
    if path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        described, constants = _describe_graph(graph, plain.OPERATIONS, SAFETENSORS)
        save_file(constants, path, metadata={"graph": json.dumps(described)})
    elif path.suffix == ".pt2":
        _write_program(graph, path)
    else:
        path.write_bytes(graph)


def _describe_graph(
    graph: bytes, operations: Mapping[str, Callable[..., Any]], name: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return an ONNX graph as plain data, as `plain.run` takes it, and its constants by name.

    The data has names of ``inputs`` and ``outputs``, and ``nodes``, each with ``kind``, ``inputs``,
    ``outputs`` and ``attributes``. Constants that became attributes of nodes, such as shapes and
    axes, are left out.

    Args:
        graph: serialised ONNX model.
        operations: operation → function, those that the format supports.
        name: name of the format, for errors.

    Raises:
        ExportError: an operation is not supported, or its shape or axes are computed.
    """
    import onnx
    from onnx import helper, numpy_helper

    found = onnx.load_from_string(graph).graph
    constants = {one.name: numpy_helper.to_array(one) for one in found.initializer}
    nodes = []
    for node in found.node:
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type == "Cast":
            attributes["to"] = str(helper.tensor_dtype_to_np_dtype(attributes["to"]))
        given = list(node.input)
        if node.op_type in _SHAPE_INPUTS:
            given, shaped = given[:1], given[1:]
            if not constants.keys() >= set(shaped):
                what = f"a {node.op_type} with a computed operand"
                raise ExportError(
                    f"this policy has {what}, which the format {name} does not support; use the "
                    f"format {ONNX}"
                )
            for key, one in zip(_SHAPE_INPUTS[node.op_type], shaped, strict=False):
                attributes[key] = constants[one].tolist()
        ports = {"inputs": given, "outputs": list(node.output)}
        nodes.append({"kind": node.op_type, **ports, "attributes": attributes})
    unknown = sorted(
        {one for node in nodes for one in _unsupported_parts(node, operations.get(node["kind"]))}
    )
    if unknown:
        raise ExportError(
            f"the format {name} does not support these operations of the policy: "
            f"{', '.join(unknown)}; use the format {ONNX}, which supports all"
        )
    inputs, outputs = [one.name for one in found.input], [one.name for one in found.output]
    needed = {name for node in nodes for name in node["inputs"]}
    described = {"inputs": inputs, "outputs": outputs, "nodes": nodes}
    kept = {name: value for name, value in constants.items() if name in needed}
    return described, {name: value.copy() for name, value in kept.items()}


def _unsupported_parts(
    node: Mapping[str, Any], operation: Callable[..., Any] | None
) -> Iterator[str]:
    """Yield texts about the parts of a node that the function `operation` does not support.

    They are the node's kind, if `operation` is None, or its attributes or inputs.
    """
    if operation is None:
        yield node["kind"]
        return
    try:
        signature = inspect.signature(operation)
    except ValueError:  # functions of torch have no signature; they take all that graphs contain
        return
    if more := node["attributes"].keys() - signature.parameters.keys():
        yield f"{node['kind']} with {', '.join(sorted(more))}"
        return
    try:
        signature.bind(*node["inputs"], **node["attributes"])
    except TypeError as error:
        yield f"{node['kind']} ({error})"


def _write_program(graph: bytes, path: Path) -> None:
    """Write the graph as a program of torch.export with a free number of rows.

    Raises ExportError if the graph has an operation without a function in torch, or torch cannot
    export it.
    """
    import onnx
    import torch

    operations = _torch_operations()
    described, constants = _describe_graph(graph, operations, TORCH)

    class Program(torch.nn.Module):
        """The described graph as a torch module, whose constants are buffers."""

        def __init__(self) -> None:
            super().__init__()
            for place, value in enumerate(constants.values()):
                self.register_buffer(f"constant_{place}", torch.from_numpy(value.copy()))

        def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            """Return the graph's outputs by name, given its inputs by name."""
            named = dict(zip(constants, self.buffers(), strict=True))
            return plain.run(described, named, inputs, operations)

    example = {}
    for one in onnx.load_from_string(graph).graph.input:
        tensor = one.type.tensor_type
        shape = [2, *(size.dim_value for size in tensor.shape.dim[1:])]
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        example[one.name] = torch.from_numpy(np.zeros(shape, kind))
    rows = torch.export.Dim("rows")
    free = ({name: {0: rows} for name in example},)
    try:
        with torch.no_grad():
            made = torch.export.export(Program(), (example,), dynamic_shapes=free)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        what = f"torch cannot export this policy ({why})"
        raise ExportError(f"{what}; use the format {ONNX}, which every policy has") from error
    torch.export.save(made, path)


def _torch_operations() -> dict[str, Callable[..., Any]]:
    """Return kind of an ONNX operation → function of torch tensors, as `plain.OPERATIONS` has."""
    import torch
    from torch.nn.functional import batch_norm, conv2d, elu, layer_norm, leaky_relu

    kinds = {name: getattr(torch, name) for name in ("float32", "float64", "int64", "int32")}
    kinds |= {name: getattr(torch, name) for name in ("float16", "int8", "int16", "uint8", "bool")}
    return {
        "Add": torch.add,
        "ArgMax": lambda x, axis, keepdims: torch.argmax(x, axis, bool(keepdims)),
        "BatchNormalization": lambda x, scale, bias, mean, variance, epsilon=1e-5: batch_norm(
            x, mean, variance, scale, bias, eps=epsilon
        ),
        "Cast": lambda x, to: x.to(kinds[to]),
        "Clip": torch.clamp,
        "Concat": lambda *parts, axis: torch.cat(parts, axis),
        "Conv": lambda x, kernels, bias=None, strides=1: conv2d(x, kernels, bias, stride=strides),
        "Div": torch.div,
        "Elu": elu,
        "Equal": torch.eq,
        "Erf": torch.erf,
        "Exp": torch.exp,
        "Flatten": lambda x, axis: x.reshape(*x.shape[:axis], -1),
        "Gather": lambda x, index, axis: (
            torch.index_select(x, axis, index % x.shape[axis])
            if index.dim()
            else torch.index_select(x, axis, index[None] % x.shape[axis]).squeeze(axis)
        ),
        "Gemm": lambda x, weights, bias, transB: x @ (weights.T if transB else weights) + bias,  # noqa: N803 ONNX's
        "Identity": torch.clone,
        "LayerNormalization": lambda x, scale, bias, axis=-1, epsilon=1e-5: layer_norm(
            x, x.shape[axis:], scale, bias, epsilon
        ),
        "LeakyRelu": lambda x, alpha=0.01: leaky_relu(x, alpha),
        "MatMul": torch.matmul,
        "Max": torch.maximum,
        "Min": torch.minimum,
        "Mul": torch.mul,
        "ReduceMax": lambda x, axes, keepdims=1: x.amax(tuple(axes), bool(keepdims)),
        "ReduceMean": lambda x, axes, keepdims=1: x.mean(tuple(axes), bool(keepdims)),
        "Relu": torch.relu,
        "Reshape": lambda x, shape: x.reshape(shape),
        "Sigmoid": torch.sigmoid,
        "Slice": plain.slice_axes,
        "Softmax": lambda x, axis: x.softmax(axis),
        "Split": lambda x, axis=0, num_outputs=0, split=(): (
            torch.split(x, list(split), axis) if split else torch.chunk(x, num_outputs, axis)
        ),
        "Squeeze": lambda x, axes: torch.squeeze(x, tuple(axes)),
        "Sub": torch.sub,
        "Tanh": torch.tanh,
        "Transpose": lambda x, perm: x.permute(*perm),
        "Unsqueeze": lambda x, axes: torch.unsqueeze(x, *axes),
    }
