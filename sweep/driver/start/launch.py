"""Open an existing sweep, and assemble the parts of its driver."""

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep import pools
from sweep import spec as space_file
from sweep import spec as specs
from sweep.core import pickled, plugins
from sweep.core.errors import BadConfig, Place, Source, UsageError
from sweep.core.pickled import PickledTrainable
from sweep.driver import capacity, control, decisions, limits
from sweep.driver.context import DriverContext
from sweep.driver.final_evaluation import FinalEvaluation
from sweep.driver.start import changing
from sweep.driver.start.creation import provenance, resolving, samples
from sweep.driver.start.creation.resolving import Resolved
from sweep.history.events import (
    FAIL_FAST,
    Closed,
    LimitsChanged,
    MetricChanged,
    Moved,
    OtherKernelAllowed,
    SpaceChanged,
    Status,
    StopChanged,
    TermBegan,
    TrainableReplaced,
)
from sweep.history.history import History
from sweep.ledger import hold, lease
from sweep.ledger import ledger as ledgers
from sweep.ledger.folder import Folder
from sweep.ledger.hold import Hold
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Answer, Requests, answer_writer
from sweep.ledger.signed import REMOTE
from sweep.ledger.tables import Connection
from sweep.pools import Pool
from sweep.schedulers._shared.population import Population
from sweep.slices import reports, retention, store
from sweep.slices.store import SweepStore
from sweep.spec import Budget, Override, SweepSpec
from sweep.spec.space import Space, initial
from sweep.views import formatting, reading
from trainables.checkpoint.remote import RemoteError
from trainables.errors import ConfigError, shorten
from trainables.trainable import Trainable

#: Events by which the spec of a sweep changes.
SpecChange = (
    SpaceChanged | MetricChanged | TrainableReplaced | OtherKernelAllowed | StopChanged | Moved
)


def pickled_of(folder: Folder, ledger: Ledger, spec: SweepSpec) -> PickledTrainable | None:
    """Return the newest file of a script's pickled trainable.

    Returns None if the trainable is imported, or nothing was saved.
    """
    of_script = pickled.is_of_script(spec.trainable)
    return pickled.newest(folder.trainable, ledger.sweep_id) if of_script else None


def _source_digest(
    spec: SweepSpec, trainable: type[Trainable] | None, stored: PickledTrainable | None
) -> str | None:
    """Return the digest of a script's trainable: that of `trainable`, or else the stored one.

    It is empty if nothing is stored, and None if the trainable is not a script's.
    """
    if not pickled.is_of_script(spec.trainable):
        return None
    if trainable is not None:
        return pickled.digest_of(trainable)
    return "" if stored is None else pickled.source_of(stored)


def trainable_of(folder: Folder) -> type[Trainable]:
    """Import or unpickle the trainable class of the sweep in `folder`, which runs its code.

    Appends the sweep's folders of modules to `sys.path`. Raises UsageError if the class cannot be
    found, loaded or trained, and CheckpointError if the file of a pickled one is unusable.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        spec = reading.spec_of(ledger)
        kept = pickled_of(folder, ledger, spec)
        return plugins.find_trainable(spec.trainable, ledger.provenance["paths"], kept)


def _apply_space(launch: "Launch", spec: SweepSpec) -> SweepSpec:
    """Return the spec with the launch's new space, if it has one; BadSpace if it does not fit.

    If the space is the same, or none is given, the spec itself is returned. A file is read.
    """
    if launch.space is None:
        return spec
    if isinstance(launch.space, Path):
        space = space_file.read(launch.space, spec)
    else:
        space = Space.parse(launch.space, Source(), spec.forbid, replaces=True)
    if space.raw == spec.space.raw:
        return spec
    changing.check_space(spec.space, space)
    space.check_against(spec.config)
    return spec.model_copy(update={"space": space})


def _check_waiting_settings(history: History, spec: SweepSpec) -> None:
    """Raise UsageError if initial points or suggestions are outside a changed space.

    Only those count that no trial has taken yet.
    """
    first = history.searched_count - history.tried_suggestions
    what = {f"initial[{n}]": given for n, given in enumerate(spec.initial) if n >= first}
    what |= {
        f"suggestion {n}": one.settings
        for n, one in enumerate(history.open_suggestions.values(), 1)
    }
    for name, settings in what.items():
        try:
            initial.read_suggestion(spec.space, settings, Source(marks={(): Place(name)}))
        except BadConfig as error:
            later = "resume with the old space until a trial has tried these settings"
            raise UsageError(
                f"--space: these settings still wait for a trial: {error}; {later}"
            ) from error


def _check_inherited(history: History, space: Space, resolved: Resolved) -> None:
    """Raise BadSpace if offspring of a population would inherit a value that `space` lacks.

    They continue from checkpoints that depend on such settings, so these cannot be changed.
    """
    if not isinstance(resolved.scheduler, Population):
        return
    for name in sorted(space.determining(resolved.trainable.fixed_keys)):
        domain = space.domain_of(name)
        for trial in history.trials:
            if name in trial.searched and not domain.contains(trial.searched[name]):
                has = f"trial {trial.number} has {shorten(trial.searched[name])}"
                problem = f"{has}, which trials bred from its checkpoint inherit"
                path = space.parameters[name].path
                allowed = f"a range or list with all values of {name} that trials have"
                raise space.source.refuse(path, domain.describe(), allowed, problem=problem)


def _apply_changes(launch: "Launch", ledger: Ledger, spec: SweepSpec) -> SweepSpec:
    """Return the spec with the launch's new space, metric and stopping criteria.

    If nothing changes, `spec` itself is returned. Raises UsageError if one of them is not valid, or
    not allowed in a sweep that has begun.
    """
    changed = _apply_metric(launch, ledger, _apply_space(launch, spec))
    return changing.with_later_stop(ledger, changed, launch.stop)


def _apply_metric(launch: "Launch", ledger: Ledger, spec: SweepSpec) -> SweepSpec:
    """Return the spec with the launch's new metric, or `spec` itself if it has none.

    Raises BadConfig if it is not valid in this spec.
    """
    if launch.metric in (None, spec.metric):
        return spec
    asked = Override.of_option("metric", launch.metric)
    return spec.model_copy(update={"metric": specs.from_json(ledger.spec, [asked]).metric})


@dataclass(frozen=True)
class Launch:
    """The sweep and the options with which its next driver starts."""

    folder: Folder
    """Folder of the existing sweep."""
    slots: int
    """Number of slices that run at once, one for each seed of a trial."""
    pool: str = "loky"
    """Name of the pool that runs the slices."""
    trials: int | None = None
    """Total number of searched trials; None to keep it."""
    retry_failed: bool = False
    """True to try failed trials again from their newest checkpoints."""
    strict: bool = False
    """True to raise an error, not only warn, if code, libraries or processor have changed."""
    allows_other_kernel: bool = False
    """True to let trials continue with another compiled kernel than that of their checkpoints."""
    space: Path | Mapping[str, Any] | None = None
    """New space, or a file with it; None to keep the space."""
    metric: str | None = None
    """New metric by which trials are compared; None to keep it."""
    stop: Mapping[str, Any] = field(default_factory=dict)
    """Stopping criterion → its new, later value, as in a spec; absent ones stay unchanged."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Key of the spec's budget → its new limit; None removes a limit."""
    max_disk: int | None = None
    """New limit of the checkpoints' size in bytes; None to keep it."""
    final_evaluation: FinalEvaluation | None = None
    """Final evaluation to run; None for the search."""
    jobs_given: bool = False
    """True if a user chose the number of slots, now or for an earlier driver."""
    say: Callable[[str], None] = lambda _text: None
    """Function that shows the user messages of the launch, and of the deletions at its end."""
    resolved: Resolved | None = None
    """Spec with its plugins, from the sweep's creation a moment ago; the spec is resolved again if
    this is None, or the launch changes the spec."""
    trainable: type[Trainable] | None = None
    """Trainable class that replaces the stored one from now on; None to keep it."""
    checkpoints: str | None = None
    """URL of a new storage of the checkpoints, or the present one to accept another person's
    choice; None to keep it."""

    @property
    def changes_limits(self) -> bool:
        """True if this launch sets trials, budget or disk space, which `sweep set` changes, too."""
        return bool(self.trials or self.budget or self.max_disk)


@contextlib.contextmanager
def open_context(
    launch: Launch, make_pool: Callable[[int], Pool] | None = None
) -> Iterator[tuple[DriverContext, list[str]]]:
    """Take an existing sweep, begin a new term, and yield its driver's context, with warnings.

    Slices that an earlier driver left are recorded as interrupted, changes of the launch are
    recorded, and files that no row of the ledger names are deleted, again after a block without an
    error, when a failure of the object storage gives only a message. At the end pool and ledger are
    closed, and the sweep is released. Waits for a while if another machine holds the sweep.
    Warnings say that code, versions or processor have changed.

    Args:
        launch: options of the driver.
        make_pool: function from the number of slots to a pool, instead of the named pool.

    Raises:
        SweepError: another driver has the sweep, an option does not fit it, the pool cannot be
            used, or, with ``launch.strict``, code, versions or processor have changed.
    """
    with (
        hold.hold(launch.folder, launch.say) as held,
        contextlib.closing(Ledger(launch.folder.ledger)) as ledger,
    ):
        stored = _open_store(launch, ledger)
        _refuse_shared_copy(launch.folder, ledger)
        before = reading.spec_of(ledger)
        spec = _apply_changes(launch, ledger, before)
        paths = tuple(ledger.provenance["paths"])
        make_pool = make_pool or pools.find(launch.pool, paths)
        kept, resolved = pickled_of(launch.folder, ledger, spec), launch.resolved
        if resolved is None or resolved.spec != spec:
            resolved = resolving.resolve(spec, paths, trainable=launch.trainable, pickled=kept)
        source, given = _source_digest(spec, launch.trainable, kept), launch.trainable
        now, known = provenance.current(resolved.trainable, source), provenance.read(ledger)
        changes = provenance.changes(known, now, "source file" if source is None else "code")
        if changes and launch.strict:
            raise UsageError(f"--strict: {'; '.join(changes)}")
        warnings = [f"{change}; resumed trials may not be exact" for change in changes]
        if source is not None and given and not pickled.is_usable(kept, source):
            kept = pickled.write(launch.folder.trainable, given, ledger.sweep_id)
        history = reading.history(ledger, resolved.objective)
        events = _spec_changes(ledger, history, before, spec, resolved, launch.say)
        if source not in (None, known["source"]):
            events.append(TrainableReplaced(source))
        if launch.allows_other_kernel and not history.other_kernel:
            events.append(OtherKernelAllowed())
        with stored.background_deletion(), contextlib.closing(make_pool(launch.slots)) as pool:
            capacity.check_pool(spec, pool.blocks)
            pool.say = launch.say
            pool.connect(launch.folder.root)
            counted = pool.clustered and not launch.jobs_given
            jobs = pool.slots if counted else launch.slots
            _take_over(
                ledger,
                held,
                history,
                launch,
                jobs,
                _interruption_events(stored, ledger, history, spec),
                events,
            )
            _delete_leftovers(stored, history)
            pool.equip(functools.partial(capacity.gpu_variables, spec))
            yield (
                DriverContext(
                    spec,
                    launch.folder,
                    ledger,
                    history,
                    resolved.scheduler,
                    resolved.searcher,
                    pool,
                    functools.partial(
                        _trial_config,
                        resolved,
                        history,
                        samples.StackWidths(spec, resolved.trainable, launch.slots)
                        if pool.lanes
                        else None,
                    ),
                    paths,
                    resolved.trainable.can_save(spec.config),
                    held.check,
                    resolved.trainable.fixed_keys,
                    kept,
                    stored,
                    resolving.unsure_names(resolved),
                ),
                warnings,
            )
        ledger.check(held.term)
        try:
            _delete_leftovers(stored, history)
        except RemoteError as error:
            launch.say(f"checkpoints that are no longer needed stay until `sweep gc`: {error}")


def _open_store(launch: "Launch", ledger: Ledger) -> SweepStore:
    """Return the store of the checkpoints, after recording the launch's new storage if it has one.

    Nothing is copied. Raises RemoteError or StorageError if the storage does not hold this sweep.
    """
    if launch.checkpoints is not None:
        store.move(launch.folder, store.check(launch.checkpoints), ledger.name, ledger.sweep_id)
    found = store.of_sweep(launch.folder)
    if found.url:
        store.require(found.url)
    return found


def _refuse_shared_copy(folder: Folder, ledger: Ledger) -> None:
    """Raise UsageError if the folder is a copy that shares data with its original in the same root.

    A ledger on a server and checkpoints in object storage are named in the folder, not copied.
    """
    first, url = Folder(folder.root, ledger.name), store.storage_url(folder)
    if first.name == folder.name or not first.ledger.is_file():
        return
    on_server = folder.ledger.suffix == first.ledger.suffix == REMOTE
    if not on_server and not (url and store.storage_url(first) == url):
        return
    with contextlib.closing(Ledger(first.ledger)) as other:
        if other.sweep_id != ledger.sweep_id:
            return
    what = "ledger on a server" if on_server else f"checkpoints in {url}"
    raise UsageError(
        f"{folder.name}: this folder is a copy of the sweep '{first.name}' and shares its "
        f"{what}, so each would delete files of the other; continue the original with `sweep "
        f"resume {first.in_commands}`, or start a new sweep with `searcher.prior`"
    )


def _trial_config(
    resolved: Resolved,
    history: History,
    widths: samples.StackWidths | None,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Return all settings of a new trial, from those at a point of the space (`config`, nested).

    `widths` are the widths of stacks if trials train as lanes, or None. The values of ``auto`` are
    those of the sweep's first trial, so that all trials agree. If the trainable refuses the
    settings, ``auto`` is left in them: the trial then fails when it is set up.
    """
    whole = samples.complete_config(resolved.trainable, resolved.spec, config)
    if widths is not None:
        whole = resolved.trainable.as_lane(whole, widths.width(whole))
    if (values := _settle_auto(resolved, whole)) is None:
        return whole
    firsts = (
        trial.config
        for trial in history.trials
        if values.keys() <= trial.config.keys() or _settle_auto(resolved, trial.config) is not None
    )
    return {**whole, **resolved.trainable.align_settled(values, next(firsts, values))}


def _settle_auto(resolved: Resolved, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return setting → value in place of ``auto``; None if the trainable refuses the settings."""
    try:
        return resolved.trainable.settle_config(config)
    except ConfigError:
        return None


def _interruption_events(
    stored: SweepStore, ledger: Ledger, history: History, spec: SweepSpec
) -> list[Closed]:
    """Return the events that interrupt the slices which an earlier driver left running.

    They have the results and checkpoints of the slices' journals. Checkpoints that are intact on
    disk get other names.
    """
    running = [*history.replicas(Status.RUNNING), *history.test_replicas(Status.RUNNING)]
    left = (reports.lost_outcome(stored, ledger, replica) for replica in running)
    return [decisions.interruption_event(history, spec, one, "its driver was gone") for one in left]


def _take_over(
    ledger: Ledger,
    hold: Hold,
    history: History,
    launch: Launch,
    jobs: int,
    unfinished: Sequence[Closed],
    spec_changes: Sequence[SpecChange],
) -> None:
    """Record the new term and all changes of a launch in one transaction; add them to `history`.

    `unfinished` are the events of slices that an earlier driver left, `spec_changes` those of a
    changed spec, and `jobs` is the number of slots. Trials that were pruned only at the sweep's end
    are reopened if there are more trials, another budget, space, metric or stopping criterion,
    retried trials (``launch.retry_failed``), or if `limits.fail_fast` had ended it. If the launch
    changes limits, waiting `sweep set` requests are answered first. Also renews the lease and sets
    ``hold.drives``. A final evaluation records only its beginning and `unfinished`. Raises
    UsageError for options that do not fit the sweep.
    """
    events = history.with_sums(unfinished)
    unrecorded_s = history.unrecorded_s(ledger.driven_at)
    if launch.final_evaluation is not None:
        begun = launch.final_evaluation.begin_event(history, jobs, launch.pool, unrecorded_s)
        history.extend(ledger.append(hold.term, [begun, *events]))
        return
    spec = reading.original_spec(ledger)
    wanted = launch.trials or history.wanted or spec.trials
    began = TermBegan(
        socket.gethostname(),
        os.getpid(),
        wanted,
        jobs,
        launch.jobs_given,
        launch.pool,
        unrecorded_s,
    )
    limits.check_total(history, wanted)
    budget = limits.present_budget(spec, history)
    changes, answers = (
        _read_earlier_changes(ledger, history, budget) if launch.changes_limits else ([], {})
    )
    for change in changes:
        budget = budget.with_changes(change.budget)
    limits.check_changed_budget(history, budget, launch.budget)
    retried = decisions.retried_moves(history) if launch.retry_failed else []
    other = any(isinstance(e, MetricChanged | SpaceChanged | StopChanged) for e in spec_changes)
    failing = history.end_reason.startswith(FAIL_FAST)
    if wanted > history.wanted > 0 or launch.budget or changes or other or retried or failing:
        brought_back = decisions.reopening_moves(history)
        there = {(moved.trial, moved.replica) for moved in brought_back}
        retried = [moved for moved in retried if (moved.trial, moved.replica) not in there]
        events += [*brought_back, *retried]
    if launch.budget or launch.max_disk or changes:  # the newest change takes effect
        events += [*changes, LimitsChanged(launch.trials, launch.budget, launch.max_disk)]
    events += spec_changes
    answer = answer_writer(answers)

    def begin(connection: Connection) -> None:
        """Answer the requests and renew the lease, both in the given transaction."""
        answer(connection)
        lease.renew(connection, hold.term, ledgers.now())

    history.extend(ledger.append(hold.term, [began, *events], begin))
    hold.drives = True


def _spec_changes(
    ledger: Ledger,
    history: History,
    before: SweepSpec,
    spec: SweepSpec,
    resolved: Resolved,
    say: Callable[[str], None],
) -> list[SpecChange]:
    """Return the events by which the spec `before` becomes `spec`.

    `ledger` has the results of `history`, and `say` is called with messages about trials that
    continue. Raises UsageError if the history does not allow the new space or stopping criteria.
    """
    events: list[SpecChange] = []
    if spec.space is not before.space:
        _check_waiting_settings(history, spec)
        _check_inherited(history, spec.space, resolved)
        events.append(SpaceChanged(spec.space.raw, len(history.trials)))
    if spec.metric != before.metric:
        events.append(MetricChanged(spec.metric))
    if spec.stop is not before.stop:
        change = changing.stop_change(history, spec, resolved)
        moves = list(changing.continuing_moves(ledger, history, before, spec, change))
        several = len({moved.trial for moved in moves})
        say(f"--stop: {formatting.plural(several, 'ended trial')} can continue")
        for text in changing.schedule_note(history, resolved, before, spec):
            say(text)
        events += [change, *moves]
    return events


def _read_earlier_changes(
    ledger: Ledger, history: History, budget: Budget
) -> tuple[list[LimitsChanged], dict[int, Answer]]:
    """Return the limits changed by `sweep set` while no driver ran, and request number → answer.

    `budget` is the one before these changes.
    """
    with contextlib.closing(Requests(ledger.path)) as requests:
        return control.pending_limit_changes(history, budget, requests.pending())


def _delete_leftovers(stored: SweepStore, history: History) -> None:
    """Delete stop files, leftovers of crashes, journals and trials' temporary folders.

    Checkpoint files that `history` does not name are leftovers. No slice may run.
    """
    folder = stored.folder
    for stale in folder.path.glob(".stop-*"):
        stale.unlink(missing_ok=True)
    stored.sweep_up(history)
    for replica in history.all_replicas:
        reports.remove(folder, replica.trial, replica.index)
        retention.remove_temporary_folders(folder.trial(replica.trial, replica.index))
