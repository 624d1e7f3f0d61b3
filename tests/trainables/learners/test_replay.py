"""A replay keeps the latest rows, draws them evenly, and comes back to the bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.checkpoint import file
from trainables.errors import ConfigError
from trainables.learners.replay import ReplayBuffer


def numbered(first: int, count: int, width: int = 3) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return {"rewards": numbers, "observations": np.repeat(numbers[:, None], width, 1) + 0.5}


def test_the_latest_rows_are_kept_and_columns_stay_together() -> None:
    replay = ReplayBuffer(10, seed=1)
    replay.add(numbered(0, 4))
    assert len(replay) == 4
    replay.add(numbered(4, 9))
    assert len(replay) == 10
    rows = replay.sample(500)
    assert set(rows["rewards"].tolist()) == set(range(3, 13))
    np.testing.assert_array_equal(
        rows["observations"], np.repeat(rows["rewards"][:, None], 3, 1) + 0.5
    )
    replay.add(numbered(100, 25))
    assert set(replay.sample(500)["rewards"].tolist()) == set(range(115, 125))


def test_rows_are_drawn_evenly() -> None:
    replay = ReplayBuffer(50, seed=2)
    replay.add(numbered(0, 50))
    counts = np.bincount(replay.sample(50_000)["rewards"], minlength=50)
    # χ² of 49 degrees of freedom; a share of 1e-6 of even draws exceeds 115.
    assert np.square(counts - 1000).sum() / 1000 < 115


def test_what_is_drawn_is_a_copy() -> None:
    replay = ReplayBuffer(4, seed=3)
    replay.add(numbered(0, 4))
    replay.sample(4)["rewards"][:] = -1
    assert replay.sample(50)["rewards"].min() >= 0


@pytest.mark.parametrize("count", [0, 3, 7, 8, 19])
def test_it_goes_on_to_the_bit(count: int) -> None:
    first, again = ReplayBuffer(8, seed=4), ReplayBuffer(8, seed=5)
    if count:
        first.add(numbered(0, count))
        first.sample(3)
    again.add(numbered(900, 5))
    state = first.get_state()
    again.set_state(state)
    for one in (first, again):
        one.add(numbered(50, 6))
    assert state["columns"].get("rewards", np.zeros(0)).size == min(count, 8)
    drawn, expected = again.sample(30), first.sample(30)
    for name in expected:
        np.testing.assert_array_equal(drawn[name], expected[name])


def test_what_does_not_fit_is_refused() -> None:
    replay = ReplayBuffer(8, seed=6)
    with pytest.raises(ValueError, match="the replay is empty"):
        replay.sample(1)
    replay.add(numbered(0, 3))
    with pytest.raises(ValueError, match="where this replay has"):
        replay.add(numbered(0, 3, width=4))
    with pytest.raises(ConfigError, match="buffer_size: 9 is not allowed; expected 8"):
        ReplayBuffer(9, seed=6).set_state(replay.get_state())


def test_of_a_large_replay_only_what_changed_is_written_again(tmp_path: Path) -> None:
    replay = ReplayBuffer(6000, seed=7)
    replay.add({"observations": np.random.default_rng(0).random((6000, 1000), dtype=np.float32)})
    file.write(tmp_path, 1, {}, {"replay": replay.get_state()})
    before = {one.name for one in tmp_path.glob("seg-*")}
    assert len(before) == 6  # 24 MB in chunks of 4 MiB
    replay.add({"observations": np.ones((10, 1000), dtype=np.float32)})
    written = file.write(tmp_path, 2, {}, {"replay": replay.get_state()})
    assert len({one.name for one in tmp_path.glob("seg-*")} - before) == 1
    again = ReplayBuffer(6000, seed=8)
    again.set_state(file.read(written.path).state["replay"])
    np.testing.assert_array_equal(
        again.sample(100)["observations"], replay.sample(100)["observations"]
    )
