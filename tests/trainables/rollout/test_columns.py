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
from trainables.policies.acting.actor import Acted, Actor, Column
from trainables.rollout.batch import REQUESTABLE, Fragment, Sample
from trainables.rollout.callbacks import Callbacks
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
    with pytest.raises(
        AttributeError, match="the fragment has no column 'new_obs'; it has observations,"
    ):
        _ = fragment.new_obs
    assert list(copy.deepcopy(fragment).arrays) == list(fragment.arrays)
    worker.close()


class Greedy(Actor):
    """Declares a column of its own, and neither a log-probability nor a value."""

    columns: ClassVar[dict[str, Column]] = {"scores": ((3,), np.dtype(np.float32))}
    value_names: ClassVar[tuple[str, ...]] = ()
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


@pytest.mark.parametrize("lstm", [False, True])
def test_columns_may_be_requested_first_of_a_worker_that_is_restored(lstm: bool) -> None:
    """Rows of whole episodes that were in flight have them as if they had been requested then."""
    config = {**MODES["whole episodes"], "env": "CartPole-v1", "env_config": {}}
    config |= {"model": {"use_lstm": lstm}, "soft_horizon": True, "horizon": 7}
    worker, other = worker_with(config), worker_with(config, frozenset())
    for one in (worker, other):
        one.sample()
    for _ in range(2):  # saved again before it has sampled, it is the same
        state = copy.deepcopy(other.get_state())
        assert state["sampler"]["in_flight"]["lengths"].any()
        other = worker_with(config)
        other.set_state(state)
    for _ in range(2):
        both = zip(rows_of(worker, 1), rows_of(other, 1), strict=True)
        for ours, theirs in both:
            for name in {*BASE, *ALL} - {"infos"}:
                assert differences(ours[name], theirs[name]) == [], name
            assert theirs.infos.tolist() == ours.infos.tolist()
    for one in (worker, other):
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
    again = Fragment.from_columns(made.arrays)
    assert again.arrays.keys() == made.arrays.keys()
    assert again.copy().values is not made.values


def rows_of(worker: RolloutWorker, samples: int) -> list[Fragment]:
    """Of several samples; each fragment is written again by the next."""
    return [one.copy() for _ in range(samples) for one in worker.sample().fragments]


@pytest.mark.parametrize("mode", MODES)
def test_what_was_done_before_stands_beside_each_row(mode: str) -> None:
    """Across fragments, too; nothing was done before an episode's first row."""
    worker = worker_with(MODES[mode])
    fragments = rows_of(worker, 3)
    whole = "whole" in mode
    unrolls = [set(one.unroll_id[~one.autoreset].tolist()) for one in fragments]
    assert sum(map(len, unrolls)) == len(set().union(*unrolls))
    assert (fragments[0].agent_index == 0).all()
    if not whole:
        assert len(set().union(*unrolls)) == sum(one.valid.shape[1] for one in fragments)
        fragments = [Fragment.concat(fragments)]
    for fragment in fragments:
        if whole:
            assert (fragment.unroll_id == fragment.eps_id).all()
        goes_on = fragment.t > 0
        assert goes_on.any()
        for name in ("actions", "rewards"):
            now = fragment[name][:-1] * goes_on[1:]
            assert (fragment[f"prev_{name}"][1:] == now).all()
            assert (fragment[f"prev_{name}"][0] == 0).all()
    assert fragments[0].state_out.shape[2] == 0
    worker.close()


def test_the_memory_after_a_step_is_the_one_before_the_next() -> None:
    worker = worker_with({"model": {"use_lstm": True, "lstm_cell_size": 4}})
    fragment = Fragment.concat(rows_of(worker, 2))
    goes_on = (fragment.t > 0)[1:]
    assert (fragment.memory[1:] == fragment.state_out[:-1])[goes_on].all()
    assert fragment.state_out.any()
    worker.close()


def test_a_restored_worker_writes_the_same_columns() -> None:
    first, again = worker_with({}), worker_with({})
    first.sample()
    again.set_state(copy.deepcopy(first.get_state()))
    expected = rows_of(first, 1)[0].arrays
    found = rows_of(again, 1)[0].arrays
    assert found.pop("infos").tolist() == expected["infos"].tolist()
    assert [name for name in found if differences(found[name], expected[name])] == []
    assert expected["prev_rewards"].any()
    first.close()
    again.close()


@pytest.mark.parametrize("kind", ["in step", "polled"])
def test_what_was_done_before_a_restore_is_known_to_who_requests_it_first_then(kind: str) -> None:
    polled = {"remote_worker_envs": True, "remote_env_batch_wait_ms": 1.0, "env_level": "C"}
    config = polled if kind == "polled" else {}
    plain, again = worker_with(config, frozenset()), worker_with(config)
    (latest,) = [one.copy() for one in plain.sample().fragments[-1:]]
    state = copy.deepcopy(plain.get_state())
    again.set_state(state)
    assert differences(again.get_state()["sampler"]["before"], state["sampler"]["before"]) == []
    if kind == "in step":
        fragment = again.sample().fragments[0]
        goes_on = fragment.t[0] > 0
        assert goes_on.any()
        for name in ("actions", "rewards"):
            expected = np.where(goes_on, latest[name][-1], 0)
            assert fragment[f"prev_{name}"][0].tolist() == expected.tolist()
    again.close()
    plain.close()


class AsksForAll(Callbacks):
    """Wants all that there is."""

    columns = ALL


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_of_several_agents_a_restored_worker_writes_the_same_columns(mode: str) -> None:
    """Also of the rows that waited: three steps of an episode of eight are a fragment."""
    lstm = {"policies": {"shared": {"model": {"use_lstm": True, "lstm_cell_size": 4}}}}
    config: dict[str, Any] = {"env": "tests.support.agents:Targets", "multiagent": lstm}
    config |= {"batch_mode": mode, "rollout_fragment_length": 3, "callbacks": AsksForAll}
    first, again = (make({**config, "train_batch_size": 6}) for _ in range(2))
    first.train()
    again.load_checkpoint(copy.deepcopy(first.save_checkpoint("")))
    for _ in range(2):
        batches: list[Any] = [one.workers.sample()[0] for one in (first, again)]
        (ours,), (theirs,) = (one["shared"].fragments for one in batches)
        assert set(ours.keys()) >= ALL
        assert ours.infos.tolist() == theirs.infos.tolist()
        found = {name: differences(ours[name], theirs[name]) for name in ours.keys() - {"infos"}}
        assert not any(found.values()), found
    goes_on = (ours.t > 0)[1:]
    assert (ours.memory[1:] == ours.state_out[:-1])[goes_on].all()
    assert ours.state_out[~ours.autoreset].all()
    assert (ours.prev_actions[ours.t > 0]).any()
    for one in (first, again):
        one.stop()


class Asks(Callbacks):
    """Wants to know whose rows they are."""

    columns = frozenset({"agent_index", "eps_id"})
    seen: ClassVar[list[Any]] = []

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        self.seen.append(samples)


def test_columns_that_callbacks_ask_for_are_there() -> None:
    Asks.seen.clear()
    trainer = make({**COUNTING, "callbacks": Asks})
    trainer.train()
    assert {"agent_index", "eps_id"} <= set(Asks.seen[0].keys())
    assert "infos" not in Asks.seen[0].keys()  # noqa: SIM118 no mapping
    trainer.stop()
    Asks.seen.clear()
    agents = {"env": "tests.support.agents:Targets", "multiagent": {"policies": {"shared": None}}}
    several = make({**agents, "callbacks": Asks, "normalize_rewards": False})
    several.train()
    (batch,) = Asks.seen
    assert set(batch.keys()) == {"shared"}
    assert set(batch["shared"]["agent_index"].tolist()) == {0, 1, 2}
    several.stop()


def test_fragments_are_sliced_split_joined_and_shuffled() -> None:
    worker = worker_with({})
    sample = worker.sample()
    (fragment,) = sample.fragments
    parts = fragment.timeslices(5)
    assert [len(one.valid) for one in parts] == [5, 5, 2]
    assert np.shares_memory(parts[1].rewards, fragment.rewards)
    assert not parts[0].last
    joined = Fragment.concat(parts)
    assert set(joined.keys()) == set(fragment.keys())
    numbers = fragment.keys() - {"infos"}
    assert [name for name in numbers if differences(joined[name], fragment[name])] == []
    pieces = sample.split_by_episode()
    assert [len(one.valid) for one in pieces] == [5, 5, 2] * 2
    assert all(len(set(one.eps_id.ravel().tolist())) == 1 for one in pieces)
    assert np.shares_memory(pieces[0].rewards, fragment.rewards)
    assert ["last_values" in one.last for one in pieces] == [False, False, True] * 2
    mixed = fragment.shuffled(np.random.default_rng(1))
    assert sorted(mixed.eps_id.ravel().tolist()) == sorted(fragment.eps_id.ravel().tolist())
    assert mixed.t.ravel().tolist() != fragment.t.ravel().tolist()
    same = (mixed["observations"][..., 0] == mixed.t).all()
    assert same
    assert sample["rewards"].shape == (24,)
    twice = Sample.concat([sample, sample])
    assert twice.count == 48
    assert len(twice.episodes) == 2 * len(sample.episodes)
    assert [one.count for one in twice.timeslices(7)] == [14, 14, 14, 6]
    across = twice.slice(10, 14)
    assert [len(one.valid) for one in across.fragments] == [2, 2]
    assert across.fragments[1].t.tolist() == fragment.t[:2].tolist()
    assert np.shares_memory(across.fragments[0].rewards, fragment.rewards)
    assert twice.shuffled(np.random.default_rng(1)).count == 48
    worker.close()


def test_batches_of_several_agents_have_the_same_verbs_by_policy() -> None:
    agents = {"policies": ["left", "right", "brief"]}
    config = {"env": "tests.support.agents:Targets", "multiagent": agents, "callbacks": AsksForAll}
    trainer: Any = make(config)
    (batch,) = trainer.workers.sample()
    trainer.stop()
    assert set(batch.keys()) == {"left", "right", "brief"}
    twice = type(batch).concat([batch, batch])
    assert (twice.count, twice.agent_steps()) == (2 * batch.count, 2 * batch.agent_steps())
    assert twice["left"].count == twice.count
    for pid, pieces in batch.split_by_episode().items():
        assert sum(len(one.valid) for one in pieces) == len(batch[pid]["t"])
        assert all((np.diff(one.t[:, 0]) == 1).all() for one in pieces)
    mixed = batch.shuffled(np.random.default_rng(1))
    for pid in batch.keys():  # noqa: SIM118 no mapping
        assert mixed[pid]["t"].tolist() != batch[pid]["t"].tolist()
        assert sorted(mixed[pid]["t"].tolist()) == sorted(batch[pid]["t"].tolist())
    packed = batch.compress()
    again = packed.decompress()
    assert packed.policies["left"].sample.fragments[0].new_obs.size == 0
    for pid in batch.keys():  # noqa: SIM118 no mapping
        ours, theirs = again[pid].fragments[0], batch[pid].fragments[0]
        assert not any(
            differences(ours[name], theirs[name]) for name in ("observations", "new_obs")
        )
    slices = batch["left"].timeslices(5)
    assert sum(one.steps for part in slices for one in part.fragments) == len(batch["left"]["t"])
    for verb in (batch.timeslices, lambda size: batch.slice(0, size)):
        with pytest.raises(WorkerError, match=r"cannot be sliced by step: slice batch\[policy\]"):
            verb(3)


def test_an_environment_that_restarts_by_itself_is_split_without_its_empty_rows() -> None:
    worker = worker_with(MODES["next step"])
    pieces = worker.sample().split_by_episode()
    assert not any(one.autoreset.any() for one in pieces)
    assert {len(one.valid) for one in pieces} <= {1, 2, 3, 4, 5}
    worker.close()
