import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import make
from trainables.algorithms.ppo import PPO, ppo_loss, vf_loss
from trainables.errors import NotFiniteError
from trainables.learners.sgd import explained_variance
from trainables.learners.torch_learner import normalized, shuffled
from trainables.policies.learning.networks import ActorCritic
from trainables.rollout.batch import TrainBatch
from trainables.trainer.families.actor_critic import to_rows


def sampled(trainer: PPO) -> TrainBatch:
    fragments = [f for sample in trainer.workers.sample() for f in sample.fragments]
    settings = trainer.settings
    return TrainBatch.join([to_rows(f, settings.gamma, settings.lambda_) for f in fragments])


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_before_the_first_step_the_ratio_is_1_and_stored_logp_equals_recomputed(env: str) -> None:
    trainer = make({"env": env})
    batch = sampled(trainer)
    model = trainer.policy.model
    with torch.no_grad():
        seen = model.evaluate(torch.from_numpy(batch.observations), torch.from_numpy(batch.actions))
    np.testing.assert_allclose(seen.logp.numpy(), batch.logp, atol=2e-6)
    np.testing.assert_allclose(seen.values.numpy(), batch.values, atol=2e-6)
    minibatch = shuffled(batch, 32, np.random.default_rng(0))[0]
    _, stats = ppo_loss(model, minibatch, trainer.settings)
    policy_loss, _, _, kl, clip_fraction = stats.tolist()
    assert abs(kl) < 1e-6
    assert clip_fraction == 0.0
    assert abs(policy_loss) < 1e-5  # ratio 1 times advantages of mean 0
    trainer.stop()


def test_minibatches_cover_the_batch_once_and_differ_by_one_row_at_most() -> None:
    numbers = np.arange(10, dtype=np.float32)
    columns = dict.fromkeys(
        ("observations", "actions", "logp", "values", "advantages", "returns"), numbers
    )
    parts = shuffled(TrainBatch(**columns), 4, np.random.default_rng(1))
    sizes = [len(part["logp"]) for part in parts]
    assert sizes == [4, 3, 3]
    rows = torch.cat([part["logp"] for part in parts])
    assert sorted(rows.tolist()) == numbers.tolist()
    assert rows.tolist() != numbers.tolist()


def test_advantages_are_normalised_per_minibatch() -> None:
    trainer = make()
    minibatch = shuffled(sampled(trainer), 24, np.random.default_rng(0))[0]
    scaled = {**minibatch, "advantages": minibatch["advantages"] * 100 + 7}
    plain, _ = ppo_loss(trainer.policy.model, minibatch, trainer.settings)
    other, _ = ppo_loss(trainer.policy.model, scaled, trainer.settings)
    assert plain.item() == pytest.approx(other.item(), abs=1e-4)
    normal = normalized(minibatch["advantages"])
    assert normal.mean().item() == pytest.approx(0, abs=1e-5)
    assert normal.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    trainer.stop()


def test_the_objective_is_clipped_where_the_ratio_left_its_bounds() -> None:
    trainer = make({"entropy_coeff": 0.0, "vf_loss_coeff": 0.0, "normalize_advantages": False})
    minibatch = shuffled(sampled(trainer), 96, np.random.default_rng(0))[0]
    ratio = math.exp(1.0)
    moved = {**minibatch, "logp": minibatch["logp"] - 1.0}
    advantages = torch.where(torch.arange(len(moved["logp"])) % 2 == 0, 1.0, -1.0)
    loss, stats = ppo_loss(
        trainer.policy.model, {**moved, "advantages": advantages}, trainer.settings
    )
    expected = -((1.2 + -ratio) / 2)  # a gain is clipped at 1.2, a loss is not
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert stats[4].item() == 1.0
    trainer.stop()


def test_clipped_values_count_where_they_are_worse() -> None:
    minibatch = {"returns": torch.tensor([1.0, 1.0]), "values": torch.tensor([0.0, 0.0])}
    values = torch.tensor([0.9, -0.05])
    plain = vf_loss(values, minibatch, None).item()
    clipped = vf_loss(values, minibatch, 0.1).item()
    assert plain == pytest.approx(0.5 * (0.01 + 1.1025) / 2)
    assert clipped == pytest.approx(0.5 * (0.81 + 1.1025) / 2)


def test_weights_are_orthogonal_with_the_gains_of_the_recipe() -> None:
    trainer = make({"env": "Pendulum-v1"})
    model = trainer.policy.model
    assert isinstance(model, ActorCritic)
    for net, head_gain in ((model.actor, 0.01), (model.critic, 1.0)):
        gains = [math.sqrt(2), math.sqrt(2), head_gain]
        for layer, gain in zip(net, gains, strict=True):
            assert isinstance(layer, torch.nn.Linear)
            singular = torch.linalg.svdvals(layer.weight)
            np.testing.assert_allclose(singular.detach().numpy(), gain, rtol=1e-4)
            assert not layer.bias.any()
    assert model.log_std is not None
    assert not model.log_std.any()
    trainer.stop()


def test_making_a_trainer_draws_nothing_from_torchs_global_stream() -> None:
    first = make()
    position = torch.get_rng_state()
    second = make()
    np.testing.assert_equal(torch.get_rng_state().numpy(), position.numpy())
    first.stop()
    second.stop()


def test_the_learning_rate_falls_linearly_to_0_and_is_the_settings_after_a_restore() -> None:
    trainer = make({"schedule_timesteps": 96 * 4})
    rates = [trainer.train()["learner"]["lr"] for _ in range(5)]
    np.testing.assert_allclose(rates, [1e-3, 0.75e-3, 0.5e-3, 0.25e-3, 0.0], atol=1e-12)
    other = make({"schedule_timesteps": 96 * 10, "lr": 1e-2})
    other.set_state(trainer.get_state())
    assert other.train()["learner"]["lr"] == pytest.approx(0.5e-2)
    trainer.stop()
    other.stop()


def test_a_target_kl_ends_the_epochs() -> None:
    config: dict[str, Any] = {"lr": 0.05, "lr_schedule": "constant", "num_sgd_iter": 20}
    free, bound = make(config), make({**config, "target_kl": 1e-4})
    free.train()
    bound.train()
    steps = [
        int(next(iter(t.policy.get_state()["optimizer"].values()))["step"]) for t in (free, bound)
    ]
    assert steps[1] < steps[0] == 80
    free.stop()
    bound.stop()


@pytest.mark.parametrize(("first", "steps"), [([0.3, 0.0], 2), ([0.0, 0.1], 4)])
def test_the_divergence_of_an_epoch_is_the_mean_of_its_minibatches(
    first: list[float], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make({"num_sgd_iter": 2, "sgd_minibatch_size": 48, "target_kl": 0.09})
    divergences, taken = iter([*first, 0.0, 0.0]), []

    def step(*_: Any) -> tuple[np.ndarray[Any, Any], float]:
        taken.append(next(divergences))
        return np.array([0.0, 0.0, 0.0, taken[-1], 0.0]), 1.0

    monkeypatch.setattr(trainer.learner, "step", step)
    trainer.training_step()
    assert len(taken) == steps
    trainer.stop()


def test_the_explained_variance_is_of_returns_and_values_of_sampling() -> None:
    stream = np.random.default_rng(2)
    columns = {n: stream.normal(size=9).astype("f4") for n in ("logp", "values", "advantages")}
    seen, choices = np.zeros((9, 2), np.float32), np.zeros(9, np.int64)
    returns = stream.normal(3.0, size=9).astype("f4")
    batch = TrainBatch(observations=seen, actions=choices, returns=returns, **columns)
    share = 1.0 - np.var(returns - columns["values"]) / np.var(returns)
    assert explained_variance(batch, None) == {"explained_variance": pytest.approx(share, rel=1e-5)}
    assert explained_variance(replace(batch, returns=np.ones(9, np.float32)), None) == {}


def test_a_loss_that_is_not_finite_is_named_and_the_weights_stay() -> None:
    trainer = make()
    trainer.train()
    weights = trainer.policy.model.weights()
    bad = next(trainer.policy.model.parameters()).sum() * math.inf
    with pytest.raises(NotFiniteError, match=r"loss is inf; a smaller lr, a grad"):
        trainer.policy.in_torch().minimise(bad, 1e-3, None)
    np.testing.assert_equal(trainer.policy.model.weights(), weights)
    trainer.stop()
