"""Learning on a GPU waits for it once an iteration, not in every step; the CPU stands in for it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.stand_in import as_accelerator, fetches_of
from tests.support.trainers import differences, final_state, stable
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import NotFiniteError
from trainables.learners.statistics import fetch, on_host
from trainables.policies.architecture import OptimizerConfig
from trainables.policies.learning import torch_policy
from trainables.policies.learning.sending import send_together
from trainables.policies.learning.torch_policy import TorchPolicy
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

ON_POLICY: dict[str, Any] = {"num_envs_per_worker": 2, "rollout_fragment_length": 16}
OFF_POLICY: dict[str, Any] = {"learning_starts": 8, "replay_batch_size": 8, "train_batch_size": 16}
#: Name → algorithm, settings, and how many more steps `MORE` makes in an iteration.
KINDS: dict[str, tuple[type[Trainer], dict[str, Any], dict[str, Any]]] = {
    "ppo": (PPO, {**ON_POLICY, "num_sgd_iter": 2}, {"num_sgd_iter": 6}),
    "ppo with rmsprop": (
        PPO,
        {**ON_POLICY, "num_sgd_iter": 2, "optimizer": {"name": "rmsprop"}},
        {"num_sgd_iter": 6},
    ),
    "a2c": (A2C, ON_POLICY, {"rollout_fragment_length": 32}),
    "impala": (IMPALA, ON_POLICY, {"rollout_fragment_length": 32}),
    "dqn": (DQN, {**OFF_POLICY, "updates_per_step": 2}, {"updates_per_step": 6}),
    "sac": (SAC, {**OFF_POLICY, "updates_per_step": 2}, {"updates_per_step": 6}),
    "td3": (TD3, {**OFF_POLICY, "updates_per_step": 2}, {"updates_per_step": 6}),
    "iql": (
        IQL,
        {**OFF_POLICY, "updates_per_step": 2, "buffer_size": 500},
        {"updates_per_step": 6},
    ),
}


def made(kind: str, more: Mapping[str, Any], gpu: bool = True) -> Trainer:
    cls, own, _ = KINDS[kind]
    env = "Pendulum-v1" if kind in ("sac", "td3") else "CartPole-v1"
    config = {"env": env, "env_level": "C", "model": {"hidden": [8]}, **own, **more}
    device: dict[str, Any] = {"num_gpus": 1} if gpu else {"learner": "torch"}
    return cls({**config, **device}, TrialContext(seed=3))


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    as_accelerator(monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_fetches_does_not_grow_with_the_number_of_steps(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (made(kind, more) for more in ({}, KINDS[kind][2]))
    assert fetches_of(few, monkeypatch) == fetches_of(many, monkeypatch)


def test_an_early_stop_by_kl_looks_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ({"target_kl": 1e9, "sgd_minibatch_size": rows} for rows in (16, 4))
    few, many = (made("ppo", more) for more in settings)
    assert fetches_of(few, monkeypatch) == fetches_of(many, monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_a_course_with_later_checks_is_that_with_checks_at_once(kind: str) -> None:
    ends = []
    for gpu in (True, False):
        trainer = made(kind, {}, gpu)
        results = [stable(trainer.train()) for _ in range(3)]
        for one in results:
            del one["config"]
        state = final_state(trainer)
        ends.append((results, state["trainable"]["data"]["policy"]))
        trainer.stop()
    assert differences(ends[0], ends[1]) == []


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop", "sgd"])
@pytest.mark.parametrize("bad", ["loss", "gradient"])
def test_a_step_that_is_not_finite_and_later_ones_change_nothing_until_the_error(
    name: Any, bad: str
) -> None:
    trainer = made("ppo", {"optimizer": {"name": name}})
    policy = trainer.policy
    assert isinstance(policy, TorchPolicy)
    first = next(iter(policy.parameters.values()))
    policy.minimise(first.square().sum(), 0.1, None)
    before = {name: one.copy() for name, one in policy.weights().items()}, policy.kept_moments()
    wrong = first.sum() * np.inf if bad == "loss" else (first - first.detach()).abs().sqrt().sum()
    policy.minimise(wrong, 0.1, 0.5)
    policy.minimise(first.square().sum(), 0.1, 0.5)
    assert differences(before, (policy.weights(), policy.kept_moments())) == []
    with pytest.raises(NotFiniteError, match="norm, is not finite; a smaller lr"):
        policy.require_finite()
    policy.require_finite()
    policy.minimise(first.square().sum(), 0.1, 0.5)
    assert differences(before[0], policy.weights()) != []
    trainer.stop()


def test_an_iteration_with_a_loss_that_is_not_finite_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = made("sac", {})
    trainer.train()
    losses: Any = trainer.losses  # type: ignore[attr-defined]  # of SAC
    critic: Callable[..., Any] = losses._critic_loss
    bad = lambda *given: tuple(one * np.nan for one in critic(*given))  # noqa: E731
    monkeypatch.setattr(losses, "_critic_loss", bad)
    with pytest.raises(NotFiniteError):
        trainer.train()
    trainer.stop()


def test_statistics_are_fetched_as_the_numbers_that_they_are() -> None:
    wide, narrow = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.1)
    found = on_host([{"a": narrow, "b": 0.1}, {"a": wide}, {}])
    assert found == [{"a": narrow.item(), "b": 0.1}, {"a": 0.1}, {}]
    assert fetch([np.ones(2), torch.zeros(2)]).tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert OptimizerConfig().name == "adam"


@pytest.mark.parametrize("kind", ["ppo", "dqn", "sac", "td3", "iql"])
def test_the_columns_of_an_update_or_a_batch_are_sent_together(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def noted(arrays: Mapping[str, Any], device: torch.device) -> dict[str, torch.Tensor]:
        sent.append(len(arrays))
        return send_together(arrays, device)

    monkeypatch.setattr(torch_policy, "send_together", noted)
    trainer = made(kind, {})
    trainer.train()
    assert len(sent) == (1 if kind == "ppo" else 2)  # updates
    assert min(sent) >= 5
    trainer.stop()
