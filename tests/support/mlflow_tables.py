"""Writes MLflow's empty tables as SQL, so that nobody waits for its migrations.

python -m tests.support.mlflow_tables
"""

import logging
import sqlite3
import tempfile
from contextlib import closing
from importlib import metadata
from pathlib import Path

import sqlalchemy as sa

from sweep.trackers._shared import mlflow_store


def migrated() -> str:
    """What the migrations of the installed MLflow make of an empty file."""
    from mlflow.store.db import utils

    logging.getLogger("alembic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlflow.db"
        engine = sa.create_engine(f"sqlite:///{path}")
        utils._initialize_tables(engine)
        engine.dispose()
        with closing(sqlite3.connect(path)) as database:
            lines = "\n".join(database.iterdump())
    return f"-- MLflow {metadata.version('mlflow')}\n{lines}\n"


if __name__ == "__main__":
    mlflow_store.TABLES.write_text(migrated(), encoding="utf-8")
