"""The policy as one file that needs none of this to run, checked before it is handed over.

    observation (N, *O) → action_logits (N, logits), action_mean (N, G), action, value (N,)

An actor without a critic has no ``value``; where it squashes its means, ``action_mean`` is before.
An LSTM's outputs and cells are inputs ``state_in_0`` and ``state_in_1`` (N, U), zeros where an
episode begins, and outputs ``state_out_0`` and ``state_out_1`` for the next step. A Tuple or a Dict
has one input or output per leaf: ``observation.key``, ``action.0``. Before the file is handed over
it is run, in the way of its format (`formats`), on observations that the trial really saw, and
compared with the trainer's own numbers. N rows, *O the environment's observation shape, *S the
preprocessed one, G real numbers of an action, U units of an LSTM.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionLayout, unflattener
from trainables.envs.spaces.leaves import leaf_paths, leaf_values, named_leaves
from trainables.envs.spaces.observations import make_preprocessor
from trainables.errors import ExportError, NotFiniteError
from trainables.policies.distributions import NO_CHOICE, choice_grid
from trainables.policies.filters import Filter, MeanStdFilter, of_features
from trainables.policies.inference import InferencePolicy
from trainables.policies.onnx import formats, plain

if TYPE_CHECKING:
    from trainables.policies.torch_policy import TorchPolicy

Array = NDArray[Any]
TOLERANCE = 1e-5
STATES_IN = ("state_in_0", "state_in_1")
STATES_OUT = ("state_out_0", "state_out_1")


def export(
    policy: "TorchPolicy",
    inference: InferencePolicy,
    recent: Array,
    folder: Path,
    form: str = formats.ONNX,
) -> Path:
    """Write the policy's file into `folder`, checked and whole or not at all; returns its path.

    Args:
        policy: that was trained.
        inference: the trainer's own way of acting, which the file is compared with.
        recent: (n, *S) preprocessed observations that the trial saw; one of zeros if there is none.
        folder: made if absent.
        form: a format, see `formats.FILES`.

    Raises:
        NotFiniteError: NaN or infinity in the weights or the filter.
        ExportError: the policy writes no graph, or the file gives other numbers or other greedy
            actions.
    """
    if (own := inference.spaces.own) is not None:
        why = "is code of your own, which no file of these formats holds"
        raise ExportError(f"how observations are made (model.custom_preprocessor: {own}) {why}")
    _require_finite(policy, inference.observation_filter)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / formats.FILES[form]
    temporary = folder / f".tmp-{os.getpid()}-{path.name}"
    try:
        seen = inference.spaces
        graph = policy.onnx_graph(inference.observation_filter, seen, inference.clip_actions)
        formats.write(graph, temporary)
        if not len(recent):
            recent = np.zeros((1, *seen.observation_shape), dtype=seen.observation_dtype)
        check(inference, formats.opened(temporary), recent)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if form == formats.SAFETENSORS:
        shutil.copyfile(str(plain.__file__), folder / formats.READER)
    return path


def check(inference: InferencePolicy, run: formats.Run, observations: Array) -> None:
    """Compare a file with the policy on observations (n, *S), also in batches of 1 and 64.

    What goes into the file is the raw observations that these were made from. A policy with a
    memory is compared over the observations as one sequence, too.
    """
    repeated = np.resize(observations, (64, *observations.shape[1:]))
    for batch in (observations, observations[:1], repeated):
        _compare_sequence(inference, run, [batch])
    if inference.actor.memory_size:
        _compare_sequence(inference, run, list(observations[:, None]))


def _compare_sequence(inference: InferencePolicy, run: formats.Run, batches: list[Array]) -> None:
    """Compare step after step; the file and the policy each take their own state along."""
    memory = inference.actor.initial_memory(len(batches[0]))
    states = dict(zip(STATES_IN, np.split(memory, 2, axis=1), strict=True)) if memory.size else {}
    for batch in batches:
        outputs = run({**raw_inputs(inference.spaces, batch), **states})
        memory = _compare(inference, batch, memory, outputs)
        states = {i: outputs[o] for i, o in zip(STATES_IN, STATES_OUT, strict=True) if i in states}


def describe(policy: "TorchPolicy", inference: InferencePolicy) -> dict[str, Any]:
    """Inputs, outputs, action space, filter and size of the exported model, as plain data."""
    from trainables.policies.onnx import graph

    taken, layout = inference.spaces.action, inference.spaces.layout
    units, valued = inference.actor.memory_size // 2, inference.actor.judged
    state = {"shape": ["batch", units], "dtype": "float32"}
    return {
        "inputs": {
            **_describe_leaves(inference.spaces.raw, "observation", graph.input_type),
            **{name: state for name in STATES_IN if units},
        },
        "outputs": {
            **{
                name: {"shape": ["batch", columns.stop - columns.start], "dtype": "float32"}
                for name, columns in graph.heads(layout).items()
            },
            **_describe_leaves(taken, "action", graph.output_type),
            **({"value": {"shape": ["batch"], "dtype": "float32"}} if valued else {}),
            **{name: state for name in STATES_OUT if units},
        },
        "action_space": _describe_space(taken),
        "observation_filter": _describe_filter(inference.observation_filter),
        "parameters": sum(p.numel() for p in policy.model.parameters()),
    }


def _describe_leaves(
    space: spaces.Space[Any], name: str, kind: Callable[[spaces.Space[Any]], np.dtype[Any]]
) -> dict[str, Any]:
    """Shape and type of each leaf, and the keys that lead to it in a Tuple or Dict."""
    named = named_leaves(space, name).items()
    return {
        port: {
            "shape": ["batch", *(leaf.shape or ())],
            "dtype": str(kind(leaf)),
            **({"path": path} if path else {}),
        }
        for (port, leaf), path in zip(named, leaf_paths(space), strict=True)
    }


def raw_inputs(spaces_: EnvSpaces, batch: Array) -> dict[str, Array]:
    """What the file is fed for preprocessed observations (n, *S)."""
    from trainables.policies.onnx.graph import input_type

    preprocessor = make_preprocessor(spaces_.raw)
    rows = [leaf_values(spaces_.raw, preprocessor.invert(row)) for row in batch]
    leaves = named_leaves(spaces_.raw, "observation")
    return {
        name: np.stack([row[i] for row in rows]).astype(input_type(leaf))
        for i, (name, leaf) in enumerate(leaves.items())
    }


def _compare(
    inference: InferencePolicy, batch: Array, memory: Array, outputs: Mapping[str, Array]
) -> Array:
    """The policy's memory for the next step."""
    from trainables.policies.onnx.graph import heads

    head, value, following = inference.actor.advance(inference.prepare(batch), memory)
    valued = {"value": value} if inference.actor.judged else {}
    layout = inference.spaces.layout
    expected = {name: head[:, columns] for name, columns in heads(layout).items()}
    if following.size:
        expected.update(zip(STATES_OUT, np.split(following, 2, axis=1), strict=True))
    for name, numbers in {**expected, **valued}.items():
        valid = numbers > NO_CHOICE
        bound = TOLERANCE * max(1.0, float(np.abs(numbers[valid]).max(initial=0.0)))
        seen = outputs[name]
        difference = float(np.abs(seen - numbers).max())
        if seen.shape != numbers.shape or not difference <= bound:
            raise ExportError(
                f"{name} of the exported policy differs from the trained one by {difference}; "
                f"at most {bound} is allowed for a batch of {len(batch)}"
            )
    sent, _ = inference.decide(batch, memory, None)
    _compare_actions(inference.spaces.action, sent, outputs, _clear(layout, head))
    return following


def _clear(layout: ActionLayout, head: Array) -> NDArray[np.bool_]:
    """(n,) rows in which no choice has another one that is as probable."""
    grid, absent = choice_grid(layout)
    if not grid.size or grid.shape[1] == 1:
        return np.ones(len(head), dtype=np.bool_)
    best = np.sort(np.where(absent, NO_CHOICE, head[:, grid]), axis=2)
    clear: NDArray[np.bool_] = (best[..., -1] - best[..., -2] > 2 * TOLERANCE).all(axis=1)
    return clear


def _compare_actions(
    taken: spaces.Space[Any],
    sent: Array,
    outputs: Mapping[str, Array],
    clear: NDArray[np.bool_],
) -> None:
    unflatten = unflattener(taken)
    rows = [leaf_values(taken, unflatten(row)) for row in sent]
    for i, name in enumerate(named_leaves(taken, "action")):
        expected = np.stack([row[i] for row in rows])
        seen = outputs[name]
        close = np.isclose(seen, expected, rtol=TOLERANCE, atol=TOLERANCE)
        if seen.shape != expected.shape or not close[clear].all():
            raise ExportError(
                f"greedy actions ({name}) of the exported policy differ from the trained one's"
            )


def _require_finite(policy: "TorchPolicy", one: Filter) -> None:
    arrays, one = policy.model.weights(), of_features(one)
    if isinstance(one, MeanStdFilter):
        arrays |= {"filter mean": one.mean, "filter deviation": one.std}
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise NotFiniteError(
                f"{name} has values that are not finite: such a policy is not exported"
            )


def _describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Dict):
        parts: Any = {name: _describe_space(part) for name, part in space.spaces.items()}
        return {"kind": "Dict", "spaces": parts}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [_describe_space(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    described: dict[str, Any] = {"kind": type(space).__name__, "shape": list(space.shape or ())}
    numbers = {spaces.Box: ("low", "high"), spaces.MultiDiscrete: ("nvec", "start")}
    for name in numbers.get(type(space), ()):
        described[name] = getattr(space, name).reshape(-1).tolist()
    return described


def _describe_filter(one: Filter) -> dict[str, Any]:
    one = of_features(one)
    if not isinstance(one, MeanStdFilter):
        return {"kind": type(one).__name__}
    return {
        "kind": "MeanStdFilter",
        "clip": one.clip,
        "count": one.counted,
        "mean": one.mean.tolist(),
        "std": one.std.tolist(),
    }
