"""Layers in torch: what they compute stays in the arrays that they are given to write."""

from typing import Any

import numpy as np
import pytest
import torch

from trainables.learners.torch_learner import shuffled
from trainables.policies.architecture import Architecture
from trainables.policies.learning.layers import activate, unit_pixels
from trainables.rollout.batch import TrainBatch


@pytest.mark.parametrize(("kind", "plain"), [("tanh", torch.tanh), ("relu", torch.relu)])
def test_an_activation_writes_over_its_argument_which_no_gradient_needs(
    kind: str, plain: Any
) -> None:
    layer = torch.nn.Linear(3, 5)
    x = torch.randn(7, 3)
    expected = plain(layer(x))
    gradient = torch.autograd.grad(expected.square().sum(), layer.weight)[0]
    before = layer(x)
    after = activate(before, kind)
    assert after.data_ptr() == before.data_ptr()
    assert torch.equal(after, expected)
    assert torch.equal(torch.autograd.grad(after.square().sum(), layer.weight)[0], gradient)


def test_bytes_become_numbers_from_0_to_1_in_one_new_array_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    expected = every.float() / 255.0
    of = Architecture((2, 3, 1), (), (), "relu", highest_byte=255.0)

    def second(*_: object) -> None:
        raise AssertionError("a second array of the size of the first")

    monkeypatch.setattr(torch.Tensor, "__truediv__", second)
    assert torch.equal(unit_pixels(every, of), expected)
    assert unit_pixels(expected, of) is expected


def test_shuffled_images_are_copied_row_by_row_not_byte_by_byte() -> None:
    rows = 5
    images = np.random.default_rng(0).integers(0, 256, (rows, 4, 4, 3), dtype=np.uint8)
    scalar = np.arange(rows, dtype=np.float32)
    batch = TrainBatch(
        observations=images,
        actions=np.arange(rows),
        logp=scalar,
        values=scalar,
        advantages=scalar,
        returns=scalar,
    )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        parts = shuffled(batch, 2, np.random.default_rng(1))
    order = np.random.default_rng(1).permutation(rows)
    drawn = torch.cat([part["observations"] for part in parts]).numpy()
    assert np.array_equal(drawn, images[order])
    called = {event.key for event in profile.key_averages()}
    assert "aten::index_select" in called
    assert "aten::index" not in called
