"""Results of earlier sweeps, taken over when a sweep is created.

searcher: {name: tpe, prior: [earlier-sweep, ../older/sweep]}
searcher: {name: tpe, prior: root}

How the settings of each ranked there stands in the new ledger from then on, so that the earlier
sweep may change or be deleted. A trial that was bred or has no score is left out.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.errors import SweepError
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

#: Trials that are learnt from, at most, of all earlier sweeps together.
MOST = 1000
#: Trials that a sweep must have ranked, so that a rank says something.
LEAST = 2


@dataclass(frozen=True)
class Lessons:
    """Results of earlier sweeps for a new one."""

    sweeps: tuple[EarlierSweep, ...] = ()
    said: tuple[str, ...] = ()
    """Lines for a person."""

    @property
    def event(self) -> Learnt:
        """The event in the ledger of the new sweep."""
        return Learnt(self.sweeps)


class _Unfit(Exception):
    """Nothing can be learnt from a sweep; says what would be a fitting one, and what it is."""

    def __init__(self, allowed: str, found: str) -> None:
        self.allowed = allowed
        self.found = found
        super().__init__(found)


def read(spec: SweepSpec, options: SearcherOptions, root: Path) -> Lessons:
    """Return what the option `prior` asks for of earlier sweeps; those given by name lie in `root`.

    Raises:
        BadConfig: there is no such sweep, it is damaged, or nothing can be learnt from it.
    """
    prior = options.prior if isinstance(options, PriorOptions) else "none"
    if prior == "root":
        return _all_of(spec, root)
    if isinstance(prior, str):
        return Lessons()
    names = [name for name in dict.fromkeys(prior) if not games.is_name(name)]
    found = []
    for name in names:
        try:
            found.append(_learn(spec, _find(spec, name, root), MOST // len(names)))
        except _Unfit as error:
            raise spec.source.refuse(
                ("searcher", "prior"), name, error.allowed, error.found
            ) from error
    return Lessons(tuple(found), tuple(map(_describe, found)))


def _all_of(spec: SweepSpec, root: Path) -> Lessons:
    """Learn from every sweep in `root` that fits; the others are named."""
    names, found, left_out = folders.existing(root), [], []
    for name in names:
        try:
            found.append(_learn(spec, Folder(root, name), MOST))
        except _Unfit as error:
            left_out.append(f"prior: {name} is left out: {error.found}")
    most = MOST // max(1, len(found))
    kept = tuple(_thinned(sweep, most) for sweep in found)
    said = [*map(_describe, kept), *left_out] or [f"prior: there is no other sweep in {root}"]
    return Lessons(kept, tuple(said))


def _describe(sweep: EarlierSweep) -> str:
    return f"prior: {plural(len(sweep.trials), 'trial')} of {sweep.name}"


def _find(spec: SweepSpec, name: str, root: Path) -> Folder:
    names, path = folders.existing(root), Path(name)
    if name in names:
        return Folder(root, name)
    with contextlib.suppress(OSError, ValueError):  # a name that is no path
        found = Folder(path.parent, path.name)
        if found.ledger.is_file():
            return found
    known = ", ".join(names) or "none"
    raise spec.source.refuse(
        ("searcher", "prior"),
        name,
        f"a sweep in {root} ({known}), the path of a sweep's folder, or {games.described()}",
    )


def _learn(spec: SweepSpec, folder: Folder, most: int) -> EarlierSweep:
    """Return how settings did in one sweep.

    Raises:
        _Unfit: nothing can be learnt from it.
    """
    try:
        with contextlib.closing(Ledger(folder.ledger)) as ledger:
            other = reading.spec_of(ledger)
            _check(spec, other)
            ranked = [trial for trial in reading.history(ledger).ranked() if trial.parent is None]
            name = ledger.name
    except SweepError as error:
        raise _Unfit("a sweep whose ledger can be read", str(error)) from error
    if len(ranked) < LEAST:
        had = plural(len(ranked), "trial")
        raise _Unfit(
            f"a sweep in which {LEAST} trials or more have a {spec.metric}",
            f"{had} of it {'has' if len(ranked) == 1 else 'have'} one",
        )
    rows = [
        RankedSettings(trial.number, rank, settings)
        for rank, trial in enumerate(ranked, 1)
        if (settings := dict(_shared(spec, trial)))
    ]
    if not rows:
        raise _Unfit(
            f"a sweep with one of the settings {', '.join(spec.space.searched)}",
            "its trials have none of them",
        )
    return _thinned(EarlierSweep(name, len(ranked), tuple(rows)), most)


def _check(spec: SweepSpec, other: SweepSpec) -> None:
    """Refuse a sweep whose trials say nothing about those of `spec`."""
    for here, there, verb in (
        (spec.trainable, other.trainable, "trains"),
        (spec.metric, other.metric, "compares"),
        (spec.mode, other.mode, "has mode"),
    ):
        if here != there:
            raise _Unfit(f"a sweep that {verb} {here}", f"it {verb} {there}")


def _thinned(sweep: EarlierSweep, most: int) -> EarlierSweep:
    """Keep at most so many trials, evenly from the best to the worst."""
    count = len(sweep.trials)
    if count <= most:
        return sweep
    kept = (sweep.trials[index * count // most] for index in range(most))
    return EarlierSweep(sweep.name, sweep.ranked, tuple(kept))


def _shared(spec: SweepSpec, trial: Trial) -> Iterator[tuple[str, Any]]:
    """Yield the trial's values of what is searched here, be it searched or fixed there."""
    for name in spec.space.searched:
        if name in trial.searched:
            yield name, trial.searched[name]
            continue
        found = look_up(trial.config, name)
        if found is not None:
            yield name, found
