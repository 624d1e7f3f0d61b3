"""From a spec, or the name of a sweep, to a driver that is ready to run.

Everything that can be wrong with a spec is found here, before anything is written.
"""

import contextlib
import functools
import importlib.metadata
import inspect
import os
import platform
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from sweep import pickled, plugins, pools, searchers, trackers
from sweep import spec as space_file
from sweep import spec as specs
from sweep.driver import capacity, control, decisions, sync, warm_start
from sweep.driver.context import DriverContext
from sweep.driver.final_evaluation import FinalEvaluation
from sweep.errors import BadConfig, Source, UnknownName, UsageError
from sweep.history.events import (
    Changed,
    Measured,
    OtherKernel,
    Recoded,
    Status,
    TermBegan,
    Widened,
)
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.ledger import hold
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Answer, Requests, answering
from sweep.pickled import Kept
from sweep.pools import Pool
from sweep.schedulers import Scheduler
from sweep.schedulers._shared import racing
from sweep.searchers import Searcher
from sweep.slices import retention, store
from sweep.slices.store import SweepStore
from sweep.space import Settings, Space, initial, widening
from sweep.spec import Override, SweepSpec
from sweep.trackers._shared import callbacks
from sweep.version import __version__
from sweep.views import reading
from trainables.checkpoint.remote import RemoteError
from trainables.core import rng
from trainables.errors import ConfigError, nearest, printable, shorten
from trainables.function import FunctionTrainable
from trainables.trainable import Trainable

#: What is different from the spec of a sweep from now on.
Respecified = Widened | Measured | Recoded | OtherKernel


@dataclass(frozen=True)
class Resolved:
    """A spec together with the plugins that it names."""

    spec: SweepSpec
    trainable: type[Trainable]
    scheduler: Scheduler
    searcher: Searcher
    paths: tuple[str, ...] = ()
    """Folders in which modules are looked for after everything installed."""

    @property
    def objective(self) -> Objective:
        """What its trials are compared by."""
        return reading.objective_of(self.spec, self.scheduler.time_attr)


def resolve(
    spec: SweepSpec,
    paths: Sequence[str],
    new: bool = False,
    trainable: type[Trainable] | None = None,
    kept: Kept | None = None,
) -> Resolved:
    """Find the plugins of `spec` and check all settings; every mistake is a UsageError.

    Args:
        spec: as it is given, or as a ledger keeps it.
        paths: folders in which modules are looked for after everything installed.
        new: whether a sweep is to be created: its spec gets the defaults that its ledger must name.
        trainable: the one that the spec names, if it is at hand.
        kept: where it lies, if it is one of a script.
    """
    if trainable is None:
        with _written_at(spec, "trainable"):
            trainable = plugins.find_trainable(spec.trainable, paths, kept)
    with _written_at(spec, "scheduler"):
        scheduler = racing.build(spec, paths, trainable.fixed_keys)
        if new:
            spec = racing.settled(spec, paths)
            scheduler = racing.build(spec, paths, trainable.fixed_keys)
    with _written_at(spec, "searcher"):
        searcher_class = searchers.find(spec.searcher.name, paths)
    options = specs.build(searcher_class.Options, spec.searcher, "searcher", spec.source)
    for index, tracker in enumerate(spec.trackers):
        with _written_at(spec, "trackers", index):
            trackers.find(tracker, paths)
    for index, name in enumerate(spec.callbacks):
        with _written_at(spec, "callbacks", index):
            callbacks.find(name, paths)
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
    if spec.objectives and not searcher.supports.objectives:
        able = [
            n for n in plugins.names(searchers.PACKAGE) if searchers.find(n).supports.objectives
        ]
        raise spec.source.refuse(
            ("objectives",),
            dict(spec.objectives),
            f"no key, as searcher {spec.searcher.name} knows one objective",
            f"these know several: {', '.join(able)}",
        )
    check_samples(spec, lambda c: trainable.check_config(completed(trainable, spec, c)))
    return Resolved(spec, trainable, scheduler, searcher, tuple(paths))


@contextlib.contextmanager
def _written_at(spec: SweepSpec, *path: str | int) -> Iterator[None]:
    """Answer a mistake that a plugin finds with the line of the spec."""
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
        at = spec.source.at(tuple(error.key.split(".")) if error.key else path)
        mistake = (error.key, error.value, error.allowed, error.hint)
        raise BadConfig(*mistake, at=at, problem=error.problem) from error


def create(
    folder: Folder,
    resolved: Resolved,
    source: str,
    tracking_uri: str | None = None,
    storage: str | None = None,
    checkpoints: str | None = None,
) -> list[str]:
    """Make the folder and the ledger of a new sweep, whole or not at all; returns what to say.

    `source` is the text of its spec. The tracking URI and that of the checkpoints stand beside the
    ledger, where `sweep resume` finds them; `storage` is the server on which the ledger is to lie.
    """
    warmed = warm_start.read(resolved.spec, resolved.objective, folder.root)
    folder.root.mkdir(parents=True, exist_ok=True)
    with folder.creating() as draft:
        if tracking_uri is not None:
            sync.keep(draft.tracking_uri, tracking_uri)
        draft.spec.write_text(source, encoding="utf-8")
        of_script = pickled.is_of_script(resolved.spec.trainable)
        digest = pickled.digest_of(resolved.trainable) if of_script else None
        recorded = {
            **provenance_of(resolved.trainable, digest),
            "paths": list(resolved.paths),
            "time_attr": resolved.scheduler.time_attr,
            "levels": list(resolved.scheduler.levels),
        }
        text = specs.canonical_json(resolved.spec)
        made = Ledger.create(draft.ledger, folder.name, text, recorded, storage)
        with contextlib.closing(made) as ledger:
            if of_script:
                pickled.write(draft.trainable, resolved.trainable, ledger.sweep_id)
            if warmed is not None:
                ledger.append(None, [warmed])
            if checkpoints is not None:
                store.begin(draft, checkpoints, ledger.name, ledger.sweep_id)
    return warm_start.describe(warmed)


def kept_of(folder: Folder, ledger: Ledger, spec: SweepSpec) -> Kept | None:
    """Where the trainable of the sweep is kept, if it is one of a script."""
    of_script = pickled.is_of_script(spec.trainable)
    return pickled.newest(folder.trainable, ledger.sweep_id) if of_script else None


def _source(spec: SweepSpec, given: type[Trainable] | None, kept: Kept | None) -> str | None:
    """The digest of the trainable of a script; None: it is none."""
    if not pickled.is_of_script(spec.trainable):
        return None
    if given is not None:
        return pickled.digest_of(given)
    return "" if kept is None else pickled.source_of(kept)


def trainable_of(folder: Folder) -> type[Trainable]:
    """The trainable of the sweep in `folder`: whatever it is, its code is run."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        spec = reading.spec_of(ledger)
        kept = kept_of(folder, ledger, spec)
        return plugins.find_trainable(spec.trainable, ledger.provenance["paths"], kept)


def _widen(launch: "Launch", spec: SweepSpec) -> SweepSpec:
    """The spec with the wider space of `--space`."""
    if launch.space is None:
        return spec
    if isinstance(launch.space, Path):
        space = space_file.read(launch.space, spec)
    else:
        space = Space.parse(launch.space, Source(), spec.forbid)
    if space.raw == spec.space.raw:
        return spec
    widening.check(spec.space, space)
    space.check_against(spec.config)
    return spec.model_copy(update={"space": space})


def _measured(launch: "Launch", ledger: Ledger, spec: SweepSpec) -> SweepSpec:
    """The spec with the metric of `--metric`."""
    if launch.metric in (None, spec.metric):
        return spec
    asked = Override.of_option("metric", launch.metric)
    return spec.model_copy(update={"metric": specs.from_json(ledger.spec, [asked]).metric})


@dataclass(frozen=True)
class Launch:
    """With what options a sweep is started or resumed."""

    folder: Folder
    slots: int
    pool: str = "loky"
    trials: int | None = None
    """The total of searched settings; None: as before."""
    retry_failed: bool = False
    strict: bool = False
    other_kernel: bool = False
    """Whether trials go on where the kernel of their checkpoints is not built, from now on."""
    space: Path | Mapping[str, Any] | None = None
    """A wider space, or a file with one; None: as before."""
    metric: str | None = None
    """What trials are compared by from now on; None: as before."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Keys of the spec's budget that get another value."""
    max_disk: int | None = None
    final_evaluation: FinalEvaluation | None = None
    """What is trained under test seeds; None: the search goes on."""
    jobs_given: bool = False
    """Whether a person said how many slots, now or before."""
    say: Callable[[str], None] = lambda _text: None
    """Shows a person what happens before the driver begins."""
    resolved: Resolved | None = None
    """What was resolved when the sweep was created a moment ago; None: that is still to be done."""
    trainable: type[Trainable] | None = None
    """What stands for the one that is kept from now on; None: as before."""
    checkpoints: str | None = None
    """Where its checkpoints were moved, or that they lie where somebody else has said."""

    @property
    def changes(self) -> bool:
        """Whether this launch changes a value that `sweep set` can change, too."""
        return bool(self.trials or self.budget or self.max_disk)


@contextlib.contextmanager
def opened(
    launch: Launch, make_pool: Callable[[int], Pool] | None = None
) -> Iterator[tuple[DriverContext, list[str]]]:
    """What a driver of an existing sweep needs, under its lock, in a new term; and warnings.

    What an earlier driver left running is closed as interrupted, and files that no row names are
    deleted. The pool is closed at the end; `make_pool` makes another one than is named, from the
    number of slots.
    """
    with (
        hold.hold(launch.folder, launch.say) as held,
        contextlib.closing(Ledger(launch.folder.ledger)) as ledger,
    ):
        stored = _stored(launch, ledger)
        before = reading.spec_of(ledger)
        spec = _measured(launch, ledger, _widen(launch, before))
        paths = tuple(ledger.provenance["paths"])
        make_pool = make_pool or pools.find(launch.pool, paths)
        kept, resolved = kept_of(launch.folder, ledger, spec), launch.resolved
        if resolved is None or resolved.spec != spec:
            resolved = resolve(spec, paths, trainable=launch.trainable, kept=kept)
        source, given = _source(spec, launch.trainable, kept), launch.trainable
        now, known = provenance_of(resolved.trainable, source), _provenance(ledger)
        changes = provenance_changes(known, now, "source file" if source is None else "code")
        if changes and launch.strict:
            raise UsageError(f"--strict: {'; '.join(changes)}")
        warnings = [f"{change}; resumed trials may not be exact" for change in changes]
        if source is not None and given and not pickled.is_usable(kept, source):
            kept = pickled.write(launch.folder.trainable, given, ledger.sweep_id)
        history = reading.history(ledger, resolved.objective)
        events = _respecified(history, before, spec)
        if source not in (None, known["source"]):
            events.append(Recoded(source))
        if launch.other_kernel and not history.other_kernel:
            events.append(OtherKernel())
        with stored.driven(), contextlib.closing(make_pool(launch.slots)) as pool:
            capacity.check_pool(spec, pool.blocks)
            pool.say = launch.say
            pool.connect(launch.folder.root)
            counted = pool.clustered and not launch.jobs_given
            jobs = pool.slots if counted else launch.slots
            _take_over(ledger, held.term, history, launch, jobs, events)
            _tidy(stored, history)
            pool.equip(functools.partial(capacity.variables, spec))
            yield (
                DriverContext(
                    spec,
                    launch.folder,
                    ledger,
                    history,
                    resolved.scheduler,
                    resolved.searcher,
                    pool,
                    functools.partial(_trial_config, resolved, history),
                    paths,
                    resolved.trainable.can_save(),
                    held.check,
                    resolved.trainable.fixed_keys,
                    kept,
                    stored,
                ),
                warnings,
            )
        ledger.check(held.term)
        try:
            _tidy(stored, history)
        except RemoteError as error:
            launch.say(f"checkpoints that nobody needs stay, until `sweep gc`: {error}")


def _stored(launch: "Launch", ledger: Ledger) -> SweepStore:
    """Where its checkpoints lie; RemoteError if the storage is not what it was."""
    if launch.checkpoints is not None:
        store.move(launch.folder, store.check(launch.checkpoints), ledger.name, ledger.sweep_id)
    found = store.of(launch.folder)
    if found.url:
        store.require(found.url)
    return found


def completed(
    trainable: type[Trainable], spec: SweepSpec, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings with what follows from the criteria to stop and from the metrics that count."""
    names = {spec.metric, *spec.objectives, *spec.constraints, *spec.stop}
    return trainable.complete_config(trainable.show_metrics(config, names), spec.stop)


def _trial_config(
    resolved: Resolved, history: History, config: Mapping[str, Any]
) -> dict[str, Any]:
    """All settings of a trial that is made now.

    What ``auto`` means is settled as for the first trial of the sweep, so that all are alike.
    Settings that the trainable refuses stay as they are: their trial fails when it is set up.
    """
    whole = completed(resolved.trainable, resolved.spec, config)
    if (settled := _settled(resolved, whole)) is None:
        return whole
    firsts = (
        trial.config
        for trial in history.trials
        if settled.keys() <= trial.config.keys() or _settled(resolved, trial.config) is not None
    )
    return {**whole, **resolved.trainable.settled_alike(settled, next(firsts, settled))}


def _settled(resolved: Resolved, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What ``auto`` means in these settings; None: the trainable refuses them."""
    try:
        return resolved.trainable.settle_config(config)
    except ConfigError:
        return None


def _take_over(
    ledger: Ledger,
    term: int,
    history: History,
    launch: Launch,
    jobs: int,
    respecified: Sequence[Respecified],
) -> None:
    """Begin the new term and put every trial where the new driver can go on with it."""
    running = [*history.replicas(Status.RUNNING), *history.tests(Status.RUNNING)]
    events = history.with_sums(decisions.interrupted(r, "its driver was gone") for r in running)
    if launch.final_evaluation is not None:
        begun = launch.final_evaluation.begin(history, jobs, launch.pool)
        history.extend(ledger.append(term, [begun, *events]))
        return
    wanted = launch.trials or history.wanted or specs.from_json(ledger.spec).trials
    began = TermBegan(
        socket.gethostname(), os.getpid(), wanted, jobs, launch.jobs_given, launch.pool
    )
    if wanted < history.searched:
        raise UsageError(
            f"--trials: {wanted} is less than the {history.searched} trials that exist; "
            f"it is the total, give at least that"
        )
    changes, answers = _asked_before(ledger, history) if launch.changes else ([], {})
    retried = decisions.tried_again(history) if launch.retry_failed else []
    other = any(isinstance(event, Measured | Widened) for event in respecified)
    if wanted > history.wanted > 0 or launch.budget or changes or other or retried:
        brought_back = decisions.topped_up(history)
        there = {(moved.trial, moved.replica) for moved in brought_back}
        retried = [moved for moved in retried if (moved.trial, moved.replica) not in there]
        events += [*brought_back, *retried]
    if launch.budget or launch.max_disk or changes:  # the newest word holds
        events += [*changes, Changed(launch.trials, launch.budget, launch.max_disk)]
    events += respecified
    history.extend(ledger.append(term, [began, *events], answering(answers)))


def _respecified(history: History, before: SweepSpec, spec: SweepSpec) -> list[Respecified]:
    """The events by which the spec of `before` becomes `spec`."""
    events: list[Respecified] = []
    if spec.space is not before.space:
        events.append(Widened(spec.space.raw, len(history.trials)))
    if spec.metric != before.metric:
        events.append(Measured(spec.metric))
    return events


def _asked_before(ledger: Ledger, history: History) -> tuple[list[Changed], dict[int, Answer]]:
    with contextlib.closing(Requests(ledger.path)) as requests:
        return control.changed_before(history, requests.pending())


def _tidy(stored: SweepStore, history: History) -> None:
    folder = stored.folder
    for stale in folder.path.glob(".stop-*"):
        stale.unlink(missing_ok=True)
    stored.sweep_up(history)
    for replica in history.everyone:
        retention.remove_temporary_folders(folder.trial(replica.trial, replica.index))


# -------------------------------------------------------------------------------------------------
# A few points of a spec's space, to see before anything runs whether the trainable takes them.

#: How many points are looked at.
SAMPLES = 10


def draw_samples(space: Space, seed: int, count: int = SAMPLES) -> list[Settings]:
    """Independent random points of the space; values of grids in turn, as trials take them."""
    return [
        initial.space_of(space, (), number).draw(rng.integer(seed, "samples", number))
        for number in range(count)
    ]


def check_samples(spec: SweepSpec, check_config: Callable[[Mapping[str, Any]], None]) -> None:
    """Show the trainable some points of the space.

    Raises:
        BadConfig: it refused one; says where in the spec that setting stands.
    """
    for point in draw_samples(spec.space, spec.seed):
        try:
            check_config(spec.space.nest(point.settings, spec.config))
        except ConfigError as error:
            raise _refusal(error, spec.source, spec.space) from None


def _refusal(error: ConfigError, source: Source, space: Space) -> Exception:
    """The trainable's refusal at its line of the spec, in ``space`` if the key is searched."""
    names = error.place.split(".")
    for end in range(len(names), 0, -1):
        name = ".".join(names[:end])
        if name in space.parameters:
            path = ("space", *space.parameters[name].path)
            return source.refuse(path, error.value, error.allowed, error.hint)
    return source.refuse(("config", *names), error.value, error.allowed, error.hint)


# -------------------------------------------------------------------------------------------------
# What results depend on beside the spec: versions, the trainable's source, the processor.

#: Distributions whose versions decide, beside ours, whether a resumed trial can be exact.
RECORDED = ("torch", "numpy", "gymnasium", "optuna")
_PROCESSORS = Path("/proc/cpuinfo")


def provenance_of(trainable: type[Trainable], source: str | None = None) -> dict[str, Any]:
    """Entries ``versions``, ``source`` (a digest; None: of the file), and ``processor``."""
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in RECORDED}
    versions["sweep"] = __version__
    return {
        "versions": versions,
        "source": _source_digest(trainable) if source is None else source,
        "processor": _processor(),
    }


def _processor() -> str:
    """What the processor calls itself: on another type the same sums are rounded otherwise."""
    try:
        lines = _PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _source_digest(trainable: type[Trainable]) -> str:
    file = inspect.getsourcefile(inspect.unwrap(trainable))
    return sha256(Path(file).read_bytes()).hexdigest() if file else ""


def _provenance(ledger: Ledger) -> dict[str, Any]:
    """What results depend on, as it was when it was last recorded."""
    newest = ledger.newest(Recoded.kind)
    recoded = {"source": newest.source} if isinstance(newest, Recoded) else {}
    return {**ledger.provenance, **recoded}


def provenance_changes(
    before: Mapping[str, Any], now: Mapping[str, Any], what: str = "source file"
) -> list[str]:
    """What differs between two answers of `provenance_of`, in words; `what` the digest is of."""
    changed = [
        f"{name} was {before['versions'].get(name)}, is {version}"
        for name, version in now["versions"].items()
        if before["versions"].get(name) != version
    ]
    if before["source"] != now["source"]:
        changed.append(f"the trainable's {what} has changed")
    if before["processor"] not in ("", now["processor"]):
        changed.append(f"the processor was {printable(before['processor'])}, is {now['processor']}")
    return changed
