"""Power cuts: what a trial's folder may look like after one always holds what was acknowledged.

    python -m benchmarks.chaos.store_crashes [--out DIR] [--rounds N] [--seed S]

A round records what some saves of a trial do to the disk, with the ledger's part played by marks:
after a save has returned and before older checkpoints are deleted. One save, not the first, fails
half way and is done again; in every other round a process that was killed has made the folder
before. Then all states that a power cut may leave are tried: the newest acknowledged checkpoint and
all others that are still named must be read, to the bit. To show that this would notice, every
fsync of the recording is left out in turn: some state must then be bad.
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

#: Arrays of so many bytes lie in segments here, and segments are so long.
LARGE, CHUNK = 1500, 700
SAVES = 5
#: So many different states there are: what was replaced comes back.
VARIANTS = 3
#: How often the folder is there already, and not yet on the disk.
KILLED_BEFORE = 0.5


@dataclass(frozen=True)
class Named:
    """Checkpoints in the ledger at one moment, newest first: (path below root, digest, variant)."""

    checkpoints: tuple[tuple[str, str, int], ...] = ()


def run(out: Path, rounds: int, seed: int) -> int:
    """Try all power cuts of so many recordings; returns how many cases failed."""
    cases = Cases(out, "store_crashes")
    for number in range(rounds):
        with small_segments():
            ops = record(rng.generator(seed, "crashes", number))
            name = f"seed {seed} round {number}"
            cases.run(name, partial(_all_good, ops))
            for k in range(len(fsyncs(ops))):
                cases.run(f"{name} without fsync {k}", partial(_caught, ops, k))
    return cases.close()


class small_segments:  # noqa: N801 it is used like a function
    """While it is entered, small arrays are large, so that there is much to lose."""

    def __enter__(self) -> None:
        self._real = segments.SEGMENT_BYTES, segments.CHUNK_BYTES
        vars(segments).update(SEGMENT_BYTES=LARGE, CHUNK_BYTES=CHUNK)

    def __exit__(self, *_: object) -> None:
        vars(segments).update(SEGMENT_BYTES=self._real[0], CHUNK_BYTES=self._real[1])


# ---- the recording ----------------------------------------------------------------------------


def record(stream: np.random.Generator) -> list[Op]:
    """The operations of some saves, with marks that are `Named`."""
    root = Path(tempfile.mkdtemp(prefix="store-crashes-"))
    try:
        with Recorder(root) as recorder:
            if stream.random() < KILLED_BEFORE:
                (root / "trials" / "0").mkdir(parents=True)
            variants = stream.integers(VARIANTS, size=SAVES).tolist()
            _saves(recorder, root / "trials" / "0", variants, int(stream.integers(1, SAVES)))
        return recorder.ops
    finally:
        shutil.rmtree(root)


def _saves(recorder: Recorder, folder: Path, variants: Sequence[int], fails: int) -> None:
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
    """Fails at a second write to one file: segments, of one write each, are whole then."""
    calls = [""]

    def fail(name: str) -> None:
        if name == calls[-1] == "write":
            raise OSError(ENOSPC, "No space left on device")
        calls.append(name)

    return fail


def state_of(variant: int) -> Mapping[str, Any]:
    """A small state with a replay of three segments, of which one differs."""
    replay = np.zeros((20, 25), np.float32)
    replay[variant * 7 % 20] = variant + 1
    return {"replay": replay, "weights": np.full(100, variant, np.float64), "n": variant}


def fsyncs(ops: Sequence[Op]) -> list[int]:
    """Return the indices of fsyncs among the operations."""
    return [index for index, op in enumerate(ops) if op.kind == "fsync"]


# ---- the states -------------------------------------------------------------------------------


def bad_states(ops: Sequence[Op]) -> Iterator[str | None]:
    """One entry per state: what is wrong with it, None: nothing."""
    with tempfile.TemporaryDirectory(prefix="store-crashes-", dir=fast_folder()) as scratch:
        stream = rng.generator(0, "subsets")
        for index, (count, state) in enumerate(states(ops, stream, _is_read)):
            root = Path(scratch) / str(index)
            wrong = _lost(root, state, _named_at(ops, count))
            shutil.rmtree(root, ignore_errors=True)
            yield f"after {count} operations: {wrong}" if wrong else None


def _is_read(name: str) -> bool:
    return file.parse_name(name) is not None or bool(segments.PATTERN.fullmatch(name))


def _named_at(ops: Sequence[Op], count: int) -> Named:
    marks = [op.mark for op in ops[:count] if op.kind == "mark"]
    return marks[-1] if marks else Named()


def _lost(root: Path, state: State, named: Named) -> str:
    """Return the fault of `named` read from `state`; empty if all can be read and are as saved."""
    for path, content in state.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return what_is_lost(root, named.checkpoints)


def what_is_lost(root: Path, named: Iterable[tuple[str, str, int]]) -> str:
    """Return the fault of a (path, digest, variant) below `root`: unreadable or another state."""
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
            return f"{path} is not what was saved"
    return ""


def _bits(value: Any) -> bytes:
    return np.asarray(value).tobytes()


def fast_folder() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 names in it are drawn


def _all_good(ops: Sequence[Op]) -> dict[str, int]:
    count = 0
    for count, wrong in enumerate(bad_states(ops), 1):
        if wrong:
            raise Failed(f"state {count} is bad: {wrong}")
    return {"states": count, "operations": len(ops)}


def _caught(ops: Sequence[Op], k: int) -> dict[str, int]:
    left_out = fsyncs(ops)[k]
    rest = [op for index, op in enumerate(ops) if index != left_out]
    for tried, wrong in enumerate(bad_states(rest), 1):
        if wrong:
            return {"tried": tried}
    raise Failed(f"nobody notices that fsync {k} (operation {left_out}) is missing")


if __name__ == "__main__":
    main(run, rounds=20)
