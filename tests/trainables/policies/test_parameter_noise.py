"""Parameter noise: weights of its own for each episode, as much as makes actions differ so far."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import check_restored_exactly, run
from trainables.algorithms.dqn import DQN
from trainables.algorithms.td3 import TD3
from trainables.core import rng
from trainables.errors import ConfigError
from trainables.policies.acting.actor import Actor
from trainables.policies.exploration.weights import ParameterNoise, ParameterNoiseConfig
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

NOISE: dict[str, Any] = {"exploration_config": {"type": "ParameterNoise"}}
CASES: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "dqn": (DQN, {"env": "CartPole-v1", "learning_starts": 32, "rollout_fragment_length": 8}),
    "dueling dqn": (DQN, {"env": "CartPole-v1", "learning_starts": 32, "dueling": True}),
    "td3": (
        TD3,
        {
            "env": "Pendulum-v1",
            "learning_starts": 32,
            "num_envs_per_worker": 2,
            "exploration_config": {"type": "ParameterNoise", "random_timesteps": 0},
        },
    ),
}


def make(case: str, seed: int = 3, **config: Any) -> Trainer:
    kind, of = CASES[case]
    return kind({**NOISE, **of, **config}, TrialContext(seed=seed))


def noise_of(actor: Actor) -> ParameterNoise:
    found = actor.exploration.parameter_noise
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES)
def test_noise_stays_for_an_episode_and_is_drawn_anew_for_the_next(case: str) -> None:
    trainer = make(case)
    actor, stream = trainer.policy.make_actor(), np.random.default_rng(1)
    actor.load(trainer.policy.acting_weights())
    noise, count = noise_of(actor), 3
    noise.stddev = 1.0
    actor.exploration.begin(count)
    row = np.random.default_rng(2).standard_normal(trainer.spaces.observation_shape, np.float32)
    rows, memory = np.stack([row] * count), actor.initial_memory(count)

    def seen() -> list[bytes]:
        actor.act(rows, memory, stream)
        return [b"".join(w[i].tobytes() for w in noise._perturbed.values()) for i in range(count)]

    first = seen()
    assert len(set(first)) == count
    assert seen() == first
    actor.exploration.ended(np.array([False, True, False]))
    second = seen()
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False, True]
    actor.load({n: 0 * w for n, w in trainer.policy.acting_weights().items()})
    seen()  # the same noise on other weights
    for name, weight in noise._perturbed.items():
        for i, seed in enumerate(noise.get_state()["seeds"]):
            drawn = rng.generator(int(seed), "parameters")
            shapes = {n: w.shape[1:] for n, w in noise._noise.items()}
            expected = {n: drawn.standard_normal(of, np.float32) for n, of in shapes.items()}
            np.testing.assert_array_equal(np.ravel(weight[i]), np.ravel(expected[name]))
    trainer.stop()


@pytest.mark.parametrize("case", CASES)
def test_actions_are_the_best_ones_by_the_perturbed_weights(case: str) -> None:
    trainer = make(case)
    weights = trainer.policy.acting_weights()
    actor, moved = trainer.policy.make_actor(), trainer.policy.make_actor()
    actor.load(weights)
    noise = noise_of(actor)
    noise.stddev = 0.5
    actor.exploration.begin(1)
    rows = np.random.default_rng(2).standard_normal((20, *trainer.spaces.observation_shape))
    rows, memory = rows.astype(np.float32), actor.initial_memory(1)
    tried = [actor.act(row[None], memory, np.random.default_rng(1)).actions[0] for row in rows]
    (seed,) = noise.get_state()["seeds"]
    drawn = rng.generator(int(seed), "parameters")
    named = [name for name in weights if _acts(name, weights)]
    for name in named:
        turned = weights[name].T
        turned = turned + np.float32(0.5) * drawn.standard_normal(turned.shape, np.float32)
        weights[name] = np.ascontiguousarray(turned.T)
    moved.load(weights)
    best = moved.act(rows, moved.initial_memory(20), None).actions
    np.testing.assert_allclose(tried, best, atol=1e-5)
    plain = actor.act(rows, actor.initial_memory(20), None).actions
    assert not np.array_equal(plain, best)
    trainer.stop()


def _acts(name: str, weights: Any) -> bool:
    return name.startswith("actor.") or not any(one.startswith("actor.") for one in weights)


def test_the_deviation_follows_the_distance_that_is_wanted() -> None:
    noise = ParameterNoise(ParameterNoiseConfig(initial_stddev=0.1, adaptation_freq=3))
    noise.begin(2)
    assert [noise.is_due(2) for _ in range(6)] == [False, False, True] * 2
    assert not any(noise.is_due(1) for _ in range(6))  # others than those that are followed
    noise.adapt(0.1, target=0.2)
    assert noise.stddev == pytest.approx(0.101)
    noise.adapt(0.3, target=0.2)
    noise.adapt(0.3, target=0.2)
    assert noise.stddev == pytest.approx(0.1 / 1.01)


def test_an_adapted_deviation_is_that_of_later_noise_alone() -> None:
    noise, stream = (
        ParameterNoise(ParameterNoiseConfig(initial_stddev=0.1)),
        np.random.default_rng(5),
    )
    weights = {"weight": np.ones((3, 2), np.float32), "bias": np.zeros(2, np.float32)}
    noise.begin(2)
    first = noise.perturb(weights, 2, stream)
    noise.adapt(0.0, 1.0)
    noise.on_episode_start(np.array([True, False]))
    then = noise.perturb(weights, 2, stream)
    for name, before in first.items():
        np.testing.assert_array_equal(then[name][1], before[1])
        assert (then[name][0] != before[0]).all()


def test_a_share_of_choices_is_a_divergence() -> None:
    trainer = make("dqn")
    greedy: Any = trainer.policy.make_actor().exploration
    for epsilon, wanted in ((1.0, math.log(2)), (0.0, 0.0), (0.5, -math.log(0.75))):
        greedy.epsilon = epsilon
        assert greedy.distance == pytest.approx(wanted)
    trainer.stop()


@pytest.mark.parametrize("case", CASES)
def test_noise_is_adapted_while_experience_is_collected(case: str) -> None:
    kind, config = CASES[case]
    for first, grows in ((1e-5, True), (5.0, False)):
        explored = {**NOISE["exploration_config"], **config.get("exploration_config", {})}
        explored["initial_stddev"] = first
        wanted = {} if kind is TD3 else {"initial_epsilon": 0.5}
        given: dict[str, Any] = {"exploration_config": {**explored, **wanted}}
        trainer = make(case, timesteps_per_iteration=200, **given)
        trainer.train()
        (state,) = trainer.get_state()["trainable"]["data"]["workers"]
        assert (state["exploration"]["stddev"] > first) is grows
        assert (state["exploration"]["seeds"] >= 0).any()
        trainer.stop()


@pytest.mark.parametrize("case", CASES)
def test_an_evaluation_is_greedy(case: str) -> None:
    noisy, quiet = make(case), make(case, exploration_config={})
    observation = np.random.default_rng(1).standard_normal(noisy.spaces.observation_shape)
    for one in (noisy, quiet):
        one.inference.actor.load(noisy.policy.acting_weights())
    for _ in range(3):
        found = noisy.compute_action(observation.astype(np.float32), explore=False)
        np.testing.assert_array_equal(
            found, quiet.compute_action(observation.astype(np.float32), explore=False)
        )
    for one in (noisy, quiet):
        one.stop()


@pytest.mark.parametrize("case", CASES)
def test_a_restored_trial_equals_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    explored = {"evaluation_interval": 2, "evaluation_config": {"explore": True}, "horizon": 17}
    config = {"timesteps_per_iteration": 60, "evaluation_num_episodes": 2, **explored}
    straight = make(case, seed=4, **config)
    run(straight, 2)
    other = make(case, seed=4, **config)
    other.train()
    check_restored_exactly(straight, other, tmp_path)
    straight.stop()


APART = {"remote_worker_envs": True, "remote_env_batch_wait_ms": 5.0}


@pytest.mark.parametrize(
    ("kind", "config", "says"),
    [
        (
            DQN,
            {"exploration_config": {"initial_stddev": 0.2}},
            "initial_stddev: has no effect with type: Eps",
        ),
        (
            TD3,
            {"exploration_config": {"adaptation_freq": 2}},
            "adaptation_freq: has no effect with type: Gau",
        ),
        (
            TD3,
            {"exploration_config": {"type": "ParameterNoise", "ou_theta": 0.2}},
            "ou_theta: has no effect with",
        ),
        (DQN, {**NOISE, **APART}, "remote_env_batch_wait_ms: 5.0.*ParameterNoise"),
        (TD3, {**NOISE, **APART}, "remote_env_batch_wait_ms: 5.0.*ParameterNoise"),
        (DQN, {**NOISE, "noisy": True}, "exploration_config.*noisy: true"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    kind: type[Trainer], config: dict[str, Any], says: str
) -> None:
    env = "CartPole-v1" if kind is DQN else "Pendulum-v1"
    with pytest.raises(ConfigError, match=says):
        kind.check_config({"env": env, **config})
