"""Every call of some saves fails, or is the last one: what was acknowledged is still there.

    python -m benchmarks.chaos.store_faults [--out DIR] [--rounds N] [--seed S]

Two ways. Calls of Python's `os` are made to fail in this process, which needs nothing. Where strace
is installed and may trace, the system calls of a process of its own (`store_saver`) fail or bring a
SIGKILL, each call of each kind in turn; a round of the long run is one kind of fault.
"""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.store_crashes import fast_folder, small_segments, what_is_lost
from benchmarks.chaos.store_disk import Recorder
from benchmarks.chaos.store_saver import Named, save

FAULTS = ("error=EIO", "error=ENOSPC", "signal=KILL", "error=EINTR")
CALLS = (
    *("openat", "write", "pwrite64", "fsync", "fdatasync", "close", "mkdir"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
)
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
#: Seconds that a process may take.
LIMIT_S = 60.0
_STRACE = ("strace", "-qq", "-f", "-e", "signal=none")


def run(out: Path, rounds: int, seed: int) -> int:  # noqa: ARG001 nothing here is drawn
    """All calls, under so many kinds of faults; returns how many cases failed."""
    cases = Cases(out, "store_faults")
    for error in ERRORS:
        for nth in range(1, calls_of_saving() + 1):
            name = f"call {nth} raises {errno.errorcode[error]}"
            cases.run(name, partial(_fails_here, nth, error))
    for fault in FAULTS[:rounds] if can_trace() else ():
        for call, (before, count) in traced_calls().items():
            for nth in range(1, count + 1):
                cases.run(f"{call} {nth} {fault}", partial(fails_there, call, before + nth, fault))
    return cases.close()


# ---- in this process --------------------------------------------------------------------------


def calls_of_saving() -> int:
    """Return how many calls below its folder `save` makes."""
    calls = 0

    def count(_: str) -> None:
        nonlocal calls
        calls += 1

    _saved_with(count)
    return calls


def _fails_here(nth: int, error: int) -> dict[str, int]:
    left = iter(range(nth - 1))

    def fail(_: str) -> None:
        nonlocal left
        if next(left, None) is None:
            left = iter(range(10**9))
            raise OSError(error, os.strerror(error))

    return _saved_with(fail)


def _saved_with(before: Callable[[str], None]) -> dict[str, int]:
    said: list[Named | None] = []
    root = Path(tempfile.mkdtemp(prefix="store-faults-", dir=fast_folder()))
    try:
        with small_segments():
            with Recorder(root, before):
                save(root / "trial", said.append)
            return _checked(root / "trial", said)
    finally:
        shutil.rmtree(root)


# ---- in a process of its own ------------------------------------------------------------------


def can_trace() -> bool:
    """Return whether strace is installed and allowed."""
    try:
        return not subprocess.run([*_STRACE, "true"], capture_output=True, check=False).returncode  # noqa: S603
    except FileNotFoundError:
        return False


def traced_calls() -> dict[str, tuple[int, int]]:
    """System call → how often `store_saver` makes it before it saves, and from then on."""
    with tempfile.TemporaryDirectory(prefix="store-faults-", dir=fast_folder()) as scratch:
        folder, log = Path(scratch) / "trial", Path(scratch) / "log"
        _trace(folder, ["-o", str(log), "-e", f"trace={','.join(CALLS)}"])
        text = log.read_text()
    begins = text.index("\n", text.index(f'mkdir("{folder}"'))  # where its own folder is made
    before, after = (
        Counter(re.findall(r"^\d+ +(\w+)\(", part, re.MULTILINE))
        for part in (text[:begins], text[begins:])
    )
    return {call: (before[call], count) for call, count in after.items() if call in CALLS}


def fails_there(call: str, nth: int, fault: str) -> dict[str, int]:
    """Let `fault` happen at the nth such system call of `store_saver`; raises Failed."""
    with tempfile.TemporaryDirectory(prefix="store-faults-", dir=fast_folder()) as scratch:
        folder = Path(scratch) / "trial"
        inject = f"inject={call}:{fault}:when={nth}"
        said = _trace(folder, ["-o", os.devnull, "-e", f"trace={call}", "-e", inject])
        with small_segments():
            return _checked(folder, said)


def _trace(folder: Path, options: list[str]) -> list[Named | None]:
    program = [sys.executable, "-m", "benchmarks.chaos.store_saver", str(folder)]
    done = subprocess.run(  # noqa: S603 a process of ours
        [*_STRACE, *options, *program],
        capture_output=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        timeout=LIMIT_S,
        check=False,
    )
    if not folder.is_dir():
        raise Failed(f"it did not begin: {done.stderr.decode()[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- what must be there -----------------------------------------------------------------------


def _checked(folder: Path, said: list[Named | None]) -> dict[str, int]:
    acknowledged = [named for named in said if named]
    for named in acknowledged[-1:]:
        if wrong := what_is_lost(folder, named):
            raise Failed(wrong)
    return {"acknowledged": len(acknowledged), "refused": said.count(None)}


if __name__ == "__main__":
    main(run, rounds=len(FAULTS))
