"""Every kind of observation and action, through rollout, learning, evaluation, acting, export."""

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

from tests.support.proofs import proofs_except
from tests.support.spaces import actions, observations
from tests.support.trainers import (
    PLAIN,
    check_restored_exactly,
    differences,
    make,
    run,
)
from trainables.algorithms.ppo import PPO
from trainables.envs import check
from trainables.envs.make import EnvironmentConfig, make_env, make_vector
from trainables.envs.spaces.actions import ActionLayout, layout_of
from trainables.envs.spaces.leaves import leaf_values, named_leaves
from trainables.envs.spaces.observations import FlatteningPreprocessor, NoPreprocessor
from trainables.errors import ConfigError, EnvError
from trainables.policies.exploration.actions import StochasticSampling
from trainables.policies.learning.networks import ActorCritic
from trainables.policies.onnx.formats import FILES, load_model
from trainables.rollout.batch import Fragment, TrainBatch
from trainables.trainer.families.actor_critic import to_rows

HERE = "tests.support.spaces"
ANY: dict[str, Any] = {
    **PLAIN,
    "env": f"{HERE}:AnySpaces",
    "evaluation_interval": 2,
    "evaluation_num_episodes": 2,
    "model": {"hidden": [16]},
    "env_level": "C",  # not measured, which would take longer than the test
}
IMAGES = {"image", "large image"}


def trainer_of(observation: str = "box", action: str = "discrete", **config: Any) -> PPO:
    env_config = {"observation": observation, "action": action}
    return make({**ANY, "env_config": env_config, **config})


def fragment_of(trainer: PPO) -> Fragment:
    return trainer.workers.sample()[0].fragments[0]


def sub_envs_of(trainer: PPO) -> list[Any]:
    workers: Any = trainer.workers
    return [sub_env.unwrapped for sub_env in workers.worker.envs.sub_envs]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(observations()) - IMAGES))
def test_P11_observations_of_every_kind_are_flattened_in_the_spaces_order(name: str) -> None:
    trainer = trainer_of(observation=name)
    fragment = fragment_of(trainer)
    sub_envs = sub_envs_of(trainer)
    assert fragment.observations.dtype == np.float32
    for env_index, sub_env in enumerate(sub_envs):
        episode = [*range(7), *range(8, 13)]  # the eighth was the final one
        for t, i in enumerate(episode):
            expected = _flattened(sub_env.observation_space, sub_env.seen[i])
            np.testing.assert_allclose(fragment.observations[t, env_index], expected, rtol=1e-6)
    trainer.stop()


def _flattened(space: spaces.Space[Any], observation: Any) -> Any:
    """What gymnasium itself makes of it; pixels are divided by 255."""
    leaves = named_leaves(space, "")
    parts = []
    for leaf, value in zip(leaves.values(), leaf_values(space, observation), strict=True):
        pixels = isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) == 3
        if isinstance(leaf, spaces.MultiDiscrete):
            flat = spaces.MultiDiscrete(leaf.nvec.reshape(-1), start=leaf.start.reshape(-1))
            parts.append(np.asarray(flatten(flat, value.reshape(-1))))
        else:
            parts.append(np.asarray(flatten(leaf, value)) / (255.0 if pixels else 1.0))
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("name", sorted(observations()))
def test_P11_what_a_preprocessor_made_can_be_read_back(name: str) -> None:
    space = observations()[name]
    space.seed(3)
    one = NoPreprocessor(space) if isinstance(space, spaces.Box) else FlatteningPreprocessor(space)
    for _ in range(20):
        raw = space.sample()
        again = one.invert(one(raw))
        assert space.contains(again) or isinstance(space, spaces.Discrete)
        for before, after in zip(leaf_values(space, raw), leaf_values(space, again), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-6)


@pytest.mark.parametrize("bad", [7, 1, "word", None])
def test_P11_an_observation_that_is_not_in_its_space_is_named(bad: Any) -> None:
    with pytest.raises(EnvError, match=r"not in Discrete\(4, start=2\)"):
        FlatteningPreprocessor(spaces.Discrete(4, start=2))(bad)


@pytest.mark.parametrize("name", ["image", "large image"])
def test_P11_images_are_kept_as_bytes_until_the_network(name: str) -> None:
    trainer = trainer_of(observation=name)
    fragment = fragment_of(trainer)
    assert fragment.observations.dtype == np.uint8
    assert fragment.observations.shape == (12, 2, *observations()[name].shape)  # type: ignore[misc]
    np.testing.assert_array_equal(fragment.observations[3, 1], sub_envs_of(trainer)[1].seen[3])
    assert trainer.policy.model.trunk is not None
    trainer.stop()


@pytest.mark.parametrize(
    ("shape", "first", "features"),
    [
        ((84, 84, 4), (32, 8, 4), 3136),
        ((36, 128, 3), (32, 8, 4), 64 * 12),
        ((35, 20, 1), (16, 3, 1), 32 * 16 * 8),
        ((8, 8, 1), (16, 3, 1), 32 * 2 * 2),
    ],
)
def test_images_get_the_network_that_suits_their_size(
    shape: tuple[int, ...], first: tuple[int, ...], features: int
) -> None:
    from trainables.policies.architecture import ModelConfig, architecture

    found = architecture(ModelConfig(), shape)
    assert found.filters[0] == first
    assert found.features == features
    assert (found.hidden, found.activation) == ((512,), "relu")
    assert architecture(ModelConfig(), (7, 7, 1)).filters == ()
    assert architecture(ModelConfig(conv_filters=()), shape).filters == ()


@pytest.mark.parametrize(
    ("observation", "filters", "words"),
    [
        ("image", [[16, 13, 1]], r"leaves nothing of images of 12 x 10 pixels"),
        ("box", [[16, 3, 1]], r"not images"),
    ],
)
def test_convolutions_that_do_not_fit_are_refused(
    observation: str, filters: list[list[int]], words: str
) -> None:
    config = {**ANY, "env_config": {"observation": observation}}
    with pytest.raises(ConfigError, match=words) as caught:
        PPO.check_config({**config, "model": {"conv_filters": filters}})
    assert caught.value.place == "model.conv_filters"


def test_an_image_too_large_for_a_known_network_is_refused_with_its_size() -> None:
    from trainables.policies.architecture import ModelConfig, architecture

    with pytest.raises(ConfigError, match=r"images of 210 x 160 pixels .* at most 128; set it to"):
        architecture(ModelConfig(), (210, 160, 3))


@pytest.mark.slow
@pytest.mark.parametrize("action", sorted(actions()))
@pytest.mark.parametrize("observation", proofs_except({"dict"}, ["dict", "image"]))
def test_stored_logp_equals_what_the_model_recomputes_for_every_kind(
    observation: str, action: str
) -> None:
    trainer = trainer_of(observation=observation, action=action)
    assert isinstance(trainer.policy.model, ActorCritic)
    with torch.no_grad():
        for parameter in trainer.policy.model.actor.parameters():
            parameter.mul_(50.0)  # far from uniform
    trainer._synchronise([])
    batch = _batch(trainer)
    with torch.no_grad():
        evaluated = trainer.policy.model.evaluate(
            torch.from_numpy(batch.observations), torch.from_numpy(batch.actions)
        )
    np.testing.assert_allclose(evaluated.logp.numpy(), batch.logp, atol=2e-5)
    np.testing.assert_allclose(evaluated.values.numpy(), batch.values, atol=2e-5)
    assert np.ptp(batch.logp) > 0.01
    trainer.stop()


def _batch(trainer: PPO) -> TrainBatch:
    fragments = [f for sample in trainer.workers.sample() for f in sample.fragments]
    return TrainBatch.join([to_rows(one, 0.99, 0.95) for one in fragments])


def test_actions_are_drawn_as_often_as_their_probabilities_say() -> None:
    layout = ActionLayout((3, 0, 2, 0))
    head = np.array([[0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0]], dtype=np.float32)
    log_std = np.array([0.0, -1.0], dtype=np.float32)
    count = 40_000
    rows, logp = StochasticSampling(layout).draw(
        np.repeat(head, count, axis=0), log_std, np.random.default_rng(0)
    )
    for column, logits in ((0, head[0, :3]), (2, head[0, 3:5])):
        expected = np.exp(logits) / np.exp(logits).sum()
        seen = np.bincount(rows[:, column].astype(int), minlength=len(expected)) / count
        np.testing.assert_allclose(seen, expected, atol=4 * np.sqrt(0.25 / count))
    np.testing.assert_allclose(rows[:, [1, 3]].mean(0), [2.0, -3.0], atol=0.03)
    np.testing.assert_allclose(rows[:, [1, 3]].std(0), np.exp(log_std), rtol=0.03)
    independent = np.corrcoef(rows.T) - np.eye(4)
    assert np.abs(independent).max() < 0.03
    # E[-log p] is the entropy, and the parts' entropies add up.
    choices = [head[0, :3], head[0, 3:5]]
    entropy = sum(_entropy(logits) for logits in choices) + float(
        (log_std + 0.5 + 0.5 * np.log(2 * np.pi)).sum()
    )
    assert -logp.mean() == pytest.approx(entropy, abs=0.03)


def _entropy(logits: Any) -> float:
    p = np.exp(logits) / np.exp(logits).sum()
    return float(-(p * np.log(p)).sum())


def test_entropies_of_the_parts_add_up() -> None:
    trainer = trainer_of(action="tuple")
    head = torch.tensor([[0.0, 1.0, -1.0, 0.3, 0.7]])
    actions, units = torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1, 64)
    _, entropy = trainer.policy.model._logp_entropy(head, actions, units)
    expected = _entropy(head[0, :3].numpy()) + 2 * (0.5 + 0.5 * np.log(2 * np.pi))
    assert entropy.item() == pytest.approx(expected, rel=1e-5)
    trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("action", sorted(actions()))
def test_P19_an_environment_is_sent_what_its_space_wants(action: str) -> None:
    """`AnySpaces` refuses anything else; what was chosen is stored, what is sent is clipped."""
    trainer = trainer_of(action=action, normalize_actions=False)
    fragment = fragment_of(trainer)
    layout = layout_of(actions()[action])
    assert fragment.actions.shape == (12, 2, *layout.shape)
    assert fragment.actions.dtype == layout.dtype
    rows = fragment.actions.reshape(12, 2, -1)
    for env_index, sub_env in enumerate(sub_envs_of(trainer)):
        for t, sent in enumerate(sub_env.sent):
            assert sub_env.action_space.contains(sent)
            expected = _row(sub_env.action_space, sent)
            seen = rows[t, env_index].astype(np.float64)
            reals = list(layout.real_columns)
            seen[reals] = np.clip(seen[reals], -0.1, 0.1)
            np.testing.assert_allclose(expected, seen, rtol=1e-6)
    if layout.real_columns:
        assert np.abs(rows[..., list(layout.real_columns)]).max() > 0.5
    trainer.stop()


def _row(space: spaces.Space[Any], action: Any) -> Any:
    """An action of the environment as the policy's numbers: choices counted from 0."""
    parts = []
    for leaf, value in zip(
        named_leaves(space, "").values(), leaf_values(space, action), strict=True
    ):
        parts.append((np.asarray(value) - np.asarray(getattr(leaf, "start", 0))).reshape(-1))
    return np.concatenate(parts)


def test_P19_unclipped_real_numbers_are_sent_as_chosen_where_that_is_set() -> None:
    trainer = trainer_of(action="tuple", clip_actions=False)
    with pytest.raises(EnvError, match="is not in Tuple"):
        trainer.train()
    trainer.stop()


#: Each kind of observation and each kind of action at least once.
KINDS = [
    *zip(observations(), itertools.cycle(actions())),
    ("image", "dict"),
]


@pytest.mark.parametrize(("observation", "action"), KINDS)
def test_ppo_learns_evaluates_acts_and_exports_with_every_kind(
    observation: str, action: str, tmp_path: Path
) -> None:
    trainer = trainer_of(observation, action, evaluation_interval=1)
    result = trainer.train()
    assert result["evaluation"]["episodes"] == 2
    assert np.isfinite(list(result["learner"].values())).all()
    env = trainer_env(trainer)
    raw = [env.observation_space.sample() for _ in range(5)]
    assert all(env.action_space.contains(trainer.compute_action(one)) for one in raw)
    session = onnxruntime.InferenceSession(trainer.export_model("onnx", tmp_path)["onnx"])
    described = trainer.describe_model()
    assert [i.name for i in session.get_inputs()] == list(described["inputs"])
    assert {o.name for o in session.get_outputs()} == set(described["outputs"])
    leaves = zip(*(leaf_values(env.observation_space, one) for one in raw), strict=True)
    feed = {
        name: np.stack(values).astype(one["dtype"])
        for (name, one), values in zip(described["inputs"].items(), leaves, strict=True)
    }
    names = [name for name in described["outputs"] if name.startswith("action")]
    names = [name for name in names if name not in ("action_logits", "action_mean")]
    forms = FILES if observation in ("dict", "image") else ("onnx", "safetensors")
    files = trainer.export_model(list(forms), tmp_path)
    for form in forms:
        given = load_model(Path(files[form]))(feed)
        for i, one in enumerate(raw):
            expected = leaf_values(env.action_space, trainer.compute_action(one))
            for name, right in zip(names, expected, strict=True):
                np.testing.assert_allclose(given[name][i], right, atol=1e-5)
    trainer.stop()


def trainer_env(trainer: PPO) -> gymnasium.Env[Any, Any]:
    env: gymnasium.Env[Any, Any] = sub_envs_of(trainer)[0]
    env.observation_space.seed(5)
    return env


@pytest.mark.parametrize("observation", ["dict", "image", "discrete"])
def test_a_filter_normalises_what_the_preprocessor_gives(observation: str, tmp_path: Path) -> None:
    trainer = trainer_of(observation, observation_filter="MeanStdFilter")
    shape = trainer.spaces.observation_shape
    trainer.train()
    assert trainer.filters["observation"].mean.shape == shape  # type: ignore[attr-defined]
    fragment = fragment_of(trainer)
    assert fragment.observations.dtype == np.float32
    assert fragment.observations.min() < -0.1
    trainer.export_model("onnx", tmp_path)
    trainer.stop()


@pytest.mark.parametrize(("observation", "action"), [("dict", "dict"), ("image", "tuple")])
def test_a_restored_trial_of_such_spaces_equals_the_uninterrupted_one(
    observation: str, action: str, tmp_path: Path
) -> None:
    straight, other = (trainer_of(observation, action, env_level="auto") for _ in range(2))
    run(straight, 1)
    check_restored_exactly(straight, other, tmp_path)
    assert straight.exactness == "A exact state"
    straight.stop()


def test_children_of_other_spaces_collect_as_the_trainer_itself() -> None:
    trainer = trainer_of("dict", "dict", num_workers=1)
    alone = trainer_of("dict", "dict")
    assert differences(run(alone, 1)[0]["learner"], run(trainer, 1)[0]["learner"]) == []
    trainer.stop()
    alone.stop()


@pytest.mark.slow
@pytest.mark.parametrize("action", sorted(actions()))
@pytest.mark.parametrize("observation", ["tuple", "image"])
def test_a_row_played_by_itself_is_played_the_same_beside_others(
    observation: str, action: str
) -> None:
    trainer = trainer_of(observation, action)
    rows = fragment_of(trainer).observations.reshape(24, *trainer.spaces.observation_shape)
    none = trainer.inference.actor.initial_memory(24)
    for explore in (False, True):
        streams = [np.random.default_rng(i) if explore else None for i in range(24)]
        together, _ = trainer.inference.actor.act_each(rows, none, streams)
        assert together.dtype == trainer.spaces.layout.dtype
        streams = [np.random.default_rng(i) if explore else None for i in range(24)]
        for i, stream in enumerate(streams):
            alone, _ = trainer.inference.actor.act_each(rows[i : i + 1], none[:1], [stream])
            np.testing.assert_array_equal(together[i], alone[0])
    trainer.stop()


@pytest.mark.slow
def test_an_evaluating_child_sees_images_and_sends_dicts_as_the_trainer_itself() -> None:
    config = {"evaluation_config": {"explore": True}}
    child = trainer_of("image", "dict", evaluation_num_workers=1, **config)
    alone = trainer_of("image", "dict", **config)
    assert child.evaluate() == alone.evaluate()
    child.stop()
    alone.stop()


def test_W11_the_policys_space_is_the_preprocessors_output() -> None:
    trainer = trainer_of("dict")
    read = trainer.spaces
    assert read.observation.shape == read.observation_shape == (2 + 3 + 12 + 11 + 1,)
    assert isinstance(read.raw, spaces.Dict)
    trainer.stop()


def test_W11_with_preprocessing_off_a_box_stays_as_it_is() -> None:
    trainer = trainer_of("box", preprocessor_pref=None)
    assert trainer.spaces.observation == observations()["box"]
    trainer.stop()


def test_an_observation_that_no_policy_reads_is_named_with_what_to_do() -> None:
    settings = {"env": f"{HERE}:Told"}
    told = r"observation\.mission is a Text.*expected Box.*env: package\.module:function"
    with pytest.raises(ConfigError, match=told):
        make({**ANY, **settings})
    unsupported = check.check(settings["env"])["unsupported"]
    assert "observation.mission is a Text" in unsupported
    assert "FilterObservation" in unsupported


def test_a_function_may_wrap_an_environment_until_a_policy_can_live_in_it() -> None:
    trainer = make({**ANY, "env": f"{HERE}:without_words"})
    assert trainer.spaces.observation_shape == (2,)
    run(trainer, 1)
    trainer.stop()


@pytest.mark.parametrize(("name", "word"), [("tuple", "Tuple"), ("dict", "Dict")])
def test_W12_a_raw_tuple_or_dict_that_reaches_a_policy_names_the_preprocessor(
    name: str, word: str
) -> None:
    with pytest.raises(
        ValueError, match=f"{word} observations, .*the {word}FlatteningPreprocessor"
    ):
        trainer_of(name, preprocessor_pref=None)


#: Two parts of it would have one name.
TWICE = spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(3)})})


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (
            spaces.Box(0, 5, (2,), np.int64),
            r"a Box of integers; .*use MultiDiscrete\(\[6, 6\]\) instead",
        ),
        (spaces.Box(-1, 1, (1,), np.int8), r"use MultiDiscrete\(\[3\], start=\[-1\]\) instead"),
        (spaces.Box(0, 255, (8, 8), np.uint8), "a float Box whose values it rounds"),
        (
            spaces.Dict({"say": spaces.Text(3)}),
            "^env: action.say in its action space .* cannot choose from a Text; .*Wrapper",
        ),
        (
            spaces.Tuple((spaces.Discrete(2**25), spaces.Box(0, 1, (1,)))),
            "33554433 choices.*at most 1048576",
        ),
        (TWICE, "have the name action.a.b; use no dots in the keys of a Dict"),
    ],
)
def test_actions_that_no_policy_can_take_are_refused(space: spaces.Space[Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        layout_of(space)


def test_T19_compute_action_preprocesses_and_filters_without_counting() -> None:
    trainer = trainer_of("dict", "dict", observation_filter="MeanStdFilter")
    trainer.train()
    observed: Any = trainer.filters["observation"]
    counted = observed.row_count
    obs = trainer_env(trainer).observation_space.sample()
    first = trainer.compute_action(obs)
    assert isinstance(first, dict)
    assert observed.row_count == counted
    trainer.stop()


def test_T19_a_state_or_full_fetch_also_gives_state_and_fetches() -> None:
    trainer = trainer_of("tuple", "tuple")
    obs = trainer_env(trainer).observation_space.sample()
    action = trainer.compute_action(obs, prev_action=None, prev_reward=0.0, info={})
    for answer in (
        trainer.compute_action(obs, full_fetch=True),
        trainer.compute_action(obs, state=[]),
    ):
        again, state, fetches = answer
        assert differences(list(again), list(action)) == []
        assert state == []
        assert set(fetches) == {"logp", "value"}
    choice, means = action
    head, values = trainer.inference.actor.forward(
        trainer.inference.prepare(
            FlatteningPreprocessor(trainer.spaces.raw)(obs)[None], np.zeros((1, 0))
        )[0]
    )
    assert choice - 5 == np.argmax(head[0, :3])
    np.testing.assert_allclose(means, 0.1 * np.clip(head[0, 3:], -1.0, 1.0), rtol=1e-6)
    assert fetches["value"] == pytest.approx(float(values[0]))
    logits = head[0, :3].astype(np.float64)
    expected = logits.max() - np.log(np.exp(logits).sum()) - 2 * 0.5 * np.log(2 * np.pi)
    assert fetches["logp"] == pytest.approx(expected, abs=1e-5)
    trainer.stop()


def test_T19_a_policy_that_is_not_there_is_named() -> None:
    trainer = trainer_of()
    with pytest.raises(
        ValueError, match=r"policy_id: there is no policy 'other'; expected one of default_policy"
    ):
        trainer.compute_action(observations()["box"].sample(), policy_id="other")
    trainer.stop()


def test_gymnasiums_own_environments_check_their_actions_fast_and_as_strictly() -> None:
    one = make_env(EnvironmentConfig(env="CartPole-v1"))
    many = make_vector(EnvironmentConfig(env="CartPole-v1"), 3)
    plain: list[tuple[Any, spaces.Space[Any]]] = [
        (one.unwrapped.action_space, spaces.Discrete(2)),
        (many.unwrapped.action_space, spaces.MultiDiscrete([2, 2, 2])),
    ]
    given: list[Any] = [0, 1, 2, -1, 1.0, "1", None, True, [0, 1, 1], [0, 1, 2]]
    given += [np.int64(0), np.int64(-1), np.int64(2), np.int32(1), np.uint64(1), np.array(1)]
    given += [np.array(row) for row in ([0, 1, 1], [0, 1, 2], [0, -1, 1], [0, 1], [0.0, 1.0, 1.0])]
    given += [np.array([0, 1, 1], np.int8), np.array([[0, 1, 1]]), np.array([2**62, 0, 0])]
    for quick, known in plain:
        assert type(quick) is not type(known)
        assert isinstance(quick, type(known))
        assert quick == known
        assert [quick.contains(x) for x in given] == [known.contains(x) for x in given]
    one.close()
    many.close()


def test_spaces_of_environments_of_ones_own_are_left_alone() -> None:
    env = make_env(EnvironmentConfig(env="tests.support.environments:Counting"))
    assert type(env.unwrapped.action_space) in (spaces.Discrete, spaces.Box)
