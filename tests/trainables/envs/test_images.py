"""Which observations are images, where their channels are, and how large their numbers are."""

import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation
from numpy.typing import NDArray

from tests.support.pictures import Pictures
from tests.support.trainers import PLAIN, check_restored_exactly, run
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.core.settings import parse
from trainables.envs.make import EnvironmentConfig, EnvSpaces, checked_spaces
from trainables.envs.spaces.images import DEFAULT_IMAGE_SETTINGS, ImagePreprocessor, choose_view
from trainables.envs.spaces.leaves import leaf_values
from trainables.envs.spaces.observations import FlatteningPreprocessor
from trainables.errors import ConfigError, EnvError, NotFiniteError
from trainables.policies.architecture import Architecture, ModelConfig
from trainables.policies.filters import NoFilter
from trainables.policies.learning.layers import unit_pixels
from trainables.policies.onnx.formats import FILES, load_model
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

HERE = "tests.support.pictures"
NETS = "tests.support.own_networks"
SMALL: dict[str, Any] = {"hidden": [8]}
QUICK_DQN = {
    "rollout_fragment_length": 8,
    "learning_starts": 16,
    "replay_batch_size": 16,
    "buffer_size": 64,
    "updates_per_step": 1,
}
KEY = "model.image_layout"


def make(env: str, of: type[Trainer] = PPO, given: Any = None, **config: Any) -> Any:
    """Return a small trainer in an environment of `tests.support.pictures` with these arguments."""
    usual = PLAIN if of is PPO else QUICK_DQN
    base = {**usual, "env": f"{HERE}:{env}", "env_config": given or {}, "model": SMALL}
    base["env_level"] = "C"  # not measured, which would take longer than the test
    return of({**base, **config}, TrialContext(seed=3))


# ---- which are images, and what their numbers are --------------------------------------------


def spaces_of(box: spaces.Space[Any], **model: Any) -> EnvSpaces:
    """Return what a policy needs to know of an environment with such observations."""
    observation_settings = parse(
        PPO.config_class, {"env": "CartPole-v1", "model": model}
    ).model.observation_settings
    config = EnvironmentConfig(env="CartPole-v1").with_observation_settings(observation_settings)
    return checked_spaces(config, box, spaces.Discrete(2))


def networks_of(seen: EnvSpaces, **config: Any) -> Architecture:
    return PPO.networks(parse(PPO.config_class, {"env": "CartPole-v1", **config}), seen)


def numbers(seen: EnvSpaces, raw: Any, **config: Any) -> NDArray[Any]:
    """Return what the networks compute with for an observation of the environment's own."""
    connectors = seen.connected("player", NoFilter(), True, True)
    rows = connectors.rows(connectors.at_env.observe_all([raw]))
    assert rows.shape[1:] == seen.observation_shape
    assert rows.dtype == seen.observation_dtype
    return unit_pixels(torch.from_numpy(rows), networks_of(seen, **config)).numpy()


INF = float("inf")
#: Shape, type and bounds of a Box → the shape that networks see, how many convolutions they have,
#: and the lowest and the highest number.
SEEN: list[tuple[tuple[int, ...], str, float, float, tuple[int, ...], int, float, float]] = [
    ((40, 40, 3), "uint8", 0, 255, (40, 40, 3), 3, 0, 1),
    ((3, 40, 40), "uint8", 0, 255, (40, 40, 3), 3, 0, 1),
    ((40, 50), "uint8", 0, 255, (40, 50, 1), 3, 0, 1),
    ((4, 84, 84), "uint8", 0, 255, (84, 84, 4), 3, 0, 1),
    ((1, 40, 40), "uint8", 0, 255, (40, 40, 1), 3, 0, 1),
    ((2, 40, 50, 3), "uint8", 0, 255, (40, 50, 6), 3, 0, 1),
    ((4, 40, 40, 1), "uint8", 0, 255, (40, 40, 4), 3, 0, 1),
    ((2, 3, 40, 50), "uint8", 0, 255, (40, 50, 6), 3, 0, 1),
    ((40, 40, 3), "float32", 0, 1, (40, 40, 3), 3, 0, 1),
    ((3, 40, 40), "float64", 0, 255, (40, 40, 3), 3, 0, 1),
    ((40, 40, 3), "float32", -1, 1, (40, 40, 3), 3, -1, 1),
    ((40, 40), "float32", 0, 1, (40, 40, 1), 3, 0, 1),
    ((36, 36, 1), "uint16", 0, 65535, (36, 36, 1), 3, 0, 1),
    # Planes, boards and small images.
    ((8, 8, 4), "uint8", 0, 1, (8, 8, 4), 2, 0, 1),
    ((8, 8, 4), "float32", 0, 1, (8, 8, 4), 2, 0, 1),
    ((4, 8, 8), "float32", 0, 255, (8, 8, 4), 2, 0, 1),
    ((8, 8, 111), "bool", 0, 1, (8, 8, 111), 2, 0, 1),
    ((8, 8), "uint8", 0, 12, (8, 8, 1), 2, 0, 1),
    ((9, 9, 2), "int64", 0, 5, (9, 9, 2), 2, 0, 1),
    ((7, 7, 3), "uint8", 0, 10, (7, 7, 3), 0, 0, 1),
    ((2, 2, 3), "uint8", 0, 255, (2, 2, 3), 0, 0, 1),
    ((4, 4), "uint8", 0, 255, (16,), 0, 0, 1),
    ((2, 2, 2, 8, 3), "uint8", 0, 255, (192,), 0, 0, 1),
    # No images: numbers as they are.
    ((6,), "uint8", 0, 255, (6,), 0, 0, 255),
    ((2, 3), "float32", -2, 2, (6,), 0, -2, 2),
    ((6, 7, 2), "int8", 0, 1, (84,), 0, 0, 1),
    ((10, 24), "float32", -5, 5, (240,), 0, -5, 5),
]


@pytest.mark.parametrize(
    ("shape", "dtype", "low", "high", "seen", "filters", "least", "most"), SEEN
)
def test_P11_shape_type_and_bounds_say_what_networks_see(
    shape: tuple[int, ...],
    dtype: str,
    low: float,
    high: float,
    seen: tuple[int, ...],
    filters: int,
    least: float,
    most: float,
) -> None:
    box = spaces.Box(low, high, shape, np.dtype(dtype).type)
    found = spaces_of(box)
    assert found.observation_shape == seen
    assert found.note == ""
    assert len(networks_of(found).filters) == filters
    for end, expected in ((low, least), (high, most)):
        given = numbers(found, np.full(shape, end, box.dtype))
        assert given.dtype == np.float32
        assert np.unique(given).tolist() == [expected]
    # Likewise as a part of a Dict, where all is flattened.
    parted = spaces_of(spaces.Dict({"part": box}))
    given = numbers(parted, {"part": np.full(shape, high, box.dtype)})
    assert given.shape == (1, math.prod(shape))
    assert np.unique(given).tolist() == [most]


def test_a_filter_is_given_the_environments_numbers_and_nothing_divides_its_own() -> None:
    found = spaces_of(spaces.Box(0, 255, (8, 8, 2), np.float32))
    filtered = {"observation_filter": "MeanStdFilter"}
    given = numbers(found, np.full((8, 8, 2), 3.0, np.float32), **filtered)
    assert np.unique(given).tolist() == [3.0]


@pytest.mark.parametrize(
    ("shape", "order"),
    [((3, 8, 9), "CHW"), ((8, 9), "HW"), ((2, 8, 9, 3), "FHWC"), ((2, 3, 8, 9), "FCHW")],
)
def test_an_image_is_laid_out_anew_and_read_back(shape: tuple[int, ...], order: str) -> None:
    box = spaces.Box(0, 255, shape, np.uint8)
    made = ImagePreprocessor(box, choose_view(box, DEFAULT_IMAGE_SETTINGS))
    box.seed(1)
    raw = box.sample()
    row = made(raw)
    assert row.shape == made.observation_space.shape
    assert row.flags.c_contiguous and not np.shares_memory(row, raw)
    size = dict(zip(order, shape, strict=True))
    frames, channels = size.get("F", 1), size.get("C", 1)
    for h, w, f, c in np.ndindex(8, 9, frames, channels):
        at = {"H": h, "W": w, "F": f, "C": c}
        assert row[h, w, f * channels + c] == raw[tuple(at[axis] for axis in order)]
    np.testing.assert_array_equal(made.invert(row), raw)
    with pytest.raises(EnvError, match="shape"):
        made(raw[..., :1])


def test_the_images_of_gymnasiums_wrappers_are_seen_as_images() -> None:
    env = FrameStackObservation(GrayscaleObservation(Pictures((10, 9, 3))), 4)
    found = spaces_of(env.observation_space)
    assert found.observation_shape == (10, 9, 4)
    frames, _ = env.reset(seed=1)
    given = numbers(found, frames)[0]
    np.testing.assert_array_equal(given, np.moveaxis(frames, 0, -1) / np.float32(255))


# ---- what is asked for -----------------------------------------------------------------------


def asking(shape: tuple[int, ...], dtype: str = "uint8", high: float = 255) -> dict[str, Any]:
    given = {"shape": shape, "dtype": dtype, "high": high, "low": -high if dtype != "uint8" else 0}
    return {**PLAIN, "env": f"{HERE}:Pictures", "env_config": given, "model": SMALL}


@pytest.mark.parametrize("shape", [(8, 8, 8), (40, 40, 40), (9, 12, 40), (2, 9, 9, 9)])
def test_images_whose_channels_may_be_either_axis_are_asked_about_in_one_line(
    shape: tuple[int, ...],
) -> None:
    with pytest.raises(ConfigError, match="channels_last or channels_first, or to flat") as caught:
        PPO.check_config(asking(shape))
    assert caught.value.place == KEY
    assert str(shape) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "seen"),
    [
        ({"image_layout": "channels_last"}, (9, 12, 10)),
        ({"image_layout": "channels_first"}, (12, 10, 9)),
        ({"image_layout": "flat"}, (1080,)),
        ({"conv_filters": []}, (9, 12, 10)),
    ],
)
def test_each_answer_is_taken(model: dict[str, Any], seen: tuple[int, ...]) -> None:
    config = {**asking((9, 12, 10)), "model": {**SMALL, **model}}
    PPO.check_config(config)
    found = spaces_of(spaces.Box(0, 255, (9, 12, 10), np.uint8), **model)
    assert found.observation_shape == seen
    assert np.unique(numbers(found, np.full((9, 12, 10), 255, np.uint8), model=model)).tolist() == [
        1
    ]
    assert bool(networks_of(found, model=model).filters) == ("channels" in str(model))


NOTED: list[tuple[tuple[int, ...], str, float, float]] = [
    ((8, 8, 4), "float32", -1, 1),
    ((4, 11, 11), "float32", -INF, INF),
    ((28, 28), "float32", 0, 1),
    ((40, 40), "float32", -INF, INF),
    ((9, 9, 9), "float32", -1, 1),
]


@pytest.mark.parametrize(("shape", "dtype", "low", "high"), NOTED)
def test_what_may_be_an_image_and_is_read_as_a_vector_is_named(
    shape: tuple[int, ...], dtype: str, low: float, high: float
) -> None:
    box = spaces.Box(low, high, shape, np.dtype(dtype).type)
    found = spaces_of(box)
    assert found.observation_shape == (math.prod(shape),)
    assert KEY in found.note and str(shape) in found.note and "\n" not in found.note
    for layout in ("channels_last", "channels_first"):
        image = spaces_of(box, image_layout=layout)
        assert (len(image.observation_shape), image.note) == (3, "")
    assert spaces_of(box, image_layout="flat").note == ""
    assert spaces_of(box, conv_filters=[]).note == ""


def test_convolutions_that_are_named_say_that_it_is_an_image() -> None:
    box = spaces.Box(-1, 1, (8, 8, 4), np.float32)
    assert spaces_of(box, conv_filters=[[4, 3, 1]]).observation_shape == (8, 8, 4)


LOGGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a vector": ({"low": -1.0, "high": 1.0}, "NoFilter", "read as a vector of numbers"),
    "no scale": ({"high": 1e6, "shape": (1, 36, 36)}, "NoFilter", r"\(36, 36, 1\).*not scaled"),
    "a filter": ({"high": 1e6, "shape": (1, 36, 36)}, "MeanStdFilter", ""),
    "a scale": ({"high": 65535.0, "shape": (1, 36, 36)}, "NoFilter", ""),
}


@pytest.mark.parametrize("case", LOGGED)
def test_the_log_names_what_is_read_otherwise_than_it_may_be_meant(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, name, words = LOGGED[case]
    with caplog.at_level(logging.WARNING):
        given = {"dtype": "float32", **given}
        make("Pictures", given=given, observation_filter=name, env_level="C").stop()
    lines = [one.getMessage() for one in caplog.records]
    lines = [line for line in lines if KEY in line or "not scaled" in line]
    assert len(lines) == bool(words)
    assert all(re.search(words, line) and "\n" not in line for line in lines)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a vector": ({"env": "CartPole-v1"}, r"\(4,\).*null or flat"),
    "a Dict": ({"env": f"{HERE}:Planes", "env_config": {"nested": True}}, "null or flat"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_layout_where_there_is_no_image_is_refused(case: str) -> None:
    config, words = REFUSED[case]
    for layout in ("channels_last", "channels_first"):
        with pytest.raises(ConfigError, match=words) as caught:
            PPO.check_config({**config, "model": {"image_layout": layout}})
        assert caught.value.place == KEY
    PPO.check_config({**config, "model": {"image_layout": "flat"}})


def test_the_channels_of_atari_games_are_known_and_no_other_layout_is_taken() -> None:
    config = {"env": "ALE/Pong-v5", "model": {"image_layout": "channels_first"}}
    with pytest.raises(ConfigError, match="DeepMind's wrappers") as caught:
        PPO.check_config(config)
    assert caught.value.place == KEY
    box = spaces.Box(0, 255, (8, 8, 8), np.uint8)
    atari = EnvironmentConfig(env="ALE/Pong-v5")
    assert checked_spaces(atari, box, spaces.Discrete(2)).observation_shape == (8, 8, 8)


def test_a_policy_among_several_has_the_layout_of_all() -> None:
    seen = spaces_of(spaces.Box(0, 255, (8, 9, 3), np.uint8))
    with pytest.raises(ConfigError, match="for all policies"):
        networks_of(seen, model={"image_layout": "channels_first"})


def test_what_learns_from_vectors_alone_names_the_layout_that_makes_one() -> None:
    box = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    assert spaces_of(box, image_layout="flat").observation_shape == (192,)
    config = {"env": "tests.support.spaces:AnySpaces"}
    given = {"env_config": {"observation": "image", "action": "box"}}
    with pytest.raises(ConfigError, match=r"set model\.image_layout to flat"):
        SAC.check_config({**config, **given})
    SAC.check_config({**config, **given, "model": {"image_layout": "flat"}})


# ---- learning --------------------------------------------------------------------------------

LEARNERS: dict[str, tuple[type[Trainer], dict[str, Any], dict[str, Any]]] = {
    "ppo, convolutions": (PPO, {}, {}),
    "ppo, numpy": (PPO, {}, {"model": {**SMALL, "conv_filters": []}}),
    "ppo, torch": (PPO, {}, {"model": {**SMALL, "conv_filters": []}, "learner": "torch"}),
    "ppo, a module": (PPO, {}, {"model": {"custom_model": f"{NETS}:Picture"}}),
    "ppo, a Dict": (PPO, {"nested": True}, {}),
    "ppo, flat": (PPO, {}, {"model": {**SMALL, "image_layout": "flat"}}),
    "ppo, frames": (PPO, {}, {"connectors": [{"FrameStack": {"frames": 2}}]}),
    "dqn, convolutions": (DQN, {}, {}),
    "dqn, numpy": (DQN, {}, {"model": {**SMALL, "conv_filters": []}}),
    "dqn, a module": (DQN, {}, {"model": {"custom_model": f"{NETS}:Values"}}),
}
#: Other observations that say the same.
ALIKE: dict[str, dict[str, Any]] = {
    "of 255": {"highest": 255},
    "floats": {"dtype": "float32"},
    "floats of 255": {"dtype": "float64", "highest": 255},
    "bits": {"dtype": "bool"},
    "channels first": {"axes": (2, 0, 1)},
    "floats of 255, channels first": {"dtype": "float32", "highest": 255, "axes": (2, 0, 1)},
}
#: Those that every learner is given.
FEW = ("of 255", "floats of 255, channels first")


def learnt(learner: str, **given: Any) -> tuple[dict[str, Any], Any]:
    """Return weights after two iterations in `Planes`, and heads for what was seen last."""
    of, env, config = LEARNERS[learner]
    trainer = make("Planes", of, {**env, **given}, **config)
    for _ in range(2):
        trainer.train()
    rows = trainer.recent[:5]
    memory = np.stack([trainer.inference.initial_memory()] * len(rows))
    heads = trainer.inference.actor.forward(trainer.inference.prepare(rows, memory)[0])[0]
    trainer.stop()
    return trainer.policy.weights(), heads


@pytest.mark.parametrize("learner", LEARNERS)
def test_planes_of_other_types_bounds_and_layouts_teach_the_same_to_the_bit(learner: str) -> None:
    """Bounds say what numbers are divided by, wherever a network sees them."""
    weights, heads = learnt(learner)
    convolved = "trunk.convolutions.0.weight" in weights
    assert convolved == ("convolutions" in learner or "frames" in learner)
    for name in ALIKE if learner in ("ppo, convolutions", "dqn, numpy") else FEW:
        given = dict(ALIKE[name])
        if "Dict" in learner or "flat" in learner:
            given.pop("axes", None)  # there the order of the numbers is the environment's own
        others, others_heads = learnt(learner, **given)
        for weight in weights:
            np.testing.assert_array_equal(others[weight], weights[weight], f"{name}: {weight}")
        np.testing.assert_array_equal(others_heads, heads, name)


@pytest.mark.parametrize("of", [PPO, DQN])
def test_filtered_bytes_are_divided_by_nothing_in_numpy_as_in_torch(of: type[Trainer]) -> None:
    config = {"observation_filter": "MeanStdFilter", "model": {**SMALL, "conv_filters": []}}
    found = []
    for learner in ("fused", "torch"):
        trainer = make("Planes", of, {"highest": 255}, learner=learner, **config)
        for _ in range(2):
            trainer.train()
        assert trainer.architecture.filters == ()
        found.append(trainer.policy.weights())
        trainer.stop()
    rows = np.random.default_rng(1).normal(size=(5, 8, 8, 2)).astype(np.float32)
    model, seen = trainer.policy.model, torch.from_numpy(rows)
    with torch.no_grad():
        values = model.value(seen) if of is PPO else model.values(model.outputs(seen, {})).amax(1)
    acted = trainer.inference.actor.forward(rows)[1]
    np.testing.assert_allclose(acted, values.numpy(), rtol=1e-4, atol=1e-5)
    for name, weight in found[0].items():
        np.testing.assert_allclose(found[1][name], weight, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["NoFilter", "MeanStdFilter"])
def test_an_image_with_what_is_no_number_is_an_error_of_one_line(name: str) -> None:
    trainer = make("Broken", given={"shape": (2, 8, 9)}, observation_filter=name, env_level="C")
    with pytest.raises(
        NotFiniteError, match=r"environment 0: observation of shape \(8, 9, 2\)"
    ) as e:
        trainer.train()
    assert "\n" not in str(e.value)
    trainer.stop()


EXPORTED: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "planes": ({"high": 1}, {}, tuple(FILES)),
    "grey": ({"shape": (8, 9)}, {}, ("onnx", "safetensors")),
    "channels first": ({"shape": (2, 8, 9)}, {}, tuple(FILES)),
    "frames": ({"shape": (2, 8, 9, 3)}, {}, tuple(FILES)),
    "frames, channels first": ({"shape": (2, 3, 8, 9)}, {}, ("onnx", "safetensors")),
    "floats": ({"dtype": "float32", "shape": (2, 8, 9)}, {}, tuple(FILES)),
    "bits": ({"dtype": "bool", "high": 1}, {}, ("onnx", "safetensors")),
    "a filter": ({"shape": (2, 8, 9)}, {"observation_filter": "MeanStdFilter"}, ("onnx",)),
    "flat": ({"high": 5}, {"model": {**SMALL, "image_layout": "flat"}}, ("onnx", "safetensors")),
    "a vector": ({"dtype": "float32", "low": -1, "high": 1}, {}, ("onnx",)),
    "a module": (
        {"shape": (2, 8, 9)},
        {"model": {"custom_model": f"{NETS}:Picture"}},
        ("onnx", "safetensors"),
    ),
}


@pytest.mark.parametrize("case", EXPORTED)
def test_an_exported_policy_takes_what_the_environment_gives(case: str, tmp_path: Path) -> None:
    given, config, forms = EXPORTED[case]
    trainer = make("Pictures", given=given, **config)
    trainer.train()
    env = Pictures(**given)
    env.reset(seed=5)
    raw = [env.draw() for _ in range(4)]
    rows = trainer.inference.connectors.at_env.observe_all(raw)
    memory = np.stack([trainer.inference.initial_memory()] * len(raw))
    seen, own, _ = trainer.inference.prepare(rows, memory)
    head, value, _ = trainer.inference.actor.advance(seen, own)
    kind = trainer.describe_model()["inputs"]["observation"]
    assert kind == {
        "shape": ["batch", *env.box.shape],
        "dtype": "uint8" if env.box.dtype == np.uint8 else "float32",
    }
    files = trainer.export_model(list(forms), tmp_path)
    for form in forms:
        out = load_model(Path(files[form]))({"observation": np.stack(raw).astype(kind["dtype"])})
        np.testing.assert_allclose(out["action_logits"], head, atol=1e-4)
        np.testing.assert_allclose(out["value"], value, rtol=1e-4, atol=1e-4)
        assert out["action"].tolist() == [trainer.compute_action(one) for one in raw]
    trainer.stop()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_restored_trial_of_other_layouts_equals_the_uninterrupted_one(
    workers: int, tmp_path: Path
) -> None:
    given = {"shape": (2, 8, 9), "dtype": "float32"}
    more: dict[str, Any] = {
        "evaluation_interval": 1,
        "evaluation_num_episodes": 2,
        "num_workers": workers,
        "env_level": "auto",
    }

    def trainer() -> Any:
        return make("Pictures", given=given, **more)

    straight, other = trainer(), trainer()
    run(straight, 1)
    assert "evaluation" in check_restored_exactly(straight, other, tmp_path)[0]
    straight.stop()


def test_what_a_preprocessor_of_ones_own_gives_may_be_an_image_of_any_layout() -> None:
    model = {**SMALL, "custom_preprocessor": f"{HERE}:ChannelsFirst"}
    own, plain = make("Planes", model=model), make("Planes")
    assert own.spaces.observation_shape == plain.spaces.observation_shape == (8, 8, 2)
    for one in (own, plain):
        one.train()
    for name, weight in plain.policy.weights().items():
        np.testing.assert_array_equal(own.policy.weights()[name], weight)
    own.stop()
    plain.stop()


def test_a_dict_flattens_pixels_of_every_bounds_and_reads_them_back() -> None:
    space = spaces.Dict(
        {
            "board": spaces.Box(0, 3, (3, 3, 2), np.uint8),
            "grey": spaces.Box(0, 255, (9, 9), np.uint8),
            "floats": spaces.Box(0, 255, (9, 9, 1), np.float32),
        }
    )
    space.seed(2)
    made, raw = FlatteningPreprocessor(space), space.sample()
    row = made(raw)
    assert 0.9 < row.max() <= 1.0
    again = made.invert(row)
    for before, after in zip(leaf_values(space, raw), leaf_values(space, again), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6)


def test_nothing_of_an_image_of_bytes_hangs_on_its_new_settings() -> None:
    shape = (8, 8, 3)
    seen = spaces_of(spaces.Box(0, 255, shape, np.uint8))
    assert seen.observation_dtype == np.uint8
    assert not seen.at_env().observes
    assert replace(networks_of(seen), highest_byte=255.0, highest_number=1.0) == networks_of(seen)
    assert ModelConfig().observation_settings.layout is None
