import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor as LokyExecutor

from tests.support.trainers import differences, make, run
from trainables.errors import EnvError, NotFiniteError, WorkerError
from trainables.rollout.worker_set import ChildWorkers

HERE = "tests.support.environments"
ROOT = Path(__file__).parents[2]
TWO: dict[str, Any] = {"num_workers": 2, "train_batch_size": None, "evaluation_interval": None}


def children(trainer: Any) -> list[int]:
    assert isinstance(trainer.workers, ChildWorkers)
    return trainer.workers.pids()


def test_two_children_give_fragments_in_worker_order_and_repeat_themselves() -> None:
    first, second = make(TWO), make(TWO)
    results = [run(one, 2) for one in (first, second)]
    assert differences(results[0], results[1]) == []
    assert results[0][0]["num_healthy_workers"] == 2
    assert results[0][0]["timesteps_this_iter"] == 2 * 3 * 16
    first.stop()
    second.stop()


def test_children_have_streams_of_their_own() -> None:
    trainer = make(TWO)
    one, other = (sample.fragments[0] for sample in trainer.workers.sample())
    assert one.observations.tobytes() != other.observations.tobytes()
    assert one.actions.tobytes() != other.actions.tobytes()
    trainer.stop()


def test_stopping_ends_the_children() -> None:
    trainer = make(TWO)
    processes = [psutil.Process(pid) for pid in children(trainer)]
    trainer.stop()
    trainer.stop()
    assert not any(process.is_running() for process in processes)


def test_children_need_no_torch() -> None:
    code = "import sys, trainables.rollout.process; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_killed_child_is_an_error_with_its_index_and_exit_code() -> None:
    trainer = make(TWO)
    trainer.train()
    os.kill(children(trainer)[1], signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"rollout worker 1 \(pid \d+\) died; exit code -9"):
        trainer.train()
    trainer.stop()


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        (
            "raise",
            EnvError,
            r"0, environment 0: step\(\) raised ZeroDivisionError: the world ended",
        ),
        ("reward", NotFiniteError, "worker 0, environment 0: reward nan is not finite"),
    ],
)
def test_an_error_in_a_child_is_told_with_its_traceback_or_by_its_name(
    what: str, error: type[Exception], words: str
) -> None:
    trainer = make({**TWO, "env": f"{HERE}:Broken", "env_config": {"what": what}})
    with pytest.raises(error, match=words) as caught:
        trainer.train()
    trace = str(caught.value.__cause__)
    assert "Traceback (most recent call last)" in trace
    assert ("environments.py" in trace) == (error is EnvError)
    trainer.stop()


def train_once() -> float:
    trainer = make(TWO)
    loss = trainer.train()["learner"]["policy_loss"]
    trainer.stop()
    return float(loss)


def test_children_start_inside_a_worker_of_a_joblib_pool() -> None:
    with LokyExecutor(max_workers=1, timeout=None) as pool:
        assert pool.submit(train_once).result(timeout=60) == train_once()


PARENT = """
import sys, time
from tests.support.trainers import make
trainer = make({"num_workers": 2, "train_batch_size": None})
print(*trainer.workers.pids(), flush=True)
trainer.train()
print("trained", flush=True)
time.sleep(600)
"""


def test_children_die_when_their_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert parent.stdout.readline() == "trained\n"
        assert all(process.is_running() for process in processes)
        parent.kill()
        parent.wait()
        assert len(processes) == 2
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert not alive
