"""Milliseconds of hashing and writing as many bytes as a checkpoint has, or of reading them.

python -m benchmarks.speed.measures.raw_bytes save|restore PARAMETERS
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.speed.measures import clock


def write(path: Path, data: bytes) -> None:
    """Hash the data with SHA-256, write them, and synchronise the file and its folder."""
    hashlib.sha256(data).digest()
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def main() -> None:
    """Measure with three float32 arrays of all parameters: weights and both moments of Adam."""
    action, parameters = sys.argv[1], int(sys.argv[2])
    data = os.urandom(3 * 4 * parameters)
    times = 30 if parameters < 100_000 else 7
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "data"
        write(path, data)
        if action == "save":
            clock.print_figure(clock.milliseconds(lambda: write(path, data), times))
        else:
            clock.print_figure(
                clock.milliseconds(lambda: hashlib.sha256(path.read_bytes()).digest(), times)
            )


if __name__ == "__main__":
    main()
