"""Training that starts with a trained policy (`restore`): in a trainer, and in a sweep."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sweep
from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.checkpoint import file
from trainables.errors import ConfigError
from trainables.trainer.trainer import Trainer

SMALL: Mapping[str, Any] = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 8,
    "train_batch_size": 16,
    "sgd_minibatch_size": 16,
    "num_sgd_iter": 1,
    "model": {"hidden": [8]},
}


def made(algorithm: type[Trainer] = PPO, **config: Any) -> Any:
    """A small trainer."""
    return algorithm({**SMALL, **config})


def numbers(weights: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Weights as plain data."""
    return {name: one.tolist() for name, one in weights.items()}


@pytest.fixture
def teacher() -> Iterator[Any]:
    """A trainer that has learnt a little."""
    teacher = made(seed=5)
    teacher.train()
    yield teacher
    teacher.stop()


@pytest.mark.parametrize("source", ["checkpoint", "folder", "weights", "exported"])
def test_it_starts_with_the_weights_of_a_file(source: str, teacher: Any, tmp_path: Path) -> None:
    saved = teacher.save(tmp_path / "trial")
    teacher.export_model("safetensors", tmp_path / "exported")
    sources = {
        "checkpoint": saved,
        "folder": tmp_path / "trial",
        "weights": teacher.export_policy_checkpoint(str(tmp_path)),
        "exported": tmp_path / "exported",
    }
    path = str(sources[source])
    PPO.check_config({**SMALL, "restore": path})
    trainer = made(seed=6, restore=path)
    expected = numbers(teacher.policy.weights())
    assert numbers(trainer.policy.weights()) == expected
    (acting,) = trainer.workers.foreach_worker(lambda worker: worker.get_weights())
    assert numbers(acting["default_policy"]) == expected
    trainer.train()
    assert numbers(trainer.policy.weights()) != expected
    trainer.stop()


def test_the_observation_filter_comes_along_and_another_one_is_refused(tmp_path: Path) -> None:
    filtered: dict[str, Any] = {"observation_filter": "MeanStdFilter"}
    teacher = made(seed=5, **filtered)
    teacher.train()
    teacher.save(tmp_path)
    trainer, other = made(restore=str(tmp_path), **filtered), made(restore=str(tmp_path))
    seen = [one.filters["observation"].get_state() for one in (teacher, trainer)]
    assert repr(seen[0]) == repr(seen[1])
    with pytest.raises(ConfigError, match=r"^restore: .* trained with another observation_filter"):
        other.train()
    for one in (teacher, trainer, other):
        one.stop()


@pytest.mark.parametrize("scaled", [False, True])
def test_a_policy_whose_actions_were_scaled_otherwise_is_refused(
    scaled: bool, tmp_path: Path
) -> None:
    teacher = made(env="Pendulum-v1", normalize_actions=scaled)
    teacher.save(tmp_path)
    same = made(env="Pendulum-v1", normalize_actions=scaled, restore=str(tmp_path))
    other = made(env="Pendulum-v1", normalize_actions=not scaled, restore=str(tmp_path))
    same.train()
    learnt = f"its policy was trained with normalize_actions: {str(scaled).lower()}"
    with pytest.raises(ConfigError, match=rf"^restore: .*{learnt}; set this value"):
        other.train()
    for one in (teacher, same, other):
        one.stop()


def test_scaling_of_actions_that_are_choices_does_not_count(tmp_path: Path) -> None:
    teacher = made(normalize_actions=False)
    teacher.save(tmp_path)
    trainer = made(normalize_actions=True, restore=str(tmp_path))
    trainer.train()
    for one in (teacher, trainer):
        one.stop()


def test_a_trial_that_is_resumed_does_not_need_the_file(teacher: Any, tmp_path: Path) -> None:
    path = Path(teacher.export_policy_checkpoint(str(tmp_path)))
    trainer = made(seed=6, restore=str(path))
    trainer.train()
    saved = trainer.save(tmp_path)
    learnt = trainer.train()["learner"]
    path.unlink()
    resumed, begun = made(seed=6, restore=str(path)), made(seed=6, restore=str(path))
    resumed.restore(saved)
    assert resumed.train()["learner"] == learnt
    with pytest.raises(ConfigError, match=r"^restore: "):
        begun.train()
    for one in (trainer, resumed, begun):
        one.stop()


def test_the_target_network_of_dqn_is_the_loaded_one(tmp_path: Path) -> None:
    config = {"env": "CartPole-v1", "model": {"hidden": [8]}, "learning_starts": 1000}
    teacher = DQN({**config, "seed": 5})
    path = teacher.export_policy_checkpoint(str(tmp_path))
    trainer = DQN({**config, "seed": 6, "restore": path})
    target: Mapping[str, Any] = trainer.target.network.weights()
    assert numbers(target) == numbers(teacher.policy.weights())
    teacher.stop()
    trainer.stop()


def test_what_does_not_fit_is_refused_by_its_key(teacher: Any, tmp_path: Path) -> None:
    path = teacher.export_policy_checkpoint(str(tmp_path))
    wider = made(restore=path, model={"hidden": [4]})
    with pytest.raises(ConfigError, match=r"^restore: .* has shape \(8, 4\); expected \(4, 4\)"):
        wider.train()
    wider.stop()
    with pytest.raises(ConfigError, match=r"^restore: .* there is no such file"):
        PPO.check_config({**SMALL, "restore": str(tmp_path / "none")})
    several = {"env": "tests.support.agents:Targets", "multiagent": {"policies": {"a": None}}}
    with pytest.raises(ConfigError, match=r"^restore: .*multiagent\.policies\.NAME\.restore"):
        PPO.check_config({**several, "restore": path})


@pytest.mark.parametrize(
    "data",
    [
        {"policy": np.zeros(3)},
        {"policy": {"w": np.zeros(3)}, "filters": {}},
        {"policy": {"weights": {"w": 1.0}}, "filters": {"observation": {}}},
        {"members": [1]},
    ],
)
def test_a_checkpoint_of_another_trainable_is_refused_by_its_key(
    data: Mapping[str, Any], tmp_path: Path
) -> None:
    path = file.write(tmp_path, 1, {}, {"trainable": {"data": data}}).path
    with pytest.raises(ConfigError, match=r"^restore: .* it contains no policy 'default_policy'"):
        PPO.check_config({**SMALL, "restore": str(path)})


def test_the_settings_of_further_training_are_searched(tmp_path: Path) -> None:
    def search(name: str, trials: int, **more: Any) -> sweep.Sweep:
        return sweep.run(
            "ppo",
            name=name,
            config={**SMALL, **more},
            space={"lr": {"loguniform": [1e-9, 1e-8]}},
            metric="learner/entropy",
            mode="max",
            stop={"training_iteration": 1},
            trials=trials,
            trackers=[],
            searcher="random",
            pool="inline",
            root=tmp_path,
            progress=False,
        )

    folder = search("easy", 1).path / "trials" / "0"
    teacher = made(restore=str(folder))
    expected = teacher.policy.weights()
    for trial in search("harder", 2, restore=str(folder)).trials:
        student = made(restore=str(tmp_path / "harder" / "trials" / str(trial.number)))
        found = student.policy.weights()
        assert all(np.allclose(found[name], expected[name], atol=1e-5) for name in expected)
        student.stop()
    teacher.stop()
