"""Features beside each other: callbacks, restarts, horizons, whole episodes, lives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import check_restored_exactly, differences, final_state, make, run
from trainables import Callbacks
from trainables.envs.kinds.atari import LIFE_LOST
from trainables.envs.vector.base import Step
from trainables.rollout.episodes.metrics import without_lost_lives

SOME: dict[str, Any] = {
    "env": "tests.support.environments:Mishap",
    "env_config": {"at": 4, "episode": 3},
    "restart_failed_sub_environments": True,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 16,
    "train_batch_size": None,
    "evaluation_interval": None,
}


class Notes(Callbacks):
    """Writes down what became of each episode, and counts over all of them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.notes: list[tuple[str, str, int, str | None]] = []
        self.ended = 0

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        self.notes.append(("created", episode.episode_id, episode.length, None))

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        self.notes.append(("start", episode.episode_id, episode.length, None))

    def on_episode_end(self, *, worker: Any, episode: Any, error: Any) -> None:
        told = None if error is None else str(error)
        self.notes.append(("end", episode.episode_id, episode.length, told))
        self.ended += 1
        episode.custom_metrics["ended"] = self.ended
        episode.hist_data["steps"] = [episode.length]

    def get_state(self) -> dict[str, Any]:
        return {"ended": self.ended}

    def set_state(self, state: Any) -> None:
        self.ended = state["ended"]


def notes(trainer: Any) -> list[tuple[str, str, int, str | None]]:
    found: list[tuple[str, str, int, str | None]] = trainer.reporter.calls._own.notes
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_E8_an_episode_whose_environment_failed_ends_with_the_error_and_the_next_begins(
    mode: str,
) -> None:
    trainer = make({**SOME, "callbacks": Notes, "batch_mode": mode})
    run(trainer, 2)
    told = notes(trainer)
    faults = [i for i, (phase, *_, error) in enumerate(told) if phase == "end" and error]
    assert faults
    for i in faults:
        worker, env_index, number = told[i][1].split("-")
        following = f"{worker}-{env_index}-{int(number) + 1}"
        created = told.index(("created", following, 0, None))
        assert i < created < told.index(("start", following, 0, None))
    trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("more", [{}, {"horizon": 9}, {"horizon": 9, "soft_horizon": True}])
def test_K1_callbacks_restarts_and_horizons_go_on_from_a_checkpoint_to_the_bit(
    mode: str, more: dict[str, Any], tmp_path: Path
) -> None:
    length = {"length": 20} if more else {}
    env_config = {"at": 4, "episode": 2, **length}
    config = {**SOME, "env_config": env_config, "callbacks": Notes, "batch_mode": mode, **more}
    whole = make(config)
    run(whole, 2)
    check_restored_exactly(whole, make(config), tmp_path)
    hist = whole.collect_metrics()["hist_stats"]
    assert hist["steps"] == hist["episode_lengths"]
    assert max(hist["steps"]) == more.get("horizon", 5)
    whole.stop()


def test_P10_a_lost_life_ends_no_episode_unless_its_environment_fails() -> None:
    flags = np.array([True, True, True])
    infos = {0: {LIFE_LOST: True}, 1: {LIFE_LOST: True}}
    zeros = np.zeros(3)
    faults = {1: ValueError()}
    step = Step(zeros, zeros, flags, ~flags, {}, infos, None, faults)
    assert without_lost_lives(flags, step).tolist() == [False, True, True]
    assert flags.all()


@pytest.mark.slow
def test_callbacks_see_the_same_of_environments_in_processes_of_their_own() -> None:
    config = {**SOME, "callbacks": Notes, "env_config": {"episode": -1}}
    here, apart = make(config), make({**config, "remote_worker_envs": True})
    assert differences(told(here), told(apart)) == []
    assert notes(here) == notes(apart)
    for trainer in (here, apart):
        trainer.stop()


@pytest.mark.proof
def test_images_travel_compressed_as_they_were() -> None:
    config = {
        "env": "tests.support.spaces:AnySpaces",
        "env_config": {"observation": "image", "action": "discrete"},
        "env_level": "C",  # nothing is measured
        "num_workers": 1,
        "train_batch_size": None,
        "evaluation_interval": None,
    }
    plain, packed = make(config), make({**config, "compress_observations": "bulk"})
    assert differences(told(plain), told(packed)) == []
    assert differences(final_state(plain), final_state(packed)) == []
    for trainer in (plain, packed):
        trainer.stop()


@pytest.mark.parametrize("workers", [0, 1])
def test_evaluation_ends_its_episodes_at_the_horizon_wherever_it_plays(workers: int) -> None:
    config = {"env": "Pendulum-v1", "horizon": 7, "evaluation_interval": 1}
    trainer = make({**config, "evaluation_num_workers": workers, "normalize_rewards": False})
    (result,) = run(trainer, 1)
    assert result["evaluation"]["episode_len_mean"] == 7
    assert result["episode_len_mean"] == 7
    trainer.stop()


def told(trainer: Any) -> list[dict[str, Any]]:
    """Two results, without the settings."""
    return [{k: v for k, v in one.items() if k != "config"} for one in run(trainer, 2)]
