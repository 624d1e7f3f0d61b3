"""A trainer's policy in files: the model in each format, and the weights alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium.spaces import Dict, Tuple
from numpy.typing import NDArray

from trainables.checkpoint import file
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.connectors import Connectors
from trainables.envs.spaces.leaves import named_leaves
from trainables.errors import CheckpointError, ConfigError, SigningError, in_yaml, shorten
from trainables.policies.acting.actor import Weights
from trainables.policies.acting.inference import InferencePolicy, Note
from trainables.policies.filters import Filter
from trainables.policies.onnx import export, formats
from trainables.policies.onnx.formats import FILES
from trainables.policies.policy import Policy

#: Ending of files in the format safetensors.
SUFFIX = ".safetensors"
#: The constant of an exported graph that scales observations as a filter does.
FILTERED = "deviation"


class ExportedPolicy(InferencePolicy):
    """The policy in an exported file, which plays its greedy actions in environments.

    Args:
        path: the exported file.
        spaces: spaces of the environment.
        memory_size: length of the networks' recurrent state; 0 without one.
        connectors: connectors of training.
    """

    def __init__(
        self, path: Path, spaces: EnvSpaces, memory_size: int, connectors: Connectors
    ) -> None:
        self.spaces, self.connectors = spaces, connectors
        self._memory = np.zeros(memory_size + connectors.memory_size, dtype=np.float32)
        self._size = memory_size
        self._run = formats.load_model(path)

    def split(self, memory: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the networks' part and the connectors' part of states (…, M), as views."""
        return memory[..., : self._size], memory[..., self._size :]

    def clipping(self, clip_actions: bool) -> Self:
        """Return the policy itself, since the file contains the bounds of actions."""
        return self

    def initial_memory(self) -> NDArray[Any]:
        """Return the state (M,) at the start of an episode: zeros, always the same array."""
        return self._memory

    def act_each(
        self,
        observations: NDArray[Any],
        memory: NDArray[Any],
        streams: Sequence[np.random.Generator | None],
        note: Note | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the most probable action of each row (N, …), and the states (N, M) after them.

        Actions that are tuples or dicts are flat, (N, K). `streams` and `note` are ignored: nothing
        is drawn, and an exported policy plays without callbacks.
        """
        rows = observations.reshape(len(observations), *self.spaces.row_shape)
        given = {**export.raw_inputs(self, rows), **export.memory_inputs(self, memory)}
        outputs = self._run(given)
        memories, carried = self.split(memory)
        if memories.size:
            memories = np.concatenate([outputs[name] for name in export.STATES_OUT], axis=1)
        leaves = [outputs[name] for name in named_leaves(self.spaces.action, "action")]
        flat = np.concatenate([leaf.reshape(len(rows), -1) for leaf in leaves], 1)
        chosen = self.connectors.adapter.inverse(flat)
        _, carried = self.connectors.observe(rows, carried)
        following = self.next_memories(chosen, memories, carried)
        nested = isinstance(self.spaces.action, Tuple | Dict)
        return flat if nested else leaves[0], following


def save_weights(weights: Weights, path: Path) -> str:
    """Write weights, without filters, to a safetensors file; returns `path` as text.

    Makes the folder, and replaces a former file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    from safetensors.numpy import save_file  # not at the top: few trainers write one

    save_file(dict(weights), path)
    return str(path)


def read_weights(path: str | Path, expected: Weights) -> Weights:
    """Return the weights in a safetensors file, which must have those names and shapes.

    Raises CheckpointError if the file cannot be read, or has other names or shapes, or NaN or
    infinity.
    """
    from safetensors.numpy import load_file

    try:
        found = load_file(path)
    except Exception as error:
        raise CheckpointError(path, f"it is not a safetensors file: {error}") from error
    if problem := find_mismatch(found, expected):
        raise CheckpointError(path, problem)
    return found


class Trained(NamedTuple):
    """A trained policy as a file holds it."""

    weights: Weights
    """Name → array."""
    filter_state: Mapping[str, Any] | None = None
    """State of the policy's observation filter; None for a safetensors file, empty without a
    filter."""
    spreads_actions: bool | None = None
    """Value of ``normalize_actions`` with which the policy has learnt; None if the file does not
    say."""


def read_policy(path: str, name: str) -> Trained:
    """Return a trained policy from a file. No code in the file is run.

    Args:
        path: a checkpoint, a safetensors file with weights (exported or alone), or a folder with
            one of these, such as a trial's. Of a folder, weights are preferred to checkpoints, of
            which the latest is read. ``~`` is the home folder.
        name: name of the policy in a checkpoint or folder with several; ignored if there is one.

    Raises:
        CheckpointError: there is no such policy, the file cannot be read, or it is an exported one
            that contains a filter.
        SigningError: the key that signs checkpoints cannot be used.
    """
    source = _find_file(Path(path).expanduser(), name)
    if source.suffix == SUFFIX:
        from safetensors.numpy import load_file

        try:
            weights = load_file(source)
        except Exception as error:
            raise CheckpointError(source, f"it is not a safetensors file: {error}") from error
        if FILTERED in weights:
            why = "the filter in this file cannot be trained further; name a checkpoint instead"
            raise CheckpointError(source, why)
        return Trained(weights)
    members = _members_of(file.read(source).state, name)
    if name not in members and len(members) == 1:
        name = next(iter(members))
    if name not in members:
        there = ", ".join(members) or "none"
        raise CheckpointError(
            source, f"it contains no policy {name!r}; the policies in it are {there}"
        )
    own = members[name]
    collected = own.get("collected")
    spreads = collected.get("normalize_actions") if isinstance(collected, Mapping) else None
    known = spreads if isinstance(spreads, bool) else None
    return Trained(own["policy"]["weights"], own["filters"]["observation"], known)


def _members_of(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return policy → its part of a checkpoint's `state`; a single policy is called `name`.

    It is empty for a trainable that is no trainer.
    """
    trainable = state.get("trainable")
    data = trainable.get("data") if isinstance(trainable, Mapping) else None
    members = data.get("members", {name: data}) if isinstance(data, Mapping) else {}
    if not isinstance(members, Mapping):
        return {}
    return {str(pid): one for pid, one in members.items() if _has_policy(one)}


def _has_policy(data: Any) -> bool:
    """Return whether `data` have weights and a filter where a trainer's checkpoint has them."""
    try:
        weights, observed = data["policy"]["weights"], data["filters"]["observation"]
    except (LookupError, TypeError):
        return False
    arrays = isinstance(weights, Mapping) and all(
        isinstance(one, np.ndarray) for one in weights.values()
    )
    return arrays and isinstance(observed, Mapping)


def read_source(key: str, path: str, name: str) -> Trained:
    """Return the results of `read_policy` for the file that the setting `key` names.

    Raises ConfigError, which names the key, if there is no such policy, or the file cannot be read.
    """
    try:
        return read_policy(path, name)
    except (CheckpointError, SigningError) as error:
        raise _source_error(key, path, str(error)) from error


def load_trained(
    policy: Policy,
    observation_filter: Filter,
    key: str,
    path: str,
    name: str,
    spreads_actions: bool | None,
) -> None:
    """Load a trained policy into `policy` and its observation filter, as `read_policy` finds it.

    Args:
        key: setting that names the file.
        path: a checkpoint, a safetensors file with weights, or a folder with one of these.
        name: name of the trained policy in a file with several; ignored if there is one.
        spreads_actions: value of ``normalize_actions``; None if it changes no action.

    Raises:
        ConfigError: there is no such policy, its weights do not fit, its filter is of another kind
            (a safetensors file has none), or its actions were scaled in another way; nothing is
            changed.
    """
    weights, state, spread_them = read_source(key, path, name)
    expected = policy.weights()
    if state is None:  # an exported graph has further constants of its own
        weights = {name: one for name, one in weights.items() if name in expected}
    if problem := find_mismatch(weights, expected):
        raise _source_error(key, path, problem)
    if (state or {}).keys() != observation_filter.get_state().keys():
        problem = "its policy was trained with another observation_filter; set the same one"
        raise _source_error(key, path, problem)
    if None not in (spreads_actions, spread_them) and spreads_actions != spread_them:
        learnt = in_yaml(spread_them)
        problem = f"its policy was trained with normalize_actions: {learnt}; set this value"
        raise _source_error(key, path, problem)
    policy.load_weights(weights)
    observation_filter.set_state(state or {})


def _source_error(key: str, path: str, problem: str) -> ConfigError:
    """Return an error which says that a policy cannot start from the file at `path`.

    `key` is the setting that names the file.
    """
    allowed = "a checkpoint or safetensors file of a policy that fits, or a folder with one"
    problem = f"the policy cannot start from {shorten(path)}: {problem}"
    return ConfigError(key, path, allowed, problem=problem)


def _find_file(path: Path, name: str) -> Path:
    """Return `path` itself, or if it is a folder the file of weights, else the latest checkpoint.

    Weights are also looked for in the subfolder `name`, the policy's name, first. The latest
    checkpoint has the most steps in its name. Raises CheckpointError if there is neither.
    """
    if not path.is_dir():
        return path
    for folder in (path / name, path):
        for plain in (FILES[formats.SAFETENSORS], f"model{SUFFIX}", f"checkpoint/model{SUFFIX}"):
            if (folder / plain).is_file():
                return folder / plain
    saved = {one: file.parse_name(one.name) for one in path.iterdir()}
    steps = {one: of[0] for one, of in saved.items() if of}
    if not steps:
        raise CheckpointError(
            path, "this folder contains neither a checkpoint nor a safetensors file"
        )
    return max(steps, key=lambda one: steps[one])


def export_formats(
    policy: Policy,
    inference: InferencePolicy,
    recent: NDArray[np.generic],
    formats: Sequence[str],
    folder: Path,
) -> dict[str, str]:
    """Write a file of each format, and return format → path.

    Beside the formats of files there are ``model``, a folder with onnx, and ``checkpoint``, a
    folder with the weights, which are not checked.

    Args:
        inference: the trainer's policy for acting, with which each file is compared.
        recent: preprocessed observations (n, *S) from training, on which they are compared.

    Raises:
        ConfigError: an unknown format; those before it in `formats` are written then.
        ExportError: the policy cannot be written in this format, or the file acts differently.
    """
    written: dict[str, str] = {}
    for name in formats:
        if name in FILES:
            written[name] = str(export.export(policy, inference, recent, folder, name))
        elif name == "model":
            written[name] = str(export.export(policy, inference, recent, folder / name).parent)
        elif name == "checkpoint":
            save_weights(policy.weights(), folder / name / f"model{SUFFIX}")
            written[name] = str(folder / name)
        else:
            allowed = f"{', '.join(FILES)}, model or checkpoint"
            problem = f"there is no format {shorten(name)}"
            raise ConfigError("format", name, allowed, problem=problem)
    return written


def find_mismatch(weights: Weights, expected: Weights) -> str:
    """Return why `weights` do not fit a policy whose weights are `expected`; empty if they fit.

    Names and shapes must be equal, and all numbers finite. Lists count as arrays.
    """
    for name, weight in expected.items():
        if name not in weights:
            return f"{name} is missing; expected shape {weight.shape}"
        try:
            given = np.asarray(weights[name])
        except (TypeError, ValueError):  # for example lists of different lengths
            return f"{name} is no array; expected shape {weight.shape}"
        if given.shape != weight.shape:
            return f"{name} has shape {given.shape}; expected {weight.shape}"
        if not np.can_cast(given.dtype, np.float64, "same_kind"):
            return f"{name} has values of type {given.dtype}; expected numbers"
        if not np.isfinite(given).all():
            return f"{name} holds NaN or infinity"
    more = sorted(set(weights) - set(expected))
    return f"this policy has no {', '.join(more)}" if more else ""
