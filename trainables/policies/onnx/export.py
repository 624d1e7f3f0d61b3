"""Export of a policy to one file that runs without this project, compared before it is published.

    observation (N, *O) → action_logits (N, logits), action_mean (N, G), action, value (N,)

An actor without a critic has no ``value``. If it squashes its means, ``action_mean`` is the mean
before that. Outputs and cells of an LSTM are inputs ``state_in_0`` and ``state_in_1`` (N, U), zeros
at the start of an episode, and outputs ``state_out_0`` and ``state_out_1`` for the next step. A
Tuple or a Dict has one input or output per leaf: ``observation.key``, ``action.0``. A file is run
as its format requires (`formats`) on observations from training, and its outputs are compared with
the trainer's, before it gets its name. N rows, *O the environment's observation shape, *S the
preprocessed one, G real numbers of an action, U units of an LSTM.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionAdapter, ActionLayout, spread
from trainables.envs.spaces.connectors import Filtering, PreviousAction, PreviousReward
from trainables.envs.spaces.leaves import leaf_paths, leaf_values, named_leaves
from trainables.errors import ExportError, NotFiniteError
from trainables.policies.acting.distributions import NO_CHOICE, choice_grid
from trainables.policies.acting.inference import InferencePolicy
from trainables.policies.filters import MeanStdFilter, feature_filter
from trainables.policies.onnx import formats, plain
from trainables.policies.policy import Policy

Array = NDArray[Any]
#: Largest difference between numbers of at most 1 of the file and of the policy.
TOLERANCE = 1e-5
#: Names of the file's inputs of recurrent state.
STATES_IN = ("state_in_0", "state_in_1")
#: Names of the file's outputs of recurrent state.
STATES_OUT = ("state_out_0", "state_out_1")


def export(
    policy: Policy,
    inference: InferencePolicy,
    recent: Array,
    folder: Path,
    form: str = formats.ONNX,
) -> Path:
    """Write the policy's file into `folder`, complete and checked or not at all; return its path.

    A former file is replaced. With the format safetensors, the program that reads the file is
    copied beside it as `formats.READER`.

    Args:
        policy: learning policy, whose `onnx_graph` is written.
        inference: the trainer's own policy for acting, with which the file is compared.
        recent: preprocessed observations (n, *S) from training; zeros are used if there are none.
        folder: folder of the file, which is made if it does not exist.
        form: format, a key of `formats.FILES`.

    Raises:
        NotFiniteError: the weights or the filter have NaN or infinity.
        ConfigError: the observation filter is a user's own.
        ExportError: the policy cannot be written in this format, as with a user's preprocessor, or
            the file returns other numbers or other greedy actions.
    """
    if (own := inference.spaces.preprocessor_path) is not None:
        why = "is your own code, which an exported model cannot contain; use a checkpoint instead"
        raise ExportError(f"how observations are made (model.custom_preprocessor: {own}) {why}")
    _require_finite(policy, inference.connectors.filter)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / formats.FILES[form]
    temporary = folder / f".tmp-{os.getpid()}-{path.name}"
    try:
        seen = inference.spaces
        graph = policy.onnx_graph(seen, inference.connectors)
        formats.write(graph, temporary)
        if not len(recent):
            kind = inference.connectors.row_dtype
            recent = np.zeros((1, *seen.row_shape), dtype=kind)
        check(inference, formats.load_model(temporary), recent)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if form == formats.SAFETENSORS:
        shutil.copyfile(str(plain.__file__), folder / formats.READER)
    return path


def check(inference: InferencePolicy, run: formats.Run, observations: Array) -> None:
    """Compare a file's outputs with the policy's on preprocessed observations (n, *S).

    They are compared in one batch, and in batches of 1 and 64; with states, such as those of an
    LSTM or a frame stack, also as one sequence. `run` calls the file; it gets the raw observations
    from which these were made.

    Raises ExportError if the file returns other numbers or other greedy actions.
    """
    repeated = np.resize(observations, (64, *observations.shape[1:]))
    for batch in (observations, observations[:1], repeated):
        _compare_sequence(inference, run, [batch])
    if inference.initial_memory().size:
        _compare_sequence(inference, run, list(observations[:, None]))


def _compare_sequence(inference: InferencePolicy, run: formats.Run, batches: list[Array]) -> None:
    """Compare file and policy on successive batches (N, *S) of N episodes from their start on.

    File and policy each pass their own recurrent states on to the next batch.

    Raises ExportError if they differ.
    """
    memory = np.stack([inference.initial_memory()] * len(batches[0]))
    states: dict[str, Array] = {}
    for batch in batches:
        given = {
            **raw_inputs(inference, batch),
            **memory_inputs(inference, memory),
            **states,
        }
        outputs = run(given)
        memory = _compare(inference, batch, memory, outputs)
        states = {
            name: outputs[_output_name(name)] for name in given if _output_name(name) in outputs
        }


def _output_name(name: str) -> str:
    """Return the name of the file's output that is its input `name` in the next step.

    Returns `name` itself if it is not the name of a state.
    """
    return name.replace("_in_", "_out_")


def memory_inputs(inference: InferencePolicy, memory: Array) -> dict[str, Array]:
    """Return the file's inputs other than observations for states (N, M): name → array (N, …).

    They are the LSTM's ``state_in_0`` and ``state_in_1``, stacked frames ``frames_in_<number>``,
    ``prev_reward``, and ``prev_action``, or one name per leaf that begins with it. Those that the
    policy does not have are absent.
    """
    from trainables.policies.onnx.graph import output_type

    own, carried = inference.split(memory)
    given = dict(zip(STATES_IN, np.split(own, 2, axis=1), strict=True)) if own.size else {}
    connectors, spaces_ = inference.connectors, inference.spaces
    for i, one in enumerate(connectors.before):
        given[f"frames_in_{i}"] = carried[:, connectors.parts[one]]
    if (part := connectors.part(PreviousReward)) is not None:
        given["prev_reward"] = carried[:, part][:, 0]
    if (part := connectors.part(PreviousAction)) is not None:
        free = ActionAdapter(spaces_.action, False, connectors.normalize)  # zeros may be no action
        rows = carried[:, part].astype(spaces_.layout.dtype)
        sent = free(rows[:, 0] if spaces_.layout.scalar else rows)
        taken = map(connectors.at_env.act, sent)
        given |= _leaf_inputs(spaces_.action, taken, "prev_action", output_type)
    return given


def _leaf_inputs(
    space: spaces.Space[Any],
    values: Iterable[Any],
    name: str,
    kind: Callable[[spaces.Space[Any]], np.dtype[Any]],
) -> dict[str, Array]:
    """Return the file's inputs for N elements of a space: name of each leaf → array (N, …).

    A leaf is a part of a Tuple or Dict, or the space itself; its name begins with `name`. `kind`
    returns the dtype of a leaf's array.
    """
    rows = [leaf_values(space, one) for one in values]
    return {
        port: np.stack([row[i] for row in rows]).astype(kind(leaf))
        for i, (port, leaf) in enumerate(named_leaves(space, name).items())
    }


def describe(policy: Policy, inference: InferencePolicy) -> dict[str, Any]:
    """Return a description of the exported file as plain data.

    Entries are ``inputs`` and ``outputs``, each name → ``shape`` and ``dtype``, with ``path`` for a
    part of a Tuple or Dict, and ``first`` for a state that does not begin with zeros; and
    ``action_space``, ``observation_filter``, and ``parameters``, the number of weights.
    """
    from trainables.policies.onnx import graph

    taken, layout = inference.spaces.action, inference.spaces.layout
    first = memory_inputs(inference, inference.initial_memory()[None])
    valued = inference.actor.value_names
    return {
        "inputs": {
            **_describe_leaves(inference.spaces.raw, "observation", _input_type(inference)),
            **{name: _describe_first(one) for name, one in first.items()},
        },
        "outputs": {
            **{
                name: {"shape": ["batch", columns.stop - columns.start], "dtype": "float32"}
                for name, columns in graph.head_columns(layout).items()
            },
            **_describe_leaves(taken, "action", graph.output_type),
            **({"value": {"shape": ["batch"], "dtype": "float32"}} if valued else {}),
            **{
                _output_name(n): _describe_array(one)
                for n, one in first.items()
                if _output_name(n) != n
            },
        },
        "action_space": _describe_space(taken),
        "observation_filter": _describe_filter(inference.connectors.filter),
        "parameters": sum(weight.size for weight in policy.weights().values()),
    }


def _describe_array(rows: Array) -> dict[str, Any]:
    """Return ``shape``, ["batch", …], and ``dtype``, a text, of rows (N, …)."""
    return {"shape": ["batch", *rows.shape[1:]], "dtype": str(rows.dtype)}


def _describe_first(rows: Array) -> dict[str, Any]:
    """Return ``shape`` and ``dtype`` of an input, whose value at an episode's start is `rows`.

    `rows` is (1, …). ``first`` is that value as nested lists, absent if it is zeros.
    """
    first = {"first": rows[0].tolist()} if rows.any() else {}
    return {**_describe_array(rows), **first}


def _describe_leaves(
    space: spaces.Space[Any], name: str, kind: Callable[[spaces.Space[Any]], np.dtype[Any]]
) -> dict[str, Any]:
    """Return name of each leaf of a space → ``shape``, ["batch", …], ``dtype`` and ``path``.

    A leaf is a part of a Tuple or Dict, or the space itself; ``path`` has the keys that lead to a
    part, and is left out for a space without parts. Names begin with `name`, and `kind` returns the
    dtype of a leaf.
    """
    named = named_leaves(space, name).items()
    return {
        port: {
            "shape": ["batch", *(leaf.shape or ())],
            "dtype": str(kind(leaf)),
            **({"path": path} if path else {}),
        }
        for (port, leaf), path in zip(named, leaf_paths(space), strict=True)
    }


def raw_inputs(inference: InferencePolicy, batch: Array) -> dict[str, Array]:
    """Return the file's inputs for preprocessed observations (n, *S): name → raw array (n, …)."""
    own = map(inference.connectors.at_env.invert, batch)
    return _leaf_inputs(inference.spaces.raw, own, "observation", _input_type(inference))


def _input_type(inference: InferencePolicy) -> Callable[[spaces.Space[Any]], np.dtype[Any]]:
    """Return a function from a leaf of the observation space to the dtype of the file's input."""
    from trainables.policies.onnx.graph import input_type

    return partial(input_type, exact=inference.connectors.is_exact)


def _compare(
    inference: InferencePolicy, batch: Array, memory: Array, outputs: Mapping[str, Array]
) -> Array:
    """Compare outputs of the file with those of the policy for one batch.

    Args:
        batch: preprocessed observations (n, *S).
        memory: the policy's states (n, M) before them.
        outputs: the file's outputs by name for the same observations and states.

    Returns:
        The policy's states (n, M) for the next step.

    Raises:
        ExportError: numbers or greedy actions differ.
    """
    from trainables.policies.onnx.graph import head_columns

    filtered, memories, _ = inference.prepare(batch, memory)
    head, value, following = inference.actor.advance(filtered, memories)
    valued = {"value": value} if inference.actor.value_names else {}
    layout = inference.spaces.layout
    expected = {name: head[:, columns] for name, columns in head_columns(layout).items()}
    if following.size:
        expected.update(zip(STATES_OUT, np.split(following, 2, axis=1), strict=True))
    allowed = {name: _tolerance(numbers) for name, numbers in {**expected, **valued}.items()}
    for name, numbers in {**expected, **valued}.items():
        output = outputs[name]
        difference = float(np.abs(output - numbers).max())
        if output.shape != numbers.shape or not difference <= allowed[name]:
            raise ExportError(
                f"{name} of the exported policy differs from the trained one by {difference}; "
                f"at most {allowed[name]} is allowed for a batch of {len(batch)}; use a checkpoint "
                "instead"
            )
    sent, acted = inference.decide(batch, memory, None)
    actions = [inference.connectors.at_env.act(row) for row in sent]
    off = allowed.get("action_mean", TOLERANCE)
    _compare_actions(
        inference.spaces.action, actions, outputs, _unambiguous_rows(layout, head), off
    )
    memories, carried = inference.split(acted.memory)
    rewards = np.ones(len(batch))  # the value does not matter, since both get the same
    return np.concatenate([memories, inference.connectors.after_rewards(carried, rewards)], axis=1)


def _tolerance(numbers: Array) -> float:
    """Return the largest allowed difference: `TOLERANCE` times the largest of 1 and |numbers|.

    Logits of invalid choices do not count.
    """
    valid = numbers > NO_CHOICE
    return TOLERANCE * max(1.0, float(np.abs(numbers[valid]).max(initial=0.0)))


def _unambiguous_rows(layout: ActionLayout, head: Array) -> NDArray[np.bool_]:
    """Return flags (n,), True for rows in which rounding cannot change the best choice.

    There the highest logit of each column of choices leads by more than 2 · `TOLERANCE`. All are
    True without choices. `head` (n, …) are the actor's outputs.
    """
    grid, absent = choice_grid(layout)
    if not grid.size or grid.shape[1] == 1:
        return np.ones(len(head), dtype=np.bool_)
    best = np.sort(np.where(absent, NO_CHOICE, head[:, grid]), axis=2)
    clear: NDArray[np.bool_] = (best[..., -1] - best[..., -2] > 2 * TOLERANCE).all(axis=1)
    return clear


def _compare_actions(
    space: spaces.Space[Any],
    actions: Sequence[Any],
    outputs: Mapping[str, Array],
    clear: NDArray[np.bool_],
    tolerance: float,
) -> None:
    """Raise ExportError if greedy actions of the file differ from the policy's.

    Args:
        actions: the policy's actions, elements of `space`.
        outputs: the file's outputs by name.
        clear: flags (n,) of rows to compare, as `_unambiguous_rows` returns them.
        tolerance: largest allowed difference of means before they are scaled to their bounds.
    """
    rows = [leaf_values(space, action) for action in actions]
    if (widened := spread(space)) is not None:
        tolerance *= max(1.0, float(widened[0].max()))
    for i, name in enumerate(named_leaves(space, "action")):
        expected = np.stack([row[i] for row in rows])
        seen = outputs[name]
        real = expected.dtype.kind == "f"
        rounding = max(TOLERANCE, float(np.finfo(expected.dtype).eps)) if real else 0.0
        close = np.isclose(seen, expected, rtol=rounding, atol=tolerance if real else 0.0)
        if seen.shape != expected.shape or not close[clear].all():
            raise ExportError(
                f"greedy actions ({name}) of the exported policy differ from the trained one's; "
                "use a checkpoint instead"
            )


def _require_finite(policy: Policy, filtering: Filtering) -> None:
    """Raise NotFiniteError if the weights or the filter have NaN or infinity."""
    arrays, filtering = policy.weights(), feature_filter(filtering)
    if isinstance(filtering, MeanStdFilter):
        arrays |= {"filter mean": filtering.mean, "filter deviation": filtering.std}
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise NotFiniteError(
                f"{name} has values that are not finite, so the policy is of no use; export an "
                "earlier checkpoint, or another trial"
            )


def _describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return an action space as plain data: ``kind``, its class, and what describes this kind.

    These are ``n``, ``nvec``, ``start``, ``shape``, ``dtype``, ``low`` and ``high``, or ``spaces``
    with the parts of a Tuple or Dict. Bounds are flat lists, with None for an infinite one.
    """
    if isinstance(space, spaces.Dict):
        parts: Any = {name: _describe_space(part) for name, part in space.spaces.items()}
        return {"kind": "Dict", "spaces": parts}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [_describe_space(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    described: dict[str, Any] = {"kind": type(space).__name__, "shape": list(space.shape or ())}
    if isinstance(space, spaces.Box):
        described["dtype"] = str(space.dtype)
        for name in ("low", "high"):
            ends = getattr(space, name).reshape(-1).tolist()
            described[name] = [end if math.isfinite(end) else None for end in ends]
    if isinstance(space, spaces.MultiDiscrete):
        described |= {name: getattr(space, name).reshape(-1).tolist() for name in ("nvec", "start")}
    return described


def _describe_filter(filtering: Filtering) -> dict[str, Any]:
    """Return the ``kind`` of a filter and, of a `MeanStdFilter`, its statistics as plain data.

    These are ``clip``, ``count``, ``mean`` and ``std``. A filter for threads has the kind
    ``MeanStdFilter``, too.
    """
    filtering = feature_filter(filtering)
    if not isinstance(filtering, MeanStdFilter):
        return {"kind": type(filtering).__name__}
    return {
        "kind": "MeanStdFilter",
        "clip": filtering.clip,
        "count": filtering.row_count,
        "mean": filtering.mean.tolist(),
        "std": filtering.std.tolist(),
    }
