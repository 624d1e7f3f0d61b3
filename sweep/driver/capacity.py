"""Capacity of a machine: the number of concurrent trials, and the GPUs of each slot.

All trials of a sweep get the same resources. A GPU share below 1 is a place on one device, shared
by several trials. Trainers limit torch to the share of the memory that ``num_gpus`` names; nothing
limits other trainables.
"""

import itertools
import math
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

import joblib

from sweep import pools
from sweep.core.errors import BadConfig, StorageError
from sweep.pools import Pool
from sweep.spec import SweepSpec
from sweep.views.formatting import plural
from trainables.core.processes import worker

#: Folder in which NVIDIA's driver lists the GPUs.
_NVIDIA = Path("/proc/driver/nvidia/gpus")
#: Environment variable that names the GPUs that CUDA shows.
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: Values of that variable for a process without GPUs.
_NO_DEVICE = ("void", "nodevfiles", "none")
#: Number of slots without any limit; a cluster then uses as many as it has workers.
UNBOUNDED = 1_000_000
#: Maximum number of files that a driver opens for ledger, trackers and libraries.
DRIVER_FILES = 48
#: Name of the pool whose slices run in the driver's own process.
INLINE = "inline"


def gpus(environment: Mapping[str, str] = os.environ, listed: Path = _NVIDIA) -> tuple[str, ...]:
    """Return the names of the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES.

    The first invalid name in it, such as ``-1``, and all after it are left out. Without that
    variable, they are numbers, one for each GPU in the folder `listed`. `environment` has the
    environment variables. The tuple is empty if there are no GPUs.
    """
    if (visible := environment.get(VISIBLE)) is not None:
        named = (name.strip() for name in visible.split(","))
        return tuple(name for name in itertools.takewhile(_is_device, named) if name)
    found = sorted(listed.iterdir()) if listed.is_dir() else []
    return tuple(str(index) for index in range(len(found)))


def _is_device(name: str) -> bool:
    """Return whether a name in CUDA_VISIBLE_DEVICES may be a device.

    CUDA ignores the first invalid name and all after it.
    """
    return name.lower() not in _NO_DEVICE and not name.startswith("-")


def most_at_once(
    spec: SweepSpec, devices: Sequence[str] | None = None, clustered: bool = False
) -> int:
    """Return the largest number of trials that fit at once, by resources and the spec's limits.

    It is `UNBOUNDED` if nothing limits it. Processor cores limit the number only if the spec has
    `machine.cpu`; without it users may start more trials than there are cores.

    Args:
        devices: names of the available GPUs; None to detect them.
        clustered: True if the pool is a cluster: each worker is then started with the resources of
            one trial, so cores and GPUs of this machine do not count.

    Raises:
        BadConfig: not even one trial fits.
    """
    wants, machine = spec.resources, spec.machine
    found = gpus() if devices is None else devices
    count = len(found) if machine.gpu is None else machine.gpu
    places = [float(spec.limits.max_concurrent or UNBOUNDED)]
    cores = machine.cpu or joblib.cpu_count()
    if wants.cpu > cores and not clustered:
        raise _too_little_error(
            spec,
            ("cpu",),
            wants.cpu,
            f"{cores:g} cores",
            "if the machine has more, set machine.cpu",
        )
    if machine.cpu is not None and not clustered:
        places.append(machine.cpu // wants.cpu)
    if wants.gpu and not clustered:
        per_device = math.floor(1 / wants.gpu + 1e-9)
        places.append(count // wants.gpu if wants.gpu >= 1 else count * per_device)
        if not places[-1]:
            raise _too_little_error(
                spec,
                ("gpu",),
                wants.gpu,
                f"{count} GPUs",
                "if the machine has more, set machine.gpu",
            )
    for name, amount in wants.custom.items():
        total = machine.custom.get(name, 0)
        places.append(math.floor(total / amount + 1e-9))
        if not places[-1]:
            hint = (
                f"write how many the machine has, for example machine: {{custom: {{{name}: "
                f"{amount:g}}}}}"
            )
            raise _too_little_error(spec, ("custom", name), amount, f"{total:g} '{name}'", hint)
    return int(min(places))


def allow_files(slots: int, pool: str) -> None:
    """Raise this process's limit of open files, if too low for `slots` slots of a pool.

    The new limit is twice what they need, or the system's hard limit if that is lower.

    A driver that runs out of files can neither write nor end its workers nor report it. `pool` is
    the pool's name; slots in this process or on a cluster need no files.

    Raises StorageError if the system's hard limit is lower.
    """
    local = 0 if pool == INLINE or pools.is_clustered(pool) else slots
    needed = DRIVER_FILES + worker.FILES * local
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = math.inf if hard == resource.RLIM_INFINITY else hard
    if needed > most:
        fewer = ", or give fewer --jobs" if local > 1 else ""
        raise StorageError(
            f"this process may have only {hard} files open, but a driver with "
            f"{plural(slots, 'slot')} needs {needed}; raise the limit with `ulimit -n "
            f"{needed}`{fewer}"
        )
    if needed > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(min(2 * needed, most)), hard))


def allowed_slots(spec: SweepSpec, pool: Pool, jobs: int) -> tuple[int, str]:
    """Return the number of slots that a running pool gets if `jobs` are wanted, and a text.

    The number is smaller if resources or the spec's limits allow no more. If the pool cannot change
    its slots, the text says that the number applies later. Nothing is resized. Raises BadConfig if
    not even one trial fits.
    """
    slots = min(jobs, most_at_once(spec, clustered=pool.clustered))
    if type(pool).resize is Pool.resize and slots != pool.slots:
        later = f"`sweep resume` with another --pool uses {slots}"
        return slots, (
            f"still {pool.slots} at once, because this pool cannot change its number of slots; "
            f"{later}"
        )
    why = ", because limits and resources allow no more" if slots < jobs else ""
    return slots, f"{slots} at once{why}"


def _too_little_error(
    spec: SweepSpec, path: tuple[str, ...], value: float, available: str, hint: str
) -> BadConfig:
    """Return the error that a trial requests more of a resource than the machine has.

    `path` is the resource's key below ``resources``, `value` the requested amount, `available` the
    machine's amount in words, and `hint` advice.
    """
    problem = f"{value:g} is more than the machine has, so no trial could run"
    return spec.source.refuse(("resources", *path), value, f"at most {available}", hint, problem)


def gpu_variables(
    spec: SweepSpec, slot: int, devices: Sequence[str] | None = None
) -> dict[str, str]:
    """Return ``{"CUDA_VISIBLE_DEVICES": "0,1"}`` with the GPUs of slot `slot`, counted from 0.

    It is empty if the spec requests no GPU. Slots beyond the number of devices begin again with the
    first. `devices` are the names of the available GPUs; None to detect them. A spec with
    `machine.gpu` uses that many: the first ones, or further ones named by their numbers.
    """
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
    """Raise BadConfig for limits in the spec that the pool cannot enforce.

    `blocks` is True if the pool runs slices in the driver's process, which cannot be ended for
    `limits.trial_memory` or `limits.no_progress_s`. Otherwise nothing is checked.
    """
    for key in ("trial_memory", "no_progress_s"):
        if blocks and getattr(spec.limits, key) is not None:
            hint = f"use --pool loky, or remove limits.{key}"
            problem = (
                f"inline cannot be used with limits.{key}, because trials train in the process of "
                "sweep itself, which cannot be killed"
            )
            raise BadConfig("--pool", "inline", hint=hint, problem=problem)
