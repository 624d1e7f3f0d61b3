import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.trainers import make
from trainables.errors import ConfigError
from trainables.policies.filters import (
    ConcurrentMeanStdFilter,
    Filter,
    FilterConfig,
    MeanStdFilter,
    NoFilter,
    RewardScaler,
    make_filter,
    make_filters,
    synchronise,
)

SIZE = 2


def batch(seed: int, rows: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(3.0, 5.0, (rows, SIZE))


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
    assert one.row_count == 5
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


def test_what_was_flushed_stays_in_the_statistics_of_the_filter() -> None:
    rows = np.random.default_rng(4).normal(3.0, size=(9, 2))
    one = MeanStdFilter((2,))
    for part in (rows[:4], rows[4:5], rows[5:]):
        one(part)
        one.get_delta(flush=True)
    one(rows[:1], update=False)
    assert one.row_count == 9
    np.testing.assert_allclose(one.mean, rows.mean(0))
    np.testing.assert_allclose(one.std, rows.std(0))
    assert one.get_delta()["count"] == 0


def test_rewards_are_scaled_by_the_deviation_of_the_discounted_return_and_clipped() -> None:
    scaler = RewardScaler(1, gamma=0.5, stat=MeanStdFilter((), 10.0, center=False))
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


def test_a_reward_that_belongs_to_no_transition_changes_neither_return_nor_statistics() -> None:
    scaler = RewardScaler(2, gamma=0.5, stat=MeanStdFilter((), 10.0, center=False))
    going = np.zeros(2, dtype=np.bool_)
    scaler.count(np.array([1.0, 2.0]), going)
    scaler.count(np.array([4.0, 100.0]), going, np.array([False, True]))
    assert scaler.returns.tolist() == [4.5, 2.0]
    assert (scaler.stat.row_count, float(scaler.stat.mean)) == (3, 2.5)


def shapeless(shape: tuple[int, ...]) -> int:
    """What it gives is not a filter."""
    return len(shape)


class Halved(NoFilter):
    """A filter of somebody's own."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, x: NDArray[Any], update: bool = True) -> NDArray[Any]:
        return np.asarray(x / 2, dtype=x.dtype)


class Fleet:
    """A master and three workers, and everything that was ever counted."""

    def __init__(self, kinds: tuple[type[MeanStdFilter], type[MeanStdFilter]]) -> None:
        of_master, self.kind = kinds
        self.master: dict[str, Filter] = {"observation": of_master((SIZE,), 10.0)}
        self.workers = [self.kind((SIZE,), 10.0) for _ in range(3)]
        self.flushed: list[dict[str, Any]] = []
        self.seen: list[NDArray[np.float64]] = []

    def count(self, index: int) -> None:
        self.seen.append(batch(len(self.seen), 1 + len(self.seen) % 5))
        self.workers[index](self.seen[-1])

    def save_and_restore(self, index: int) -> None:
        saved = self.workers[index].get_state()
        self.workers[index] = self.kind((SIZE,), 10.0)
        self.workers[index].set_state(saved)

    def flush(self, index: int) -> None:
        """Workers go on counting between this and the synchronising."""
        self.flushed.append({"observation": self.workers[index].get_delta(flush=True)})

    def synchronise(self, index: int) -> None:
        for number in range(len(self.workers)):
            self.flush(number)
        self.count(index)
        state = synchronise(self.master, self.flushed)
        self.flushed.clear()
        for worker in self.workers:
            worker.sync(state["observation"])


@pytest.mark.parametrize(
    "kinds",
    [(MeanStdFilter, MeanStdFilter), (MeanStdFilter, ConcurrentMeanStdFilter)],
    ids=["plain", "concurrent workers"],
)
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["count", "count", "save_and_restore", "flush", "synchronise"]),
            st.integers(0, 2),
        ),
        max_size=30,
    )
)
def test_F3_every_observation_counts_once_in_any_interleaving(
    kinds: tuple[type[MeanStdFilter], type[MeanStdFilter]], events: list[tuple[str, int]]
) -> None:
    fleet = Fleet(kinds)
    for what, index in events:
        getattr(fleet, what)(index)
    fleet.synchronise(0)
    fleet.synchronise(1)
    every = np.concatenate(fleet.seen)
    late = len(fleet.seen[-1])  # counted by worker 1 after its last flush
    master = fleet.master["observation"]
    assert isinstance(master, MeanStdFilter)
    for one, rows in (
        (master, every[:-late]),
        (fleet.workers[0], every[:-late]),
        (fleet.workers[1], every),
    ):
        assert one.row_count == len(rows)
        np.testing.assert_allclose(one.mean, rows.mean(0), rtol=1e-9)
        np.testing.assert_allclose(one.std, rows.std(0) if len(rows) > 1 else 1.0, rtol=1e-9)


def test_F3_deltas_are_merged_in_worker_order() -> None:
    parts = [MeanStdFilter((SIZE,), 10.0) for _ in range(3)]
    for number, one in enumerate(parts):
        one.count(batch(number, 7) * 10.0**number)
    deltas = [{"observation": one.get_delta()} for one in parts]
    merged = [MeanStdFilter((SIZE,), 10.0) for _ in range(2)]
    for delta in deltas:
        merged[0].apply_changes(delta["observation"])
    synchronise({"observation": merged[1]}, deltas)
    assert merged[0].mean.tobytes() == merged[1].mean.tobytes()


def test_F2_the_merged_statistics_are_those_of_one_pass_over_everything() -> None:
    one, other = MeanStdFilter((SIZE,), 10.0), MeanStdFilter((SIZE,), 10.0)
    one.count(batch(0, 9))
    other.count(batch(1, 4))
    other.get_delta(flush=True)
    other.count(batch(2, 3))
    one.apply_changes(other.get_delta())  # the buffer alone, not the base
    rows = np.concatenate([batch(0, 9), batch(2, 3)])
    assert one.row_count == 12
    np.testing.assert_allclose(one.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(one.std, rows.std(0), rtol=1e-12)


def test_F2_the_state_of_a_concurrent_filter_is_that_of_a_plain_one() -> None:
    plain, concurrent = MeanStdFilter((SIZE,)), ConcurrentMeanStdFilter((SIZE,))
    for one in (plain, concurrent):
        one(batch(0, 5))
    np.testing.assert_equal(concurrent.get_state(), plain.get_state())
    again = MeanStdFilter((SIZE,))
    again.set_state(concurrent.get_state())
    assert again.mean.tobytes() == concurrent.mean.tobytes()
    assert again.std.tobytes() == concurrent.std.tobytes()


def test_F2_nobody_touches_a_concurrent_filter_while_another_does() -> None:
    one = ConcurrentMeanStdFilter((SIZE,))
    rows = batch(0, 3)
    state = one.get_state()
    accesses: list[Callable[[], Any]] = [
        lambda: one(rows), lambda: one.count(rows), lambda: one.scale(rows),
        lambda: one.mean, lambda: one.std, one.get_delta, one.get_state,
        lambda: one.apply_changes(one.get_delta()), lambda: one.sync(state),
        lambda: one.set_state(state),
    ]  # fmt: skip
    with ThreadPoolExecutor(len(accesses)) as pool:
        with one._lock:
            waiting = [pool.submit(access) for access in accesses]
            assert not wait(waiting, timeout=0.1).done
        assert len(wait(waiting, timeout=120).done) == len(accesses)


def test_F4_a_batch_is_counted_in_one_step_as_its_rows_would_be_one_by_one() -> None:
    whole, single = MeanStdFilter((SIZE,)), MeanStdFilter((SIZE,))
    rows = batch(0, 50)
    whole(rows)
    for row in rows:
        single(row[None])
    assert whole.row_count == single.row_count == 50
    np.testing.assert_allclose(whole.mean, single.mean, rtol=1e-12)
    np.testing.assert_allclose(whole.std, single.std, rtol=1e-12)


def test_F1_a_filter_of_ones_own_is_made_with_the_shape() -> None:
    for named in (Halved, f"{__name__}:Halved"):
        made = make_filter(FilterConfig(observation_filter=named), (SIZE,))
        assert type(made).__name__ == "Halved"
        assert getattr(made, "shape", None) == (SIZE,)
    trainer = make({"observation_filter": f"{__name__}:Halved", "normalize_rewards": False})
    (sample,) = trainer.workers.sample()
    raw = sample.recent[-1]
    np.testing.assert_array_equal(sample.fragments[-1].observations[-1, -1], raw / 2)
    trainer.stop()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("MeanStd", "'NoFilter', 'MeanStdFilter', 'ConcurrentMeanStdFilter'"),
        (3, "'NoFilter', 'MeanStdFilter', 'ConcurrentMeanStdFilter'"),
        (f"{__name__}:Halvd", "did you mean 'Halved'"),
        ("no.such.module:Filter", "cannot be loaded: there is no module"),
        (f"{__name__}:shapeless", "which is not a filter"),
    ],
)
def test_F1_another_filter_is_refused_with_what_is_allowed(kind: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make({"observation_filter": kind})
    assert caught.value.place == "observation_filter"


@pytest.mark.parametrize("clip", [None, 3.0])
def test_F1_rows_are_clipped_if_a_bound_is_set(clip: float | None) -> None:
    config = FilterConfig(observation_filter="MeanStdFilter", observation_filter_clip=clip)
    one = make_filter(config, (SIZE,))
    one(batch(0, 100))
    far = one(np.full((1, SIZE), 1e6), update=False)
    assert (far > 1e4).all() if clip is None else (far == 3.0).all()


def test_the_settings_choose_the_filter() -> None:
    assert isinstance(make_filter(FilterConfig(), (SIZE,)), NoFilter)
    chosen: Any = make_filter(
        FilterConfig(observation_filter="MeanStdFilter", observation_filter_clip=3.0), (SIZE,)
    )
    assert chosen.clip == 3.0


@pytest.mark.parametrize("kind", ["MeanStdFilter", "ConcurrentMeanStdFilter"])
def test_masks_at_the_end_of_rows_stay_as_they_are(kind: str) -> None:
    made = make_filters(FilterConfig(observation_filter=kind), (SIZE + 2,), masks=2)["observation"]
    alone = make_filter(FilterConfig(observation_filter=kind), (SIZE,))
    for seed in range(3):
        features = np.random.default_rng(seed).normal(3, 2, (9, SIZE))
        masks = np.ones((9, 2)) * [1, 0]
        rows = np.concatenate([features, masks], axis=1)
        found = copy.deepcopy(made)(rows) if seed == 2 else made(rows)
        np.testing.assert_array_equal(found[:, SIZE:], masks)
        np.testing.assert_array_equal(found[:, :SIZE], alone(features))
