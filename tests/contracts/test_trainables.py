"""What every trainable promises; a new algorithm is tested unasked."""

import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.core import plugins
from tests.support.sweeps import stable
from trainables.errors import ConfigError
from trainables.trainable import Trainable, TrialContext

#: Settings with which every algorithm can take an iteration within seconds.
SMALL: dict[str, Any] = {"env": "CartPole-v1", "num_envs_per_worker": 2}
PROGRAM = str(Path(__file__).parents[1] / "support" / "program.py")
#: Settings of those that need others.
OTHERS: dict[str, Any] = {
    "bc": {
        **SMALL,
        "input": str(Path(__file__).parents[1] / "trainables/offline/rllib/plain.json"),
    },
    "command": {"command": [sys.executable, PROGRAM, "data"], "lr": 0.1},
    "td3": {**SMALL, "env": "Pendulum-v1"},
}
SHIPPED = plugins.names("trainables.algorithms")
ALGORITHMS = [name for name in SHIPPED if "env" in OTHERS.get(name, SMALL)]
NAMES = [
    *SHIPPED,
    "tests.support.quadratic:Quadratic",
    "tests.support.quadratic:RayStyle",
    "tests.support.quadratic:quadratic_function",
]


def test_the_algorithms_that_people_look_for_are_found() -> None:
    assert {"ppo", "a2c", "bc", "impala", "iql", "dqn", "sac", "td3", "command"} <= set(SHIPPED)


@pytest.fixture(params=NAMES)
def cls(request: pytest.FixtureRequest) -> type[Trainable]:
    return plugins.find_trainable(request.param, [str(Path.cwd())])


def build(cls: type[Trainable], folder: Path, seed: int = 5) -> Trainable:
    package, _, name = cls.__module__.rpartition(".")
    config = {"noise": 0.5}
    if package == "trainables.algorithms":
        config = OTHERS.get(name, SMALL)
    return cls(config, TrialContext(seed, "7", "trial 7", folder))


def flat(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stable(result).items() if key != "config"}


def test_each_result_has_the_usual_keys(cls: type[Trainable], tmp_path: Path) -> None:
    trainable = build(cls, tmp_path)
    result = trainable.train()
    usual = {
        *("training_iteration", "timesteps_total", "time_this_iter_s", "time_total_s", "done"),
        *("trial_id", "date", "timestamp", "hostname", "node_ip", "pid", "config"),
        *("time_since_restore", "iterations_since_restore", "timesteps_since_restore"),
        "experiment_tag",
    }
    assert usual <= set(result)
    assert (result["training_iteration"], result["trial_id"]) == (1, "7")
    assert result["timesteps_total"] > 0
    trainable.stop()


def test_what_is_restored_from_a_file_goes_on_as_the_original(
    cls: type[Trainable], tmp_path: Path
) -> None:
    original = build(cls, tmp_path)
    original.train()
    path = original.save(tmp_path)
    expected = [flat(original.train()) for _ in range(2)]
    original.stop()
    restored = build(cls, tmp_path, seed=5)
    restored.restore(path)
    assert [flat(restored.train()) for _ in range(2)] == expected
    restored.stop()


def test_saving_changes_nothing(cls: type[Trainable], tmp_path: Path) -> None:
    never = build(cls, tmp_path)
    expected = [flat(never.train()) for _ in range(3)]
    never.stop()
    always = build(cls, tmp_path)
    curve = []
    for _ in range(3):
        curve.append(flat(always.train()))
        always.save(tmp_path)
    always.stop()
    assert curve == expected


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_unknown_setting_is_refused_with_the_nearest_name(name: str) -> None:
    cls = plugins.find_trainable(name, [])
    with pytest.raises(ConfigError, match="did you mean 'gamma'"):
        cls.check_config({**SMALL, "gama": 0.9})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_unknown_environment_is_refused_with_the_nearest_name(name: str) -> None:
    cls = plugins.find_trainable(name, [])
    with pytest.raises(ConfigError, match="CartPole-v1"):
        cls.check_config({**OTHERS.get(name, SMALL), "env": "CartPol-v1"})
