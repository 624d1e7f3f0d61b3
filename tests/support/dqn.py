"""Deep Q-learning (Mnih et al. 2015) with double targets (van Hasselt et al. 2016), as a plugin.

What a second family of algorithms writes. B rows, A choices.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from trainables.core import rng
from trainables.envs.spaces.actions import ActionLayout
from trainables.learners.replay import ReplayBuffer, ReplayConfig
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.actor import Acted, Actor, Array, Weights
from trainables.policies.architecture import Architecture
from trainables.policies.exploration import EpsilonGreedy, EpsilonGreedyConfig
from trainables.policies.layers import HIDDEN_GAIN, perceptron
from trainables.policies.networks import Networks
from trainables.policies.torch_policy import TorchPolicy
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainer.config import TrainerConfig
from trainables.trainer.steps import off_policy_step
from trainables.trainer.trainer import Stateful, Trainer

Rows = Mapping[str, NDArray[Any]]


class Config(TrainerConfig):
    """Settings of DQN; the defaults suit CartPole."""

    sampling: SamplingConfig = SamplingConfig(num_envs_per_worker=8, rollout_fragment_length=8)
    schedule: ScheduleConfig = ScheduleConfig(lr=1e-3)
    replay: ReplayConfig = ReplayConfig(
        replay_batch_size=64, updates_per_step=32, target_network_update_freq=512
    )
    exploration_config: EpsilonGreedyConfig = EpsilonGreedyConfig()
    grad_clip: float | None = Field(default=10.0, gt=0, description="Bound on the gradient's norm.")


class QNetwork(Networks):
    """A value for each choice, and the same networks as they were when the target was updated."""

    def __init__(self, layout: ActionLayout, shape: Architecture, stream: torch.Generator) -> None:
        super().__init__()
        sizes = (shape.features, *shape.hidden, layout.head_size)
        self.online = perceptron(sizes, [HIDDEN_GAIN] * len(shape.hidden) + [1.0], stream)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def q(self, layers: nn.ModuleList, observations: Tensor) -> Tensor:
        """(B, A) values."""
        x = observations
        for layer in layers[:-1]:
            x = torch.relu(layer(x))
        values: Tensor = layers[-1](x)
        return values


class QActor(Actor):
    """Takes the choice of the highest value, or explores."""

    columns: ClassVar[Mapping[str, Any]] = {}
    judged: ClassVar[tuple[str, ...]] = ()
    fetches: ClassVar[Mapping[str, str]] = {}
    layers: list[tuple[Array, Array]]

    def load(self, weights: Weights) -> None:
        """Adopt the online network's weights; they are copied."""
        own = [array.T.copy() for name, array in weights.items() if name.startswith("online.")]
        self.layers = list(zip(own[::2], own[1::2], strict=True))

    def forward(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """(N, A) values of all choices, and the highest (N,)."""
        x = observations
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0.0)
        q: Array = x @ self.layers[-1][0] + self.layers[-1][1]
        return q, q.max(axis=1)

    def act(
        self, observations: NDArray[Any], memory: Array, stream: np.random.Generator | None
    ) -> Acted:
        """Choices for filtered observations."""
        return super().act(observations, memory, stream)._replace(columns={})

    def act_each(self, observations: Any, memory: Array, streams: Any) -> tuple[Any, Array]:
        """Each row by itself."""
        rows = zip(observations, streams, strict=True)
        return np.concatenate([self.act(o[None], memory, s).actions for o, s in rows]), memory


def make_actor(layout: ActionLayout, shape: Architecture, config: EpsilonGreedyConfig) -> Actor:
    """An actor that explores as the settings say."""
    return QActor(layout, shape, EpsilonGreedy(layout, config))


class DQN(Trainer):
    """Deep Q-learning."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    settings: Config

    def make_policy(self, device: torch.device) -> TorchPolicy:
        """The online network has an optimiser; the target network has none."""
        networks = (self.spaces.layout, self.architecture)
        self.model = QNetwork(*networks, rng.torch_generator(self.seed, "init"))
        make = partial(make_actor, *networks, self.settings.exploration_config)
        return TorchPolicy(self.model, make, {"online.": self.settings.optimizer}, device)

    def make_parts(self) -> dict[str, Stateful]:
        """The replay."""
        self.replay = ReplayBuffer(self.settings.replay.buffer_size, self.seed)
        return {"replay": self.replay}

    def worker_spec(self) -> WorkerSpec:
        """With the observation that came next."""
        return replace(super().worker_spec(), columns=frozenset({"new_obs"}))

    def training_step(self) -> dict[str, float]:
        """A round of sampling and many updates."""
        how = self.settings.replay
        return off_policy_step(self, self.replay, how, self.update, self.update_target)

    def update(self, rows: Rows) -> dict[str, float]:
        """One gradient step on (B, …) transitions."""
        batch = {name: torch.from_numpy(column) for name, column in rows.items()}
        q, online = self.model.q, self.model.online
        with torch.no_grad():
            best = q(online, batch["new_obs"]).argmax(1, keepdim=True)
            following = q(self.model.target, batch["new_obs"]).gather(1, best).squeeze(1)
            targets = batch["rewards"] + self.settings.gamma * following * ~batch["terminated"]
        taken = q(online, batch["observations"]).gather(1, batch["actions"][:, None])
        loss = nn.functional.smooth_l1_loss(taken.squeeze(1), targets)
        norm = self.policy.minimise(loss, self.learning_rate, self.settings.grad_clip, "online.")
        return {"loss": loss.item(), "mean_q": taken.mean().item(), "grad_norm": norm}

    def update_target(self) -> None:
        """The target network becomes the online one."""
        self.model.target.load_state_dict(self.model.online.state_dict())
