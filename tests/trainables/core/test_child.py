"""One child process that is asked and answers, whoever asks: workers, evaluations, environments."""

import ast
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from trainables.core.processes import child, worker
from trainables.core.processes.child import ChildProcess, Patience
from trainables.errors import EnvError, WorkerDied, WorkerError, WorkerHangs

ROLLOUT = Path(__file__).parents[3] / "trainables" / "rollout"
LONG = Patience(100.0, "some_timeout_s")
SHORT = Patience(0.2, "some_timeout_s")


class Server:
    """Says in a folder that it was made, and that it has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "made").touch()

    def double(self, value: int) -> int:
        return 2 * value

    def count(self, last: int) -> str:
        for i in range(last):
            child.note(i)
        return "counted"

    def lock(self) -> Any:
        return threading.Lock()

    def wrong(self) -> None:
        raise EnvError("the world ended")

    def leave_at_once(self) -> None:
        os._exit(7)

    def oversleep(self) -> None:
        child.note("asleep")
        time.sleep(600)

    def variables(self) -> tuple[str | None, int]:
        return os.environ.get("OMP_NUM_THREADS"), os.getpid()

    def print_in_vain(self) -> int:
        return print_in_vain()

    def end(self) -> None:
        (self.folder / "ended").touch()


def print_in_vain() -> int:
    """Print where the disk is full, and say how much; it is where a child prints from then on."""
    full = os.open("/dev/full", os.O_WRONLY)
    for number in (1, 2):
        os.dup2(full, number)
    for stream in (sys.stdout, sys.stderr):
        for _ in range(3):
            print("x" * 10_000, file=stream)
        stream.flush()
    return 3


@pytest.fixture(name="one")
def started(tmp_path: Path) -> Iterator[ChildProcess]:
    made = ChildProcess("some child", Server, (tmp_path,), Patience())
    yield made
    made.kill()


def ask(one: ChildProcess, method: str, *args: Any, patience: Patience = LONG) -> Any:
    one.send(method, *args)
    return one.receive(patience)


def leave(one: ChildProcess) -> None:
    """Let it end, however long that takes here."""
    one.ask_to_end()
    assert connection.wait(one.ends[1:], 200)
    one.close()
    one.close()


def test_a_child_answers_notes_and_errors_and_ends_when_it_is_asked_to(
    one: ChildProcess, tmp_path: Path
) -> None:
    assert ask(one, "double", 4) == 8
    assert ask(one, "variables") == ("1", one.pid)
    one.send("count", 3)
    heard = [one.receive_message(LONG) for _ in range(4)]
    assert heard == [("note", 0), ("note", 1), ("note", 2), ("ok", "counted")]
    assert ask(one, "count", 2) == "counted", "who does not want notes hears none"
    one.send("count", 9)
    assert ask(one, "double", 5) == 10, "what nobody waited for is not an answer to the next"
    with pytest.raises(EnvError, match="the world ended") as caught:
        ask(one, "wrong")
    assert "in wrong" in str(caught.value.__cause__)
    with pytest.raises(WorkerError, match=r"some child raised AttributeError.*nothing_of_it"):
        ask(one, "nothing_of_it")
    leave(one)
    assert (tmp_path / "ended").exists()


def test_an_answer_that_cannot_be_sent_is_an_error_and_the_child_continues(
    one: ChildProcess,
) -> None:
    with pytest.raises(WorkerError, match=r"some child raised TypeError: .*lock"):
        ask(one, "lock")
    assert ask(one, "double", 1) == 2


def test_the_server_is_made_at_the_first_request_and_not_in_order_to_end(
    one: ChildProcess, tmp_path: Path
) -> None:
    leave(one)
    assert not list(tmp_path.iterdir())


def test_a_death_is_told_with_its_exit_code_at_every_request(one: ChildProcess) -> None:
    one.send("leave_at_once")
    for _ in range(2):
        with pytest.raises(WorkerDied, match=rf"some child \(pid {one.pid}\) died; exit code 7"):
            one.receive(LONG)
        with pytest.raises(WorkerDied):
            one.send("double", 1)
    assert (one.failure, one.exitcode, one.is_alive) == ("died; exit code 7", 7, False)


def test_a_child_that_hangs_is_ended_and_the_error_says_where_it_stood(one: ChildProcess) -> None:
    one.send("oversleep")
    assert one.receive_message(LONG) == ("note", "asleep")
    for _ in range(2):
        with pytest.raises(WorkerHangs, match=r"no answer within 0.2 s \(some_timeout_s\)") as hung:
            one.receive(SHORT)
        assert "in oversleep" in str(hung.value)
    assert not one.is_alive


def test_what_the_disk_does_not_take_of_what_is_printed_costs_nothing(one: ChildProcess) -> None:
    assert ask(one, "print_in_vain") == 3
    leave(one)
    executor = worker.start({})
    try:
        with worker.submitting():
            printed = executor.submit(print_in_vain)
        assert printed.result(timeout=120) == 3
    finally:
        worker.end(executor)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_printed_is_written(unbuffered: str, tmp_path: Path) -> None:
    code = (
        "from trainables.core.processes.printing import ignore_full_disk\n"
        "import os, sys\n"
        "print('before')\n"
        "ignore_full_disk()\n"
        "print('é' * 5)\n"
        "print('to stderr', file=sys.stderr)\n"
        "sys.stdout.flush()\n"
        "os._exit(0)\n"
    )
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as o, err.open("w") as e:
        command = [sys.executable, "-X", "utf8", "-c", code]
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        subprocess.run(command, stdout=o, stderr=e, check=True, env=environment)
    assert out.read_text("utf-8") == "before\nééééé\n"
    assert err.read_text() == "to stderr\n"


def test_nothing_in_rollout_forwards_what_it_does_not_name() -> None:
    trees = {path: ast.parse(path.read_text()) for path in ROLLOUT.rglob("*.py")}
    forwarding = [
        path.name
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__getattribute__")
    ]
    assert len(trees) > 20
    assert forwarding == ["batch.py"], "a fragment's columns are attributes; nothing else is"
