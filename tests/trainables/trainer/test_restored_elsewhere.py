"""A checkpoint in a trainer that collects or filters in another way than the one that saved it."""

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.proofs import proofs_except
from tests.support.trainers import differences, final_state, make, run
from trainables.algorithms.ppo import PPO
from trainables.checkpoint.file import parse_name, read, verify
from trainables.errors import ConfigError
from trainables.trainer.agreement import ROUNDS_OTHERWISE

ONE: dict[str, Any] = {"train_batch_size": None, "evaluation_interval": None, "num_sgd_iter": 1}
RANKS = {"num_workers": 2, "data_parallel": True}
OWN = {"synchronize_filters": False}
#: How it was saved, how it is restored, and what the checkpoint says from there on.
ELSEWHERE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "two workers, none": ({"num_workers": 2}, {}, "num_workers: 0 (saved with 2)"),
    "no worker, one": ({}, {"num_workers": 1}, "num_workers: 1 (saved with 0)"),
    "one worker, none": ({"num_workers": 1}, {}, "num_workers: 0 (saved with 1)"),
    "one worker, two": (
        {"num_workers": 1},
        {"num_workers": 2},
        "num_workers: 2 (saved with 1)",
    ),
    "fewer environments": (
        {},
        {"num_envs_per_worker": 2},
        "num_envs_per_worker: 2 (saved with 3)",
    ),
    "whole episodes": (
        {},
        {"batch_mode": "complete_episodes"},
        "batch_mode: complete_episodes (saved with truncate_episodes)",
    ),
    "cut episodes": (
        {"batch_mode": "complete_episodes"},
        {},
        "batch_mode: truncate_episodes (saved with complete_episodes)",
    ),
    "one native vector": (
        {},
        {"native_vector_env": True},
        "native_vector_env: True (saved with False)",
    ),
    "environments apart": (
        {},
        {"remote_worker_envs": True},
        "remote_worker_envs: True (saved with False)",
    ),
    "filters of their own": (
        {},
        OWN,
        "synchronize_filters: False (saved with True)",
    ),
    "one filter for all": (OWN, {}, "synchronize_filters: True (saved with False)"),
    "ranks, none": (
        RANKS,
        {},
        "num_workers: 0 (saved with 2), data_parallel: False (saved with True)",
    ),
    "workers that learn": (
        {"num_workers": 2},
        RANKS,
        "data_parallel: True (saved with False)",
    ),
}


#: Cases with each kind of difference once.
SOME = {
    "two workers, none",
    "no worker, one",
    "fewer environments",
    "cut episodes",
    "environments apart",
    "filters of their own",
    "ranks, none",
}

#: Settings → the state of a trainer with them after two iterations.
_STATES: dict[str, dict[str, Any]] = {}


def trained(config: dict[str, Any]) -> tuple[PPO, dict[str, Any]]:
    """A trainer of two iterations, stopped, and its state."""
    trainer = make({**ONE, **config})
    run(trainer, 2)
    state = copy.deepcopy(trainer.get_state())
    trainer.stop()
    return trainer, state


def learnt(trainer: PPO) -> Any:
    """What the trainer has learnt after one iteration more."""
    trainer.train()
    return trainer.get_state()["trainable"]["data"]["policy"]


def saved(trainer: PPO, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A checkpoint of the trainer, and the header of its file."""
    path = trainer.save(folder)
    named = parse_name(path.name)
    assert named is not None
    return path, verify(path, named[1])


@pytest.mark.slow
@pytest.mark.parametrize("case", proofs_except(SOME, ELSEWHERE))
def test_what_was_learnt_comes_back_and_new_episodes_begin(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after, says = ELSEWHERE[case]
    old = make({**ONE, **before})
    run(old, 2)
    path, header = saved(old, tmp_path)
    assert header["exactness"] == "A exact state"
    expected = copy.deepcopy(old.get_state())
    observations = old.recent.copy()
    actions = [old.compute_action(one) for one in observations]
    old.stop()

    new = make({**ONE, **after})
    with caplog.at_level(logging.WARNING, "trainables"):
        new.restore(path)
    assert new.iteration == 2
    assert [new.compute_action(one) for one in observations] == actions
    state = new.get_state()
    for part in ("policy", "filters", "progress", "streams"):
        kept, was = (one["trainable"]["data"][part] for one in (state, expected))
        assert differences(kept, was) == [], part
    lengths = [
        one["sampler"]["episodes"]["lengths"] for one in state["trainable"]["data"]["workers"]
    ]
    assert not np.concatenate(lengths).any(), "no episode is in flight"

    why = f"restored after {old.progress.timesteps} steps with {says}"
    (warning,) = [r.getMessage() for r in caplog.records if "restored after" in r.getMessage()]
    assert warning.startswith(why)
    assert "\n" not in warning
    assert new.exactness == f"D not bit-exact: {why}"
    (result,) = run(new, 1)
    assert result["training_iteration"] == 3
    assert result["timesteps_total"] > old.progress.timesteps
    assert result["exactness"] == new.exactness

    again, header = saved(new, tmp_path)
    assert header["exactness"] == new.exactness
    expected_tail = [run(new, 1), final_state(new)]
    new.stop()
    third = make({**ONE, **after})
    third.restore(again)
    assert third.exactness == new.exactness, "it is never exact again"
    assert differences([run(third, 1), final_state(third)], expected_tail) == []
    third.stop()


def test_a_second_time_is_told_beside_the_first(tmp_path: Path) -> None:
    trainer = make(ONE)
    for width in (2, 1):
        path = trainer.save(tmp_path)
        trainer.stop()
        trainer = make({**ONE, "num_envs_per_worker": width})
        trainer.restore(path)
    assert "num_envs_per_worker: 2 (saved with 3); restored after" in trainer.exactness
    assert trainer.exactness.endswith("num_envs_per_worker: 1 (saved with 2)")
    trainer.stop()


def test_a_trainer_that_has_lived_begins_new_episodes_too(tmp_path: Path) -> None:
    two = make({**ONE, "num_envs_per_worker": 2})
    run(two, 1)
    path = two.save(tmp_path)
    two.stop()
    fresh, lived = make(ONE), make(ONE)
    run(lived, 2)
    for trainer in (fresh, lived):
        trainer.restore(path)
    assert differences(run(fresh, 2), run(lived, 2)) == []
    assert differences(final_state(fresh), final_state(lived)) == []
    for trainer in (fresh, lived):
        trainer.stop()


def test_workers_with_filters_of_their_own_begin_with_what_all_have_seen(tmp_path: Path) -> None:
    old = make(ONE)
    run(old, 2)
    path = old.save(tmp_path)
    old.stop()
    new = make({**ONE, **OWN})
    new.restore(path)
    data = new.get_state()["trainable"]["data"]
    assert differences(data["workers"][0]["filters"], data["filters"]) == []
    assert data["filters"]["observation"]["base"]["count"] > 0
    new.stop()


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ({}, {"observation_filter": "NoFilter"}, "observation_filter: NoFilter"),
        ({"observation_filter": "NoFilter"}, {}, "observation_filter: MeanStdFilter"),
        (
            {},
            {"observation_filter": "trainables.policies.filters:MeanStdFilter"},
            "observation_filter: trainables.policies.filters:MeanStdFilter",
        ),
        ({}, {"normalize_rewards": False}, "normalize_rewards: false"),
        ({"normalize_rewards": False}, {}, "normalize_rewards: true"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_another_filter_is_refused_in_one_line(
    before: dict[str, Any], after: dict[str, Any], place: str, workers: int, tmp_path: Path
) -> None:
    old = make({**ONE, **before})
    run(old, 1)
    path = old.save(tmp_path)
    old.stop()
    new = make({**ONE, **after, "num_workers": workers})
    with pytest.raises(ConfigError) as refusal:
        new.restore(path)
    new.stop()
    assert str(refusal.value).startswith(f"{place} differs from the checkpoint's ")
    assert "; set it to " in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_filters_with_equal_states_stand_for_each_other(tmp_path: Path) -> None:
    old = make(ONE)
    run(old, 1)
    path = old.save(tmp_path)
    new = make({**ONE, "observation_filter": "ConcurrentMeanStdFilter"})
    new.restore(path)
    assert new.exactness == "A exact state"
    assert differences(learnt(old), learnt(new)) == []
    for trainer in (old, new):
        trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("case", proofs_except(SOME, ELSEWHERE))
def test_what_goes_on_exactly_or_not_at_all_refuses_it_in_one_line(case: str) -> None:
    before, after, says = ELSEWHERE[case]
    if (name := repr(before)) not in _STATES:
        _STATES[name] = trained(before)[1]
    new = make({**ONE, **after})
    with pytest.raises(ConfigError) as refusal:
        new.continue_from(copy.deepcopy(_STATES[name]), "the checkpoint of iteration 2")
    new.stop()
    assert refusal.value.place == says.partition(":")[0]
    assert "differs from the checkpoint's" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_exact_restore_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = make(ONE)
    (result,) = run(old, 1)
    path = old.save(tmp_path)
    old.stop()
    new = make(ONE)
    with caplog.at_level(logging.WARNING, "trainables"):
        new.restore(path)
    new.stop()
    assert "exactness" not in result
    assert "inexact" not in read(path).state["trainable"]["data"]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_trial_that_goes_on_where_numbers_are_rounded_otherwise_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = make(ONE)
    trainer.train()
    path = trainer.save(tmp_path)
    steps = trainer.progress.timesteps
    trainer.restore(path)
    assert trainer.exactness == "A exact state"
    for other in ("another", "a third"):
        monkeypatch.setattr(
            "trainables.core.rounding.fingerprint", lambda _in_torch, other=other: other
        )
        trainer.restore(path)
        assert trainer.exactness.startswith("D")
        assert trainer.exactness.endswith(f"after {steps} steps {ROUNDS_OTHERWISE}")
        assert trainer.train()["exactness"] == trainer.exactness
        path = trainer.save(tmp_path / other)
    trainer.stop()
    assert caplog.text.count(f"{ROUNDS_OTHERWISE}; the curve is no longer exact") == 1
