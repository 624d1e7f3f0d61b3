"""Minibatches and batches of few rows: with normalised advantages, too, the actor learns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from trainables.algorithms.a2c import A2C
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO
from trainables.learners.fused.ppo import FusedLearner
from trainables.learners.standardizing import LEAST_ROWS
from trainables.trainer.trainer import Trainer

LSTM = {"model": {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 1, "hidden": [4]}}
FEW: dict[str, Any] = {
    "env": "CartPole-v1",
    "env_level": "C",
    "seed": 1,
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 7,
    "normalize_advantages": True,
}
#: Algorithm, and what it is set to beside `FEW`.
CASES: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "ppo, fused": (PPO, {"learner": "fused"}),
    "ppo, torch": (PPO, {"learner": "torch"}),
    "ppo, a last minibatch of one row": (
        PPO,
        {"rollout_fragment_length": 3, "train_batch_size": 3},
    ),
    "ppo, sequences of one row": (PPO, LSTM),
    "a2c": (A2C, {"rollout_fragment_length": 2}),
    "a2c, torch": (A2C, {"rollout_fragment_length": 2, "learner": "torch"}),
    "impala": (IMPALA, {"rollout_fragment_length": 2}),
    "several policies": (
        PPO,
        {
            "env": "tests.support.agents:Targets",
            "multiagent": {"policies": ["shared"]},
            "rollout_fragment_length": 1,
        },
    ),
}


def actors(trainer: Trainer) -> dict[str, Any]:
    """Policy/parameter → a weight of an actor, or of an LSTM's."""
    return {
        f"{pid}/{name}": value
        for pid, weights in trainer.get_weights().items()
        for name, value in weights.items()
        if name.startswith("actor") and name.endswith("weight")
    }


@pytest.mark.parametrize("name", CASES)
def test_the_actor_moves(name: str) -> None:
    algorithm, more = CASES[name]
    trainer = algorithm({**FEW, **more})
    before = {key: value.copy() for key, value in actors(trainer).items()}
    for _ in range(4):
        trainer.train()
    assert before
    for key, value in actors(trainer).items():
        assert np.abs(value - before[key]).max() > 1e-5, key
    trainer.stop()


@pytest.mark.parametrize("rows", [1, 5])
def test_single_gradients_of_few_rows_move_the_actor(
    rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = PPO({**FEW, "learner": "torch"})
    (sample,) = trainer.workers.sample()
    batch = trainer.learning_rows(sample.fragments).select(np.arange(7) < rows)
    gradients, _ = trainer.compute_gradients(batch)
    assert max(np.abs(gradients[key]).max() for key in gradients if key.startswith("actor")) > 0
    assert ("one row to learn from" in caplog.text) == (rows == 1)
    trainer.stop()


@pytest.mark.parametrize("rows", [LEAST_ROWS, 32])
@pytest.mark.parametrize("learner", ["torch", "fused"])
def test_a_minibatch_of_many_rows_is_standardised_by_itself(learner: str, rows: int) -> None:
    trainer = PPO({**FEW, "learner": learner, "rollout_fragment_length": rows})
    (sample,) = trainer.workers.sample()
    batch = trainer.learning_rows(sample.fragments)
    losses = []
    for one in (batch, replace(batch, advantages=batch.advantages * 9 + 5)):
        if isinstance(trainer.learner, FusedLearner):
            losses.append(float(trainer.learner.gradient(trainer.learner.columns(one))[0]))
        else:
            columns = {name: torch.from_numpy(column) for name, column in one.columns().items()}
            losses.append(trainer.loss(columns)[0].item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    trainer.stop()
