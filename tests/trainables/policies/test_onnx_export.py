import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from gymnasium import spaces

from tests.support.trainers import make
from trainables.algorithms.dqn import DQN
from trainables.algorithms.iql import IQL
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError, ExportError, NotFiniteError
from trainables.policies.onnx import plain
from trainables.policies.onnx.export import check
from trainables.policies.onnx.formats import FILES, READER, Run, load_model
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

HERE = "tests.support.environments"
NO_MEMORY = np.zeros((1, 0), np.float32)


def exported(config: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    trainer = make(config)
    for _ in range(3):
        trainer.train()
    path = trainer.export_model("onnx", folder)["onnx"]
    return trainer, onnxruntime.InferenceSession(path)


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_exported_discrete_policy_acts_as_the_trained_one(
    observation_filter: str, activation: str, tmp_path: Path
) -> None:
    config = {"observation_filter": observation_filter, "model": {"activation": activation}}
    trainer, session = exported(config, tmp_path)
    assert [i.name for i in session.get_inputs()] == ["observation"]
    assert session.get_inputs()[0].shape == ["batch", 4]
    for rows in (1, 5, 64):
        raw = np.random.default_rng(rows).normal(0, 1, (rows, 4)).astype(np.float32)
        logits, actions = session.run(["action_logits", "action"], {"observation": raw})
        head, _ = trainer.inference.actor.forward(trainer.inference.prepare(raw, NO_MEMORY)[0])
        np.testing.assert_allclose(logits, head, atol=1e-5)
        assert actions.tolist() == [trainer.compute_action(one) for one in raw]


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_every_format_acts_as_the_trained_policy_on_what_it_saw(env: str, tmp_path: Path) -> None:
    trainer = make({"env": env, "observation_filter": "MeanStdFilter"})
    trainer.train()
    files = trainer.export_model(list(FILES), tmp_path)
    expected = [trainer.compute_action(one) for one in trainer.recent]
    for form in FILES:
        outputs = load_model(Path(files[form]))({"observation": trainer.recent})
        np.testing.assert_allclose(outputs["action"], expected, atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES.values(), READER])
    trainer.stop()


@pytest.mark.parametrize(
    ("trainer", "config"),
    [
        (DQN, {"dueling": True, "num_atoms": 5, "v_min": 0.0, "v_max": 10.0}),
        (DQN, {"dueling": True, "observation_filter": "MeanStdFilter"}),
        (SAC, {"env": "Pendulum-v1"}),
        (SAC, {}),
        (TD3, {"env": "Pendulum-v1"}),
        (IQL, {}),
        (IQL, {"env": "Pendulum-v1"}),
    ],
)
def test_every_format_acts_as_policies_of_other_families(
    trainer: type[Trainer], config: dict[str, Any], tmp_path: Path
) -> None:
    one = trainer({"env": "CartPole-v1", **config}, TrialContext(seed=1, logdir=tmp_path))
    files = one.export_model(list(FILES), tmp_path / "files")
    rows = np.random.default_rng(2).normal(0, 1, (20, *one.spaces.observation_shape))
    expected = [one.compute_action(row, explore=False) for row in rows.astype(np.float32)]
    for form in FILES:
        outputs = load_model(Path(files[form]))({"observation": rows.astype(np.float32)})
        assert outputs.keys() >= one.describe_model()["outputs"].keys()
        np.testing.assert_allclose(outputs["action"], expected, atol=1e-5)
    one.stop()


def test_a_format_that_lacks_an_operation_says_which_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(plain.OPERATIONS, "Gemm")
    with pytest.raises(ExportError, match=r"Gemm; use the format onnx"):
        make().export_model("safetensors", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_weights_without_a_graph_are_no_policy(tmp_path: Path) -> None:
    path = make().export_policy_checkpoint(str(tmp_path))
    with pytest.raises(ValueError, match="only weights, not an exported policy"):
        plain.load(path)


def test_an_exported_policy_filters_without_a_bound_where_there_is_none(tmp_path: Path) -> None:
    trainer, session = exported({"observation_filter_clip": None}, tmp_path)
    raw = np.full((1, 4), 100.0, dtype=np.float32)
    assert np.abs(trainer.inference.prepare(raw, NO_MEMORY)[0]).max() > 100.0
    (logits,) = session.run(["action_logits"], {"observation": raw})
    np.testing.assert_allclose(
        logits,
        trainer.inference.actor.forward(trainer.inference.prepare(raw, NO_MEMORY)[0])[0],
        atol=1e-4,
    )
    trainer.stop()


def test_a_filter_of_ones_own_is_refused_in_an_exported_model(tmp_path: Path) -> None:
    trainer = make({"observation_filter": "tests.trainables.policies.test_filters:Halved"})
    with pytest.raises(
        ConfigError, match=r"observation_filter: a policy with Halved cannot be exported"
    ):
        trainer.export_model("onnx", tmp_path)
    trainer.stop()


def test_an_exported_continuous_policy_gives_means_and_actions_within_bounds(
    tmp_path: Path,
) -> None:
    trainer, session = exported({"env": "Pendulum-v1"}, tmp_path)
    with torch.no_grad():
        dict(trainer.policy.model.named_parameters())["actor.2.weight"].mul_(500)
    trainer.inference.actor.load(trainer.policy.model.weights())
    path = trainer.export_model("onnx", tmp_path)["onnx"]
    session = onnxruntime.InferenceSession(path)
    means, actions = session.run(
        ["action_mean", "action"], {"observation": trainer.recent.reshape(-1, 3)}
    )
    assert np.abs(means).max() > 2.0
    assert np.abs(actions).max() == 2.0
    expected = [trainer.compute_action(one) for one in trainer.recent]
    np.testing.assert_allclose(actions, expected, atol=1e-5)


class Steered(gymnasium.Env[Any, Any]):
    """Takes numbers of any type, and none beyond their bounds."""

    def __init__(self, kind: str = "float64") -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Box(-0.1, 0.3, (2,), np.dtype(kind).type)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.steps += 1
        ends = self.steps == 5
        return self.observation_space.sample(), float(action.sum()), ends, False, {}


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_exported_actions_are_of_the_environments_type_and_within_its_bounds(
    kind: str, tmp_path: Path
) -> None:
    model = {"lstm_use_prev_action": True, "hidden": [4]}
    # A previous action that comes in float16 is too coarse to be spread, with weights this large.
    spreads = {"normalize_actions": kind != "float16"}
    config = {"env": f"{__name__}:Steered", "env_config": {"kind": kind}, "model": model, **spreads}
    trainer = make(config)
    trainer.train()
    with torch.no_grad():
        dict(trainer.policy.model.named_parameters())["actor.1.weight"].mul_(1e4)
    trainer.inference.actor.load(trainer.policy.model.weights())
    files = trainer.export_model(list(FILES), tmp_path)
    card = {"config": trainer.raw_user_config, "model": trainer.describe_model()}
    assert card["model"]["outputs"]["action"]["dtype"] == kind
    played = trainer.play(2, 4)
    for form in FILES:
        again = type(trainer).play_exported(Path(files[form]), card, 2, 4)
        for before, after in zip(played, again, strict=True):
            assert after["episode_reward"] == pytest.approx(before["episode_reward"], abs=1e-3)
    trainer.stop()


@pytest.mark.slow
def test_observations_and_actions_keep_their_shapes(tmp_path: Path) -> None:
    config = {"env": f"{HERE}:Walled", "clip_actions": False}
    trainer, session = exported(config, tmp_path)
    raw = np.ones((2, 2, 3), dtype=np.float32)
    actions, value = session.run(["action", "value"], {"observation": raw})
    assert actions.shape == (2, 2)
    assert value.shape == (2,)
    np.testing.assert_allclose(actions[0], trainer.compute_action(raw[0]), atol=1e-5)


def test_it_is_one_file_with_no_data_outside_and_no_other_is_left(tmp_path: Path) -> None:
    exported({}, tmp_path / "deep" / "folder")
    assert [p.name for p in (tmp_path / "deep" / "folder").iterdir()] == ["policy.onnx"]
    made = onnx.load(str(tmp_path / "deep" / "folder" / "policy.onnx"), load_external_data=False)
    assert all(one.data_location == onnx.TensorProto.DEFAULT for one in made.graph.initializer)


def test_a_policy_restored_a_moment_ago_is_checked_on_what_its_trial_saw(tmp_path: Path) -> None:
    trainer = make()
    trainer.train()
    other = make()
    other.set_state(trainer.get_state())
    np.testing.assert_array_equal(other.recent, trainer.recent)
    other.export_model(["onnx"], tmp_path)


def test_a_graph_that_disagrees_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, other = make(), make(seed=8)
    trainer.train()
    monkeypatch.setattr(trainer.policy, "onnx_graph", other.policy.onnx_graph)
    with pytest.raises(ExportError, match="differs from the trained one by"):
        trainer.export_model("onnx", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_actions_may_differ_as_far_as_the_means_that_they_are_made_of(tmp_path: Path) -> None:
    trainer = TD3({"env": "Pendulum-v1"}, TrialContext(seed=1, logdir=tmp_path))
    weights = trainer.policy.weights()
    for name in (one for one in weights if one.startswith("actor.")):
        weights[name] *= 0.0
    for layer, seen_by in enumerate((2, 0, 0)):  # the mean is 50 times the third number seen
        weights[f"actor.{layer}.weight"][0, seen_by] = (1.0, 1.0, 50.0)[layer]
    trainer.policy.load_weights(weights)
    trainer.inference.actor.load(weights)
    run = load_model(Path(trainer.export_model("onnx", tmp_path)["onnx"]))
    seen = np.array([[1.0, -1.0, 8.0], [0.0, 0.0, 0.0]], np.float32)

    def rounded(share: float) -> Run:
        def another(inputs: Mapping[str, Any]) -> dict[str, Any]:
            outputs = dict(run(inputs))
            means = outputs["action_mean"]
            means = means + np.float32(share * np.abs(means).max())
            return {**outputs, "action_mean": means, "action": 2.0 * np.tanh(means)}

        return another

    check(trainer.inference, rounded(5e-6), seen)
    with pytest.raises(ExportError, match="action_mean of the exported policy differs"):
        check(trainer.inference, rounded(2e-5), seen)
    trainer.stop()


@pytest.mark.parametrize(
    "env",
    [
        {"env": "tests.support.spaces:AnySpaces", "env_config": {"action": "wide box"}},
        {"env": "tests.support.spaces:HalfOpen"},
    ],
)
def test_an_exported_file_plays_where_numbers_have_64_bits_or_no_bounds(
    env: dict[str, Any], tmp_path: Path
) -> None:
    trainer = make(env)
    (file,) = trainer.export_model("onnx", tmp_path).values()
    card = json.dumps({"config": env, "model": trainer.describe_model()}, allow_nan=False)
    played = type(trainer).play_exported(Path(file), json.loads(card), 2, 3)  # it checks actions
    assert played == trainer.play(2, 3)
    trainer.stop()


def test_weights_that_are_not_finite_are_not_exported(tmp_path: Path) -> None:
    trainer = make()
    with torch.no_grad():
        dict(trainer.policy.model.named_parameters())["actor.0.bias"][0] = float("nan")
    with pytest.raises(NotFiniteError, match=r"actor\.0\.bias.*; export an earlier checkp"):
        trainer.export_model("onnx", tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'h5'.*expected onnx"):
        make().export_model("h5", tmp_path)


def test_the_description_names_shapes_types_and_the_filter() -> None:
    described = make({"env": "Pendulum-v1"}).describe_model()
    assert described["inputs"]["observation"] == {"shape": ["batch", 3], "dtype": "float32"}
    assert described["outputs"]["action_mean"]["shape"] == ["batch", 1]
    box = {"kind": "Box", "shape": [1], "dtype": "float32", "low": [-2.0], "high": [2.0]}
    assert described["action_space"] == box
    assert described["observation_filter"]["kind"] == "MeanStdFilter"
    assert described["parameters"] == 2 * (3 * 64 + 64 + 64 * 64 + 64) + 2 * (64 + 1) + 1
