"""Classic keys of ``model``: each does something, in learning, acting and the exported file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from tests.support.trainers import check_restored_exactly, make
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.policies.architecture import ModelConfig
from trainables.policies.learning.networks import sequence_layout_of
from trainables.policies.onnx.formats import FILES
from trainables.trainer.trainer import Trainer

ANY = "tests.support.spaces:AnySpaces"
SHARED: dict[str, Any] = {"vf_share_layers": True, "hidden": [16, 8]}
FOLLOWING: dict[str, Any] = {"free_log_std": False, "hidden": [16]}
OWN = {"custom_model": "tests.support.own_networks:Plain", "free_log_std": False}
CASES: dict[str, dict[str, Any]] = {
    "shared": {"model": SHARED},
    "shared, one environment": {"model": SHARED, "num_envs_per_worker": 1},
    "shared, real numbers": {"model": SHARED, "env": "Pendulum-v1"},
    "shared, no layers": {"model": {**SHARED, "hidden": []}},
    "shared, two children": {"model": SHARED, "num_workers": 2, "train_batch_size": 192},
    "shared, a memory": {"model": {**SHARED, "use_lstm": True}},
    "shared, noise of the state": {
        "model": SHARED,
        "env": "Pendulum-v1",
        "exploration_config": {"type": "StateDependentNoise"},
    },
    "following": {"model": FOLLOWING, "env": "Pendulum-v1"},
    "following, choices too": {
        "model": FOLLOWING,
        "env": ANY,
        "env_config": {"action": "tuple"},
        "normalize_rewards": False,
    },
    "following, a memory": {"model": {**FOLLOWING, "use_lstm": True}, "env": "Pendulum-v1"},
    "following, a module of one's own": {"model": OWN, "env": "Pendulum-v1"},
    "following and shared": {"model": {**SHARED, **FOLLOWING}, "env": "Pendulum-v1"},
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_stored_is_what_the_learner_computes(case: str) -> None:
    trainer = make({**CASES[case], "observation_filter": "NoFilter"})
    assert trainer.settings.learner == "torch"
    (sample, *_) = trainer.workers.sample()
    batch = trainer.learning_rows(sample.fragments)
    (minibatch,) = trainer.learner.minibatches(batch, 10_000, np.random.default_rng(0), len(batch))
    found = trainer.policy.model.evaluate(
        minibatch["observations"], minibatch["actions"], sequence_layout_of(minibatch)
    )
    np.testing.assert_allclose(found.logp.detach(), minibatch["logp"], atol=1e-5)
    np.testing.assert_allclose(found.values.detach(), minibatch["values"], atol=1e-5)
    trainer.stop()


@pytest.mark.parametrize("case", CASES)
def test_a_trial_with_it_is_restored_exactly_and_exported(case: str, tmp_path: Path) -> None:
    first = make(CASES[case])
    first.train()
    check_restored_exactly(first, make(CASES[case]), tmp_path)
    form = "safetensors"
    assert first.export_model(form, tmp_path / "out")[form].endswith(FILES[form])
    first.stop()


def test_shared_layers_learn_from_both_losses() -> None:
    trainer = make({"model": SHARED})
    before = trainer.policy.model.weights()
    assert [n for n in before if n.endswith("weight")] == [
        *("trunk.dense.0.weight", "trunk.dense.1.weight"),
        *("actor.0.weight", "critic.0.weight"),
    ]
    model = trainer.policy.model
    trainer.train()
    x = torch.randn(5, 4)
    model.value(x).sum().backward()  # type: ignore[no-untyped-call]
    assert model.get_parameter("trunk.dense.0.weight").grad is not None
    trainer.stop()


def test_an_environment_alone_is_acted_in_as_one_of_several() -> None:
    trainer = make({"model": SHARED, "env": "Pendulum-v1"})
    actor = trainer.inference.actor
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    memory = actor.initial_memory(4)
    together = actor.act(x, memory, None).actions
    np.testing.assert_allclose(actor.act_each(x, memory, [None] * 4)[0], together, atol=1e-6)
    trainer.stop()


def test_deviations_follow_the_state() -> None:
    trainer = make({"model": FOLLOWING, "env": "Pendulum-v1"})
    trainer.train()
    model = trainer.policy.model.double()
    assert model.log_std is None
    x = torch.randn(6, 3, dtype=torch.float64)
    actions = torch.randn(6, 1, dtype=torch.float64)
    head = model.actor[1](torch.tanh(model.actor[0](x)))  # type: ignore[index, operator]
    assert head.shape == (6, 2)
    assert head[:, 1].std() > 0
    expected = Normal(head[:, 0], head[:, 1].exp())
    found = model.evaluate(x, actions)
    logp = expected.log_prob(actions[:, 0])  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found.logp, logp)
    torch.testing.assert_close(found.entropies, expected.entropy())  # type: ignore[no-untyped-call]
    actor = trainer.inference.actor
    stream = np.random.default_rng(0)
    rows = np.repeat(x[:1].numpy().astype(np.float32), 4000, axis=0)
    drawn = actor.act(rows, actor.initial_memory(4000), stream).actions
    assert abs(drawn.std() / float(head[0, 1].exp().detach()) - 1) < 0.05
    trainer.stop()


@pytest.mark.parametrize("learner", ["fused", "torch"])
def test_deviations_begin_where_log_std_init_says(learner: str) -> None:
    model = {"hidden": [8], "log_std_init": -1.5}
    trainer = make({"env": "Pendulum-v1", "model": model, "learner": learner})
    assert trainer.get_weights()["default_policy"]["log_std"].tolist() == [-1.5]
    stream = np.random.default_rng(0)
    actor = trainer.inference.actor
    rows = np.zeros((4000, 3), np.float32)
    drawn = actor.act(rows, actor.initial_memory(4000), stream).actions
    assert abs(drawn.std() / np.exp(-1.5) - 1) < 0.05
    trainer.stop()


@pytest.mark.parametrize(
    ("of", "config", "message"),
    [
        (PPO, {"model": {"free_log_std": False}}, "model.free_log_std.*no standard deviation"),
        (
            PPO,
            {
                "env": ANY,
                "env_config": {"observation": "image"},
                "model": {"vf_share_layers": False},
            },
            "model.vf_share_layers: false cannot be used with convolutions",
        ),
        (
            A2C,
            {"model": {"vf_share_layers": False, "use_lstm": True}},
            "cannot be used with model.use_lstm",
        ),
        (
            PPO,
            {
                "env": "Pendulum-v1",
                "model": {"free_log_std": False},
                "exploration_config": {"type": "StateDependentNoise"},
            },
            "model.free_log_std.*StateDependentNoise",
        ),
        (
            PPO,
            {"model": {"log_std_init": -1.0}},
            "model.log_std_init: has no effect .*no standard deviation",
        ),
        (
            PPO,
            {"env": "Pendulum-v1", "model": {"log_std_init": -1.0, "free_log_std": False}},
            "^model.log_std_init: has no effect with free_log_std: false",
        ),
        (
            PPO,
            {
                "env": "Pendulum-v1",
                "model": {"log_std_init": -1.0},
                "exploration_config": {"type": "StateDependentNoise"},
            },
            "model.log_std_init.*StateDependentNoise",
        ),
        (SAC, {"env": "Pendulum-v1", "model": {"log_std_init": -1.0}}, "has no effect with SAC"),
        (PPO, {"model": SHARED, "learner": "fused"}, "learner.*model.vf_share_layers is true"),
        (
            PPO,
            {"env": "Pendulum-v1", "model": FOLLOWING, "learner": "fused"},
            "learner.*model.free_log_std is false",
        ),
        (
            DQN,
            {"model": {"vf_share_layers": True}},
            "model.vf_share_layers: .*has no effect with DQN",
        ),
        (SAC, {"env": "Pendulum-v1", "model": {"free_log_std": True}}, "has no effect with SAC"),
        (TD3, {"env": "Pendulum-v1", "model": {"custom_model": "a:B"}}, "has no effect with TD3"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    of: type[Trainer], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        of.check_config({"env": "CartPole-v1", **config})


def test_a_distribution_that_knows_no_masks_is_refused_with_them() -> None:
    model = {"custom_action_dist": "tests.support.own_distributions:Tempered"}
    with pytest.raises(
        ConfigError, match=r"model.custom_action_dist.* cannot be used with action_mask"
    ):
        PPO.check_config({"env": "Taxi-v4", "action_mask": "info", "model": model})


def test_a_module_for_values_that_knows_no_masks_is_refused_with_them() -> None:
    model = {"custom_model": "tests.support.own_networks:Values"}
    with pytest.raises(
        ConfigError, match=r"action_mask: info cannot be used with model\.custom_model"
    ):
        DQN.check_config({"env": "Taxi-v4", "action_mask": "info", "model": model})


def test_layers_are_shared_where_actions_are_masked() -> None:
    trainer = make({"env": "Taxi-v4", "action_mask": "info", "model": SHARED})
    (sample, *_) = trainer.workers.sample()
    batch = trainer.learning_rows(sample.fragments)
    (rows,) = trainer.learner.minibatches(batch, 10_000, np.random.default_rng(0), len(batch))
    found = trainer.policy.model.evaluate(rows["observations"], rows["actions"])
    np.testing.assert_allclose(found.logp.detach(), rows["logp"], atol=1e-5)
    trainer.stop()


@pytest.mark.parametrize("of", [A2C, DQN, IMPALA, PPO])
def test_a_key_that_some_algorithms_read_is_said_to_be_theirs(of: type[Trainer]) -> None:
    for key in of.model_keys:
        assert of.__name__.lower() in str(ModelConfig.model_fields[key].description), key
