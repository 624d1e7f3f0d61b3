"""Environments of a person's own that are stepped together."""

from typing import Any

import numpy as np
import pytest

from tests.support.together import (
    Beyond,
    Gymnasiums,
    Hits,
    Named,
    Pushes,
    Rewrites,
    SettingsBehind,
    Unannotated,
    Unasked,
    Walks,
    Whole,
    WithSettings,
    made,
)
from tests.support.trainers import only_worker
from trainables import Callbacks
from trainables.algorithms.ppo import PPO
from trainables.envs.make import EnvironmentConfig
from trainables.envs.vector.factory import make_vector_env
from trainables.errors import ConfigError, EnvError


class Sums(Callbacks):
    """Counts samples, and keeps that number."""

    samples = 0

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        self.samples += 1

    def on_train_result(self, *, trainer: Any, result: dict[str, Any]) -> None:
        result["samples"] = self.samples

    def get_state(self) -> Any:
        return self.samples

    def set_state(self, state: Any) -> None:
        self.samples = state


def samples_of(worker: Any) -> int:
    count: int = worker.spec.calls.get_state()
    return count


def ppo(env: Any, **more: Any) -> PPO:
    sizes = {"num_envs_per_worker": 3, "rollout_fragment_length": 16, "num_sgd_iter": 2}
    return PPO({"env": env, "model": {"hidden": [8]}, **sizes, **more})


@pytest.mark.parametrize(("env", "level"), [(Walks, "A"), (Gymnasiums, "C"), (Rewrites, "C")])
def test_W15_a_class_that_steps_together_is_stepped_as_one_object(env: Any, level: str) -> None:
    trainer = ppo(env)
    try:
        assert trainer.config["native_vector_env"] is True
        assert trainer.level == level
        worker = only_worker(trainer)
        (fragment,) = worker.sample().fragments
        ages = fragment.observations[:, :, 1]
        ended = fragment.terminated | fragment.truncated
        assert ended.any(axis=0).all()
        for lane in range(3):
            for t in range(15):
                follows = 0 if ended[t, lane] else ages[t, lane] + 1
                assert ages[t + 1, lane] == follows
                assert bool(fragment.truncated[t, lane]) <= (ages[t, lane] == 9)
    finally:
        trainer.stop()


def test_W15_one_in_rllibs_form_is_resumed_to_the_bit() -> None:
    first, second = ppo(Walks), ppo(Walks)
    try:
        first.train()
        saved = first.save_to_object()
        second.restore_from_object(saved)
        for _ in range(2):
            first.train()
            second.train()
        mine, others = first.get_weights(), second.get_weights()
        for name, weights in mine["default_policy"].items():
            assert np.array_equal(weights, others["default_policy"][name])
    finally:
        first.stop()
        second.stop()


def test_W15_num_envs_needs_no_annotation() -> None:
    trainer = ppo(Unannotated)
    trainer.train()
    trainer.stop()


@pytest.mark.parametrize("env", [WithSettings, SettingsBehind])
def test_W15_beside_num_envs_a_class_may_take_the_whole_of_its_settings(env: Any) -> None:
    with pytest.raises(EnvError, match="expected 3 of them"):
        ppo(env, env_config={"wrong": "rows"}, env_level="C").train()


def test_W15_what_is_seen_may_be_a_dict() -> None:
    trainer = ppo(Named)
    worker = only_worker(trainer)
    (fragment,) = worker.sample().fragments
    trainer.train()
    trainer.stop()
    at, age, *sides = np.moveaxis(fragment.observations, -1, 0)
    assert len(sides) == 2
    assert np.array_equal(sides[1], at > 0)
    begins = (fragment.terminated | fragment.truncated)[:-1]
    assert begins.any()
    assert np.array_equal(age[1:], np.where(begins, 0, age[:-1] + 1))


def test_W15_each_environment_gets_an_action_that_is_a_dict_as_a_dict() -> None:
    config = EnvironmentConfig(env=f"{Pushes.__module__}:Pushes", native_vector_env=True)
    envs: Any = make_vector_env(config, 3)
    envs.reset([1])
    envs.step(np.array([[0.25, 0.0], [0.5, 1.0], [1.0, 1.0]]))
    (vector,) = envs.sub_envs
    told = [(int(one["side"]), one["by"].tolist()) for one in vector.env.told]
    assert told == [(0, [0.25]), (1, [0.5]), (1, [1.0])]
    envs.close()


def test_W15_numbers_in_a_dict_are_taken_as_those_of_a_box_are() -> None:
    """Of another width, and beyond the bounds that the space says."""
    trainer = ppo(Beyond, env_level="C")
    worker = only_worker(trainer)
    (fragment,) = worker.sample().fragments
    trainer.stop()
    assert fragment.observations[:, :, 1].min() == 200


def test_W15_a_first_observation_is_as_the_space_has_it_beside_whole_numbers() -> None:
    trainer = ppo(Whole, env_level="C")
    worker = only_worker(trainer)
    (fragment,) = worker.sample().fragments
    trainer.stop()
    at, age = np.moveaxis(fragment.observations, -1, 0)
    begins = age == 0
    assert begins[1:].any()
    assert np.all(at[begins] % 1 != 0)
    assert np.all(at[~begins] % 1 == 0)


def test_W15_a_dict_that_its_space_does_not_hold_is_said() -> None:
    said = r"returned the observation {'at': .* for environment 0; expected an observation in Dict"
    with pytest.raises(EnvError, match=said):
        ppo(Named, env_config={"wrong": "shape"}, env_level="C").train()


def test_W15_an_info_may_hold_an_empty_dict() -> None:
    trainer = ppo(Hits)
    worker = only_worker(trainer)
    infos = worker.envs.step(np.zeros(3, np.int64)).infos
    trainer.stop()
    assert [infos[i]["hits"] for i in range(3)] == [{"left": 1}, {}, {}]


@pytest.mark.parametrize("workers", [0, 1])
def test_callbacks_that_follow_no_episode_fit_environments_that_restart_by_themselves(
    workers: int,
) -> None:
    path = f"{__name__}:Sums"
    config = {"env": Unasked, "num_envs_per_worker": 3, "callbacks": path}
    PPO.check_config(config)
    trainer = ppo(Unasked, callbacks=path, num_workers=workers)
    assert trainer.train()["samples"] == (0 if workers else 1)
    saved = trainer.save_to_object()
    other = ppo(Unasked, callbacks=path, num_workers=workers)
    other.restore_from_object(saved)
    assert other.workers.foreach_worker(samples_of) == [1]
    trainer.stop()
    other.stop()


@pytest.mark.parametrize("phase", ["on_episode_end", "on_postprocess_traj"])
def test_callbacks_that_follow_episodes_are_refused_before_anything_runs(phase: str) -> None:
    config = {"env": Unasked, "num_envs_per_worker": 3, "callbacks": {phase: print}}
    said = rf"callbacks\.{phase}: cannot be used with this environment.*DISABLED"
    for refuses in (PPO.check_config, PPO):
        with pytest.raises(ConfigError, match=said):
            refuses(config)


def test_evaluation_plays_in_a_width_of_one() -> None:
    trainer = ppo(Walks, evaluation_interval=1, evaluation_num_episodes=3)
    try:
        assert trainer.train()["evaluation"]["episode_len_mean"] <= 10
    finally:
        trainer.stop()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("rows", r"vector_step\(\) returned the infos \[{}\]; expected 3 of them"),
        ("parts", r"vector_step\(\) returned .*expected \(observations, rewards, terminateds"),
        (
            "shape",
            r"vector_reset\(\): the observation of environment 0 has shape \(1,\); expected \(2,\)",
        ),
        (
            "first",
            r"reset_at\(\): the observation of environment \d has shape \(1,\); expected \(2,\)",
        ),
    ],
)
def test_what_breaks_the_form_is_said_in_one_line(wrong: str, said: str) -> None:
    with pytest.raises(EnvError, match=said) as raised:
        ppo(Walks, env_config={"wrong": wrong}, env_level="C").train()
    assert "\n" not in str(raised.value)


def test_a_function_that_makes_one_needs_to_say_so() -> None:
    with pytest.raises(
        ConfigError,
        match=r"native_vector_env: false cannot be used .*stepped together; set it to true",
    ):
        ppo(made)
    trainer = ppo(made, native_vector_env=True)
    trainer.train()
    trainer.stop()
