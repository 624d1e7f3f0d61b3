"""Trainers' checkpoints that an earlier version wrote go on as they went on there."""

import functools

import numpy as np
import pytest
import torch

from tests.support import golden_trainer
from tests.support.golden_trainer import KINDS

#: How far another version of the libraries may lead: results, and weights. Relative, relative and
#: absolute.
BOUNDS = {"ppo": (0.0, 1e-3, 1e-5)}
gone_on = functools.cache(golden_trainer.gone_on)


@pytest.mark.parametrize("name", KINDS)
def test_a_golden_checkpoint_of_a_trainer_goes_on_as_it_did_where_it_was_written(name: str) -> None:
    found, written = gone_on(name), golden_trainer.written(name)
    least, rtol, atol = BOUNDS.get(name, (1e-2, 1e-2, 1e-3))
    for one, expected in zip(found["results"], written["results"], strict=True):
        assert one == pytest.approx(expected, rel=least, abs=0.0)
    assert found["weights"].keys() == written["weights"].keys()
    for key, expected in written["weights"].items():
        np.testing.assert_allclose(found["weights"][key], expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", KINDS)
def test_with_the_same_libraries_it_goes_on_to_the_bit_on_every_processor(name: str) -> None:
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this processor has no AVX2")
    found, written = gone_on(name), golden_trainer.written(name)
    here, there = found["versions"], written["versions"]  # a trainer may need no torch now
    if here != {library: there[library] for library in here}:
        pytest.skip(f"written with {there}; here are {here}")
    assert found == {**written, "versions": here}
