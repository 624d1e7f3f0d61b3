"""JSON: each seed's results as ``logs/trial-3/result.json``, one object a line, as in Ray Tune.

Every line is a result with all its keys, nested ones joined with ``/``, ``training_iteration``
first. NaN and infinity are written as in Python: ``NaN``, ``Infinity``. The settings are in
``params.json`` in the same folder.
"""

import json
from collections.abc import Sequence

from sweep.history.events import Created, Row
from sweep.trackers._shared.trial_files import IDENTITY, FileTracker, RowPositions, identified


class Tracker(FileTracker):
    """Writes a file of JSON lines for each seed of a trial, with a line for each iteration."""

    file = "result.json"

    def read(self, content: bytes) -> RowPositions:
        """Return the positions of the results in a file's contents, up to an invalid line."""
        standing = RowPositions()
        for line in content.splitlines(keepends=True):
            try:
                result = json.loads(line)
            except ValueError:
                break
            iteration = result.get(IDENTITY) if isinstance(result, dict) else None
            if not line.endswith(b"\n") or not isinstance(iteration, int):
                break
            if not standing.add(iteration, len(line)):
                break
        return standing

    def head(
        self, columns: Sequence[str], created: Created, created_at: float, replica: int
    ) -> bytes:
        """Return no bytes: every line names its values."""
        return b""

    def encode(self, row: Row, columns: Sequence[str], ended_at: float, place: int) -> bytes:
        """Return a result as one line of JSON."""
        return json.dumps(identified(row)).encode() + b"\n"
