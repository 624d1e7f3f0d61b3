"""The file that holds a sweep's copy in Optuna's own tables.

Studies and trials are made and ended through Optuna's storage. Values and attributes are written to
its tables directly, a batch in one transaction: the storage takes 3 ms for each. The file is in WAL
mode, so that a dashboard never blocks the writer. It is not synced at every commit: what a power
cut removes from a copy is written again.
"""

import copy
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.dialects import sqlite

from sweep.ledger import tables

#: Names of a study that is being written, or replaced; after a crash it is deleted.
DRAFT = "{} (being written)"
OUTDATED = "{} (outdated)"
#: Where Optuna keeps the names of a study's metrics.
METRIC_NAMES = "study:metric_names"


class Storage:
    """Optuna's tables in a file of any path; they are made unless it is `only_read`."""

    def __init__(self, path: Path, only_read: bool = False) -> None:
        url = sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)
        connect = tables.reading if only_read else _connect
        self._rdb = RDBStorage(
            url,
            engine_kwargs={"creator": lambda: connect(path)},
            skip_compatibility_check=only_read,
            skip_table_creation=only_read,
        )

    def close(self) -> None:
        """Close the file."""
        self._rdb.remove_session()
        self._rdb.engine.dispose()

    def find(self, name: str) -> int | None:
        """The id of a study, or None if there is none."""
        try:
            return self._rdb.get_study_id_from_name(name)
        except KeyError:
            return None

    def create(self, name: str, directions: Iterable[str], attributes: Mapping[str, Any]) -> int:
        """Make an empty study and return its id."""
        study = self._rdb.create_new_study([StudyDirection[d.upper()] for d in directions], name)
        for key, value in attributes.items():
            self._rdb.set_study_user_attr(study, key, value)
        return study

    def metrics(self, study: int) -> list[str] | None:
        """The names of the values of a study's trials, if they have names."""
        names: list[str] | None = self._rdb.get_study_system_attrs(study).get(METRIC_NAMES)
        return names

    def name_metrics(self, study: int, names: list[str]) -> None:
        """Name the values of a study's trials, as `Study.set_metric_names` does."""
        self._rdb.set_study_system_attr(study, METRIC_NAMES, names)

    def attribute(self, study: int, key: str) -> object:
        """An attribute that `create` was given, if there is one."""
        return self._rdb.get_study_user_attrs(study).get(key)

    def replace(self, old: int, new: int, name: str) -> None:
        """Give the study `new` the name of `old` in one transaction, and delete `old`."""
        with self._rdb.engine.begin() as connection:
            for study, its_name in ((old, OUTDATED.format(name)), (new, name)):
                update = sa.update(models.StudyModel).where(models.StudyModel.study_id == study)
                connection.execute(update.values(study_name=its_name))
        self._rdb.delete_study(old)

    def sweep_up(self, name: str) -> None:
        """Delete what a crash before or during `replace` left behind."""
        for leftover in (DRAFT.format(name), OUTDATED.format(name)):
            study = self.find(leftover)
            if study is not None:
                self._rdb.delete_study(study)

    def trials(self, study: int) -> list[FrozenTrial]:
        """All trials of a study, by number."""
        return self._rdb.get_all_trials(study, deepcopy=False)

    def add(self, study: int, trial: FrozenTrial) -> int:
        """Add a trial with its state and parameters, for `extend` to fill; returns its id."""
        bare = copy.copy(trial)
        bare.intermediate_values, bare.user_attrs = {}, {}
        return self._rdb.create_new_trial(study, bare)

    def extend(self, trials: Iterable[FrozenTrial]) -> None:
        """Set the intermediate values and attributes of these trials, in one transaction."""
        values: list[dict[str, Any]] = []
        attributes: list[dict[str, Any]] = []
        for trial in trials:
            its = trial._trial_id
            values += [_value(its, *item) for item in trial.intermediate_values.items()]
            attributes += [
                {"trial_id": its, "key": key, "value_json": json.dumps(value)}
                for key, value in trial.user_attrs.items()
            ]
        with self._rdb.engine.begin() as connection:
            _upsert(connection, models.TrialIntermediateValueModel, ("trial_id", "step"), values)
            _upsert(connection, models.TrialUserAttributeModel, ("trial_id", "key"), attributes)

    def set_state(self, trial: FrozenTrial) -> None:
        """Set the state, the values and the dates of an unfinished trial."""
        self._rdb.set_trial_state_values(trial._trial_id, trial.state, trial.values)
        names = ("datetime_start", "datetime_complete")
        update = sa.update(models.TrialModel).where(models.TrialModel.trial_id == trial._trial_id)
        with self._rdb.engine.begin() as connection:
            connection.execute(update.values({name: getattr(trial, name) for name in names}))


def unfinished(trial: FrozenTrial) -> FrozenTrial:
    """`trial` before its end: Optuna refuses changes of a finished one."""
    earlier = copy.copy(trial)
    if trial.state.is_finished():
        earlier.state, earlier.values, earlier.datetime_complete = TrialState.RUNNING, None, None
    return earlier


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _value(trial_id: int, step: int, value: float) -> dict[str, Any]:
    stored, kind = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
    return {
        "trial_id": trial_id,
        "step": step,
        "intermediate_value": stored,
        "intermediate_value_type": kind,
    }


def _upsert(
    connection: sa.Connection,
    model: type[Any],
    identity: tuple[str, ...],
    rows: list[dict[str, Any]],
) -> None:
    if rows:
        insert = sqlite.insert(model)
        changed = {name: insert.excluded[name] for name in rows[0] if name not in identity}
        connection.execute(insert.on_conflict_do_update(identity, set_=changed), rows)
