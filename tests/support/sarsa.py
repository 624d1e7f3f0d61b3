"""Expected SARSA (van Seijen et al. 2009) with a replay, as a plugin: a family of its own.

It learns the values of choices under its own exploring, not those of the best choices. B rows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot, smooth_l1_loss

from trainables.learners.replay import ReplayBuffer, ReplayConfig
from trainables.policies.exploration.actions import EpsilonGreedyConfig
from trainables.policies.policy import Scalar
from trainables.policies.q.actor import QArchitecture
from trainables.policies.q.networks import QPolicy, Target, build_q_policy
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainer.base.algorithm import Stateful
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.steps import off_policy_step
from trainables.trainer.trainer import Trainer

Rows = Mapping[str, NDArray[Any]]


class Config(TrainerConfig):
    """Settings of expected SARSA."""

    sampling: SamplingConfig = SamplingConfig(num_envs_per_worker=8, rollout_fragment_length=8)
    replay: ReplayConfig = ReplayConfig(replay_batch_size=64, updates_per_step=32)
    exploration_config: EpsilonGreedyConfig = EpsilonGreedyConfig()


class ExpectedSarsa(Trainer):
    """Expected SARSA."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    keeps_rows: ClassVar[bool] = True
    settings: Config
    policy: QPolicy

    def make_policy(self, device: str) -> QPolicy:
        """One network."""
        networks = self.spaces.layout, QArchitecture.of(self.architecture, False, 0.0, ())
        of = self.settings
        return build_q_policy(networks, of.exploration_config, of.optimizer, self.seed, device)

    def make_parts(self) -> dict[str, Stateful]:
        """The replay, and the network that judges what follows."""
        self.replay = ReplayBuffer(self.settings.replay.buffer_size, self.seed)
        self.target = Target(self.policy.model)
        return {"replay": self.replay, "target": self.target}

    def worker_spec(self) -> WorkerSpec:
        """With the observation that came next."""
        return replace(super().worker_spec(), columns=frozenset({"new_obs"}))

    def training_step(self) -> dict[str, float]:
        """A round of sampling and many updates."""
        how, follow = self.settings.replay, lambda: self.target.update_targets(1.0)
        return off_policy_step(self, self.replay, how, self.update, follow)

    def update(self, rows: Rows) -> dict[str, Scalar]:
        """One gradient step on (B, …) transitions."""
        batch = {name: torch.from_numpy(column) for name, column in rows.items()}
        explored = self.inference.actor.exploration.epsilon  # type: ignore[attr-defined]  # ε-greedy
        with torch.no_grad():
            after = self.target.network.outputs(batch["new_obs"], {}).squeeze(2)
            expected = (1 - explored) * after.amax(1) + explored * after.mean(1)
            goal = batch["rewards"] + self.settings.gamma * expected * ~batch["terminated"]
        q = self.policy.model.outputs(batch["observations"], {}).squeeze(2)
        taken = (q * one_hot(batch["actions"], q.shape[1])).sum(1)
        loss = smooth_l1_loss(taken, goal)
        norm = self.policy.minimise(loss, self.learning_rate, None)
        return {"loss": loss.item(), "grad_norm": norm}
