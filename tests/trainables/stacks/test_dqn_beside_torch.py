"""A lane of DQN stores and learns as the trainer in torch does: the same rows, the same step."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from trainables.algorithms.dqn import DQN
from trainables.learners.replay import NStep, ReplayBuffer
from trainables.learners.statistics import on_host
from trainables.stacks import dqn_program as program
from trainables.stacks import n_step, replay
from trainables.stacks.dqn import LaneDQN, LaneReplay
from trainables.stacks.filtering import RunningStatistics
from trainables.stacks.n_step import Step, Transition
from trainables.trainable import TrialContext

#: Of a weight and of a part of the loss after some steps, relative and absolute; docs/stack.md.
TOLERANCE = 1e-5
CONFIG = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 4,
    "replay_batch_size": 32,
    "buffer_size": 1000,
    "model": {"hidden": [16, 5]},
    "lr": 1e-2,
}
update = jax.jit(program._update, static_argnums=0)
join, add = jax.jit(n_step.join), jax.jit(replay.add)


def drawn(stream: np.random.Generator, count: int) -> dict[str, NDArray[Any]]:
    """Rows of a replay."""
    return {
        "observations": stream.standard_normal((count, 4), np.float32),
        "actions": stream.integers(0, 2, count),
        "rewards": (3.0 * stream.standard_normal(count)).astype(np.float32),
        "new_obs": stream.standard_normal((count, 4), np.float32),
        "terminated": stream.random(count) < 0.2,
        "discounts": (0.9 ** stream.integers(1, 4, count)).astype(np.float32),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"double_q": False, "grad_clip": 0.1},
        {"tau": None, "grad_clip": None},
        {"model": {"hidden": [16, 5], "activation": "relu"}},
    ],
    ids=["double", "single, bounded", "a target that waits", "relu"],
)
def test_updates_on_the_same_rows_are_torchs(more: dict[str, Any]) -> None:
    lane = DQN({**CONFIG, **more, "lanes": 1}, TrialContext(seed=3))
    assert isinstance(lane, LaneDQN)
    plain = DQN({**CONFIG, **more, "learner": "torch"}, TrialContext(seed=3))
    before = plain.policy.weights()
    given, settings = lane.as_lane_state(), lane.lane_settings()
    zero, sums = jnp.int32(0), jnp.zeros(len(program.STATS))
    at = program._Learning(zero, given.learnt, given.target, sums, jnp.array(True))
    stream, measured = np.random.default_rng(5), []
    for _ in range(4):
        rows = drawn(stream, 32)
        measured += on_host([plain.update(rows)])
        columns = {**rows, "actions": rows["actions"].astype(np.int32)}
        at = update(lane.shape, settings, np.float32(1e-2), at, Transition(**columns))
    close = functools.partial(np.testing.assert_allclose, rtol=TOLERANCE, atol=TOLERANCE)
    for found, expected in (
        (at.learnt.weights, plain.policy.weights()),
        (at.target, plain.target.network.weights()),
    ):
        assert found.keys() == expected.keys()
        own = lane.as_policy(found)
        for name, one in expected.items():
            close(own[name], one, err_msg=name)
        for name, one in lane.as_program(own).items():
            # Units that are only in the program stay zero.
            np.testing.assert_array_equal(one, found[name], err_msg=name)
    for name, one in plain.policy.weights().items():
        assert np.abs(one - before[name]).max() > 100 * TOLERANCE, name
    for name, value in zip(program.STATS, np.asarray(at.sums), strict=True):
        assert value == pytest.approx(sum(one[name] for one in measured), rel=TOLERANCE), name
    for trainer in (lane, plain):
        trainer.stop()


@pytest.mark.slow
def test_rows_that_are_drawn_are_filtered_by_the_statistics_of_that_moment() -> None:
    config = {**CONFIG, "n_step": 1, "observation_filter": "MeanStdFilter", "lanes": 1}
    lane = DQN(config, TrialContext(seed=3))
    assert isinstance(lane, LaneDQN)
    stream, mean = np.random.default_rng(4), np.arange(4, dtype=np.float32)
    deviation = np.array([0.5, 1.0, 2.0, 1e-3], np.float32)  # the last column is clipped
    row = drawn(stream, 1)
    held = LaneReplay(10, 0, None)
    held.add(row)
    given, settings = lane.as_lane_state(), lane.lane_settings()
    given = given._replace(
        seen=RunningStatistics(np.float32(100), mean, deviation**2), replay=held.to_arrays(64, 4)
    )
    rates = program.Rates(np.float32(1e-2), np.float32(0), np.int32(1), np.bool_(False))
    key = jax.random.key(0)
    learn = jax.jit(program._learn, static_argnums=0)
    found = learn(lane.shape, settings, rates, given, key)[1]
    columns = {name: np.repeat(one, 32, axis=0) for name, one in row.items()}
    for name in ("observations", "new_obs"):
        columns[name] = np.clip((columns[name] - mean) / (deviation + 1e-8), -10, 10)
    columns["actions"] = columns["actions"].astype(np.int32)
    zero, sums = jnp.int32(0), jnp.zeros(len(program.STATS))
    at = program._Learning(zero, given.learnt, given.target, sums, jnp.array(True))
    expected = update(lane.shape, settings, np.float32(1e-2), at, Transition(**columns))
    lane.stop()
    assert expected.sums[0] > 0
    # Adam's first step hardly depends on the size of a gradient; loss and norm do.
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-4)
    for name, one in expected.learnt.weights.items():
        own = found.learnt.weights[name]
        np.testing.assert_allclose(own, one, rtol=1e-5, atol=1e-6, err_msg=name)


def test_transitions_over_several_steps_are_those_of_a_trainer_alone() -> None:
    stream, steps, envs, features = np.random.default_rng(0), 4, 3, 2
    for most in (1, 2, 3, 8):
        alone, waiting = NStep(most, 0.9), n_step.no_steps(7, envs, features)
        t = np.zeros(envs, np.int64)
        for _ in range(6):
            ended = stream.random((steps, envs)) < 0.25
            cut = stream.random((steps, envs)) < 0.5
            columns: dict[str, NDArray[Any]] = {
                "observations": stream.standard_normal((steps, envs, features), np.float32),
                "actions": stream.integers(0, 2, (steps, envs)),
                "rewards": stream.standard_normal((steps, envs), np.float32),
                "new_obs": stream.standard_normal((steps, envs, features), np.float32),
                "terminated": ended & ~cut,
                "truncated": ended & cut,
                "t": np.zeros((steps, envs), np.int64),
            }
            for row in range(steps):
                columns["t"][row] = t
                t = np.where(ended[row], 0, t + 1)
            valid = np.ones((steps, envs), np.bool_)
            expected = alone(0, {**columns, "valid": valid})
            waiting, made, given = join(
                waiting, Step(**columns, held=valid), np.int32(most), np.float32(0.9)
            )
            given = np.asarray(given)
            for name, column in made._asdict().items():
                found = np.asarray(column)[given]
                np.testing.assert_allclose(
                    found, expected[name], rtol=1e-5, atol=1e-6, err_msg=name
                )


def test_a_replay_in_a_lane_writes_where_one_alone_does() -> None:
    stream, capacity, counts = np.random.default_rng(1), 50, (30, 30, 7, 30, 2)
    alone, first = ReplayBuffer(capacity, 0), LaneReplay(capacity, 0, None)
    held = first.to_arrays(64, 4)
    for count in counts:
        rows, given = drawn(stream, 30), np.arange(30) < count
        stream.shuffle(given)
        alone.add({name: column[given] for name, column in rows.items()})
        columns = {**rows, "actions": rows["actions"].astype(np.int32)}
        held = add(held, np.int32(capacity), replay.packed(Transition(**columns)), given)
    first.take_arrays(jax.tree.map(np.asarray, held))
    mine, its = first.get_state(), alone.get_state()
    assert mine["next"] == its["next"]
    assert mine["columns"] == its["columns"]
    assert np.array_equal(mine["rows"], its["rows"])
    again = LaneReplay(capacity, 0, None)
    again.set_state(its)
    for one, other in zip(again.to_arrays(64, 4), held, strict=True):
        assert np.array_equal(one, other)


def test_more_rows_than_a_replay_has_places_for_leave_the_last_ones() -> None:
    rows = drawn(np.random.default_rng(2), 30)
    alone, lane = ReplayBuffer(20, 0), LaneReplay(20, 0, None)
    alone.add(rows)
    columns = {**rows, "actions": rows["actions"].astype(np.int32)}
    packed = replay.packed(Transition(**columns))
    lane.take_arrays(
        jax.tree.map(
            np.asarray, add(lane.to_arrays(64, 4), np.int32(20), packed, np.ones(30, bool))
        )
    )
    mine, its = (one.get_state()["rows"][:, :16].tolist() for one in (lane, alone))
    assert sorted(mine) == sorted(its)
