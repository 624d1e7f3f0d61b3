"""A trainer's checkpoint that an earlier version wrote goes on as it went on there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.golden_trainer import FOLDERS, make, trained_on
from trainables.checkpoint import file
from trainables.trainer.trainer import Trainer


@pytest.fixture(params=sorted(FOLDERS))
def golden(request: pytest.FixtureRequest) -> Iterator[tuple[Trainer, dict[str, Any]]]:
    """A trainer in the state of its golden checkpoint, and what once became of it."""
    (checkpoint,) = FOLDERS[request.param].glob("*.swck")
    trainer = make(request.param)
    trainer.restore(str(checkpoint))
    yield trainer, json.loads((FOLDERS[request.param] / "after.json").read_text())
    trainer.stop()


def test_a_golden_checkpoint_of_a_trainer_goes_on_as_it_did_where_it_was_written(
    golden: tuple[Trainer, dict[str, Any]],
) -> None:
    trainer, after = golden
    gone_on = trained_on(trainer)
    assert gone_on["results"] == after["results"]
    assert gone_on["weights"].keys() == after["weights"].keys()
    for name, expected in after["weights"].items():
        np.testing.assert_allclose(gone_on["weights"][name], expected, rtol=1e-3, atol=1e-5)


def test_on_the_same_kind_of_machine_it_goes_on_to_the_bit(
    golden: tuple[Trainer, dict[str, Any]], tmp_path: Path
) -> None:
    trainer, after = golden
    header = file.verify(Path(trainer.save(tmp_path)))
    here = {"cpu": header["cpu"], "versions": header["versions"]}
    if any(here[key] != after["machine"][key] for key in here):
        pytest.skip(f"written on {after['machine']}; this is {here}")
    assert trained_on(trainer)["weights"] == after["weights"]
