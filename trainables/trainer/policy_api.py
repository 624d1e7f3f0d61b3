"""The trainer's policy for callers: single actions, weights, gradients, and it as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor

from trainables.envs.make import EnvSpaces
from trainables.errors import CheckpointError, ConfigError
from trainables.policies.actor import Weights
from trainables.policies.filters import Filter
from trainables.policies.inference import InferencePolicy
from trainables.policies.onnx import export
from trainables.policies.torch_policy import TorchPolicy
from trainables.rollout.access import DEFAULT_POLICY_ID, require_policy
from trainables.rollout.batch import TrainBatch
from trainables.trainable import Trainable
from trainables.trainer.config import TrainerConfig

# -------------------------------------------------------------------------------------------------
# A trained policy answers single observations, as whoever deploys it would ask it.


class ComputesActions:
    """What a trainer that holds a player can be asked.

    Needs ``inference``, and ``streams`` with one named ``compute_action``.
    """

    inference: InferencePolicy
    streams: Mapping[str, np.random.Generator]

    def compute_action(
        self,
        obs: Any,
        state: Sequence[NDArray[Any]] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Mapping[str, Any] | None = None,
        policy_id: str = DEFAULT_POLICY_ID,
        full_fetch: bool = False,
        explore: bool = False,
    ) -> Any:
        """The action for one raw observation, both as the environment knows them.

        The observation is preprocessed and filtered (without update), the action mapped back.
        Training is not disturbed: what is drawn comes from a stream of its own.

        Args:
            obs: as the environment gives it: an array, a number, a tuple, a dict.
            state: what the last answer gave for this episode; None: as an episode begins.
            prev_action: not read by this policy.
            prev_reward: not read by this policy.
            info: not read by this policy.
            policy_id: ``default_policy``.
            full_fetch: also tell how the action was chosen.
            explore: draw it; otherwise it is the most probable one.

        Returns:
            The action; with a state or `full_fetch` (action, state, fetches), where fetches are
            ``logp`` and ``value``, and the state is for the next observation.

        Raises:
            ConfigError: no such policy.
            ValueError: a state that is not this policy's.
        """
        require_policy(policy_id)
        stream = self.streams["compute_action"] if explore else None
        given = self.get_initial_state() if state is None else state
        memory = self.inference.join_state(given)
        action, following, fetches = self.inference.answer(obs, memory, stream)
        if state is None and not full_fetch:
            return action
        return action, self.inference.split_state(following), fetches

    def get_initial_state(self) -> list[NDArray[Any]]:
        """With which an episode begins: of an LSTM outputs and cells (U,); [] without one."""
        return self.inference.split_state(self.inference.initial_memory())


# -------------------------------------------------------------------------------------------------
# The trainer's policy for callers: its weights, its gradients, and it as files.
#
# There is one policy, ``default_policy``. B rows.

SUFFIX = ".safetensors"


class PolicyAccess(Trainable):
    """What a trainer offers of its policy."""

    settings: TrainerConfig
    policy: TorchPolicy
    filters: dict[str, Filter]
    spaces: EnvSpaces
    inference: InferencePolicy
    recent: NDArray[Any]

    # ---- what an algorithm writes --------------------------------------------------------------

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """The loss () of the columns of a `TrainBatch`, and its parts; for single gradients."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no loss(batch), so it has no gradients to give"
        )

    def gradient_step(self) -> tuple[float, float | None]:
        """The learning rate now, and the bound on the norm of the whole gradient or None."""
        raise NotImplementedError(f"{type(self).__name__} defines no gradient_step()")

    def broadcast(self) -> None:
        """Give the policy's weights to everything that acts with them."""
        raise NotImplementedError

    # ---- weights and gradients -----------------------------------------------------------------

    def get_policy(self, policy_id: str = DEFAULT_POLICY_ID) -> TorchPolicy | None:
        """The policy with this name; None if there is none."""
        return self.policy if policy_id == DEFAULT_POLICY_ID else None

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Weights]:
        """Policy → weights, copied; of these policies or of all."""
        for pid in policies or ():
            require_policy(pid)
        wanted = policies is None or DEFAULT_POLICY_ID in policies
        return {DEFAULT_POLICY_ID: self.policy.model.weights()} if wanted else {}

    def set_weights(self, weights: Mapping[str, Weights]) -> None:
        """Adopt policy → weights, here and in every worker; the optimiser's moments stay.

        Raises:
            ConfigError: other names or shapes than this policy's, or NaN; nothing is changed.
        """
        for pid, one in weights.items():
            require_policy(pid)
            if problem := _decode_error(one, self.policy.model.weights()):
                raise ConfigError(f"weights.{pid}", sorted(one), "this policy's weights", problem)
            self.policy.model.load_weights(one)
        self.broadcast()

    def compute_gradients(
        self, batch: TrainBatch
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Parameter → gradient of the loss of B rows, and the loss's parts and ``batch_count``."""
        loss, parts = self.loss(self._columns(batch))
        return self.policy.compute_gradients(loss), {**parts, "batch_count": len(batch)}

    def apply_gradients(self, gradients: Mapping[str, NDArray[Any]]) -> float:
        """One step of the optimiser, here and in every worker; returns the gradient's norm."""
        norm = self.policy.apply_gradients(gradients, *self.gradient_step())
        self.broadcast()
        return norm

    def learn_on_batch(self, batch: TrainBatch) -> dict[str, dict[str, float]]:
        """One gradient step on B rows; policy → the loss's parts and ``batch_count``."""
        loss, parts = self.loss(self._columns(batch))
        norm = self.policy.minimise(loss, *self.gradient_step())
        self.broadcast()
        info = {**parts, "batch_count": len(batch), "grad_norm": norm}
        return {DEFAULT_POLICY_ID: info}

    # ---- files ---------------------------------------------------------------------------------

    def export_policy_model(self, export_dir: str, policy_id: str = DEFAULT_POLICY_ID) -> str:
        """``policy.onnx``, checked on observations that this trainer really saw; its path."""
        require_policy(policy_id)
        return str(export.export(self._policy_parts(), self.recent, Path(export_dir)))

    def export_policy_checkpoint(
        self,
        export_dir: str,
        filename_prefix: str = "model",
        policy_id: str = DEFAULT_POLICY_ID,
    ) -> str:
        """The weights, without filters, as ``{prefix}.safetensors``; its path."""
        require_policy(policy_id)
        path = Path(export_dir) / f"{filename_prefix}{SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(self.policy.model.weights(), path)
        return str(path)

    def import_policy_weights(self, path: str | Path, policy_id: str = DEFAULT_POLICY_ID) -> None:
        """Adopt weights that `export_policy_checkpoint`, or another program, wrote.

        Raises:
            CheckpointError: no such weights in the file; nothing is changed.
        """
        require_policy(policy_id)
        try:
            found = load_file(path)
        except Exception as error:
            raise CheckpointError(path, f"it is no safetensors file: {error}") from error
        if problem := _decode_error(found, self.policy.model.weights()):
            raise CheckpointError(path, problem)
        self.set_weights({policy_id: found})

    def describe_model(self) -> dict[str, Any]:
        """What the exported model takes and gives: plain data for its card."""
        return export.describe(self._policy_parts())

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """``onnx``: one file; ``model``: it in a folder of its own; ``checkpoint``: the weights."""
        folder = Path(export_dir)
        written: dict[str, str] = {}
        for name in export_formats:
            if name == "onnx":
                written[name] = self.export_policy_model(export_dir)
            elif name == "model":
                self.export_policy_model(str(folder / name))
                written[name] = str(folder / name)
            elif name == "checkpoint":
                self.export_policy_checkpoint(str(folder / name))
                written[name] = str(folder / name)
            else:
                raise ConfigError("format", name, "onnx, model or checkpoint")
        return written

    def _policy_parts(self) -> export.PolicyParts:
        return export.PolicyParts(
            model=self.policy.model,
            observation_filter=self.filters["observation"],
            spaces=self.spaces,
            clip_actions=self.settings.sampling.clip_actions,
            inference=self.inference,
        )

    def _columns(self, batch: TrainBatch) -> dict[str, Tensor]:
        device = self.policy.device
        return {name: torch.from_numpy(c).to(device) for name, c in batch.columns().items()}


def _decode_error(found: Weights, expected: Weights) -> str:
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
