import os
import signal
import subprocess
import sys
import threading
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil
import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor as LokyExecutor

from tests.support.processes import run_python
from tests.support.trainers import differences, make, run
from trainables.core.processes import child
from trainables.errors import EnvError, NotFiniteError, WorkerError
from trainables.rollout.batch import Sample
from trainables.rollout.workers.remote.worker_set import ChildWorkers

HERE = "tests.support.environments"
ROOT = Path(__file__).parents[3]
TWO: dict[str, Any] = {"num_workers": 2, "train_batch_size": None, "evaluation_interval": None}


def children(trainer: Any) -> list[int]:
    assert isinstance(trainer.workers, ChildWorkers)
    return trainer.workers.pids()


@pytest.mark.slow
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


def test_a_function_is_given_the_worker_itself_whatever_becomes_of_its_samples() -> None:
    trainer = make({**TWO, "compress_observations": True})
    kinds = trainer.workers.foreach_worker(lambda worker: type(worker).__name__)
    assert kinds == ["RolloutWorker"] * 2
    sizes = trainer.workers.foreach_worker(lambda one: one.sample().fragments[0].observations.size)
    assert sizes == [3 * 16 * 4] * 2
    trainer.stop()


def test_stopping_ends_the_children() -> None:
    trainer = make(TWO)
    processes = [psutil.Process(pid) for pid in children(trainer)]
    trainer.stop()
    trainer.stop()
    assert not any(process.is_running() for process in processes)


@pytest.mark.slow
def test_children_end_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STOP_TIMEOUT_S", 120.0)
    env = "tests.support.failing_workers:ClosesTogether"
    config = {**TWO, "env": env, "env_config": {"folder": str(tmp_path)}, "num_envs_per_worker": 1}
    trainer = make(config)
    trainer.stop()
    ends = {path.name for path in tmp_path.glob("*-rollout-worker-?")}
    assert {f"met-rollout-worker-{i}" for i in range(2)} <= ends


def test_children_need_no_torch() -> None:
    code = "import sys, trainables.rollout.workers.remote.server; sys.exit('torch' in sys.modules)"
    run_python(code)


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
        ("reward", NotFiniteError, "worker 0, environment 0: reward nan is not finite; correct"),
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


@pytest.mark.slow
def test_children_start_inside_a_worker_of_a_joblib_pool() -> None:
    with LokyExecutor(max_workers=1, timeout=None) as pool:
        assert pool.submit(train_once).result(timeout=240) == train_once()


PARENT = """
import sys, time
from tests.support.trainers import make
trainer = make({"num_workers": 2, "train_batch_size": None})
print(*trainer.workers.pids(), flush=True)
trainer.train()
print("trained", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
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
        _, alive = psutil.wait_procs(processes, timeout=120)
        assert not alive


def interrupting(when: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The next call of ``when.name`` is interrupted by Ctrl-C; later ones are not."""

    def interrupted(*_: Any, **__: Any) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(when, name, interrupted)


def test_an_interrupted_receive_leaves_no_stale_answer_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = make({**TWO, "num_workers": 1})
    expected = trainer.workers.get_state()
    interrupting(connection, monkeypatch, "wait")
    with pytest.raises(KeyboardInterrupt):
        trainer.workers.get_state()
    (sample,) = trainer.workers.sample()
    assert isinstance(sample, Sample)
    interrupting(connection, monkeypatch, "wait")
    with pytest.raises(KeyboardInterrupt):
        trainer.workers.sample()
    state = trainer.workers.get_state()
    assert set(state[0] or {}) == set(expected[0] or {})
    trainer.stop()


@pytest.mark.timeout(60)
def test_an_interrupted_receive_leaves_no_child_that_writes_while_it_is_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the sample nor the weights fit into the pipe between the two."""
    large = {"rollout_fragment_length": 2048, "model": {"hidden": [256, 256]}}
    trainer = make({**TWO, **large, "num_workers": 1})
    interrupting(connection, monkeypatch, "wait")
    with pytest.raises(KeyboardInterrupt):
        trainer.workers.sample()
    trainer._synchronise([])
    (sample,) = trainer.workers.sample()
    assert sample.count == 3 * 2048
    trainer.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recv", "send_bytes"])
def test_a_message_that_was_interrupted_half_way_is_an_error_ever_after(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make({**TWO, "num_workers": 1})
    interrupting(connection.Connection, monkeypatch, name)
    with pytest.raises(KeyboardInterrupt):
        trainer.workers.sample()
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"worker 0.*was interrupted"):
            trainer.workers.sample()
    trainer.stop()


def test_a_request_that_cannot_be_pickled_leaves_its_child_as_it_was() -> None:
    trainer = make({**TWO, "num_workers": 1})
    (process,) = trainer.workers._processes
    with pytest.raises(TypeError, match="cannot pickle"):
        process.send("sample", threading.Lock())
    (sample,) = trainer.workers.sample()
    assert isinstance(sample, Sample)
    trainer.stop()


def test_a_child_whose_message_was_interrupted_half_way_is_replaced_if_so_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = make({**TWO, "num_workers": 1, "recreate_failed_workers": True})
    interrupting(connection.Connection, monkeypatch, "recv")
    with pytest.raises(KeyboardInterrupt):
        trainer.workers.sample()
    (sample,) = trainer.workers.sample()
    assert isinstance(sample, Sample)
    trainer.stop()


def test_a_process_that_leaves_calls_what_wants_to_be_called_at_its_end() -> None:
    lines = (
        "import atexit",
        "from trainables.core.processes.ending import exit_process",
        "atexit.register(print, 'called', end='')",
        "print('written,', end=' ')",
        "exit_process()",
    )
    assert run_python("; ".join(lines)) == "written, called"
