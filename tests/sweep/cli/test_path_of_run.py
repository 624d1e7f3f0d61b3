"""The way of `sweep run`: what it does once, and how few functions lie before a step."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor

from sweep.cli.main import main
from sweep.driver.start import launch, prepare
from sweep.driver.start.creation import resolving, samples
from sweep.driver.start.creation.resolving import Resolved
from sweep.history.events import Closed
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from sweep.slices.slice import run_slice
from sweep.views import reading
from tests.support.command_line import write_spec
from tests.support.traced import Traced, chain
from trainables.envs.exactness import measuring
from trainables.trainer import config_checks

#: Functions from the shell's command to the step, both counted.
MOST = 10


def run(folder: Path, pool: str, **changes: Any) -> Folder:
    changes = {"trials": 1, "stop": {"training_iteration": 1}, "scheduler": "fifo", **changes}
    spec = write_spec(folder, trainable="tests.support.traced:Traced", **changes)
    words = ["run", spec, "--root", folder, "--pool", pool, "-j", "1", "--json"]
    assert main([str(word) for word in words]) == 0
    return Folder(folder, "demo")


def chain_in(folder: Folder) -> list[str]:
    found: list[str] = json.loads((folder.trial(0, 0) / "chain.json").read_text())
    return found


def shown(functions: list[str]) -> str:
    return f"{len(functions)} functions, at most {MOST}:\n  " + "\n  ".join(functions)


def test_ten_functions_at_most_lead_from_the_shell_to_a_step(tmp_path: Path) -> None:
    functions = chain_in(run(tmp_path, "inline"))
    assert functions[0] == "sweep.cli.main.main"
    assert functions[-2:] == ["trainables.trainable.Trainable.train", "Trainable.step"]
    assert len(functions) <= MOST, shown(functions)


def test_with_worker_processes_it_is_as_far_the_submission_and_the_worker_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: list[str] = []

    submit = ProcessPoolExecutor.submit

    def noted(*arguments: Any) -> Any:
        if arguments[1] is run_slice:
            here[:] = here or chain()
        return submit(*arguments)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", noted)
    there = chain_in(run(tmp_path, "loky"))
    assert here[0] == "sweep.cli.main.main"
    assert here[-1] == "sweep.pools.loky.Pool.submit"
    assert there[0] == "sweep.slices.slice.run_slice"
    assert len(here) + len(there) <= MOST, shown([*here, *there])


def test_a_new_sweep_is_resolved_once_and_its_points_are_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[Resolved] = []
    resolve = resolving.resolve

    def noted(*arguments: Any, **options: Any) -> Resolved:
        resolved.append(resolve(*arguments, **options))
        return resolved[-1]

    monkeypatch.setattr(resolving, "resolve", noted)
    Traced.calls.clear()
    asha = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
    folder = run(tmp_path, "inline", scheduler=asha)
    assert len(resolved) == 1
    assert Traced.calls == ["check"] * samples.SAMPLES + ["setup"]
    ledger = Ledger(folder.ledger)
    assert reading.spec_of(ledger) == resolved[0].spec
    assert resolved[0].spec.scheduler.options["finish_best"] > 0  # as a new sweep's ledger names it
    assert sum(isinstance(r.event, Closed) for batch in iterate(ledger) for r in batch) == 1
    assert main(["resume", "demo", "--root", str(tmp_path), "--json"]) == 0
    assert len(resolved) == 2


@pytest.mark.parametrize("native", [False, True])
def test_one_environment_of_a_kind_is_made_to_check_a_new_sweep(
    native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def count(module: ModuleType, name: str) -> None:
        make = getattr(module, name)

        def counted(*given: Any) -> Any:
            made.append(name)
            return make(*given)

        monkeypatch.setattr(module, name, counted)

    count(measuring, "make_env")
    count(config_checks, "make_vector_env")
    monkeypatch.setattr(measuring, "_measurements", {})
    config = {"env": "CartPole-v1", "native_vector_env": native}
    changes = {"metric": "episode_reward_mean", "space": {"lr": {"uniform": [0.1, 0.2]}}}
    spec = write_spec(tmp_path, trainable="ppo", config=config, scheduler="fifo", **changes)
    folder, (resolved, text) = Folder(tmp_path, "demo"), prepare.prepare(str(spec), [])
    prepare.create(resolved, text, folder, "inline", None)
    with launch.open_context(launch.Launch(folder, 1, "inline", resolved=resolved)):
        assert made == ["make_env", "make_vector_env"][: 1 + native]


def test_what_was_resolved_for_another_spec_is_not_driven_with(tmp_path: Path) -> None:
    folder = run(tmp_path, "inline")
    other = resolving.resolve(reading.spec_of(Ledger(folder.ledger)), ())
    changed = other.spec.model_copy(update={"seed": 8})
    given = Resolved(changed, other.trainable, other.scheduler, other.searcher)
    asked = launch.Launch(folder, 1, "inline", resolved=given)
    with launch.open_context(asked) as (context, _):
        assert context.searcher is not given.searcher
    same = launch.Launch(folder, 1, "inline", resolved=other)
    with launch.open_context(same) as (context, _):
        assert context.searcher is other.searcher
