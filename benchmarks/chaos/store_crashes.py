"""Power cuts: every state that one may leave contains all acknowledged checkpoints.

    python -m benchmarks.chaos.store_crashes [--out DIR] [--rounds N] [--seed S]

A round records the operations of some saves of a trial; marks stand for the ledger's commits, after
a save has returned and before older checkpoints are deleted. One save, not the first, fails halfway
and is repeated; in half of the rounds a killed process has created the folder before. Then all
states that a power cut may leave are tried: all named checkpoints must be read, to the bit. As a
check of the test itself, each fsync of the recording is omitted, one after the other: some state
must then be bad.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import ENOSPC
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.store_disk import Op, Recorder, State, states
from sweep.slices import retention as checkpoints
from trainables.checkpoint import file, segments
from trainables.core import rng
from trainables.errors import CheckpointError

#: Bytes of an array from which on it is stored in segments, and bytes of a segment.
LARGE, CHUNK = 1500, 700
SAVES = 5
#: Number of different states; a replaced state is saved again later.
VARIANTS = 3
#: Probability that the folder exists before, but is not yet on the disk.
KILLED_BEFORE = 0.5


@dataclass(frozen=True)
class Named:
    """Checkpoints in the ledger at one moment."""

    checkpoints: tuple[tuple[str, str, int], ...] = ()
    """(path below the root, digest, variant) of each, newest first."""


def run(out: Path, rounds: int, seed: int) -> int:
    """Try all power cuts of `rounds` recordings; return the number of failed cases."""
    cases = Cases(out, "store_crashes")
    for number in range(rounds):
        with small_segments():
            ops = record(rng.generator(seed, "crashes", number))
            name = f"seed {seed} round {number}"
            cases.run(name, partial(_check_states, ops))
            for k in range(len(fsyncs(ops))):
                cases.run(f"{name} without fsync {k}", partial(_check_omission, ops, k))
    return cases.close()


class small_segments:  # noqa: N801 used like a function
    """Context manager in which small arrays are stored in segments, too."""

    def __enter__(self) -> None:
        self._real = segments.SEGMENT_BYTES, segments.CHUNK_BYTES
        vars(segments).update(SEGMENT_BYTES=LARGE, CHUNK_BYTES=CHUNK)

    def __exit__(self, *_: object) -> None:
        vars(segments).update(SEGMENT_BYTES=self._real[0], CHUNK_BYTES=self._real[1])


# ---- the recording ----------------------------------------------------------------------------


def record(stream: np.random.Generator) -> list[Op]:
    """Return the operations of some saves, with marks of type `Named`."""
    root = Path(tempfile.mkdtemp(prefix="store-crashes-"))
    try:
        with Recorder(root) as recorder:
            if stream.random() < KILLED_BEFORE:
                (root / "trials" / "0").mkdir(parents=True)
            variants = stream.integers(VARIANTS, size=SAVES).tolist()
            _save_all(recorder, root / "trials" / "0", variants, int(stream.integers(1, SAVES)))
        return recorder.ops
    finally:
        shutil.rmtree(root)


def _save_all(recorder: Recorder, folder: Path, variants: Sequence[int], fails: int) -> None:
    named: list[tuple[str, str, int]] = []
    for number, variant in enumerate(variants):
        if number == fails:
            recorder.before = _full_disk()
            with contextlib.suppress(OSError):
                file.write(folder, number, {}, state_of(variant))
            recorder.before = lambda _: None
        saved = file.write(folder, number, {}, state_of(variant))
        path = saved.path.relative_to(recorder.root)
        named = [(str(path), saved.digest, variant), *named][: checkpoints.ALWAYS_KEPT]
        recorder.mark(Named(tuple(named)))
        checkpoints.sweep_up(folder, [Path(path).name for path, *_ in named])


def _full_disk() -> Callable[[str], None]:
    """Return a function that fails at the second write to one file; a segment has one write."""
    calls = [""]

    def fail(name: str) -> None:
        if name == calls[-1] == "write":
            raise OSError(ENOSPC, "No space left on device")
        calls.append(name)

    return fail


def state_of(variant: int) -> Mapping[str, Any]:
    """Return a small state with a replay of three segments; one depends on the variant."""
    replay = np.zeros((20, 25), np.float32)
    replay[variant * 7 % 20] = variant + 1
    return {"replay": replay, "weights": np.full(100, variant, np.float64), "n": variant}


def fsyncs(ops: Sequence[Op]) -> list[int]:
    """Return the indices of the fsyncs among the operations."""
    return [index for index, op in enumerate(ops) if op.kind == "fsync"]


# ---- the states -------------------------------------------------------------------------------


def bad_states(ops: Sequence[Op]) -> Iterator[str | None]:
    """Yield the error of each possible state, None for a good one."""
    with tempfile.TemporaryDirectory(prefix="store-crashes-", dir=fast_folder()) as scratch:
        stream = rng.generator(0, "subsets")
        for index, (count, state) in enumerate(states(ops, stream, _is_read)):
            root = Path(scratch) / str(index)
            error = _find_loss(root, state, _named_at(ops, count))
            shutil.rmtree(root, ignore_errors=True)
            yield f"after {count} operations: {error}" if error else None


def _is_read(name: str) -> bool:
    return file.parse_name(name) is not None or bool(segments.PATTERN.fullmatch(name))


def _named_at(ops: Sequence[Op], count: int) -> Named:
    marks = [op.mark for op in ops[:count] if op.kind == "mark"]
    return marks[-1] if marks else Named()


def _find_loss(root: Path, state: State, named: Named) -> str:
    """Return the error of reading `named` from `state`; empty if all are as saved."""
    for path, content in state.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return find_loss(root, named.checkpoints)


def find_loss(root: Path, named: Iterable[tuple[str, str, int]]) -> str:
    """Return the error of the first (path, digest, variant) that is not as saved; empty if none."""
    for path, digest, variant in named:
        try:
            found = file.read(root / path, digest).state
        except CheckpointError as error:
            return str(error)
        expected = state_of(variant)
        if any(
            np.asarray(found[key]).tobytes() != np.asarray(expected[key]).tobytes()
            for key in expected
        ):
            return f"{path} differs from the saved state"
    return ""


def fast_folder() -> str | None:
    """Return a folder in memory, or None if there is none."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 names in it are random


def _check_states(ops: Sequence[Op]) -> dict[str, int]:
    count = 0
    for count, error in enumerate(bad_states(ops), 1):
        if error:
            raise Failed(f"state {count} is bad: {error}")
    return {"states": count, "operations": len(ops)}


def _check_omission(ops: Sequence[Op], k: int) -> dict[str, int]:
    omitted = fsyncs(ops)[k]
    rest = [op for index, op in enumerate(ops) if index != omitted]
    for tried, error in enumerate(bad_states(rest), 1):
        if error:
            return {"tried": tried}
    raise Failed(f"the omission of fsync {k} (operation {omitted}) is not detected")


if __name__ == "__main__":
    main(run, rounds=20)
