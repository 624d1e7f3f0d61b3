"""``act_on``: policies act where they learn, and observations are sent once; the CPU stands in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from tests.support.own_networks import Net
from tests.support.stand_in import as_accelerator, replay_captured_steps
from tests.support.trainers import PLAIN, differences, make, train_to_end
from trainables.algorithms.bc import BC
from trainables.algorithms.dqn import DQN
from trainables.algorithms.iql import IQL
from trainables.algorithms.ppo import PPO
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.errors import ConfigError
from trainables.learners.torch_learner import TorchLearner
from trainables.policies.acting.on_device import (
    DeviceActor,
    DeviceBoundedActor,
    DeviceObservations,
    DeviceQActor,
)
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer


class Excluding(CartPoleEnv):
    """Half of its steps must not be learnt from."""

    def step(self, action: Any) -> Any:
        *outcome, info = super().step(action)  # type: ignore[no-untyped-call]  # of gymnasium
        return *outcome, {**info, "training_enabled": self.np_random.random() < 0.5}


OWN = {"custom_model": f"{Net.__module__}:Net", "custom_model_config": {"width": 8}}
MASKED = {"env": "tests.support.masked:Vault", "action_mask": "info"}
PICTURES = {"env": "tests.support.pictures:Planes", "model": {"hidden": [16]}}
NOISE: dict[str, Any] = {"exploration_config": {"type": "ParameterNoise"}}


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    as_accelerator(monkeypatch)


def actor_of(trainer: Trainer) -> Any:
    worker = trainer.workers.local_worker()
    return None if worker is None else worker.get_policy()


def course(config: dict[str, Any], act_on: str) -> tuple[list[dict[str, Any]], Any]:
    trainer = make({**PLAIN, "num_gpus": 1, **config, "act_on": act_on})
    assert isinstance(actor_of(trainer), DeviceActor) is (act_on == "gpu")
    return train_to_end(trainer, 3)


@pytest.mark.parametrize(
    "config",
    [
        {"model": OWN},
        {"model": OWN, "env": "Pendulum-v1"},
        {"model": OWN, "observation_filter": "MeanStdFilter", "train_batch_size": 96},
        {"model": OWN, "batch_mode": "complete_episodes"},
    ],
    ids=["choices", "numbers", "filtered, four fragments", "whole episodes"],
)
def test_a_course_with_acting_on_the_device_is_the_same_to_the_bit(config: dict[str, Any]) -> None:
    assert differences(course(config, "gpu"), course(config, "cpu")) == []


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"env": "Pendulum-v1"},
        {"env": "tests.support.masked:Vault", "action_mask": "info"},
        PICTURES,
    ],
    ids=["choices", "numbers", "masks", "pictures"],
)
def test_built_in_networks_choose_the_same_actions_there(config: dict[str, Any]) -> None:
    samples = []
    for act_on in ("gpu", "cpu"):
        trainer = make({**PLAIN, "num_gpus": 1, **config, "act_on": act_on})
        (sample,) = trainer.workers.sample()
        samples.append({name: sample[name].copy() for name in ("actions", "logp", "values")})
        trainer.stop()
    np.testing.assert_allclose(samples[0]["actions"], samples[1]["actions"], atol=1e-5)
    for name in ("logp", "values"):
        np.testing.assert_allclose(samples[0][name], samples[1][name], atol=1e-5)


def test_several_policies_act_there_as_on_the_cpu() -> None:
    ends = []
    for act_on in ("gpu", "cpu"):
        agents = {"policies": {"left": None, "right": None, "brief": None}}
        config = {"env": "tests.support.agents:Targets", "model": OWN, "multiagent": agents}
        trainer = PPO({**config, "num_gpus": 1, "act_on": act_on}, TrialContext(seed=5))
        for _ in range(2):
            trainer.train()
        assert {one.frames is not None for one in trainer.members.values()} == {act_on == "gpu"}
        ends.append(trainer.get_weights())
        trainer.stop()
    assert differences(ends[0], ends[1]) == []


def counted_sends(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each batch that is learnt from: True if its observations were on the device already."""
    found: list[bool] = []
    take = DeviceObservations.take

    def noted(frames: DeviceObservations, rows: Any) -> Any:
        kept = take(frames, rows)
        found.append(kept is not None)
        if kept is not None:
            assert torch.equal(kept, torch.from_numpy(rows))
        return kept

    monkeypatch.setattr(DeviceObservations, "take", noted)
    return found


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({}, True),
        (PICTURES, True),
        ({"train_batch_size": 96}, True),
        ({"observation_filter": "MeanStdFilter"}, True),
        ({"batch_mode": "complete_episodes"}, False),
        ({"env": f"{__name__}:Excluding"}, False),
    ],
    ids=["vectors", "pictures", "four fragments", "filtered", "whole episodes", "invalid rows"],
)
def test_observations_are_sent_again_only_if_the_batch_has_other_rows(
    config: dict[str, Any], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = counted_sends(monkeypatch)
    trainer = make({**PLAIN, "num_gpus": 1, **config, "act_on": "gpu"})
    for _ in range(3):
        trainer.train()
    assert found == [kept] * 3
    trainer.stop()


def test_observations_that_a_callback_changed_are_those_that_are_learnt_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = counted_sends(monkeypatch)
    trainer = make({**PLAIN, "num_gpus": 1, "act_on": "gpu"})
    (sample,) = trainer.workers.sample()
    sample.fragments[0].observations[3, 1] += 1.0
    learner = trainer.learner
    assert isinstance(learner, TorchLearner)
    batch = trainer.learning_rows(sample.fragments)
    with learner.learning():
        (minibatch,) = learner.minibatches(batch, 24, np.random.default_rng(0), 24)
    assert found == [False]
    expected = np.sort(batch.observations, axis=0)
    np.testing.assert_array_equal(np.sort(minibatch["observations"].numpy(), axis=0), expected)
    trainer.stop()


@pytest.mark.parametrize(
    "config",
    [{}, {"dueling": True, "num_atoms": 5}, {"noisy": True}, PICTURES, {"model": {"hidden": []}}],
)
def test_a_q_network_chooses_the_same_there(config: dict[str, Any]) -> None:
    chosen = []
    for act_on in ("gpu", "cpu"):
        base = {"env": "CartPole-v1", "num_gpus": 1, "learning_starts": 10_000}
        trainer = DQN({**base, **config, "act_on": act_on}, TrialContext(seed=2))
        assert isinstance(actor_of(trainer), DeviceQActor) is (act_on == "gpu")
        (sample,) = trainer.workers.sample()
        chosen.append(sample["actions"].copy())
        trainer.stop()
    np.testing.assert_array_equal(chosen[0], chosen[1])


#: Name → algorithm and settings of off-policy actor-critics, which explore from the first step on.
BOUNDED: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "sac": (SAC, {"env": "Pendulum-v1", "exploration_config": {"random_timesteps": 0}}),
    "sac of choices": (SAC, {"exploration_config": {"random_timesteps": 0}}),
    "sac with gsde": (
        SAC,
        {
            "env": "Pendulum-v1",
            "exploration_config": {
                "type": "StateDependentNoise",
                "random_timesteps": 0,
                "sample_freq": 3,
            },
        },
    ),
    "td3": (TD3, {"env": "Pendulum-v1", "exploration_config": {"random_timesteps": 0}}),
    "td3 that drifts": (
        TD3,
        {
            "env": "Pendulum-v1",
            "exploration_config": {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0},
        },
    ),
}


def bounded(kind: str, act_on: str, **more: Any) -> Trainer:
    cls, own = BOUNDED[kind]
    base: dict[str, Any] = {"env": "CartPole-v1", "num_gpus": 1, "model": {"hidden": [16, 8]}}
    base |= {"num_envs_per_worker": 2, "rollout_fragment_length": 8, "learning_starts": 8}
    base |= {"replay_batch_size": 8, "updates_per_step": 2}
    trainer = cls({**base, **own, **more, "act_on": act_on}, TrialContext(seed=2))
    assert isinstance(actor_of(trainer), DeviceBoundedActor) is (act_on == "gpu")
    return trainer


@pytest.mark.parametrize("kind", BOUNDED)
def test_an_actor_of_sac_and_td3_chooses_the_same_there(kind: str) -> None:
    found = []
    for act_on in ("gpu", "cpu"):
        trainer = bounded(kind, act_on)
        trainer.train()  # so that the actor's weights are not those of its beginning
        (sample,) = trainer.workers.sample()
        alone = actor_of(trainer).act_each(sample["observations"][:2], np.zeros((2, 0)), [None] * 2)
        found.append((sample["actions"].copy(), alone[0]))
        trainer.stop()
    for there, here in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, atol=1e-4)


def test_a_course_of_choices_by_sac_with_acting_there_is_the_same_to_the_bit() -> None:
    there, here = (train_to_end(bounded("sac of choices", act_on), 6) for act_on in ("gpu", "cpu"))
    assert differences(there, here) == []


@pytest.mark.parametrize("kind", BOUNDED)
def test_sac_and_td3_that_act_there_go_on_from_a_checkpoint_to_the_bit(
    kind: str, tmp_path: Path
) -> None:
    first, again = bounded(kind, "gpu"), bounded(kind, "gpu")
    for _ in range(3):
        first.train()
    again.restore(first.save(tmp_path))
    assert differences(train_to_end(first, 3), train_to_end(again, 3)) == []


@pytest.mark.parametrize(
    ("cls", "config"),
    [
        (PPO, {"model": OWN}),
        (PPO, {**PICTURES, "precision": "bf16"}),
        (PPO, {"env": "Pendulum-v1", "num_envs_per_worker": 3}),
        (DQN, {"learning_starts": 8, "updates_per_step": 2, **MASKED}),
        (DQN, {"learning_starts": 8, "updates_per_step": 2, "noisy": True}),
        *BOUNDED.values(),
    ],
)
def test_acting_is_captured_and_gives_the_same_numbers_to_the_bit(
    cls: type[Trainer],
    config: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    replay_captured_steps(monkeypatch)
    base = {"env": "CartPole-v1", "num_gpus": 1, "rollout_fragment_length": 12, "act_on": "gpu"}
    found = {}
    for graphs in ("on", "off"):
        trainer = cls({**base, **config, "graphs": graphs}, TrialContext(seed=3))
        found[graphs] = train_to_end(trainer, 3)
        captured = trainer.acting_graphs.captured if trainer.acting_graphs else 0
        assert captured == (graphs == "on")
    assert [one for one in caplog.messages if "cannot be captured" in one] == []
    assert differences(found["on"], found["off"]) == []


def test_auto_acts_there_with_convolutions_or_wide_layers_only() -> None:
    for config, there in (
        ({}, False),
        ({"model": {"hidden": [255]}}, False),
        ({"model": {"hidden": [64, 256]}}, True),
        (PICTURES, True),
        ({**PICTURES, "num_gpus": 0}, False),
        ({**PICTURES, "num_workers": 1}, False),
    ):
        trainer = make({**PLAIN, "num_gpus": 1, **config})
        assert (trainer.frames is not None) is there, config
        trainer.stop()


@pytest.mark.parametrize(
    ("cls", "config", "why"),
    [
        (PPO, {"num_gpus": 0}, "num_gpus is 0"),
        (PPO, {"num_workers": 2}, "children act on the CPU"),
        (PPO, {"model": {"use_lstm": True}}, "use_lstm is true"),
        (PPO, {"sample_async": True}, "would act while it learns"),
        (DQN, NOISE, "is ParameterNoise"),
        (TD3, {"env": "Pendulum-v1", **NOISE}, "is ParameterNoise"),
        (SAC, {"num_workers": 2}, "children act on the CPU"),
        (IQL, {"buffer_size": 100}, "evaluations act on the CPU"),
        (BC, {"input": "some.json"}, "BC acts in numpy alone"),
    ],
)
def test_act_on_gpu_is_refused_with_the_reason_where_it_cannot_work(
    cls: type[Trainer], config: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=f"act_on: gpu cannot be used, because .*{why}"):
        cls.check_config({"env": "CartPole-v1", "num_gpus": 1, **config, "act_on": "gpu"})
