"""How child processes begin: without looking for garbage in what they import, which stays."""

import gc
import subprocess
import sys
from collections.abc import Callable

import pytest

from trainables.core.processes import worker
from trainables.core.processes.child import ChildProcess, Patience

#: Collections of the youngest objects that a child may have made before it works; with Python's
#: own threshold it makes hundreds while it imports.
FEW = 30


Garbage = tuple[bool, int, int]
"""Whether a process looks for garbage, how often it has, and how many objects it passes over."""


class Server:
    def garbage(self) -> Garbage:
        return gc.isenabled(), gc.get_stats()[0]["collections"], gc.get_freeze_count()


def in_a_worker(*imports: str) -> Garbage:
    executor = worker.start({})
    try:
        with worker.submitting():
            executor.submit(worker._import, imports)
        asked = [executor.submit(f) for f in (gc.isenabled, gc.get_stats, gc.get_freeze_count)]
        enabled, stats, frozen = (one.result(timeout=120) for one in asked)
        return enabled, stats[0]["collections"], frozen
    finally:
        worker.end(executor)


def in_a_child() -> Garbage:
    child = ChildProcess("some child", Server, (), Patience())
    try:
        child.send("garbage")
        told: Garbage = child.receive(Patience(120.0))
        return told
    finally:
        child.close()


@pytest.mark.parametrize("ask", [in_a_worker, in_a_child])
def test_a_child_looks_for_garbage_from_when_it_works_and_not_in_what_it_has_imported(
    ask: Callable[[], Garbage],
) -> None:
    enabled, collections, frozen = ask()
    assert enabled
    assert collections < FEW
    assert frozen > 10_000


def test_what_a_worker_imports_early_is_not_looked_through_either() -> None:
    enabled, collections, frozen = in_a_worker("trainables.algorithms.ppo")
    assert enabled
    assert collections < FEW
    assert frozen > in_a_worker()[2] + 10_000


def test_a_module_that_cannot_be_imported_early_harms_nobody() -> None:
    enabled, _, frozen = in_a_worker("there.is.none", "trainables.core.rng")
    assert enabled
    assert frozen > 10_000


#: Starts six workers where this process may have so many files open, at first and at most.
LIMITED = """
import os, resource, sys
from trainables.core.processes import worker
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[1:])))
workers = [worker.start({}) for _ in range(6)]
with worker.submitting():
    print(len({one.submit(os.getpid).result(timeout=120) for one in workers}))
for one in workers:
    worker.end(one)
"""


def limited(soft: int, hard: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", LIMITED, str(soft), str(hard)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_workers_are_started_although_few_files_may_be_open_at_first() -> None:
    done = limited(24, 1024)
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


def test_one_worker_more_than_files_may_be_open_for_is_refused_in_one_line() -> None:
    last = limited(24, 24).stderr.splitlines()[-1]
    assert last.startswith("OSError: [Errno 24] ")
    assert "] this process may have 24 files open and has " in last
    assert last.endswith(
        f", but one more worker needs {worker.FILES}; start fewer workers, or raise the limit "
        "with `ulimit -n`"
    )
