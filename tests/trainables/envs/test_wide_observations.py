"""A filter is given numbers that float32 rounds as the environment gives them, wherever it acts."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces

from tests.support.growing import Growing
from tests.support.trainers import PLAIN, check_restored_exactly
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.envs.external.client import LocalPolicy
from trainables.envs.external.server import PolicyServer
from trainables.envs.registry import EnvContext
from trainables.envs.spaces.connectors import FrameStack
from trainables.envs.spaces.observations import FlatteningPreprocessor
from trainables.policies.onnx.formats import FILES, load_model
from trainables.trainable import TrialContext

#: Seconds since 1970: float32 holds every 128th of them.
EPOCH = 1.7e9
FILTERED: dict[str, Any] = {"observation_filter": "MeanStdFilter"}
FRAMES: dict[str, Any] = {"connectors": [{"FrameStack": {"frames": 3}}]}
PREVIOUS: dict[str, Any] = {"model": {"hidden": [8], "lstm_use_prev_reward": True}}


class Nested(Growing):
    """The clock in a Dict, beside a choice."""

    def __init__(self) -> None:
        super().__init__(offset=EPOCH, dtype="float64")
        clock = spaces.Box(-1e12, 1e12, (1,), np.float64)
        self.observation_space: Any = spaces.Dict({"clock": clock, "phase": spaces.Discrete(3)})

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        clock = np.array([EPOCH + self._t])
        return {"clock": clock, "phase": np.int64(self._t % 3)}, {}


def config_of(dtype: str = "float64", **more: Any) -> dict[str, Any]:
    env = {"env": "tests.support.growing:Growing", "env_level": "A"}
    own = {"env_config": {"offset": EPOCH, "dtype": dtype}, "model": {"hidden": [8]}}
    return {**PLAIN, **env, **own, "train_batch_size": 48, **FILTERED, **more}


NESTED: dict[str, Any] = {"env": f"{__name__}:Nested", "env_config": {}}
WAYS: dict[str, dict[str, Any]] = {
    "float64": config_of(),
    "int64": config_of("int64"),
    "nested": config_of(**NESTED),
    "stacked": config_of(**FRAMES),
    "beside the last reward": config_of(**PREVIOUS),
    "in children": config_of(num_workers=2),
    "of whole episodes": config_of(batch_mode="complete_episodes"),
}


def made(config: dict[str, Any], folder: Path | None = None) -> PPO:
    return PPO(config, TrialContext(3, logdir=folder))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_learnt_from_tells_one_second_from_the_next(way: str) -> None:
    trainer = made(WAYS[way])
    for _ in range(3):
        trainer.train()
    statistics: Any = trainer.filters["observation"]
    (fragment, *_) = trainer.workers.sample()[0].fragments
    rows = fragment.observations[~fragment.autoreset]
    trainer.stop()
    clocks = [0, 2, 4] if way == "stacked" else [1 if "beside" in way else 0]
    assert rows.dtype == np.float32
    for column in clocks:
        assert len(np.unique(rows[:, column])) >= 8
    if way == "stacked":  # zeros stand before an episode's first
        return
    assert 0 < statistics.mean[0] - EPOCH < 30
    assert 1 < statistics.std[0] < 30


@pytest.mark.parametrize("way", ["float64", "int64", "nested"])
def test_it_acts_and_plays_by_what_it_learns_from(way: str) -> None:
    trainer = made(WAYS[way])
    for _ in range(3):
        trainer.train()
    at_env = trainer.inference.connectors.at_env
    given = [Nested() if way == "nested" else Growing(**WAYS[way]["env_config"])]
    shown = []
    for clock in (0, 1, 20):
        given[0]._t = clock
        shown.append(at_env.observe(given[0]._shown()[0]))
    memory = np.stack([trainer.inference.initial_memory()] * 3)
    seen, *_ = trainer.inference.prepare(np.stack(shown), memory)
    statistics: Any = trainer.filters["observation"]
    clocks = EPOCH + np.array([0, 1, 20])
    expected = (clocks - statistics.mean[0]) / (statistics.std[0] + 1e-8)
    trainer.stop()
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen[:, 0], np.clip(expected, -10, 10), rtol=1e-5)
    assert len(np.unique(seen[:, 0])) == 3


def test_without_a_filter_rows_are_of_float32() -> None:
    trainer = made(config_of(observation_filter="NoFilter"))
    trainer.train()
    (fragment, *_) = trainer.workers.sample()[0].fragments
    assert fragment.observations.dtype == trainer.recent.dtype == np.float32
    assert trainer.describe_model()["inputs"]["observation"]["dtype"] == "float32"
    trainer.stop()


def test_a_dict_is_flattened_in_the_precision_that_it_needs() -> None:
    clock = spaces.Box(-1e12, 1e12, (1,), np.float64)
    wide = FlatteningPreprocessor(spaces.Dict({"clock": clock, "phase": spaces.Discrete(3)}))
    found = wide({"clock": np.array([EPOCH + 1]), "phase": 2})
    assert found.dtype == wide.observation_space.dtype == np.float64
    assert found.tolist() == [EPOCH + 1, 0, 0, 1]
    plain = FlatteningPreprocessor(spaces.Dict({"phase": spaces.Discrete(3)}))
    assert plain({"phase": 2}).dtype == plain.observation_space.dtype == np.float32


def test_frames_are_carried_as_they_were() -> None:
    box = spaces.Box(-1e12, 1e12, (2,), np.float64)
    stack = FrameStack(box, spaces.Discrete(2), frames=3)
    memory = np.zeros((1, stack.memory_size), np.float32)
    for t in range(5):
        rows = np.array([[EPOCH + t + 0.25, -t]])
        stacked, memory = stack.observe(rows, memory)
        assert memory.dtype == np.float32
    assert stacked.tolist() == [[EPOCH + 2.25, -2, EPOCH + 3.25, -3, EPOCH + 4.25, -4]]


def test_a_replay_keeps_every_second_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    own = {"learning_starts": 20, "buffer_size": 500, "timesteps_per_iteration": 64}
    known = ("env", "env_level", "env_config", "model", "observation_filter")
    config = {**{key: config_of()[key] for key in known}, **own}
    first, again = (DQN(config, TrialContext(3)) for _ in range(2))
    first.train()
    check_restored_exactly(first, again, tmp_path)
    rows = first.replay._rows[: len(first.replay)]["observations"]
    seen = first.filter_rows(first.replay.sample(64))["observations"]
    first.stop()
    assert rows.dtype == np.float64
    assert {*np.diff(np.unique(rows[:, 0])).tolist()} == {1.0}
    assert seen.dtype == np.float32
    assert len(np.unique(seen[:, 0])) > 5


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    lines = [
        f'{{"type": "SampleBatch", "obs": [[{EPOCH + t}, {t % 3}]], "new_obs": [[{EPOCH}, 0]], '
        f'"actions": [{t % 2}], "rewards": [1.0], "terminateds": [true]}}'
        for t in range(64)
    ]
    (tmp_path / "data.json").write_text("\n".join(lines))
    env = {key: config_of()[key] for key in ("env", "env_level", "env_config", "model")}
    read = {"input": str(tmp_path), "input_evaluation": []}
    sizes = {"train_batch_size": 64, "rollout_fragment_length": 64}
    trainer = BC({**env, **FILTERED, **read, **sizes}, TrialContext(3))
    trainer.train()
    statistics: Any = trainer.filters["observation"]
    trainer.stop()
    assert statistics.row_count == 64
    assert statistics.mean[0] == pytest.approx(EPOCH + 31.5, abs=1e-3)
    assert statistics.std[0] == pytest.approx(np.std(np.arange(64)), rel=1e-6)


@pytest.mark.parametrize("way", ["float64", "int64", "nested", "stacked"])
def test_an_exported_file_takes_float64_and_tells_one_second_from_the_next(
    way: str, tmp_path: Path
) -> None:
    trainer = made(WAYS[way])
    for _ in range(3):
        trainer.train()
    files = trainer.export_model(list(FILES), tmp_path)  # which compares them
    described = trainer.describe_model()["inputs"]
    session = onnxruntime.InferenceSession(files["onnx"])
    kinds = {one.name: one.type for one in session.get_inputs()}
    name = "observation.clock" if way == "nested" else "observation"
    assert described[name]["dtype"] == "float64"
    assert kinds[name] == "tensor(double)"
    if way != "float64":
        trainer.stop()
        return
    raw = np.array([[EPOCH + t, 0.0] for t in range(8)])
    memory = np.stack([trainer.inference.initial_memory()] * 8)
    head, _ = trainer.inference.actor.forward(trainer.inference.prepare(raw, memory)[0])
    for form in FILES:
        logits = load_model(Path(files[form]))({"observation": raw})["action_logits"]
        np.testing.assert_allclose(logits, head, atol=1e-5)
        assert len(np.unique(logits[:, 0])) == 8
    trainer.stop()


@pytest.mark.parametrize("way", ["float64", "nested"])
def test_an_exported_file_plays_as_the_trained_policy(way: str, tmp_path: Path) -> None:
    config = {**WAYS[way], "env_level": "A", "horizon": 12}
    trainer = made(config)
    for _ in range(3):
        trainer.train()
    (file,) = trainer.export_model("onnx", str(tmp_path)).values()
    card = {"config": config, "model": trainer.describe_model()}
    played = trainer.play(2, 4), PPO.play_exported(Path(file), card, 2, 4)
    trainer.stop()
    assert played[0] == played[1]


def test_a_client_that_decides_by_itself_tells_one_second_from_the_next() -> None:
    weight, one = np.ones((1, 2), np.float32), np.zeros(2, np.float32)
    said = {"layers": [(weight, one)], "activation": "tanh", "clip": 10.0, "log_std": one}
    seen_by = {"mean": np.array([EPOCH]), "scale": np.array([10.0]), "exact": True}
    box = {"box": [1], "low": -1e12, "high": 1e12, "dtype": "float64"}
    own = {"observation_space": box, "action_space": {"discrete": 2}, "port": 0}
    server = PolicyServer(EnvContext(own))
    server.take_policies(1, {"": {**said, **seen_by}})
    policy = LocalPolicy(server.policy(), server.action_space)
    assert policy.head(np.array([EPOCH + 3])).tolist() == pytest.approx([0.3, 0.3])
