"""From a spec, or the name of a sweep, to a driver that is ready to run.

Everything that can be wrong with a spec is found here, before anything is written.
"""

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep import (
    capacity,
    checkpoints,
    control,
    holding,
    plugins,
    pools,
    provenance,
    racing,
    reading,
    samples,
    searchers,
    tracking,
    verdicts,
    warm_start,
)
from sweep import spec as specs
from sweep.errors import BadConfig, UnknownName, UsageError
from sweep.events import EpochBegan, Event, Status, Widened
from sweep.exam import Exam
from sweep.folder import Folder
from sweep.history import History, Objective
from sweep.ledger import Ledger
from sweep.parts import Parts
from sweep.pools import Pool
from sweep.requests import Answer, Requests, answering
from sweep.schedulers import Scheduler
from sweep.searchers import Searcher
from sweep.space import widening
from sweep.spec import Override, SweepSpec, space_file
from sweep.wishes import Changed, Measured
from trainables.errors import nearest, shorten
from trainables.function import FunctionTrainable
from trainables.trainable import Trainable


@dataclass(frozen=True)
class Resolved:
    """A spec together with the plugins that it names."""

    spec: SweepSpec
    trainable: type[Trainable]
    scheduler: Scheduler
    searcher: Searcher

    @property
    def objective(self) -> Objective:
        """What its trials are compared by."""
        return reading.objective_of(self.spec, self.scheduler.time_attr)


def resolve(spec: SweepSpec, paths: Sequence[str]) -> Resolved:
    """Find the plugins of `spec` and check all settings; every mistake is a UsageError."""
    with _written_at(spec, "trainable"):
        trainable = plugins.find_trainable(spec.trainable, paths)
    with _written_at(spec, "scheduler"):
        scheduler = racing.build(spec, paths, trainable.fixed_keys)
    with _written_at(spec, "searcher"):
        searcher_class = searchers.find(spec.searcher.name)
    options = specs.build(searcher_class.Options, spec.searcher, "searcher", spec.source)
    for index, tracker in enumerate(spec.trackers):
        with _written_at(spec, "trackers", index):
            plugins.check("sweep.trackers", tracker, "tracker")
    if scheduler.pauses and not trainable.can_save():
        lacks = "has no save_checkpoint(); add it"
        if issubclass(trainable, FunctionTrainable):
            lacks = "never calls report(..., checkpoint=...); do"
        raise UsageError(
            f"scheduler: '{spec.scheduler.name}' pauses trials, but {trainable.__name__} {lacks}, "
            f"or use one that pauses none: fifo, median, or {{name: asha, type: stopping}}"
        )
    searcher = searcher_class(options)
    with _written_at(spec, "searcher"):
        searcher.check(spec.space)
    if spec.also and not searcher.supports.objectives:
        able = [
            n for n in plugins.names(searchers.PACKAGE) if searchers.find(n).supports.objectives
        ]
        raise spec.source.refuse(
            ("also",),
            dict(spec.also),
            f"no key, as searcher {spec.searcher.name} knows one objective",
            f"these know several: {', '.join(able)}",
        )
    samples.check(spec, lambda c: trainable.check_config(trainable.complete_config(c, spec.stop)))
    return Resolved(spec, trainable, scheduler, searcher)


@contextlib.contextmanager
def _written_at(spec: SweepSpec, *path: str | int) -> Iterator[None]:
    """A mistake that a plugin finds is answered with the place in the spec."""
    try:
        yield
    except UnknownName as error:
        problem = f"unknown {error.kind} {shorten(error.name)}"
        known = f"one of {', '.join(error.known)}"
        hint = nearest(error.name, error.known)
        raise spec.source.refuse(path, error.name, known, hint, problem) from error
    except BadConfig as error:
        if error.file:
            raise
        at = spec.source.at(tuple(error.place.split(".")) if error.place else path)
        told = (error.place, error.value, error.allowed, error.hint)
        raise BadConfig(*told, at=at, problem=error.problem) from error


def create(
    folder: Folder,
    resolved: Resolved,
    source: str,
    paths: Sequence[str],
    tracking_uri: str | None = None,
) -> list[str]:
    """Make the folder and the ledger of a new sweep, whole or not at all; returns what to say.

    The tracking URI stands beside the ledger, for whoever resumes.
    """
    warmed = warm_start.read(resolved.spec, resolved.objective, folder.root)
    folder.root.mkdir(parents=True, exist_ok=True)
    with folder.creating() as draft:
        if tracking_uri is not None:
            tracking.keep(draft.tracking_uri, tracking_uri)
        draft.spec.write_text(source, encoding="utf-8")
        recorded = {
            **provenance.of(resolved.trainable),
            "paths": list(paths),
            "time_attr": resolved.scheduler.time_attr,
            "levels": list(resolved.scheduler.levels),
        }
        text = specs.canonical_json(racing.settled(resolved.spec, paths))
        with contextlib.closing(Ledger.create(draft.ledger, folder.name, text, recorded)) as ledger:
            if warmed is not None:
                ledger.begin_epoch([warmed])
    return [] if warmed is None else warm_start.describe(warmed)


def _widen(launch: "Launch", spec: SweepSpec) -> SweepSpec:
    """The spec with the wider space that was asked for."""
    if launch.space is None:
        return spec
    space = space_file.read(launch.space, spec)
    if space.raw == spec.space.raw:
        return spec
    widening.check(spec.space, space)
    space.check_against(spec.config)
    return spec.model_copy(update={"space": space})


def _measured(launch: "Launch", ledger: Ledger, spec: SweepSpec) -> SweepSpec:
    """The spec with the metric that was asked for."""
    if launch.metric in (None, spec.metric):
        return spec
    asked = Override.of_option("metric", launch.metric)
    return spec.model_copy(update={"metric": specs.from_json(ledger.spec, [asked]).metric})


@dataclass(frozen=True)
class Launch:
    """What a person asked for when starting or resuming a sweep."""

    folder: Folder
    slots: int
    pool: str = "loky"
    trials: int | None = None
    """The total of searched settings; None: as before."""
    retry_failed: bool = False
    strict: bool = False
    space: Path | None = None
    """A file with a wider space; None: as before."""
    metric: str | None = None
    """What trials are compared by from now on; None: as before."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Keys of the spec's budget that get another value."""
    max_disk: int | None = None
    exam: Exam | None = None
    """What is trained under test seeds; None: the search goes on."""
    jobs_given: bool = False
    """Whether a person said how many slots, now or before."""
    say: Callable[[str], None] = lambda _text: None
    """Told what happens before the driver begins."""

    @property
    def changes(self) -> bool:
        """Whether it says anything that `sweep set` may have said before."""
        return bool(self.trials or self.budget or self.max_disk)


@contextlib.contextmanager
def opened(
    launch: Launch, make_pool: Callable[[int], Pool] | None = None
) -> Iterator[tuple[Parts, list[str]]]:
    """The parts of a driver for an existing sweep, under its lock, in a new epoch; and warnings.

    What an earlier driver left running is closed as interrupted, and files that no row names are
    deleted. The pool is closed at the end; `make_pool` makes another one than is named, from the
    number of slots.
    """
    make_pool = make_pool or pools.find(launch.pool)
    with (
        holding.hold(launch.folder, launch.say) as held,
        contextlib.closing(Ledger(launch.folder.ledger)) as ledger,
    ):
        before = reading.spec_of(ledger)
        spec = _measured(launch, ledger, _widen(launch, before))
        paths = tuple(ledger.provenance["paths"])
        resolved = resolve(spec, paths)
        changes = provenance.changes(ledger.provenance, provenance.of(resolved.trainable))
        if changes and launch.strict:
            raise UsageError(f"--strict: {'; '.join(changes)}")
        warnings = [f"{change}; resumed trials may not be exact" for change in changes]
        history = reading.history(ledger, resolved.objective)
        _take_over(ledger, held.epoch, history, launch, _respecified(history, before, spec))
        _tidy(launch.folder, history)
        with contextlib.closing(make_pool(launch.slots)) as pool:
            capacity.check_pool(spec, pool.blocks)
            pool.equip(functools.partial(capacity.variables, spec))
            yield (
                Parts(
                    spec,
                    launch.folder,
                    ledger,
                    history,
                    resolved.scheduler,
                    resolved.searcher,
                    pool,
                    lambda config: resolved.trainable.complete_config(config, spec.stop),
                    paths,
                    resolved.trainable.can_save(),
                    held.check,
                    resolved.trainable.fixed_keys,
                ),
                warnings,
            )
        ledger.check(held.epoch)
        _tidy(launch.folder, history)


def _take_over(
    ledger: Ledger,
    epoch: int,
    history: History,
    launch: Launch,
    respecified: Sequence[Widened | Measured],
) -> None:
    """Begin the new epoch and put every trial where the new driver can go on with it."""
    running = [*history.replicas(Status.RUNNING), *history.tests(Status.RUNNING)]
    events: list[Event] = [verdicts.interrupted(r, "its driver was gone") for r in running]
    if launch.exam is not None:
        begun = launch.exam.begin(history, launch.slots, launch.pool)
        history.extend(ledger.begin_epoch([begun, *events], epoch))
        return
    wanted = launch.trials or history.wanted or specs.from_json(ledger.spec).trials
    began = EpochBegan(
        socket.gethostname(), os.getpid(), wanted, launch.slots, launch.jobs_given, launch.pool
    )
    if wanted < history.searched:
        raise UsageError(
            f"--trials: {wanted} is less than the {history.searched} trials that exist; "
            f"it is the total, give at least that"
        )
    changes, answers = _asked_before(ledger, history) if launch.changes else ([], {})
    measured = any(isinstance(event, Measured) for event in respecified)
    if wanted > history.wanted > 0 or launch.budget or changes or measured:
        events += verdicts.topped_up(history)
    if launch.retry_failed:
        events += verdicts.tried_again(history, events)
    if launch.budget or launch.max_disk or changes:  # the newest word holds
        events += [*changes, Changed(launch.trials, launch.budget, launch.max_disk)]
    events += respecified
    history.extend(ledger.begin_epoch([began, *events], epoch, answering(answers)))


def _respecified(history: History, before: SweepSpec, spec: SweepSpec) -> list[Widened | Measured]:
    """The events by which the spec of `before` becomes `spec`."""
    events: list[Widened | Measured] = []
    if spec.space is not before.space:
        events.append(Widened(spec.space.raw, len(history.trials)))
    if spec.metric != before.metric:
        events.append(Measured(spec.metric))
    return events


def _asked_before(ledger: Ledger, history: History) -> tuple[list[Changed], dict[int, Answer]]:
    with contextlib.closing(Requests(ledger.path)) as requests:
        return control.changed_before(history, requests.pending())


def _tidy(folder: Folder, history: History) -> None:
    for stale in folder.path.glob(".stop-*"):
        stale.unlink(missing_ok=True)
    for replica in [*history.replicas(*Status), *history.tests(*Status)]:
        named = {saved.file for saved in replica.checkpoints.values()}
        checkpoints.sweep_up(folder.trial(replica.trial, replica.index), named)
        checkpoints.remove_temporary_folders(folder.trial(replica.trial, replica.index))
