"""Damage at every byte of a real checkpoint: it is always detected, without a crash.

    python -m benchmarks.chaos.store_damage [--out DIR] [--rounds N] [--seed S]

The newest checkpoint of a trainer is truncated at every byte, and one bit of each of its bytes and
of its segments' bytes is flipped. Each time it must be refused as corrupt. At every `FALL_BACK`-th
byte a slice is also loaded, which must continue from the previous checkpoint, or from the beginning
if both checkpoints name the damaged segment. A round is one of the eight bits of each byte.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.store_crashes import fast_folder, small_segments, state_of
from sweep.history.events import Saved
from sweep.slices import checkpoints
from sweep.slices.store import Store
from tests.support.slices import slice_spec
from trainables.algorithms.ppo import PPO
from trainables.checkpoint import file as checkpoint_file
from trainables.errors import CorruptCheckpoint
from trainables.trainable import TrialContext

SETTINGS = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 32,
    "train_batch_size": 64,
    "num_sgd_iter": 1,
    "sgd_minibatch_size": 64,
    "model": {"hidden": [8]},
    "observation_filter": "MeanStdFilter",
}
#: Number of bytes that one case damages, one after the other.
STRETCH = 2000
FALL_BACK = 100


def run(out: Path, rounds: int, seed: int) -> int:
    """Damage every byte, flipping `rounds` of its bits; return the number of failed cases."""
    cases = Cases(out, "store_damage")
    with two_checkpoints(seed) as trial:
        length = trial.path.stat().st_size
        for start in range(0, length, STRETCH):
            stretch = range(start, min(start + STRETCH, length))
            cases.run(f"truncated at {start}…", partial(trial.cut, stretch))
            for bit in range(rounds):
                cases.run(f"bit {bit} flipped at {start}…", partial(trial.flip, stretch, bit))
        for segment in [*trial.segments(shared=False), *trial.segments(shared=True)]:
            every = range(segment.stat().st_size)
            for bit in range(rounds):
                case = partial(trial.flip, every, bit, segment)
                cases.run(f"bit {bit} flipped in {segment.name}", case)
    return cases.close()


class Trial:
    """Two checkpoints of a trial; the newer one is damaged.

    Args:
        saved: the older and the newer checkpoint.
    """

    def __init__(self, folder: Path, saved: list[checkpoint_file.Saved]) -> None:
        self.path, self.digest = saved[1].path, saved[1].digest
        newest_first = [
            Saved(number, one.digest, one.path.name, one.size)
            for number, one in ((2, saved[1]), (1, saved[0]))
        ]
        self.shared = {
            folder / name
            for name in checkpoint_file.segments_of(saved[0].path)
            & checkpoint_file.segments_of(saved[1].path)
        }
        self.slice = slice_spec(folder, sources=newest_first, sweep_id="s")

    def segments(self, shared: bool) -> list[Path]:
        """Return the segments of the newer checkpoint that the older one also has, or has not."""
        names = sorted(checkpoint_file.segments_of(self.path))
        paths = [self.path.with_name(name) for name in names]
        return [path for path in paths if (path in self.shared) == shared]

    def cut(self, lengths: range) -> dict[str, int]:
        """Truncate the file to each of these lengths."""
        whole = self.path.read_bytes()
        for length in reversed(lengths):
            os.truncate(self.path, length)
            self._check(f"truncated at {length}", length, 1)
        self.path.write_bytes(whole)
        return {"tried": len(lengths)}

    def flip(self, positions: range, bit: int, path: Path | None = None) -> dict[str, int]:
        """Flip one bit of each of these bytes, one after the other.

        Args:
            positions: of the bytes.
            bit: number of the bit.
            path: the file; None for the newer checkpoint.
        """
        source = 0 if path in self.shared else 1
        file = os.open(path or self.path, os.O_RDWR)
        try:
            for position in positions:
                (byte,) = os.pread(file, 1, position)
                os.pwrite(file, bytes([byte ^ 1 << (position + bit) % 8]), position)
                self._check(f"byte {position} flipped", position, source)
                os.pwrite(file, bytes([byte]), position)
        finally:
            os.close(file)
        return {"tried": len(positions)}

    def _check(self, damage: str, position: int, source: int) -> None:
        for use in (checkpoint_file.read, checkpoint_file.verify):
            try:
                use(self.path, self.digest)
            except CorruptCheckpoint:
                continue
            raise Failed(f"{damage}: it is not detected")
        if position % FALL_BACK == 0:
            loaded = checkpoints.load(self.slice, Store(self.path.parent))
            if loaded.iteration != source or len(loaded.skipped) != 2 - source:
                raise Failed(f"{damage}: a slice continues from iteration {loaded.iteration}")


@contextmanager
def two_checkpoints(seed: int) -> Iterator[Trial]:
    """Provide a trial with two small checkpoints that share some segments."""
    folder = Path(tempfile.mkdtemp(prefix="store-damage-", dir=fast_folder()))
    trainer = PPO(SETTINGS, TrialContext(seed=seed))
    header = {"sweep": "s", "trial": 0, "replica": 0}
    try:
        with small_segments():
            saved = []
            for step in (1, 2):
                trainer.train()
                state = {**trainer.get_state(), "more": state_of(step)}
                saved.append(checkpoint_file.write(folder, step, header, state))
            yield Trial(folder, saved)
    finally:
        trainer.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(run, rounds=8)
