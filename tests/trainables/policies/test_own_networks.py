"""Networks of a person's own in place of ours: acting, learning, checkpoints, refusals."""

import logging
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pytest
import torch

from tests.support.trainers import check_restored_exactly, differences, make
from trainables.algorithms.a2c import A2C
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, ExportError
from trainables.policies.onnx.formats import FILES, load_model
from trainables.policies.own.module import in_acting_mode
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

HERE = "tests.support.own_networks"
IMAGES = {"env": "tests.support.spaces:AnySpaces", "observation_filter": "NoFilter"}
NET = {"custom_model": f"{HERE}:Net", "custom_model_config": {"width": 8}}
PLAIN = {"custom_model": f"{HERE}:Plain"}


def test_the_module_acts_and_learns_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        trainer = make({"model": NET})
    said = [one for one in caplog.messages if f"{HERE}:Net acts and learns in torch" in one]
    assert len(said) == 1
    assert trainer.settings.learner == "torch"
    before = trainer.policy.model.weights()
    assert before["module.body.1.weight"].shape == (8, 4)
    result = trainer.train()
    after = trainer.policy.model.weights()
    for name in ("module.body.1.weight", "module.policy.weight", "module.value.bias"):
        assert (before[name] != after[name]).any()
    assert after["module.body.2.num_batches_tracked"] == 8  # 2 epochs of 4 minibatches
    assert result["episode_len_mean"] > 0
    actor = trainer.inference.actor
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    head, values = actor.forward(x)
    module = trainer.policy.model.eval()
    with torch.no_grad():
        expected, of_values = module(torch.from_numpy(x))
    np.testing.assert_array_equal(head, expected)
    np.testing.assert_array_equal(values, of_values)
    trainer.stop()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_what_is_stored_is_what_the_learner_computes(env: str) -> None:
    trainer = make({"model": PLAIN, "env": env})
    (sample,) = trainer.workers.sample()
    batch = trainer.learning_rows(sample.fragments)
    columns = {name: torch.from_numpy(one) for name, one in batch.columns().items()}
    found = trainer.policy.model.evaluate(columns["observations"], columns["actions"])
    np.testing.assert_allclose(found.logp.detach(), batch.logp, atol=1e-5)
    np.testing.assert_allclose(found.values.detach(), batch.values, atol=1e-5)
    trainer.stop()


CASES: dict[str, dict[str, Any]] = {
    "in process": {"model": NET},
    "two children": {"model": NET, "num_workers": 2, "train_batch_size": 192},
    "continuous": {"model": NET, "env": "Pendulum-v1"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_restored_trial_equals_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    first = make(CASES[case])
    first.train()
    weights = first.get_state()["trainable"]["data"]["policy"]["weights"]
    assert "module.body.2.running_mean" in weights
    check_restored_exactly(first, make(CASES[case]), tmp_path)
    first.stop()


def test_a2c_learns_with_it() -> None:
    trainer = A2C({"env": "CartPole-v1", "model": PLAIN}, TrialContext(seed=1))
    before = trainer.policy.model.weights()
    trainer.train()
    assert differences(before, trainer.policy.model.weights()) != []
    trainer.stop()


def batches_counted(trainer: Trainer) -> int:
    """Passes that moved the statistics of the module's normalisation."""
    weights = trainer.get_weights()["default_policy"]
    (counted,) = [one for name, one in weights.items() if name.endswith("num_batches_tracked")]
    return int(counted)


VALUES = {
    "env": "CartPole-v1",
    "seed": 0,
    "rollout_fragment_length": 4,
    "learning_starts": 8,
    "replay_batch_size": 4,
    "model": {"custom_model": f"{HERE}:Values"},
}


@pytest.mark.parametrize("double", [True, False])
def test_only_the_pass_that_is_learnt_from_moves_statistics(double: bool) -> None:
    trainer = DQN({**VALUES, "double_q": double})
    rows = fragment_rows(trainer)
    for _ in range(3):
        trainer.update(rows)
    assert batches_counted(trainer) == 3
    assert all(one.training for one in trainer.policy.model.modules())
    trainer.stop()


def fragment_rows(trainer: DQN) -> dict[str, Any]:
    """Rows of a replay, drawn at random."""
    stream = np.random.default_rng(0)
    seen = stream.normal(size=(2, 4, 4)).astype(np.float32)
    return {
        "observations": seen[0],
        "new_obs": seen[1],
        "actions": np.array([0, 1, 0, 1]),
        "rewards": np.ones(4, np.float32),
        "terminated": np.zeros(4, np.bool_),
    }


def test_v_traces_pass_moves_no_statistics() -> None:
    trainer = IMPALA({"env": "CartPole-v1", "model": NET})
    trainer.train()
    trainer.train()
    assert batches_counted(trainer) == 2
    trainer.stop()


def test_a_part_that_stays_in_its_acting_mode_is_left_in_it() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2).eval())
    with in_acting_mode(net):
        assert not any(one.training for one in net.modules())
    assert [one.training for one in net.modules()] == [True, True, False]


def test_a_last_minibatch_of_one_row_is_learnt_from_with_the_statistics_of_acting() -> None:
    sizes = {"num_envs_per_worker": 1, "rollout_fragment_length": 3, "sgd_minibatch_size": 2}
    trainer = PPO({"env": "CartPole-v1", "model": NET, "num_sgd_iter": 1, **sizes})
    before = trainer.get_weights()["default_policy"]["module.policy.weight"]
    result = trainer.train()  # minibatches of 2 rows and of 1
    assert np.isfinite(result["learner"]["policy_loss"])
    assert batches_counted(trainer) == 1
    (sample,) = trainer.workers.sample()
    alone = trainer.learning_rows(sample.fragments).select(np.array([True, False, False]))
    trainer.learn_on_batch(alone)
    assert batches_counted(trainer) == 1
    assert (trainer.get_weights()["default_policy"]["module.policy.weight"] != before).any()
    trainer.stop()


@pytest.mark.parametrize(
    ("algorithm", "config", "words"),
    [
        (PPO, {"model": NET, "sgd_minibatch_size": 1}, "sgd_minibatch_size: 1 .*one row"),
        (
            A2C,
            {"model": NET, "num_envs_per_worker": 1, "rollout_fragment_length": 1},
            "train_batch_size: 1 .*one row",
        ),
        (DQN, {**VALUES, "replay_batch_size": 1}, "replay_batch_size: 1 .*one row"),
    ],
)
def test_normalisation_that_never_sees_two_rows_is_refused(
    algorithm: type[Trainer], config: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        algorithm({"env": "CartPole-v1", **config})
    assert "\n" not in str(error.value)
    plain = "Lone" if algorithm is DQN else "Plain"
    algorithm.check_config(
        {"env": "CartPole-v1", **config, "model": {"custom_model": f"{HERE}:{plain}"}}
    )


def test_equal_seeds_make_equal_weights_whatever_was_drawn_before() -> None:
    first = make({"model": NET})
    torch.rand(3)
    second = make({"model": NET})
    other = make({"model": NET}, seed=8)
    assert differences(first.policy.model.weights(), second.policy.model.weights()) == []
    assert differences(first.policy.model.weights(), other.policy.model.weights()) != []
    for one in (first, second, other):
        one.stop()


def test_an_actor_crosses_to_another_process_as_it_is() -> None:
    trainer = make({"model": NET})
    trainer.train()
    actor = trainer.inference.actor
    there = cloudpickle.loads(cloudpickle.dumps(actor))
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(there.forward(x)[0], actor.forward(x)[0])
    trainer.stop()


def test_weights_cross_in_a_file_with_their_buffers(tmp_path: Path) -> None:
    trainer, other = make({"model": NET}), make({"model": NET}, seed=8)
    trainer.train()
    other.import_policy_weights(trainer.export_policy_checkpoint(str(tmp_path)))
    assert differences(other.policy.model.weights(), trainer.policy.model.weights()) == []
    assert differences(other.inference.actor.weights(), trainer.inference.actor.weights()) == []
    trainer.stop()
    other.stop()


@pytest.mark.slow
def test_ranks_learn_with_it() -> None:
    ranks = {"num_workers": 2, "data_parallel": True, "normalize_rewards": False}
    config = {"model": PLAIN, **ranks, "lr_schedule": "constant", "schedule_timesteps": None}
    trainer = make(config)
    assert np.isfinite(trainer.train()["learner"]["policy_loss"])
    trainer.stop()
    with pytest.raises(ConfigError, match="use a module without buffers, or remove data_parallel"):
        PPO.check_config({"env": "CartPole-v1", "model": NET, **ranks, "num_envs_per_worker": 2})


REFUSED = {
    "Wide": r"for observations \(3, 4\) it gave \(3, 3\) and \(3,\); expected a module whose "
    r"outputs have the shapes \(3, 2\) and \(3,\)",
    "ColumnOfValues": r"gave \(3, 2\) and \(3, 1\)",
    "HeadAlone": r"it gave \(3, 2\); expected",
    "Infinite": "its values holds NaN or infinity",
    "Detached": "its head has no gradient",
    "Dropping": "it uses random numbers, as dropout does",
    "Drawing": "it uses random numbers",
    "Crowded": "outputs depend on their row alone",
    "Counting": "outputs depend on their row alone",
    "Doubles": "both.weight of Doubles is torch.float64",
    "Empty": "Empty has no parameter that requires",
    "Raising": r"for observations \(3, 4\) it raised RuntimeError: no rows today",
    "tensor": "tensor returned a Tensor; expected a torch.nn.Module",
    "Nett": "did you mean 'Net'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_the_contract_is_refused_before_training(name: str) -> None:
    config = {"env": "CartPole-v1", "model": {"custom_model": f"{HERE}:{name}"}}
    with pytest.raises(ConfigError, match=REFUSED[name]) as caught:
        PPO.check_config(config)
    assert "\n" not in str(caught.value)
    assert caught.value.place == "model.custom_model"
    with pytest.raises(ConfigError, match=REFUSED[name]):
        PPO(config)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({**PLAIN, "custom_model_config": {"depth": 2}}, r"Plain\(\(4,\), 2, depth\) raised TypeE"),
        ({**PLAIN, "hidden": [8]}, "^model.hidden: has no effect with custom_model"),
        ({**PLAIN, "use_lstm": True}, "^model.use_lstm: has no effect with custom_model"),
        (
            {"custom_model_config": {"width": 2}},
            "^model.custom_model_config: has no effect without custom_model",
        ),
        (f"{HERE}:Plain", f"write model: {{custom_model: {HERE}:Plain}}"),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PPO.check_config({"env": "CartPole-v1", "model": model})


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Net", {"observation_filter": "MeanStdFilter"}),
        ("Net", {"env": "Pendulum-v1"}),
        ("Varied", {"env": "Pendulum-v1"}),
        ("Picture", {**IMAGES, "env_config": {"observation": "image", "action": "box"}}),
        ("Parted", {**IMAGES, "env_config": {"observation": "large image", "action": "box"}}),
    ],
)
def test_every_format_acts_as_the_module_does(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    trainer = make({"model": {"custom_model": f"{HERE}:{name}"}, **config})
    trainer.train()
    files = trainer.export_model(list(FILES), tmp_path)
    expected = [trainer.compute_action(one) for one in trainer.recent]
    for form in FILES:
        outputs = load_model(Path(files[form]))({"observation": trainer.recent})
        np.testing.assert_allclose(outputs["action"], expected, atol=1e-5)
    trainer.stop()


@pytest.mark.parametrize(
    ("model", "config", "form", "message"),
    [
        ({"custom_model": f"{HERE}:Branching"}, {}, "onnx", "differs from the trained one"),
        (
            {"custom_model": f"{HERE}:Picture", "custom_model_config": {"padding": 1}},
            {"env": "tests.support.spaces:AnySpaces", "env_config": {"observation": "image"}},
            "safetensors",
            "Conv with pads",
        ),
        (
            {"custom_model": f"{HERE}:Parted", "custom_model_config": {"turned": True}},
            {"env": "tests.support.spaces:AnySpaces", "env_config": {"observation": "large image"}},
            "torch-export",
            r"cannot export this policy \(.*; use the format onnx",
        ),
    ],
)
def test_a_file_that_would_act_otherwise_is_refused(
    model: dict[str, Any], config: dict[str, Any], form: str, message: str, tmp_path: Path
) -> None:
    trainer = make({"model": model, "observation_filter": "NoFilter", **config})
    trainer.train()
    with pytest.raises(ExportError, match=message):
        trainer.export_model(form, tmp_path)
    assert list(tmp_path.iterdir()) == []
    trainer.stop()


class TestDeepQLearning:
    """The module gives the values of all choices."""

    CONFIG: ClassVar[dict[str, Any]] = {
        "env": "CartPole-v1",
        "num_envs_per_worker": 2,
        "buffer_size": 500,
        "learning_starts": 32,
        "replay_batch_size": 16,
        "updates_per_step": 4,
        "model": {"custom_model": f"{HERE}:Values"},
        "evaluation_interval": 2,
        "evaluation_num_episodes": 2,
    }

    def made(self, config: dict[str, Any] | None = None) -> DQN:
        return DQN({**self.CONFIG, **(config or {})}, TrialContext(seed=3))

    @pytest.mark.parametrize("tau", [0.01, None])
    def test_a_restored_trial_equals_the_uninterrupted_one(
        self, tau: float | None, tmp_path: Path
    ) -> None:
        first = self.made({"tau": tau})
        assert first.settings.learner == "torch"
        before = first.policy.model.weights()
        for _ in range(3):
            first.train()
        after = first.policy.model.weights()
        assert (before["module.net.1.weight"] != after["module.net.1.weight"]).any()
        assert after["module.net.2.num_batches_tracked"] > 0
        target = first.target.network.weights()
        for name in ("running_mean", "num_batches_tracked"):
            same = target[f"module.net.2.{name}"] == after[f"module.net.2.{name}"]
            assert same.all() == (tau is not None)
        again = self.made({"tau": tau})
        check_restored_exactly(first, again, tmp_path)
        actor = again.inference.actor
        there = cloudpickle.loads(cloudpickle.dumps(actor))
        x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
        np.testing.assert_array_equal(there.forward(x)[0], actor.forward(x)[0])
        first.stop()

    @pytest.mark.parametrize("env_config", [{}, {"observation": "image"}])
    def test_every_format_acts_as_the_module_does(
        self, env_config: dict[str, Any], tmp_path: Path
    ) -> None:
        env = "tests.support.spaces:AnySpaces" if env_config else "CartPole-v1"
        trainer = self.made({"env": env, "env_config": env_config})
        trainer.train()
        files = trainer.export_model(list(FILES), tmp_path)
        expected = [trainer.compute_action(one) for one in trainer.recent]
        for form in FILES:
            outputs = load_model(Path(files[form]))({"observation": trainer.recent})
            assert outputs["action"].tolist() == expected
        trainer.stop()

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"dueling": True}, "dueling: true cannot be used with model.custom_model"),
            ({"num_atoms": 51}, "num_atoms: 51 cannot be used with model.custom_model"),
            (
                {"exploration_config": {"type": "ParameterNoise"}},
                "exploration_config.type: ParameterNoise cannot be used with model.custom_model",
            ),
            ({"learner": "fused"}, "learner.*model.custom_model is tests.support.own_networks"),
            (
                {"model": PLAIN},
                r"for observations \(3, 4\) it gave \(3, 2\) and \(3,\); .* the shapes \(3, 2\)$",
            ),
        ],
    )
    def test_what_it_cannot_be_is_refused(self, config: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            DQN.check_config({**self.CONFIG, **config})
