"""What is ``auto`` is chosen once; a checkpoint continues with its choice."""

import copy
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium
import pytest

from tests.support.trainers import PLAIN, differences, final_state
from trainables.algorithms import ppo
from trainables.envs import registry
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.make import MANY_ENVS
from trainables.trainable import TrialContext
from trainables.trainer.config import TrainerConfig


class Config(ppo.Config):
    """With a setting that the trainer chooses by itself: by the environment's length."""

    pace: Literal["auto", "slow", "fast"] = "auto"


class Paced(ppo.PPO):
    config_class: ClassVar[type[TrainerConfig]] = Config
    auto_settings: ClassVar[tuple[str, ...]] = (*ppo.PPO.auto_settings, "pace")

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        paces = {500: "fast", 200: "slow"}
        return {**super().choose(settings, inspection), "pace": paces[inspection.limit or 0]}


def paced(context: TrialContext | None = None, **more: Any) -> Paced:
    return Paced({**PLAIN, **more}, context)


def test_a_trainer_chooses_by_itself_and_says_what() -> None:
    assert paced().config["pace"] == "fast"
    assert paced(env="Pendulum-v1").config["pace"] == "slow"
    assert paced(pace="slow").config["pace"] == "slow"
    assert "pace" not in paced().raw_user_config


def test_the_keys_to_write_down_are_those_that_are_open() -> None:
    config = {key: value for key, value in PLAIN.items() if key != "lr"}
    assert Paced.settle_config(config)["pace"] == "fast"
    assert Paced.settle_config({**config, "pace": "auto"})["pace"] == "fast"
    assert "pace" not in Paced.settle_config({**config, "pace": "slow"})


def test_a_restore_that_changes_no_choice_reads_no_settings_again(tmp_path: Path) -> None:
    trainer = paced()
    trainer.train()
    before = trainer.settings
    trainer.restore(trainer.save(tmp_path))
    assert trainer.settings is before
    trainer.stop()


def test_a_restore_where_the_environment_is_known_asks_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = paced()
    trainer.train()
    path = trainer.save(tmp_path)
    before = trainer.get_state()
    trainer.train()
    monkeypatch.setattr("trainables.trainer.base.collector.remembered_measurement", None)
    monkeypatch.setattr("trainables.trainer.base.collector.Inquiry", None)
    monkeypatch.setattr(Paced, "_kernel", None)
    trainer.restore(path)
    assert differences(trainer.get_state(), before) == []
    trainer.stop()


def test_a_checkpoint_goes_on_with_its_choice(tmp_path: Path) -> None:
    first = paced(pace="slow")
    first.train()
    saved = first.save(tmp_path)
    second = paced()
    second.restore(saved)
    assert second.config["pace"] == second.settings.model_dump()["pace"] == "slow"
    third = paced(pace="fast")
    third.restore(saved)
    assert third.config["pace"] == "fast"


# -------------------------------------------------------------------------------------------------
# How environments are stepped: native_vector_env: auto.

MANY: dict[str, Any] = {**PLAIN, "num_envs_per_worker": 8, "train_batch_size": 96}
STEPPED = "native_vector_env"


def watched(facts: Any) -> None:
    """A callback."""


def own_cartpole() -> gymnasium.Env[Any, Any]:
    """An environment with a wrapper of one's own."""
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))


def settled(**more: Any) -> Any:
    """What auto means with these settings."""
    return ppo.PPO.settle_config({**MANY, **more})[STEPPED]


@pytest.mark.parametrize(
    "alike",
    [
        {},
        {"env_config": {"sutton_barto_reward": True, "max_episode_steps": 30}},
        {"observation_filter": "MeanStdFilter"},
        {"horizon": 20, "soft_horizon": True},
        {"batch_mode": "complete_episodes"},
        {"callbacks": {"on_train_result": watched}},
        {"num_envs_per_worker": MANY_ENVS},
    ],
)
def test_many_environments_are_one_object_where_gymnasium_has_one(alike: dict[str, Any]) -> None:
    assert settled(**alike) is True


@pytest.mark.parametrize(
    "reason",
    [
        {"num_envs_per_worker": MANY_ENVS - 1},
        {"env": "Pendulum-v1"},
        {"env": f"{__name__}:own_cartpole"},
        {"env_config": {"render_mode": "rgb_array"}},
        {"env_config": {"max_episode_steps": -1}},
        {"env_level": "B"},
        {"restart_failed_sub_environments": True},
        {"remote_worker_envs": True},
        {"callbacks": {"on_episode_step": watched}},
        {"render_env": f"{__name__}:watched"},
        {"record_env": "rollout"},
    ],
)
def test_environments_are_separate_where_something_asks_for_it(reason: dict[str, Any]) -> None:
    assert settled(**reason) is False


def test_an_environment_with_wrappers_or_another_time_limit_than_its_vector_form_is_separate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = "gymnasium.envs.classic_control.cartpole:"
    both: dict[str, Any] = {
        "entry_point": f"{entry}CartPoleEnv",
        "vector_entry_point": f"{entry}CartPoleVectorEnv",
    }
    wrapped = (gymnasium.wrappers.TransformReward.wrapper_spec(func=float),)
    made: dict[str, dict[str, Any]] = {
        "Alike-v7": {"max_episode_steps": 40},
        "Endless-v7": {},
        "Wrapped-v7": {"max_episode_steps": 40, "additional_wrappers": wrapped},
    }
    for env_id, more in made.items():
        spec = gymnasium.envs.registration.EnvSpec(env_id, **both, **more)
        monkeypatch.setitem(gymnasium.registry, env_id, spec)
    assert {env_id: settled(env=env_id) for env_id in made} == {
        "Alike-v7": True,
        "Endless-v7": False,
        "Wrapped-v7": False,
    }
    monkeypatch.setitem(registry._creators, "Alike-v7", lambda _: own_cartpole())
    assert settled(env="Alike-v7") is False


def test_a_trainer_steps_as_it_chose_and_says_so() -> None:
    trainer = ppo.PPO(MANY)
    assert trainer.config[STEPPED] is trainer.environment.native_vector_env is True
    assert trainer.exactness == "A exact state"


def test_a_checkpoint_of_one_object_goes_on_to_the_bit() -> None:
    straight = ppo.PPO(MANY, TrialContext(seed=7))
    straight.train()
    state = copy.deepcopy(straight.get_state())
    straight.train()
    again = ppo.PPO({**MANY, STEPPED: "auto"}, TrialContext(seed=7))
    again.set_state(state)
    again.train()
    assert differences(final_state(straight), final_state(again)) == []
