"""Storage of a sweep's copy in Optuna's own tables: in a file, or on the server of its ledger.

Studies are created and read through Optuna's storage. Trials are written to its tables directly, a
batch in one transaction, since the storage needs 3 ms for each. The file is in WAL mode, so that a
dashboard never blocks the writer. It is not synced at every commit: rows lost in a power cut are
written again. On a server the tables have a schema of their own next to the ledger's; a copy that
was started in a file stays there.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy.dialects import postgresql, sqlite

from sweep.ledger import storage, tables
from sweep.ledger.folder import Folder

if TYPE_CHECKING:
    from sweep.ledger import postgres

    Place = Path | postgres.Database

#: Name of a study that is being written; leftovers of a crash are deleted.
DRAFT = "{} (being written)"
#: Name of a study that was replaced; leftovers of a crash are deleted.
OUTDATED = "{} (outdated)"
#: Row of a table.
Row = Mapping[str, Any]
#: Column of a date → attribute of Optuna's model.
_DATES = {
    name: sa.inspect(models.TrialModel)
    .get_property_by_column(models.TrialModel.__table__.c[name])
    .key
    for name in ("datetime_start", "datetime_complete")
}
#: Table of intermediate values with 64-bit steps, since environment steps may exceed 2**31. A file
#: has no such limit.
_VALUES = models.TrialIntermediateValueModel.__table__.to_metadata(sa.MetaData())
_VALUES.c.step.type = sa.BigInteger()
#: System attribute in which Optuna stores the names of a study's metrics.
METRIC_NAMES = "study:metric_names"


def place(folder: Folder) -> "Place":
    """Return the place of a sweep's copy in Optuna's tables, even if it does not exist yet.

    It is a schema on the server of the sweep's ledger, or a file's path if the ledger is a file, or
    if there is a file already.
    """
    path = folder.optuna
    on_server = None if path.is_symlink() or path.exists() else _schema_on_server(folder)
    return on_server or path.absolute()


def _schema_on_server(folder: Folder) -> "postgres.Database | None":
    """Return the schema of Optuna's tables on the ledger's server; None if the ledger is a file."""
    return storage.companion_schema(folder.ledger, "optuna")


def exists(place: "Place") -> bool:
    """Return whether Optuna's tables exist at a place."""
    return tables.has(place, "studies") if isinstance(place, Path) else place.has("studies")


def unreadable(place: "Place") -> str:
    """Return a text on why the tables at a place are missing or cannot be read.

    Returns an empty text if they can. Raises StorageError if a file cannot be accessed now.
    """
    if isinstance(place, Path):
        return tables.find_damage(place)
    return "" if exists(place) else f"{place.shown} is gone"


def remove(place: "Place") -> None:
    """Delete Optuna's tables at a place with all their contents."""
    if not isinstance(place, Path):
        place.drop_schema()
        return
    for suffix in ("", "-wal", "-shm"):
        place.with_name(f"{place.name}{suffix}").unlink(missing_ok=True)


class Storage:
    """Optuna's tables in a file or on a server; they are created unless `only_read` is True."""

    def __init__(self, place: "Place", only_read: bool = False) -> None:
        url, engine = (
            _file_options(place, only_read)
            if isinstance(place, Path)
            else _server_options(place, only_read)
        )
        self._rdb = RDBStorage(
            url,
            engine_kwargs=engine,
            skip_compatibility_check=only_read,
            skip_table_creation=only_read,
        )
        if not (isinstance(place, Path) or only_read):
            self._widen()

    def close(self) -> None:
        """Close the connections to the database."""
        self._rdb.remove_session()
        self._rdb.engine.dispose()

    def _widen(self) -> None:
        """Change the column of steps on a server to 64 bits, if it is not yet."""
        with self._rdb.engine.begin() as connection:
            columns = sa.inspect(connection).get_columns(_VALUES.name)
            (found,) = (column["type"] for column in columns if column["name"] == "step")
            if not isinstance(found, sa.BigInteger):
                change = f"ALTER TABLE {_VALUES.name} ALTER COLUMN step TYPE BIGINT"
                connection.execute(sa.text(change))

    def find(self, name: str) -> int | None:
        """Return the ID of the study with this name; None if there is none."""
        try:
            return self._rdb.get_study_id_from_name(name)
        except KeyError:
            return None

    def rename(self, name: str, sweep_id: str) -> None:
        """Give the study of this sweep the name `name`, if no study has it yet.

        After the sweep's folder was renamed, its study has the old name.
        """
        studies = self._rdb.get_all_studies()
        if any(study.study_name == name for study in studies):
            return
        own = [one._study_id for one in studies if one.user_attrs.get("sweep_id") == sweep_id]
        if not own:
            return
        with self._rdb.engine.begin() as connection:
            study = sa.update(models.StudyModel).where(models.StudyModel.study_id == own[0])
            connection.execute(study.values(study_name=name))

    def create(self, name: str, directions: Iterable[str], attributes: Mapping[str, Any]) -> int:
        """Create an empty study with directions (``maximize`` …) and user attributes.

        Returns its ID.
        """
        study = self._rdb.create_new_study([StudyDirection[d.upper()] for d in directions], name)
        for key, value in attributes.items():
            self._rdb.set_study_user_attr(study, key, value)
        return study

    def metrics(self, study: int) -> list[str] | None:
        """Return the names of the values of a study's trials; None if they have none."""
        names: list[str] | None = self._rdb.get_study_system_attrs(study).get(METRIC_NAMES)
        return names

    def name_metrics(self, study: int, names: list[str]) -> None:
        """Name the values of a study's trials, as `optuna.Study.set_metric_names` does."""
        self._rdb.set_study_system_attr(study, METRIC_NAMES, names)

    def attribute(self, study: int, key: str) -> object:
        """Return a user attribute of a study; None if it has none of this name."""
        return self._rdb.get_study_user_attrs(study).get(key)

    def replace(self, old: int, new: int, name: str) -> None:
        """Give the study `new` the name `name` of the study `old`, then delete `old`.

        Both are IDs. The names change in one transaction.
        """
        with self._rdb.engine.begin() as connection:
            for study, its_name in ((old, OUTDATED.format(name)), (new, name)):
                update = sa.update(models.StudyModel).where(models.StudyModel.study_id == study)
                connection.execute(update.values(study_name=its_name))
        self._rdb.delete_study(old)

    def sweep_up(self, name: str) -> None:
        """Delete studies that a crash before or during `replace` left behind."""
        for leftover in (DRAFT.format(name), OUTDATED.format(name)):
            study = self.find(leftover)
            if study is not None:
                self._rdb.delete_study(study)

    def trials(self, study: int) -> list[FrozenTrial]:
        """Return all trials of a study, by number."""
        return self._rdb.get_all_trials(study, deepcopy=False)

    def write(
        self,
        study: int,
        new: Sequence[FrozenTrial],
        changed: Iterable[FrozenTrial] = (),
        moved: Sequence[FrozenTrial] = (),
    ) -> None:
        """Add trials to a study and change others, in one transaction.

        Args:
            study: ID of the study of the `new` trials, which get their IDs here.
            new: trials that the study lacks, with their numbers.
            changed: intermediate values and attributes to add to other trials of the study.
            moved: other trials whose state has changed, with values and dates.
        """
        trials = models.TrialModel.__table__
        parameters = models.TrialParamModel.__table__
        attributes = models.TrialUserAttributeModel.__table__
        with self._rdb.engine.begin() as connection:
            newest = connection.execute(sa.select(sa.func.max(trials.c.trial_id))).scalar()
            for trial_id, trial in enumerate(new, start=(newest or 0) + 1):
                trial._trial_id = trial_id
            rows = [{"study_id": study, "number": t.number, **_state(t)} for t in new]
            _upsert(connection, trials, ("trial_id",), rows)
            _upsert(connection, trials, ("trial_id",), [_state(t) for t in moved])
            by_name = ("trial_id", "param_name")
            _upsert(connection, parameters, by_name, _with_ids(_parameters, new))
            by_objective = ("trial_id", "objective")
            scores = _with_ids(_scores, [*new, *moved])
            _upsert(connection, models.TrialValueModel.__table__, by_objective, scores)
            both = [*new, *changed]
            by_step = ("trial_id", "step")
            _upsert(connection, _VALUES, by_step, _with_ids(_values, both))
            _upsert(connection, attributes, ("trial_id", "key"), _with_ids(_attributes, both))
            of_samplers = models.TrialSystemAttributeModel.__table__
            _upsert(
                connection, of_samplers, ("trial_id", "key"), _with_ids(_system_attributes, both)
            )


def _file_options(path: Path, only_read: bool) -> tuple[str, dict[str, Any]]:
    """Return SQLAlchemy's URL and engine options for Optuna's tables in a file."""
    connect = tables.connect_read_only if only_read else _connect
    url = sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)
    return url, {"creator": lambda: connect(path)}


def _server_options(place: "postgres.Database", only_read: bool) -> tuple[str, dict[str, Any]]:
    """Return SQLAlchemy's URL and engine options for Optuna's tables on a server.

    It keeps one connection. Creates the schema unless `only_read`.
    """
    if not only_read:
        place.make_schema()
        place.close()
    engine = {"creator": lambda: place.connected(only_read), "pool_size": 1, "pool_pre_ping": True}
    return f"{place.dialect}://", engine


def _connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a database file, in WAL mode if possible."""
    connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
    # another process has it open: keep the mode until later
    with suppress(sqlite3.OperationalError):
        connection.execute(f"PRAGMA journal_mode={tables.journal(path)}")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _with_ids(
    rows: Callable[[FrozenTrial], Iterable[Row]], trials: Iterable[FrozenTrial]
) -> list[Row]:
    """Return the rows that `rows` yields for each trial, each with the trial's ID."""
    return [{"trial_id": trial._trial_id, **row} for trial in trials for row in rows(trial)]


def _state(trial: FrozenTrial) -> Row:
    """Return the row of a trial in Optuna's table of trials: ID, state and dates."""
    model = models.TrialModel(
        datetime_start=trial.datetime_start, datetime_complete=trial.datetime_complete
    )
    dates = {name: getattr(model, attribute) for name, attribute in _DATES.items()}
    return {"trial_id": trial._trial_id, "state": trial.state, **dates}


def _parameters(trial: FrozenTrial) -> Iterator[Row]:
    """Yield the rows of a trial in Optuna's table of parameters."""
    for name, domain in trial.distributions.items():
        value = domain.to_internal_repr(trial.params[name])
        text = distribution_to_json(domain)
        yield {"param_name": name, "param_value": value, "distribution_json": text}


def _scores(trial: FrozenTrial) -> Iterator[Row]:
    """Yield the rows of a trial in Optuna's table of values."""
    for objective, score in enumerate(trial.values or ()):
        stored, kind = models.TrialValueModel.value_to_stored_repr(score)
        yield {"objective": objective, "value": stored, "value_type": kind}


def _values(trial: FrozenTrial) -> Iterator[Row]:
    """Yield the rows of a trial in Optuna's table of intermediate values."""
    stored_as = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr
    for step, value in trial.intermediate_values.items():
        stored, kind = stored_as(value)
        yield {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}


def _attributes(trial: FrozenTrial) -> Iterator[Row]:
    """Yield the rows of a trial in Optuna's table of user attributes."""
    for key, value in trial.user_attrs.items():
        yield {"key": key, "value_json": json.dumps(value)}


def _system_attributes(trial: FrozenTrial) -> Iterator[Row]:
    """Yield the rows of a trial in Optuna's table of system attributes.

    Samplers store data there.
    """
    for key, value in trial.system_attrs.items():
        yield {"key": key, "value_json": json.dumps(value)}


def _upsert(
    connection: sa.Connection,
    table: sa.Table,
    identity: tuple[str, ...],
    rows: Sequence[Row],
) -> None:
    """Insert rows into a table, or update those that exist.

    The columns `identity` tell which row is which.
    """
    if not rows:
        return
    server = connection.dialect.name == "postgresql"
    insert = postgresql.insert(table) if server else sqlite.insert(table)
    changed = {name: insert.excluded[name] for name in rows[0] if name not in identity}
    update = insert.on_conflict_do_update(index_elements=identity, set_=changed)
    connection.execute(update, rows)
