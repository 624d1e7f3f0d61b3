"""Results and policies in the form of classic RLlib trainers.

The module also lists the names of all results, so that a misspelt one is found at once. N
observations.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.core.results import OF_EVERY_RESULT, TRAINERS_OWN
from trainables.envs.make import EnvSpaces
from trainables.policies import filters as filters_
from trainables.policies.acting.actor import Weights
from trainables.policies.filters import Filter
from trainables.policies.inference import InferencePolicy
from trainables.policies.policy import Policy as LearningPolicy
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.trainer.config import TrainerConfig, has_policies

if TYPE_CHECKING:
    from trainables.policies.networks import Networks

Array = NDArray[Any]
#: First parts of the names that only results with `classic_results` have.
RESULTS = (
    *("info", "sampler_results"),
    *("policy_reward_mean", "policy_reward_min", "policy_reward_max"),
)
#: Entries of a result that `sampler_results` repeats.
_SAMPLED = (
    *("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean"),
    *("episodes_this_iter", "custom_metrics", "hist_stats"),
)


def is_classic(name: str) -> bool:
    """Return whether only results with `classic_results` have a metric of this name."""
    first, _, rest = name.partition("/")
    return first in RESULTS and (first[:6] != "policy" or rest == DEFAULT_POLICY_ID)


def results(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a result under the names of classic trainers.

    With several policies rewards and statistics are by policy already.
    """
    rewards = {
        name: result.get(name, {DEFAULT_POLICY_ID: result[f"episode{name[6:]}"]})
        for name in RESULTS
        if name[:6] == "policy" and f"episode{name[6:]}" in result
    }
    learner, sampled = result["learner"], result["timesteps_total"]
    if not any(isinstance(one, Mapping) for one in learner.values()):
        learner = {DEFAULT_POLICY_ID: learner}
    held = {name: result[name] for name in _SAMPLED if name in result}
    return {
        **rewards,
        "info": {"learner": learner, "num_steps_sampled": sampled},
        "sampler_results": {**held, **rewards},
    }


# ---- names of results: one that ends with ``/`` stands for all below it -------------------------

_OF_EPISODES = frozenset(
    {"episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean"}
)
_BY_POLICY = frozenset({"policy_reward_mean/", "policy_reward_min/", "policy_reward_max/"})
_OF_AGENTS = _BY_POLICY | {"agent_timesteps_total", "agent_timesteps_this_iter"}
_OF_EVALUATION = _OF_EPISODES | {"episodes", "num_faulty_episodes"}
_OF_TRAINING = frozenset(
    {
        *("num_faulty_episodes", "num_late_metrics", "num_healthy_workers", "train_batch_size"),
        *("exactness", "fake_sampler", "learner/", "weights_age/", "perf/"),
        *(f"{name}/" for name in TRAINERS_OWN),
    }
)


def result_names(settings: TrainerConfig) -> frozenset[str] | None:
    """Return the names of all results with these settings; None if callbacks may add any."""
    evaluation = settings.evaluation
    if settings.callbacks.callbacks or evaluation.evaluation_config.get("callbacks"):
        return None
    found = OF_EVERY_RESULT | _OF_EPISODES | _OF_TRAINING
    several = has_policies(settings.agents.multiagent)
    if several:
        found |= _OF_AGENTS
    if evaluation.evaluation_interval is not None:
        of_one = _OF_EVALUATION | (_BY_POLICY if several else frozenset())
        found |= {
            f"{part}/{name}" for part in ("evaluation", "evaluation_at_start") for name in of_one
        }
    if settings.offline.reads_experience:
        found |= {"off_policy/"}
    if settings.metrics.classic_results:
        found |= {f"{name}/" for name in RESULTS}
    return found


# ---- a policy by its name -----------------------------------------------------------------------


class Asked(Protocol):
    """The parts of a trainer that `Policy` needs; `Trainer` describes each."""

    config: Mapping[str, Any]
    spaces: EnvSpaces
    inference: InferencePolicy
    policy: LearningPolicy
    filters: dict[str, Filter]

    def compute_action(
        self, obs: Any, state: Sequence[Array] | None, *, full_fetch: bool, explore: bool
    ) -> Any:
        """See `Trainer`."""

    def acting_stream(self, explore: bool) -> np.random.Generator | None:
        """See `Trainer`."""

    def get_initial_state(self) -> list[Array]:
        """See `Trainer`."""

    def get_weights(self) -> dict[str, Weights]:
        """See `Trainer`."""

    def set_weights(self, weights: Mapping[str, Weights]) -> None:
        """See `Trainer`."""

    def broadcast(self) -> None:
        """See `Trainer`."""

    def export_policy_model(self, export_dir: str) -> str:
        """See `Trainer`."""


class Policy:
    """The current policy of a trainer, in the form of RLlib's policies.

    Args:
        trainer: trainer of the policy.
    """

    def __init__(self, trainer: Asked) -> None:
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
        """The trainer's settings."""
        return self._trainer.config

    @property
    def model(self) -> "Networks":
        """The networks as a torch module."""
        return self._trainer.policy.in_torch().model

    @property
    def global_timestep(self) -> int:
        """Environment steps that all workers had sampled before the latest iteration."""
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
            obs_batch: N observations as the environment gives them.
            state_batches: parts of the state that the last call returned, each (N, …); None if
                episodes begin.
            explore: True to draw actions; otherwise they are the best ones.
            prev_action_batch: N last actions as the environment took them, if the policy reads
                them; None for those in the states.
            prev_reward_batch: N last rewards, likewise.

        Returns:
            N actions as the environment takes them; the parts of the state for the next
            observations, each
            (N, …); and policy outputs, name → (N,).

        Raises:
            ValueError: there is no observation, or a state does not fit this policy.
        """
        trainer, count = self._trainer, len(obs_batch)
        if not count:
            raise ValueError("no observations; give at least one")
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
        self, obs: Any, state: Sequence[Array] | None = None, explore: bool = False
    ) -> tuple[Any, list[Array], dict[str, float]]:
        """Return one action, the state for the next observation, and policy outputs."""
        found: tuple[Any, list[Array], dict[str, float]] = self._trainer.compute_action(
            obs, state, full_fetch=True, explore=explore
        )
        return found

    def get_initial_state(self) -> list[Array]:
        """Return the parts of the state at the start of an episode; empty without a memory."""
        return self._trainer.get_initial_state()

    def get_weights(self) -> Weights:
        """Return a copy of every parameter by name."""
        return self._trainer.get_weights()[DEFAULT_POLICY_ID]

    def set_weights(self, weights: Weights) -> None:
        """Load weights that `get_weights` returned, here and in every worker.

        Raises:
            ConfigError: they do not fit; nothing is changed.
        """
        self._trainer.set_weights({DEFAULT_POLICY_ID: weights})

    def get_state(self) -> dict[str, Any]:
        """Return the weights, the state of the optimiser, and the states of the filters."""
        seen = filters_.get_state(self._trainer.filters)
        return {**self._trainer.policy.get_state(), "filters": seen}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned, here and in every worker.

        Raises:
            ValueError: it is the state of another policy.
        """
        self.adopt(state)
        self._trainer.broadcast()

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Restore a state as `set_state` does, in this process only."""
        self._trainer.policy.set_state(state)
        if "filters" in state:
            filters_.set_state(self._trainer.filters, state["filters"])

    def export_model(self, export_dir: str) -> str:
        """Write ``policy.onnx``, checked on observations that the trainer saw; returns its path."""
        return self._trainer.export_policy_model(export_dir)
