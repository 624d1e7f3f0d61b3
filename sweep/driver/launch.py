"""From the name of a sweep to a driver that is ready to run."""

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep import pickled, plugins, pools
from sweep import spec as space_file
from sweep import spec as specs
from sweep.driver import capacity, control, decisions, limits
from sweep.driver.context import DriverContext
from sweep.driver.creation import provenance, resolving, samples
from sweep.driver.creation.resolving import Resolved
from sweep.driver.final_evaluation import FinalEvaluation
from sweep.errors import Source, UsageError
from sweep.history.events import (
    FAIL_FAST,
    Changed,
    Closed,
    Measured,
    OtherKernel,
    Recoded,
    Status,
    TermBegan,
    Widened,
)
from sweep.history.history import History
from sweep.ledger import hold, lease
from sweep.ledger import ledger as ledgers
from sweep.ledger.folder import Folder
from sweep.ledger.hold import Hold
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Answer, Requests, answering
from sweep.ledger.signed import REMOTE
from sweep.ledger.tables import Connection
from sweep.pickled import Kept
from sweep.pools import Pool
from sweep.slices import reports, retention, store
from sweep.slices.store import SweepStore
from sweep.space import Space, widening
from sweep.spec import Override, SweepSpec
from sweep.views import reading
from trainables.checkpoint.remote import RemoteError
from trainables.errors import ConfigError
from trainables.trainable import Trainable

#: What is different from the spec of a sweep from now on.
Respecified = Widened | Measured | Recoded | OtherKernel


def kept_of(folder: Folder, ledger: Ledger, spec: SweepSpec) -> Kept | None:
    """Return the file of the sweep's trainable, if it is one of a script."""
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
    """True if trials may continue without the kernel of their checkpoints, from now on."""
    space: Path | Mapping[str, Any] | None = None
    """A wider space, or a file with one; None: as before."""
    metric: str | None = None
    """The metric by which trials are compared from now on; None: as before."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Keys of the spec's budget that get another value."""
    max_disk: int | None = None
    final_evaluation: FinalEvaluation | None = None
    """The final evaluation to run; None for the search."""
    jobs_given: bool = False
    """True if a person chose the number of slots, now or before."""
    say: Callable[[str], None] = lambda _text: None
    """Shows a person what happens before the driver begins."""
    resolved: Resolved | None = None
    """The spec as resolved when the sweep was created a moment ago; None if not resolved yet."""
    trainable: type[Trainable] | None = None
    """The trainable that replaces the kept one from now on; None: as before."""
    checkpoints: str | None = None
    """The new place of the checkpoints, or the old one that somebody else has chosen."""

    @property
    def changes(self) -> bool:
        """True if this launch changes a value that `sweep set` can change, too."""
        return bool(self.trials or self.budget or self.max_disk)


@contextlib.contextmanager
def opened(
    launch: Launch, make_pool: Callable[[int], Pool] | None = None
) -> Iterator[tuple[DriverContext, list[str]]]:
    """Yield the parts of an existing sweep's driver, under its lock, in a new term; and warnings.

    What an earlier driver left running is closed as interrupted, and files that no row names are
    deleted. The pool is closed at the end; `make_pool` makes another one than is named, from the
    number of slots.
    """
    with (
        hold.hold(launch.folder, launch.say) as held,
        contextlib.closing(Ledger(launch.folder.ledger)) as ledger,
    ):
        stored = _stored(launch, ledger)
        _refuse_what_a_copy_shares(launch.folder, ledger)
        before = reading.spec_of(ledger)
        spec = _measured(launch, ledger, _widen(launch, before))
        paths = tuple(ledger.provenance["paths"])
        make_pool = make_pool or pools.find(launch.pool, paths)
        kept, resolved = kept_of(launch.folder, ledger, spec), launch.resolved
        if resolved is None or resolved.spec != spec:
            resolved = resolving.resolve(spec, paths, trainable=launch.trainable, kept=kept)
        source, given = _source(spec, launch.trainable, kept), launch.trainable
        now, known = provenance.current(resolved.trainable, source), provenance.recorded(ledger)
        changes = provenance.changes(known, now, "source file" if source is None else "code")
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
            _take_over(
                ledger, held, history, launch, jobs, _left(stored, ledger, history, spec), events
            )
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
                    functools.partial(_trial_config, resolved, history, pool),
                    paths,
                    resolved.trainable.can_save(),
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
            _tidy(stored, history)
        except RemoteError as error:
            launch.say(f"checkpoints that nobody needs stay, until `sweep gc`: {error}")


def _stored(launch: "Launch", ledger: Ledger) -> SweepStore:
    """Return the store of its checkpoints; RemoteError if the storage is not what it was."""
    if launch.checkpoints is not None:
        store.move(launch.folder, store.check(launch.checkpoints), ledger.name, ledger.sweep_id)
    found = store.of(launch.folder)
    if found.url:
        store.require(found.url)
    return found


def _refuse_what_a_copy_shares(folder: Folder, ledger: Ledger) -> None:
    """Raise UsageError for a copied folder whose first one, beside it, needs the same things.

    A ledger on a server and checkpoints in storage are named in the folder and not copied with it.
    """
    first, url = Folder(folder.root, ledger.name), store.said(folder)
    if first.name == folder.name or not first.ledger.is_file():
        return
    on_server = folder.ledger.suffix == first.ledger.suffix == REMOTE
    if not on_server and not (url and store.said(first) == url):
        return
    with contextlib.closing(Ledger(first.ledger)) as other:
        if other.sweep_id != ledger.sweep_id:
            return
    what = "ledger on a server" if on_server else f"checkpoints in {url}"
    raise UsageError(
        f"{folder.name}: is a copy of the sweep '{first.name}' and shares its {what}, so each "
        f"would "
        f"delete files of the other; continue the original with `sweep resume "
        f"{first.in_commands}`, or start another sweep with `searcher.prior`"
    )


def _trial_config(
    resolved: Resolved, history: History, pool: Pool, config: Mapping[str, Any]
) -> dict[str, Any]:
    """All settings of a trial that is made now, to run in `pool`.

    What ``auto`` means is settled as for the first trial of the sweep, so that all are alike.
    Settings that the trainable refuses stay as they are: their trial fails when it is set up.
    """
    whole = samples.completed(resolved.trainable, resolved.spec, config)
    if pool.lanes:
        before = (trial.config["lanes"] for trial in history.trials if "lanes" in trial.config)
        whole = resolved.trainable.as_lane(whole, int(next(before, pool.slots)))
    if (settled := _settled(resolved, whole)) is None:
        return whole
    firsts = (
        trial.config
        for trial in history.trials
        if settled.keys() <= trial.config.keys() or _settled(resolved, trial.config) is not None
    )
    return {**whole, **resolved.trainable.settled_alike(settled, next(firsts, settled))}


def _settled(resolved: Resolved, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of ``auto`` in these settings; None if the trainable refuses them."""
    try:
        return resolved.trainable.settle_config(config)
    except ConfigError:
        return None


def _left(stored: SweepStore, ledger: Ledger, history: History, spec: SweepSpec) -> list[Closed]:
    """The ends of the slices that an earlier driver left running."""
    running = [*history.replicas(Status.RUNNING), *history.tests(Status.RUNNING)]
    left = (reports.left(stored, ledger, replica) for replica in running)
    return [decisions.interrupted(history, spec, one, "its driver was gone") for one in left]


def _take_over(
    ledger: Ledger,
    held: Hold,
    history: History,
    launch: Launch,
    jobs: int,
    left: Sequence[Closed],
    respecified: Sequence[Respecified],
) -> None:
    """Begin the new term and put every trial where the new driver can go on with it."""
    events = history.with_sums(left)
    unrecorded_s = history.unrecorded_s(ledger.drove_at)
    if launch.final_evaluation is not None:
        begun = launch.final_evaluation.begin(history, jobs, launch.pool, unrecorded_s)
        history.extend(ledger.append(held.term, [begun, *events]))
        return
    limits.check_changed(history, launch.budget)
    wanted = launch.trials or history.wanted or reading.recorded(ledger).trials
    began = TermBegan(
        socket.gethostname(),
        os.getpid(),
        wanted,
        jobs,
        launch.jobs_given,
        launch.pool,
        unrecorded_s,
    )
    if wanted < history.searched:
        raise UsageError(
            f"--trials: {wanted} is less than the {history.searched} trials that exist; "
            f"it is the total number of trials"
        )
    changes, answers = _asked_before(ledger, history) if launch.changes else ([], {})
    retried = decisions.tried_again(history) if launch.retry_failed else []
    other = any(isinstance(event, Measured | Widened) for event in respecified)
    failing = history.why.startswith(FAIL_FAST)
    if wanted > history.wanted > 0 or launch.budget or changes or other or retried or failing:
        brought_back = decisions.topped_up(history)
        there = {(moved.trial, moved.replica) for moved in brought_back}
        retried = [moved for moved in retried if (moved.trial, moved.replica) not in there]
        events += [*brought_back, *retried]
    if launch.budget or launch.max_disk or changes:  # the newest word holds
        events += [*changes, Changed(launch.trials, launch.budget, launch.max_disk)]
    events += respecified
    answer = answering(answers)

    def begin(connection: Connection) -> None:
        answer(connection)
        lease.renew(connection, held.term, ledgers.now())

    history.extend(ledger.append(held.term, [began, *events], begin))
    held.drives = True


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
        reports.remove(folder, replica.trial, replica.index)
        retention.remove_temporary_folders(folder.trial(replica.trial, replica.index))
