"""What is ``auto`` is chosen once; checkpoints and trials of before go on as they began."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from tests.support.trainers import PLAIN
from trainables.algorithms import ppo
from trainables.envs.exactness.measuring import Look
from trainables.trainable import TrialContext
from trainables.trainer.config import TrainerConfig


class Config(ppo.Config):
    """With a setting that the trainer chooses by itself: by the environment's length."""

    pace: Literal["auto", "slow", "fast"] = "auto"


class Paced(ppo.PPO):
    config_class: ClassVar[type[TrainerConfig]] = Config
    before_auto: ClassVar[Mapping[str, Any]] = {**ppo.PPO.before_auto, "pace": "slow"}

    @classmethod
    def choose(cls, settings: TrainerConfig, seen: Look) -> dict[str, Any]:
        paces = {500: "fast", 200: "slow"}
        return {**super().choose(settings, seen), "pace": paces[seen.limit or 0]}


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


def test_a_trial_that_was_made_before_there_was_a_choice_has_what_there_was() -> None:
    old = TrialContext(seed=7, settled=True)
    assert paced(old).config["pace"] == "slow"
    assert paced(old, pace="fast").config["pace"] == "fast"


def test_a_restore_that_changes_no_choice_reads_no_settings_again(tmp_path: Path) -> None:
    trainer = paced()
    trainer.train()
    before = trainer.settings
    trainer.restore(trainer.save(tmp_path))
    assert trainer.settings is before
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


def test_a_checkpoint_of_before_goes_on_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = paced()
    state = first.get_state()
    del state["trainable"]["data"]["settled"]
    again = paced()
    again.set_state(state)
    assert again.config["pace"] == "slow"
    assert again.get_state()["trainable"]["data"]["settled"]["pace"] == "slow"
