"""A trial finds its process as the first one did, whatever has run there before."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sweep.history.events import End, Goal
from sweep.pools import loky
from sweep.slices import cache
from sweep.slices.process_state import ProcessState
from sweep.slices.slice import run_slice
from tests.support.altering import look
from tests.support.slices import slice_spec

HERE = (str(Path.cwd()),)
ALTERING = "tests.support.altering:Altering"


@pytest.fixture(autouse=True)
def left_as_it_was() -> Iterator[None]:
    before = ProcessState.capture()
    yield
    cache.forget()
    before.restore()


def test_what_a_trial_changes_in_its_process_does_not_reach_the_next(tmp_path: Path) -> None:
    with closing(loky.Pool(1)) as pool:
        came = [
            pool.submit(
                slice_spec(
                    tmp_path / str(trial), {}, trial=trial, trainable=ALTERING, paths=HERE,
                    goal=Goal(1), metric="value",
                )
            ).result(timeout=120)
            for trial in range(2)
        ]  # fmt: skip
    assert [one.end for one in came] == [End.GOAL, End.GOAL], came[0].error
    first, second = (one.rows[0].metrics for one in came)
    names = look().keys()  # a result has no entry for None
    assert {name: second.get(name) for name in names} == {name: first.get(name) for name in names}
    assert first["still"] == "/"


def test_a_trial_that_continues_in_its_process_finds_its_own_changes_there(
    tmp_path: Path,
) -> None:
    spec = slice_spec(tmp_path, {}, trainable=ALTERING, paths=HERE, goal=Goal(1), metric="value")
    before = Path.cwd()
    first = run_slice(spec)
    assert first.end is End.GOAL, first.error
    assert Path.cwd() == before
    assert "LEFT" not in os.environ
    then = slice_spec(
        tmp_path, {}, trainable=ALTERING, paths=HERE, goal=Goal(2), metric="value",
        sources=first.saved, number=1,
    )  # fmt: skip
    second = run_slice(then)
    assert second.end is End.GOAL, second.error
    assert second.rows[-1].metrics["still"] == "/"
    assert Path.cwd() == before


def test_functions_run_in_separate_processes_with_freshly_imported_modules(
    tmp_path: Path,
) -> None:
    with closing(loky.Pool(1)) as pool:
        came = [
            pool.submit(
                slice_spec(
                    tmp_path / str(trial), {}, trial=trial, paths=HERE, metric="value",
                    trainable="tests.support.altering:function",
                )
            ).result(timeout=120)
            for trial in range(2)
        ]  # fmt: skip
        assert [one.end for one in came] == [End.DONE, End.DONE], came[0].error + came[1].error
        first, second = (one.rows[0].metrics for one in came)
        assert (first["module"], second["module"]) == (0, 0)
        assert first["pid"] != second["pid"]
        names = look().keys()
        assert {name: second.get(name) for name in names} == {
            name: first.get(name) for name in names
        }
