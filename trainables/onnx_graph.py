"""The graph of an exported policy: flatten → frozen filter → networks → greedy action.

Written with onnx's own builder: perceptrons need no tracing, and the file is the same for the same
weights. N rows, *O the environment's observation shape, D its flattened size, A choices or action
dimensions.
"""

from typing import Any

import numpy as np
import onnx
from gymnasium import spaces
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError
from trainables.filters import (
    EPSILON,
    ConcurrentMeanStdFilter,
    Filter,
    MeanStdFilter,
    NoFilter,
)
from trainables.policies.networks import ActorCritic

Array = NDArray[Any]
OPSET = 18
IR_VERSION = 10  # read by every onnxruntime since 1.18
MEAN_STD = (MeanStdFilter, ConcurrentMeanStdFilter)


class GraphBuilder:
    """Nodes in order; every method takes names of values and returns the name of a new one."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Array) -> str:
        """An array stored in the file."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """One operation."""
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def observation_filter(self, rows: str, one: Filter) -> str:
        """(x - mean) / (std + ε), clipped; float64: a mean may be large beside its deviation."""
        if type(one) is NoFilter:  # not what derives from it and may do anything
            return rows
        if not isinstance(one, MeanStdFilter) or type(one) not in MEAN_STD:
            raise ConfigError(
                "observation_filter",
                type(one).__name__,
                "NoFilter, MeanStdFilter or ConcurrentMeanStdFilter in a model that is exported",
                "the operations of other filters are not known",
            )
        x = self.node("Cast", [rows], "wide", to=TensorProto.DOUBLE)
        x = self.node("Sub", [x, self.constant("mean", one.mean)], "centered")
        x = self.node("Div", [x, self.constant("deviation", one.std + EPSILON)], "scaled")
        if one.clip is not None:
            low = self.constant("clip_low", np.array(-one.clip))
            x = self.node(
                "Clip", [x, low, self.constant("clip_high", np.array(one.clip))], "clipped"
            )
        return self.node("Cast", [x], "filtered", to=TensorProto.FLOAT)

    def perceptron(self, rows: str, net: str, weights: dict[str, Array], activation: str) -> str:
        """The network named `net`; returns its last layer's output."""
        layers = sum(
            1 for name in weights if name.startswith(f"{net}.") and name.endswith("weight")
        )
        x = rows
        for i in range(layers):
            parts = [
                self.constant(f"{net}.{i}.{p}", weights[f"{net}.{i}.{p}"])
                for p in ("weight", "bias")
            ]
            x = self.node("Gemm", [x, *parts], f"{net}.{i}", transB=1)
            if i < layers - 1:
                x = self.node(activation.capitalize(), [x], f"{net}.{i}.{activation}")
        return x

    def greedy_action(self, head: str, space: spaces.Discrete | spaces.Box, clip: bool) -> str:
        """The most probable action as the environment wants it."""
        if isinstance(space, spaces.Discrete):
            start = self.constant("start", np.array(space.start, dtype=np.int64))
            best = self.node("ArgMax", [head], "best", axis=1, keepdims=0)
            return self.node("Add", [best, start], "action")
        shape = self.constant("action_shape", np.array([-1, *space.shape], dtype=np.int64))
        shaped = self.node("Reshape", [head, shape], "shaped")
        if not clip:
            return self.node("Identity", [shaped], "action")
        low, high = (
            self.constant(n, getattr(space, n).astype(np.float32)) for n in ("low", "high")
        )
        return self.node("Min", [self.node("Max", [shaped, low], "raised"), high], "action")


def build(
    model: ActorCritic, one: Filter, spaces_: EnvSpaces, clip_actions: bool, head_name: str
) -> bytes:
    """The serialised model, checked against ONNX's own rules; the batch axis is free."""
    graph = GraphBuilder()
    rows = graph.observation_filter(graph.node("Flatten", ["observation"], "rows", axis=1), one)
    weights = model.weights()
    head = graph.perceptron(rows, "actor", weights, model.activation)
    graph.node("Identity", [head], head_name)
    graph.greedy_action(head, spaces_.action, clip_actions)
    value = graph.perceptron(rows, "critic", weights, model.activation)
    graph.node("Squeeze", [value, graph.constant("last_axis", np.array([1]))], "value")
    action_shape = [] if spaces_.discrete else list(spaces_.action.shape or ())
    action_type = TensorProto.INT64 if spaces_.discrete else TensorProto.FLOAT
    outputs = [
        _value(head_name, TensorProto.FLOAT, [spaces_.action_size]),
        _value("action", action_type, action_shape),
        _value("value", TensorProto.FLOAT, []),
    ]
    inputs = [_value("observation", TensorProto.FLOAT, list(spaces_.observation.shape))]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="trainables",
    )
    onnx.checker.check_model(made, full_check=True)
    serialised: bytes = made.SerializeToString(deterministic=True)
    return serialised


def _value(name: str, kind: int, shape: list[int]) -> Any:
    return helper.make_tensor_value_info(name, kind, ["batch", *shape])
