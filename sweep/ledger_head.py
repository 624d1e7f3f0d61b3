"""The head of a ledger: the one row that says which sweep it is, and whether it is a ledger at all.

A ledger may come from anywhere: its tables must be tables, without triggers, so that reading it
computes nothing that its file asks for, and the row is checked field by field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sweep import schema, tables, typed
from sweep.errors import OutsideError
from sweep.typed import Misfit


@dataclass(frozen=True)
class Head:
    """Which sweep a ledger is of."""

    id: str
    name: str
    spec: str
    """Canonical JSON."""
    provenance: str
    created_at: float


@dataclass(frozen=True)
class Provenance:
    """What the results depend on beside the spec, as it was when the sweep was created."""

    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    processor: str = ""
    paths: tuple[str, ...] = ()
    time_attr: str = "training_iteration"
    """Of the scheduler, as are its `levels`: whoever only looks does not import it."""
    levels: tuple[float, ...] = ()


def read(path: Path, engine: sa.Engine) -> tuple[Head, Mapping[str, Any]]:
    """The head, and the provenance in it as plain data.

    Raises:
        OutsideError: the file cannot be read.
        UsageError: it is of an older or newer revision than today's.
        DamagedLedger: no driver has written it so.
    """
    try:
        with engine.connect() as connection:
            strange = connection.exec_driver_sql(tables.STRANGE).first()
            if strange is None:
                schema.check(connection, path)
            row = None if strange else connection.execute(sa.select(tables.sweep)).one()
    except (sa.exc.SQLAlchemyError, UnicodeDecodeError) as error:
        raise OutsideError(f"{path}: is no readable ledger ({tables.reason(error)})") from error
    with tables.outside(path):
        if row is None:
            raise Misfit(f"it has a {' '.join(strange or ())}, which no driver makes")
        head: Head = typed.read(Head, dict(row._mapping))
        if not isinstance(typed.parse(head.spec), dict):
            raise Misfit("its spec is no mapping")
        return head, vars(typed.read(Provenance, typed.parse(head.provenance)))
