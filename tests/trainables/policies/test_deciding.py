"""Decisions with as little work in each step as there can be are those of `act`, to the bit."""

from typing import Any

import numpy as np
import pytest

from tests.support.trainers import differences
from trainables.core import rng
from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting import deciding, distributions
from trainables.policies.acting.actor import Actor
from trainables.policies.acting.deciding import SingleEnvDecider, VectorEnvDecider
from trainables.policies.architecture import Activation, Architecture
from trainables.policies.exploration.actions import EpsilonGreedyConfig
from trainables.policies.q.actor import QActor, QArchitecture


@pytest.mark.parametrize("choices", [2, 3, 7])
def test_greedy_decisions_one_by_one_are_those_of_arrays_of_one_row(choices: int) -> None:
    """Also where choices are equally good, or differ by next to nothing."""
    steps, features = 300, 4
    layout = ActionLayout((choices,), scalar=True)
    shape = QArchitecture.of(Architecture((features,), (), (9, 8), "relu"), False, 0.0, ())
    actor = QActor(layout, shape, EpsilonGreedyConfig(initial_epsilon=0.3))
    drawn = np.random.default_rng(1)
    sizes = {"trunk.dense.0": (9, features), "head.0": (8, 9), "head.1": (choices, 8)}
    for scale in (0.0, 1e-9, 1e-7, 1.0, 300.0):
        weights: dict[str, Any] = {}
        for name, of in sizes.items():
            last = name == "head.1"
            for part, size in (("weight", of), ("bias", of[:1])):
                numbers = drawn.standard_normal(size) * (scale if last else 1.0)
                weights[f"{name}.{part}"] = numbers.astype(np.float32)
        actor.load(weights)
        rows = drawn.standard_normal((steps, 1, features)).astype(np.float32)
        one, other = np.random.default_rng(3), np.random.default_rng(3)
        alone = actor.single_env_decider(one)
        assert alone is not None
        chosen = [alone.choose(step, row) for step, row in enumerate(rows)]
        memory = actor.initial_memory(1)
        expected = np.concatenate([actor.act(row, memory, other).actions for row in rows])
        columns = alone.columns(slice(0, steps), chosen)
        assert differences(columns, {"actions": expected}) == []
        assert {type(each) for each in chosen} == {np.int64}
        assert rng.get_generator_state(one) == rng.get_generator_state(other)


@pytest.mark.parametrize("choices", [1, 2, 3, 7, 18, 40])
@pytest.mark.parametrize(
    ("hidden", "activation"), [((), "tanh"), ((8,), "relu"), ((64, 33), "tanh")]
)
def test_decisions_one_by_one_are_those_of_arrays_of_one_row(
    choices: int, hidden: tuple[int, ...], activation: Activation
) -> None:
    """Also where choices are equally good, or differ by next to nothing, or as far as they can."""
    steps, features = 200, 4
    actor = Actor(
        ActionLayout((choices,), scalar=True), Architecture((features,), (), hidden, activation)
    )
    drawn = np.random.default_rng(1)
    sizes = (features, *hidden)
    for scale in (0.0, 1e-7, 1.0, 300.0, 1e20):
        weights = {}
        for net, outputs in (("actor", choices), ("critic", 1)):
            for i, (below, size) in enumerate(zip(sizes, (*hidden, outputs), strict=True)):
                for part, shape in (("weight", (size, below)), ("bias", (size,))):
                    numbers = drawn.standard_normal(shape) * (scale if i == len(hidden) else 1.0)
                    weights[f"{net}.{i}.{part}"] = numbers.astype(np.float32)
        actor.load(weights)
        rows = drawn.standard_normal((steps, 1, features)).astype(np.float32)
        one, other = np.random.default_rng(3), np.random.default_rng(3)
        alone = actor.single_env_decider(actor.prepare_draws(steps, 1, one))
        assert alone is not None
        chosen = [alone.choose(step, row) for step, row in enumerate(rows)]
        columns = alone.columns(slice(0, steps), chosen)
        memory = actor.initial_memory(1)
        acted = [actor.act(row, memory, other) for row in rows]
        expected = {"actions": np.concatenate([each.actions for each in acted])}
        for name in ("logp", "values"):
            expected[name] = np.concatenate([each.columns[name] for each in acted])
        assert differences(columns, expected) == []
        assert {type(each) for each in chosen} == {np.int64}
        assert rng.get_generator_state(one) == rng.get_generator_state(other)


def test_choices_that_differ_by_rounding_alone_are_weighed_in_the_numbers_of_one_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, layout = 400, ActionLayout((2,), scalar=True)
    actor = Actor(layout, Architecture((1,), (), (), "tanh"))
    drawn = np.random.default_rng(1)
    actor.load(
        {
            "actor.0.weight": np.array([[0.0], [1.0]], np.float32),
            "actor.0.bias": np.zeros(2, np.float32),
            "critic.0.weight": np.zeros((1, 1), np.float32),
            "critic.0.bias": np.zeros(1, np.float32),
        }
    )
    rows = drawn.standard_normal((steps, 1, 1)).astype(np.float32)
    race = drawn.standard_normal((steps, 2)).astype(np.float32)
    race[:, 1] = race[:, 0] + rows[:, 0, 0] + drawn.uniform(-2e-7, 2e-7, steps)
    scores = [
        distributions.log_softmax(actor.forward(row)[0]) - race[i] for i, row in enumerate(rows)
    ]
    expected = [int(score.argmax()) for score in scores]

    def chosen() -> list[int]:
        alone = SingleEnvDecider(actor._networks(), race)
        return [int(alone.choose(step, row)) for step, row in enumerate(rows)]

    assert chosen() == expected
    monkeypatch.setattr("trainables.policies.acting.deciding.CERTAIN", -1.0)
    assert chosen() != expected  # otherwise these rows show nothing


def weights_of(
    actor: Architecture, outputs: int, scale: float, drawn: np.random.Generator
) -> dict[str, Any]:
    """Weights drawn for an actor and a critic, those of the last layers multiplied by `scale`."""
    features, hidden = actor.shape[0] - actor.masks, actor.hidden
    sizes = {}
    for net, last in (("actor", outputs), ("critic", 1)):
        if actor.shares:
            sizes[f"{net}.0"] = (last, (features, *hidden)[-1])
            continue
        for i, pair in enumerate(zip((features, *hidden), (*hidden, last), strict=True)):
            sizes[f"{net}.{i}"] = pair[::-1]
    if actor.shares:
        for i, pair in enumerate(zip((features, *hidden[:-1]), hidden, strict=True)):
            sizes[f"trunk.dense.{i}"] = pair[::-1]
    weights: dict[str, Any] = {}
    for name, size in sizes.items():
        by = scale if size[0] in (outputs, 1) else 1.0
        weights[f"{name}.weight"] = (drawn.standard_normal(size) * by).astype(np.float32)
        weights[f"{name}.bias"] = (drawn.standard_normal(size[0]) * by).astype(np.float32)
    return weights


@pytest.mark.parametrize("count", [1, 2, 8, 33, 300])
@pytest.mark.parametrize("action", ["2", "3", "7", "1 real", "5 reals", "4 masked", "2 masked"])
@pytest.mark.parametrize(
    ("hidden", "activation", "shares"),
    [
        ((), "tanh", False),
        ((8,), "relu", False),
        ((64, 33), "tanh", False),
        ((64, 33), "relu", True),
    ],
)
def test_decisions_side_by_side_are_those_of_act(
    count: int, action: str, hidden: tuple[int, ...], activation: Activation, shares: bool
) -> None:
    """Also where choices are equally good, or differ by next to nothing, or as far as they can."""
    number, steps = int(action[0]), 2 + 200 // count
    masks, real = number * ("masked" in action), "real" in action
    layout = ActionLayout((0,) * number if real else (number,), scalar=not real)
    features = 4 + masks
    architecture = Architecture((features,), (), hidden, activation, shares=shares, masks=masks)
    actor = Actor(layout, architecture)
    drawn = np.random.default_rng(1)
    for scale in (0.0, 1e-7, 1.0, 300.0, 1e20):
        weights = weights_of(architecture, number, scale, drawn)
        if real:
            weights["log_std"] = drawn.standard_normal(number).astype(np.float32)
        actor.load(weights)
        rows = drawn.standard_normal((steps, count, features)).astype(np.float32)
        if masks:
            valid = drawn.random((steps, count, masks)) < 0.5
            valid[..., 0] |= ~valid.any(axis=-1)
            rows[..., -masks:] = valid
        one, other = np.random.default_rng(3), np.random.default_rng(3)
        together = actor.vector_env_decider(actor.prepare_draws(steps, count, one))
        assert together is not None
        chosen = np.stack([together.choose(step, row) for step, row in enumerate(rows)])
        memory = actor.initial_memory(count)
        acted = [actor.act(row, memory, other) for row in rows]
        part = slice(1, steps - 1)
        given = {"actions": chosen[part], **together.columns(part, rows[part], chosen[part])}
        expected = {"actions": np.stack([each.actions for each in acted])[part]}
        for name in ("logp", "values"):
            expected[name] = np.stack([each.columns[name] for each in acted])[part]
        assert differences(given, expected) == []
        assert rng.get_generator_state(one) == rng.get_generator_state(other)


def test_of_two_choices_that_differ_by_rounding_alone_the_one_is_taken_that_act_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, layout = 400, ActionLayout((2,), scalar=True)
    actor = Actor(layout, Architecture((1,), (), (), "tanh"))
    actor.load(
        {
            "actor.0.weight": np.array([[0.0], [1.0]], np.float32),
            "actor.0.bias": np.array([0.3, 0.0], np.float32),
            "critic.0.weight": np.zeros((1, 1), np.float32),
            "critic.0.bias": np.zeros(1, np.float32),
        }
    )
    drawn = distributions.PredrawnChoices(np.random.default_rng(1), (steps, 2, 2))
    aside = np.random.default_rng(2).uniform(-2e-7, 2e-7, (steps, 2))
    rows = (drawn.race[..., 1] - drawn.race[..., 0] + np.float32(0.3) + aside)[..., None]
    rows = rows.astype(np.float32)
    scores = [
        distributions.log_softmax(actor.forward(row)[0]) - drawn.race[i]
        for i, row in enumerate(rows)
    ]
    expected = np.stack([score.argmax(axis=-1) for score in scores])

    def chosen() -> Any:
        together = VectorEnvDecider(actor._networks(), drawn)
        return np.stack([together.choose(step, row) for step, row in enumerate(rows)])

    assert (chosen() == expected).all()
    monkeypatch.setattr(deciding, "CERTAIN", -1.0)
    assert (chosen() != expected).any()  # otherwise these rows show nothing


def test_what_cannot_be_decided_side_by_side_is_left_to_act() -> None:
    stream = np.random.default_rng(1)
    plain = Architecture((4,), (), (8,), "tanh")
    several = Actor(ActionLayout((2, 3)), plain)
    mixed = Actor(ActionLayout((2, 0)), plain)
    for actor in (several, mixed):
        actor.load(weights_of(plain, 5 if actor is several else 3, 1.0, stream))
        assert actor.vector_env_decider(actor.prepare_draws(3, 2, stream)) is None
    assert several.vector_env_decider(stream) is None  # nothing is drawn ahead where somebody looks


def test_an_actor_that_was_prepared_and_gets_other_weights_acts_by_these() -> None:
    """Also with as many rows as it was prepared for."""
    actor, other = (
        Actor(ActionLayout((2,), scalar=True), Architecture((4,), (), (8,), "tanh"))
        for _ in range(2)
    )
    drawn = np.random.default_rng(1)
    shapes = {"actor.0": (8, 4), "actor.1": (2, 8), "critic.0": (8, 4), "critic.1": (1, 8)}
    for _ in range(2):
        weights = {}
        for name, shape in shapes.items():
            for part, size in (("weight", shape), ("bias", shape[:1])):
                weights[f"{name}.{part}"] = drawn.standard_normal(size).astype(np.float32)
        actor.load(weights)
        rows = drawn.standard_normal((3, 4)).astype(np.float32)
        other.load(weights)
        for found, expected in zip(actor.forward(rows), other.forward(rows), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        actor.prepare_draws(5, 3, drawn)
