"""State-dependent noise (gSDE) of policies that learn from what was just sampled."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch.distributions import Normal

from tests.support.trainers import check_restored_exactly
from trainables.algorithms.a2c import A2C
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.policies.learning.networks import ActorCritic
from trainables.trainable import TrialContext

NOISE = {"type": "StateDependentNoise", "sample_freq": 5, "log_std_init": -1.0}
SMALL: dict[str, Any] = {
    "env": "Pendulum-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 32,
    "model": {"hidden": [16, 3]},
    "exploration_config": NOISE,
}


def make(config: dict[str, Any] | None = None, of: type[PPO | A2C] = PPO) -> PPO | A2C:
    return of({**SMALL, **(config or {})}, TrialContext(seed=3))


def test_what_is_stored_is_what_the_learner_computes() -> None:
    trainer = make()
    assert trainer.settings.learner == "torch"
    (sample,) = trainer.workers.sample()
    fragment = sample.fragments[0]
    batch = trainer.learning_rows([fragment])
    model = trainer.policy.model.double()
    x = torch.from_numpy(batch.observations).double()
    actions = torch.from_numpy(batch.actions).double()
    found = model.evaluate(x, actions)
    np.testing.assert_allclose(found.logp.detach(), batch.logp, atol=1e-4)

    assert isinstance(model, ActorCritic)
    units = x
    for layer in list(model.actor)[:-1]:
        units = torch.tanh(layer(units))
    assert model.log_std is not None
    deviation = (units.detach().square() @ model.log_std.exp().square() + 1e-6).sqrt()
    expected = Normal(model.actor[-1](units), deviation)
    torch.testing.assert_close(
        found.logp,
        expected.log_prob(actions).sum(1),  # type: ignore[no-untyped-call]
        rtol=1e-9,
        atol=1e-12,
    )
    torch.testing.assert_close(
        found.entropies,
        expected.entropy().sum(1),  # type: ignore[no-untyped-call]
        rtol=1e-9,
        atol=1e-12,
    )
    trainer.stop()


def test_the_noise_of_an_environment_is_one_function_for_so_many_steps() -> None:
    trainer = make()
    (sample,) = trainer.workers.sample()
    fragment = sample.fragments[0]
    actor = trainer.inference.actor
    heads, _ = actor.forward(fragment.observations.reshape(-1, 3))
    units = heads[:, 1:].reshape(32, 2, 3)
    noise = fragment.actions - heads[:, :1].reshape(32, 2, 1)
    for env in range(2):
        # Of 3 units one matrix explains the noise of 5 steps, and none that of 30.
        for first in range(0, 30, 5):
            rows = slice(first, first + 5)
            found = np.linalg.lstsq(units[rows, env], noise[rows, env], rcond=None)[0]
            np.testing.assert_allclose(units[rows, env] @ found, noise[rows, env], atol=1e-4)
        whole = np.linalg.lstsq(units[:30, env], noise[:30, env], rcond=None)[0]
        assert np.abs(units[:30, env] @ whole - noise[:30, env]).max() > 1e-2
    state = trainer.workers.get_state()[0]["exploration"]
    assert state["ages"].tolist() == [32, 32]
    assert state["matrices"].shape == (2, 3, 1)
    trainer.stop()


@pytest.mark.parametrize("of", [PPO, A2C])
def test_a_run_that_was_saved_goes_on_to_the_bit(of: type[PPO | A2C], tmp_path: Path) -> None:
    first = make(of=of)
    first.train()
    check_restored_exactly(first, make(of=of), tmp_path)
    moved = first.policy.model.log_std
    assert moved is not None
    assert moved.shape == (3, 1)
    assert (moved != -1.0).all()
    exported = first.export_model("onnx", tmp_path)["onnx"]
    raw = np.asarray(first.recent, dtype=np.float32)
    (actions,) = onnxruntime.InferenceSession(exported).run(["action"], {"observation": raw})
    np.testing.assert_allclose(actions, [first.compute_action(one) for one in raw], atol=1e-5)
    first.stop()


@pytest.mark.slow
def test_ranks_learn_with_it() -> None:
    trainer = make({"num_workers": 2, "data_parallel": True})
    result = trainer.train()
    assert np.isfinite(result["learner"]["policy_loss"])
    trainer.stop()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"env": "CartPole-v1"}, r"exploration_config.type: .*choices"),
        (
            {"model": {"use_lstm": True}},
            r"model.use_lstm: true cannot be used with .*StateDependentNoise",
        ),
        (
            {"remote_worker_envs": True, "remote_env_batch_wait_ms": 5},
            r"remote_env_batch_wait_ms: 5.0 cannot be used with .*StateDependentNoise",
        ),
        ({"learner": "fused"}, r"learner: fused .*exploration_config.type"),
        (
            {"exploration_config": {"sample_freq": 3}},
            r"sample_freq: has no effect with type: StochasticSampling",
        ),
    ],
)
def test_what_cannot_work_with_it_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PPO.check_config({**SMALL, **config})
