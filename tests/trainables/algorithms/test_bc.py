"""Behaviour cloning: its loss by hand, and what a trained policy did learnt from files."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import check_restored_exactly, run
from trainables.algorithms.bc import BC
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.trainable import TrialContext

#: Learns CartPole to about 300 in 30,000 steps.
TEACHER: dict[str, Any] = {
    "env": "CartPole-v1",
    "rollout_fragment_length": 32,
    "num_sgd_iter": 20,
    "sgd_minibatch_size": 256,
    "lr": 1e-3,
    "gamma": 0.98,
    "lambda_": 0.8,
}


def data_of(folder: Path, **columns: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    count = len(columns["obs"])
    line = {"type": "SampleBatch", "rewards": [0.0] * count, "terminateds": [False] * count}
    lines = {**line, "new_obs": columns["obs"], **columns}
    (folder / "data.json").write_text(f"{json.dumps(lines)}\n")
    return str(folder)


def make(given: str, seed: int = 3, **config: Any) -> BC:
    return BC({"env": "CartPole-v1", "input": given, **config}, TrialContext(seed=seed))


def test_the_loss_is_the_negative_log_likelihood_of_choices(tmp_path: Path) -> None:
    given = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    choices = np.array([0, 1, 1, 0, 1, 0])
    trainer = make(data_of(tmp_path, obs=given.tolist(), actions=choices.tolist()))
    actor = trainer.policy.make_actor()
    actor.load(trainer.policy.model.weights())
    head, _ = actor.forward(given)
    probabilities = np.exp(head) / np.exp(head).sum(axis=1, keepdims=True)
    by_hand = -np.log(probabilities[np.arange(6), choices]).mean()
    columns = {"observations": torch.from_numpy(given), "actions": torch.from_numpy(choices)}
    loss, stats = trainer.loss(columns)
    trainer.stop()
    assert loss.item() == pytest.approx(by_hand, rel=1e-5)
    assert stats["policy_loss"] == pytest.approx(by_hand, rel=1e-5)


def test_the_loss_is_the_negative_log_likelihood_of_gaussians(tmp_path: Path) -> None:
    given = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    actions = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    data = data_of(tmp_path, obs=given.tolist(), actions=actions.tolist())
    trainer = make(data, env="Pendulum-v1", entropy_coeff=0.5)
    actor = trainer.policy.make_actor()
    actor.load(trainer.policy.model.weights())
    head, _ = actor.forward(given)
    deviation = float(np.exp(actor._log_std[0]))
    z = (actions - head) / deviation
    by_hand = (0.5 * z**2).mean() + math.log(deviation) + 0.5 * math.log(2 * math.pi)
    entropy = 0.5 + 0.5 * math.log(2 * math.pi) + math.log(deviation)
    columns = {"observations": torch.from_numpy(given), "actions": torch.from_numpy(actions)}
    loss, _ = trainer.loss(columns)
    trainer.stop()
    assert loss.item() == pytest.approx(by_hand - 0.5 * entropy, rel=1e-5)


def test_each_pass_learns_from_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(40.0).reshape(10, 4)
    data = data_of(tmp_path, obs=rows.tolist(), actions=[i % 2 for i in range(10)])
    sizes = {"rollout_fragment_length": 10, "train_batch_size": 10, "sgd_minibatch_size": 4}
    trainer = make(data, num_sgd_iter=3, **sizes)
    loss, seen = trainer.loss, list[list[tuple[float, int]]]()

    def noted(batch: Any) -> Any:
        pairs = zip(batch["observations"][:, 0].tolist(), batch["actions"].tolist(), strict=True)
        seen.append([*pairs])
        return loss(batch)

    monkeypatch.setattr(trainer, "loss", noted)
    trainer.training_step()
    trainer.stop()
    assert [len(one) for one in seen] == [4, 3, 3] * 3
    orders = [[row for one in seen[first : first + 3] for row in one] for first in (0, 3, 6)]
    assert all(sorted(order) == [(4.0 * i, i % 2) for i in range(10)] for order in orders)
    assert orders[0] != orders[1] != orders[2]


def test_continuous_actions_are_learnt(tmp_path: Path) -> None:
    given = np.random.default_rng(1).uniform(-1, 1, size=(500, 3))
    actions = 0.8 * given[:, :1] - 0.4
    data = data_of(tmp_path, obs=given.tolist(), actions=actions.tolist())
    config: dict[str, Any] = {
        "env": "Pendulum-v1",
        "lr": 5e-3,
        "num_sgd_iter": 4,
        "train_batch_size": 500,
    }
    trainer = make(data, **config)
    run(trainer, 30)
    for x in (-0.5, 0.5):
        chosen = trainer.compute_action(np.array([x, 0.0, 0.0], dtype=np.float32))
        assert chosen[0] == pytest.approx(0.8 * x - 0.4, abs=0.1)
    trainer.stop()


@pytest.mark.slow
def test_what_a_trained_ppo_wrote_is_learnt_to_its_return(tmp_path: Path) -> None:
    trained = PPO({**TEACHER, "num_envs_per_worker": 8}, TrialContext(seed=1))
    run(trained, 120)
    saved = trained.save(tmp_path / "checkpoints")
    trained.stop()
    whole = {"batch_mode": "complete_episodes", "train_batch_size": 5000, "output": "logdir"}
    writer = PPO({**TEACHER, **whole, "lr": 1e-12}, TrialContext(seed=2, logdir=tmp_path))
    writer.restore(saved)
    teacher = writer.train()["episode_reward_mean"]
    writer.stop()
    pupil = make(str(tmp_path / "output"), evaluation_num_episodes=20, evaluation_interval=20)
    results = run(pupil, 20)
    pupil.stop()
    assert teacher > 200
    assert results[-1]["evaluation"]["episode_reward_mean"] >= 0.9 * teacher
    assert results[0]["evaluation_at_start"]["episode_reward_mean"] < 100


def test_a_restored_trial_is_the_uninterrupted_one(tmp_path: Path) -> None:
    given = np.random.default_rng(1).normal(size=(300, 4))
    data = data_of(tmp_path, obs=given.tolist(), actions=(given[:, 0] > 0).astype(int).tolist())
    config: dict[str, Any] = {
        "train_batch_size": 200,
        "shuffle_buffer_size": 3,
        "model": {"hidden": [16]},
    }
    through = make(data, **config)
    run(through, 2)
    check_restored_exactly(through, make(data, **config), tmp_path / "checkpoints", 3)
    through.stop()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"input": "sampler"}, "input: bc learns only from files, .* but input is sampler"),
        (
            {"model": {"use_lstm": True}},
            r"model\.use_lstm: true cannot be used with bc, .*; set it to false",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        BC.check_config({"env": "CartPole-v1", "input": str(tmp_path), **config})
