"""Distributions of actions of a person's own: acting, learning, checkpoints, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import check_restored_exactly, make
from trainables.algorithms.a2c import A2C
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, ExportError
from trainables.policies.learning.networks import sequence_layout_of

HERE = "tests.support.own_distributions"
BETA = {"custom_action_dist": f"{HERE}:Beta"}
CHOICES = {"custom_action_dist": f"{HERE}:Tempered"}
CASES: dict[str, dict[str, Any]] = {
    "real numbers": {"env": "Pendulum-v1", "model": BETA},
    "a choice": {"model": CHOICES},
    "two children": {"model": CHOICES, "num_workers": 2, "train_batch_size": 192},
    "a memory": {"model": {**CHOICES, "use_lstm": True}},
    "a module": {
        "env": "Pendulum-v1",
        "model": {**BETA, "custom_model": "tests.support.own_networks:Plain"},
    },
    "drawn in evaluation": {"model": CHOICES, "evaluation_config": {"explore": True}},
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_stored_is_what_the_learner_computes(case: str) -> None:
    trainer = make({**CASES[case], "observation_filter": "NoFilter"})
    assert trainer.settings.learner == "torch"
    assert trainer.policy.model.log_std is None
    (sample, *_) = trainer.workers.sample()
    batch = trainer.learning_rows(sample.fragments)
    (rows,) = trainer.learner.minibatches(batch, 10_000, np.random.default_rng(0), len(batch))
    found = trainer.policy.model.evaluate(
        rows["observations"], rows["actions"], sequence_layout_of(rows)
    )
    np.testing.assert_allclose(found.logp.detach(), rows["logp"], atol=1e-4)
    trainer.stop()


@pytest.mark.parametrize("case", CASES)
def test_a_restored_trial_equals_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    first = make(CASES[case])
    first.train()
    check_restored_exactly(first, make(CASES[case]), tmp_path)
    with pytest.raises(ExportError, match=f"custom_action_dist: {HERE}.*is your own code"):
        first.export_model("onnx", tmp_path)
    first.stop()


def test_actions_are_those_of_the_distribution() -> None:
    trainer = make(CASES["real numbers"])
    (sample, *_) = trainer.workers.sample()
    actions = sample.fragments[0].actions
    assert (np.abs(actions) < 2.0).all()
    assert np.abs(actions).max() > 1.5
    actor = trainer.inference.actor
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    head, _ = actor.forward(x)
    assert head.shape == (4, 2)
    a, b = np.split(1 + np.log1p(np.exp(head)), 2, axis=1)
    memory = actor.initial_memory(4)
    np.testing.assert_allclose(actor.act(x, memory, None).actions, -2 + 4 * a / (a + b), atol=1e-5)
    each, _ = actor.act_each(x, memory, [None] * 4)
    np.testing.assert_allclose(each, -2 + 4 * a / (a + b), atol=1e-5)
    raw = np.array([1.0, 0.0, 0.5], np.float32)
    greedy = trainer.compute_action(raw)
    drawn = {float(trainer.compute_action(raw, explore=True)[0]) for _ in range(3)}
    assert trainer.compute_action(raw) == greedy
    assert len(drawn) == 3
    trainer.stop()


def test_choices_are_drawn_as_often_as_it_says() -> None:
    trainer = make(CASES["a choice"])
    actor = trainer.inference.actor
    x = np.tile(np.array([[0.5, -1.0, 2.0, 1.0]], np.float32), (5000, 1))
    head, _ = actor.forward(x[:1])
    acted = actor.act(x, actor.initial_memory(5000), np.random.default_rng(0))
    share = np.exp(2 * head[0, 1]) / np.exp(2 * head[0]).sum()
    assert abs(acted.actions.mean() - share) < 0.03
    trainer.stop()


REFUSED = {
    "Columns": r"for inputs \(3, 2\) its sample\(\) has the shape \(3, 1\); expected \(3,\)",
    "Beyond": r"its sample\(\) gave .*; expected choices from 0 to below 2",
    "ByNumpy": "uses random numbers of another source",
    "Endless": r"its entropy\(\) has NaN or infinity; expected finite numbers",
    "Deaf": r"its logp\(actions\) has no gradient",
    "Silent": "it raised TypeError",
    "Countless": r"its num_inputs\(Discrete\(2\)\) returned 0; expected a whole number",
    "Bet": "did you mean 'Beta'",
    "Beta": "it raised AttributeError",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_the_contract_is_refused_before_training(name: str) -> None:
    config = {"env": "CartPole-v1", "model": {"custom_action_dist": f"{HERE}:{name}"}}
    for of in (PPO, A2C):
        with pytest.raises(ConfigError, match=REFUSED[name]) as caught:
            of.check_config(config)
        assert caught.value.place == "model.custom_action_dist"
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model": {**BETA, "free_log_std": True}},
            "^model.free_log_std: has no effect with custom_action_dist",
        ),
        (
            {"model": BETA, "exploration_config": {"type": "StateDependentNoise"}},
            "model.custom_action_dist.* cannot be used with .*StateDependentNoise",
        ),
        ({"model": BETA, "learner": "fused"}, "model.custom_action_dist is set"),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PPO.check_config({"env": "Pendulum-v1", **config})
