"""The columns of a fragment: those of the actor, and those that a reader requests."""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.support.environments import Counting
from tests.support.trainers import PLAIN, differences, make
from trainables.algorithms.ppo import PPO
from trainables.errors import WorkerError
from trainables.policies.actor import Acted, Actor, Column
from trainables.rollout.batch import REQUESTABLE, Fragment
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec

HERE = "tests.support.environments"
COUNTING: dict[str, Any] = {**PLAIN, "env": f"{HERE}:Counting", "env_config": {"length": 5}}
ALL = frozenset(REQUESTABLE)
BASE = [
    *("observations", "actions", "rewards"),
    *("terminated", "truncated", "valid", "autoreset"),
]


def spec_of(config: dict[str, Any], columns: frozenset[str] = ALL) -> tuple[WorkerSpec, PPO]:
    trainer = make({**COUNTING, **config})
    return replace(trainer.worker_spec(), columns=columns), trainer


def worker_of(spec: WorkerSpec, trainer: PPO) -> RolloutWorker:
    """A worker with the trainer's weights."""
    worker = RolloutWorker(spec)
    filters = {name: one.get_state() for name, one in trainer.filters.items()}
    worker.sync(trainer.policy.model.weights(), filters)
    return worker


def worker_with(config: dict[str, Any], columns: frozenset[str] = ALL) -> RolloutWorker:
    spec, trainer = spec_of(config, columns)
    worker = worker_of(spec, trainer)
    trainer.stop()
    return worker


class Says(Counting):
    """Tells in its info how many steps the episode has."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"steps": self.steps}


NATIVE = {"native_vector_env": True, "env_config": {}}
MODES: dict[str, dict[str, Any]] = {
    "separate": {},
    "horizon": {"env_config": {"length": 50}, "horizon": 5},
    "next step": {**NATIVE, "env": "tests.support.vectors:counting_next_step"},
    "asked": {**NATIVE, "env": "tests.support.vectors:counting_disabled"},
    "whole episodes": {"batch_mode": "complete_episodes", "train_batch_size": 30},
    "whole episodes, next step": {
        **NATIVE,
        "env": "tests.support.vectors:counting_next_step",
        "batch_mode": "complete_episodes",
        "train_batch_size": 30,
    },
}


@pytest.mark.parametrize("mode", MODES)
def test_requested_columns_say_what_followed_also_at_an_episodes_end(mode: str) -> None:
    """An episode's observations are 0, 1, 2, 3, 4 and at last 5, which no action follows."""
    worker = worker_with(MODES[mode])
    seen: list[int] = []
    for _ in range(2):
        for fragment in worker.sample().fragments:
            steps = ~fragment.autoreset
            now = fragment.observations[steps][:, 0]
            assert fragment.new_obs[steps][:, 0].tolist() == (now + 1).tolist()
            assert fragment.t[steps].tolist() == now.tolist()
            ended = fragment.terminated | fragment.truncated
            assert (fragment.new_obs[ended] == 5.0).all()
            same = steps[1:] & (fragment.t[1:] > 0)
            assert (fragment.eps_id[1:] == fragment.eps_id[:-1])[same].all()
            seen += fragment.eps_id[steps & ended].tolist()
    assert len(set(seen)) == len(seen) > 4
    worker.close()


def test_no_two_workers_number_an_episode_alike() -> None:
    spec, trainer = spec_of({})
    ids: list[set[int]] = []
    for index in (0, 1):
        worker = worker_of(replace(spec, index=index, num_workers=2), trainer)
        ids.append(set(worker.sample().fragments[0].eps_id.reshape(-1).tolist()))
        worker.close()
    trainer.stop()
    assert len(ids[0]) == len(ids[1]) == 6
    assert not ids[0] & ids[1]


def test_infos_are_those_of_the_step() -> None:
    worker = worker_with({"env": f"{__name__}:Says", "env_config": {}})
    fragment = worker.sample().fragments[0]
    assert fragment.infos[:, 0].tolist() == [{"steps": 1 + t % 5} for t in range(12)]
    worker.close()


def test_new_observations_are_filtered_and_not_counted() -> None:
    filtering = {"observation_filter": "MeanStdFilter"}
    with_them, without = worker_with(filtering), worker_with(filtering, frozenset())
    ours, theirs = with_them.sample(), without.sample()
    assert ours.deltas["observation"]["count"] == 24
    assert differences(ours.deltas, theirs.deltas) == []
    fragment, plain = ours.fragments[0], theirs.fragments[0]
    assert {n: differences(a, getattr(fragment, n)) for n, a in plain.arrays.items()} == {
        name: [] for name in plain.arrays
    }
    last = with_them._filters["observation"](with_them._sampler.observations, update=False)
    np.testing.assert_array_equal(fragment.new_obs[-1], last)
    for one in (with_them, without):
        one.close()


def test_of_whom_nobody_requests_more_has_the_columns_of_its_actor_alone() -> None:
    worker = worker_with({}, frozenset())
    fragment = worker.sample().fragments[0]
    assert list(fragment.columns) == [*BASE, "logp", "values", "final_values"]
    assert list(fragment.last) == ["last_values"]
    with pytest.raises(AttributeError, match="without the column 'new_obs'; it has observations,"):
        _ = fragment.new_obs
    assert list(copy.deepcopy(fragment).arrays) == list(fragment.arrays)
    worker.close()


class Greedy(Actor):
    """Declares a column of its own, and neither a log-probability nor a value."""

    columns: ClassVar[dict[str, Column]] = {"scores": ((3,), np.dtype(np.float32))}
    judged: ClassVar[tuple[str, ...]] = ()
    fetches: ClassVar[dict[str, str]] = {}

    def act(self, observations: Any, memory: Any, stream: Any) -> Acted:
        scores, _ = self.forward(observations)
        return Acted(scores.argmax(axis=1), {"scores": scores}, memory)


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_an_actor_declares_what_it_gives(mode: str) -> None:
    config = {"batch_mode": mode, "train_batch_size": 24}
    spec, trainer = spec_of(config, frozenset({"new_obs"}))
    networks = (trainer.spaces.layout, trainer.architecture)
    spec = replace(spec, make_actor=partial(Greedy, *networks))
    worker = worker_of(spec, trainer)
    fragment = worker.sample().fragments[0]
    assert list(fragment.columns) == [*BASE, "scores", "new_obs"]
    assert not fragment.last
    np.testing.assert_array_equal(fragment.scores.argmax(axis=2), fragment.actions)
    state = copy.deepcopy(worker.get_state())
    twin = worker_of(spec, trainer)
    twin.set_state(state)
    assert differences(worker.sample().fragments[0].arrays, twin.sample().fragments[0].arrays) == []
    for one in (worker, twin):
        one.close()
    trainer.stop()


def test_a_column_that_no_sampler_writes_is_refused() -> None:
    with pytest.raises(WorkerError, match=r"columns: rewardz cannot be requested .* new_obs, t,"):
        worker_with({}, frozenset({"t", "rewardz"}))


@pytest.mark.parametrize(
    "config",
    [{"fake_sampler": True}, {"batch_mode": "complete_episodes", "train_batch_size": 24}],
)
def test_requested_columns_stand_in_a_checkpoint(config: dict[str, Any]) -> None:
    says = {"env": f"{__name__}:Says", "env_config": {}}
    worker = worker_with({**says, **config})
    worker.sample()
    state = copy.deepcopy(worker.get_state())
    twin = worker_with({**says, **config})
    twin.set_state(state)
    ours, theirs = (one.sample().fragments[0] for one in (worker, twin))
    assert ours.infos.tolist() == theirs.infos.tolist()
    for name in (*BASE, "new_obs", "t", "eps_id"):
        assert differences(getattr(ours, name), getattr(theirs, name)) == [], name
    for one in (worker, twin):
        one.close()


@pytest.mark.slow
def test_requested_columns_come_from_environments_that_go_on_without_each_other(
    tmp_path: Path,
) -> None:
    polls = {
        "env": f"{HERE}:Awaits",
        "env_config": {"folder": str(tmp_path), "steps": 12},
        "env_level": "C",
        "remote_worker_envs": True,
        "remote_env_batch_wait_ms": 1.0,
    }
    worker = worker_with(polls)
    fragment = worker.sample().fragments[0]
    assert fragment.new_obs[:, :, 0].tolist() == (fragment.observations[:, :, 0] + 1).tolist()
    assert fragment.t.tolist() == fragment.observations[:, :, 0].tolist()
    worker.close()


def test_a_fragment_is_made_of_its_arrays_again() -> None:
    numbers = ((), np.dtype(np.float32))
    made = Fragment.allocate(
        3, 2, ((4,), np.dtype(np.uint8)), numbers, {"values": numbers, "last_values": numbers}
    )
    assert made.columns["values"].shape == (3, 2)
    assert made.last_values.shape == (1, 2)
    assert made.valid.all()
    again = Fragment.of(made.arrays)
    assert again.arrays.keys() == made.arrays.keys()
    assert again.copy().values is not made.values
