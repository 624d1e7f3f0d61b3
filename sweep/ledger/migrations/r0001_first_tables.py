"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables of this revision, with keys and indices, in an empty database.

    Alembic's `op` must have a context, which `sweep.ledger.upgrade` gives it.
    """
    op.create_table(
        "sweep",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("provenance", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("k", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("trial", sa.Integer, index=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "results",
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("replica", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("iteration", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("k", sa.Integer, nullable=False, index=True),
        sa.Column("metrics", sa.Text, nullable=False),
    )
    op.create_table(
        "superseded",
        sa.Column("k", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trial", sa.Integer, nullable=False),
        sa.Column("replica", sa.Integer, nullable=False),
        sa.Column("iteration", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("metrics", sa.Text, nullable=False),
    )
    op.create_table(
        "replicas",
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("replica", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("status", sa.String, nullable=False),
    )
    op.create_table(
        "published",
        sa.Column("tracker", sa.String, primary_key=True),
        sa.Column("k", sa.Integer, nullable=False),
    )
    op.create_table(
        "lease",
        sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("host", sa.String),
        sa.Column("kernel", sa.String, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("renewed", sa.Integer, nullable=False),
        sa.Column("drove_at", sa.Float, nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("verb", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("answered_at", sa.Float),
        sa.Column("answer", sa.Text),
    )
