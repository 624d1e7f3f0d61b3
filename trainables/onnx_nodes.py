"""Nodes and constants of an ONNX graph, written one after the other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]


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

    def columns(self, rows: str, columns: Array, output: str) -> str:
        """Columns (K,) of rows (N, …)."""
        index = self.constant(f"{output}:index", columns.astype(np.int64))
        return self.node("Gather", [rows, index], output, axis=1)

    def unit_pixels(self, values: str, highest: float) -> str:
        """Floats from 0 to `highest` as floats from 0 to 1."""
        divisor = self.constant(f"{values}:highest", np.array(highest, dtype=np.float32))
        return self.node("Div", [values, divisor], f"{values}:unit")

    def perceptron(self, rows: str, net: str, weights: dict[str, Array], activation: str) -> str:
        """The linear layers named `net`; returns the last one's output, not activated."""
        layers = sum(
            1 for name in weights if name.startswith(f"{net}.") and name.endswith("weight")
        )
        x = rows
        for i in range(layers):
            x = self.node("Gemm", [x, *self._layer(f"{net}.{i}", weights)], f"{net}.{i}", transB=1)
            if i < layers - 1:
                x = self.node(activation.capitalize(), [x], f"{net}.{i}.{activation}")
        return x

    def lstm(self, rows: str, states: tuple[str, str], weights: dict[str, Array]) -> None:
        """One step of an LSTM: outputs and cells ``state_out_0`` and ``state_out_1``."""
        outputs, cells = states
        gates = []
        for part, given in (("ih", rows), ("hh", outputs)):
            names = [f"lstm.{kind}_{part}_l0" for kind in ("weight", "bias")]
            layer = [self.constant(name, weights[name]) for name in names]
            gates.append(self.node("Gemm", [given, *layer], f"lstm.{part}", transB=1))
        named = [f"lstm.{gate}" for gate in ("admit", "keep", "new", "show")]
        summed = self.node("Add", gates, "lstm.gates")
        self.nodes.append(helper.make_node("Split", [summed], named, axis=1, num_outputs=4))
        admit, keep, new, show = (
            self.node("Tanh" if one == "lstm.new" else "Sigmoid", [one], f"{one}d") for one in named
        )
        kept = self.node("Mul", [keep, cells], "lstm.kept")
        added = self.node("Mul", [admit, new], "lstm.added")
        after = self.node("Add", [kept, added], "state_out_1")
        self.node("Mul", [show, self.node("Tanh", [after], "lstm.cells")], "state_out_0")

    def convolution(self, x: str, name: str, weights: dict[str, Array], stride: int) -> str:
        """One convolution without padding, and ReLU."""
        layer = self._layer(name, weights)
        x = self.node("Conv", [x, *layer], name, strides=[stride, stride])
        return self.node("Relu", [x], f"{name}.relu")

    def _layer(self, name: str, weights: dict[str, Array]) -> list[str]:
        return [self.constant(f"{name}.{p}", weights[f"{name}.{p}"]) for p in ("weight", "bias")]
