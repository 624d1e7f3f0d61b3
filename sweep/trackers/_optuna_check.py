"""Where the copy in Optuna's tables differs from the ledger; the study is only read."""

import math
from collections.abc import Iterator
from contextlib import closing

from optuna.trial import FrozenTrial

from sweep import tables
from sweep.history import History
from sweep.trackers import Where
from sweep.trackers._optuna_copy import frozen, metrics, missing
from sweep.trackers._optuna_storage import Storage


def differences(where: Where) -> Iterator[str]:
    """Every trial that differs from the whole ledger, with the first thing in which it does."""
    if not tables.has(where.folder.optuna, "studies"):
        yield f"has no study {where.name}"
        return
    history = History(where.objective)
    for records in where.earlier(math.inf):
        history.extend(records)
    with closing(Storage(where.folder.optuna.absolute(), only_read=True)) as storage:
        study = storage.find(where.name)
        standing = [] if study is None else storage.trials(study)
        of_study = [] if study is None else list(_of_study(where, storage, study))
    if study is None:
        yield f"has no study {where.name}"
        return
    yield from of_study
    if len(standing) != len(history.trials):
        yield f"has {len(standing)} trials, the ledger has {len(history.trials)}"
    for old, trial in zip(standing, history.trials, strict=False):
        if problem := _compare(old, frozen(where, trial)):
            yield f"trial {trial.number}: {problem}"


def _compare(old: FrozenTrial, new: FrozenTrial) -> str:
    if old.state is not new.state or old.values != new.values:
        return f"stands as {old.state.name} {old.values}, should be {new.state.name} {new.values}"
    if old.distributions != new.distributions or old.params != new.params:
        return f"has other settings: {old.params}"
    values, attributes = missing(old, new), missing(new, old)
    if wrong := values.intermediate_values.keys() | attributes.intermediate_values.keys():
        return f"{len(wrong)} values differ, the first is at {min(wrong)}"
    if wrong_attributes := values.user_attrs.keys() | attributes.user_attrs.keys():
        return f"the attributes {', '.join(sorted(wrong_attributes))} differ"
    return ""


def _of_study(where: Where, storage: Storage, study: int) -> Iterator[str]:
    """What the study says of itself that is not so."""
    if (named := storage.metrics(study)) != (due := metrics(where)):
        yield f"its metrics are called {named}, should be {due}"
    if (metric := storage.attribute(study, "metric")) != where.spec.metric:
        yield f"is of the metric {metric}, the sweep is compared by {where.spec.metric}"
