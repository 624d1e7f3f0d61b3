"""Each call of some saves fails, or is the last one: acknowledged checkpoints are still there.

    python -m benchmarks.chaos.store_faults [--out DIR] [--rounds N] [--seed S]

Calls of Python's `os` fail in this process. If strace is installed and may trace, the system calls
of a separate process (`store_saver`) fail or cause a SIGKILL, one after the other. A round of the
long run is one kind of fault.
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
from benchmarks.chaos.store_crashes import fast_folder, find_loss, small_segments
from benchmarks.chaos.store_disk import Recorder
from benchmarks.chaos.store_saver import Named, save

FAULTS = ("error=EIO", "error=ENOSPC", "signal=KILL", "error=EINTR")
CALLS = (
    *("openat", "write", "pwrite64", "fsync", "fdatasync", "close", "mkdir"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
)
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
#: Time limit of a process, in seconds.
LIMIT_S = 60.0
_STRACE = ("strace", "-qq", "-f", "-e", "signal=none")


def run(out: Path, rounds: int, seed: int) -> int:  # noqa: ARG001 nothing is random
    """Test all calls with `rounds` kinds of faults; return the number of failed cases."""
    cases = Cases(out, "store_faults")
    for error in ERRORS:
        for nth in range(1, calls_of_saving() + 1):
            name = f"call {nth} raises {errno.errorcode[error]}"
            cases.run(name, partial(_fail_in_process, nth, error))
    for fault in FAULTS[:rounds] if can_trace() else ():
        for call, (before, count) in traced_calls().items():
            for nth in range(1, count + 1):
                cases.run(
                    f"{call} {nth} {fault}", partial(fail_in_child, call, before + nth, fault)
                )
    return cases.close()


# ---- in this process --------------------------------------------------------------------------


def calls_of_saving() -> int:
    """Return the number of calls of `save` that concern its folder."""
    calls = 0

    def count(_: str) -> None:
        nonlocal calls
        calls += 1

    _saved_with(count)
    return calls


def _fail_in_process(nth: int, error: int) -> dict[str, int]:
    left = iter(range(nth - 1))

    def fail(_: str) -> None:
        nonlocal left
        if next(left, None) is None:
            left = iter(range(10**9))
            raise OSError(error, os.strerror(error))

    return _saved_with(fail)


def _saved_with(before: Callable[[str], None]) -> dict[str, int]:
    answers: list[Named | None] = []
    root = Path(tempfile.mkdtemp(prefix="store-faults-", dir=fast_folder()))
    try:
        with small_segments():
            with Recorder(root, before):
                save(root / "trial", answers.append)
            return _judge(root / "trial", answers)
    finally:
        shutil.rmtree(root)


# ---- in a process of its own ------------------------------------------------------------------


def can_trace() -> bool:
    """Return whether strace is installed and may trace."""
    try:
        return not subprocess.run([*_STRACE, "true"], capture_output=True, check=False).returncode  # noqa: S603
    except FileNotFoundError:
        return False


def traced_calls() -> dict[str, tuple[int, int]]:
    """Return system call → its numbers in `store_saver` before the saving and during it."""
    with tempfile.TemporaryDirectory(prefix="store-faults-", dir=fast_folder()) as scratch:
        folder, log = Path(scratch) / "trial", Path(scratch) / "log"
        _trace(folder, ["-o", str(log), "-e", f"trace={','.join(CALLS)}"])
        text = log.read_text()
    begins = text.index("\n", text.index(f'mkdir("{folder}"'))  # the creation of its folder
    before, after = (
        Counter(re.findall(r"^\d+ +(\w+)\(", part, re.MULTILINE))
        for part in (text[:begins], text[begins:])
    )
    return {call: (before[call], count) for call, count in after.items() if call in CALLS}


def fail_in_child(call: str, nth: int, fault: str) -> dict[str, int]:
    """Cause `fault` at the nth such system call of `store_saver`; return the figures.

    Raises Failed if an acknowledged checkpoint is lost.
    """
    with tempfile.TemporaryDirectory(prefix="store-faults-", dir=fast_folder()) as scratch:
        folder = Path(scratch) / "trial"
        inject = f"inject={call}:{fault}:when={nth}"
        answers = _trace(folder, ["-o", os.devnull, "-e", f"trace={call}", "-e", inject])
        with small_segments():
            return _judge(folder, answers)


def _trace(folder: Path, options: list[str]) -> list[Named | None]:
    program = [sys.executable, "-m", "benchmarks.chaos.store_saver", str(folder)]
    done = subprocess.run(  # noqa: S603 our own process
        [*_STRACE, *options, *program],
        capture_output=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        timeout=LIMIT_S,
        check=False,
    )
    if not folder.is_dir():
        raise Failed(f"the process did not start: {done.stderr.decode()[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- judgement --------------------------------------------------------------------------------


def _judge(folder: Path, answers: list[Named | None]) -> dict[str, int]:
    acknowledged = [named for named in answers if named]
    for named in acknowledged[-1:]:
        if error := find_loss(folder, named):
            raise Failed(error)
    return {"acknowledged": len(acknowledged), "refused": answers.count(None)}


if __name__ == "__main__":
    main(run, rounds=len(FAULTS))
