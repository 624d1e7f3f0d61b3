"""A user's torch module as nodes of a policy's graph, written by torch's exporter. N rows."""

import copy
import io
import warnings
from typing import Any, Protocol

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from trainables.errors import ExportError

#: Kind of a node → redundant attributes that the exporter writes, and their implied value; None if
#: any value is redundant.
_IMPLIED: dict[str, dict[str, Any]] = {
    "BatchNormalization": {"momentum": None, "training_mode": 0},
    "Conv": {"group": 1, "kernel_shape": None},
    "Gemm": {"alpha": 1.0, "beta": 1.0},
    "LayerNormalization": {"stash_type": 1},
    "Reshape": {"allowzero": 0},
}


class Graph(Protocol):
    """Protocol of a graph to which nodes and constants can be added."""

    nodes: list[Any]
    """Nodes of the graph, as protocol buffers of ONNX."""
    constants: list[Any]
    """Constants of the graph, as protocol buffers of ONNX."""


def inline(
    graph: Graph, module: torch.nn.Module, rows: str, shape: tuple[int, ...], outputs: list[str]
) -> None:
    """Add a torch module to a graph of a policy, traced by torch's ONNX exporter.

    `rows` is the name of its input (N, *shape) in the graph, `outputs` those of its outputs. A copy
    on the CPU in evaluation mode is traced; the module does not change.

    Raises ExportError if torch's exporter cannot write the module, or the module has branches.
    """
    module = copy.deepcopy(module).cpu().eval()
    named, file = type(module).__name__, io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # a wrong trace is found when the file is compared
            torch.onnx.export(
                module,
                (torch.zeros(2, *shape),),
                file,  # type: ignore[arg-type]  # this exporter writes into memory, too
                dynamo=False,  # the newer exporter needs another package
                opset_version=18,
                input_names=["rows"],
                output_names=outputs,
                dynamic_axes={name: {0: "batch"} for name in ("rows", *outputs)},
            )
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ExportError(
            f"torch cannot export {named} to ONNX: {why}; use a checkpoint instead"
        ) from error
    traced = onnx.load_from_string(file.getvalue()).graph
    names = {"rows": rows, "": "", **{one: one for one in outputs}}

    def unique_name(name: str) -> str:
        """Return a name that is unique in the graph, the same one for each call with `name`."""
        return names.setdefault(name, f"{named}:{name}")

    for one in traced.initializer:
        graph.constants.append(
            numpy_helper.from_array(numpy_helper.to_array(one), unique_name(one.name))
        )
    for node in traced.node:
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if any(isinstance(value, onnx.GraphProto) for value in attributes.values()):
            raise ExportError(
                f"{named} contains a branch ({node.op_type}), which an exported policy cannot "
                "contain; compute both cases and select one with torch.where"
            )
        if node.op_type == "Constant":
            value = numpy_helper.to_array(attributes["value"])
            graph.constants.append(numpy_helper.from_array(value, unique_name(node.output[0])))
            continue
        for key in [
            key for key, value in attributes.items() if _is_implied(node.op_type, key, value)
        ]:
            del attributes[key]
        given, shown = ([unique_name(one) for one in ends] for ends in (node.input, node.output))
        graph.nodes.append(helper.make_node(node.op_type, given, shown, **attributes))


def _is_implied(kind: str, key: str, value: Any) -> bool:
    """Return whether the attribute `key` of an ONNX operation may be left out.

    It may if it has its default, or if no value of it has an effect, as `_IMPLIED` lists.
    """
    if kind == "Conv" and key in ("pads", "dilations"):
        return bool((np.array(value) == (key == "dilations")).all())
    of = _IMPLIED.get(kind, {})
    return key in of and of[key] in (None, value)
