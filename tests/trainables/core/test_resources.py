import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from threadpoolctl import ThreadpoolController

from tests.support.processes import run_python
from tests.support.trainers import make
from trainables.algorithms.ppo import PPO
from trainables.core.resources import EnvironmentVariables, blas_threads
from trainables.errors import ConfigError, TrainableError, WorkerError

SITUATED = "tests.support.environments:Situated"
ONE: dict[str, Any] = {"num_workers": 1, "train_batch_size": None, "evaluation_interval": None}


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_W2_variables_are_there_before_the_environments_and_gone_afterwards(
    num_workers: int,
) -> None:
    config = {
        **ONE,
        "num_workers": num_workers,
        "env": SITUATED,
        "env_config": {"name": "SWEEP_TEST_PORT", "value": "7"},
        "extra_python_environs": {"SWEEP_TEST_PORT": 7},
    }
    trainer = make(config)
    trainer.train()
    trainer.stop()
    assert "SWEEP_TEST_PORT" not in os.environ


def test_W2_variables_are_taken_back_when_setting_up_fails() -> None:
    with pytest.raises(ConfigError):
        make({"env": "NoSuch-v0", "extra_python_environs": {"SWEEP_TEST_PORT": 7}})
    assert "SWEEP_TEST_PORT" not in os.environ


def test_variables_that_were_there_before_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEP_TEST_PORT", "1")
    environs = EnvironmentVariables({"SWEEP_TEST_PORT": "2"})
    assert os.environ["SWEEP_TEST_PORT"] == "2"
    environs.undo()
    assert os.environ["SWEEP_TEST_PORT"] == "1"


@pytest.mark.slow
def test_K5_a_child_over_its_quota_fails_and_its_neighbour_in_the_quota_does_not() -> None:
    quota = {**ONE, "num_envs_per_worker": 1, "memory_per_worker": 2**28, "env": SITUATED}
    good = make({**quota, "env_config": {"megabytes": 1}})
    good.train()
    good.stop()
    # The environments of the trainer itself, which has no quota, can be made.
    with pytest.raises((WorkerError, ConfigError), match=r"MemoryError") as caught:
        make({**quota, "env_config": {"megabytes": 200}})
    assert "memory_per_worker: 268435456" in str(caught.value)


def test_K5_a_trainer_over_its_quota_fails_with_both_numbers() -> None:
    trainer = make({"memory": 2**20})
    with pytest.raises(TrainableError, match=r"holds \d+ bytes, more than memory: 1048576"):
        trainer.train()
    trainer.stop()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("key", ["num_gpus", "num_gpus_per_worker"])
def test_W10_a_gpu_that_torch_does_not_see_points_at_the_installation(key: str) -> None:
    for check in (PPO.check_config, PPO):
        with pytest.raises(ConfigError, match=r"CUDA installation.*nvidia-smi") as caught:
            check({"env": "CartPole-v1", key: 1})
        assert caught.value.place == key


def test_K6_thread_counts_reach_torch() -> None:
    try:
        trainer = make({"tf_session_args": {"intra_op_parallelism_threads": 2}})
        assert torch.get_num_threads() == 2
        trainer.stop()
        both = {
            "tf_session_args": {"intra_op_parallelism_threads": 2},
            "local_tf_session_args": {"intra_op_parallelism_threads": 3},
        }
        make(both).stop()
        assert torch.get_num_threads() == 3
    finally:
        make().stop()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize("does", ["train", "evaluate", "play"])
def test_K6_numpy_takes_as_many_threads_as_torch_in_steps_of_environments_too(
    asked: int, does: str
) -> None:
    seen: set[int] = set()

    controller = ThreadpoolController().select(user_api="blas")

    def note(_facts: object) -> None:
        seen.update(pool["num_threads"] for pool in controller.info())

    threads = {"intra_op_parallelism_threads": asked}
    trainer = make({"callbacks": {"on_episode_step": note}, "tf_session_args": threads})
    with blas_threads(3):
        _ = trainer.play(1, 0) if does == "play" else getattr(trainer, does)()
        assert seen == {asked}
        seen.clear()
        note({})
    assert seen == {3}
    trainer.stop()


def test_K6_libraries_that_are_loaded_later_are_limited_too() -> None:
    code = """
import numpy
from threadpoolctl import ThreadpoolController
from trainables.core.resources import blas_threads
with blas_threads(3):
    pass
import scipy.linalg
with blas_threads(3):
    pools = ThreadpoolController().select(user_api="blas").info()
print([pool["num_threads"] for pool in pools])
"""
    assert run_python(code) == "[3, 3]\n"


@pytest.mark.slow
def test_K6_inter_op_threads_are_set_once_in_a_process() -> None:
    code = """
import torch
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
threads = lambda n: {"env": "CartPole-v1", "tf_session_args": {"inter_op_parallelism_threads": n}}
PPO(threads(3)).stop()
assert torch.get_num_interop_threads() == 3
try:
    PPO(threads(4))
except ConfigError as error:
    assert "3 threads in this process" in str(error), error
else:
    raise SystemExit("accepted")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
