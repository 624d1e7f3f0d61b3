"""Observations of a person's own: sampled, learnt from, evaluated, restored; refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import check_restored_exactly, make, run
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, ExportError

HERE = "tests.support.own_preprocessors"
POSITIONS = {"custom_preprocessor": f"{HERE}:Positions"}
CASES: dict[str, dict[str, Any]] = {
    "a class": {"model": POSITIONS},
    "a function": {"model": {"custom_preprocessor": f"{HERE}:positions"}},
    "two children": {"model": POSITIONS, "num_workers": 2, "train_batch_size": 192},
    "with words": {
        "env": "tests.support.spaces:Told",
        "model": {"custom_preprocessor": f"{HERE}:Numbers"},
        "normalize_rewards": False,
    },
    "an image": {
        "model": {"custom_preprocessor": f"{HERE}:Picture"},
        "observation_filter": "NoFilter",
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_restored_trial_equals_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    first = make(CASES[case])
    assert first.spaces.observation_shape == ((2, 2, 1) if case == "an image" else (2,))
    assert first.settings.environment.native_vector_env is False
    assert "evaluation" in run(first, 2)[1]
    assert first.level == "A"
    check_restored_exactly(first, make(CASES[case]), tmp_path)
    with pytest.raises(ExportError, match=r"custom_preprocessor.*is your own code"):
        first.export_model("onnx", tmp_path)
    first.stop()


def test_callers_give_what_the_environment_gives() -> None:
    trainer = make({"model": POSITIONS, "observation_filter": "NoFilter"})
    raw = np.array([0.3, -1.0, 0.1, 2.0], np.float32)
    action = trainer.compute_action(raw)
    head, _ = trainer.inference.actor.forward(raw[None, ::2])
    assert action == head.argmax()
    assert trainer.compute_action(np.array([0.3, 9.0, 0.1, -9.0], np.float32)) == action
    trainer.stop()


def test_a_replay_holds_what_it_makes() -> None:
    trainer = DQN({"env": "CartPole-v1", "model": POSITIONS, "learning_starts": 16})
    assert np.isfinite(trainer.train()["learner"]["loss"])
    assert trainer.policy.model.weights()["trunk.dense.0.weight"].shape == (128, 2)
    trainer.stop()


REFUSED = {
    "Longer": r"Longer returned an array of shape \(4,\) .*; expected the shape \(2,\)",
    "Infinite": "Infinite returned NaN or infinity .*; expected finite numbers",
    "Unsaid": "Unsaid.*raised AttributeError",
    "Discrete": r"observation_space of Discrete is Discrete\(2\); expected a gymnasium.spaces.Box",
    "Position": "did you mean 'Positions'",
    "Numbers": "raised TypeError",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_the_contract_is_refused_before_training(name: str) -> None:
    config = {"env": "CartPole-v1", "model": {"custom_preprocessor": f"{HERE}:{name}"}}
    with pytest.raises(ConfigError, match=REFUSED[name]) as caught:
        PPO.check_config(config)
    assert caught.value.place == "model.custom_preprocessor"
    assert "\n" not in str(caught.value)


def test_masks_and_a_preprocessor_do_not_go_together() -> None:
    config = {"env": "CartPole-v1", "model": POSITIONS, "action_mask": "info"}
    with pytest.raises(
        ConfigError, match=r"model.custom_preprocessor.* cannot be used with action_mask"
    ):
        PPO.check_config(config)
