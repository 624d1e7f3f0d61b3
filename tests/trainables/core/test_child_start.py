"""How child processes begin: without looking for garbage in what they import, which stays."""

import gc
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
        with worker.starting():
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
