"""DQN on files alone, with the conservative penalty: by hand, and better than its teachers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import run
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.trainable import TrialContext

RLLIB = str(Path(__file__).parent / "rllib" / "plain.json")
BASE: dict[str, Any] = {"env": "CartPole-v1", "input": RLLIB, "train_batch_size": 64}


@pytest.mark.parametrize("config", [{}, {"num_atoms": 5}, {"dueling": True}], ids=str)
def test_the_penalty_is_how_far_all_choices_are_valued_above_the_one_taken(config: Any) -> None:
    stream = np.random.default_rng(2)
    batch = {
        "observations": torch.from_numpy(stream.normal(size=(6, 4)).astype(np.float32)),
        "new_obs": torch.from_numpy(stream.normal(size=(6, 4)).astype(np.float32)),
        "actions": torch.tensor([0, 1, 1, 0, 1, 0]),
        "rewards": torch.ones(6),
        "terminated": torch.zeros(6, dtype=torch.bool),
    }
    found = []
    for alpha in (0.0, 0.5):
        trainer = DQN({**BASE, **config, "cql_alpha": alpha}, TrialContext(seed=1))
        found.append(trainer.differences(batch))
        with torch.no_grad():
            model = trainer.policy.model
            values = model.values(model.outputs(batch["observations"], trainer.noise())).numpy()
        trainer.stop()
    taken = values[np.arange(6), batch["actions"].numpy()]
    penalty = 0.5 * (np.log(np.exp(values).sum(axis=1)) - taken)
    added = (found[1].losses - found[0].losses).detach().numpy()
    np.testing.assert_allclose(added, penalty, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found[0].errors.numpy(), found[1].errors.numpy())


def test_the_loss_is_that_of_the_paper() -> None:
    """CQL(H): its penalty, and half the squared difference to the target, linear beyond 1."""
    stream = np.random.default_rng(3)
    seen, then = stream.normal(size=(2, 6, 4)).astype(np.float32)
    actions, rewards = np.array([0, 1, 1, 0, 1, 0]), 2 * stream.normal(size=6).astype(np.float32)
    ended = np.array([False, True, False, False, True, False])
    config = {"cql_alpha": 0.7, "gamma": 0.9, "learner": "torch", "grad_clip": None}
    trainer = DQN({**BASE, **config}, TrialContext(seed=1))
    q_of = trainer.policy.make_actor()
    q_of.load(trainer.policy.model.weights())
    q, ahead = (q_of.forward(one)[0] for one in (seen, then))  # the target is its copy still
    taken = q[np.arange(6), actions]
    errors = np.abs(rewards + 0.9 * ahead.max(axis=1) * ~ended - taken)
    huber = np.where(errors < 1, 0.5 * errors**2, errors - 0.5)
    by_hand = (huber + 0.7 * (np.log(np.exp(q).sum(axis=1)) - taken)).mean()
    learnt = trainer._learn(
        {
            "observations": seen,
            "new_obs": then,
            "actions": actions,
            "rewards": rewards,
            "terminated": ended,
        }
    )
    trainer.stop()
    assert errors.min() < 1 < errors.max()
    assert learnt.loss == pytest.approx(by_hand, rel=1e-5)


def test_auto_is_torch_with_the_penalty() -> None:
    for alpha, learner in ((0.0, "fused"), (0.5, "torch")):
        trainer = DQN({**BASE, "cql_alpha": alpha}, TrialContext(seed=1))
        assert trainer.config["learner"] == learner
        trainer.stop()


@pytest.mark.proof
def test_it_is_better_than_the_best_of_the_poor_policies_it_learnt_from(tmp_path: Path) -> None:
    poor: dict[str, Any] = {
        "env": "CartPole-v1",
        "num_envs_per_worker": 8,
        "rollout_fragment_length": 32,
    }
    poor |= {"num_sgd_iter": 20, "sgd_minibatch_size": 256, "lr": 1e-3, "gamma": 0.98}
    whole: dict[str, Any] = {
        "batch_mode": "complete_episodes",
        "train_batch_size": 2000,
        "output": "logdir",
    }
    returns = []
    for seed, rounds in ((1, 4), (2, 8), (3, 12)):
        policy = PPO(poor, TrialContext(seed=seed))
        run(policy, rounds)
        saved = policy.save(tmp_path / "checkpoints")
        policy.stop()
        writer = PPO(
            {**poor, **whole, "lr": 1e-12}, TrialContext(seed, logdir=tmp_path / f"{seed}")
        )
        writer.restore(saved)
        returns.append(writer.train()["episode_reward_mean"])
        writer.stop()
    config = {**BASE, "input": f"{tmp_path}/*/output/*.json", "cql_alpha": 0.5}
    config |= {"postprocess_inputs": True, "learning_starts": 5000, "evaluation_num_episodes": 20}
    learnt = DQN(config, TrialContext(seed=3))
    run(learnt, 60)
    reached = learnt.evaluate()["episode_reward_mean"]
    learnt.stop()
    assert max(returns) < 120
    assert reached > 1.5 * max(returns)
