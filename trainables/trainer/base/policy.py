"""One policy of a trainer, in the form of RLlib's policies. N observations."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.policies import filters as filters_
from trainables.policies.acting.actor import Weights
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.trainer.base.loop import TrainingLoop

if TYPE_CHECKING:
    from trainables.policies.learning.networks import Networks

Array = NDArray[Any]


class Policy:
    """The current policy of a trainer, with the methods and names of RLlib's policies."""

    def __init__(self, trainer: TrainingLoop) -> None:
        self._trainer = trainer

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Observation space of the environment, from which `compute_actions` takes observations."""
        return self._trainer.spaces.raw

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Action space of the environment, from which `compute_actions` returns actions."""
        return self._trainer.spaces.action

    @property
    def config(self) -> Mapping[str, Any]:
        """The trainer's flat settings with all defaults, read-only."""
        return self._trainer.config

    @property
    def model(self) -> "Networks":
        """The networks as a torch module, made at the first use if learning works without torch."""
        return self._trainer.policy.in_torch().model

    @property
    def global_timestep(self) -> int:
        """Environment steps that all workers had sampled at the last update of this number.

        It is updated before each iteration, with a replay before each round.
        """
        return self._trainer.policy.global_timestep

    def compute_actions(
        self,
        obs_batch: Sequence[Any],
        state_batches: Sequence[Array] | None = None,
        explore: bool = False,
        prev_action_batch: Sequence[Any] | None = None,
        prev_reward_batch: Sequence[float] | None = None,
    ) -> tuple[list[Any], list[Array], dict[str, Array]]:
        """Return actions for N raw observations, as `Trainer.compute_action` does for one.

        Args:
            obs_batch: N observations as the environment returns them.
            state_batches: parts of the state that the last call returned, each (N, …); None if
                episodes begin.
            explore: True to draw actions; otherwise they are the best ones.
            prev_action_batch: N last actions as the environment took them, if the policy reads
                them; None for those in the states.
            prev_reward_batch: N last rewards, if the policy reads them; None for those in the
                states.

        Returns:
            N actions as the environment takes them; the parts of the state for the next
            observations, each (N, …); and policy outputs, name → (N,).

        Raises:
            ValueError: there is no observation, or a state does not fit this policy.
        """
        trainer, count = self._trainer, len(obs_batch)
        if not count:
            raise ValueError("there are no observations; give at least one")
        if state_batches is None:
            state_batches = [np.stack([part] * count) for part in self.get_initial_state()]
        inference = trainer.inference
        states = [inference.join_state([part[i] for part in state_batches]) for i in range(count)]
        none = [None] * count
        previous = prev_action_batch or none, prev_reward_batch or none
        states = [inference.with_previous(*one) for one in zip(states, *previous, strict=True)]
        stream = trainer.acting_stream(explore)
        actions, following, fetches = inference.answer_all(obs_batch, np.stack(states), stream)
        parts = [inference.split_state(one) for one in following]
        return actions, [np.stack(part) for part in zip(*parts, strict=True)], fetches

    def compute_single_action(
        self,
        obs: Any,
        state: Sequence[Array] | None = None,
        explore: bool = False,
        prev_action: Any = None,
        prev_reward: float | None = None,
    ) -> tuple[Any, list[Array], dict[str, float]]:
        """Return one action, the state for the next observation, and policy outputs.

        See `Trainer.compute_action` for the arguments. `explore` is True to draw actions, from a
        stream that training never uses, False for the best ones. Raises ValueError if the state
        does not fit this policy.
        """
        inference, stream = self._trainer.inference, self._trainer.acting_stream(explore)
        given = self.get_initial_state() if state is None else state
        memory = inference.with_previous(inference.join_state(given), prev_action, prev_reward)
        action, following, fetches = inference.answer(obs, memory, stream)
        return action, inference.split_state(following), fetches

    def get_initial_state(self) -> list[Array]:
        """Return the recurrent state at the start of an episode as a list of arrays.

        The list is empty for a policy without such a state.
        """
        inference = self._trainer.inference
        return inference.split_state(inference.initial_memory())

    def get_weights(self) -> Weights:
        """Return a copy of every parameter by name."""
        return self._trainer.policy.weights()

    def set_weights(self, weights: Weights) -> None:
        """Load weights that `get_weights` returned, here and in every worker.

        Optimiser and filters keep their state. Raises ConfigError if they do not fit or are not
        finite; nothing is changed.
        """
        self._trainer.load_weights_here(weights, DEFAULT_POLICY_ID)
        self._trainer.broadcast()

    def get_state(self) -> dict[str, Any]:
        """Return ``weights``, ``optimizer`` (moments) and ``filters`` (states) as plain data."""
        seen = filters_.get_state(self._trainer.filters)
        return {**self._trainer.policy.get_state(), "filters": seen}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned, here and in every worker.

        Raises ValueError if it is the state of another policy.
        """
        self.load_state_here(state)
        self._trainer.broadcast()

    def load_state_here(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state` in this process only; workers keep what they have.

        Filters stay if it has no ``filters``. Raises ValueError, with nothing changed, if it is of
        another policy, or of one with other filters.
        """
        if missing := sorted({"weights", "optimizer"} - state.keys()):
            raise ValueError(f"the state of the policy lacks {missing[0]}")
        own = self._trainer.filters
        given = state.get("filters", filters_.get_state(own))
        if given.keys() != own.keys() or not all(
            _fits(one, given[name]) for name, one in own.items()
        ):
            raise ValueError("its policy used other filters of observations or rewards")
        self._trainer.policy.set_state(state)
        self._trainer.after_loading_weights()
        if "filters" in state:
            filters_.set_state(self._trainer.filters, state["filters"])

    def export_model(self, export_dir: str) -> str:
        """Write ``policy.onnx``, checked on observations from training; returns its path.

        Makes the folder. Raises ExportError if the policy cannot be written so, or the file acts
        differently.
        """
        return self._trainer.export_model("onnx", export_dir)["onnx"]


def _fits(own: filters_.Filter, state: Mapping[str, Any]) -> bool:
    """Return whether `state` is one of a filter of the same kind; True for filters of users."""
    is_known = isinstance(own, filters_.NoFilter | filters_.MeanStdFilter)
    return not is_known or state.keys() == own.get_state().keys()
