"""What callbacks show of episodes: files of the trial, few and small, the same after a restore."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image

from tests.support.callbacks import Shows
from tests.support.trainers import PLAIN, run
from trainables import Callbacks
from trainables.algorithms.ppo import PPO
from trainables.errors import CallbackError
from trainables.rollout.media import files as media
from trainables.rollout.media.files import checked, latest, write
from trainables.rollout.media.video import VideoFile
from trainables.trainable import TrialContext

SHORT: dict[str, Any] = {**PLAIN, "env": "tests.support.environments:Counting"}
SHORT |= {"env_config": {"length": 5}, "train_batch_size": 48, "callbacks": Shows}


def made(folder: Path, **more: Any) -> PPO:
    return PPO({**SHORT, **more}, TrialContext(seed=7, logdir=folder))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / media.FOLDER).iterdir()}


@pytest.mark.parametrize("workers", [0, 2])
def test_the_last_episode_of_each_iteration_is_shown(workers: int, tmp_path: Path) -> None:
    trainer = made(tmp_path, num_workers=workers, evaluation_interval=2)
    first, second = run(trainer, 2)
    assert first["media"] == {"length": "000001-length.png", "steps": "000001-steps.json"}
    assert second["evaluation"]["media"]["length"] == "000002-evaluation-length.png"
    assert "000001-evaluation-at-start-steps.json" in contents(tmp_path)
    shown = image.imread(tmp_path / "media" / "000002-length.png")
    assert (np.round(shown[..., :3] * 255) == 5).all()
    table = json.loads(contents(tmp_path)["000002-steps.json"])
    assert table["columns"] == ["step", "reward"]
    assert [row[0] for row in table["data"]] == [1, 2, 3, 4, 5]
    assert first["hist_stats"]["episode_lengths"] == [5] * 8
    trainer.stop()


def test_a_restored_trial_writes_the_same_files(tmp_path: Path) -> None:
    """Also of the episodes that were in flight when it was saved."""
    trainer = made(tmp_path / "first")
    run(trainer, 1)
    path = trainer.save(tmp_path)
    results = run(trainer, 2)
    again = made(tmp_path / "again")
    again.restore(path)
    assert [one["media"] for one in run(again, 2)] == [one["media"] for one in results]
    expected, found = contents(tmp_path / "first"), contents(tmp_path / "again")
    assert found == {name: expected[name] for name in found}
    assert len(found) == 4
    trainer.stop()
    again.stop()


def test_a_video_is_written_where_it_can_be(tmp_path: Path) -> None:
    pytest.importorskip("av")
    frames = [np.full((4, 4, 3), value, np.uint8) for value in (0, 100, 200)]
    assert write(checked({"run": frames}), tmp_path, 3) == {"run": "000003-run.mp4"}
    assert [file.name for file in tmp_path.iterdir()] == ["000003-run.mp4"]


def test_a_video_names_the_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av")
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)  # as if the folder were gone
    video = VideoFile(tmp_path / "gone" / "run.mp4", 30)
    with pytest.raises(FileNotFoundError, match=r"gone/.*run\.mp4"):
        video.add(np.zeros((4, 4, 3), np.uint8))


def test_a_missing_video_package_is_named_with_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "is_installed", lambda: False)
    with pytest.raises(CallbackError, match=r"pip install 'sweep-rl\[video\]'"):
        write({"run": np.zeros((2, 4, 4, 3), np.uint8)}, tmp_path, 1)


def test_a_trial_keeps_so_many_files_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "MOST_FILES", 3)
    table = checked({"a": {"x": [1]}})
    written = [write(table, tmp_path, iteration) for iteration in (1, 2, 3, 4, 3, 5)]
    assert [bool(one) for one in written] == [True, True, True, False, True, False]
    assert len(list(tmp_path.iterdir())) == 3
    assert latest([table, None, {"b": 1}, {"a": 2}]) == {"a": 2, "b": 1}


PICTURE = np.zeros((2, 2, 3), np.uint8)
WRONG: dict[str, tuple[Callable[[], dict[Any, Any]], str]] = {
    "a path": (lambda: {"../x": PICTURE}, "letters, digits"),
    "no name": (lambda: {3: PICTURE}, "letters, digits"),
    "floats": (lambda: {"x": np.zeros((2, 2, 3))}, "neither a picture"),
    "sizes": (lambda: {"x": [PICTURE, PICTURE[:1]]}, "of one size"),
    "no pixel": (lambda: {"x": PICTURE[:0]}, "neither a picture"),
    "no picture": (lambda: {"x": PICTURE[None][:0]}, "neither a picture"),
    "columns": (lambda: {"x": {"a": [1], "b": []}}, "all of one length"),
    "one cell": (lambda: {"x": {"a": 1}}, r"media\['x'\]: the columns of a table must be lists"),
    "cells": (lambda: {"x": {"a": [object()]}}, "neither a number nor text"),
    "many": (lambda: {f"x{i}": PICTURE for i in range(9)}, "at most 8"),
    "large": (lambda: {"x": np.zeros((2**12, 2**11, 3), np.uint8)}, "at most 16777216"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_shown_is_refused_by_name(case: str) -> None:
    given, why = WRONG[case]
    with pytest.raises(CallbackError, match=why) as raised:
        checked(given())
    assert "\n" not in str(raised.value)


class Wrong(Callbacks):
    """Shows a number."""

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        episode.media["x"] = 3


def test_an_error_of_a_callback_names_what_it_wrote(tmp_path: Path) -> None:
    trainer = made(tmp_path, callbacks=Wrong)
    with pytest.raises(CallbackError, match=r"media\['x'\]: 3 is neither a picture"):
        trainer.train()
    trainer.stop()
