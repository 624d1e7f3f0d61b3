"""Writes the dump of today's ledger that later programs must read.

    python -m tests.support.golden

Everything that differs from one run to the next is set to something fixed.
"""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from sweep.ledger import upgrade
from tests.support.events import Story, tell_everything

FOLDER = Path(__file__).parents[1] / "golden"
_PROVENANCE = '{"versions":{"python":"3.11.7"},"paths":[],"source":"0000"}'
_FIXED = (
    "UPDATE lease SET host = 'a-host', kernel = 'a-kernel', pid = 1, since = 1700000000.0",
    "UPDATE events SET at = 1700000000.0 + k",
    f"UPDATE sweep SET id = '{'0' * 32}', created_at = 1700000000.0, provenance = '{_PROVENANCE}'",  # noqa: S608
    "INSERT INTO requests (epoch, at, verb, body)"
    " VALUES (3, 1700000000.0, 'stop', '{\"trials_named\": [4]}')",
)


def write(path: Path) -> None:
    """A ledger with every kind of event and every status, a request and what a tracker has."""
    with tempfile.TemporaryDirectory() as root:
        story = Story.create(Path(root), "golden")
        tell_everything(story)
        story.ledger.set_published("optuna", 7)
        story.ledger.close()
        with closing(sqlite3.connect(story.where.folder.ledger)) as database:
            for statement in _FIXED:
                database.execute(statement)
            path.write_text("\n".join(database.iterdump()) + "\n")


if __name__ == "__main__":
    write(FOLDER / f"ledger-{upgrade.known_revisions()[-1]}.sql")
