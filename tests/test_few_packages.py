"""A machine with torch, numpy, gymnasium, pydantic and pytest alone: its tests start, and train."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parents[1]
FEW = HERE / "tests" / "support" / "few_packages"
TRAIN = """
import sys
from trainables.algorithms.ppo import PPO
config = {"env": "tests.support.environments:Counting", "learner": "torch", "train_batch_size": 32}
trainer = PPO({**config, "num_envs_per_worker": 2, "rollout_fragment_length": 16})
trainer.train()
path = trainer.save(sys.argv[1])
trainer.restore(path)
print(trainer.train()["timesteps_total"])
trainer.stop()
"""


def python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A Python that finds few packages, and no plugin of pytest's."""
    path = os.pathsep.join(map(str, (FEW, HERE)))
    few = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    few |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=few, cwd=HERE, capture_output=True, text=True, check=False)


def test_the_packages_of_others_are_not_found_there() -> None:
    others = ("hypothesis", "joblib", "mlflow", "moto", "optuna", "psycopg", "xdist")
    assert all(map(find_spec, others))
    there = f"from importlib.util import find_spec; print({others}, *map(find_spec, {others}))"
    assert python("-c", there).stdout == f"{others}{' None' * len(others)}\n"


def test_the_tests_of_a_gpu_start_and_say_how_many_ran() -> None:
    ended = python("-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (counted,) = [one for one in ended.stdout.splitlines() if one.startswith("tests on a GPU: ")]
    ran, skipped = (int(word) for word in counted.split() if word.isdigit())
    assert ran + skipped == 35


def test_a_trainer_learns_saves_and_restores_there(tmp_path: Path) -> None:
    ended = python("-c", TRAIN, str(tmp_path))
    assert ended.stdout == "64\n", ended.stderr


def test_tests_without_servers_run_there() -> None:
    files = "tests/trainables/learners/test_schedules.py", "tests/trainables/rollout/test_polled.py"
    ended = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", "schedule or W15")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "passed" in ended.stdout
