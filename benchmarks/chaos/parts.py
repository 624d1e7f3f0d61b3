"""List of the parts of the long run, in their order, with the texts of the report."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.chaos import (
    drivers,
    full_disk,
    hostile_input,
    kill_cluster,
    kill_lanes,
    kill_server,
    kills,
    mlflow_faults,
    partitions,
    programs,
    scheduling,
    store_crashes,
    store_damage,
    store_faults,
    store_hostile,
)
from benchmarks.chaos.victims import Victim


@dataclass(frozen=True)
class Part:
    """One part of the long run; its results are in ``OUT/<name>.jsonl``."""

    name: str
    run: Callable[[Path, int, int], int]
    """Runs the cases, given folder, rounds and seed; returns the number of failed ones."""
    rounds: int
    """Rounds of the long run."""
    event: str
    """Description of the failure, for the first column of the table."""
    figures: str
    """Template of the results, filled with the figures of the cases."""


_KILLED = (
    "{kills} kills of {cases} sweeps; {slices_again} slices repeated, {steps_again} steps; "
    "all processes ended within {gone_s} s"
)
_CLUSTER = "{kills} kills of {cases} sweeps; {slices_again} slices repeated, {steps_again} steps"

PARTS = (
    Part(
        "store_crashes",
        store_crashes.run,
        20,
        "every state that a power cut may leave on disk; each fsync omitted once",
        "{cases} saves, {states} states read bit-identical; each omitted fsync was detected",
    ),
    Part(
        "store_faults",
        store_faults.run,
        len(store_faults.FAULTS),
        "each write, fsync, rename, open, close or unlink of a save fails, or is cut off by a kill",
        "{cases} calls, one at a time",
    ),
    Part(
        "store_damage",
        store_damage.run,
        8,
        "a checkpoint or one of its segment files is truncated at each byte or has one bit flipped",
        "{tried} damaged files, all detected; the trial continued from the previous checkpoint",
    ),
    Part(
        "store_hostile",
        store_hostile.run,
        5,
        "handwritten hostile checkpoints, then random changes to them",
        "{files} files; none ran code or caused a signal",
    ),
    Part(
        "hostile_input",
        hostile_input.run,
        5,
        "handwritten hostile specs and ledgers, then random changes to valid ones",
        "{files} specs and ledgers, {good} of them valid, the others refused in one line; no side "
        "effect, no signal, at most {slowest_s} s each",
    ),
    Part(
        "kill_group",
        partial(kills.run, victim=Victim.GROUP),
        200,
        "kill -9 of the driver's process group, then resume",
        _KILLED,
    ),
    Part(
        "kill_driver",
        partial(kills.run, victim=Victim.DRIVER),
        100,
        "kill -9 of the driver alone, then resume at once",
        _KILLED,
    ),
    Part(
        "kill_worker",
        partial(kills.run, victim=Victim.WORKER),
        100,
        "kill -9 of a worker of the pool",
        _KILLED,
    ),
    Part(
        "kill_rollout",
        partial(kills.run, victim=Victim.ROLLOUT),
        100,
        "kill -9 of a rollout worker of a trainer",
        _KILLED,
    ),
    Part(
        "kill_lanes",
        kill_lanes.run,
        60,
        "kill -9 of a sweep whose trials are lanes of one compiled program (`--pool stack`): its "
        "driver or the lanes' process",
        "{kills} kills of {cases} sweeps, {lost} slices lost with the lanes' process; all "
        "processes ended within {gone_s} s",
    ),
    Part(
        "kill_server",
        kill_server.run,
        30,
        "kill -9 of the ledger's PostgreSQL server, or of one of the server's processes",
        "{kills} kills of {cases} sweeps, {servers} of the whole server; each driver continued by "
        "itself; no slice was repeated",
    ),
    Part(
        "cluster_scheduler",
        partial(kill_cluster.run, victim="scheduler"),
        30,
        "kill -9 of a Dask cluster's scheduler, then restart scheduler and workers, and resume",
        _CLUSTER,
    ),
    Part(
        "cluster_worker",
        partial(kill_cluster.run, victim="worker"),
        30,
        "kill -9 of a Dask worker, or of the child that runs its slice",
        "{kills} kills of {cases} sweeps, {kills_slice} of the child; {slices_again} slices "
        "repeated, {steps_again} steps",
    ),
    Part(
        "cluster_driver",
        partial(kill_cluster.run, victim="driver"),
        30,
        "kill -9 of a driver whose slices run on a Dask cluster, then resume at once",
        _CLUSTER,
    ),
    Part(
        "cluster_storage",
        partial(kill_cluster.run, victim="storage"),
        30,
        "kill -9 of the checkpoints' S3 server, which is restarted with its data",
        "{kills} kills of {cases} sweeps; each driver continued by itself; no slice was repeated",
    ),
    Part(
        "cluster_any",
        partial(kill_cluster.run, victim="any"),
        30,
        "kill -9 of driver, Dask scheduler, worker, slice, S3 or PostgreSQL server, in any order",
        _CLUSTER,
    ),
    Part(
        "partition_workers",
        partial(partitions.run, victims="workers"),
        60,
        "a Dask worker is suspended until another has taken over its slice; with and without S3",
        "{cuts} workers of {cases} sweeps, {cuts_remote} of them with S3; they made {late_steps} "
        "more steps and wrote {late_checkpoints} checkpoints, all of them ignored",
    ),
    Part(
        "partition_drivers",
        partial(partitions.run, victims="drivers"),
        30,
        "a driver is suspended until a driver on another machine has taken over its sweep",
        "{cuts} drivers of {cases} sweeps, {cuts_remote} of them with PostgreSQL; each ended with "
        "code 3 and wrote no more events",
    ),
    Part(
        "drivers",
        drivers.run,
        200,
        "two drivers at once, on one machine and on two",
        "{cases} races; one driver ran, the other named it and ended with code 3",
    ),
    Part(
        "full_disk",
        full_disk.run,
        20,
        "the disk is full, then read-only, then has free space",
        "{cases} sweeps, {trials} trials without a counted failure, each curve bit-identical",
    ),
    Part(
        "mlflow_faults",
        mlflow_faults.run,
        5,
        "MLflow refuses requests, hangs, is slow, answers 500, or loses or truncates answers",
        "{cases} sweeps, no row missing or duplicated; sweeps slower by {slower_percent_median} % "
        "(median; {slower_percent} % at most)",
    ),
    Part(
        "programs",
        programs.run,
        20,
        "trials start processes, in each sweep in one way (multiprocessing, joblib, torch, "
        "gymnasium, programs); kill -9 of the driver's process group, then resume",
        "{trials} trials of {cases} sweeps; {kills} kills interrupted {interrupted} trials; each "
        "trial returned the right result, and no process was left",
    ),
    Part(
        "scheduling",
        scheduling.run,
        100,
        "random events in random order in random sweeps on a simulated pool",
        "{sweeps} sweeps of up to 15 steps each; every condition held after every step",
    ),
)
