"""One rollout worker: what it gives, and its filters."""

import copy
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.support.trainers import differences, final_state, make, run
from trainables.errors import WorkerError
from trainables.policies.acting.actor import Acted, Actor
from trainables.policies.acting.deciding import VectorEnvDecider
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_set import LocalWorkers
from trainables.rollout.workers.worker_spec import WorkerSpec

CONFIG: dict[str, Any] = {"train_batch_size": None, "evaluation_interval": None}
FAKE: dict[str, Any] = {**CONFIG, "fake_sampler": True}


@pytest.fixture(name="worker")
def made() -> Iterator[RolloutWorker]:
    trainer = make(CONFIG)
    assert isinstance(trainer.workers, LocalWorkers)
    yield trainer.workers.worker
    trainer.stop()


def observed(worker: RolloutWorker) -> Any:
    return worker._filters["observation"]


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_P6_a_tick_takes_one_batched_decision_for_all_environments(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    act, choose = Actor.act, VectorEnvDecider.choose

    def counting(self: Actor, observations: Any, *rest: Any) -> Acted:
        seen.append(len(observations))
        return act(self, observations, *rest)

    def counting_too(self: VectorEnvDecider, step: int, rows: Any) -> Any:
        seen.append(len(rows))
        return choose(self, step, rows)

    monkeypatch.setattr(Actor, "act", counting)
    monkeypatch.setattr(VectorEnvDecider, "choose", counting_too)
    trainer = make({**CONFIG, "batch_mode": mode, "env": "tests.support.environments:Counting"})
    (sample,) = trainer.workers.sample()
    ticks = sample.count // 3
    assert ticks in (16, 20)
    assert seen == [3] * ticks
    trainer.stop()


def test_W20_a_worker_is_an_endless_iterator_of_samples(worker: RolloutWorker) -> None:
    counts = [sample.count for sample in islice(worker, 3)]
    assert counts == [48, 48, 48]


def test_W20_a_worker_made_from_the_creation_args_of_another_is_alike(
    worker: RolloutWorker,
) -> None:
    args = worker.creation_args()
    assert args["steps"] == 48
    twin = RolloutWorker(WorkerSpec(**args))
    weights, filters = make(CONFIG).policy.model.weights(), {}
    for name, kept in worker._filters.items():
        filters[name] = kept.get_state()
    for one in (worker, twin):
        one.sync(weights, filters)
    first, second = worker.sample(), twin.sample()
    assert differences(first.fragments[0].arrays, second.fragments[0].arrays) == []
    twin.close()


def test_W20_a_process_knows_its_current_worker(worker: RolloutWorker) -> None:
    assert RolloutWorker.current() is worker


def test_B4_a_sample_can_come_with_its_count(worker: RolloutWorker) -> None:
    sample, count = worker.sample_with_count()
    assert count == sample.fragments[0].logp.size == 48


def test_B4_a_fake_sampler_gives_the_first_batch_for_ever_and_the_metrics_say_so() -> None:
    trainer = make(FAKE)
    seen: list[bytes] = []
    learn = trainer.learn

    def watching(fragments: Any) -> dict[str, float]:
        seen.append(b"".join(column.tobytes() for column in fragments[0].arrays.values()))
        return learn(fragments)

    trainer.learn = watching  # type: ignore[method-assign]  # to see what is learnt from
    results = run(trainer, 3)
    assert seen == [seen[0]] * 3
    assert [one["fake_sampler"] for one in results] == [True] * 3
    assert results[0]["episodes_total"] == results[2]["episodes_total"] > 0
    assert results[2]["timesteps_total"] == 3 * 48
    assert trainer.filters["observation"].row_count == 48  # type: ignore[attr-defined]
    trainer.stop()
    honest = make(CONFIG)
    assert "fake_sampler" not in honest.train()
    honest.stop()


def test_B4_the_first_batch_stands_in_the_checkpoint() -> None:
    straight = make(FAKE)
    head = run(straight, 2)
    saved = copy.deepcopy(straight.get_state())
    expected = [run(straight, 2), final_state(straight)]
    straight.stop()
    other = make(FAKE)
    other.set_state(saved)
    assert differences([run(other, 2), final_state(other)], expected) == []
    assert head
    other.stop()


def test_B4_the_first_batch_is_that_of_its_worker_after_a_restore_too(
    worker: RolloutWorker,
) -> None:
    sampling = worker.spec.sampling.model_copy(update={"fake_sampler": True})
    args = {**worker.creation_args(), "sampling": sampling, "index": 1, "num_workers": 2}
    first, second = (RolloutWorker(WorkerSpec(**args)) for _ in range(2))
    filters = {name: kept.get_state() for name, kept in worker._filters.items()}
    first.sync(make(CONFIG).policy.model.weights(), filters)
    assert first.sample().index == 1
    second.set_state(first.get_state())
    assert second.sample().index == 1
    for one in (first, second):
        one.close()


def test_B13_flushing_clears_the_delta_and_filters_nothing_otherwise(
    worker: RolloutWorker,
) -> None:
    one = observed(worker)
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    one.count(rows)
    before = one.scale(rows)
    first = worker.get_filters()
    second = worker.get_filters(flush_after=True)
    assert first["observation"]["count"] == second["observation"]["count"] == 3
    assert worker.get_filters()["observation"]["count"] == 0
    assert one.scale(rows).tobytes() == before.tobytes()


def test_B13_a_given_state_is_adopted_and_what_was_seen_since_the_flush_is_kept(
    worker: RolloutWorker,
) -> None:
    one = observed(worker)
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    one.count(rows)
    worker.get_filters(flush_after=True)
    one.count(rows[:1])
    master = {name: f.get_state() for name, f in worker._filters.items()}
    master["observation"]["base"]["count"] = 100
    worker.sync_filters(master)
    assert one.row_count == 101
    assert worker.get_filters()["observation"]["count"] == 1


def test_B13_what_was_seen_after_the_checkpoint_is_not_sent_after_a_restore(
    worker: RolloutWorker,
) -> None:
    state = worker.get_state()
    observed(worker).count(np.ones((3, 4), dtype=np.float32))
    worker.set_state(state)
    assert worker.get_filters()["observation"]["count"] == 0


def test_B13_a_state_without_one_of_the_filters_is_refused(worker: RolloutWorker) -> None:
    with pytest.raises(WorkerError, match=r"worker 0 has no state for its filter.*observation"):
        worker.sync_filters({"reward": worker._filters["reward"].get_state()})


def test_T11_filters_are_synchronised_after_each_iteration_if_so_set() -> None:
    trainer = make({**CONFIG, "num_workers": 2})
    trainer.train()
    known = trainer.filters["observation"].get_state()["base"]
    assert known["count"] == 2 * 48
    # A child that is not given the merged statistics would count its own 48 rows only.
    samples = trainer.workers.sample()
    assert [one.deltas["observation"]["count"] for one in samples] == [48, 48]
    trainer.stop()


def test_T11_unsynchronised_filters_stay_each_workers_own_and_stand_in_its_state() -> None:
    trainer = make({**CONFIG, "num_workers": 2, "synchronize_filters": False})
    run(trainer, 2)
    state = trainer.get_state()["trainable"]["data"]
    own = [one["filters"]["observation"]["base"] for one in state["workers"]]
    merged = state["filters"]["observation"]["base"]
    assert [one["count"] for one in own] == [96, 96]
    assert merged["count"] == 192
    assert own[0]["mean"].tobytes() != own[1]["mean"].tobytes()
    np.testing.assert_allclose(merged["mean"], (own[0]["mean"] + own[1]["mean"]) / 2)
    trainer.stop()
    synchronised = make(CONFIG)
    assert "filters" not in synchronised.get_state()["trainable"]["data"]["workers"][0]
    synchronised.stop()
