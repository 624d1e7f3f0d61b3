"""A lane collects and learns as the trainer in torch does: the same rows, the same step."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from trainables.algorithms.ppo import PPO, ppo_loss
from trainables.learners.returns import generalized_advantages, next_values
from trainables.policies.filters import REWARD_CLIP, MeanStdFilter, RewardScaler
from trainables.rollout.batch import TrainBatch
from trainables.stacks import ppo_program as program
from trainables.stacks.episodes import Stepped
from trainables.stacks.ppo import LanePPO
from trainables.stacks.ppo_program import Lane, Rates
from trainables.trainable import TrialContext

#: Of a weight and of a part of the loss after one step, relative and absolute; docs/stack.md.
TOLERANCE = 1e-5
NOISE = {"type": "StateDependentNoise", "sample_freq": 5, "log_std_init": -1.0}
KINDS: dict[str, dict[str, Any]] = {
    "choices": {"env": "CartPole-v1"},
    "choices, relu": {"env": "CartPole-v1", "model": {"hidden": [16, 3], "activation": "relu"}},
    "numbers": {"env": "Pendulum-v1"},
    "noise that follows the state": {"env": "Pendulum-v1", "exploration_config": NOISE},
}
collect, rows_of, learn = (
    jax.jit(one, static_argnums=0) for one in (program._collect, program._rows, program._learn)
)


def config(kind: str) -> dict[str, Any]:
    return {
        "num_envs_per_worker": 2,
        "rollout_fragment_length": 32,
        "num_sgd_iter": 1,
        "sgd_minibatch_size": 64,
        "entropy_coeff": 0.01,
        "lr": 1e-2,
        "model": {"hidden": [16, 3]},
        **KINDS[kind],
    }


def collected(kind: str, **more: Any) -> tuple[LanePPO, Lane, Any]:
    """A lane after its first fragment, and the fragment's ticks."""
    trainer = PPO({**config(kind), "lanes": 1, **more}, TrialContext(seed=3))
    assert isinstance(trainer, LanePPO)
    lane = trainer.as_lane_state()
    keys = jax.random.split(jax.random.key(5), 3)
    after, ticks = collect(trainer.shape, trainer.lane_settings(), lane, keys)
    return trainer, after, ticks


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_of_the_same_rows_is_torchs(kind: str) -> None:
    trainer, lane, ticks = collected(kind)
    shape, settings = trainer.shape, trainer.lane_settings()
    rows = rows_of(shape, settings, lane.learnt.weights, ticks)
    rates = Rates(*(column[0] for column in trainer.rates()))
    key = jax.random.key(7)
    after, stats, norm, _ = learn(shape, settings, rates, lane, rows, key)

    plain = PPO({**config(kind), "learner": "torch"}, TrialContext(seed=3))
    before = plain.policy.weights()
    batch = TrainBatch(**{name: np.array(one) for name, one in rows._asdict().items()})
    # Log-probabilities and values of the rows are those that torch gives.
    found = plain.policy.model.evaluate(*map(_tensor, (batch.observations, batch.actions)))
    close = functools.partial(np.testing.assert_allclose, rtol=TOLERANCE, atol=TOLERANCE)
    close(batch.logp, found.logp.detach().numpy())
    close(batch.values, found.values.detach().numpy())
    told = plain.take_steps(plain.learner, batch)
    learnt = trainer.as_policy(after.learnt.weights)
    for name, one in plain.policy.weights().items():
        assert np.abs(one - before[name]).max() > 100 * TOLERANCE, name
        close(learnt[name], one, err_msg=name)
    for name, one in trainer.as_program(learnt).items():
        # Units and deviations that are only in the program stay zero.
        np.testing.assert_array_equal(one, after.learnt.weights[name], err_msg=name)
    for name, value in zip(program.STATS, np.asarray(stats), strict=True):
        assert value == pytest.approx(told[name], rel=TOLERANCE, abs=TOLERANCE), name
    assert float(norm) == pytest.approx(told["grad_norm"], rel=TOLERANCE)
    for one_ in (trainer, plain):
        one_.stop()


@pytest.mark.slow
def test_a_round_ends_after_an_epoch_whose_mean_divergence_is_beyond_its_bound() -> None:
    trainer, lane, ticks = collected("choices", sgd_minibatch_size=16)
    shape, settings = trainer.shape, trainer.lane_settings()
    rates = Rates(*(column[0] for column in trainer.rates()))
    rows = rows_of(shape, settings, lane.learnt.weights, ticks)

    def learnt(epochs: int, target_kl: float) -> tuple[list[float], float]:
        own = settings._replace(epochs=np.int32(epochs), target_kl=np.float32(target_kl))
        after, stats, *_ = learn(shape, own, rates, lane, rows, jax.random.key(7))
        weight = np.asarray(after.learnt.weights["actor.0.bias"])
        return weight.tolist(), float(stats[program.STATS.index("kl")])

    first, divergence = learnt(1, np.inf)
    assert learnt(2, 0.5 * divergence)[0] == first
    assert learnt(2, 1.5 * divergence)[0] != first
    trainer.stop()


@pytest.mark.slow
def test_the_observation_after_a_step_is_filtered_like_those_before_it() -> None:
    trainer, after, ticks = collected("choices", observation_filter="MeanStdFilter")
    goes_on = ~np.asarray(ticks.stepped.terminated[-1] | ticks.stepped.truncated[-1])
    assert goes_on.any()
    raw, seen = np.asarray(after.episodes.states), after.seen  # CartPole's state is what it shows
    expected = (raw - seen.mean) / (np.sqrt(seen.variance) + 1e-8)
    found = np.asarray(ticks.stepped.following[-1])
    np.testing.assert_allclose(found[goes_on], expected[goes_on], rtol=1e-4, atol=1e-5)
    trainer.stop()


def test_advantages_are_those_of_a_trainer_where_episodes_end_and_are_cut_off() -> None:
    discounts = {"gamma": 0.9, "lambda_": 0.7}
    lane = PPO({**config("choices"), **discounts, "lanes": 1}, TrialContext(seed=3))
    assert isinstance(lane, LanePPO)
    stream, times = np.random.default_rng(4), (12, 2)
    ends = stream.random(times)
    terminated, truncated = ends < 0.2, ends > 0.8
    terminated[-1], truncated[-1] = [False, False], [False, True]
    assert terminated.any()
    assert truncated[:-1].any()
    rewards, values, unread = stream.standard_normal((3, *times)).astype(np.float32)
    seen, following = stream.standard_normal((2, *times, 4)).astype(np.float32)
    stepped = Stepped(rewards, following, terminated, truncated, unread, unread)
    ticks = program._Tick(seen, np.zeros(times, np.int32), unread, values, stepped)
    shape = dataclasses.replace(lane.shape, steps=12)
    weights = lane.as_lane_state().learnt.weights
    found = rows_of(shape, lane.lane_settings(), weights, ticks)

    of_next = lane.inference.actor.values(following.reshape(-1, 4)).reshape(times)
    after = next_values(values, of_next[-1], of_next, truncated)
    expected = generalized_advantages(rewards, values, after, (terminated, truncated), (0.9, 0.7))
    for name, column in expected._asdict().items():
        np.testing.assert_allclose(
            getattr(found, name), column.reshape(-1), rtol=1e-4, atol=1e-5, err_msg=name
        )
    lane.stop()


@pytest.mark.slow  # it compiles
def test_a_step_on_rows_that_the_policy_has_moved_from_is_bounded_as_in_torch() -> None:
    options = {"clip_param": 0.1, "vf_clip_param": 0.2, "vf_loss_coeff": 0.7, "entropy_coeff": 0.03}
    given = {**config("choices"), **options, "normalize_advantages": False}
    lane = PPO({**given, "lanes": 1}, TrialContext(seed=3))
    plain = PPO({**given, "learner": "torch"}, TrialContext(seed=3))
    assert isinstance(lane, LanePPO)
    stream = np.random.default_rng(4)
    seen, actions = stream.standard_normal((64, 4), np.float32), stream.integers(0, 2, 64)
    policy = plain.policy.in_torch()
    now = policy.model.evaluate(_tensor(seen), _tensor(actions))
    moved, advantages, returns = 0.3 * stream.standard_normal((3, 64)).astype(np.float32)
    logp, values = now.logp.detach().numpy() + moved, now.values.detach().numpy() - moved
    rows = program._Row(seen, actions, logp, values, advantages, returns)
    rates = Rates(*(column[0] for column in lane.rates()))
    weights = lane.as_lane_state().learnt.weights
    differentiate = jax.jit(jax.value_and_grad(program._loss, has_aux=True), static_argnums=1)
    (_, measured), gradient = differentiate(weights, lane.shape, lane.lane_settings(), rates, rows)

    columns = {name: _tensor(one) for name, one in rows._asdict().items()}
    loss, parts = ppo_loss(policy.model, columns, plain.settings)
    expected = policy.compute_gradients(loss)
    assert 0.2 < parts[program.STATS.index("clip_fraction")] < 0.9
    np.testing.assert_allclose(measured, parts.numpy(), rtol=1e-4, atol=1e-5)
    for name, one in lane.as_policy(gradient).items():
        np.testing.assert_allclose(one, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    lane.stop()
    plain.stop()


def test_the_rates_of_each_round_are_those_of_its_first_step() -> None:
    scheduled = {
        "lr_schedule": "linear",
        "entropy_coeff_schedule": [[0, 0.0], [640, 0.5]],
        "clip_param": 0.4,
        "clip_param_schedule": "linear",
        "schedule_timesteps": 640,
        "timesteps_per_iteration": 180,
    }
    lane = PPO({**config("choices"), **scheduled, "lanes": 1}, TrialContext(seed=3))
    assert isinstance(lane, LanePPO)
    lane.progress.timesteps = 64
    rates = lane.rates()
    np.testing.assert_allclose(rates.lr, [0.9e-2, 0.8e-2, 0.7e-2], rtol=1e-6)
    np.testing.assert_allclose(rates.entropy, [0.05, 0.1, 0.15], rtol=1e-6)
    np.testing.assert_allclose(rates.clip, [0.36, 0.32, 0.28], rtol=1e-6)
    lane.stop()


def _tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(np.array(array))


def test_rewards_are_scaled_as_by_the_scaler_of_a_worker() -> None:
    scaled = {**config("numbers"), "normalize_rewards": True, "horizon": 10, "lanes": 1}
    trainer = PPO(scaled, TrialContext(seed=3))
    assert isinstance(trainer, LanePPO)
    settings, lane = trainer.lane_settings(), trainer.as_lane_state()
    keys = jax.random.split(jax.random.key(5), 3)
    after, ticks = collect(trainer.shape, settings, lane, keys)
    as_they_are = settings._replace(normalize_rewards=np.array(False))
    untouched, raw = collect(trainer.shape, as_they_are, lane, keys)
    scaler = RewardScaler(2, float(settings.gamma), MeanStdFilter((), REWARD_CLIP, center=False))
    over = np.asarray(raw.stepped.truncated)
    assert over.any()
    expected = [
        scaler(rewards.astype(np.float64), ends)
        for rewards, ends in zip(np.asarray(raw.stepped.rewards), over, strict=True)
    ]
    assert np.abs(raw.stepped.rewards - np.stack(expected)).max() > 1
    np.testing.assert_allclose(ticks.stepped.rewards, np.stack(expected), rtol=1e-4)
    np.testing.assert_allclose(after.discounted.returns, scaler.returns, rtol=1e-4)
    np.testing.assert_allclose(ticks.stepped.returns, raw.stepped.returns)
    assert float(after.discounted.counted.count) == 64
    assert float(untouched.discounted.counted.count) == 0
    trainer.stop()


def test_the_noise_of_an_environment_is_one_function_for_so_many_steps() -> None:
    trainer, lane, ticks = collected("noise that follows the state")
    weights, shape, settings = lane.learnt.weights, trainer.shape, trainer.lane_settings()
    units = program._hidden(shape, settings, weights, "actor", ticks.observations)
    noise = np.asarray(ticks.actions - program._last(shape, weights, "actor", units))
    of = np.asarray(units)
    for env in range(2):
        # Of 3 units one matrix explains the noise of 5 steps, and none that of 30.
        for first in range(0, 30, 5):
            rows = slice(first, first + 5)
            found = np.linalg.lstsq(of[rows, env], noise[rows, env], rcond=None)[0]
            np.testing.assert_allclose(of[rows, env] @ found, noise[rows, env], atol=1e-4)
        whole = np.linalg.lstsq(of[:30, env], noise[:30, env], rcond=None)[0]
        assert np.abs(of[:30, env] @ whole - noise[:30, env]).max() > 1e-2
    assert int(lane.age) == 32
    last = np.einsum("nh,nhg->ng", of[-1], np.asarray(lane.matrices))
    np.testing.assert_allclose(last, noise[-1], atol=1e-5)
    assert not np.allclose(lane.matrices[0], lane.matrices[1])
    trainer.stop()


def test_noise_goes_on_in_the_next_fragment() -> None:
    trainer, lane, _ = collected("noise that follows the state")
    keys = jax.random.split(jax.random.key(6), 3)
    shape, settings = trainer.shape, trainer.lane_settings()
    _, ticks = collect(shape, settings, lane, keys)
    units = program._hidden(shape, settings, lane.learnt.weights, "actor", ticks.observations)
    noise = ticks.actions - program._last(shape, lane.learnt.weights, "actor", units)
    kept = np.einsum("tnh,nhg->tng", np.asarray(units), np.asarray(lane.matrices))
    # After 32 steps it is due at the 35th.
    np.testing.assert_allclose(noise[:3], kept[:3], atol=1e-5)
    assert np.abs(noise[3] - kept[3]).max() > 1e-3
    trainer.stop()
