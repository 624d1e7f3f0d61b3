"""This machine: packages, the folder of all sweeps, the signing key, cores and memory."""

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import joblib
import psutil

from sweep import pickled
from sweep.operations.doctor.finding import Finding, Look
from sweep.spec.sections import in_words
from trainables.checkpoint import disk, signing

#: What pip knows the project by.
DISTRIBUTION = "sweep-rl"
#: Free bytes of a disk below which a sweep may soon end.
LITTLE_DISK = 10**9
#: Free bytes of memory that processes share; a container has 64 MB unless it is given more.
LITTLE_SHARED = 32 * 10**6
#: Bytes of memory for each core below which not every core can take a trial.
LITTLE_MEMORY = 5 * 10**8
_SHARED = Path("/dev/shm")  # noqa: S108 nothing is made in it
_ELSEWHERE = "give --root a folder that you may write"
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def looks(root: Path) -> list[Look]:
    """Everything of this machine that is looked at."""
    return [
        Look("packages", _packages, f"pip install --upgrade {DISTRIBUTION}"),
        Look("root", lambda: _rights(root), _ELSEWHERE),
        Look("disk", lambda: _disk(root), "free some space, or give --root another disk"),
        Look("key", _key, "see that ~/.config/sweep can be read"),
        Look("memory", lambda: [_memory(), _shared()], "see what this system allows"),
    ]


def nearest(root: Path) -> Path:
    """The folder of all sweeps, or where it is to be made."""
    root = root.absolute()
    return next(path for path in (root, *root.parents) if path.is_dir())


def _packages() -> list[Finding]:
    has = ", ".join(f"{name} {version}" for name, version in pickled.libraries().items())
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        seen = f"{has}; what is needed beside is not known: {DISTRIBUTION} is not installed by pip"
        return [Finding("packages", "warning", seen, f"pip install {DISTRIBUTION}")]
    if wrong := list(unfit(required)):
        todo = f"pip install --upgrade {DISTRIBUTION}"
        return [Finding("packages", "problem", ", ".join(wrong), todo)]
    return [Finding("packages", "ok", has)]


def unfit(required: Iterable[str]) -> Iterator[str]:
    """Yield the requirements that are not met by what is installed, extras left out."""
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
            yield f"{needed.name} is {version}, needed is {needed.specifier}"


def _rights(root: Path) -> list[Finding]:
    folder = nearest(root)
    name = f".sweep-doctor-{secrets.token_hex(8)}"
    began = time.perf_counter()
    try:
        with disk.open_folder(folder) as descriptor:
            disk.publish(descriptor, name, len(name), [name.encode()], 0)
            os.unlink(name, dir_fd=descriptor)
            disk.sync(descriptor)
    except OSError as error:
        why = f"{folder}: nothing can be written there ({error.strerror})"
        return [Finding("root", "problem", why, _ELSEWHERE)]
    took = 1000 * (time.perf_counter() - began)
    return [Finding("root", "ok", f"{folder}: written and put on the disk in {took:.0f} ms")]


def _disk(root: Path) -> list[Finding]:
    folder = nearest(root)
    found = shutil.disk_usage(folder)
    seen = f"{folder}: {in_words(found.free)} free of {in_words(found.total)}"
    if found.free >= LITTLE_DISK:
        return [Finding("disk", "ok", seen)]
    return [Finding("disk", "warning", seen, "`sweep gc` deletes what nobody needs")]


def _key() -> list[Finding]:
    trust = signing.load_trust()
    if trust.key:
        return [Finding("key", "ok", f"your signing key {trust.name}, readable by you alone")]
    folder = nearest(Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"))
    if os.access(folder, os.W_OK):
        return [Finding("key", "ok", "you have no signing key yet; the first sweep makes one")]
    todo = "set XDG_CONFIG_HOME to a folder of yours"
    return [Finding("key", "problem", f"there is no signing key, and {folder} is no place", todo)]


def _memory() -> Finding:
    cores = joblib.cpu_count()
    bound = min([psutil.virtual_memory().total, *_limits()])
    seen = f"{cores} cores, {in_words(bound)} of memory"
    if bound >= cores * LITTLE_MEMORY:
        return Finding("memory", "ok", seen)
    fit = max(1, bound // LITTLE_MEMORY)
    return Finding("memory", "warning", seen, f"begin with --jobs {fit}")


def _limits() -> Iterator[int]:
    """Yield the limits of memory of this container or service, in bytes."""
    for name in _LIMITS:
        try:
            yield int(Path(name).read_text())
        except (OSError, ValueError):  # none, or the word "max"
            continue


def _shared() -> Finding:
    try:
        free = shutil.disk_usage(_SHARED).free
    except OSError:
        free = 0
    if _SHARED.exists() and not os.access(
        _SHARED, os.W_OK
    ):  # also where its file system is read-only
        todo = "mount it so that worker processes can write it, or use --pool inline"
        return Finding("memory", "problem", f"{_SHARED}: cannot be written", todo)
    seen = f"{_SHARED}: {in_words(free)} free"
    if free >= LITTLE_SHARED:
        return Finding("memory", "ok", seen)
    return Finding("memory", "warning", seen, "give the container more, such as --shm-size=1g")
