"""A trial's code starts processes as any program does, and finds its own process as one."""

import importlib.util
from pathlib import Path

import pytest

from benchmarks.chaos import programs
from sweep.history.events import Status
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.command_line import start, write_spec
from tests.support.leftovers import Marked
from tests.support.mishaps import RAISED
from tests.support.programs import WAYS
from trainables.core import rng

#: Ways that import torch or gymnasium in further processes, which takes seconds on a busy machine.
LONG = [way for way in WAYS if way.startswith(("loader", "torch", "environments"))]
QUICK = [way for way in WAYS if way not in LONG]
#: Of the long ones, one for each kind.
KINDS = ["loader_fork", "loader_spawn", "loader_persistent", "torch_spawn", "environments"]


@pytest.mark.proof
@pytest.mark.parametrize(
    "ways",
    [[*QUICK, *KINDS], pytest.param(LONG, marks=pytest.mark.proof)],
    ids=["each kind", "long"],
)
def test_each_way_to_start_processes_works_and_survives_a_kill(ways: list[str]) -> None:
    figures = programs.campaign(ways, 1, rng.generator(0, "test"))
    assert (figures["trials"], figures["kills"]) == (len(ways), 1)


@pytest.mark.proof
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed; pip install 'sweep-rl[ray]'",
)
@pytest.mark.parametrize(
    "ways", [QUICK, pytest.param(KINDS, marks=pytest.mark.proof)], ids=["quick", "long"]
)
def test_each_way_works_in_slots_of_ray_too(
    ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.ray_cluster import TOKEN, running

    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    marked = Marked()
    with running(2, **marked.variables) as cluster:
        pool = ("--pool", "ray", "--address", cluster.address)
        figures = programs.campaign(ways, 1, rng.generator(0, "test"), pool, marked)
    assert (figures["trials"], figures["kills"]) == (len(ways), 1)


@pytest.mark.slow
def test_what_is_no_exception_fails_its_trial_like_one(tmp_path: Path) -> None:
    spec = write_spec(
        tmp_path,
        trainable="tests.support.mishaps:raises_no_exception",
        metric="value",
        mode="max",
        trials=len(RAISED),
        searcher="grid",
        space={"kind": {"grid": list(RAISED)}},
        config={},
        stop={},
        scheduler="fifo",
        deterministic=None,
    )
    out, err = start("run", spec, "--jobs", 2, cwd=tmp_path).communicate(timeout=300)
    trials = sweeps.history(Folder(tmp_path / "sweeps", "demo")).trials
    assert len(trials) == len(RAISED), out + err
    for trial in trials:
        name = RAISED[trial.config["kind"]].__name__
        assert trial.status is Status.FAILED
        assert name in trial.reason
        assert "in raises_no_exception" in trial.replicas[0].error
        assert trial.replicas[0].lost_slices == 0, "its process did not die"
