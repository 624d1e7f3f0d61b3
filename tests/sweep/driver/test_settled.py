"""What ``auto`` means is settled when a trial is made; older sweeps go on without the choice."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweep.history.events import Status
from sweep.ledger.folder import Folder
from sweep.ledger.requests import Requests, Verb
from tests.support import sweeps
from tests.support.quadratic import Quadratic
from trainables.errors import ConfigError
from trainables.trainable import Trainable


class Chosen(Quadratic):
    """Would go on otherwise if its choice were not written down."""

    choice = "first"

    @classmethod
    def settle_config(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"way": cls.choice} if config.get("way", "auto") == "auto" else {}

    def step(self) -> dict[str, Any]:
        way = self.settings.get(
            "way", "as before" if self.context.has_settled_config else "not settled"
        )
        return {**super().step(), "way": way}


def made(root: Path, **more: Any) -> Folder:
    few = {"trials": 2, "stop": {"training_iteration": 1}, "scheduler": "fifo"}
    return sweeps.make(root, **{"trainable": f"{__name__}:Chosen", **few, **more})


def ways(folder: Folder) -> list[tuple[Any, Any]]:
    """What the ledger has among the settings of each trial, and by what the trial went."""
    return [
        (trial.config.get("way"), sweeps.curve(folder, trial.number)[-1].metrics["way"])
        for trial in sweeps.history(folder).trials
    ]


def test_each_new_trial_has_the_choice_among_its_settings(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert sweeps.run(folder) == "finished"
    assert ways(folder) == [("first", "first")] * 2


def test_what_a_person_chose_stays(tmp_path: Path) -> None:
    folder = made(tmp_path, config={"way": "mine"})
    assert sweeps.run(folder) == "finished"
    assert ways(folder) == [("mine", "mine")] * 2


def test_a_trial_goes_on_with_the_choice_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path)
    assert sweeps.drive(folder, kill_at=1) == "killed"  # both are made, none has been trained
    assert len(sweeps.history(folder).trials) == 2
    monkeypatch.setattr(Chosen, "choice", "second")
    assert sweeps.run(folder, trials=3) == "finished"
    assert ways(folder) == [("first", "first"), ("first", "first"), ("second", "second")]


def test_a_sweep_that_began_before_there_was_a_choice_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path)
    with monkeypatch.context() as before:
        before.setattr(Chosen, "settle_config", Trainable.settle_config)
        assert sweeps.drive(folder, kill_at=1) == "killed"
    assert sweeps.run(folder, trials=3) == "finished"
    assert ways(folder) == [(None, "as before")] * 3


class Picky(Chosen):
    """Cannot learn with one rate, and says so wherever its settings are looked at."""

    @classmethod
    def settle_config(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        _refuse(config)
        return super().settle_config(config)

    def setup(self, config: dict[str, Any]) -> None:
        _refuse(config)
        super().setup(config)


def _refuse(config: Mapping[str, Any]) -> None:
    if config["lr"] == 0.5:
        raise ConfigError("lr", 0.5, "a rate below 0.5")


def test_a_trial_whose_settings_the_trainable_refuses_fails_alone(tmp_path: Path) -> None:
    folder = made(tmp_path, trainable=f"{__name__}:Picky", trials=3, initial=[{"lr": 0.5}])
    assert sweeps.run(folder) == "finished"
    refused, *others = sweeps.history(folder).trials
    assert refused.status is Status.FAILED
    assert "ConfigError: lr: 0.5 is not allowed" in refused.reason
    assert [trial.status for trial in others] == [Status.COMPLETED] * 2
    assert [trial.config.get("way") for trial in (refused, *others)] == [None, "first", "first"]


def test_a_clone_whose_settings_the_trainable_refuses_fails_alone(tmp_path: Path) -> None:
    folder = made(tmp_path, trainable=f"{__name__}:Picky")
    assert sweeps.run(folder) == "finished"
    with contextlib.closing(Requests(folder.ledger)) as requests:
        number = requests.ask(Verb.CLONE, {"trials_named": [0], "settings": {"lr": 0.5}})
        assert sweeps.run(folder) == "finished"
        answer = requests.answer_to(number)
    assert answer is not None
    assert answer.granted
    *others, clone = sweeps.history(folder).trials
    assert (clone.clone_of, clone.status) == (0, Status.FAILED)
    assert "ConfigError: lr: 0.5 is not allowed" in clone.reason
    assert [trial.status for trial in others] == [Status.COMPLETED] * 2
