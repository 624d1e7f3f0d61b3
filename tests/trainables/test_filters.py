from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trainables.filter_config import FilterConfig, make_filter
from trainables.filters import (
    MeanStdFilter,
    NoFilter,
    RewardScaler,
    make_reward_stat,
    synchronise,
)

SIZE = 2


def batch(seed: int, rows: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(3.0, 5.0, (rows, SIZE))


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans()), min_size=1, max_size=30
    )
)
def test_no_observation_is_lost_or_counted_twice_in_any_interleaving(
    events: list[tuple[int, int, bool]],
) -> None:
    master = {"observation": MeanStdFilter((SIZE,), 10.0)}
    workers = [{"observation": MeanStdFilter((SIZE,), 10.0)} for _ in range(3)]
    seen: list[NDArray[np.float64]] = []

    def merge() -> None:
        deltas = [{"observation": w["observation"].get_delta(flush=True)} for w in workers]
        state = synchronise(master, deltas)
        for worker in workers:
            worker["observation"].sync(state["observation"])

    for number, (index, rows, merges) in enumerate(events):
        seen.append(batch(number, rows))
        workers[index]["observation"](seen[-1])
        if merges:
            merge()
    merge()
    every = np.concatenate(seen)
    for one in (master["observation"], *(w["observation"] for w in workers)):
        assert one.counted == len(every)
        np.testing.assert_allclose(one.mean, every.mean(0), rtol=1e-9)
        if len(every) > 1:
            np.testing.assert_allclose(one.std, every.std(0), rtol=1e-9)
    assert all(w["observation"].get_delta()["count"] == 0 for w in workers)


def test_rows_are_normalised_clipped_and_keep_their_dtype() -> None:
    one = MeanStdFilter((SIZE,), clip=1.5)
    rows = batch(0, 500).astype(np.float32)
    filtered = one(rows)
    wide = rows.astype(np.float64)
    expected = np.clip((wide - wide.mean(0)) / (wide.std(0) + 1e-8), -1.5, 1.5)
    np.testing.assert_allclose(filtered, expected, rtol=1e-5, atol=1e-6)
    assert filtered.dtype == np.float32
    assert np.abs(filtered).max() == np.float32(1.5)


def test_filtering_without_update_counts_nothing() -> None:
    one = MeanStdFilter((SIZE,), clip=10.0)
    one(batch(0, 5))
    before = one.get_state()
    one(batch(1, 5), update=False)
    assert one.counted == 5
    np.testing.assert_equal(one.get_state(), before)


def test_getting_the_state_flushes_nothing_and_setting_it_continues_exactly() -> None:
    one, other = MeanStdFilter((SIZE,), 10.0), MeanStdFilter((SIZE,), 10.0)
    one(batch(0, 5))
    one.apply_changes({"count": 2, "mean": np.ones(SIZE), "m2": np.ones(SIZE)})
    delta = one.get_delta()
    other.set_state(one.get_state())
    np.testing.assert_equal(one.get_delta(), delta)
    rows = batch(1, 4)
    assert one(rows).tobytes() == other(rows).tobytes()
    np.testing.assert_equal(one.get_state(), other.get_state())


def test_rewards_are_scaled_by_the_deviation_of_the_discounted_return_and_clipped() -> None:
    scaler = RewardScaler(1, gamma=0.5, stat=make_reward_stat())
    returns: list[float] = []
    running = 0.0
    for t, reward in enumerate([1.0, 2.0, -3.0, 500.0]):
        ended = np.array([t == 1])
        scaled = scaler(np.array([reward]), ended)
        running = running * 0.5 + reward
        returns.append(running)
        deviation = np.std(returns) if t else 1.0
        expected = np.clip(reward / (deviation + 1e-8), -10, 10)
        np.testing.assert_allclose(scaled, [expected], rtol=1e-6)
        if t == 1:
            running = 0.0


def test_the_settings_choose_the_filter() -> None:
    assert isinstance(make_filter(FilterConfig(), (SIZE,)), NoFilter)
    chosen: Any = make_filter(
        FilterConfig(observation_filter="MeanStdFilter", observation_filter_clip=3.0), (SIZE,)
    )
    assert chosen.clip == 3.0
