"""Acting between bounds: what is drawn, how noise goes on from step to step, and where it ends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.algorithms.td3 import TD3
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.bounded.acting import (
    ActionNoise,
    ActionNoiseConfig,
    Bounds,
    GaussianPolicyConfig,
    SquashedGaussian,
    StateDependentNoise,
    WarmUpConfig,
    WarmUpSampling,
)
from trainables.trainable import TrialContext

LAYOUT = ActionLayout((0, 0))
LIMITS = Bounds(np.array([0, -3], np.float32), np.array([1, -1], np.float32))
NONE = np.zeros(0, dtype=np.float32)
COLD: dict[str, Any] = {"random_timesteps": 0}


def head(*numbers: float, count: int = 1) -> NDArray[np.float32]:
    return np.tile(np.array(numbers, dtype=np.float32), (count, 1))


def unit(actions: Any) -> NDArray[Any]:
    """Actions as numbers from -1 to 1."""
    return LIMITS.unscaled(actions)


def test_numbers_are_scaled_to_the_bounds_and_back() -> None:
    ends = np.array([[-1, -1], [1, 1], [0, 0.5]], dtype=np.float32)
    assert LIMITS.scaled(ends).tolist() == [[0, -3], [1, -1], [0.5, -1.5]]
    np.testing.assert_allclose(unit(LIMITS.scaled(ends)), ends, atol=1e-6)
    with pytest.raises(ConfigError, match="finite bounds"):
        Bounds.of(spaces.Box(0.0, np.inf, (2,)))
    most = np.finfo(np.float32).max  # between these there is no number's width
    with pytest.raises(ConfigError, match="finite bounds"):
        Bounds.of(spaces.Box(-most, most, (2,), np.float32))
    with pytest.raises(ConfigError, match="float Box actions"):
        Bounds.of(spaces.MultiBinary(2))


def test_the_policys_gaussian_is_drawn_and_squashed() -> None:
    one = SquashedGaussian(LAYOUT, LIMITS, GaussianPolicyConfig(**COLD))
    given = head(0.3, -1.0, np.log(0.5), np.log(0.1), count=20_000)
    best = one.draw(given, NONE, None)[0]
    np.testing.assert_allclose(unit(best[0]), np.tanh([0.3, -1.0]), atol=1e-5)
    drawn = np.arctanh(unit(one.draw(given, NONE, np.random.default_rng(1))[0]).astype(np.float64))
    np.testing.assert_allclose(drawn.mean(0), [0.3, -1.0], atol=0.01)
    np.testing.assert_allclose(drawn.std(0), [0.5, 0.1], atol=0.01)


def test_a_deviation_beyond_its_bounds_is_that_of_the_bound() -> None:
    one = SquashedGaussian(LAYOUT, LIMITS, GaussianPolicyConfig(**COLD))
    beyond, at_bounds = (
        one.draw(head(0.3, -1.0, *log_std, count=50), NONE, np.random.default_rng(1))[0]
        for log_std in ((9.0, -40.0), (2.0, -20.0))
    )
    np.testing.assert_array_equal(beyond, at_bounds)


@pytest.mark.parametrize("kind", ["GaussianNoise", "OrnsteinUhlenbeckNoise"])
def test_noise_changes_with_the_steps_and_stays_in_the_bounds(kind: Any) -> None:
    config = ActionNoiseConfig(**COLD, type=kind, stddev=0.2, final_scale=0.5, scale_timesteps=100)
    one = ActionNoise(LAYOUT, LIMITS, config)
    # What drifts is as wide as it gets: 0.2 / sqrt(1 - 0.85²).
    wide = 0.2 if kind == "GaussianNoise" else 0.2 / np.sqrt(1 - 0.85**2)
    for steps, scale in ((0, 1.0), (50, 0.75), (100, 0.5), (10**6, 0.5)):
        one.set_timesteps(steps)
        drawn = unit(one.draw(head(0, 0, count=20_000), NONE, np.random.default_rng(1))[0])
        inside = np.clip(scale * wide * np.random.default_rng(2).standard_normal(200_000), -1, 1)
        np.testing.assert_allclose(drawn.std(0), inside.std(), rtol=0.03)
    edge = one.draw(head(9, -9, count=1000), NONE, np.random.default_rng(1))[0]
    assert ((edge >= LIMITS.low) & (edge <= LIMITS.high)).all()
    assert (edge == [1, -3]).any()


def followed(one: ActionNoise, steps: int, ends: Sequence[int] = ()) -> NDArray[Any]:
    """(steps, 3, 2) noise of three environments; the episode of the second ends at `ends`."""
    stream, rows = np.random.default_rng(3), []
    for step in range(steps):
        rows.append(unit(one.draw(head(0, 0, count=3), NONE, stream)[0]))
        if step in ends:
            one.ended(np.array([False, True, False]))
    return np.array(rows)


def test_drifting_noise_goes_on_from_step_to_step_and_from_0_in_each_episode() -> None:
    config = ActionNoiseConfig(**COLD, type="OrnsteinUhlenbeckNoise", stddev=0.01)
    one, other = (ActionNoise(LAYOUT, LIMITS, config) for _ in range(2))
    one.begin(3)
    noise = followed(one, 4000)
    before, after = noise[:-1].reshape(-1), noise[1:].reshape(-1)
    assert np.corrcoef(before, after)[0, 1] == pytest.approx(0.85, abs=0.02)
    other.begin(3)
    cut = followed(other, 4000, ends=[99])
    np.testing.assert_array_equal(cut[:100], noise[:100])
    np.testing.assert_array_equal(cut[:, [0, 2]], noise[:, [0, 2]])
    # The same is added, to 0.85 of the step before and to 0.
    np.testing.assert_allclose(noise[100, 1] - cut[100, 1], 0.85 * noise[99, 1], atol=1e-6)


def test_E8_P16_a_sampler_says_which_episodes_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of five steps in two environments that are stepped side by side."""
    told: list[tuple[int, list[bool]]] = []
    ticks, draw = list[int](), ActionNoise.draw

    def counted(self: ActionNoise, head: Any, log_std: Any, stream: Any) -> Any:
        ticks.append(len(head))
        return draw(self, head, log_std, stream)

    monkeypatch.setattr(ActionNoise, "draw", counted)
    monkeypatch.setattr(
        ActionNoise, "ended", lambda _, rows: told.append((len(ticks), rows.tolist()))
    )
    trainer = TD3(
        {
            "env": "tests.support.environments:Counting",
            "env_config": {"continuous": True},
            "num_envs_per_worker": 2,
            "rollout_fragment_length": 12,
        },
        TrialContext(seed=1),
    )
    trainer.train()
    assert [each for each in told if any(each[1])] == [(5, [True, True]), (10, [True, True])]
    trainer.stop()


def test_state_dependent_noise_is_one_function_of_the_state_for_so_many_steps() -> None:
    config = GaussianPolicyConfig(**COLD, type="StateDependentNoise", sample_freq=3)
    one = StateDependentNoise(LAYOUT, LIMITS, config)
    one.begin(2)
    log_std = np.log(np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], dtype=np.float32))
    stream = np.random.default_rng(1)
    units = head(0.2, 0.1, 0.05, count=2)
    means = np.zeros((2, 2), dtype=np.float32)
    given = np.concatenate([means, units], axis=1)
    drawn = [unit(one.draw(given, log_std, stream)[0]) for _ in range(7)]
    same = [np.array_equal(drawn[i], drawn[i + 1]) for i in range(6)]
    assert same == [True, True, False, True, True, False]
    assert not np.array_equal(drawn[0][0], drawn[0][1]), "each environment has its own"
    double = np.concatenate([means, 2 * units], axis=1)
    noise, twice = (
        np.arctanh(unit(one.draw(x, log_std, stream)[0]).astype(float)) for x in (given, double)
    )
    np.testing.assert_allclose(twice, 2 * noise, rtol=1e-4)


def test_rows_that_are_not_followed_have_state_dependent_noise_of_their_own() -> None:
    config = GaussianPolicyConfig(**COLD, type="StateDependentNoise")
    one = StateDependentNoise(LAYOUT, LIMITS, config)
    log_std = np.log(np.array([[0.1, 0.2], [0.3, 0.4]], dtype=np.float32))
    given = head(0.5, -5.0, 0.3, 0.4, count=20_000)
    best = one.draw(given[:1], log_std, None)[0]
    np.testing.assert_allclose(unit(best[0]), np.tanh([0.5, -2.0]), atol=1e-5)
    drawn = np.arctanh(unit(one.draw(given, log_std, np.random.default_rng(1))[0]).astype(float))
    expected = np.sqrt(np.square([0.3, 0.4]) @ np.square(np.exp(log_std.astype(float))))
    np.testing.assert_allclose(drawn.std(0), expected, rtol=0.02)
    assert one.get_state() == {}


def test_the_warm_up_ends_with_its_steps() -> None:
    one = SquashedGaussian(LAYOUT, LIMITS, GaussianPolicyConfig(random_timesteps=10))
    choosing = WarmUpSampling(ActionLayout((3,), scalar=True), WarmUpConfig(random_timesteps=10))
    sure, certain = head(9, -9, -20, -20, count=3000), head(0, 0, 99, count=3000)
    for steps, even in ((0, True), (9, True), (10, False)):
        one.set_timesteps(steps)
        choosing.set_timesteps(steps)
        drawn = one.draw(sure, NONE, np.random.default_rng(1))[0]
        chosen = choosing.draw(certain, NONE, np.random.default_rng(1))[0]
        assert (drawn.std(0) > 0.25).all() == even
        assert (len(set(chosen.tolist())) == 3) is even
        assert (choosing.draw(certain, NONE, None)[0] == 2).all()
        np.testing.assert_array_equal(
            one.draw(sure, NONE, None)[0], LIMITS.scaled(np.tanh(sure[:, :2]))
        )
