"""The graph of an exported policy: connectors and frozen filter → networks → greedy action.

It is written with onnx's builder: these networks need no tracing, and equal weights give equal
files. N rows, D features of a flattened observation, K columns of an action, A choices.
"""

from typing import Any, Protocol

import numpy as np
import onnx
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout, bounds
from trainables.envs.spaces.connectors import (
    Connector,
    Connectors,
    Filtering,
    FrameStack,
    PreviousAction,
    PreviousReward,
)
from trainables.envs.spaces.images import choose_view, is_bytes, is_image, part_divisor
from trainables.envs.spaces.leaves import named_leaves
from trainables.envs.spaces.observations import is_wide
from trainables.errors import ConfigError, ExportError
from trainables.policies.acting.distributions import NO_CHOICE, choice_grid
from trainables.policies.architecture import Architecture
from trainables.policies.bounded.acting import MEAN_CLIP, Bounds
from trainables.policies.filters import (
    EPSILON,
    ConcurrentMeanStdFilter,
    MeanStdFilter,
    NoFilter,
    feature_filter,
)
from trainables.policies.learning.networks import ActorCritic
from trainables.policies.onnx.traced import inline
from trainables.policies.own.module import OwnActorCritic
from trainables.policies.q.actor import QArchitecture

Array = NDArray[Any]


class GraphBuilder:
    """An ONNX graph under construction.

    Methods take names of values in the graph, append nodes, and return the name of a new value.
    `weights` are arrays by name.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        """ONNX's descriptions of the inputs other than the observation."""
        self.outputs: list[Any] = []
        """ONNX's descriptions of the outputs that are inputs of the next step."""
        self.is_exact = False
        """True if observations that float32 would round are float64 up to the filter."""

    def constant(self, name: str, value: Array) -> str:
        """Add an array to the file; return its name."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add an ONNX operation of this kind with one output named `output`; return that name."""
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def columns(self, rows: str, columns: Array, output: str) -> str:
        """Add the selection of columns, indices (K,), of rows (N, …); return its name, `output`."""
        index = self.constant(f"{output}:index", columns.astype(np.int64))
        return self.node("Gather", [rows, index], output, axis=1)

    def unit_pixels(self, values: str, highest: float, kind: int = TensorProto.FLOAT) -> str:
        """Add the division of `values` by `highest`; return its name.

        Returns `values` itself if `highest` is 1. `kind` is ONNX's number of their float type.
        """
        if highest == 1.0:
            return values
        numbers = helper.tensor_dtype_to_np_dtype(kind)
        divisor = self.constant(f"{values}:highest", np.array(highest, dtype=numbers))
        return self.node("Div", [values, divisor], f"{values}:unit")

    def perceptron(self, rows: str, net: str, weights: dict[str, Array], activation: str) -> str:
        """Add the linear layers ``<net>.<index>`` of `net`; return the last one's output.

        The activation follows all layers but the last.
        """
        layers = sum(name.startswith(f"{net}.") and name.endswith("weight") for name in weights)
        x = rows
        for i in range(layers):
            x = self.node("Gemm", [x, *self._layer(f"{net}.{i}", weights)], f"{net}.{i}", transB=1)
            if i < layers - 1:
                x = self.node(activation.capitalize(), [x], f"{net}.{i}.{activation}")
        return x

    def lstm(self, rows: str, states: tuple[str, str], weights: dict[str, Array]) -> None:
        """Add one step of an LSTM for `rows`, with its outputs and cells before it, `states`.

        The values after it are named ``state_out_0`` (outputs) and ``state_out_1`` (cells).
        """
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
        """Add one convolution without padding, and ReLU; return the name of the result."""
        layer = self._layer(name, weights)
        x = self.node("Conv", [x, *layer], name, strides=[stride, stride])
        return self.node("Relu", [x], f"{name}.relu")

    def _layer(self, name: str, weights: dict[str, Array]) -> list[str]:
        """Add weight and bias of a layer as constants; return their names."""
        return [self.constant(f"{name}.{p}", weights[f"{name}.{p}"]) for p in ("weight", "bias")]


#: Version of ONNX's operators.
OPSET = 18
#: Version of ONNX's file format.
IR_VERSION = 10  # read by every onnxruntime since 1.18
#: Filters that normalise by mean and standard deviation.
MEAN_STD = (MeanStdFilter, ConcurrentMeanStdFilter)


def input_type(leaf: spaces.Space[Any], exact: bool) -> np.dtype[Any]:
    """Return the dtype of the file's input for a leaf of the observation space.

    A leaf is a part of a Tuple or Dict, or the space itself. A Box is float32, also one of
    integers, or float64 if `exact` and float32 would round; a Box of byte pixels is uint8. Another
    space has its own dtype, or int64 without one.
    """
    if isinstance(leaf, spaces.Box) and not is_bytes(leaf):
        return np.dtype(np.float64 if exact and is_wide(leaf) else np.float32)
    return np.dtype(leaf.dtype or np.int64)


def output_type(leaf: spaces.Space[Any]) -> np.dtype[Any]:
    """Return the dtype of the file's output for a leaf of the action space.

    It is the space's own, or int64 if the space has none.
    """
    return np.dtype(leaf.dtype or np.int64)


def build(model: ActorCritic, spaces_: EnvSpaces, connectors: Connectors) -> bytes:
    """Return the bytes of an ONNX model of an actor and a critic, from observation to action.

    Raises ExportError for a connector, and ConfigError for a filter, that ONNX cannot contain.
    """
    graph = GraphBuilder()
    x = _connect_observations(graph, spaces_, connectors)
    forbidden = _mask_offsets(graph, spaces_)
    weights, architecture = model.weights(), model.architecture
    x = _features(graph, x, weights, architecture, architecture.shared)
    x = _run_lstm(graph, x, model)
    head = graph.perceptron(x, "actor", weights, architecture.activation)
    reals = "action_mean" if model.layout.real_columns else ""
    outputs = _outputs(graph, head, spaces_, model.layout, reals, connectors, forbidden)
    value = graph.perceptron(x, "critic", weights, architecture.activation)
    graph.node("Squeeze", [value, graph.constant("last_axis", np.array([1]))], "value")
    return _serialise(graph, spaces_, outputs)


def build_own(model: OwnActorCritic, spaces_: EnvSpaces, connectors: Connectors) -> bytes:
    """Return the bytes of an ONNX model of an actor and critic that are a user's torch module.

    Raises ExportError for a module or connector, and ConfigError for a filter, that ONNX cannot
    contain.
    """
    graph, layout = GraphBuilder(), model.layout
    x = _connect_observations(graph, spaces_, connectors)
    inline(graph, model.module, x, model.architecture.shape, ["head", "value"])
    reals = "action_mean" if layout.real_columns else ""
    forbidden = _mask_offsets(graph, spaces_)
    outputs = _outputs(graph, "head", spaces_, layout, reals, connectors, forbidden)
    return _serialise(graph, spaces_, outputs)


def build_q(
    weights: dict[str, Array],
    architecture: QArchitecture,
    spaces_: EnvSpaces,
    connectors: Connectors,
) -> bytes:
    """Return the bytes of an ONNX model of a Q-network without noise.

    The output ``action_logits`` are the values of the choices, ``value`` is the highest one. Raises
    ExportError for a connector, and ConfigError for a filter, that ONNX cannot contain.
    """
    graph, layout = GraphBuilder(), spaces_.layout
    x = _connect_observations(graph, spaces_, connectors)
    activation, atoms = architecture.trunk.activation, len(architecture.support)
    x = _features(graph, x, weights, architecture.trunk, shared=True)
    q = graph.perceptron(x, "head", weights, activation)
    shape = graph.constant("choices", np.array([-1, layout.logits, max(1, atoms)]))
    q = graph.node("Reshape", [q, shape], "each")
    if architecture.dueling:
        second = graph.constant("second_axis", np.array([1]))
        state = graph.perceptron(x, "value", weights, activation)
        state = graph.node("Unsqueeze", [state, second], "state")
        mean = graph.node("ReduceMean", [q, second], "mean_choice")
        centred = graph.node("Sub", [q, mean], "centred")
        q = graph.node("Add", [centred, state], "summed")
    if atoms:
        support = graph.constant("support", np.array(architecture.support, np.float32)[:, None])
        q = graph.node("MatMul", [graph.node("Softmax", [q], "atoms", axis=2), support], "means")
    q = graph.node("Squeeze", [q, graph.constant("third_axis", np.array([2]))], "q")
    if forbidden := _mask_offsets(graph, spaces_):
        q = graph.node("Add", [q, forbidden], "allowed")
    return _finish_with_values(graph, spaces_, connectors, q)


def build_own_q(module: torch.nn.Module, spaces_: EnvSpaces, connectors: Connectors) -> bytes:
    """Return the bytes of an ONNX model of a Q-network that is a user's torch module.

    Raises ExportError for a module or connector, and ConfigError for a filter, that ONNX cannot
    contain.
    """
    graph = GraphBuilder()
    x = _connect_observations(graph, spaces_, connectors)
    inline(graph, module, x, spaces_.observation_shape, ["q"])
    return _finish_with_values(graph, spaces_, connectors, "q")


def _finish_with_values(
    graph: GraphBuilder, spaces_: EnvSpaces, connectors: Connectors, q: str
) -> bytes:
    """Add value and best choice to a Q-network's graph; return the bytes of the ONNX model.

    `q` is the name of the values (N, A) in the graph.
    """
    graph.node("ReduceMax", [q, graph.constant("of_choices", np.array([1]))], "value", keepdims=0)
    outputs = _outputs(graph, q, spaces_, spaces_.layout, "", connectors)
    return _serialise(graph, spaces_, outputs)


def _outputs(
    graph: GraphBuilder,
    head: str,
    spaces_: EnvSpaces,
    layout: ActionLayout,
    reals: str,
    connectors: Connectors,
    forbidden: str = "",
) -> list[Any]:
    """Add the outputs of a policy whose graph has a ``value``; return ONNX's descriptions.

    They are ``action_logits``, ``action_mean``, the greedy action, and ``value``, in this order.

    `head`, `reals` and `forbidden` are names: of the actor's head, of the actions' real numbers,
    and of the offsets of invalid choices; the last two are empty without any.
    """
    outputs = _heads(graph, head, layout, forbidden)
    outputs += _actions(graph, spaces_, layout, reals, connectors)
    return [*outputs, _value("value", np.dtype(np.float32), ())]


class BoundedActor(Protocol):
    """Protocol of networks whose actor squashes its means by tanh, as those of SAC and TD3."""

    layout: ActionLayout
    """Layout of the actions."""
    architecture: Architecture
    """Sizes and options of the networks."""

    limits: Bounds | None
    """Bounds of the actions; None if an action is one choice."""

    @property
    def has_state_dependent_noise(self) -> bool:
        """True if noise depends on the state; means are then clipped before they are squashed."""

    def weights(self) -> dict[str, Array]:
        """Return name → weight; those of the actor begin with ``actor``."""


def build_bounded(model: BoundedActor, spaces_: EnvSpaces, connectors: Connectors) -> bytes:
    """Return the bytes of an ONNX model of an actor without a critic.

    The action is the squashed mean, scaled to the bounds, or the most probable choice. Raises
    ExportError for a connector, and ConfigError for a filter, that ONNX cannot contain.
    """
    graph, layout, limits = GraphBuilder(), model.layout, model.limits
    x = _connect_observations(graph, spaces_, connectors)
    head = graph.perceptron(x, "actor", model.weights(), model.architecture.activation)
    outputs, reals = _heads(graph, head, layout), ""
    if limits is not None:
        x = "action_mean"
        if model.has_state_dependent_noise:
            clip = (("lowest_mean", -MEAN_CLIP), ("highest_mean", MEAN_CLIP))
            ends = [graph.constant(name, np.array(end, np.float32)) for name, end in clip]
            x = graph.node("Clip", [x, *ends], "clipped_mean")
        x = graph.node("Tanh", [x], "squashed")
        x = graph.node(
            "Mul", [x, graph.constant("half", (limits.high - limits.low) / 2)], "spread_out"
        )
        middle = graph.constant("middle", (limits.high + limits.low) / 2)
        reals = graph.node("Add", [x, middle], "unbounded")
    outputs += _actions(graph, spaces_, layout, reals, connectors.clipping(True))
    return _serialise(graph, spaces_, outputs)


def _serialise(graph: GraphBuilder, spaces_: EnvSpaces, outputs: list[Any]) -> bytes:
    """Return the graph as bytes of an ONNX model, checked by ONNX's own checker.

    The batch axis of inputs and outputs has any length.
    """
    inputs = [
        _value(name, input_type(leaf, graph.is_exact), leaf.shape or ())
        for name, leaf in named_leaves(spaces_.raw, "observation").items()
    ]
    ends = [*inputs, *graph.inputs], [*outputs, *graph.outputs]
    model_proto = helper.make_model(
        helper.make_graph(graph.nodes, "policy", *ends, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="trainables",
    )
    onnx.checker.check_model(model_proto, full_check=True)
    serialised: bytes = model_proto.SerializeToString(deterministic=True)
    return serialised


def _connect_observations(graph: GraphBuilder, spaces_: EnvSpaces, connectors: Connectors) -> str:
    """Add the preprocessing of observations, filter included; return the name of the result.

    Connectors may add inputs and outputs, such as earlier frames. Raises ExportError for a
    connector, and ConfigError for a filter, that ONNX cannot contain.
    """
    graph.is_exact = connectors.is_exact
    x = _observations(graph, spaces_)
    for i, one in enumerate(connectors.before):
        x = _stack_frames(graph, x, i, one)
    filtered = _filter(graph, x, connectors.filter)
    x = filtered if filtered != x else _scale_pixels(graph, x, spaces_)
    if connectors.part(PreviousAction) is not None:
        x = _prepend_previous_action(graph, x, spaces_, connectors)
    if connectors.part(PreviousReward) is not None:
        graph.inputs.append(_value("prev_reward", np.dtype(np.float32), ()))
        axis = graph.constant("prev_reward:axis", np.array([1]))
        column = graph.node("Unsqueeze", ["prev_reward", axis], "prev_reward:column")
        x = graph.node("Concat", [column, x], "rewarded", axis=1)
    return x


def _stack_frames(graph: GraphBuilder, x: str, number: int, connector: Connector) -> str:
    """Add a frame stack to observations `x` (N, D); return the name of the stacked ones.

    Earlier frames are the input ``frames_in_<number>`` and the output ``frames_out_<number>``.
    Raises ExportError if the connector is not a frame stack of vectors.
    """
    input_name, output, size = f"frames_in_{number}", f"frames_out_{number}", connector.memory_size
    shape = connector.observation_space.shape
    if type(connector) is not FrameStack or is_image(connector.observation_space):
        is_stack = type(connector) is FrameStack
        what = "FrameStack of images" if is_stack else type(connector).__name__
        raise ExportError(
            f"the connector {what} cannot be exported in any format; use a checkpoint instead"
        )
    before, width = input_name, int(np.prod(shape))
    kept = size // 2 if connector.is_wide else size
    if graph.is_exact:  # high and low parts of each number
        parts = [np.arange(kept), np.arange(kept, size)]
        parts_ = [
            graph.columns(input_name, part, f"{input_name}:{i}") for i, part in enumerate(parts)
        ]
        wide = [graph.node("Cast", [n], f"{n}:wide", to=TensorProto.DOUBLE) for n in parts_]
        before = graph.node("Add", wide, f"{input_name}:wide")
    elif connector.is_wide:
        before = graph.columns(input_name, np.arange(kept), f"{input_name}:high")
    stacked = graph.node("Concat", [before, x], f"stacked_{number}", axis=1)
    following = np.arange(width - kept, width)
    if not connector.is_wide:
        graph.columns(stacked, following, output)
    else:
        later = graph.columns(stacked, following, f"{output}:whole")
        high = graph.node("Cast", [later], f"{output}:high", to=TensorProto.FLOAT)
        kind = TensorProto.DOUBLE if graph.is_exact else TensorProto.FLOAT
        again = graph.node("Cast", [high], f"{output}:again", to=kind)
        rest = graph.node("Sub", [later, again], f"{output}:rest")
        low = graph.node("Cast", [rest], f"{output}:low", to=TensorProto.FLOAT)
        graph.node("Concat", [high, low], output, axis=1)
    graph.inputs.append(_value(input_name, np.dtype(np.float32), (size,)))
    graph.outputs.append(_value(output, np.dtype(np.float32), (size,)))
    return stacked


def _prepend_previous_action(
    graph: GraphBuilder, x: str, spaces_: EnvSpaces, connectors: Connectors
) -> str:
    """Add inputs for the previous action; return the name of rows `x` with it put before them.

    Its choices are one-hot. Its real numbers are scaled back to -1 to 1 if those of the policy are
    scaled to their bounds.
    """
    parts, first, widen = [], 0, connectors.adapter.spread
    for name, leaf in named_leaves(spaces_.action, "prev_action").items():
        graph.inputs.append(_value(name, output_type(leaf), leaf.shape or ()))
        columns = slice(first, first + int(np.prod(leaf.shape or ())))
        # A bit of an action is a choice of two, one-hot; a bit of an observation is one number.
        hot = (
            spaces.MultiDiscrete([2] * int(np.prod(leaf.n)))
            if isinstance(leaf, spaces.MultiBinary)
            else leaf
        )
        part = _leaf_features(graph, name, hot)
        if widen is not None and isinstance(leaf, spaces.Box):
            middle = graph.constant(f"{name}:middle", widen[1][columns])
            half = graph.constant(f"{name}:half", widen[0][columns])
            part = graph.node("Sub", [part, middle], f"{name}:centred")
            part = graph.node("Div", [part, half], f"{name}:narrowed")
        parts.append(part)
        first = columns.stop
    return graph.node("Concat", [*parts, x], "acted", axis=1)


def _observations(graph: GraphBuilder, spaces_: EnvSpaces) -> str:
    """Add the conversion of raw observations; return the name of rows (N, D) or images.

    Images are (N, H, W, C). An action mask, the last part of an observation, is left out.
    """
    raw, settings = spaces_.raw, spaces_.image_settings
    if isinstance(raw, spaces.Box) and (seen := choose_view(raw, settings)).axes:
        if seen.axes == "HWC":
            return "observation"
        perm = [0, *(axis + 1 for axis in seen.order)]
        x = graph.node("Transpose", ["observation"], "turned", perm=perm)
        shape = graph.constant("image", np.array([-1, *seen.shape(raw.shape)]))
        return graph.node("Reshape", [x, shape], "laid_out")
    leaves = list(named_leaves(raw, "observation").items())
    kind = TensorProto.DOUBLE if graph.is_exact else TensorProto.FLOAT
    rows = [_leaf_features(graph, *one, kind) for one in (leaves[:-1] if spaces_.masks else leaves)]
    return rows[0] if len(rows) == 1 else graph.node("Concat", rows, "rows", axis=1)


def _mask_offsets(graph: GraphBuilder, spaces_: EnvSpaces) -> str:
    """Add offsets (N, A) for logits: 0 for valid choices, `NO_CHOICE` for others; return the name.

    Returns an empty string without action masks. Added to a logit, `NO_CHOICE` replaces it, since
    the logit is lost in rounding.
    """
    if not spaces_.masks:
        return ""
    mask = _leaf_features(graph, *list(named_leaves(spaces_.raw, "observation").items())[-1])
    one = graph.constant("valid", np.ones(1, dtype=np.float32))
    invalid = graph.node("Sub", [one, mask], "invalid")
    return graph.node("Mul", [invalid, graph.constant("no_choice", np.full(1, NO_CHOICE))], "masks")


def _leaf_features(
    graph: GraphBuilder, name: str, leaf: spaces.Space[Any], kind: int = TensorProto.FLOAT
) -> str:
    """Add the features (N, d) of one part of an observation; return their name.

    `name` is the input, `leaf` its space. Discrete and MultiDiscrete become one-hot; other parts
    are flattened, and images scaled to at most 1. `kind` is ONNX's number of the features' type.
    """
    flat = graph.node("Flatten", [name], f"{name}:flat", axis=1)
    if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
        sizes = np.atleast_1d(leaf.n if isinstance(leaf, spaces.Discrete) else leaf.nvec).ravel()
        columns = np.repeat(np.arange(len(sizes)), sizes)
        starts = np.broadcast_to(np.asarray(leaf.start).ravel(), sizes.shape)
        choices = np.concatenate([s + np.arange(n) for s, n in zip(starts, sizes, strict=True)])
        wide = graph.node("Cast", [flat], f"{name}:int", to=TensorProto.INT64)
        index = graph.constant(f"{name}:columns", columns.astype(np.int64))
        spread = graph.node("Gather", [wide, index], f"{name}:spread", axis=1)
        known = graph.constant(f"{name}:choices", choices.astype(np.int64))
        hot = graph.node("Equal", [spread, known], f"{name}:hot")
        return graph.node("Cast", [hot], f"{name}:rows", to=kind)
    rows = graph.node("Cast", [flat], f"{name}:rows", to=kind)
    return graph.unit_pixels(rows, part_divisor(leaf), kind)


def _filter(graph: GraphBuilder, rows: str, filtering: Filtering) -> str:
    """Add the frozen filter: (x - mean) / (std + ε), clipped; return the name of its output.

    It computes in float64, since a mean may be large compared with its deviation. Returns `rows`
    itself if there is no filter.

    Raises ConfigError if the filter is a user's own.
    """
    filtering = feature_filter(filtering)
    if type(filtering) is NoFilter:  # derived classes may change rows
        return rows
    if not isinstance(filtering, MeanStdFilter) or type(filtering) not in MEAN_STD:
        name = type(filtering).__name__
        problem = f"a policy with {name} cannot be exported, because its operations are not known"
        allowed = "NoFilter, MeanStdFilter or ConcurrentMeanStdFilter"
        raise ConfigError("observation_filter", name, allowed, problem=problem)
    x = graph.node("Cast", [rows], "wide", to=TensorProto.DOUBLE)
    x = graph.node("Sub", [x, graph.constant("mean", filtering.mean)], "centered")
    x = graph.node("Div", [x, graph.constant("deviation", filtering.std + EPSILON)], "scaled")
    if filtering.clip is not None:
        low = graph.constant("clip_low", np.array(-filtering.clip))
        high = graph.constant("clip_high", np.array(filtering.clip))
        x = graph.node("Clip", [x, low, high], "clipped")
    return graph.node("Cast", [x], "filtered", to=TensorProto.FLOAT)


def _scale_pixels(graph: GraphBuilder, x: str, spaces_: EnvSpaces) -> str:
    """Add the scaling of images `x` to float32 of at most 1; return the name of the result.

    Returns `x` itself for vectors, and for images that have this form already.
    """
    if not is_image(spaces_.network_input):
        return x
    if spaces_.observation_dtype == np.uint8:
        x = graph.node("Cast", [x], "float", to=TensorProto.FLOAT)
    return graph.unit_pixels(x, spaces_.divisor)


def _features(
    graph: GraphBuilder,
    x: str,
    weights: dict[str, Array],
    architecture: Architecture,
    shared: bool,
) -> str:
    """Add the layers that actor and critic share to `x`; return the name of their output (N, F).

    They are convolutions and, if `shared` is True, hidden layers.
    """
    if architecture.filters:
        x = graph.node("Transpose", [x], "channels_first", perm=[0, 3, 1, 2])
        for i, (_, _, stride) in enumerate(architecture.filters):
            x = graph.convolution(x, f"trunk.convolutions.{i}", weights, stride)
        x = graph.node("Flatten", [x], "convolved", axis=1)
    elif len(architecture.shape) > 1:
        x = graph.node("Flatten", [x], "flat", axis=1)
    if not (shared and architecture.hidden):
        return x
    x = graph.perceptron(x, "trunk.dense", weights, architecture.activation)
    return graph.node(architecture.activation.capitalize(), [x], "features")


def _run_lstm(graph: GraphBuilder, x: str, model: ActorCritic) -> str:
    """Add the model's LSTM to features `x`; return the name of its outputs, or `x` without one."""
    units = model.architecture.lstm
    if not units:
        return x
    graph.lstm(x, ("state_in_0", "state_in_1"), model.weights())
    for name, ends in (("state_in", graph.inputs), ("state_out", graph.outputs)):
        ends += [_value(f"{name}_{i}", np.dtype(np.float32), (units,)) for i in range(2)]
    return "state_out_0"


def head_columns(layout: ActionLayout) -> dict[str, slice]:
    """Return ``action_logits`` and ``action_mean`` → their columns of the actor's output.

    A name without columns is absent.
    """
    named = {
        "action_logits": slice(0, layout.logits),
        "action_mean": slice(layout.logits, layout.head_size),
    }
    return {name: columns for name, columns in named.items() if columns.start < columns.stop}


def _heads(graph: GraphBuilder, head: str, layout: ActionLayout, forbidden: str = "") -> list[Any]:
    """Add outputs ``action_logits`` (N, logits) and ``action_mean`` (N, G) to the graph.

    Outputs without columns are left out. `head` and `forbidden` are names as in `_outputs`. Returns
    ONNX's descriptions of the outputs.
    """
    outputs = []
    for name, columns in head_columns(layout).items():
        masked = forbidden and name == "action_logits"
        own = f"{name}:any" if masked else name
        graph.columns(head, np.arange(columns.start, columns.stop), own)
        if masked:
            graph.node("Add", [own, forbidden], name)
        outputs.append(_value(name, np.dtype(np.float32), (columns.stop - columns.start,)))
    return outputs


def _actions(
    graph: GraphBuilder,
    spaces_: EnvSpaces,
    layout: ActionLayout,
    measured: str,
    connectors: Connectors,
) -> list[Any]:
    """Add the greedy action, one output per part of the action space; return ONNX's descriptions.

    `measured` is the name of the action's real numbers, or empty without any.
    """
    choices, reals = list(layout.choice_columns), list(layout.real_columns)
    if choices:
        grid, absent = choice_grid(layout)
        logits = graph.columns("action_logits", grid.reshape(-1), "spread")
        shape = graph.constant("grid", np.array([-1, *grid.shape]))
        logits = graph.node("Reshape", [logits, shape], "logits")
        mask = graph.constant("absent", np.where(absent, NO_CHOICE, 0).astype(np.float32))
        logits = graph.node("Add", [logits, mask], "masked")
        best = graph.node("ArgMax", [logits], "best", axis=2, keepdims=0)
        low = bounds(spaces_.action)[0][choices]
        graph.node("Add", [best, graph.constant("start", low.astype(np.int64))], "chosen")
    if measured:
        measured = _scale_reals(graph, spaces_.action, measured, reals, connectors)
    outputs = []
    first = 0
    for name, leaf in named_leaves(spaces_.action, "action").items():
        last = first + int(np.prod(leaf.shape or ()))
        real = isinstance(leaf, spaces.Box)
        own = [i for i, c in enumerate(reals if real else choices) if first <= c < last]
        x = graph.columns(measured if real else "chosen", np.array(own, np.int64), f"{name}:own")
        shape = graph.constant(f"{name}:shape", np.array([-1, *(leaf.shape or ())]))
        x = graph.node("Reshape", [x, shape], f"{name}:shaped")
        kind = output_type(leaf)
        graph.node("Cast", [x], name, to=helper.np_dtype_to_tensor_dtype(kind))
        outputs.append(_value(name, kind, leaf.shape or ()))
        first = last
    return outputs


def _scale_reals(
    graph: GraphBuilder,
    action: spaces.Space[Any],
    measured: str,
    reals: list[int],
    connectors: Connectors,
) -> str:
    """Add scaling of real numbers to their bounds, and clipping; return the name of the result.

    Each is added only if `connectors` do it. `measured` is the name of the numbers, `reals` the
    indices of their columns of the action.
    """
    if (widen := connectors.adapter.spread) is not None:
        half, middle = (
            graph.constant("half", widen[0][reals]),
            graph.constant("middle", widen[1][reals]),
        )
        wide = graph.node("Mul", [measured, half], "spread_out")
        measured = graph.node("Add", [wide, middle], "unsquashed")
    leaves = named_leaves(action, "action").values()
    kinds = (output_type(leaf) for leaf in leaves if isinstance(leaf, spaces.Box))
    widest = np.result_type(np.float32, *kinds)
    if widest != np.float32:  # the float32 nearest to a bound may lie beyond it
        onnx_kind = helper.np_dtype_to_tensor_dtype(widest)
        measured = graph.node("Cast", [measured], "wide_action", to=onnx_kind)
    if not connectors.clip:
        return measured
    lowest, highest = (
        graph.constant(name, ends[reals].astype(widest))
        for name, ends in zip(("low", "high"), bounds(action), strict=True)
    )
    raised = graph.node("Max", [measured, lowest], "raised")
    return graph.node("Min", [raised, highest], "measured")


def _value(name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Return ONNX's description of an input or output (batch, *shape) of dtype `kind`."""
    onnx_kind = helper.np_dtype_to_tensor_dtype(kind)
    return helper.make_tensor_value_info(name, onnx_kind, ["batch", *shape])
