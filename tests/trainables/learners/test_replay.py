"""A replay keeps the latest rows, draws them as asked, and comes back to the bit."""

import itertools
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.replay import transitions
from trainables.checkpoint import file
from trainables.errors import ConfigError
from trainables.learners.replay import (
    NStep,
    PrioritizedReplay,
    PrioritizedReplayConfig,
    ReplayBuffer,
    ReplayConfig,
    SumTree,
    check_replay,
)

BY_ERROR = PrioritizedReplayConfig(
    prioritized_replay=True,
    prioritized_replay_alpha=0.5,
    prioritized_replay_beta=0.5,
    prioritized_replay_beta_annealing_timesteps=100,
)


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


@pytest.mark.parametrize("prioritized", [False, True])
def test_only_rows_that_were_stored_are_drawn(prioritized: bool) -> None:
    replay = PrioritizedReplay(10, 3, BY_ERROR) if prioritized else ReplayBuffer(10, seed=3)
    replay.add(numbered(7, 2))
    assert set(replay.sample(500)["rewards"].tolist()) == {7, 8}
    replay.add(numbered(20, 3))
    assert set(replay.sample(500)["rewards"].tolist()) == {7, 8, 20, 21, 22}


def test_rows_are_drawn_evenly() -> None:
    replay = ReplayBuffer(50, seed=2)
    replay.add(numbered(0, 50))
    counts = np.bincount(replay.sample(50_000)["rewards"], minlength=50)
    # χ² of 49 degrees of freedom; a share of 1e-6 of even draws exceeds 115.
    assert np.square(counts - 1000).sum() / 1000 < 115


@pytest.mark.parametrize("count", [1, 2])
def test_torch_takes_what_is_drawn_however_few_rows_these_are(count: int) -> None:
    replay = ReplayBuffer(10, seed=1)
    replay.add({**numbered(0, 4), "terminated": np.zeros(4, np.bool_)})
    rows = {name: torch.from_numpy(column) for name, column in replay.sample(count).items()}
    assert rows["observations"].shape == (count, 3)


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
    assert len(state["rows"]) == min(count, 8)
    drawn, expected = again.sample(30), first.sample(30)
    for name in expected:
        np.testing.assert_array_equal(drawn[name], expected[name])


def test_what_does_not_fit_is_refused() -> None:
    replay = ReplayBuffer(8, seed=6)
    with pytest.raises(ValueError, match="the replay is empty"):
        replay.sample(1)
    replay.add(numbered(0, 3))
    with pytest.raises(ValueError, match="but this replay has"):
        replay.add(numbered(0, 3, width=4))
    with pytest.raises(ConfigError, match="buffer_size: 9 differs from the checkpoint's 8"):
        ReplayBuffer(9, seed=6).set_state(replay.get_state())


@pytest.mark.parametrize("prioritized", [False, True])
def test_of_a_large_replay_only_what_changed_is_written_and_nothing_is_held_twice(
    prioritized: bool, tmp_path: Path
) -> None:
    count, stream = 500_000, np.random.default_rng(0)
    replay = PrioritizedReplay(count, 7, BY_ERROR) if prioritized else ReplayBuffer(count, seed=7)
    replay.add(transitions(count, stream))
    file.write(tmp_path, 1, {}, {"replay": replay.get_state()})
    before = {one.name for one in tmp_path.glob("seg-*")}
    assert len(before) == 6  # 21.5 MB in chunks of 4 MiB, whatever columns they hold
    replay.add(transitions(10, stream))
    tracemalloc.start()
    written = file.write(tmp_path, 2, {}, {"replay": replay.get_state()})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    shares = 8 * count if prioritized else 0
    assert peak < 2 * shares + 10 * 2**20  # beside the priorities, a page for comparing
    assert len({one.name for one in tmp_path.glob("seg-*")} - before) == 1
    assert written.path.stat().st_size < 2 * 2**20 + shares
    again = PrioritizedReplay(count, 8, BY_ERROR) if prioritized else ReplayBuffer(count, seed=8)
    again.set_state(file.read(written.path).state["replay"])
    drawn, expected = again.sample(100), replay.sample(100)
    for name in expected:
        np.testing.assert_array_equal(drawn[name], expected[name])


def test_a_state_shows_the_rows_themselves_and_keeps_them_while_it_is_held() -> None:
    replay = ReplayBuffer(8, seed=9)
    replay.add(numbered(0, 8))
    state = replay.get_state()
    assert np.shares_memory(state["rows"], replay.get_state()["rows"])
    before = state["rows"].copy()
    replay.add(numbered(50, 6))
    np.testing.assert_array_equal(state["rows"], before)
    assert not np.shares_memory(state["rows"], replay.get_state()["rows"])
    del state
    shown = replay.get_state()["rows"].__array_interface__["data"]
    replay.add(numbered(70, 6))
    assert replay.get_state()["rows"].__array_interface__["data"] == shown


def test_a_replay_too_small_for_what_is_learnt_from_it_is_refused_with_both_settings() -> None:
    check_replay(ReplayConfig(buffer_size=100, learning_starts=100, replay_batch_size=100))
    with pytest.raises(
        ConfigError, match=r"buffer_size: 99 is less than learning_starts, which is"
    ):
        check_replay(ReplayConfig(buffer_size=99, learning_starts=100))
    with pytest.raises(
        ConfigError, match=r"buffer_size: 9 is less than replay_batch_size, which is 10"
    ):
        check_replay(ReplayConfig(buffer_size=9, learning_starts=0, replay_batch_size=10))


@pytest.mark.parametrize("capacity", [1, 63, 64, 65, 5000])
def test_a_sum_tree_finds_what_a_running_sum_finds(capacity: int) -> None:
    stream = np.random.default_rng(capacity)
    tree, shares = SumTree(capacity), np.zeros(capacity)
    for _ in range(20):
        chosen = stream.integers(0, capacity, size=7)
        values = stream.random(7)
        tree.put(chosen, values)
        shares[chosen] = values
    again = SumTree(capacity)
    again.put(np.arange(capacity), shares)
    assert again.total == tree.total == pytest.approx(shares.sum())
    parts = stream.random(200)
    expected = np.searchsorted(np.cumsum(shares), parts * shares.sum(), side="right")
    found = tree.find(parts)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again.find(parts), found)


def test_rows_are_drawn_by_their_errors_and_weighed_to_make_up_for_it() -> None:
    replay = PrioritizedReplay(4, 10, BY_ERROR)
    replay.add(numbered(0, 4))
    drawn = replay.sample(400)
    assert np.bincount(drawn["rewards"]).tolist() == [100] * 4  # new ones are all alike
    assert drawn["weights"].tolist() == [1.0] * 400
    replay.prioritize(np.arange(4), np.array([0.0, -1.0, 4.0, 9.0]))
    drawn = replay.sample(6000)
    # Shares are the roots of the errors: 0.001, 1, 2 and 3 of 6.
    assert np.bincount(drawn["rewards"]).tolist() == pytest.approx([1, 1000, 2000, 3000], abs=2)
    of_one = {int(row): float(w) for row, w in zip(drawn["rewards"], drawn["weights"], strict=True)}
    assert of_one[1] / of_one[3] == pytest.approx(3**0.5, rel=1e-4)
    replay.set_timesteps(1000)  # β is 1 now
    drawn = replay.sample(6000)
    of_one = {int(row): float(w) for row, w in zip(drawn["rewards"], drawn["weights"], strict=True)}
    assert of_one[1] / of_one[3] == pytest.approx(3.0, rel=1e-4)
    replay.add(numbered(100, 1))  # a new one counts as much as the largest error so far
    counts = np.bincount(replay.sample(9000)["rewards"], minlength=101)
    assert counts[100] == pytest.approx(counts[3], abs=2)


def test_shares_and_weights_are_those_of_the_paper() -> None:
    config = PrioritizedReplayConfig(
        prioritized_replay=True,
        prioritized_replay_alpha=0.7,
        prioritized_replay_beta=0.4,
        prioritized_replay_eps=0.5,
    )
    replay = PrioritizedReplay(8, 10, config)
    errors = [0.0, -1.0, 4.0, 2.5, 0.1]
    replay.add(numbered(0, len(errors)))
    replay.prioritize(np.arange(len(errors)), np.array(errors))
    shares = [(abs(error) + 0.5) ** 0.7 for error in errors]
    np.testing.assert_allclose(replay.get_state()["shares"], shares)
    drawn = replay.sample(16)
    weights = [(len(errors) * shares[i] / sum(shares)) ** -0.4 for i in drawn["indices"]]
    np.testing.assert_allclose(drawn["weights"], np.array(weights) / max(weights), rtol=1e-6)


def test_priorities_come_back_to_the_bit() -> None:
    first = PrioritizedReplay(300, 11, BY_ERROR)
    first.add(numbered(0, 250))
    for round_ in range(5):
        rows = first.sample(32)
        first.prioritize(rows["indices"], rows["rewards"] * 0.01 + round_)
    again = PrioritizedReplay(300, 12, BY_ERROR)
    again.set_state(first.get_state())
    for _ in range(3):
        for one in (first, again):
            one.add(numbered(900, 40))
        drawn, expected = again.sample(64), first.sample(64)
        for name in expected:
            np.testing.assert_array_equal(drawn[name], expected[name])
        for one in (first, again):
            one.prioritize(drawn["indices"], np.linspace(0, 3, 64))
    with pytest.raises(
        ConfigError, match=r"prioritized_replay: false differs from the checkpoint's true"
    ):
        ReplayBuffer(300, 11).set_state(first.get_state())
    with pytest.raises(
        ConfigError, match=r"prioritized_replay: true differs from the checkpoint's fals"
    ):
        first.set_state(ReplayBuffer(300, 11).get_state())


def test_after_a_restore_a_new_row_counts_as_much_as_the_largest_error_ever() -> None:
    first, again = (PrioritizedReplay(4, seed, BY_ERROR) for seed in (13, 14))
    first.add(numbered(0, 3))
    first.prioritize(np.arange(3), np.full(3, 81.0))
    first.prioritize(np.arange(3), np.full(3, 9.0))
    again.set_state(first.get_state())
    again.add(numbered(3, 1))
    assert again.get_state()["shares"].tolist() == pytest.approx([3.0, 3.0, 3.0, 9.0])


def steps(
    rewards: list[float], t: list[int], terminated: str = "", truncated: str = "", valid: str = ""
) -> dict[str, Any]:
    """Columns (T, 1) of one environment; observation t is 10·t, what comes next 10·t + 10."""

    def flags(marks: str, default: bool) -> Any:
        return np.array([m == "x" for m in marks] or [default] * len(t))[:, None]

    return {
        "observations": np.array(t, np.float32)[:, None, None] * 10,
        "new_obs": np.array(t, np.float32)[:, None, None] * 10 + 10,
        "actions": np.array(t)[:, None],
        "rewards": np.array(rewards, np.float32)[:, None],
        "terminated": flags(terminated, False),
        "truncated": flags(truncated, False),
        "valid": flags(valid, True),
        "t": np.array(t)[:, None],
    }


def given(rows: dict[str, Any]) -> list[tuple[float, ...]]:
    """Observation, return, what comes next, terminated, discount."""
    names = ("observations", "rewards", "new_obs", "terminated", "discounts")
    return [tuple(float(rows[n][i].item()) for n in names) for i in range(len(rows["rewards"]))]


def test_three_steps_with_a_truncation_in_the_middle_and_a_termination() -> None:
    rows = NStep(3, 0.5)(0, steps([1, 2, 4, 8, 16, 32], [0, 1, 2, 0, 1, 2], "ooooox", "ooxooo"))
    assert given(rows) == [
        (0, 1 + 1 + 1, 30, 0, 0.125),
        (10, 2 + 2, 30, 0, 0.25),  # cut off: the value goes on after two steps
        (20, 4, 30, 0, 0.5),
        (0, 8 + 8 + 8, 30, 1, 0.125),
        (10, 16 + 16, 30, 1, 0.25),
        (20, 32, 30, 1, 0.5),
    ]


def test_three_steps_across_fragments_with_a_truncation_at_the_edge() -> None:
    make = NStep(3, 0.5)
    assert given(make(0, steps([1, 2], [0, 1]))) == []  # nobody knows the third step yet
    assert given(make(1, steps([9, 9], [0, 1]))) == []  # of another worker
    assert given(make(0, steps([4, 8], [2, 3]))) == [
        (0, 1 + 1 + 1, 30, 0, 0.125),
        (10, 2 + 2 + 2, 40, 0, 0.125),
    ]
    assert given(make(0, steps([16], [4], truncated="x"))) == [
        (20, 4 + 4 + 4, 50, 0, 0.125),
        (30, 8 + 8, 50, 0, 0.25),
        (40, 16, 50, 0, 0.5),
    ]
    assert given(make(0, steps([1], [0], terminated="x"))) == [(0, 1, 10, 1, 0.5)]


def test_three_steps_go_past_no_step_that_is_not_learnt_from_and_no_other_episode() -> None:
    make = NStep(3, 0.5)
    assert given(make(0, steps([1, 2, 4, 8], [0, 1, 2, 3], valid="xoxx"))) == [(0, 1, 10, 0, 0.5)]
    # A worker that was made anew begins another episode; what was held ends where it was.
    assert given(make(0, steps([16], [0]))) == [
        (20, 4 + 4, 40, 0, 0.25),
        (30, 8, 40, 0, 0.5),
    ]


@pytest.mark.parametrize("length", [1, 2, 5, 40])
def test_several_environments_give_what_each_gives_alone_however_they_are_cut(length: int) -> None:
    stream = np.random.default_rng(3)
    total, count = 40, 3
    ends = stream.random((total, count)) < 0.2
    t = np.zeros((total, count), dtype=np.int64)
    for row in range(1, total):
        t[row] = np.where(ends[row - 1], 0, t[row - 1] + 1)
    by_itself = stream.random((total, count)) < 0.5
    columns: dict[str, Any] = {
        "observations": stream.random((total, count, 2), dtype=np.float32),
        "new_obs": stream.random((total, count, 2), dtype=np.float32),
        "actions": stream.integers(0, 9, (total, count)),
        "rewards": stream.random((total, count), dtype=np.float32),
        "terminated": ends & by_itself,
        "truncated": ends & ~by_itself,
        "valid": stream.random((total, count)) < 0.9,
        "t": t,
    }
    make, found = NStep(4, 0.9), list[tuple[float, ...]]()
    for first in range(0, total, length):
        rows = make(0, {name: one[first : first + length] for name, one in columns.items()})
        again = NStep(4, 0.9)
        again.set_state(make.get_state())
        make = again
        found += zip(
            *(rows[name].ravel().tolist() for name in ("rewards", "discounts")), strict=True
        )
    expected = []
    for env, row in itertools.product(range(count), range(total)):
        of_env = {name: one[row : row + 4, env] for name, one in columns.items()}
        over = of_env["terminated"] | of_env["truncated"]
        bad = ~of_env["valid"]
        # Steps up to an end, or before a step that is not learnt from; unknown beyond the last.
        span = min([4, *(np.flatnonzero(over) + 1), *np.flatnonzero(bad)])
        if span and span <= len(over) and (span == 4 or over[span - 1] or bad[span]):
            powers = np.float32(0.9) ** np.arange(span)
            expected.append((powers @ of_env["rewards"][:span], 0.9**span))
    np.testing.assert_allclose(sorted(found), sorted(expected), rtol=1e-5)


def test_transitions_over_several_steps_are_all_given_where_columns_come_and_go() -> None:
    def fragment(lanes: int, first: int) -> dict[str, Any]:
        t = np.broadcast_to(first + np.arange(4)[:, None], (4, lanes)).copy()
        numbers = (100.0 * np.arange(lanes) + t).astype(np.float32)
        flags = {name: np.zeros((4, lanes), dtype=bool) for name in ("terminated", "truncated")}
        real = {"observations": numbers[..., None], "new_obs": numbers[..., None] + 1}
        chosen = {"actions": np.zeros((4, lanes), dtype=np.int64), "rewards": np.ones((4, lanes))}
        return {**real, **chosen, **flags, "valid": np.ones((4, lanes), dtype=bool), "t": t}

    steps = NStep(3, 0.5)
    given = [steps(0, fragment(1, 0)), steps(0, fragment(2, 4)), steps(0, fragment(3, 8))]
    seen = sorted(float(one) for rows in given for one in rows["observations"][:, 0])
    assert seen == sorted([*range(10), *range(104, 110), *range(208, 210)])
    assert all((rows["rewards"] == 1.75).all() for rows in given)


@pytest.mark.parametrize("most", [1, 3, 8])
def test_lanes_that_are_filled_unevenly_give_what_each_gives_alone(most: int) -> None:
    stream, lanes, left = np.random.default_rng(4), 3, [40, 31, 25]
    numbers = {lane: list(range(count)) for lane, count in enumerate(left)}

    def fragment(filled: Mapping[int, list[int]], over: int) -> dict[str, Any]:
        length = max(len(one) for one in filled.values())
        blank = np.ones((length, over), dtype=np.bool_)
        number = np.zeros((length, over), dtype=np.int64)
        for column, one in enumerate(filled.values()):
            blank[length - len(one) :, column] = False
            number[length - len(one) :, column] = one
        ends = ~blank & (number % 7 == 6)
        rewards = np.where(blank, 0.0, np.sin(number + 1.0)).astype(np.float32)
        seen = (number[..., None] + 100.0).astype(np.float32)
        return {
            "observations": seen,
            "new_obs": seen + 1,
            "actions": number,
            "rewards": rewards,
            "terminated": ends,
            "truncated": np.zeros_like(ends),
            "valid": ~blank & (number % 11 != 5),
            "autoreset": blank,
            "t": np.where(blank, 0, number % 7),
        }

    def gives(make: NStep, columns: dict[str, Any]) -> list[tuple[float, ...]]:
        rows = make(0, columns)
        named = ("actions", "rewards", "new_obs", "terminated", "discounts")
        return list(zip(*(rows[name].ravel().tolist() for name in named), strict=True))

    alone = [
        one for lane in numbers for one in gives(NStep(3, 0.9), fragment({0: numbers[lane]}, 1))
    ]
    make, found = NStep(3, 0.9), list[tuple[float, ...]]()
    while any(numbers.values()):
        counts = stream.integers(0, most + 1, lanes)
        filled = {lane: numbers[lane][: counts[lane]] for lane in numbers}
        numbers = {lane: numbers[lane][counts[lane] :] for lane in numbers}
        if any(filled.values()):
            found += gives(make, fragment(filled, lanes))
    assert sorted(found) == sorted(alone)
