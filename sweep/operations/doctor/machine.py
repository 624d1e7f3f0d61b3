"""Check this machine: packages, the folder of all sweeps, the signing key, cores and memory."""

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import joblib
import psutil

from sweep.core import pickled
from sweep.operations.doctor.finding import Check, Finding
from sweep.spec.sections import size_text
from trainables.checkpoint import disk, signing

#: Name of the project's distribution for pip.
DISTRIBUTION = "sweep-rl"
#: Free bytes of a disk below which there is a warning.
LOW_DISK = 10**9
#: Free bytes of shared memory below which there is a warning; containers have 64 MB by default.
LOW_SHARED = 32 * 10**6
#: Bytes of memory that one trial needs, for the warning about too little memory.
LOW_MEMORY = 5 * 10**8
#: Folder of shared memory.
_SHARED = Path("/dev/shm")  # noqa: S108 nothing is created in it
#: Advice if the folder of all sweeps cannot be used.
_OTHER_ROOT = "choose a writable folder with --root"
#: Files with the memory limit of a container, in bytes.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def checks(root: Path) -> list[Check]:
    """Return the checks of this machine, none of them run yet.

    `root` is the folder of all sweeps.
    """
    return [
        Check("packages", _packages, f"pip install --upgrade {DISTRIBUTION}"),
        Check("root", lambda: _rights(root), _OTHER_ROOT),
        Check("disk", lambda: _disk(root), "free some space, or choose another disk with --root"),
        Check("key", _key, "make ~/.config/sweep readable"),
        Check("memory", lambda: [_memory(), _shared()], "check the limits of this system"),
    ]


def existing_ancestor(root: Path) -> Path:
    """Return the absolute path of `root`, or of its nearest parent that is an existing folder."""
    root = root.absolute()
    return next(path for path in (root, *root.parents) if path.is_dir())


def _packages() -> list[Finding]:
    """Compare the versions of the installed packages with those that our distribution requires.

    Returns one finding: a problem that lists the unmet requirements, or an ok with the versions. It
    is a warning if pip has not installed our distribution.
    """
    has = ", ".join(f"{name} {version}" for name, version in pickled.libraries().items())
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        seen = f"{has}; other requirements are unknown: {DISTRIBUTION} is not installed by pip"
        return [Finding("packages", "warning", seen, f"pip install {DISTRIBUTION}")]
    if wrong := list(unmet_requirements(required)):
        todo = f"pip install --upgrade {DISTRIBUTION}"
        return [Finding("packages", "problem", ", ".join(wrong), todo)]
    return [Finding("packages", "ok", has)]


def unmet_requirements(required: Iterable[str]) -> Iterator[str]:
    """Yield a message for each requirement that the installed packages do not meet.

    `required` has lines like ``numpy>=2``; requirements of extras, and those whose marker does not
    fit this system, are ignored.
    """
    from packaging.requirements import Requirement

    for needed in map(Requirement, required):
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            yield f"{needed.name} is not installed"
            continue
        if not needed.specifier.contains(version, prereleases=True):
            yield f"{needed.name} is {version}, but {needed.specifier} is required"


def _rights(root: Path) -> list[Finding]:
    """Write a file into the root's folder, sync and delete it; report the time or the error.

    If that folder does not exist yet, its nearest existing parent is tested.
    """
    folder = existing_ancestor(root)
    name = f".sweep-doctor-{secrets.token_hex(8)}"
    began = time.perf_counter()
    try:
        with disk.open_folder(folder) as descriptor:
            disk.publish(descriptor, name, len(name), [name.encode()], 0)
            os.unlink(name, dir_fd=descriptor)
            disk.sync(descriptor)
    except OSError as error:
        why = f"{folder}: nothing can be written there ({error.strerror})"
        return [Finding("root", "problem", why, _OTHER_ROOT)]
    took = 1000 * (time.perf_counter() - began)
    return [Finding("root", "ok", f"{folder}: a file was written and synced in {took:.0f} ms")]


def _disk(root: Path) -> list[Finding]:
    """Report the free space of the root's disk; a warning below `LOW_DISK` bytes."""
    folder = existing_ancestor(root)
    found = shutil.disk_usage(folder)
    seen = f"{folder}: {size_text(found.free)} free of {size_text(found.total)}"
    if found.free >= LOW_DISK:
        return [Finding("disk", "ok", seen)]
    return [Finding("disk", "warning", seen, "`sweep gc` deletes files that are no longer needed")]


def _key() -> list[Finding]:
    """Report whether the user has a signing key, or a folder in which one can be created.

    It is a problem if there is neither. Nothing is created.
    """
    trust = signing.load_trust()
    if trust.key:
        return [Finding("key", "ok", f"your signing key {trust.name}, readable by you alone")]
    folder = existing_ancestor(Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"))
    if os.access(folder, os.W_OK):
        return [Finding("key", "ok", "you have no signing key yet; the first sweep creates one")]
    todo = "set XDG_CONFIG_HOME to a folder to which you can write"
    return [
        Finding(
            "key", "problem", f"you have no signing key, and none can be created in {folder}", todo
        )
    ]


def _memory() -> Finding:
    """Report cores and memory; a warning if one trial on each core needs more than there is.

    A trial is taken to need `LOW_MEMORY` bytes.
    """
    cores = joblib.cpu_count()
    bound = min([psutil.virtual_memory().total, *_limits()])
    seen = f"{cores} cores, {size_text(bound)} of memory"
    if bound >= cores * LOW_MEMORY:
        return Finding("memory", "ok", seen)
    fit = max(1, bound // LOW_MEMORY)
    return Finding(
        "memory",
        "warning",
        seen,
        f"start with --jobs {fit}, so that trials do not run out of memory",
    )


def _limits() -> Iterator[int]:
    """Yield the memory limits that the system sets for this container or service, in bytes.

    Nothing is yielded if it sets none.
    """
    for name in _LIMITS:
        try:
            yield int(Path(name).read_text())
        except (OSError, ValueError):  # no file, or the word "max"
            continue


def _shared() -> Finding:
    """Report the free shared memory in ``/dev/shm``, which worker processes need.

    It is a warning below `LOW_SHARED` bytes, and a problem if nothing can be written there.
    """
    try:
        free = shutil.disk_usage(_SHARED).free
    except OSError:
        free = 0
    if _SHARED.exists() and not os.access(
        _SHARED, os.W_OK
    ):  # also where its file system is read-only
        todo = "make it writable for worker processes, or use --pool inline"
        return Finding("memory", "problem", f"{_SHARED}: cannot be written", todo)
    seen = f"{_SHARED}: {size_text(free)} free"
    if free >= LOW_SHARED:
        return Finding("memory", "ok", seen)
    return Finding(
        "memory",
        "warning",
        seen,
        "give the container more shared memory, for example with --shm-size=1g",
    )
