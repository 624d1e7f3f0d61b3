"""The environments of compiled programs are those of gymnasium."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainables.envs.compiled.classic import KNOWN

#: CartPole-v0 is CartPole-v1 with another time limit, and gymnasium warns of it.
NAMES = [name for name in KNOWN if name != "CartPole-v0"]
#: Numbers of observations and rewards in single precision, after one step.
ROUNDING = 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_gymnasiums_up_to_rounding(name: str) -> None:
    theirs: Any = gymnasium.make(name).unwrapped
    spec = gymnasium.spec(name)
    ours = KNOWN[name]
    limit = ours.limit
    step, observe = jax.jit(ours.step), jax.jit(ours.observe)
    theirs.action_space.seed(0)
    steps, ends = 0, 0
    for episode in range(6):
        theirs.reset(seed=episode)
        for _ in range(limit):
            state = np.array(theirs.state, dtype=np.float32)
            action = theirs.action_space.sample()
            moved = step(state, jnp.asarray(action))
            observation, reward, terminated, _, _ = theirs.step(action)
            np.testing.assert_allclose(observe(moved.state), observation, atol=ROUNDING)
            assert float(moved.reward) == pytest.approx(float(reward), abs=ROUNDING, rel=ROUNDING)
            assert bool(moved.terminated) == terminated
            steps += 1
            if terminated:
                ends += 1
                break
    assert limit == spec.max_episode_steps
    assert steps > 60
    assert ends == 6 or name != "CartPole-v1"
    assert ours.features == theirs.observation_space.shape[0]
    assert ours.choices == getattr(theirs.action_space, "n", 0)


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_begins_where_gymnasiums_does(name: str) -> None:
    ours, theirs = KNOWN[name], gymnasium.make(name)
    begin = jax.jit(jax.vmap(lambda key: ours.observe(ours.begin(key))))
    mine = np.asarray(begin(jax.random.split(jax.random.key(0), 2000)))
    given = np.stack([theirs.reset(seed=seed)[0] for seed in range(2000)])
    deviations = given.std(axis=0) + 1e-9
    np.testing.assert_allclose(mine.mean(axis=0), given.mean(axis=0), atol=0.12 * deviations.max())
    np.testing.assert_allclose(mine.std(axis=0), given.std(axis=0), atol=0.08 * deviations.max())
    assert (mine.min(axis=0) >= given.min(axis=0) - 0.1 * deviations).all()
    assert (mine.max(axis=0) <= given.max(axis=0) + 0.1 * deviations).all()
