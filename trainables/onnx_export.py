"""The policy as one ONNX file that needs none of this to run, checked before it is handed over.

    observation (N, *O) float32 → action_logits (N, A) or action_mean (N, A), action, value (N,)

Before the file is handed over it is run with onnxruntime on observations that the trial really saw,
and compared with the trainer's own numbers. N rows, *O the environment's observation shape, A
choices or action dimensions.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.make import EnvSpaces
from trainables.errors import NotFiniteError, TrainableError
from trainables.filters import Filter, MeanStdFilter
from trainables.policies.networks import ActorCritic
from trainables.policies.player import Player

Array = NDArray[Any]
FILE_NAME = "policy.onnx"
TOLERANCE = 1e-5


@dataclass(frozen=True)
class PolicyParts:
    """What an exported policy is made from."""

    model: ActorCritic
    observation_filter: Filter
    spaces: EnvSpaces
    clip_actions: bool
    player: Player
    """The trainer's own way of acting, which the file is compared with."""

    @property
    def head_name(self) -> str:
        """Name of the output that the actor network gives."""
        return "action_logits" if self.spaces.discrete else "action_mean"


class ExportError(TrainableError):
    """The exported policy does not do what the trained one does."""


def export(parts: PolicyParts, recent: Array, folder: Path) -> Path:
    """Write ``policy.onnx`` into `folder`, checked and whole or not at all; returns its path.

    Args:
        parts: of the trained policy.
        recent: (n, D) raw observations that the trial saw; zeros are used where there are none.
        folder: made if absent.

    Raises:
        NotFiniteError: NaN or infinity in the weights or the filter.
        ExportError: onnxruntime gives other numbers or other greedy actions.
    """
    _require_finite(parts)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".tmp-{os.getpid()}-{FILE_NAME}"
    try:
        temporary.write_bytes(_build(parts))
        check(parts, temporary, _observations(parts, recent))
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(folder / FILE_NAME)
    finally:
        temporary.unlink(missing_ok=True)
    return folder / FILE_NAME


def check(parts: PolicyParts, path: Path, observations: Array) -> None:
    """Compare the file with the policy on raw observations (n, *O), also in batches of 1 and 64."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    repeated = np.resize(observations, (64, *observations.shape[1:]))
    for batch in (observations, observations[:1], repeated):
        outputs = session.run([parts.head_name, "action", "value"], {"observation": batch})
        _compare(parts, batch, *outputs)


def describe(parts: PolicyParts) -> dict[str, Any]:
    """Inputs, outputs, action space, filter and size of the exported model, as plain data."""
    observed, acted = parts.spaces.observation, parts.spaces.action
    actions = [] if parts.spaces.discrete else list(acted.shape or ())
    return {
        "inputs": {
            "observation": {"shape": ["batch", *observed.shape], "dtype": "float32"},
        },
        "outputs": {
            parts.head_name: {"shape": ["batch", parts.spaces.action_size], "dtype": "float32"},
            "action": {
                "shape": ["batch", *actions],
                "dtype": "int64" if parts.spaces.discrete else "float32",
            },
            "value": {"shape": ["batch"], "dtype": "float32"},
        },
        "action_space": _describe_space(acted),
        "observation_filter": _describe_filter(parts.observation_filter),
        "parameters": sum(p.numel() for p in parts.model.parameters()),
    }


def _build(parts: PolicyParts) -> bytes:
    # Loaded only to export: training needs neither onnx nor an inference engine.
    from trainables import onnx_graph

    return onnx_graph.build(
        parts.model,
        parts.observation_filter,
        parts.spaces,
        parts.clip_actions,
        parts.head_name,
    )


def _compare(parts: PolicyParts, batch: Array, head: Array, action: Array, value: Array) -> None:
    expected_head, expected_value = parts.player.actor.forward(parts.player.prepare(batch))
    for name, seen, expected in (
        (parts.head_name, head, expected_head),
        ("value", value, expected_value),
    ):
        bound = TOLERANCE * max(1.0, float(np.abs(expected).max()))
        difference = float(np.abs(seen - expected).max())
        if seen.shape != expected.shape or not difference <= bound:
            raise ExportError(
                f"{name} of the exported policy differs from the trained one by {difference}; "
                f"at most {bound} is allowed for a batch of {len(batch)}"
            )
    _compare_actions(parts, batch, action, expected_head)


def _compare_actions(parts: PolicyParts, batch: Array, action: Array, head: Array) -> None:
    expected = parts.player.act(batch, None)
    if parts.spaces.discrete:
        best = np.sort(head, axis=1)
        clear = best[:, -1] - best[:, -2] > 2 * TOLERANCE if head.shape[1] > 1 else np.array([True])
        agree = bool((action == expected)[clear].all())
    else:
        agree = bool(np.allclose(action, expected, rtol=TOLERANCE, atol=TOLERANCE))
    if not agree:
        raise ExportError("greedy actions of the exported policy differ from the trained one's")


def _observations(parts: PolicyParts, recent: Array) -> Array:
    shape = parts.spaces.observation.shape
    if len(recent) == 0:
        return np.zeros((1, *shape), dtype=np.float32)
    return np.asarray(recent, dtype=np.float32).reshape(-1, *shape)


def _require_finite(parts: PolicyParts) -> None:
    arrays: Mapping[str, Array] = parts.model.weights()
    if isinstance(parts.observation_filter, MeanStdFilter):
        mean, std = parts.observation_filter.mean, parts.observation_filter.std
        arrays = {**arrays, "filter mean": mean, "filter deviation": std}
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise NotFiniteError(
                f"{name} has values that are not finite: such a policy is not exported"
            )


def _describe_space(space: spaces.Discrete | spaces.Box) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    return {
        "kind": "Box",
        "shape": list(space.shape),
        "low": space.low.reshape(-1).tolist(),
        "high": space.high.reshape(-1).tolist(),
    }


def _describe_filter(one: Filter) -> dict[str, Any]:
    if not isinstance(one, MeanStdFilter):
        return {"kind": type(one).__name__}
    return {
        "kind": "MeanStdFilter",
        "clip": one.clip,
        "count": one.counted,
        "mean": one.mean.tolist(),
        "std": one.std.tolist(),
    }
