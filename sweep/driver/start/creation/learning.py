"""Results of earlier sweeps, copied when a sweep is created.

searcher: {name: tpe, prior: [earlier-sweep, ../older/sweep]}
searcher: {name: tpe, prior: root}

The settings and ranks of earlier trials are stored in the new ledger, so the earlier sweep may
change or be deleted. Offspring and trials without a score are left out.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError
from sweep.history.events import EarlierSweep, Learnt, RankedSettings
from sweep.history.trial import Trial
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.searchers import SearcherOptions
from sweep.searchers._shared.prior import PriorOptions, games
from sweep.searchers._shared.prior.sources import look_up
from sweep.spec import SweepSpec
from sweep.views import reading
from sweep.views.formatting import plural
from trainables.errors import shorten

#: Maximum number of trials copied from all earlier sweeps together.
MOST = 1000
#: Minimum number of ranked trials in a sweep for its ranks to be useful.
LEAST = 2


@dataclass(frozen=True)
class PriorResults:
    """Results of earlier sweeps that the searcher of a new sweep may use."""

    sweeps: tuple[EarlierSweep, ...] = ()
    """Earlier sweeps, each with settings and ranks of its trials."""
    remarks: tuple[str, ...] = ()
    """Lines for the user about sweeps that are used or left out."""

    @property
    def event(self) -> Learnt:
        """Event by which the new sweep's ledger stores the results."""
        return Learnt(self.sweeps)


class _UnsuitableSweep(Exception):
    """Error that a sweep's results cannot be used.

    `found` is the reason, and `allowed` describes a sweep that could be used.
    """

    def __init__(self, allowed: str, problem: str) -> None:
        self.allowed = allowed
        self.found = problem
        super().__init__(problem)


def read(spec: SweepSpec, options: SearcherOptions, root: Path) -> PriorResults:
    """Read the earlier sweeps that the searcher's option `prior` requests.

    The result is empty without that option. Each sweep named there gives at most an equal share of
    `MOST` trials, ``root`` every fitting one in `root`; shipped results of games are not read here.

    Args:
        spec: spec of the new sweep.
        options: options of its searcher.
        root: folder of sweeps given by name.

    Raises:
        BadConfig: a named sweep does not exist, is damaged, or does not fit.
    """
    prior = options.prior if isinstance(options, PriorOptions) else "none"
    if prior == "root":
        return _learn_all(spec, root)
    if isinstance(prior, str):
        return PriorResults()
    names = [name for name in dict.fromkeys(prior) if not games.is_name(name)]
    sweeps = []
    for name in names:
        try:
            sweeps.append(_learn(spec, _find(spec, name, root), MOST // len(names)))
        except _UnsuitableSweep as error:
            problem = f"the sweep {name} cannot be used: {error.found}"
            raise spec.source.refuse(
                ("searcher", "prior"), name, error.allowed, problem=problem
            ) from error
    return PriorResults(tuple(sweeps), tuple(map(_describe, sweeps)))


def _learn_all(spec: SweepSpec, root: Path) -> PriorResults:
    """Read every fitting sweep in `root`; the remarks name those that do not fit.

    Together they have at most `MOST` trials, an equal share of each sweep.
    """
    names, sweeps, left_out = folders.list_sweeps(root), [], []
    for name in names:
        try:
            sweeps.append(_learn(spec, Folder(root, name), MOST))
        except _UnsuitableSweep as error:
            left_out.append(f"prior: {name} is left out: {error.found}")
    most = MOST // max(1, len(sweeps))
    kept = tuple(_thin_out(sweep, most) for sweep in sweeps)
    said = [*map(_describe, kept), *left_out] or [
        (f"prior: there is no other sweep in {root} to learn from")
    ]
    return PriorResults(kept, tuple(said))


def _describe(sweep: EarlierSweep) -> str:
    """Return a line for the user with the number of trials used from an earlier sweep."""
    return f"prior: learns from {plural(len(sweep.trials), 'trial')} of {sweep.name}"


def _find(spec: SweepSpec, name: str, root: Path) -> Folder:
    """Return the folder of an earlier sweep, given by its name in `root` or its path.

    A name in `root` comes first. Raises BadConfig naming the line of the spec if there is none.
    """
    names, path = folders.list_sweeps(root), Path(name)
    if name in names:
        return Folder(root, name)
    with contextlib.suppress(OSError, ValueError):  # the name is not a valid path
        found = Folder(path.parent, path.name)
        if found.ledger.is_file():
            return found
    known = ", ".join(names) or "none"
    raise spec.source.refuse(
        ("searcher", "prior"),
        name,
        f"a sweep in {root} ({known}), the path of a sweep's folder, or {games.describe_all()}",
        problem=f"there is no sweep {shorten(name)}",
    )


def _learn(spec: SweepSpec, folder: Folder, limit: int) -> EarlierSweep:
    """Read settings and ranks of up to `limit` trials of one earlier sweep; rank 1 is the best.

    Offspring, and trials without a score or any searched setting, are left out.

    Raises _UnsuitableSweep if it does not fit or has too few ranked trials.
    """
    try:
        with contextlib.closing(Ledger(folder.ledger)) as ledger:
            other = reading.spec_of(ledger)
            _check(spec, other)
            ranked = [trial for trial in reading.history(ledger).ranked() if trial.parent is None]
            name = ledger.name
    except SweepError as error:
        raise _UnsuitableSweep("a sweep whose ledger can be read", str(error)) from error
    if len(ranked) < LEAST:
        had = plural(len(ranked), "trial")
        raise _UnsuitableSweep(
            f"a sweep in which at least {LEAST} trials have a score in {spec.metric}",
            f"only {had} in it {'has' if len(ranked) == 1 else 'have'} such a score",
        )
    rows = [
        RankedSettings(trial.number, rank, settings)
        for rank, trial in enumerate(ranked, 1)
        if (settings := dict(_shared_settings(spec, trial)))
    ]
    if not rows:
        raise _UnsuitableSweep(
            f"a sweep that searches at least one of {', '.join(spec.space.searched)}",
            "its trials have none of the settings that this sweep searches",
        )
    return _thin_out(EarlierSweep(name, len(ranked), tuple(rows)), limit)


def _check(spec: SweepSpec, other: SweepSpec) -> None:
    """Raise _UnsuitableSweep unless the other spec has the same trainable, metric and mode."""
    for ours, theirs, verb in (
        (spec.trainable, other.trainable, "trains"),
        (spec.metric, other.metric, "has the metric"),
        (spec.mode, other.mode, "has the mode"),
    ):
        if ours != theirs:
            raise _UnsuitableSweep(f"a sweep that {verb} {ours}", f"it {verb} {theirs}")


def _thin_out(sweep: EarlierSweep, limit: int) -> EarlierSweep:
    """Return the sweep with at most `limit` of its trials, evenly spaced in their ranking.

    The best one is kept, the worst one is not if any is left out. Ranks stay as they were.
    """
    count = len(sweep.trials)
    if count <= limit:
        return sweep
    kept = (sweep.trials[index * count // limit] for index in range(limit))
    return EarlierSweep(sweep.name, sweep.ranked, tuple(kept))


def _shared_settings(spec: SweepSpec, trial: Trial) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each setting that the new sweep searches and the trial has.

    The trial's sweep may have searched it or not.
    """
    for name in spec.space.searched:
        if name in trial.searched:
            yield name, trial.searched[name]
            continue
        found = look_up(trial.config, name)
        if found is not None:
            yield name, found
