"""Implicit Q-learning: its losses by hand, exact after a restore, better than what it read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import check_restored_exactly, run
from trainables.algorithms.iql import IQL, LOG_STD, expectile_loss
from trainables.errors import ConfigError
from trainables.trainable import TrialContext

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "train_batch_size": 40,
    "learning_starts": 40,
    "replay_batch_size": 16,
    "updates_per_step": 3,
    "buffer_size": 200,
    "model": {"hidden": [8, 8]},
}


RLLIB = str(Path(__file__).parents[1] / "offline" / "rllib" / "plain.json")


def drawn_rows(count: int = 16) -> dict[str, Any]:
    """Rows of CartPole as the replay gives them."""
    drawn = np.random.default_rng(4)
    real = drawn.normal(size=(3, count, 4)).astype(np.float32)
    rows = {"observations": real[0], "new_obs": real[1], "rewards": real[2, :, 0]}
    return {**rows, "actions": drawn.integers(2, size=count), "terminated": real[2, :, 1] > 1}


def test_an_action_beyond_the_bounds_is_valued_as_what_was_done() -> None:
    trainer = IQL({**SMALL, "env": "Pendulum-v1"}, TrialContext(seed=1))
    model, seen = trainer.policy.model, torch.ones(3, 3)
    found, same = (
        model.critic_values(model.critics, seen, torch.tensor(actions)[:, None])
        for actions in ([-2.5, 0.25, 1.5], [-1.0, 0.25, 1.0])
    )
    trainer.stop()
    assert torch.equal(found, same)


def data_of(folder: Path, env: str, count: int = 120) -> str:
    """Rows of one environment that were drawn, not played."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(4)
    width, choices = (4, True) if env == "CartPole-v1" else (3, False)
    actions = drawn.integers(2, size=count) if choices else drawn.uniform(-2, 2, (count, 1))
    columns = {
        "obs": drawn.normal(size=(count, width)),
        "new_obs": drawn.normal(size=(count, width)),
        "actions": actions,
        "rewards": drawn.normal(size=count),
        "terminateds": drawn.random(count) < 0.2,
    }
    lines = [
        json.dumps(
            {
                "type": "SampleBatch",
                **{name: one[i : i + 20].tolist() for name, one in columns.items()},
            }
        )
        for i in range(0, count, 20)
    ]
    (folder / "data.json").write_text("\n".join(lines) + "\n")
    return str(folder)


def make(folder: Path, env: str = "CartPole-v1", seed: int = 3, **config: Any) -> IQL:
    given = data_of(folder / "data", env)
    return IQL({**SMALL, "env": env, "input": given, **config}, TrialContext(seed, logdir=folder))


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9])
def test_the_value_of_least_loss_is_the_expectile(expectile: float) -> None:
    """Of 0 and 1, drawn alike: τ (1 - v) = (1 - τ) v, so v is τ."""
    differences_ = torch.tensor([0.0, 1.0]) - expectile
    differences_.requires_grad_()
    torch.autograd.backward(expectile_loss(differences_, expectile))
    assert differences_.grad is not None
    assert differences_.grad.sum().item() == pytest.approx(0.0, abs=1e-7)
    loss = expectile_loss(torch.tensor([2.0, -1.0]), expectile).item()
    assert loss == pytest.approx((expectile * 4 + (1 - expectile) * 1) / 2)


def perceptron(x: Any, weights: Any, name: str, twin: int | None = None) -> Any:
    """What three layers give, by hand; torch's are turned, those of twins are not."""
    for i in range(3):
        weight, bias = weights[f"{name}.{i}.weight"], weights[f"{name}.{i}.bias"]
        x = x @ weight.T + bias if twin is None else x @ weight[twin] + bias[twin]
        x = np.maximum(x, 0) if i < 2 else x
    return x


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_losses_are_those_of_the_paper(env: str, tmp_path: Path) -> None:
    trainer = make(tmp_path, env, beta=2.0, expectile=0.8, max_weight=1.3, gamma=0.9, lr=0.01)
    run(trainer, 4)
    rows = trainer.replay.sample(30)
    loss, stats = trainer.loss({name: torch.from_numpy(one) for name, one in rows.items()})
    weights = trainer.policy.model.weights()
    trainer.stop()
    seen, then, taken = rows["observations"], rows["new_obs"], rows["actions"]

    def q(name: str, twin: int) -> Any:
        if env == "CartPole-v1":
            return perceptron(seen, weights, name, twin)[np.arange(30), taken]
        return perceptron(np.concatenate([seen, taken], axis=1), weights, name, twin)[:, 0]

    values, ahead = (perceptron(one, weights, "critic")[:, 0] for one in (seen, then))
    goals = rows["rewards"] + 0.9 * ahead * ~rows["terminated"]
    above = np.minimum(q("targets", 0), q("targets", 1)) - values
    value_loss = (np.where(above > 0, 0.8, 0.2) * above**2).mean()
    critic_loss = sum(((q("critics", i) - goals) ** 2).mean() for i in (0, 1))
    weighed = np.minimum(np.exp(2.0 * above), 1.3)
    head = perceptron(seen, weights, "actor")
    if env == "CartPole-v1":
        logp = (head - np.log(np.exp(head).sum(axis=1, keepdims=True)))[np.arange(30), taken]
    else:
        std = np.exp(weights["log_std"])
        logp = (-0.5 * ((taken - head) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(1)
    policy_loss = -(weighed * logp).mean()
    assert 0 < (weighed == 1.3).sum() < 30
    assert stats["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    assert stats["critic_loss"] == pytest.approx(critic_loss, rel=1e-4)
    assert stats["policy_loss"] == pytest.approx(policy_loss, rel=1e-4, abs=1e-5)
    assert loss.item() == pytest.approx(value_loss + critic_loss + policy_loss, rel=1e-4)


def test_each_part_moves_by_its_own_rate_times_a_gradient_that_is_clipped_alone(
    tmp_path: Path,
) -> None:
    # Without moments a step is the rate times the gradient, of which the norm is 0.01 if clipped.
    config: dict[str, Any] = {
        "lr": 1.0,
        "critic_lr": 4.0,
        "grad_clip": 0.01,
        "optimizer": {"name": "sgd"},
    }
    trainer = make(tmp_path, "Pendulum-v1", learning_starts=200, **config)
    trainer.train()
    before, rows = trainer.policy.weights(), trainer.replay.sample(16)
    log_std = trainer.policy.model.log_std
    assert log_std is not None
    loss, _ = trainer.loss({name: torch.from_numpy(one) for name, one in rows.items()})
    (by_log_std,) = torch.autograd.grad(loss, [log_std])
    trainer.learn_on_batch(rows)
    moved = {name: now - before[name] for name, now in trainer.policy.weights().items()}
    trainer.stop()
    for part, rate in (("actor", 1.0), ("critic", 4.0)):  # also "critics", without "targets"
        squares = [np.square(one).sum() for name, one in moved.items() if name.startswith(part)]
        assert np.sqrt(sum(squares)) == pytest.approx(rate * 0.01, rel=1e-3)
    np.testing.assert_allclose(moved["log_std"], -by_log_std.numpy(), rtol=1e-4)


def test_no_loss_moves_the_networks_of_another() -> None:
    """What the weights of actions are moves the actor alone, and rewards the critics of actions."""
    trainer = IQL({**SMALL, "input": RLLIB, "beta": 2.0}, TrialContext(seed=3))
    rows = {name: torch.from_numpy(one) for name, one in drawn_rows().items()}

    def gradients(beta: float, reward: float) -> dict[str, Any]:
        trainer.settings = trainer.settings.model_copy(update={"beta": beta})
        loss, _ = trainer.loss({**rows, "rewards": rows["rewards"] + reward})
        return trainer.policy.compute_gradients(loss)

    usual, other, paid = gradients(2.0, 0.0), gradients(0.5, 0.0), gradients(2.0, 1.0)
    trainer.stop()
    assert {name.split(".")[0] for name in usual} == {"actor", "critic", "critics"}
    for changed, moved in ((other, "actor."), (paid, "critics.")):
        for name, one in usual.items():
            assert (one != changed[name]).any() == name.startswith(moved), name


def test_targets_follow_and_all_else_moves(tmp_path: Path) -> None:
    trainer = make(tmp_path, tau=0.25)
    before = trainer.policy.model.weights()
    trainer.update(drawn_rows())
    after = trainer.policy.model.weights()
    trainer.stop()
    for name, one in after.items():
        if name.startswith("targets."):
            ahead = after[name.replace("targets", "critics")]
            moved = before[name] + 0.25 * (ahead - before[name])
            np.testing.assert_allclose(one, moved, rtol=1e-5, atol=1e-7)
        else:
            assert (one != before[name]).any(), name


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_restored_trial_is_the_uninterrupted_one(env: str, tmp_path: Path) -> None:
    through, again = (make(tmp_path, env, shuffle_buffer_size=3) for _ in range(2))
    run(through, 2)
    check_restored_exactly(through, again, tmp_path / "checkpoints", 3)
    through.stop()


def test_deviations_have_bounds_where_all_that_is_read_is_one_action(tmp_path: Path) -> None:
    trainer = make(tmp_path, "Pendulum-v1")
    run(trainer, 1)
    log_std = trainer.policy.model.log_std
    assert log_std is not None
    for given, expected in ((-20.0, LOG_STD[0]), (20.0, LOG_STD[1])):
        with torch.no_grad():
            log_std.fill_(given)
        trainer.update(trainer.replay.sample(16))
        assert log_std.item() == expected
    trainer.stop()


def test_it_acts_in_an_environment_as_well_and_learns_from_both(tmp_path: Path) -> None:
    data = data_of(tmp_path / "data", "CartPole-v1")
    trainer = make(tmp_path, input={"sampler": 0.5, data: 0.5})
    results = run(trainer, 12)
    trainer.stop()
    assert any("episode_reward_mean" in one for one in results)
    assert results[-1]["timesteps_total"] == 12 * 40


def test_its_estimates_stand_in_each_result(tmp_path: Path) -> None:
    trainer = make(tmp_path, input=RLLIB)
    (result,) = run(trainer, 1)
    trainer.stop()
    assert result["off_policy"]["wis_low"] < result["off_policy"]["wis"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"expectile": 1.0}, "expectile: 1.0"),
        ({"exploration_config": {"random_timesteps": 3}}, "exploration_config"),
        (
            {"learner": "fused"},
            "learner: fused cannot be used, because IQL knows its gradients by torch",
        ),
        ({"model": {"use_lstm": True}}, "model.use_lstm: true"),
        (
            {
                "env": "tests.support.environments:OfSpaces",
                "env_config": {"action": "MultiDiscrete([2, 3])", "observation": ""},
            },
            "env: ",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        IQL.check_config({**SMALL, "input": data_of(tmp_path, "CartPole-v1"), **config})
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
