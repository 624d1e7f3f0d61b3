from typing import Any

import numpy as np
import pytest

from tests.support.trainers import differences, final_state, make, run
from trainables.core.processes.child import ChildProcess, Patience
from trainables.errors import WorkerError
from trainables.rollout.batch import PackedSample

TWO: dict[str, Any] = {"num_workers": 2, "train_batch_size": None, "evaluation_interval": None}


@pytest.mark.parametrize(("bulk", "frames"), [(True, 1), (False, 48)])
def test_B3_observations_are_compressed_as_a_whole_or_row_by_row(bulk: bool, frames: int) -> None:
    trainer = make({"train_batch_size": None})
    (sample,) = trainer.workers.sample()
    packed = sample.compress(bulk)
    assert [len(one["observations"].frames) for one in packed.columns] == [frames]
    assert packed.sample.fragments[0].observations.size == 0
    expanded = packed.decompress()
    assert differences(expanded.fragments[0].arrays, sample.fragments[0].arrays) == []
    assert expanded.fragments[0].observations.flags.writeable
    trainer.stop()


def test_B3_repetitive_observations_travel_smaller() -> None:
    trainer = make({"train_batch_size": None})
    (sample,) = trainer.workers.sample()
    sample.fragments[0].observations[:] = 0.0
    (packed,) = sample.compress(bulk=True).columns
    assert (
        sum(map(len, packed["observations"].frames)) < sample.fragments[0].observations.nbytes / 5
    )
    trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [pytest.param({"compress_observations": "bulk", "recreate_failed_workers": True},
                  marks=pytest.mark.proof),
     {"compress_observations": True, "batch_mode": "complete_episodes"},
     {"compress_observations": "bulk", "env": "tests.support.agents:Targets",
      "multiagent": {"policies": ["left", "right", "brief"]}}],
)  # fmt: skip
def test_B3_a_run_with_compressed_observations_equals_one_without(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[bool] = []
    receive = ChildProcess.receive

    def watching(self: ChildProcess, patience: Patience) -> Any:
        answer = receive(self, patience)
        sample = answer[0] if isinstance(answer, tuple) else answer
        received.append(isinstance(sample, PackedSample))
        return answer

    plain = make({**TWO, **settings, "compress_observations": False})
    expected: list[Any] = [run(plain, 2), final_state(plain)]
    plain.stop()
    monkeypatch.setattr(ChildProcess, "receive", watching)
    trainer = make({**TWO, **settings})
    found: list[Any] = [run(trainer, 2), final_state(trainer)]
    trainer.stop()
    for one in (*found[0], *expected[0]):
        del one["config"]
    assert differences(found, expected) == []
    assert sum(received) == 2 * 2


def test_B3_rows_of_any_number_of_features_come_back() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3, 2)).astype(np.float32)
    trainer = make({"train_batch_size": None})
    (sample,) = trainer.workers.sample()
    object.__setattr__(sample.fragments[0], "observations", rows)
    for bulk in (True, False):
        found = sample.compress(bulk).decompress().fragments[0].observations
        assert differences(found, rows) == []
    trainer.stop()


def test_B3_columns_are_compressed_as_asked_and_what_holds_no_numbers_is_refused() -> None:
    trainer = make({"train_batch_size": None})
    (sample,) = trainer.workers.sample()
    packed = sample.compress(columns=["rewards", "logp"])
    assert [set(one) for one in packed.columns] == [{"rewards", "logp"}]
    again = packed.decompress().fragments[0]
    assert differences(again.arrays, sample.fragments[0].arrays) == []
    infos = np.empty(sample.fragments[0].valid.shape, dtype=object)
    object.__setattr__(sample.fragments[0], "declared", {"infos": infos})
    with pytest.raises(WorkerError, match="columns: infos does not hold numbers"):
        sample.compress(columns=["infos"])
    trainer.stop()
