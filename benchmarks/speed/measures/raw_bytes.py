"""The limit of a checkpoint: as many bytes hashed and written with fsync, or read and hashed.

python -m benchmarks.speed.measures.raw_bytes save|restore PARAMETERS
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.speed.measures import clock


def write(path: Path, data: bytes) -> None:
    """SHA-256, write, fsync of the file and of its folder."""
    hashlib.sha256(data).digest()
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def main() -> None:
    """Three float32 arrays of so many parameters: weights and both moments of Adam."""
    what, parameters = sys.argv[1], int(sys.argv[2])
    data = os.urandom(3 * 4 * parameters)
    times = 30 if parameters < 100_000 else 7
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "data"
        write(path, data)
        if what == "save":
            clock.tell(clock.milliseconds(lambda: write(path, data), times))
        else:
            clock.tell(
                clock.milliseconds(lambda: hashlib.sha256(path.read_bytes()).digest(), times)
            )


if __name__ == "__main__":
    main()
