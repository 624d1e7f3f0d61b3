"""Environments that are ready go on without the slow ones; rows are what they are in lockstep."""

import copy
import os
import signal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.support.remote import remote_envs
from tests.support.trainers import SMALL, make, run
from tests.support.waiting import Deadline
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.rollout.batch import Fragment
from trainables.rollout.workers.worker_set import LocalWorkers

HERE = "tests.support.environments"
POLLS: dict[str, Any] = {
    "env": f"{HERE}:Awaits",
    "env_level": "C",
    "num_envs_per_worker": 2,
    "train_batch_size": None,
    "evaluation_interval": None,
    "remote_worker_envs": True,
    "remote_env_batch_wait_ms": 1.0,
    "env_step_timeout_s": 60.0,
}


pytestmark = pytest.mark.timeout(120)  # a sampler that asks nobody waits for ever


def awaiting(folder: Path, steps: int = 16) -> dict[str, Any]:
    """Settings with which environment 0 waits for so many steps of environment 1."""
    folder.mkdir()
    return {**POLLS, "env_config": {"folder": str(folder), "steps": steps}}


def collected(trainer: PPO) -> Fragment:
    return cast(LocalWorkers, trainer.workers).worker.sample().fragments[0]


@pytest.mark.slow
def test_W15_those_that_are_ready_go_on_and_the_rows_are_those_of_lockstep(tmp_path: Path) -> None:
    # In lockstep environment 1 would make its 16th step long after environment 0's third, and
    # never end.
    config = {"observation_filter": "NoFilter", "normalize_rewards": False}
    trainer = make({**awaiting(tmp_path / "a"), **config})
    lockstep = make({**awaiting(tmp_path / "b", 1), **config, "remote_env_batch_wait_ms": 0})
    assert trainer.exactness == "D not bit-exact: a clock steers (remote_env_batch_wait_ms)"
    assert trainer.settings.clock_settings == ("remote_env_batch_wait_ms",)
    for _ in range(3):
        ours, theirs = collected(trainer), collected(lockstep)
        # Which number is drawn for whom is decided by the clock.
        for name in set(theirs.arrays) - {"actions", "logp"}:
            mine, other = getattr(ours, name), getattr(theirs, name)
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6, err_msg=name)
    result, expected = (run(one, 1)[0] for one in (trainer, lockstep))
    for key in ("episodes_this_iter", "episode_len_mean", "timesteps_this_iter"):
        assert result[key] == expected[key]
    for one in (trainer, lockstep):
        one.stop()


@pytest.mark.slow
def test_W15_a_trial_that_polls_counts_filters_calls_back_and_is_restored(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def on_episode_step(told: dict[str, Any]) -> None:
        seen.append((told["episode"].env_index, told["episode"].length))

    pieces: list[tuple[int, int]] = []

    def on_postprocess_traj(told: dict[str, Any]) -> None:
        pieces.append((told["episode"].env_index, len(told["pre_batch"]["logp"])))

    calls = {"on_episode_step": on_episode_step, "on_postprocess_traj": on_postprocess_traj}
    trainer = make({**awaiting(tmp_path / "a"), "callbacks": calls})
    run(trainer, 2)
    for env_index in (0, 1):
        lengths = [length for one, length in seen if one == env_index]
        assert lengths == [1 + t % 7 for t in range(32)]
        assert [n for one, n in pieces if one == env_index] == [7, 7, 2, 5, 7, 4]
    assert cast(Any, trainer.filters["observation"]).row_count == 2 * 32
    assert cast(Any, trainer.filters["reward"]).row_count == 2 * 32
    state = copy.deepcopy(trainer.get_state())
    again = make(awaiting(tmp_path / "b"))
    again.set_state(state)
    (result,) = run(again, 1)
    assert (result["timesteps_total"], result["training_iteration"]) == (96, 3)
    for one in (trainer, again):
        one.stop()


@pytest.mark.slow
def test_W15_E4_an_environment_that_dies_or_hangs_is_restarted_while_others_go_on() -> None:
    own = {"remote_env_batch_wait_ms": 1.0, "restart_failed_sub_environments": True}
    envs = remote_envs(
        f"{HERE}:Perilous", 2, {"how": "hangs", "at": 2}, env_step_timeout_s=10.0, **own
    )
    envs.reset([1, 2])
    envs.send([0, 1], np.array([1, 1]))
    both: set[int] = set()
    deadline = Deadline()
    while deadline.waits(len(both) < 2):
        both |= set(envs.poll()[0].tolist())
    envs.send([0], np.array([1]))  # it hangs
    heard, step = envs.poll()
    assert heard.tolist() == [0]
    assert step.waiting is not None
    assert step.waiting.tolist() == [False, True]
    assert "within 10.0 s" in str(step.faults[0])
    os.kill(envs.pids[1], signal.SIGKILL)
    envs.send([0, 1], np.array([1, 1]))
    faults: dict[int, Exception] = {}
    both = set()
    deadline = Deadline()
    while deadline.waits(len(both) < 2):
        heard, step = envs.poll()
        both |= set(heard.tolist())
        faults |= step.faults
    assert list(faults) == [1]
    assert "exit code -9" in str(faults[1])
    envs.close()


def test_W15_an_answer_that_nobody_heard_is_not_taken_for_a_later_one() -> None:
    envs = remote_envs(f"{HERE}:Counting", 2, {"length": 50}, remote_env_batch_wait_ms=1.0)
    envs.reset([1, 2])
    saved = envs.get_state()
    envs.send([0, 1], np.array([1, 1]))  # whoever would have heard of it was interrupted
    envs.set_state(saved)
    assert envs.step(np.array([1, 1])).observations.tolist() == [[1.0], [1.0]]
    envs.close()


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        (
            {"remote_worker_envs": False},
            "remote_env_batch_wait_ms",
            "without remote_worker_envs: true",
        ),
        ({"batch_mode": "complete_episodes"}, "batch_mode", "set it to truncate_episodes"),
        ({"sample_async": True}, "sample_async", "with remote_env_batch_wait_ms"),
        ({"record_env": "rollout"}, "record_env", "set it to false or evaluation"),
        ({"record_env": True}, "record_env", "set it to false or evaluation"),
        ({"render_env": "builtins:print"}, "render_env", "set remote_env_batch_wait_ms to 0"),
    ],
)
def test_W15_what_does_not_go_with_polling_is_refused(
    config: dict[str, Any], place: str, words: str
) -> None:
    given = {**SMALL, "observation_filter": "NoFilter", **POLLS, "env": "CartPole-v1", **config}
    with pytest.raises(ConfigError, match=words) as caught:
        PPO.check_config(given)
    assert caught.value.place == place
