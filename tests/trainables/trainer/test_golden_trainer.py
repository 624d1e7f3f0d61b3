"""A trainer's checkpoint that an earlier version wrote goes on as it went on there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.golden_trainer import CONFIG, FOLDER, trained_on
from trainables.algorithms.ppo import PPO
from trainables.checkpoint import file

(CHECKPOINT,) = FOLDER.glob("*.swck")
AFTER = json.loads((FOLDER / "after.json").read_text())


@pytest.fixture(scope="module")
def gone_on() -> dict[str, Any]:
    """What today's program makes of the checkpoint."""
    trainer = PPO(CONFIG)
    trainer.restore(str(CHECKPOINT))
    found = trained_on(trainer)
    trainer.stop()
    return found


def test_a_golden_checkpoint_of_a_trainer_goes_on_as_it_did_where_it_was_written(
    gone_on: dict[str, Any],
) -> None:
    assert gone_on["results"] == AFTER["results"]
    assert gone_on["weights"].keys() == AFTER["weights"].keys()
    for name, expected in AFTER["weights"].items():
        np.testing.assert_allclose(gone_on["weights"][name], expected, rtol=1e-3, atol=1e-5)


def test_on_the_same_kind_of_machine_it_goes_on_to_the_bit(
    gone_on: dict[str, Any], tmp_path: Path
) -> None:
    trainer = PPO(CONFIG)
    header = file.verify(Path(trainer.save(tmp_path)))
    trainer.stop()
    here = {"cpu": header["cpu"], "versions": header["versions"]}
    if any(here[key] != AFTER["machine"][key] for key in here):
        pytest.skip(f"written on {AFTER['machine']}; this is {here}")
    assert gone_on["weights"] == AFTER["weights"]
