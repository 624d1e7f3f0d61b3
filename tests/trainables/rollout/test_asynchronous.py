"""Workers that sample on while the trainer learns: nothing is learnt twice, whatever fails."""

import logging
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces

from tests.support.environments import Counting, Outcome
from tests.support.failing_workers import mishap
from tests.support.waiting import Deadline, wait_until
from trainables.algorithms.impala import IMPALA
from trainables.core.processes import child as child_process
from trainables.errors import WorkerError
from trainables.rollout.batch import Sample
from trainables.rollout.workers.remote import asynchronous
from trainables.rollout.workers.remote.asynchronous import AsyncWorkers
from trainables.trainable import TrialContext

HERE = "tests.trainables.rollout.test_asynchronous"
#: Steps of one sample: one environment a worker makes one fragment.
SAMPLE = 8


class Lived(Counting):
    """Observes how many steps it has made in all, and tells in a file named after its worker.

    While there is a file ``hold-<worker>`` it waits in every step. After `at` steps in worker 1 it
    does `what`, once: then it makes the file ``failed``. It is large with `side`, an image.
    """

    def __init__(self, folder: str, what: str = "", at: int = 0, side: int = 0) -> None:
        super().__init__(length=5)
        self.folder, self.what, self.at, self.side = folder, what, at, side
        self.lived = 0
        if side:
            image: Any = spaces.Box(0, 255, (side, side, 3), np.uint8)
            self.observation_space = image

    def step(self, action: Any) -> Outcome:
        self.lived += 1
        name = multiprocessing.current_process().name
        if name.startswith("rollout-worker"):
            folder = Path(self.folder)
            wait_until(lambda: not (folder / f"hold-{name}").exists())
            if self.what and self.lived == self.at and name.endswith("1"):
                self._fail_once(folder / "failed")
            (folder / f"steps-{name}").write_text(str(self.lived))
        return super().step(action)

    def close(self) -> None:
        (Path(self.folder) / f"closed-{os.getpid()}").touch()

    def _fail_once(self, marker: Path) -> None:
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return
        mishap(self.what)

    def _observe(self) -> Any:
        if self.side:
            return np.zeros((self.side, self.side, 3), dtype=np.uint8)
        return np.array([self.lived], dtype=np.float32)


def make(folder: Path, config: dict[str, Any] | None = None, **env: Any) -> IMPALA:
    own = {
        "env": f"{HERE}:Lived",
        "env_config": {"folder": str(folder), **env},
        "num_workers": 2,
        "num_envs_per_worker": 1,
        "rollout_fragment_length": SAMPLE,
        "env_level": "C",  # nothing is measured; who needs the environments back asks for them
    }
    return IMPALA({**own, **(config or {})}, TrialContext(seed=7))


def workers_of(trainer: IMPALA) -> AsyncWorkers:
    assert isinstance(trainer.workers, AsyncWorkers)
    return trainer.workers


def steps_of(folder: Path, worker: int) -> int:
    """How many its environment has made."""
    path = folder / f"steps-rollout-worker-{worker}"
    return int(path.read_text() or 0) if path.exists() else 0


class Learnt:
    """Which steps of which worker a trainer has learnt from, in their order."""

    def __init__(self, trainer: IMPALA) -> None:
        self.steps: dict[int, list[int]] = {0: [], 1: []}
        self.ages: list[int] = []
        self._trainer, self._end_round = trainer, trainer.end_round
        trainer.end_round = self._ended  # type: ignore[method-assign]  # a spy

    def _ended(self, samples: Sequence[Sample]) -> None:
        for one in samples:
            self.ages.append(self._trainer.workers.version - one.version)
            for fragment in one.fragments:
                self.steps[one.index] += fragment.observations[:, 0, 0].astype(int).tolist()
        self._end_round(samples)

    @property
    def is_whole(self) -> bool:
        """Nothing was learnt from twice, and nothing left out."""
        return all(steps == list(range(len(steps))) for steps in self.steps.values())


def test_a_child_samples_on_while_the_trainer_does_something_else_but_one_sample_only(
    tmp_path: Path,
) -> None:
    trainer = make(tmp_path, {"num_workers": 1})
    learnt = Learnt(trainer)
    for i in range(1, 4):
        result = trainer.train()
        assert result["timesteps_total"] == i * SAMPLE
        wait_until(lambda made=(i + 1) * SAMPLE: steps_of(tmp_path, 0) == made)  # type: ignore[misc]
    assert trainer.workers.foreach_env(lambda env: env.lived) == [[4 * SAMPLE]]
    assert learnt.ages == [0, 1, 1]
    assert result["weights_age"] == {"mean": 1.0, "max": 1.0}
    assert learnt.is_whole
    trainer.train()
    assert learnt.is_whole, "what was sampled before the request comes first"
    trainer.stop()


def test_nobody_waits_for_a_slow_child_and_its_sample_says_how_old_its_weights_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "hold-rollout-worker-1").touch()
    trainer = make(tmp_path)
    learnt = Learnt(trainer)
    for _ in range(4):
        trainer.train()
    assert (len(learnt.steps[0]), len(learnt.steps[1])) == (4 * SAMPLE, 0)
    (tmp_path / "hold-rollout-worker-1").unlink()
    deadline = Deadline()
    while deadline.waits(not learnt.steps[1]):
        result = trainer.train()
    assert learnt.ages[-1] == result["weights_age"]["max"] >= 4
    assert learnt.is_whole
    trainer.stop()


def test_a_batch_is_of_whichever_samples_come_first(tmp_path: Path) -> None:
    trainer = make(tmp_path, {"train_batch_size": 3 * SAMPLE - 1})
    learnt = Learnt(trainer)
    results = [trainer.train() for _ in range(4)]
    assert [one["timesteps_this_iter"] for one in results] == [3 * SAMPLE] * 4
    assert results[0]["train_batch_size"] == 3 * SAMPLE
    assert learnt.is_whole
    trainer.stop()


@pytest.mark.parametrize(
    ("what", "settings", "told"),
    [
        pytest.param("kill", {}, "died; exit code -9", id="kill"),
        pytest.param(
            "hang",
            {"sample_timeout_s": 10.0},
            "hangs: no answer within 10.0 s (sample_timeout_s)",
            marks=pytest.mark.slow,
            id="hang",
        ),
        pytest.param(
            "garbage",
            {},
            "returned garbage instead of a sample: a str",
            marks=pytest.mark.proof,
            id="garbage",
        ),
    ],
)
def test_T9_a_child_that_fails_is_replaced_and_nothing_is_learnt_twice(
    what: str,
    settings: dict[str, Any],
    told: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = {"recreate_failed_workers": True, "env_level": "auto", **settings}
    trainer = make(tmp_path, own, what=what, at=20)
    learnt = Learnt(trainer)
    with caplog.at_level(logging.WARNING):
        deadline = Deadline()
        while deadline.waits(len(learnt.steps[1]) < 4 * SAMPLE):
            result = trainer.train()
    trainer.stop()
    assert (tmp_path / "failed").exists()
    (record,) = [one for one in caplog.records if one.name.startswith("trainables")]
    assert "rollout worker 1 (pid" in record.getMessage()
    assert "is replaced, 1 of at most 1000 times" in record.getMessage()
    assert record.exc_info is not None and told in str(record.exc_info[1])
    assert learnt.is_whole
    assert result["num_healthy_workers"] == 2
    assert result["timesteps_total"] == sum(len(one) for one in learnt.steps.values())


def test_T9_without_a_replacement_the_error_says_which_settings_go_on(tmp_path: Path) -> None:
    trainer = make(tmp_path, what="kill", at=20)
    with pytest.raises(WorkerError, match=r"worker 1 \(pid \d+\) died.*recreate_failed_workers"):
        deadline = Deadline()
        while deadline.waits(True):
            trainer.train()
    trainer.stop()


def test_T25_the_others_go_on_with_whole_batches_until_none_is_left(tmp_path: Path) -> None:
    own = {"ignore_worker_failures": True, "train_batch_size": 2 * SAMPLE}
    trainer = make(tmp_path, own, what="kill", at=20)
    learnt = Learnt(trainer)
    result = trainer.train()
    deadline = Deadline()
    while deadline.waits(result["num_healthy_workers"] == 2):
        result = trainer.train()
    assert trainer.train()["timesteps_this_iter"] == 2 * SAMPLE
    assert learnt.is_whole and len(learnt.steps[1]) == 2 * SAMPLE
    psutil.Process(workers_of(trainer).pids()[0]).kill()
    with pytest.raises(WorkerError, match="none of 2 rollout"):
        deadline = Deadline()
        while deadline.waits(True):
            trainer.train()
    trainer.stop()


@pytest.mark.slow
def test_a_child_that_a_restored_checkpoint_lacks_is_not_waited_for(tmp_path: Path) -> None:
    trainer = make(tmp_path, {"ignore_worker_failures": True})
    trainer.train()
    state = trainer.get_state()
    state["trainable"]["data"]["workers"][1] = None  # as after its failure
    trainer.train()  # both sample on
    trainer.set_state(state)
    assert trainer.train()["num_healthy_workers"] == 1
    trainer.stop()


@pytest.mark.slow
def test_a_resumed_trial_goes_on_from_whole_counters_weights_and_environments(
    tmp_path: Path,
) -> None:
    trainer = make(tmp_path, {"timesteps_per_iteration": 10 * SAMPLE, "env_level": "auto"})
    learnt = Learnt(trainer)
    before = trainer.train()
    path = trainer.save(tmp_path)
    made = trainer.workers.foreach_env(lambda env: env.lived)
    weights = trainer.get_weights()["default_policy"]
    trainer.train()
    assert learnt.is_whole, "what waited while it was saved is learnt from"
    trainer.restore(path)
    assert firsts(trainer) == made, "what waited before it was restored never happened"
    trainer.stop()
    resumed = make(tmp_path, {"env_level": "auto"})
    resumed.restore(path)
    found = resumed.get_weights()["default_policy"]
    assert all(np.array_equal(found[name], one) for name, one in weights.items())
    assert resumed.exactness == "D not bit-exact: a clock steers (num_workers)"
    assert resumed.progress.timesteps == before["timesteps_total"]
    assert firsts(resumed) == made
    resumed.stop()


def firsts(trainer: IMPALA) -> list[list[int]]:
    """The first step of each worker that is learnt from next."""
    learnt = Learnt(trainer)
    deadline = Deadline()
    while deadline.waits(not (learnt.steps[0] and learnt.steps[1])):
        trainer.train()
    return [[learnt.steps[index][0]] for index in (0, 1)]


def test_filters_count_every_observation_that_is_learnt_from_once(tmp_path: Path) -> None:
    trainer = make(tmp_path, {"observation_filter": "MeanStdFilter"})
    for _ in range(6):
        result = trainer.train()
        seen = trainer.filters["observation"].get_state()["base"]
        assert seen["count"] == result["timesteps_total"]
    trainer.stop()


def test_evaluations_and_the_least_time_of_an_iteration_hold(tmp_path: Path) -> None:
    own = {"evaluation_interval": 2, "evaluation_num_episodes": 3, "min_iter_time_s": 0.05}
    trainer = make(tmp_path, own)
    results = [trainer.train() for _ in range(2)]
    assert results[1]["evaluation"]["episode_len_mean"] == 5
    assert all(one["time_this_iter_s"] >= 0.05 for one in results)
    assert trainer.settings.clock_settings == ("min_iter_time_s", "num_workers")
    trainer.stop()


def test_stopping_ends_children_whose_samples_nobody_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the middle of sending more than a pipe holds."""
    for module in (child_process, asynchronous):  # a slow machine has the time that it needs
        monkeypatch.setattr(module, "STOP_TIMEOUT_S", 120.0)
    trainer = make(tmp_path, {"model": {"conv_filters": []}}, side=200)
    trainer.train()
    children = [psutil.Process(pid) for pid in workers_of(trainer).pids()]
    wait_until(lambda: steps_of(tmp_path, 0) + steps_of(tmp_path, 1) == 3 * SAMPLE)
    trainer.stop()
    trainer.stop()
    assert not any(child.is_running() for child in children)
    assert all((tmp_path / f"closed-{child.pid}").exists() for child in children)
