"""What another sweep knows, taken over when a sweep is created.

warm_start: {sweep: NAME or path, best: 10, trials: completed}

Its trials stand in the new ledger from then on, with their settings and curves, so that the other
sweep is never needed again. Searchers see them beside the sweep's own trials; they are counted
nowhere and no scheduler sees them. A trial that was bred, or whose settings are no point of today's
space, is left out, and it is said why.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep import spec as specs
from sweep.errors import BadSpace
from sweep.history.events import FINISHED, Status, Warmed
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial, rank_key
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from sweep.space import Domain, Space, canonical
from sweep.space.domains import same
from sweep.space.parameters import Fixed
from sweep.spec import SweepSpec
from trainables.errors import shorten

#: Trials that are taken over, at most; the best ones.
MOST = 10_000
_ABSENT = object()


class _Unfit(Exception):
    """A trial that is no point of the space; says why."""


def read(spec: SweepSpec, objective: Objective, root: Path) -> Warmed | None:
    """What the key ``warm_start`` of a new sweep asks for; None: nothing.

    The other's curves are read as `objective` compares them; one given by name lies in `root`.

    Raises:
        UsageError: there is no such sweep, or it trains something else.
    """
    wanted = spec.warm_start
    if wanted is None:
        return None
    with contextlib.closing(Ledger(_find(spec, wanted.sweep, root).ledger)) as ledger:
        other = specs.from_json(ledger.spec)
        if other.trainable != spec.trainable:
            raise spec.source.refuse(
                ("warm_start", "sweep"),
                wanted.sweep,
                f"a sweep of {spec.trainable}",
                f"this one trains {other.trainable}",
            )
        history = History(objective)
        for records in iterate(ledger):
            history.extend(records)
        name = ledger.name
    chosen, left_out = {}, []
    for trial in history.trials:
        try:
            chosen[trial.number] = _point(spec.space, trial, wanted.trials == "all")
        except _Unfit as reason:
            left_out.append(f"trial {trial.number}: {reason}")
    best = sorted(chosen, key=lambda n: rank_key(history.trials[n], history.trials[n].score))
    kept = sorted(best[: wanted.best or MOST])
    taken = tuple(_plain(history.trials[number], chosen[number]) for number in kept)
    return Warmed(name, taken, tuple(left_out))


def describe(warmed: Warmed | None) -> list[str]:
    """What was taken over and what not, in words."""
    if warmed is None:
        return []
    lines = [f"warm start: {len(warmed.trials)} trials of {warmed.sweep}"]
    shown = list(warmed.left_out[:5])
    more = len(warmed.left_out) - len(shown)
    lines += [f"warm start: left out {reason}" for reason in shown]
    return [*lines, f"warm start: left out {more} more"] if more else lines


def _find(spec: SweepSpec, sweep: str, root: Path) -> Folder:
    path = Path(sweep)
    if (path / "sweep.db").is_file():
        return Folder(path.parent, path.name)
    names = folders.existing(root)
    if sweep in names:
        return Folder(root, sweep)
    known = f"a sweep in {root} ({', '.join(names) or 'none'}), or the path of a sweep's folder"
    raise spec.source.refuse(("warm_start", "sweep"), sweep, known)


def _plain(trial: Trial, searched: Mapping[str, Any]) -> dict[str, Any]:
    """A trial of the other sweep as the ledger keeps it; one that goes on there has ended early."""
    curves = [
        [[point.iteration, point.time, point.value, *point.others] for point in replica.curve]
        for replica in trial.counted  # as in its score
    ]
    status = trial.status if trial.status in FINISHED else Status.PRUNED
    return {
        "trial": trial.number,
        "status": status.value,
        "searched": dict(searched),
        "curves": curves,
    }


def _point(space: Space, trial: Trial, unfinished: bool) -> Mapping[str, Any]:
    """The trial's settings as today's space has them.

    Raises:
        _Unfit: it is not taken; `unfinished` says whether one that was not completed is.
    """
    if trial.parent is not None:  # its score is owed to its ancestors' settings too
        raise _Unfit(f"it was bred from trial {trial.parent}")
    if trial.status is not Status.COMPLETED and not unfinished:
        raise _Unfit(f"it is {trial.status}")
    if trial.score is None:
        raise _Unfit(f"it has no {trial.objective.metric}")
    _check_fixed(space, trial)

    def look_up(name: str, domain: Domain) -> Any:
        value = _value(trial, name)
        if value is _ABSENT:
            raise _Unfit(f"it has no {name}")
        if not domain.contains(value):
            raise _Unfit(f"{name} {shorten(value, 30)} is not {domain.describe()}")
        return canonical(domain, value)

    try:
        return space.resolve(look_up).searched
    except BadSpace as error:
        raise _Unfit(str(error)) from error


def _check_fixed(space: Space, trial: Trial) -> None:
    """What has one value in the space must have it in the trial too."""
    for name, parameter in space.parameters.items():
        found, role = _value(trial, name), parameter.role
        if isinstance(role, Fixed) and found is not _ABSENT and not same(found, role.value):
            raise _Unfit(f"{name} is {shorten(found, 30)}, here {shorten(role.value, 30)}")


def _value(trial: Trial, name: str) -> Any:
    """The trial's value of a setting, searched or not."""
    if name in trial.searched:
        return trial.searched[name]
    inner: Any = trial.config
    for part in name.split("."):
        if not isinstance(inner, Mapping) or part not in inner:
            return _ABSENT
        inner = inner[part]
    return inner
