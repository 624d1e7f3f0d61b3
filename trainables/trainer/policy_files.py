"""A trainer's policy in files: the ONNX model, and the weights alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from trainables.errors import CheckpointError, ConfigError
from trainables.policies.actor import Weights
from trainables.policies.inference import InferencePolicy
from trainables.policies.onnx import export

if TYPE_CHECKING:
    from trainables.policies.torch_policy import TorchPolicy

SUFFIX = ".safetensors"


def save_weights(weights: Weights, path: Path) -> str:
    """Write weights, without filters, for any program that reads safetensors; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(dict(weights), path)
    return str(path)


def read_weights(path: str | Path, expected: Weights) -> Weights:
    """Weights of the same names and shapes as `expected`, from a file.

    Raises:
        CheckpointError: no such weights in the file.
    """
    try:
        found = load_file(path)
    except Exception as error:
        raise CheckpointError(path, f"it is no safetensors file: {error}") from error
    if problem := misfit(found, expected):
        raise CheckpointError(path, problem)
    return found


def export_formats(
    policy: "TorchPolicy",
    inference: InferencePolicy,
    recent: NDArray[np.generic],
    formats: Sequence[str],
    folder: Path,
) -> dict[str, str]:
    """``onnx``: one file; ``model``: it in a folder of its own; ``checkpoint``: the weights."""
    written: dict[str, str] = {}
    for name in formats:
        if name == "onnx":
            written[name] = str(export.export(policy, inference, recent, folder))
        elif name == "model":
            written[name] = str(export.export(policy, inference, recent, folder / name).parent)
        elif name == "checkpoint":
            save_weights(policy.model.weights(), folder / name / f"model{SUFFIX}")
            written[name] = str(folder / name)
        else:
            raise ConfigError("format", name, "onnx, model or checkpoint")
    return written


def misfit(found: Weights, expected: Weights) -> str:
    """What keeps `found` from being this policy's weights; empty if nothing does."""
    for name, weight in expected.items():
        if name not in found:
            return f"{name} is missing; expected shape {weight.shape}"
        if found[name].shape != weight.shape:
            return f"{name} has shape {found[name].shape}; expected {weight.shape}"
        if not np.isfinite(found[name]).all():
            return f"{name} holds NaN or infinity"
    more = sorted(set(found) - set(expected))
    return f"this policy has no {', '.join(more)}" if more else ""
