"""The parts of the long run, in the order in which they are run, and what each of them shows."""

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
    """One part: its lines lie in ``OUT/<name>.jsonl``."""

    name: str
    run: Callable[[Path, int, int], int]
    rounds: int
    """The rounds of the long run."""
    shows: str
    """The deed, in the first column of the table."""
    figures: str
    """The results: a template of the figures of its cases."""


_KILLED = (
    "{kills} kills of {cases} sweeps; {slices_again} slices begun anew, {steps_again} steps; "
    "all gone within {gone_s} s"
)
_CLUSTER = "{kills} kills of {cases} sweeps; {slices_again} slices begun anew, {steps_again} steps"

PARTS = (
    Part(
        "store_crashes",
        store_crashes.run,
        20,
        "every state that a power cut may leave, and each fsync left out",
        "{cases} saves, {states} states read to the bit; each fsync that was left out was noticed",
    ),
    Part(
        "store_faults",
        store_faults.run,
        len(store_faults.FAULTS),
        "each write, fsync, rename, open, close, unlink of a save fails, or is its last",
        "{cases} calls, one at a time",
    ),
    Part(
        "store_damage",
        store_damage.run,
        8,
        "a checkpoint cut off at each byte, each of its bits flipped, its segments' too",
        "{tried} damages, each noticed; the checkpoint before it goes on",
    ),
    Part(
        "store_hostile",
        store_hostile.run,
        5,
        "the list of hostile checkpoints, then what chance makes of it",
        "{files} files, none ran anything, no signal",
    ),
    Part(
        "hostile_input",
        hostile_input.run,
        5,
        "hostile specs and ledgers, then what chance makes of good ones",
        "{files} specs and ledgers, {good} of them good, the others refused in one line; no deed, "
        "no signal, {slowest_s} s at most",
    ),
    Part(
        "kill_group",
        partial(kills.run, victim=Victim.GROUP),
        200,
        "kill -9 of the driver's process group, resume",
        _KILLED,
    ),
    Part(
        "kill_driver",
        partial(kills.run, victim=Victim.DRIVER),
        100,
        "kill -9 of the driver alone, resume at once",
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
        "kill -9 of a sweep whose trials are lanes of one program: its driver or the process of "
        "the lanes",
        "{kills} kills of {cases} sweeps, {lost} slices lost with the process of the lanes; all "
        "gone within {gone_s} s",
    ),
    Part(
        "kill_server",
        kill_server.run,
        30,
        "kill -9 of the PostgreSQL server that holds the ledger, or of one of its processes",
        "{kills} kills of {cases} sweeps, {servers} of the whole server; each went on by itself, "
        "no slice begun anew",
    ),
    Part(
        "cluster_scheduler",
        partial(kill_cluster.run, victim="scheduler"),
        30,
        "kill -9 of the scheduler of a Dask cluster, start it and workers again, resume",
        _CLUSTER,
    ),
    Part(
        "cluster_worker",
        partial(kill_cluster.run, victim="worker"),
        30,
        "kill -9 of a Dask worker, or of the child that runs its slice",
        "{kills} kills of {cases} sweeps, {kills_slice} of the child; {slices_again} slices begun "
        "anew, {steps_again} steps",
    ),
    Part(
        "cluster_driver",
        partial(kill_cluster.run, victim="driver"),
        30,
        "kill -9 of a driver whose slices run on a Dask cluster, resume at once",
        _CLUSTER,
    ),
    Part(
        "cluster_storage",
        partial(kill_cluster.run, victim="storage"),
        30,
        "kill -9 of the S3 server that checkpoints go to; it is back after a while, with its data",
        "{kills} kills of {cases} sweeps; each went on by itself, no slice begun anew",
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
        partial(partitions.run, of="workers"),
        60,
        "a Dask worker stands still, another has its slice, it goes on; checkpoints on disk or S3",
        "{cuts} workers of {cases} sweeps, {cuts_remote} of them with S3; they took {late_steps} "
        "more steps and wrote {late_checkpoints} checkpoints, which nobody took",
    ),
    Part(
        "partition_drivers",
        partial(partitions.run, of="drivers"),
        30,
        "a driver stands still, one on another machine has its sweep, it goes on",
        "{cuts} drivers of {cases} sweeps, {cuts_remote} of them with PostgreSQL; each ended with "
        "code 3, and nothing was written in its term any more",
    ),
    Part(
        "drivers",
        drivers.run,
        200,
        "two drivers at once, on one machine and on two",
        "{cases} races; one ran, the other named the one that ran and ended with code 3",
    ),
    Part(
        "full_disk",
        full_disk.run,
        20,
        "the disk is full, then read-only, then free",
        "{cases} sweeps, {trials} trials, none charged, each curve to the bit",
    ),
    Part(
        "mlflow_faults",
        mlflow_faults.run,
        5,
        "MLflow refuses, hangs, is slow, answers 500, loses or cuts its answer",
        "{cases} sweeps, no row missing, none twice; slower by {slower_percent_median} % "
        "(median; {slower_percent} % at most)",
    ),
    Part(
        "programs",
        programs.run,
        20,
        "trials start processes, those of a sweep in one way (multiprocessing, joblib, torch, "
        "gymnasium, programs); kill -9 of the driver's group, resume",
        "{trials} trials of {cases} sweeps; {kills} kills, which cut {interrupted} trials off; "
        "each trial found what it should, and no process was left",
    ),
    Part(
        "scheduling",
        scheduling.run,
        100,
        "anything, in any order, to sweeps drawn by chance on a simulated pool",
        "{sweeps} sweeps of up to 15 steps each; every claim held after every step",
    ),
)
