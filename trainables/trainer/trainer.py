"""The trainer that every algorithm completes: sample → learn → synchronise → evaluate → result.

An algorithm's file defines a config, a policy and `training_step`. `save_checkpoint` contains
everything that affects the future except for the settings.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from trainables.core.results import LoggerCreator
from trainables.core.settings import override, parse
from trainables.envs.exactness import measuring
from trainables.evaluation.play import Played
from trainables.learners.statistics import on_host
from trainables.policies import filters as filters_
from trainables.policies.acting.actor import Weights
from trainables.policies.onnx import export
from trainables.rollout.batch import TrainBatch
from trainables.rollout.workers.access import DEFAULT_POLICY_ID, name_of_policy, named_policy
from trainables.trainable import TrialContext
from trainables.trainer import policy_files
from trainables.trainer.base.algorithm import AUTO
from trainables.trainer.base.loop import TrainingLoop
from trainables.trainer.base.policy import Policy
from trainables.trainer.evaluation import PeriodicEvaluation

if TYPE_CHECKING:
    from torch import Tensor


class Trainer(TrainingLoop):
    """Base of all algorithms; also works without a sweep: ``PPO({"env": "CartPole-v1"}).train()``.

    Args:
        env: takes precedence over ``config["env"]``. Like every trainable, a trainer may also be
            given its context here: ``PPO(config, TrialContext(seed=1))``.
        logger_creator: makes a logger from the settings, which gets every result; its ``logdir``
            takes precedence over that of the context.

    Raises:
        ConfigError: settings that do not work.
        NotImplementedError: a subclass lacks ``config_class``, `make_policy` or `training_step`.
        TypeError: there are two contexts.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        env: str | type | Callable[..., Any] | TrialContext | None = None,
        logger_creator: LoggerCreator | None = None,
        context: TrialContext | None = None,
    ) -> None:
        if isinstance(env, TrialContext):
            if context is not None:
                raise TypeError("the context was given twice, as env and as context; give it once")
            env, context = None, env
        needed = ("config_class", "make_policy", "training_step")
        above = type(self).mro()[: type(self).mro().index(Trainer)]
        missing = [name for name in needed if not any(name in vars(one) for one in above)]
        if missing:
            raise NotImplementedError(f"{type(self).__name__} must define {', '.join(missing)}")
        given = {} if env is None else {"env": env}
        super().__init__({**(config or {}), **given}, context, logger_creator)

    @property
    def raw_user_config(self) -> dict[str, Any]:
        """A copy of the given settings, without defaults."""
        return copy.deepcopy(dict(self._given))

    # ---- evaluation -----------------------------------------------------------------------------

    def play(
        self,
        episodes: int,
        seed: int,
        video: Path | None = None,
        window: bool = False,
        most_steps: float = math.inf,
    ) -> list[dict[str, float]]:
        """Play new episodes as evaluations do, with frozen filters and `evaluation_config`.

        Args:
            seed: seed of environments and actions; with equal weights it determines the episodes.
            video: folder for ``episode-1.mp4`` and so on; None for no videos.
            window: True to show the environment in a window.
            most_steps: maximum number of environment steps of all episodes; without effect with
                pictures.

        Returns:
            ``episode_reward`` and ``episode_len`` of each episode.

        Raises:
            ConfigError: there is no screen for a window, PyAV is missing, or the environment gives
                no pictures.
            TooManySteps: the episodes take more than `most_steps` steps.
        """
        self._update_exploration()
        with self._limited_threads():
            return _episodes(self.evaluation.play(episodes, seed, video, window, most_steps))

    @classmethod
    def play_exported(
        cls,
        file: Path,
        card: Mapping[str, Any],
        episodes: int,
        seed: int,
        video: Path | None = None,
        window: bool = False,
    ) -> list[dict[str, float]]:
        """Play episodes with an exported policy as `play` does, without callbacks and exploration.

        Args:
            file: the exported file.
            card: description that was exported with it: ``config``, the trainer's settings, and
                ``model``.

        Returns:
            ``episode_reward`` and ``episode_len`` of each episode.

        Raises:
            ConfigError: the settings do not work, or there are no pictures, as with `play`.
        """
        plain = {**card["config"], "callbacks": None}
        if own := plain.get("evaluation_config"):
            plain["evaluation_config"] = {k: v for k, v in own.items() if k != "callbacks"}
        settings = cls._settle_stepping(parse(cls.config_class, plain))
        seen = measuring.inspect(settings.environment)
        if settings.sampling.normalize_actions == AUTO:
            chosen = cls._checked_choice(settings, seen)["normalize_actions"]
            settings = override(settings, {"normalize_actions": chosen}, "config")
        spaces = seen.spaces
        inputs = card["model"]["inputs"]
        memory = sum(inputs[name]["shape"][1] for name in export.STATES_IN if name in inputs)
        sampling = settings.sampling
        connectors = spaces.connected(
            "compute_action",
            filters_.NoFilter(),
            sampling.clip_actions,
            sampling.spreads_actions,
            exact=any(one["dtype"] == "float64" for one in inputs.values()),
        )
        policy = policy_files.ExportedPolicy(file, spaces, memory, connectors)
        evaluation = PeriodicEvaluation(settings, seed, policy, None, lambda: None)
        return _episodes(evaluation.play(episodes, seed, video, window))

    # ---- actions --------------------------------------------------------------------------------

    def compute_action(
        self,
        obs: Any,
        state: Sequence[NDArray[Any]] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Mapping[str, Any] | None = None,
        policy_id: str = "",
        full_fetch: bool = False,
        explore: bool = False,
    ) -> Any:
        """Return the action for one observation, both in the form of the environment's spaces.

        The observation is preprocessed and filtered (without updating the filter), and the
        policy's output is converted to the action space. Training is not disturbed: drawn actions
        use their own stream.

        Args:
            obs: observation as the environment returns it: an array, a number, a tuple, a dict.
            state: state that the last call returned for this episode; None at its start.
            prev_action: last action as the environment took it, if the policy reads it
                (`lstm_use_prev_action`); None for that in `state`, if there is one.
            prev_reward: last reward, if the policy reads it (`lstm_use_prev_reward`); None for
                that in `state`, if there is one.
            info: not used.
            policy_id: name of the policy; optional if there is only one.
            full_fetch: True to return state and outputs as well, also without a `state`.
            explore: True to draw the action; otherwise it is the most probable one.

        Returns:
            The action; with a state or `full_fetch` (action, state, outputs), where the state is
            for the next observation, and the outputs are ``logp`` and ``value`` of an actor-critic,
            and none of dqn, sac and td3.

        Raises:
            ConfigError: there is no such policy.
            ValueError: the state does not fit this policy.
        """
        policy = Policy(self.member(policy_id))
        found = policy.compute_single_action(obs, state, explore, prev_action, prev_reward)
        return found[0] if state is None and not full_fetch else found

    compute_single_action = compute_action

    def compute_actions(
        self, observations: Mapping[Any, Any], explore: bool = False
    ) -> dict[Any, Any]:
        """Return name → action, for raw observations by name, as `compute_action` does for one.

        For a policy with a memory each observation begins an episode; `Policy.compute_actions`
        takes states. `explore` is True to draw actions, False for the best ones. Without
        observations the dict is empty.
        """
        if not observations:
            return {}
        actions, _, _ = Policy(self).compute_actions(list(observations.values()), None, explore)
        return dict(zip(observations, actions, strict=True))

    def get_initial_state(self, policy_id: str = "") -> list[NDArray[Any]]:
        """Return the recurrent state with which an episode of a policy begins, a list of arrays.

        For an LSTM they are outputs and cells, each (U,); without such a state the list is empty.

        Raises ConfigError if there is no such policy.
        """
        return Policy(self.member(policy_id)).get_initial_state()

    # ---- weights and gradients ------------------------------------------------------------------

    def member(self, policy_id: str = "") -> "Trainer":
        """Return the trainer that teaches one policy; with a single policy that is this one.

        The name is optional then. Raises ConfigError if there is no such policy, or the name is
        empty and there are several.
        """
        return self.members[name_of_policy(self.members, policy_id)]

    def get_policy(self, policy_id: str = "") -> Policy | None:
        """Return the policy with this name, or the only one; None if there is none."""
        member = named_policy(self.members, policy_id)
        return None if member is None else Policy(member)

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Weights]:
        """Return policy → copy of its weights, for these policies or for all if None.

        Raises ConfigError for an unknown policy.
        """
        chosen = self.members if policies is None else policies
        return {pid: self.member(pid).policy.weights() for pid in chosen}

    def set_weights(self, weights: Mapping[str, Weights]) -> None:
        """Load policy → weights, here and in every worker; the optimiser keeps its state.

        Policies that are not named keep their weights.

        Raises:
            ConfigError: there is no such policy, the names or shapes are not this policy's, or a
                number is not finite. No policy is changed, here or in a worker.
        """
        for pid, one in weights.items():
            self.member(pid).require_weights(one, pid)
        for pid, one in weights.items():
            self.member(pid).load_weights_here(one, pid)
        self.broadcast()

    def compute_gradients(
        self, batch: TrainBatch
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Return parameter → gradient of the loss of B rows, and the loss's parts.

        The parts, name → number, include ``batch_count``. Weights do not change. Raises
        NotFiniteError if the loss is not finite, NotImplementedError if the algorithm has no
        `loss`.
        """
        tensors = self._tensors(batch)
        loss, parts = self.loss(tensors)
        count = len(tensors["observations"])
        gradients = self.policy.in_torch().compute_gradients(loss)
        return gradients, {**on_host([parts])[0], "batch_count": count}

    def apply_gradients(self, gradients: Mapping[str, NDArray[Any]]) -> float:
        """Take one step of the optimiser with gradients (parameter → array).

        Every worker is sent the weights. Returns the norm of the gradient before clipping. Raises
        NotFiniteError, with the weights unchanged, if a gradient is not finite, and
        NotImplementedError if the algorithm has no `gradient_step_settings`.
        """
        norm = float(
            self.policy.in_torch().apply_gradients(gradients, *self.gradient_step_settings())
        )
        self.policy.require_finite()
        self.broadcast()
        return norm

    def learn_on_batch(self, batch: TrainBatch) -> dict[str, dict[str, float]]:
        """Take one gradient step on B rows, and return policy → the loss's parts.

        The parts include ``batch_count`` and ``grad_norm``, the norm before clipping. Every worker
        is sent the weights. Raises NotFiniteError, with the weights unchanged, if loss or gradient
        is not finite, and NotImplementedError if the algorithm supports no single steps.
        """
        loss, parts = self.loss(self._tensors(batch))
        norm = float(self.policy.in_torch().minimise(loss, *self.gradient_step_settings()))
        self.policy.require_finite()
        self.broadcast()
        info = {**on_host([parts])[0], "batch_count": len(batch), "grad_norm": norm}
        return {DEFAULT_POLICY_ID: info}

    def columns_learnt(self, batch: Any) -> Mapping[str, NDArray[Any]]:
        """Return column → (B, …) of a batch as `loss` reads them: here its `columns()`.

        Algorithms whose batches are of another type override it.
        """
        columns: Mapping[str, NDArray[Any]] = batch.columns()
        return columns

    def _tensors(self, batch: Any) -> "dict[str, Tensor]":
        """Return the columns of a batch as tensors on the policy's device: name → (B, …)."""
        import torch

        device = self.policy.in_torch().device
        columns = self.columns_learnt(batch)
        return {name: torch.from_numpy(one).to(device) for name, one in columns.items()}

    # ---- files ----------------------------------------------------------------------------------

    def export_policy_model(self, export_dir: str, policy_id: str = "") -> str:
        """Write ``policy.onnx``, checked on observations from training; returns its path.

        The folder is made, and a former file replaced. Raises ConfigError if there is no such
        policy, ExportError if the policy cannot be written so, or the file acts differently.
        """
        return self.member(policy_id)._export_model(["onnx"], export_dir)["onnx"]

    def export_policy_checkpoint(
        self,
        export_dir: str,
        filename_prefix: str = "model",
        policy_id: str = "",
    ) -> str:
        """Write the weights, without filters, as ``{prefix}.safetensors``; returns its path.

        The folder is made, and a former file replaced. Raises ConfigError if there is no such
        policy.
        """
        path = Path(export_dir) / f"{filename_prefix}{policy_files.SUFFIX}"
        return policy_files.save_weights(self.member(policy_id).policy.weights(), path)

    def import_policy_weights(self, path: str | Path, policy_id: str = "") -> None:
        """Load weights that `export_policy_checkpoint`, or another program, wrote.

        Every worker is sent them; the optimiser keeps its state. Raises CheckpointError if the file
        has no such weights, and ConfigError if there is no such policy; nothing is changed then.
        """
        name = name_of_policy(self.members, policy_id)
        found = policy_files.read_weights(path, self.members[name].policy.weights())
        self.set_weights({name: found})

    import_model = import_policy_weights

    def describe_model(self) -> dict[str, Any]:
        """Return inputs, outputs and size of the exported model, as plain data for its card.

        Nothing is written.
        """
        return export.describe(self.policy, self.inference)

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Write the policy in these formats, and return format → path.

        ``onnx`` and others are one file, ``model`` is a folder, ``checkpoint`` a folder with
        weights. Raises ConfigError for an unknown format, ExportError if the policy cannot be
        written in one.
        """
        return policy_files.export_formats(
            self.policy, self.inference, self.recent, export_formats, Path(export_dir)
        )


def _episodes(played: Sequence[Played]) -> list[dict[str, float]]:
    """Return ``episode_reward`` and ``episode_len`` of episodes, as `Trainable.play` does."""
    found = [one.metrics for one in played]
    return [{"episode_reward": m.total_reward, "episode_len": float(m.length)} for m in found]
