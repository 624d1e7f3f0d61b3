"""Environments in processes of their own: the same results, and what happens when one is lost."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support.proofs import proofs_except
from tests.support.remote import remote_envs, vector_env_of
from tests.support.trainers import differences, make, run
from tests.support.waiting import wait_until
from trainables.algorithms.ppo import PPO
from trainables.envs.vector.base import VectorEnv
from trainables.envs.vector.remote import RemoteVectorEnv
from trainables.errors import ConfigError, EnvError

HERE = "tests.support.environments"
ROOT = Path(__file__).parents[3]
#: Longer than any step takes, on a machine that is busy with others, too.
LIMIT_S = 10.0


def entries(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def played(envs: VectorEnv, first: int, last: int) -> list[list[bytes]]:
    """What the steps from `first` to `last` gave, as bytes."""
    seen = []
    for t in range(first, last):
        step = envs.step(np.array([t % 2, (t // 2) % 2]))
        ended = np.flatnonzero(step.terminated | step.truncated)
        parts = [*step[:4], *(step.final_observations[env_index] for env_index in ended)]
        seen.append([np.asarray(part).tobytes() for part in parts])
    return seen


def test_W15_remote_environments_do_what_they_do_in_the_workers_process_to_the_bit() -> None:
    local, remote, again = (
        make_("CartPole-v1", horizon=21) for make_ in (vector_env_of, remote_envs, remote_envs)
    )
    starts = [envs.reset([1, 2]).tobytes() for envs in (local, remote)]
    assert starts[0] == starts[1]
    expected = played(local, 0, 90)
    assert any(len(step) > 4 for step in expected)
    assert played(remote, 0, 50) == expected[:50]
    again.reset([8, 9])
    again.set_state(remote.get_state())
    assert played(again, 50, 90) == expected[50:]
    for envs in (remote, again):
        envs.close()


@pytest.mark.slow
def test_W15_environments_of_children_are_remote_too_and_die_with_them() -> None:
    config = {"num_workers": 1, "num_envs_per_worker": 2, "train_batch_size": None}
    local = make({**config, "evaluation_interval": None})
    trainer = make({**config, "remote_worker_envs": True, "evaluation_interval": None})
    assert trainer.level == "A"
    results = [run(one, 1)[0] for one in (local, trainer)]
    local.stop()
    for one in results:
        del one["config"]
    assert differences(results[0], results[1]) == []
    workers: Any = trainer.workers
    (worker,) = workers.pids()
    processes = psutil.Process(worker).children()
    assert len(processes) >= 2
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not any(one.is_running() for one in processes))
    trainer.stop()


def test_W15_nothing_is_left_after_closing() -> None:
    remote_envs("CartPole-v1").close()  # the first one opens what stays open for all
    descriptors, shared = entries("/proc/self/fd"), entries("/dev/shm")  # noqa: S108
    envs = remote_envs("CartPole-v1")
    envs.reset([1, 2])
    processes = [psutil.Process(pid) for pid in envs.pids]
    envs.close()
    envs.close()
    assert not any(one.is_running() for one in processes)

    def is_left() -> bool:
        # Other programs' are beside them, such as a PostgreSQL server's; Python calls its own so.
        return any(name.startswith("psm_") for name in entries("/dev/shm") - shared)  # noqa: S108

    wait_until(lambda: not is_left())  # those of another test come and go
    wait_until(lambda: len(entries("/proc/self/fd")) <= len(descriptors))


OPEN_FILES = """
from pathlib import Path
print("open:", *(path.resolve() for path in Path("/proc/self/fd").iterdir()))
"""


def test_W15_a_program_that_is_started_meanwhile_does_not_inherit_what_environments_share() -> None:
    envs = remote_envs("CartPole-v1", 1)
    held = [str(path.resolve()) for path in Path("/proc/self/fd").iterdir()]
    assert any("memfd:environment" in one for one in held)
    command = [sys.executable, "-c", OPEN_FILES]
    found = subprocess.run(command, check=True, close_fds=False, capture_output=True, text=True)
    assert "open: /" in found.stdout
    assert "memfd:environment" not in found.stdout
    envs.close()


def test_W15_an_environment_in_a_process_of_its_own_may_start_processes() -> None:
    envs = remote_envs(f"{HERE}:StartsAProcess", 1)
    envs.reset([1])
    assert envs.step(np.array([1])).rewards.tolist() == [1.0]
    envs.close()


PARENT = """
import sys
from tests.support.remote import remote_envs
envs = remote_envs("CartPole-v1")
envs.reset([1, 2])
print(*envs.pids, flush=True)
if sys.argv[1] == "stays":
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "exits"])
def test_W15_processes_die_with_a_parent_that_is_killed_or_forgets_them(how: str) -> None:
    argument = "stays" if how == "killed" else "leaves"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, argument],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        if how == "killed":
            parent.kill()
        parent.wait(120)
        assert len(pids) == 2
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_W15_processes_outlive_the_thread_that_started_them() -> None:
    made: list[RemoteVectorEnv] = []
    thread = threading.Thread(target=lambda: made.append(remote_envs("CartPole-v1", 1)))
    thread.start()
    thread.join()
    (envs,) = made
    envs.reset([1])
    step = envs.step(np.array([1]))
    assert step.rewards.tolist() == [1.0]
    os.kill(envs.pids[0], signal.SIGTERM)
    os.kill(envs.pids[0], signal.SIGINT)
    assert envs.step(np.array([0])).rewards.tolist() == [1.0]
    envs.close()


def test_E4_a_remote_environment_that_dies_is_restarted_alone() -> None:
    undisturbed = remote_envs("CartPole-v1")
    envs = remote_envs("CartPole-v1", restart_failed_sub_environments=True)
    for one in (undisturbed, envs):
        one.reset([1, 2])
        one.step(np.array([0, 1]))
    os.kill(envs.pids[0], signal.SIGKILL)
    step, expected = (one.step(np.array([1, 1])) for one in (envs, undisturbed))
    assert "exit code -9" in str(step.faults[0])
    assert step.rewards.tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(step.observations[1], expected.observations[1])
    assert (np.abs(step.observations[0]) <= 0.05).all()
    assert not envs.step(np.array([1, 0])).faults
    for one in (undisturbed, envs):
        one.close()


@pytest.mark.slow
def test_E4_a_step_that_takes_too_long_is_cut_off() -> None:
    settings = {"env_step_timeout_s": LIMIT_S, "restart_failed_sub_environments": True}
    envs = remote_envs(f"{HERE}:Perilous", 2, {"how": "hangs"}, **settings)
    envs.reset([1, 2])
    for _ in range(2):
        assert not envs.step(np.array([1, 1])).faults
    step = envs.step(np.array([1, 1]))
    assert sorted(step.faults) == [0, 1]
    assert f"within {LIMIT_S} s (env_step_timeout_s)" in str(step.faults[0])
    assert "environments.py" in str(step.faults[0].__cause__), "where it hung"
    assert step.observations.tolist() == [[0.0], [0.0]]
    envs.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", proofs_except({"hangs", "dies"}, ["hangs", "dies", "raises"]))
def test_E4_a_reset_that_hangs_dies_or_raises_begins_in_an_environment_made_anew(how: str) -> None:
    settings = {"env_step_timeout_s": LIMIT_S, "restart_failed_sub_environments": True}
    envs = remote_envs(f"{HERE}:Resetless", 2, {"how": how}, **settings)
    envs.reset([1, 2])
    for _ in range(2):
        assert not envs.step(np.array([1, 1])).truncated.any()
    step = envs.step(np.array([1, 1]))
    assert step.truncated.all()  # the episode had ended well, and is kept
    assert not step.faults
    assert step.observations.tolist() == [[0.0], [0.0]]
    assert envs.get_counters()["restarts"].tolist() == [1, 1]
    assert envs.step(np.array([1, 1])).rewards.tolist() == [1.0, 1.0]
    envs.close()


@pytest.mark.parametrize(
    ("env", "env_config", "words"),
    [
        ("Perilous", {"how": "dies"}, r"environment 0: step\(\) lost its process .* exit code 3"),
        ("Resetless", {"how": "dies"}, r"environment 0: reset\(\) lost its process .* exit code 3"),
        ("Broken", {"what": "raise"}, r"step\(\) raised ZeroDivisionError: the world ended"),
        ("Broken", {"what": "shape"}, r"environment 0: step\(\) returned .* shape \(4,\)"),
    ],
)
def test_E4_what_goes_wrong_in_a_remote_environment_is_told_where_it_may_not_be_restarted(
    env: str, env_config: dict[str, Any], words: str
) -> None:
    envs = remote_envs(f"{HERE}:{env}", 1, env_config)
    envs.reset([1])
    with pytest.raises(EnvError, match=words) as caught:
        for _ in range(3):
            envs.step(np.array([1]))
    if "raise" in env_config.values():
        assert "environments.py" in str(caught.value.__cause__.__cause__)  # type: ignore[union-attr]
    envs.close()


def test_a_time_limit_needs_a_process_that_can_be_cut_off() -> None:
    with pytest.raises(ConfigError, match="only a separate process can be killed"):
        PPO.check_config({"env": "CartPole-v1", "env_step_timeout_s": 1.0})
