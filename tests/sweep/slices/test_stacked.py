"""Slices side by side in one process, without a pool."""

from multiprocessing import Pipe
from pathlib import Path

import pytest

from sweep.slices import stacked
from sweep.slices.messages import DeviceFailed
from tests.support import laned
from tests.support.slices import slice_spec


def test_memory_that_does_not_suffice_is_that_of_all_lanes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(laned.HOLDS, "2")
    requests, theirs = Pipe()
    replies, their_replies = Pipe()
    for trial, width in enumerate((1, 1, 3, 1, 1)):
        config = {"noise": 0.1, "lanes": width}
        folder = tmp_path / str(trial)
        given = slice_spec(folder, config, trial=trial, trainable="tests.support.laned:Laned")
        requests.send((trial, given))
    stacked.serve(theirs, their_replies)
    number, message = replies.recv()
    assert number is None
    assert isinstance(message, DeviceFailed)
    assert message.lanes == 5
