"""Whole sweeps, small and quick, as a person would run them."""

import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep import schedulers, trackers
from sweep import spec as specs
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.creation import creating, resolving
from sweep.driver.start.launch import Launch
from sweep.driver.tracking.outbox import Outbox
from sweep.history.events import Recorded, Row
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices import store
from sweep.trackers import TrackerContext
from sweep.views import reading
from trainables.core.results import VOLATILE_KEYS

Watch = Callable[[Sequence[Recorded]], None]

#: A quadratic under ASHA: 9 trials, rungs at 1, 3 and 9 iterations.
QUADRATIC: Mapping[str, Any] = {
    "name": "demo",
    "trials": 9,
    "trainable": "tests.support.quadratic:Quadratic",
    "metric": "loss",
    "mode": "min",
    "config": {"noise": 0.1},
    "space": {"lr": {"loguniform": [1e-3, 0.9]}},
    "stop": {"training_iteration": 9},
    "searcher": "tpe",
    "scheduler": {"name": "asha", "grace_period": 1, "reduction_factor": 3},
    "deterministic": {"batch": 4},
    "seed": 7,
}


def make(root: Path, **changes: Any) -> Folder:
    """Create the sweep, without running it.

    `storage` is the server of its ledger, `checkpoints` the URL of theirs.
    """
    storage, checkpoints = changes.pop("storage", None), changes.pop("checkpoints", None)
    raw = {**QUADRATIC, **changes}
    source = "\n".join(f"{key}: {_flow(value)}" for key, value in raw.items() if value is not None)
    spec = specs.parse(source, "test.yaml")
    folder = Folder(root, spec.name)
    resolved = resolving.resolve(spec, (), is_new=True)
    creating.create(folder, resolved, source, storage=storage, checkpoints=checkpoints)
    return folder


def thin(root: Path, **changes: Any) -> Folder:
    """Create a sweep whose slices have one iteration, so that there is a moment between any two."""
    given = {"scheduler": "fifo", "trials": 3, "deterministic": None, "limits": {"slice_s": 1e-9}}
    return make(root, **{**given, **changes})


def run(
    folder: Folder,
    slots: int = 1,
    pool: str = "inline",
    watch: Callable[[Sequence[Recorded]], None] = lambda _recorded: None,
    **options: Any,
) -> str:
    """Run or resume it to its end; returns how it ended."""
    with launch.open_context(Launch(folder, slots, pool, **options)) as (parts, _warnings):
        return Driver(parts, watch).run()


def drive(
    folder: Folder, kill_at: int | None = None, scheduler: schedulers.Scheduler | None = None
) -> str:
    """Run it with another scheduler; ``killed`` if the driver ends after `kill_at` transactions."""
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _warnings):
        chosen = replace(parts, scheduler=scheduler or parts.scheduler)
        return run_until(kill_at, lambda watch: Driver(chosen, watch))


def run_until(kill_at: int | None, make: Callable[[Watch], Driver]) -> str:
    """Run a driver; ``killed`` if it ends after `kill_at` transactions."""
    told = 0

    def watch(recorded: Sequence[Recorded]) -> None:
        nonlocal told
        told += bool(recorded)
        if kill_at is not None and recorded and told == kill_at:
            raise KeyboardInterrupt

    try:
        return make(watch).run()
    except KeyboardInterrupt:
        return "killed"


def interrupt_sending(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let Ctrl-C come while a driver first waits for its trackers; it is in the list then."""
    close, came = Outbox.close, list[int]()

    def interrupted(outbox: Outbox, patience_s: float) -> list[str]:
        if not came:
            came.append(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return close(outbox, patience_s)

    monkeypatch.setattr(Outbox, "close", interrupted)
    return came


def copy_to_optuna(folder: Folder) -> None:
    """Bring the copy in Optuna's tables up to the ledger."""
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _warnings):
        ledger, objective = parts.ledger, parts.history.objective
        where = TrackerContext(folder, ledger.sweep_id, ledger.name, 0.0, parts.spec, objective)
        with contextlib.closing(trackers.find("optuna")(where)) as tracker:
            tracker.publish(ledger.read(after=ledger.published("optuna")))
            ledger.set_published("optuna", parts.history.k)


def history(folder: Folder) -> History:
    return reading.history(Ledger(folder.ledger))


def curve(folder: Folder, trial: int, replica: int = 0) -> list[Row]:
    """All results of a replica, without what differs between two equal runs."""
    rows = Ledger(folder.ledger).results(trial, replica)
    return [Row(row.iteration, stable(row.metrics)) for row in rows]


def stable(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in metrics.items() if k.split("/")[0] not in VOLATILE_KEYS}


def decisions(folder: Folder) -> list[tuple[Any, ...]]:
    """What was decided and what came of it, trial by trial, exactly."""
    past = history(folder)
    return [
        (
            trial.number,
            trial.searched,
            trial.config,
            trial.status,
            trial.score,
            [final_state(folder, replica) for replica in trial.replicas],
            [curve(folder, trial.number, replica.index) for replica in trial.replicas],
        )
        for trial in past.trials
    ]


def final_state(folder: Folder, replica: Replica) -> tuple[int, Any]:
    """The newest checkpoint's iteration, and its weights and random streams."""
    newest = replica.newest_checkpoint
    if newest is None:
        return (0, None)
    loaded = store.of_sweep(folder).replica(replica.trial, replica.index).read(newest)
    state = {key: loaded.state[key] for key in ("trainable", "streams")}
    # A process that has torch says where its stream stands, another one where it would begin.
    if "seed" in (torch_stream := state["streams"]["torch"]):
        import torch  # takes seconds: a process that imports a test's function needs none of it

        stream = torch.Generator().manual_seed(torch_stream["seed"]).get_state().numpy()
        state["streams"] = {**state["streams"], "torch": {"state": stream}}
    return (newest.iteration, plain(state))


def plain(state: Any) -> Any:
    """A state in which arrays are their bytes, so that two can be compared with ``==``."""
    if isinstance(state, Mapping):
        return {key: plain(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [plain(value) for value in state]
    if isinstance(state, np.ndarray):
        return (state.dtype.str, state.shape, state.tobytes())
    return repr(state) if isinstance(state, float) else state


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}": {_flow(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, bool | None):
        return "null" if value is None else str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
