"""Captured gradient steps have static buffers and give the same numbers; the CPU stands in."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.stand_in import as_accelerator, fetches_of, replay_captured_steps
from tests.support.trainers import differences, train_to_end
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.learners.graphs import MOST, WARM_UPS, Graph, Graphs
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

SMALL: dict[str, Any] = {"model": {"hidden": [8]}, "num_gpus": 1}
ON_POLICY: dict[str, Any] = {"num_envs_per_worker": 2, "rollout_fragment_length": 17}
OFF_POLICY: dict[str, Any] = {
    "learning_starts": 8,
    "replay_batch_size": 8,
    "train_batch_size": 16,
    "updates_per_step": 4,
    "lr_schedule": "linear",
    "schedule_timesteps": 200,
}
#: Name → algorithm, settings, and number of captured steps.
KINDS: dict[str, tuple[type[Trainer], dict[str, Any], int]] = {
    "ppo": (PPO, {**ON_POLICY, "lr_schedule": [[0, 1e-3], [200, 0.0]]}, 2),  # 8 and 9 rows
    "ppo of numbers": (PPO, {**ON_POLICY, "env": "Pendulum-v1"}, 2),
    "a2c": (A2C, {**ON_POLICY, "optimizer": {"name": "adamw"}}, 1),
    "dqn": (DQN, {**OFF_POLICY, "dueling": True, "num_atoms": 5}, 1),
    "dqn, noisy": (DQN, {**OFF_POLICY, "noisy": True, "dueling": True}, 1),
    "dqn, noisy, one pass less": (DQN, {**OFF_POLICY, "noisy": True, "double_q": False}, 1),
    "dqn, prioritised": (DQN, {**OFF_POLICY, "prioritized_replay": True}, 1),
    "sac": (SAC, {**OFF_POLICY, "env": "Pendulum-v1", "critic_lr": 1e-2}, 1),
    "sac of choices": (SAC, OFF_POLICY, 1),
    "sac with gsde": (
        SAC,
        {
            **OFF_POLICY,
            "env": "Pendulum-v1",
            "exploration_config": {"type": "StateDependentNoise"},
            "grad_clip": 0.1,
        },
        1,
    ),
    "td3": (TD3, {**OFF_POLICY, "env": "Pendulum-v1"}, 2),  # with and without the actor
    "iql": (IQL, {**OFF_POLICY, "env": "Pendulum-v1", "critic_lr": 1e-2, "grad_clip": 0.1}, 1),
    "iql of choices": (IQL, OFF_POLICY, 1),
}


class Own(DQN):
    """DQN whose method `differences` is overridden."""

    def differences(self, batch: Mapping[str, Tensor]) -> Any:
        return super().differences(batch)


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    as_accelerator(monkeypatch)


def made(kind: str, graphs: str, **more: Any) -> Trainer:
    cls, own, _ = KINDS[kind]
    config = {"env": "CartPole-v1", **SMALL, **own, "graphs": graphs, **more}
    return cls(config, TrialContext(seed=4))


@pytest.mark.parametrize("kind", KINDS)
def test_captured_steps_give_the_numbers_of_ordinary_ones_to_the_bit(kind: str) -> None:
    trainer = made(kind, "on")
    found = train_to_end(trainer, 6)
    assert trainer.graphs is not None
    assert trainer.graphs.captured == KINDS[kind][2]
    assert differences(found, train_to_end(made(kind, "off"), 6)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_operations_of_the_capture_alone_give_these_numbers_too(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replay_captured_steps(monkeypatch)
    with caplog.at_level(logging.WARNING):
        found = train_to_end(made(kind, "on"), 6)
    assert [one for one in caplog.messages if one.startswith("graphs: ")] == []
    assert differences(found, train_to_end(made(kind, "off"), 6)) == []


@pytest.mark.parametrize("kind", ["ppo", "sac", "td3", "iql", "dqn", "dqn, noisy"])
def test_a_restored_trainer_captures_anew_and_goes_on_to_the_bit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay_captured_steps(monkeypatch)
    first = made(kind, "on")
    for _ in range(4):
        first.train()
    path = first.save(tmp_path)
    expected = train_to_end(first, 3)
    for again in (made(kind, "on"), made(kind, "off")):
        for _ in range(3):
            again.train()
        before = again.policy.in_torch().generation
        again.restore(path)
        assert again.policy.in_torch().generation > before  # its moments are other tensors now
        assert differences(train_to_end(again, 3), expected) == []


@pytest.mark.parametrize("kind", ["ppo", "sac", "td3", "iql", "dqn", "dqn, noisy"])
def test_a_captured_step_fetches_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "num_sgd_iter" if kind == "ppo" else "updates_per_step"
    few, many = (made(kind, "on", **{key: count}) for count in (4, 9))
    assert fetches_of(few, monkeypatch, 3) == fetches_of(many, monkeypatch, 3)


def test_a_step_that_cannot_be_captured_is_an_ordinary_one_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(graph: Graph) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore lines")

    monkeypatch.setattr(Graph, "_capture", refuse)
    with caplog.at_level(logging.WARNING):
        found = train_to_end(made("td3", "on"), 6)
    (said,) = [one for one in caplog.messages if one.startswith("graphs: ")]
    assert "cannot be captured (RuntimeError: operation not permitted when stream" in said
    assert "more lines" not in said
    assert differences(found, train_to_end(made("td3", "off"), 6)) == []


class Counter:
    """A policy with one weight."""

    def __init__(self) -> None:
        self.generation, self.device = 0, torch.device("cpu")
        self.parameters = {"weight": torch.nn.Parameter(torch.zeros(2))}

    def step(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        weight = self.parameters["weight"].data
        weight += inputs["rate"] * inputs["x"].sum(0)
        return {"weight": weight.clone(), "sum": weight.sum()}


def test_inputs_are_copied_into_buffers_and_results_are_not_overwritten() -> None:
    policy, x = Counter(), torch.ones(3, 2)
    graphs, found = Graphs(policy), []
    for i in range(WARM_UPS + 3):
        found.append(graphs.run("step", policy.step, {"x": x, "rate": 1.0 if i < 4 else 0.5}))
        x.fill_(i + 2.0)  # the caller may use its tensors again
    assert graphs.captured == 1
    expected = [3, 9, 18, 30, 37.5, 46.5]
    assert [one["sum"].item() / 2 for one in found] == expected
    assert [one["weight"].tolist() for one in found] == [[n, n] for n in expected]


def test_only_some_sizes_are_captured() -> None:
    policy = Counter()
    graphs = Graphs(policy)
    for rows in range(1, MOST + 4):
        for _ in range(WARM_UPS + 1):
            graphs.run("step", policy.step, {"x": torch.zeros(rows, 2), "rate": 1.0})
    assert graphs.captured == MOST
    policy.generation += 1
    graphs.run("step", policy.step, {"x": torch.zeros(1, 2), "rate": 1.0})
    assert graphs.captured == 0


@pytest.mark.parametrize(
    ("cls", "config", "why"),
    [
        (PPO, {"optimizer": {"name": "rmsprop"}}, "optimizer.name is rmsprop"),
        (PPO, {"clip_param_schedule": [[0, 0.2], [9, 0.1]]}, "clip_param_schedule is not constant"),
        (PPO, {"model": {"use_lstm": True}}, "model.use_lstm is true"),
        (Own, {"noisy": True}, "noisy is true, and Own has its own way of learning"),
        (IQL, {"learner_compile": True}, "learner_compile is true"),
    ],
)
def test_the_log_says_why_steps_are_not_captured(
    cls: type[Trainer], config: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        trainer = cls({"env": "CartPole-v1", "num_gpus": 1, "graphs": "on", **config})
    assert trainer.graphs is None
    assert [one for one in caplog.messages if one.startswith("graphs: ") and one.endswith(why)]
    trainer.train()
    trainer.stop()


def test_graphs_are_on_with_cuda_and_refused_without_a_gpu() -> None:
    trainer = made("ppo", "auto")
    assert trainer.graphs is None  # the device is none of CUDA
    trainer.stop()
    with pytest.raises(
        ConfigError, match=r"graphs: on cannot be used with num_gpus: 0.*; set it to auto or off"
    ):
        PPO.check_config({"env": "CartPole-v1", "graphs": "on"})
