"""Capacity of a machine: how many trials fit at once, and the GPUs of each slot.

All trials of a sweep are given the same. A share of a GPU below 1 is a place on one device, which
several trials share; nothing holds a trial to its share of the memory.
"""

import itertools
import math
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

import joblib

from sweep import pools
from sweep.errors import BadConfig, StorageError
from sweep.pools import Pool
from sweep.spec import SweepSpec
from sweep.views.formatting import plural
from trainables.core.processes import worker

#: Where the driver of NVIDIA's GPUs lists them.
_NVIDIA = Path("/proc/driver/nvidia/gpus")
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: Words that stand there where a process shall see none.
_NO_DEVICE = ("void", "nodevfiles", "none")
#: Slots where nothing bounds them: on a cluster, as many as it has workers.
UNBOUNDED = 1_000_000
#: Files that a driver opens beside those of its workers, at most: ledger, trackers, libraries.
DRIVER_FILES = 48
#: The pool whose slices run in the driver's own process.
INLINE = "inline"


def gpus(environment: Mapping[str, str] = os.environ, listed: Path = _NVIDIA) -> tuple[str, ...]:
    """The devices that this process may use, as CUDA names them."""
    if (visible := environment.get(VISIBLE)) is not None:
        named = (name.strip() for name in visible.split(","))
        return tuple(name for name in itertools.takewhile(_is_device, named) if name)
    found = sorted(listed.iterdir()) if listed.is_dir() else []
    return tuple(str(index) for index in range(len(found)))


def _is_device(name: str) -> bool:
    """Return whether it names a device; CUDA drops the first that does not, and all behind it."""
    return name.lower() not in _NO_DEVICE and not name.startswith("-")


def most_at_once(
    spec: SweepSpec, devices: Sequence[str] | None = None, clustered: bool = False
) -> int:
    """Return how many trials fit beside each other by their resources, whatever ``--jobs`` says.

    Processor cores bound this only where ``machine.cpu`` says how many there are: without it a
    person may start more trials than cores. On a cluster each worker is given what a trial needs
    by who starts it; cores and GPUs of the driver's machine bound nothing there.

    Raises:
        BadConfig: not even one fits.
    """
    wants, machine = spec.resources, spec.machine
    found = gpus() if devices is None else devices
    count = len(found) if machine.gpu is None else machine.gpu
    places = [float(spec.limits.max_concurrent or UNBOUNDED)]
    cores = machine.cpu or joblib.cpu_count()
    if wants.cpu > cores and not clustered:
        raise _too_much(spec, ("cpu",), wants.cpu, f"{cores:g} cores", "machine.cpu says otherwise")
    if machine.cpu is not None and not clustered:
        places.append(machine.cpu // wants.cpu)
    if wants.gpu and not clustered:
        per_device = math.floor(1 / wants.gpu + 1e-9)
        places.append(count // wants.gpu if wants.gpu >= 1 else count * per_device)
        if not places[-1]:
            raise _too_much(
                spec, ("gpu",), wants.gpu, f"{count} GPUs", "machine.gpu says otherwise"
            )
    for name, amount in wants.custom.items():
        total = machine.custom.get(name, 0)
        places.append(math.floor(total / amount + 1e-9))
        if not places[-1]:
            hint = f"say how many there are: machine: {{custom: {{{name}: {amount:g}}}}}"
            raise _too_much(spec, ("custom", name), amount, f"{total:g} '{name}'", hint)
    return int(min(places))


def allow_files(slots: int, pool: str) -> None:
    """See that a driver with so many slots may open the files that it needs.

    A driver that runs out of them later can neither write, nor end its workers, nor say so.

    Raises:
        StorageError: the system allows this process fewer.
    """
    local = 0 if pool == INLINE or pools.is_clustered(pool) else slots
    needed = DRIVER_FILES + worker.FILES * local
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = math.inf if hard == resource.RLIM_INFINITY else hard
    if needed > most:
        fewer = ", or give fewer --jobs" if local > 1 else ""
        raise StorageError(
            f"this process may have {hard} files open, and a driver with "
            f"{plural(slots, 'slot')} needs {needed}; allow more with `ulimit -n 1024`{fewer}"
        )
    if needed > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(2 * needed, most)), hard))


def resized(spec: SweepSpec, pool: Pool, jobs: int) -> tuple[int, str]:
    """Return the number of slots for a running pool that is asked for `jobs`, and that in words."""
    slots = min(jobs, most_at_once(spec, clustered=pool.clustered))
    if type(pool).resize is Pool.resize and slots != pool.slots:
        later = f"{slots} when `sweep resume` takes another --pool"
        return slots, f"{pool.slots} at once as before, as this pool keeps its slots; {later}"
    why = ", as limits and resources allow no more" if slots < jobs else ""
    return slots, f"{slots} at once{why}"


def _too_much(
    spec: SweepSpec, path: tuple[str, ...], value: float, there: str, hint: str
) -> BadConfig:
    problem = f"{value:g} is more than the machine has, so that no trial could ever run"
    return spec.source.refuse(("resources", *path), value, f"at most {there}", hint, problem)


def variables(spec: SweepSpec, slot: int, devices: Sequence[str] | None = None) -> dict[str, str]:
    """Environment variables of the process in slot `slot`, counted from 0."""
    wants = spec.resources.gpu
    if not wants:
        return {}
    found = gpus() if devices is None else devices
    if spec.machine.gpu is not None:
        found = (*found, *map(str, range(len(found), spec.machine.gpu)))[: spec.machine.gpu]
    if wants < 1:
        chosen = [slot // math.floor(1 / wants + 1e-9)]
    else:
        chosen = list(range(int(slot * wants), int((slot + 1) * wants)))
    return {VISIBLE: ",".join(found[index % len(found)] for index in chosen)}


def check_pool(spec: SweepSpec, blocks: bool) -> None:
    """Raise BadConfig for limits that nobody could keep a trial to in the driver's own process."""
    for key in ("trial_memory", "no_progress_s"):
        if blocks and getattr(spec.limits, key) is not None:
            hint = f"remove limits.{key}, or use --pool loky"
            raise BadConfig("--pool", "inline", "a pool of processes that can be ended", hint)
