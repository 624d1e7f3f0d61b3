"""The list between environment and policy: the same in rollouts, evaluation, answers and files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from tests.support.own_connectors import ACTIONS
from tests.support.trainers import (
    PLAIN,
    check_restored_exactly,
    make,
    run,
)
from trainables import Callbacks
from trainables.algorithms.a2c import A2C
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.impala import IMPALA
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import ActionAdapter, layout_of, row_space
from trainables.envs.spaces.leaves import leaf_values
from trainables.errors import ConfigError, ExportError
from trainables.policies.filters import NoFilter
from trainables.rollout.batch import Fragment
from trainables.trainer.trainer import Trainer

Array = NDArray[Any]
HERE = "tests.support.own_connectors"
PREVIOUS = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
LSTM: dict[str, Any] = {"use_lstm": True, "lstm_cell_size": 8, "hidden": [16], **PREVIOUS}
WORLD: dict[str, Any] = {**PLAIN, "env": f"{HERE}:World", "model": PREVIOUS}
FRAMES = {"connectors": [{"FrameStack": {"frames": 3}}]}
AGENTS: dict[str, Any] = {
    "env": "tests.support.agents:Targets",
    "env_level": "A",
    "multiagent": {"policies": {"shared": None}},
    "normalize_rewards": False,
}
UNFILTERED = {"observation_filter": "NoFilter"}
CASES: dict[str, dict[str, Any]] = {
    "previous and a memory": {**WORLD, "model": LSTM},
    "previous, filtered": {**WORLD, "observation_filter": "MeanStdFilter"},
    "an interval": {**WORLD, "env_config": {"action": "interval"}, "normalize_actions": True},
    "several columns": {**WORLD, "env_config": {"action": "mixed"}},
    "frames": {**WORLD, **FRAMES, "observation_filter": "MeanStdFilter"},
    "one's own": {**WORLD, "connectors": [{f"{HERE}:Steps": {"scale": 0.5}}, "FrameStack"]},
    "whole episodes": {**WORLD, **FRAMES, "batch_mode": "complete_episodes"},
    "a native vector": {**PLAIN, **FRAMES, "model": LSTM, "native_vector_env": True},
    "two children": {**WORLD, **FRAMES, "num_workers": 2, "train_batch_size": 48},
    "a soft horizon": {**WORLD, "model": LSTM, "horizon": 3, "soft_horizon": True},
    "several agents": {**AGENTS, **FRAMES, "model": LSTM},
}


@pytest.mark.parametrize("case", CASES)
def test_E12_a_restored_trial_equals_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    config = {**CASES[case], "evaluation_interval": 1, "evaluation_num_episodes": 2}
    first = make(config)
    run(first, 2)
    check_restored_exactly(first, make(config), tmp_path)
    first.stop()


def fragment_of(trainer: Trainer) -> Fragment:
    return trainer.workers.sample()[0].fragments[0]


def one_hot(action: str, chosen: Array) -> Array:
    """(…, A) of actions as fragments hold them."""
    layout = layout_of(ACTIONS[action])
    columns = chosen[..., None] if layout.scalar else chosen
    parts = []
    for i, size in enumerate(layout.sizes):
        column = columns[..., i]
        parts.append(np.eye(size)[column.astype(int)] if size else column[..., None])
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("more", [{}, {"batch_mode": "complete_episodes"}], ids=["cut", "whole"])
def test_P18_a_policy_sees_its_last_action_and_the_reward_of_it(
    action: str, more: Mapping[str, Any]
) -> None:
    trainer = make({**WORLD, "env_config": {"action": action}, "clip_actions": False, **more})
    fragment = fragment_of(trainer)
    seen, over = fragment.observations, fragment.terminated | fragment.truncated
    expected = np.concatenate(
        [fragment.rewards[..., None], one_hot(action, fragment.actions)], axis=-1
    )
    none = np.concatenate([[0.0], one_hot(action, np.zeros_like(fragment.actions[0, 0]))])
    assert (seen[0, :, : len(none)] == none).all()
    begins = over[:-1, :, None]
    expected = np.where(begins, none, expected[:-1])
    np.testing.assert_array_equal(seen[1:, ..., : len(none)], expected.astype(np.float32))
    assert over.any()
    assert seen.shape[-1] == len(none) + 2
    trainer.stop()


class Timed(Callbacks):
    """Asks for the number of each step."""

    columns = frozenset({"t"})


def test_P18_each_of_several_agents_sees_what_it_did_itself() -> None:
    trainer = make({**AGENTS, "model": PREVIOUS, "callbacks": Timed, **UNFILTERED})
    sample: Any = trainer.workers.sample()[0]
    fragment = sample["shared"].fragments[0]
    steps, goes_on = ~fragment.autoreset, fragment.t > 0
    seen = fragment.observations
    assert (seen[steps & ~goes_on][:, :4] == [0, 1, 0, 0]).all()
    later = (steps & goes_on)[1:]
    assert later.any()
    assert (seen[1:, :, 0] == fragment.rewards[:-1])[later].all()
    assert (seen[1:, :, 1:4] == np.eye(3)[fragment.actions[:-1]])[later].all()
    assert fragment.rewards.any()
    trainer.stop()


def test_P18_an_off_policy_row_is_followed_by_what_the_policy_will_see() -> None:
    trainer = DQN({"env": f"{HERE}:World", "model": PREVIOUS, "learning_starts": 4, **FRAMES})
    fragment = fragment_of(trainer)
    goes_on = ~(fragment.terminated | fragment.truncated)[:-1]
    following = fragment.declared["new_obs"][:-1]
    assert goes_on.any()
    assert (following == fragment.observations[1:])[goes_on].all()
    ended = fragment.declared["new_obs"][fragment.terminated]
    np.testing.assert_array_equal(ended[:, 0], fragment.rewards[fragment.terminated])
    np.testing.assert_array_equal(ended[:, 1:4], np.eye(3)[fragment.actions[fragment.terminated]])
    trainer.stop()


@pytest.mark.parametrize("case", ["an interval", "one's own", "previous and a memory"])
def test_E12_T19_answers_are_those_of_the_rollouts(case: str) -> None:
    """Each caller is given the raw observation, and tells the reward of the last action."""
    trainer = make({**CASES[case], "explore": False, "num_envs_per_worker": 1})
    trainer.train()
    sampler: Any = trainer.workers.worker._sampler  # type: ignore[attr-defined]
    raw: list[Array] = []
    observe = sampler.connectors.observe

    def noted(rows: Array, carried: Array, counted: bool = False) -> Any:
        raw.extend(rows.copy() if counted is True else ())
        return observe(rows, carried, counted)

    sampler.connectors.observe = noted
    sampler.drop_episode(0, sampler.envs.restart(0, 5)[0])
    fragment = fragment_of(trainer)
    policy, state, reward = trainer.get_policy(), trainer.get_initial_state(), 0.0
    assert policy is not None
    action: Any = None
    adapter = trainer.inference.connectors.adapter
    for t, observation in enumerate(raw[: len(fragment.valid)]):
        alone = trainer.compute_action(observation, state, action, reward, full_fetch=True)
        none = None if action is None else [action]
        parts = [part[None] for part in state]
        many = policy.compute_actions([observation], parts, False, none, [reward])
        action, state, _ = alone
        np.testing.assert_array_equal(many[0][0], action)
        np.testing.assert_allclose(action, adapter(fragment.actions[t])[0], rtol=1e-5)
        reward = float(fragment.rewards[t, 0])
        if fragment.terminated[t, 0]:
            state, reward, action = trainer.get_initial_state(), 0.0, None
    assert fragment.terminated.any()
    trainer.stop()


@pytest.mark.parametrize("case", ["an interval", "frames", "previous and a memory"])
def test_E12_an_evaluation_sees_what_its_own_episode_made(case: str) -> None:
    trainer = make(CASES[case])
    seen: list[Array] = []
    paid: list[float] = []
    actor = trainer.inference.actor
    act_each = actor.act_each

    def noted(observations: Array, memory: Array, streams: Any) -> Any:
        actions, following = act_each(observations, memory, streams)
        seen.append(np.concatenate([observations[0], one_hot(kind, actions)[0]]))
        sent = trainer.inference.connectors.send(actions)
        paid.append((len(paid) + 1) / 2 + float(np.sum(sent)) / 8)
        return actions, following

    kind = CASES[case].get("env_config", {}).get("action", "choice")
    actor.act_each = noted  # type: ignore[method-assign]
    played = trainer.play(1, 3)
    width = seen[0].shape[0] - trainer.spaces.observation_shape[0]
    rows = np.stack(seen)
    sent = rows[:, -width:]
    if kind == "interval":
        sent = np.clip(sent, -1, 1)
    np.testing.assert_allclose(rows[1:, 1 : 1 + width], sent[:-1], atol=1e-6)
    np.testing.assert_allclose(rows[:, 0], [0.0, *paid[:-1]], rtol=1e-5)
    assert played[0]["episode_reward"] == pytest.approx(sum(paid), rel=1e-5)
    assert len(rows) == played[0]["episode_len"] == 5
    trainer.stop()


@pytest.mark.parametrize(
    "case", ["previous and a memory", "an interval", "several columns", "frames", "a native vector"]
)
def test_E12_an_exported_file_plays_as_the_policy_does(case: str, tmp_path: Path) -> None:
    trainer = make(CASES[case])
    run(trainer, 2)
    (file,) = trainer.export_model("onnx", str(tmp_path)).values()  # which compares them
    card = {"config": trainer.raw_user_config, "model": trainer.describe_model()}
    played = trainer.play(3, 4), type(trainer).play_exported(Path(file), card, 3, 4)
    expected, found = (np.array([list(one.values()) for one in of]) for of in played)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert "prev_reward" in card["model"]["inputs"]
    trainer.stop()


def test_E12_stacked_matrices_are_exported_and_stacked_images_are_refused(tmp_path: Path) -> None:
    spaces_ = {**PLAIN, **FRAMES, "env": "tests.support.spaces:AnySpaces"}
    of_images = make({**spaces_, "env_config": {"observation": "image"}})
    with pytest.raises(ExportError, match="FrameStack of images"):
        of_images.export_model("onnx", str(tmp_path))
    trainer = make({**spaces_, "env_config": {"observation": "box", "action": "box"}})
    run(trainer, 2)
    (file,) = trainer.export_model("onnx", str(tmp_path)).values()  # which compares them
    inputs = onnxruntime.InferenceSession(file).get_inputs()
    assert {one.name: one.shape for one in inputs}["frames_in_0"] == ["batch", 12]
    of_images.stop()
    trainer.stop()


def test_E12_a_policy_chooses_before_actions_are_spread_over_their_bounds() -> None:
    box = Box(-9.0, 9.0, (2,), np.float32)
    made = EnvSpaces(box, ACTIONS["interval"], box).connected("player", NoFilter(), True, True)
    chosen = np.array([[-1.0, 1.0], [0.0, 0.5], [-3.0, 2.0]], np.float32)
    sent = made.send(chosen)
    np.testing.assert_allclose(sent, [[-1, 6], [1, 5], [-1, 6]])
    np.testing.assert_allclose(made.adapter.bounded(chosen), [[-1.0, 1.0], [0.0, 0.5], [-1.0, 1.0]])
    np.testing.assert_allclose(made.adapter.inverse(sent[:2]), chosen[:2])
    assert (made.clipping(False).send(chosen)[2] == [-5.0, 8.0]).all()


@pytest.mark.parametrize(
    ("low", "high", "sent"),
    [
        ([50.0, -2.0], [150.0, 2.0], [100.0, 0.0]),
        ([0.0, -np.inf], [np.inf, np.inf], [0.0, 0.0]),
        ([-np.inf, 4.0], [-3.0, 6.0], [-3.0, 5.0]),
        ([-3.4e38, 50.0], [3.4e38, 150.0], [0.0, 100.0]),  # the ends of float32 are not bounds
    ],
)
def test_only_numbers_between_two_bounds_are_spread_over_them(
    low: list[float], high: list[float], sent: list[float]
) -> None:
    space = Box(np.array(low, np.float32), np.array(high, np.float32))
    adapter = ActionAdapter(space, clip=True, normalize=True)
    assert adapter(np.zeros((1, 2), np.float32)).tolist() == [sent]


def test_what_lies_between_minus_1_and_1_already_is_sent_as_it_is() -> None:
    for space in (Box(-1.0, 1.0, (2,), np.float32), Discrete(3), Box(-np.inf, np.inf, (1,))):
        assert ActionAdapter(space, clip=True, normalize=True).spread is None


WIDE = "tests.support.environments:Wide"


@pytest.mark.parametrize("algorithm", [PPO, A2C, IMPALA])
def test_actions_begin_in_the_middle_of_their_bounds_by_default(algorithm: type[Trainer]) -> None:
    trainer = algorithm({"env": WIDE, "num_envs_per_worker": 2, "rollout_fragment_length": 16})
    assert trainer.settings.sampling.normalize_actions is True
    fragment = fragment_of(trainer)
    assert np.abs(fragment.actions).mean() < 2
    drawn = trainer.compute_action(np.zeros(1, np.float32), explore=True)
    best = trainer.compute_action(np.zeros(1, np.float32))
    trainer.stop()
    assert 98 < best[0] < 102
    assert 50 <= drawn[0] <= 150
    expected = np.clip(fragment.actions[..., 0] + 1, 0, 2) / 2
    np.testing.assert_allclose(fragment.rewards, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "config", "expected"),
    [
        (PPO, {}, True),
        (PPO, {"normalize_actions": False}, None),
        (PPO, {"model": {"custom_action_dist": "tests.support.own_distributions:Beta"}}, False),
        (PPO, {"env": "tests.support.external:Counting"}, False),
        (SAC, {}, False),
        (TD3, {}, False),
        (BC, {"input": "nowhere/*.json"}, True),
        (IQL, {"input": "nowhere/*.json"}, True),
    ],
)
def test_what_auto_means(
    algorithm: type[Trainer], config: dict[str, Any], expected: bool | None
) -> None:
    found = algorithm.settle_config({"env": WIDE, **config})
    assert found.get("normalize_actions") is expected


@pytest.mark.parametrize("action", ACTIONS)
def test_the_inverse_of_what_is_sent_is_what_was_chosen(action: str) -> None:
    space = ACTIONS[action]
    layout = layout_of(space)
    flat: Any = row_space(space) if action == "mixed" else space
    adapter = ActionAdapter(space, clip=True, normalize=True)
    rng = np.random.default_rng(0)
    rows = np.stack(
        [rng.integers(n, size=50) if n else rng.uniform(-1, 1, 50) for n in layout.sizes], axis=1
    ).astype(layout.dtype)
    chosen = rows[:, 0] if layout.scalar else rows
    sent = adapter(chosen)
    assert all(flat.contains(one) for one in sent)
    back = adapter.inverse(sent.reshape(len(sent), -1))
    np.testing.assert_allclose(back, rows, atol=1e-5)
    assert len(leaf_values(space, space.sample())) == (3 if action == "mixed" else 1)


def test_W14_E12_the_list_is_logged_and_its_times_are_in_the_results(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        trainer = make({**CASES["one's own"], "env_config": {"action": "interval"}})
        result = trainer.train()
    assert set(result["connector_metrics"]) == {
        *("Steps_ms", "FrameStack_ms", "PreviousAction_ms", "PreviousReward_ms")
    }
    assert all(ms > 0 for ms in result["connector_metrics"].values())
    assert "connector_metrics/Steps_ms" not in result["sampler_perf"]
    expected = ["NoPreprocessor", "rows", "Steps", "FrameStack", "NoFilter", "PreviousAction"]
    expected += ["PreviousReward", "policy", "unsquash", "clip"]
    assert trainer.inference.connectors.described() == expected
    assert f"worker 0: connectors: {', '.join(expected)}" in [one.message for one in caplog.records]
    trainer.stop()
    plain = make()
    assert "connector_metrics" not in plain.train()
    plain.stop()


def test_actions_pass_through_the_users_connectors() -> None:
    as_they_are = {"normalize_actions": False, "clip_actions": False}
    mirrored = {"connectors": [f"{HERE}:Mirrored"], **as_they_are}
    trainer = make({**WORLD, "env_config": {"action": "interval"}, **mirrored})
    fragment = fragment_of(trainer)
    sums = -fragment.actions.sum(axis=2) / 8
    steps = np.round((fragment.rewards - sums) * 2)
    assert set(steps.ravel()) == {1, 2, 3, 4, 5}
    trainer.stop()


def test_a_checkpoint_whose_actions_were_not_spread_is_refused_where_they_are(
    tmp_path: Path,
) -> None:
    trainer = make({"env": WIDE, "normalize_actions": False})
    path = trainer.save(tmp_path)
    trainer.stop()
    other = make({"env": WIDE})
    with pytest.raises(ConfigError, match=r"normalize_actions: true differs from the checkpoint's"):
        other.restore(path)
    other.stop()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"connectors": ["Stack"]}, "FrameStack or package.module:Name"),
    "one frame": ({"connectors": [{"FrameStack": {"frames": 1}}]}, "at least 2"),
    "no connector": ({"connectors": [f"{HERE}:nothing"]}, "returned an int"),
    "another shape": (
        {"connectors": [f"{HERE}:Longer"]},
        r"\(1, 4\).*expected the shapes \(1, 2\)",
    ),
    "an error": ({"connectors": [f"{HERE}:Raising"]}, "RuntimeError: no such row"),
    "masks": (
        {"connectors": ["FrameStack"], "action_mask": "info"},
        "with action_mask",
    ),
    "files": ({"connectors": ["FrameStack"], "output": "logdir"}, "with output"),
    "an evaluation": (
        {"evaluation_config": {"normalize_actions": True}, "evaluation_interval": 1},
        "pass through the training's filter",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(case: str) -> None:
    config, why = REFUSED[case]
    with pytest.raises(ConfigError, match=why) as caught:
        make({**WORLD, "model": {}, **config})
    assert "\n" not in str(caught.value)


def test_images_and_squashed_actions_are_refused() -> None:
    image = {"env": "tests.support.spaces:AnySpaces", "env_config": {"observation": "image"}}
    for previous in ("lstm_use_prev_action", "lstm_use_prev_reward"):
        with pytest.raises(ConfigError, match=rf"^model\.{previous}.*an image has no place"):
            make({**WORLD, **image, "model": {previous: True}})
    with pytest.raises(ConfigError, match=r"normalize_actions.*within the bounds already"):
        SAC({"env": "Pendulum-v1", "normalize_actions": True})


def test_what_is_ones_own_stands_in_no_file(tmp_path: Path) -> None:
    trainer = make({**WORLD, "connectors": [f"{HERE}:Steps"]})
    with pytest.raises(ExportError, match=r"connector Steps cannot be exported"):
        trainer.export_model("onnx", str(tmp_path))
    trainer.stop()


def test_a_checkpoint_goes_on_with_its_own_list(tmp_path: Path) -> None:
    trainer = make(WORLD)
    path = trainer.save(tmp_path)
    trainer.stop()
    for changed in ({"normalize_actions": True}, {"connectors": [f"{HERE}:Mirrored"]}):
        other = make({**WORLD, **changed})
        with pytest.raises(ConfigError, match="differs from the checkpoint's"):
            other.restore(path)
        other.stop()
