"""Several sweeps side by side, as plain data: what each found, and with which settings.

The settings compared are those that one of the sweeps searches or computes, and fixed ones that
differ. In each sweep a setting is ``searched``, ``computed`` (by an expression of the space),
``fixed``, ``inactive`` (searched or computed, but without a value: a condition leaves it out of the
best trial, or no trial has a score yet) or ``absent``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweep.core.errors import UsageError
from sweep.history.trial import Trial
from sweep.spec.space import Derived
from sweep.views import formatting, overview
from sweep.views.lookup import Sweep
from trainables.errors import printable

Data = dict[str, Any]

#: Columns of the sweeps as a table, before those of settings.
COLUMNS = (
    *("name", "state", "trial", "expected", "expected_error", "score", "seeds", "trials"),
    *("steps", "seconds", "searcher", "scheduler", "score_of", "aggregate"),
)
#: Keys of a best trial that its sweep's row has too.
_OF_BEST = ("trial", "expected", "expected_error", "score")
#: Kinds of settings that have a value.
_WITH_VALUE = ("searched", "computed", "fixed")


def require_comparable(sweeps: Sequence[Sweep]) -> None:
    """Raise UsageError unless the sweeps have different names, and the same metric and mode."""
    names = [sweep.folder.name for sweep in sweeps]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UsageError(f"{name} is named twice; name each sweep once")
    first = sweeps[0]
    for other in sweeps[1:]:
        if (first.spec.metric, first.spec.mode) != (other.spec.metric, other.spec.mode):
            raise UsageError(
                f"{_measure(first)} and {_measure(other)}, which cannot be compared; name sweeps "
                "with the same metric and mode"
            )


def _measure(sweep: Sweep) -> str:
    """Return ``NAME has the metric METRIC (MODE)``, for an error message."""
    return f"{sweep.folder.name} has the metric {sweep.spec.metric} ({sweep.spec.mode})"


def compare(sweeps: Sequence[Sweep]) -> Data:
    """Return several sweeps side by side: a row of results for each, and the settings to compare.

    ``sweeps`` has the rows, in the order given. ``settings`` lists the names of the compared
    settings, and ``shared`` those among them that all sweeps search; ``metric`` and ``mode`` are
    those of all.

    Raises:
        UsageError: a sweep is named twice, or has another metric or mode than the first.
    """
    require_comparable(sweeps)
    shared, others = _names(sweeps)
    names = [*shared, *others]
    return {
        "metric": sweeps[0].spec.metric,
        "mode": sweeps[0].spec.mode,
        "settings": names,
        "shared": shared,
        "sweeps": [_row(sweep, names) for sweep in sweeps],
    }


def _row(sweep: Sweep, names: Sequence[str]) -> Data:
    """Return the results of one sweep: the keys of `COLUMNS`, ``settings`` and ``kinds``.

    ``kinds`` maps each of `names` to ``searched``, ``computed``, ``fixed``, ``inactive`` or
    ``absent``, and ``settings`` those of the first three kinds to their values. If no trial has a
    score, entries about the best trial are None, and ``seeds`` is 0.
    """
    history, best = sweep.history, sweep.history.best
    found = overview.row(best, history) if best else {}
    cells = {name: _cell(sweep, best, name) for name in names}
    return {
        "name": sweep.folder.name,
        "state": sweep.state.value,
        **{key: found.get(key) for key in _OF_BEST},
        "seeds": len(best.compared_replicas) if best else 0,
        "trials": len(history.trials),
        "steps": overview.steps(history),
        "seconds": sum(replica.seconds for t in history.trials for replica in t.replicas),
        "searcher": sweep.spec.searcher.name,
        "scheduler": sweep.spec.scheduler.name,
        "score_of": sweep.spec.score.to_spec(),
        "aggregate": sweep.spec.aggregate.to_spec(),
        "settings": {name: value for name, (kind, value) in cells.items() if kind in _WITH_VALUE},
        "kinds": {name: kind for name, (kind, _) in cells.items()},
    }


def _names(sweeps: Sequence[Sweep]) -> tuple[list[str], list[str]]:
    """Return names of the settings that all sweeps search, and of others that are compared.

    The others are searched by some, computed by an expression of the space, or fixed and not the
    same in all sweeps.
    """
    searched = list(dict.fromkeys(name for sweep in sweeps for name in sweep.spec.space.searched))
    shared = [
        name for name in searched if all(name in sweep.spec.space.searched for sweep in sweeps)
    ]
    flat = [dict(_leaves(_config(sweep, sweep.history.best))) for sweep in sweeps]
    rest = [name for sweep in sweeps for name in sweep.spec.space.parameters]
    rest += [name for its in flat for name in its if not _overlaps(name, [*searched, *rest])]
    others = [name for name in searched if name not in shared]
    for name in dict.fromkeys(rest):
        if name not in searched and _differs(sweeps, name):
            others.append(name)
    return shared, others


def _overlaps(name: str, others: Sequence[str]) -> bool:
    """Return whether a dotted name is within one of the others, or one of them is within it."""
    return any(
        name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")
        for other in others
    )


def _differs(sweeps: Sequence[Sweep], name: str) -> bool:
    """Return whether a setting that no sweep searches is not the same in all sweeps.

    Returns True also if the first sweep computes it.
    """
    cells = [_cell(sweep, sweep.history.best, name) for sweep in sweeps]
    return cells[0][0] in ("computed", "inactive") or any(cell != cells[0] for cell in cells)


def _cell(sweep: Sweep, best: Trial | None, name: str) -> tuple[str, Any]:
    """Return kind and value of a setting in the best trial, or in the spec if there is none.

    The kind is ``searched``, ``computed``, ``fixed``, ``inactive`` or ``absent``; the last two have
    the value None.
    """
    space = sweep.spec.space
    if best is not None and name in best.searched:
        return "searched", best.searched[name]
    if name in space.searched:
        return "inactive", None
    found, value = _value_at(_config(sweep, best), name)
    parameter = space.parameters.get(name)
    if parameter is not None and isinstance(parameter.role, Derived):
        return ("computed" if found else "inactive"), value
    return ("fixed", value) if found else ("absent", None)


def _config(sweep: Sweep, best: Trial | None) -> Mapping[str, Any]:
    """Return all settings of the best trial; without one, the spec's fixed settings."""
    return sweep.spec.config if best is None else best.config


def _value_at(config: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """Return true and the value at a dotted path, or false and None if there is none."""
    inner: Any = config
    for part in name.split("."):
        if not isinstance(inner, Mapping) or part not in inner:
            return False, None
        inner = inner[part]
    return True, inner


def _leaves(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted name and value of each setting that is no mapping, or an empty one.

    `before` is the beginning of the names, empty at the top.
    """
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def setting(row: Mapping[str, Any], name: str) -> str:
    """Return a setting in a sweep's row of `compare` as text, with its kind in brackets.

    A searched one has no kind; an absent one is `ABSENT`, an inactive one only ``inactive``.
    """
    kind = row["kinds"][name]
    if kind == "absent":
        return formatting.ABSENT
    if kind == "inactive":
        return "inactive"
    value = formatting.setting(row["settings"][name])
    return value if kind == "searched" else f"{value} ({kind})"


def different_scores(data: Mapping[str, Any]) -> str:
    """Return a sentence that warns if the sweeps' scores are computed differently; empty if not.

    `data` is that of `compare`; score and aggregate of each sweep's spec are compared.
    """
    ways: dict[str, list[str]] = {}
    for row in data["sweeps"]:
        way = f"score: {_written(row['score_of'])}, aggregate: {_written(row['aggregate'])}"
        ways.setdefault(way, []).append(printable(row["name"]))
    if len(ways) < 2:
        return ""
    said = "; ".join(f"{', '.join(names)} by {way}" for way, names in ways.items())
    return f"Scores are computed differently, so compare them with care: {said}."


def _written(value: Any) -> str:
    """Return a setting such as a score as a spec writes it: ``last`` or ``{mean_last: 10}``."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {number}" for key, number in value.items()) + "}"
    return str(value)
