"""The width of a trial's stack follows from the spec and the number of lanes alone."""

from typing import Any

import pytest

from sweep import spec as specs
from sweep.driver.start import prepare
from sweep.driver.start.creation import resolving, samples
from sweep.driver.start.creation.samples import StackWidths

pytest.importorskip("jax")

SPEC = """
name: small
trials: 4
trainable: ppo
metric: episode_reward_mean
mode: max
config: {env: CartPole-v1, num_envs_per_worker: 4, sgd_minibatch_size: 64}
space:
  lr: {loguniform: [1e-5, 1e-2]}
  rollout_fragment_length: {choice: [16, 32, 64], weights: [6, 3, 1]}
stop: {training_iteration: 1}
"""


def widths_of(lanes: int, spec: str = SPEC) -> StackWidths:
    resolved = resolving.resolve(specs.parse(spec, "small.yaml"), ())
    return StackWidths(resolved.spec, resolved.trainable, lanes)


def settings(**more: Any) -> dict[str, Any]:
    base = {"env": "CartPole-v1", "num_envs_per_worker": 4, "sgd_minibatch_size": 64}
    return {**base, **more}


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [(1, [1, 1, 1]), (12, [8, 4, 2]), (100, [64, 32, 16]), (500, [500, 128, 64])],
)
def test_a_stack_has_places_for_the_share_of_its_shape(lanes: int, expected: list[int]) -> None:
    for _ in range(2):  # a resumed sweep asks again
        of = widths_of(lanes)
        found = [of.width(settings(rollout_fragment_length=steps)) for steps in (16, 32, 64)]
        assert found == expected


def test_lanes_of_one_shape_share_one_stack() -> None:
    of = widths_of(37, SPEC.replace("[16, 32, 64], weights: [6, 3, 1]", "[16]"))
    assert of.width(settings(rollout_fragment_length=16)) == 37


@pytest.mark.parametrize("more", [{"rollout_fragment_length": 17}, {"sgd_minibatch_size": "many"}])
def test_a_trial_of_a_shape_that_was_not_drawn_has_a_narrow_stack(more: dict[str, Any]) -> None:
    assert widths_of(64).width(settings(**more)) == 1


def test_the_stacks_of_a_space_with_many_shapes_have_few_idle_places() -> None:
    resolved, _ = prepare.prepare("pendulum_ppo", [])
    spec = resolved.spec
    of = StackWidths(spec, resolved.trainable, 500)
    lanes: dict[Any, list[int]] = {}
    for point in samples.draw_samples(spec.space, 999, 500):
        config = samples.complete_config(
            resolved.trainable, spec, spec.space.nest(point.settings, spec.config)
        )
        shape = resolved.trainable.lane_shape(resolved.trainable.as_lane(config, 1))
        lanes.setdefault(shape, []).append(of.width(config))
    assert len(lanes) == 27
    assert all(len(set(widths)) == 1 for widths in lanes.values())
    places = sum(-(-len(widths) // widths[0]) * widths[0] for widths in lanes.values())
    assert places < 2 * 500
