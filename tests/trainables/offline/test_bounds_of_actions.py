"""Actions of files are learnt as numbers of about -1 to 1, whatever their bounds are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.algorithms.bc import BC
from trainables.algorithms.iql import IQL
from trainables.offline.batches import Batch
from trainables.offline.config import IOContext
from trainables.offline.reader import InputReader
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

BOUNDS = ((-1.0, 1.0), (50.0, 150.0), (0.0, 0.01))
SMALL: dict[str, Any] = {"model": {"hidden": [4]}, "train_batch_size": 32}
KINDS: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "bc": (BC, {**SMALL, "sgd_minibatch_size": 8}),
    "iql": (IQL, {**SMALL, "learning_starts": 0, "replay_batch_size": 8, "updates_per_step": 4}),
}


def recorded(folder: Path, low: float, high: float) -> str:
    """The same 4 episodes, played between these bounds."""
    drawn, half = np.random.default_rng(0), (high - low) / 2
    units = drawn.normal(0.3, 0.5, (32, 1))
    line = {
        "type": "SampleBatch",
        "obs": drawn.uniform(-1, 1, (32, 1)).tolist(),
        "new_obs": drawn.uniform(-1, 1, (32, 1)).tolist(),
        "actions": (units * half + (high + low) / 2).tolist(),
        "action_logp": (-1.0 - np.square(units[:, 0]) - np.log(half)).tolist(),
        "rewards": drawn.uniform(size=32).tolist(),
        "terminateds": [i % 8 == 7 for i in range(32)],
        "t": [i % 8 for i in range(32)],
        "eps_id": [i // 8 for i in range(32)],
    }
    line["new_obs"] = [
        o if i % 8 == 7 else line["obs"][i + 1] for i, o in enumerate(line["new_obs"])
    ]
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(f"{json.dumps(line)}\n")
    return str(folder)


def between(kind: str, low: float, high: float, given: Any, **config: Any) -> Trainer:
    algorithm, settings = KINDS[kind]
    env = {"env": "tests.support.environments:Wide", "env_config": {"low": low, "high": high}}
    return algorithm({**env, "input": given, **settings, **config}, TrialContext(seed=1))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_learnt_and_estimated_does_not_depend_on_the_bounds(
    kind: str, tmp_path: Path
) -> None:
    weights, estimates, greedy = [], [], []
    for low, high in BOUNDS:
        asked = {"input_evaluation": ["is", "wis"]}
        trainer = between(kind, low, high, recorded(tmp_path / f"{low}", low, high), **asked)
        results = [trainer.train() for _ in range(3)]
        learnt = trainer.get_weights()["default_policy"]
        weights.append(np.concatenate([one.ravel() for one in learnt.values()]))
        estimates.append([results[-1]["off_policy"][name] for name in ("is", "wis")])
        chosen = trainer.compute_action(np.full(1, 0.5, np.float32))[0]
        greedy.append((chosen - low) / (high - low))
        trainer.stop()
    for found in (weights, estimates, greedy):
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], rtol=1e-3, atol=1e-4)


class Samples(InputReader):
    """Gives what the environment's workers sample."""

    def __init__(self, context: IOContext) -> None:
        self.sampler: Any = context.default_sampler_input()

    def next(self) -> Batch:
        batch: Batch = self.sampler.next()
        GIVEN.append(batch["actions"])
        return batch


GIVEN: list[Any] = []


def test_a_reader_of_ones_own_gets_sampled_actions_in_the_environments_numbers() -> None:
    GIVEN.clear()
    trainer: Any = between("iql", 50.0, 150.0, Samples, learning_starts=1000)
    trainer.train()
    stored = trainer.replay._rows[: len(trainer.replay)]["actions"]
    trainer.stop()
    given = np.concatenate(GIVEN)[: len(stored)]
    assert given.mean() == pytest.approx(100, abs=40)
    np.testing.assert_allclose(stored * 50 + 100, given, rtol=1e-4)
