"""How actors explore: what is drawn, what follows from the steps, what stands in checkpoints."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import PLAIN, differences, make, run
from trainables.algorithms.ppo import PPO
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.policies.acting.distributions import Actions, Array
from trainables.policies.exploration.actions import (
    EpsilonGreedy,
    EpsilonGreedyConfig,
    StochasticSampling,
)

HEAD = np.tile(np.array([0.0, 3.0, 1.0, 2.0], dtype=np.float32), (20_000, 1))
NONE = np.zeros(0, dtype=np.float32)


def test_epsilon_falls_linearly_and_stays() -> None:
    config = EpsilonGreedyConfig(initial_epsilon=0.9, final_epsilon=0.1, epsilon_timesteps=100)
    one = EpsilonGreedy(ActionLayout((4,), scalar=True), config)
    seen = []
    for steps in (0, 25, 100, 5000):
        one.set_timesteps(steps)
        seen.append(one.epsilon)
    assert seen == pytest.approx([0.9, 0.7, 0.1, 0.1])


def test_a_share_of_choices_is_drawn_evenly_and_none_without_a_stream() -> None:
    config = EpsilonGreedyConfig(initial_epsilon=0.4)
    one = EpsilonGreedy(ActionLayout((4,), scalar=True), config)
    assert set(one.draw(HEAD, NONE, None)[0].tolist()) == {1}
    drawn, _ = one.draw(HEAD, NONE, np.random.default_rng(1))
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, [0.1, 0.7, 0.1, 0.1], atol=0.01)


def test_each_choice_of_a_row_explores_with_its_row() -> None:
    one = EpsilonGreedy(ActionLayout((3, 2)), EpsilonGreedyConfig(initial_epsilon=0.5))
    head = np.tile(np.array([5.0, 0.0, 0.0, 0.0, 5.0], dtype=np.float32), (10_000, 1))
    rows, _ = one.draw(head, NONE, np.random.default_rng(2))
    assert rows.shape == (10_000, 2)
    assert (rows.max(0) == [2, 1]).all()
    assert np.mean((rows == [0, 1]).all(1)) == pytest.approx(0.5 + 0.5 / 6, abs=0.02)


def log_probability(layout: ActionLayout, head: Array, log_std: Array, action: Any) -> float:
    """What one action's columns add up to, one after the other."""
    total, logits, reals = 0.0, 0, 0
    for size, number in zip(layout.sizes, np.atleast_1d(action), strict=True):
        if size:
            powers = np.exp(head[logits : logits + size].astype(np.float64))
            total += math.log(powers[int(number)] / powers.sum())
            logits += size
        else:
            away = (number - head[layout.logits + reals]) / math.exp(log_std[reals])
            total += -0.5 * away**2 - log_std[reals] - 0.5 * math.log(2 * math.pi)
            reals += 1
    return total


@pytest.mark.parametrize(
    "layout",
    [
        ActionLayout((3,), scalar=True),
        ActionLayout((4, 2)),
        ActionLayout((0, 0)),
        ActionLayout((3, 0, 2, 0)),
    ],
)
def test_probabilities_of_drawn_and_of_given_actions_are_those_of_a_loop(
    layout: ActionLayout,
) -> None:
    stream, one = np.random.default_rng(3), StochasticSampling(layout)
    head = stream.normal(size=(40, layout.head_size)).astype(np.float32)
    log_std = stream.normal(size=len(layout.real_columns)).astype(np.float32)
    actions, logp = one.draw(head, log_std, stream)
    expected = [log_probability(layout, row, log_std, actions[i]) for i, row in enumerate(head)]
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-5)
    found = one.likelihood(head, log_std, np.asarray(actions))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_real_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="epsilon-greedy cannot choose"):
        EpsilonGreedy(ActionLayout((0,)), EpsilonGreedyConfig())


def test_without_explore_the_best_actions_are_sampled() -> None:
    trainer = make({**PLAIN, "explore": False})
    (sample,) = trainer.workers.sample()
    fragment = sample.fragments[0]
    heads, _ = trainer.inference.actor.forward(fragment.observations.reshape(-1, 4))
    np.testing.assert_array_equal(fragment.actions.reshape(-1), heads.argmax(1))
    trainer.stop()


class Alternating(StochasticSampling):
    """Takes the worst choice in every other call: what it has counted is its state."""

    calls = 0

    def draw(
        self, head: Array, log_std: Array, stream: np.random.Generator | None
    ) -> tuple[Actions, Array]:
        self.calls += stream is not None
        return super().draw(head if self.calls % 2 else -head, log_std, stream)

    def get_state(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.calls = int(state["calls"])


def test_the_state_of_an_exploration_stands_in_checkpoints(tmp_path: Path) -> None:
    def alternating() -> PPO:
        trainer = make({**PLAIN, "rollout_fragment_length": 11, "train_batch_size": 22})
        worker = trainer.workers.foreach_worker(lambda one: one.for_policy(lambda policy: policy))
        worker[0].exploration = Alternating(trainer.spaces.layout)
        return trainer

    first, again = alternating(), alternating()
    run(first, 1)
    path = first.save(tmp_path)
    again.restore(path)
    assert differences(run(again, 2), run(first, 2)) == []
    first.stop()
    again.stop()
