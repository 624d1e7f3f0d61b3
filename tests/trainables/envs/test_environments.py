"""Which environment is meant, what its creator is given, breaches named at the first offence."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.support.environments import Counting, InContext, from_settings
from tests.support.processes import run_python
from tests.support.trainers import make
from trainables.algorithms.ppo import PPO
from trainables.envs import registry
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.registry import EnvContext, register_env
from trainables.envs.vector.base import WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError, EnvError

HERE = "tests.support.environments"
PLAIN: dict[str, Any] = {"evaluation_interval": None, "train_batch_size": None}


@pytest.fixture(autouse=True)
def forgotten_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_creators", {})


# ---- breaches ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("shape", ["step()", "shape (4,)", "expected shape (1,)"]),
        ("ragged", ["step()", "not an array", "expected shape (1,)"]),
        ("dtype", ["step()", "complex128", "cast safely", "float32"]),
        ("reward", ["step()", "reward None", "NoneType", "one real number"]),
        ("rewards", ["step()", "reward array([1., 1.])", "one real number"]),
        ("flag", ["step()", "terminated = 1", "True or False"]),
        ("info", ["step()", "info None", "a dict"]),
        ("four", ["step()", "4 values", "five", "older gym interface"]),
        ("nothing", ["step()", "a NoneType", "five"]),
        ("reset gives an observation", ["reset()", "array([0.]", "older gym interface"]),
        ("reset gives words", ["reset()", "dtype <U1", "float32"]),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_breach_of_the_interface_is_named_with_what_was_given_and_expected(
    what: str, words: list[str], restarts: bool
) -> None:
    environment = EnvironmentConfig(env=f"{HERE}:Breaching", env_config={"what": what})
    config = VectorConfig(restart_failed_sub_environments=restarts)
    envs = make_vector_env(environment, 2, config, WorkerContext(seed=1, worker=3))
    with pytest.raises(EnvError, match="worker 3, environment 0: ") as caught:
        envs.reset([1, 2])
        envs.step(np.array([1, 1]))
    for word in words:
        assert word in str(caught.value)


def test_P17_an_environment_whose_reset_gives_nothing_is_told_that_it_needs_one() -> None:
    config = {"env": f"{HERE}:Breaching", "env_config": {"what": "reset gives nothing"}}
    with pytest.raises(EnvError, match=r"environment 0: .* because every episode begins with"):
        make({**PLAIN, **config, "horizon": 5})


def test_a_reset_without_seed_is_refused_by_name() -> None:
    with pytest.raises(EnvError, match=r"environment 0: .* takes a seed"):
        make({**PLAIN, "env": f"{HERE}:Unseeded"})


def test_an_environment_without_spaces_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the observation_space of .* is missing"):
        PPO.check_config({"env": f"{HERE}:Spaceless"})


@pytest.mark.parametrize(
    ("spaces", "words"),
    [
        (
            {"observation": "Box(-1, 1, (0,))"},
            ["contains no number", "at least one number", "wrapper"],
        ),
        ({"observation": "Box(-1, 1, (3, 0))"}, ["(3, 0)", "contains no number"]),
        ({"observation": "Dict({})"}, ["contains no number"]),
        ({"action": "Box(-1, 1, (0,))"}, ["nothing to choose", "ActionWrapper"]),
        ({"action": "Tuple(())"}, ["nothing to choose"]),
        ({"action": "Discrete(10**12)"}, ["1000000000000", "at most 1048576", "MultiDiscrete"]),
        ({"action": "MultiDiscrete([10**12, 2])"}, ["1000000000002", "at most 1048576"]),
        ({"action": "MultiBinary(10**8)"}, ["200000000", "at most 1048576"]),
        ({"observation": "Discrete(10**12)"}, ["1000000000000", "at most 1048576", "digits"]),
        ({"observation": "Tuple((Discrete(10**12), Box(0, 1)))"}, ["observation.0", "digits"]),
    ],
)
def test_a_space_without_numbers_or_with_too_many_is_refused_in_one_line(
    spaces: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": f"{HERE}:OfSpaces", "env_config": spaces})
    told = str(caught.value)
    assert told.startswith("env: ")
    assert "\n" not in told
    for word in words:
        assert word in told


@pytest.mark.parametrize("env", ["ParallelAgents", "AgentsInTurn"])
def test_an_environment_of_several_agents_needs_policies(env: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": f"{HERE}:{env}"})
    told = str(caught.value)
    for word in ("several agents (first, second)", "{policies: {shared: null}}", "gymnasium.Env"):
        assert word in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("env", "written"),
    [
        ("MiniGrid-Empty-5x5-v0", "minigrid:MiniGrid-Empty-5x5-v0 (after pip install minigrid)"),
        ("BabyAI-GoToObj-v0", "minigrid:BabyAI-GoToObj-v0"),
        ("highway-v0", "highway_env:highway-v0 (after pip install highway-env)"),
        ("PointMaze_UMaze-v3", "gymnasium_robotics:PointMaze_UMaze-v3"),
    ],
)
def test_an_id_of_another_package_is_answered_with_how_to_write_it(env: str, written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": env})
    assert f"write {written}" in str(caught.value)


def test_what_means_the_same_is_accepted() -> None:
    envs = make_vector_env(EnvironmentConfig(env=f"{HERE}:Liberal"), 2)
    envs.reset([1, 2])
    step = envs.step(np.array([1, 1]))
    assert step.observations.dtype == np.float32
    assert step.observations.tolist() == [[1.0], [1.0]]
    assert step.rewards.tolist() == [1.0, 1.0]


def test_environments_of_one_trainer_have_the_same_spaces() -> None:
    register_env("differs", lambda context: Counting(continuous=context.vector_index == 1))
    with pytest.raises(EnvError, match="environment 1: its spaces"):
        make_vector_env(EnvironmentConfig(env="differs"), 2)


# ---- which one is meant --------------------------------------------------------------------------


@pytest.mark.slow
def test_W6_a_creator_of_one_env_config_is_told_where_its_environment_stands() -> None:
    config = {"env": f"{HERE}:InContext", "env_config": {"offset": 9}, "num_workers": 1}
    trainer = make({**PLAIN, **config, "num_envs_per_worker": 2, "rollout_fragment_length": 4,
                    "observation_filter": "NoFilter"})  # fmt: skip
    (sample,) = trainer.workers.sample()
    trainer.stop()
    assert sample.fragments[0].observations[0].tolist() == [[0, 0, 0, 1, 9], [0, 1, 0, 1, 9]]
    remote = make_vector_env(
        EnvironmentConfig(env=f"{HERE}:InContext", env_config={"offset": 9}),
        1,
        VectorConfig(remote_worker_envs=True),
        WorkerContext(seed=1, worker=4),
    )
    assert remote.reset([1]).tolist() == [[4, 0, 1, 0, 9]]
    remote.close()


def test_W6_a_context_is_a_dict_and_its_copies_differ_where_told() -> None:
    context = EnvContext({"size": 3}, worker_index=2, num_workers=5)
    copy = context.copy_with_overrides(vector_index=7, remote=True)
    assert copy == context == {"size": 3}
    assert (copy.worker_index, copy.vector_index, copy.remote, copy.num_workers) == (2, 7, True, 5)
    copy["size"] = 4
    assert context["size"] == 3
    assert context.copy_with_overrides({"size": 8}) == {"size": 8}


def test_W6_other_creators_get_their_settings_as_keyword_arguments() -> None:
    env = make_env(EnvironmentConfig(env=f"{HERE}:Counting", env_config={"length": 8}))
    assert isinstance(env, Counting)
    assert env.length == 8
    classic = make_env(EnvironmentConfig(env=f"{HERE}:from_settings", env_config={"length": 6}))
    assert isinstance(classic, Counting)
    assert classic.length == 6


@pytest.mark.slow
def test_T2_a_class_stands_for_itself_also_in_children() -> None:
    config = {**PLAIN, "env": InContext, "env_config": {"offset": 1}}
    trainer = make({**config, "num_workers": 1})
    assert trainer.settings.environment.env == f"{HERE}:InContext"
    trainer.train()
    trainer.stop()


def test_T2_a_class_that_only_this_process_knows_trains_here_and_is_refused_in_children() -> None:
    class Mine(Counting):
        pass

    trainer = make({**PLAIN, "env": Mine})
    trainer.train()
    for children in ({"num_workers": 1}, {"remote_worker_envs": True}):
        with pytest.raises(ConfigError, match="Mine exists in this process alone"):
            make({**PLAIN, "env": Mine, **children})


@pytest.mark.parametrize("value", [5, None, ["CartPole-v1"], Counting()])
def test_T2_anything_else_is_refused_with_the_value_and_what_is_expected(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": value})
    assert isinstance(caught.value, ValueError)
    assert repr(value)[:20] in str(caught.value)
    assert "a class, a registered id" in str(caught.value)


@pytest.mark.slow
def test_T3_registered_names_come_before_gymnasiums_ids() -> None:
    assert isinstance(make_env(EnvironmentConfig(env="CartPole-v1")), gymnasium.Wrapper)
    register_env("CartPole-v1", from_settings)
    assert isinstance(make_env(EnvironmentConfig(env="CartPole-v1")), Counting)
    register_env("my-own", from_settings)
    trainer = make({**PLAIN, "env": "my-own", "num_workers": 1})
    trainer.train()
    trainer.stop()


def test_T3_an_unknown_name_is_answered_with_the_nearest_registered_one() -> None:
    register_env("my-own-maze", from_settings)
    with pytest.raises(ConfigError, match="did you mean 'my-own-maze'"):
        PPO.check_config({"env": "my-own-mase"})
    with pytest.raises(
        ConfigError, match=r"^register_env\('nothing', 3\): .* must be a class or function"
    ):
        register_env("nothing", 3)  # type: ignore[arg-type]


def test_mujoco_writes_no_file_where_it_warns(tmp_path: Path) -> None:
    """It would be MUJOCO_LOG.TXT in the current folder; the process is new, as its hook is."""
    code = (
        "from trainables.envs.make import EnvironmentConfig, make_env\n"
        "make_env(EnvironmentConfig(env='HalfCheetah-v5')).close()\n"
        "import mujoco; print(mujoco.get_mju_user_warning().__name__)"
    )
    assert run_python(code, cwd=tmp_path) == "_log\n"
    assert list(tmp_path.iterdir()) == []
