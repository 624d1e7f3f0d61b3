"""A trainer's policy in files: the model in each format, and the weights alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from gymnasium.spaces import Dict, Tuple
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.leaves import named_leaves
from trainables.errors import CheckpointError, ConfigError
from trainables.policies.actor import Weights
from trainables.policies.inference import InferencePolicy
from trainables.policies.onnx import export, formats
from trainables.policies.onnx.formats import FILES

if TYPE_CHECKING:
    from trainables.policies.torch_policy import TorchPolicy

SUFFIX = ".safetensors"


class ExportedPolicy(InferencePolicy):
    """The policy in an exported file: its greedy actions in environments of these spaces.

    `memory_size` numbers are what it carries from step to step.
    """

    def __init__(self, path: Path, spaces: EnvSpaces, memory_size: int) -> None:
        self.spaces = spaces
        self._memory = np.zeros(memory_size, dtype=np.float32)
        self._run = formats.opened(path)

    def clipping(self, clip_actions: bool) -> Self:
        """Itself: the bounds of actions stand in the file."""
        return self

    def initial_memory(self) -> NDArray[Any]:
        """(M,) with which an episode begins."""
        return self._memory

    def act_each(
        self,
        observations: NDArray[Any],
        memory: NDArray[Any],
        streams: Sequence[np.random.Generator | None],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The most probable actions, whatever the streams, and the next memory."""
        rows = observations.reshape(len(observations), *self.spaces.observation_shape)
        inputs = export.raw_inputs(self.spaces, rows)
        if self._memory.size:
            inputs |= dict(zip(export.STATES_IN, np.split(memory, 2, axis=1), strict=True))
            outputs = self._run(inputs)
            memory = np.concatenate([outputs[name] for name in export.STATES_OUT], axis=1)
        else:
            outputs = self._run(inputs)
        leaves = [outputs[name] for name in named_leaves(self.spaces.action, "action")]
        if isinstance(self.spaces.action, Tuple | Dict):
            return np.concatenate([leaf.reshape(len(rows), -1) for leaf in leaves], 1), memory
        return leaves[0], memory


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
    """A file of each format, or ``model``: onnx in a folder; ``checkpoint``: the weights alone."""
    written: dict[str, str] = {}
    for name in formats:
        if name in FILES:
            written[name] = str(export.export(policy, inference, recent, folder, name))
        elif name == "model":
            written[name] = str(export.export(policy, inference, recent, folder / name).parent)
        elif name == "checkpoint":
            save_weights(policy.model.weights(), folder / name / f"model{SUFFIX}")
            written[name] = str(folder / name)
        else:
            raise ConfigError("format", name, f"{', '.join(FILES)}, model or checkpoint")
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
