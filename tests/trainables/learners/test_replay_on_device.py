"""``replay_on``: a replay in the memory of a GPU, for which the CPU stands in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.stand_in import as_accelerator, fetches_of
from tests.support.trainers import differences, train_to_end
from trainables.algorithms.dqn import DQN
from trainables.algorithms.iql import IQL
from trainables.algorithms.sac import SAC
from trainables.algorithms.td3 import TD3
from trainables.core import devices
from trainables.errors import ConfigError
from trainables.learners.replay import PrioritizedReplay, PrioritizedReplayConfig, ReplayBuffer
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "learning_starts": 8,
    "replay_batch_size": 8,
    "train_batch_size": 16,
    "buffer_size": 50,
    "updates_per_step": 3,
    "num_gpus": 1,
    "model": {"hidden": [8]},
}
KINDS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "dqn": (DQN, {}),
    "dqn, prioritised": (DQN, {"prioritized_replay": True, "graphs": "on"}),
    "dqn of pictures": (DQN, {"env": "tests.support.pictures:Planes", "graphs": "on"}),
    "sac": (SAC, {"env": "Pendulum-v1", "graphs": "on"}),
    "td3": (TD3, {"env": "Pendulum-v1"}),
    "iql": (IQL, {}),
}


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    as_accelerator(monkeypatch)
    monkeypatch.setattr(devices, "accelerator_bytes", lambda: 10_000_000)


def made(kind: str, replay_on: str, **more: Any) -> Any:
    cls, own = KINDS[kind]
    config = {"env": "CartPole-v1", **SMALL, **own, "replay_on": replay_on, **more}
    return cls(config, TrialContext(seed=8))


@pytest.mark.parametrize("kind", KINDS)
def test_a_course_with_the_replay_on_the_device_is_the_same_to_the_bit(kind: str) -> None:
    trainer = made(kind, "gpu")
    found = train_to_end(trainer, 5)
    assert isinstance(trainer.replay.sample(2)["rewards"], torch.Tensor)
    assert differences(found, train_to_end(made(kind, "cpu"), 5)) == []


@pytest.mark.parametrize(("first", "second"), [("cpu", "gpu"), ("gpu", "cpu")])
def test_a_checkpoint_of_either_goes_on_as_the_other(
    first: str, second: str, tmp_path: Path
) -> None:
    trainer = made("dqn of pictures", first)
    for _ in range(3):
        trainer.train()
    path = trainer.save(tmp_path)
    again = made("dqn of pictures", second)
    again.restore(path)
    assert differences(train_to_end(again, 5), train_to_end(trainer, 5)) == []


@pytest.mark.parametrize("prioritised", [False, True])
def test_rows_of_all_types_are_drawn_as_they_were_stored(prioritised: bool) -> None:
    stream = np.random.default_rng(0)

    def made_on(device: torch.device | None) -> ReplayBuffer:
        if prioritised:
            return PrioritizedReplay(7, 1, PrioritizedReplayConfig(), device)
        return ReplayBuffer(7, 1, device)

    here, there = made_on(None), made_on(CPU)
    for count in (1, 5, 3, 9):
        rows = {
            "observations": stream.integers(0, 256, (count, 3, 2), np.uint8),
            "actions": stream.integers(0, 9, count),
            "rewards": stream.standard_normal(count, np.float32),
            "new_obs": stream.standard_normal((count, 3)),
            "terminated": stream.random(count) < 0.5,
        }
        for replay in (here, there):
            replay.add(rows)
        alone, other = here.sample(1)["rewards"], there.sample(1)["rewards"]
        assert differences(alone, np.asarray(other)) == []
        drawn, kept = here.sample(6), there.sample(6)
        assert {n: one.dtype for n, one in drawn.items()} == {
            n: np.asarray(one).dtype for n, one in kept.items()
        }
        assert differences(drawn, {n: np.asarray(one) for n, one in kept.items()}) == []
    state = there.get_state()
    assert differences(here.get_state(), state) == []
    again = made_on(CPU)
    again.set_state(state)
    there.add(rows)
    assert differences(again.get_state(), here.get_state()) == []  # a copy, not a view


def test_drawn_rows_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (made("dqn of pictures", "gpu", updates_per_step=count) for count in (2, 6))
    assert fetches_of(few, monkeypatch) == fetches_of(many, monkeypatch)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"num_gpus": 0}, "num_gpus is 0"),
        ({"observation_filter": "MeanStdFilter"}, "observation_filter is set, and rows are"),
        ({"normalize_rewards": True}, "normalize_rewards is set, and rows are"),
        (
            {"num_gpus": 0.5, "buffer_size": 100_000},
            "buffer_size: 100000 needs 0.0049 GB, and half of the trial's share of the GPU is "
            "0.0025 GB",
        ),
    ],
)
def test_replay_on_gpu_is_refused_before_the_trial_with_the_reason(
    config: dict[str, Any], why: str
) -> None:
    with pytest.raises(
        ConfigError, match=r"replay_on: gpu cannot be used, because .*; set it to auto or cpu"
    ) as said:
        DQN.check_config({"env": "CartPole-v1", **SMALL, **config, "replay_on": "gpu"})
    assert why in str(said.value)


def test_auto_is_the_device_for_pictures_that_fit() -> None:
    for kind, more, there in (
        ("dqn", {}, False),
        ("dqn of pictures", {}, True),
        ("dqn of pictures", {"buffer_size": 30_000}, False),
        ("dqn of pictures", {"num_gpus": 0, "graphs": "off"}, False),
    ):
        trainer = made(kind, "auto", **more)
        trainer.train()
        assert isinstance(trainer.replay.sample(1)["rewards"], torch.Tensor) is there, (kind, more)
        trainer.stop()
