"""The setting `learner`: what auto means, and that a trainer's course does not depend on it."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tests.support.trainers import PLAIN, differences, make, run
from tests.trainables.algorithms.test_ppo import sampled
from trainables.algorithms.ppo import PPO
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.learners.fused import compiled
from trainables.learners.fused.ppo import FusedLearner, find_reason_for_torch
from trainables.learners.torch_learner import TorchLearner
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.policies.policy import Scalar

LSTM = {"model": {"use_lstm": True, "lstm_cell_size": 4}}


class OwnLoss(PPO):
    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Mapping[str, Scalar]]:
        return super().loss(batch)


def weights(trainer: PPO) -> dict[str, Any]:
    return dict(trainer.get_weights()["default_policy"])


def assert_alike(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-4, err_msg=name)


# ---- what auto means -------------------------------------------------------------------------


def test_a_new_trial_of_perceptrons_is_fused_and_others_learn_in_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "built", lambda: None)
    assert PPO.settle_config(PLAIN)["learner"] == "fused"
    assert PPO.settle_config({**PLAIN, "env": "Pendulum-v1"})["learner"] == "fused"
    assert PPO.settle_config({**PLAIN, **LSTM})["learner"] == "torch"
    ranks = {"num_workers": 2, "data_parallel": True, "train_batch_size": None}
    assert PPO.settle_config({**PLAIN, **ranks})["learner"] == "torch"
    assert OwnLoss.settle_config(PLAIN)["learner"] == "torch"
    assert "learner" not in PPO.settle_config({**PLAIN, "learner": "torch"})


def test_what_is_not_covered_is_told() -> None:
    layout, adam = ActionLayout((2,), scalar=True), OptimizerConfig()
    vectors = Architecture((4,), (), (8,), "tanh")
    assert find_reason_for_torch(layout, vectors, adam) == ""
    assert find_reason_for_torch(layout, vectors, OptimizerConfig(name="rmsprop")) == ""
    assert "name is sgd" in find_reason_for_torch(layout, vectors, OptimizerConfig(name="sgd"))
    images = Architecture((9, 9, 1), ((4, 3, 1),), (8,), "relu")
    assert "conv_filters" in find_reason_for_torch(layout, images, adam)
    many = ActionLayout((2,) * 40 + (99,))
    assert "choices" in find_reason_for_torch(many, vectors, adam)


def test_a_trainer_says_why_it_learns_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        trainer = PPO({**PLAIN, **LSTM})
        run(trainer, 2)
    told = [line for line in caplog.messages if "learner: auto is torch" in line]
    assert told == ["learner: auto is torch, as model.use_lstm is true"]
    assert isinstance(trainer.learner, TorchLearner)


def test_fused_is_refused_where_it_cannot_be() -> None:
    for check in (PPO, PPO.check_config):
        with pytest.raises(
            ConfigError, match=r"learner: fused cannot be used, because .*use_lstm is true"
        ):
            check({**PLAIN, **LSTM, "learner": "fused"})


# ---- one course ------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_both_learners_train_alike(env: str) -> None:
    results = {}
    for learner in ("fused", "torch"):
        trainer = make({"env": env, "learner": learner})
        told = run(trainer, 3)
        results[learner] = ([one["learner"] for one in told], weights(trainer))
        trainer.stop()
    assert_alike(results["fused"][1], results["torch"][1])
    for found, expected in zip(results["fused"][0], results["torch"][0], strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-2, abs=1e-4), name


@pytest.mark.parametrize(("first", "second"), [("fused", "torch"), ("torch", "fused")])
def test_each_learner_goes_on_from_a_checkpoint_of_the_other(
    first: str, second: str, tmp_path: Path
) -> None:
    trainer = make({"learner": first})
    run(trainer, 2)
    saved = trainer.save(tmp_path)
    run(trainer, 1)
    other = make({"learner": second})
    other.restore(saved)
    kept = make()
    kept.restore(saved)
    run(other, 1)
    run(kept, 1)
    assert kept.config["learner"] == first
    assert differences(weights(kept), weights(trainer)) == []
    assert_alike(weights(other), weights(trainer))


def test_a_trainer_that_learnt_fused_takes_up_a_checkpoint_of_torch() -> None:
    """Its weights lie in the learner's vectors by then."""
    before = make({"learner": "torch"})
    run(before, 1)
    state = before.get_state()
    run(before, 1)
    trainer = make()
    run(trainer, 1)
    kinds = [type(trainer.learner)]
    trainer.set_state(state)
    kinds.append(type(trainer.learner))
    assert kinds == [FusedLearner, TorchLearner]
    run(trainer, 1)
    assert differences(weights(trainer), weights(before)) == []


def test_single_steps_are_steps_of_the_same_policy() -> None:
    found = {}
    for learner in ("fused", "torch"):
        trainer = make({"learner": learner})
        run(trainer, 1)
        batch = sampled(trainer)
        trainer.learn_on_batch(batch)
        gradients, _ = trainer.compute_gradients(batch)
        trainer.apply_gradients(gradients)
        run(trainer, 1)
        shown = trainer.policy.gradients()
        assert differences(weights(trainer), trainer.policy.get_state()["weights"]) == []
        found[learner] = (weights(trainer), gradients, shown)
        trainer.stop()
    for fused, torch_ in zip(found["fused"], found["torch"], strict=True):
        assert_alike(fused, torch_)


# ---- how well they learn ---------------------------------------------------------------------

TUNED: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 32,
    "sgd_minibatch_size": 256,
    "num_sgd_iter": 20,
    "lambda_": 0.8,
    "gamma": 0.98,
    "lr": 1e-3,
    "native_vector_env": True,
    "evaluation_num_episodes": 5,
}


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["fused", "torch"])
def test_ppo_learns_cartpole(learner: str) -> None:
    trainer = PPO({**TUNED, "learner": learner, "seed": 1})
    for _ in range(100):
        result = trainer.train()
    assert result["timesteps_total"] == 25600
    # However a processor rounds: of six seeds with each learner the least was 308.
    assert trainer.evaluate()["episode_reward_mean"] > 150
    trainer.stop()
