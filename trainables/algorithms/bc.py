"""Behaviour cloning (Pomerleau 1989): the policy learns to take the actions that are in files.

One iteration: read rows → shuffled minibatches → gradient steps on the negative log-likelihood of
the rows' actions, choices or Gaussians. B rows.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.errors import ConfigError, in_yaml
from trainables.learners.schedules import ScheduleConfig
from trainables.learners.statistics import on_host
from trainables.policies.policy import Scalar
from trainables.rollout.batch import Fragment, rows
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.steps import on_policy_step
from trainables.trainer.trainer import Trainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.learning.torch_policy import ActorCriticPolicy


class Config(TrainerConfig):
    """Settings of BC; the defaults suit classic control."""

    schedule: ScheduleConfig = ScheduleConfig(lr=1e-3)
    train_batch_size: int | None = Field(
        default=2000, gt=0, description="Minimum number of rows read per iteration."
    )
    num_sgd_iter: int = Field(
        default=1,
        gt=0,
        description="Number of passes over each iteration's rows. Usually 1 to 10.",
    )
    sgd_minibatch_size: int = Field(
        default=128, gt=0, description="Number of rows in a gradient step. Usually 32 to 512."
    )
    entropy_coeff: float = Field(
        default=0.0,
        ge=0,
        description="Weight of the entropy bonus; above 0, rare actions stay possible.",
    )
    grad_clip: float | None = Field(
        default=None,
        gt=0,
        description="Maximum norm of the gradient of all weights; null: no clipping.",
    )


class BC(Trainer):
    """Behaviour cloning: maximises the likelihood of recorded actions."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    learns_from_others: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    spreads_actions: ClassVar[bool] = True
    settings: Config
    policy: "ActorCriticPolicy"

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together, or not with BC.

        Among these are sampled experience, which BC would imitate, and an LSTM.
        """
        super().validate_config(settings)
        if not settings.offline.only_reads:
            problem = (
                "bc learns only from files, because it would otherwise imitate its own "
                f"actions, but input is {in_yaml(settings.offline.input)}"
            )
            hint = "set input to the files, without sampler (docs/offline.md)"
            raise ConfigError("input", settings.offline.input, hint=hint, problem=problem)
        if settings.model.use_lstm:
            why = "it learns from single rows, not from sequences"
            raise ConfigError.of_conflict("model.use_lstm", True, "bc", "false", why)

    def make_policy(self, device: str) -> "ActorCriticPolicy":
        """Return an actor-critic policy, of which only the actor is trained."""
        from trainables.policies.learning.torch_policy import build_policy

        networks = (self.spaces.layout, self.architecture)
        return build_policy(networks, self.settings.optimizer, self.seed, device)

    def training_step(self) -> dict[str, float]:
        """Read rows from files, learn from them, and return the means of statistics.

        Each row that is read counts as a step. Raises NotFiniteError if a loss or gradient is NaN
        or infinite.
        """
        return on_policy_step(self, self.learn)

    def learn(self, fragments: list[Fragment]) -> dict[str, float]:
        """Make gradient steps on minibatches of all rows of the fragments, `num_sgd_iter` times.

        The order is drawn from the stream ``minibatch``. Return the means of ``policy_loss``,
        ``entropy`` and ``grad_norm``, the norm before clipping. Raises NotFiniteError if a loss or
        gradient is NaN or infinite.
        """
        import torch

        unfiltered = np.concatenate([rows(one.observations) for one in fragments])
        observations = self.filter_rows({"observations": unfiltered})["observations"]
        actions = np.concatenate([rows(one.actions) for one in fragments])
        parts = -(-len(actions) // self.settings.sgd_minibatch_size)
        all_stats: list[dict[str, Scalar]] = []
        for _ in range(self.settings.num_sgd_iter):
            order = self.streams["minibatch"].permutation(len(actions))
            for chosen in np.array_split(order, parts):
                columns = {"observations": observations[chosen], "actions": actions[chosen]}
                device = self.policy.device
                batch = {name: torch.from_numpy(one).to(device) for name, one in columns.items()}
                loss, stats = self.loss(batch)
                norm = self.policy.minimise(loss, *self.gradient_step_settings())
                all_stats.append({**stats, "grad_norm": norm})
        fetched = on_host(all_stats)
        return {name: float(np.mean([one[name] for one in fetched])) for name in fetched[0]}

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, Mapping[str, Scalar]]":
        """Return the loss () of filtered observations and actions (B, …), and its parts.

        The parts are ``policy_loss``, the mean negative log-likelihood, and ``entropy``, which the
        loss subtracts times ``entropy_coeff``.
        """
        with self.policy.autocast():
            seen, taken = batch["observations"], batch["actions"]
            evaluated: Any = self.policy.model.evaluate(seen, taken, None)
        imitation, entropy = -evaluated.logp.mean(), evaluated.entropies.mean()
        stats: dict[str, Scalar] = {
            "policy_loss": imitation.detach(),
            "entropy": entropy.detach(),
        }
        return imitation - self.settings.entropy_coeff * entropy, stats

    def log_likelihoods(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return the policy's log-probabilities (R,) of `actions` for `observations` (R, *S).

        Actions are in the policy's numbers, and observations are filtered. For estimates of the
        return from recorded experience.
        """
        return self.policy.log_likelihoods(observations, actions)

    def gradient_step_settings(self) -> tuple[float, float | None]:
        """Return the present learning rate, and the largest norm of the gradient or None."""
        return self.learning_rate, self.settings.grad_clip
