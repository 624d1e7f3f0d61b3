"""Sweeps from Python: a script or a notebook starts them, looks at them and goes on with them.

    found = sweep.run(train, space={...}, metric="loss", mode="min", trials=20, name="first")
    found.results()                          # a pandas DataFrame, one row per trial, best first
    found.best().settings
    sweep.load("first").resume(trials=30)

The same files, checks and driver as the command line's: what one has started the other goes on
with. What a sweep is asked is read from its ledger each time, so it is always what stands there.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Unpack

from sweep import pickled
from sweep import spec as specs
from sweep.cli import live, options, tables, train
from sweep.cli.terminal import Terminal
from sweep.driver import prepare, session, sync
from sweep.driver.creation.resolving import Resolved
from sweep.driver.launch import Launch
from sweep.errors import BadConfig, Gathering, NameTaken, Source, UsageError, without_password
from sweep.history.events import UNSAVED, Saved
from sweep.history.replica import Replica
from sweep.history.trial import Trial as TrialOfHistory
from sweep.ledger import folder as folders
from sweep.ledger import storage as ledgers
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations import control_client, export, networks, trained
from sweep.operations.mlflow import attaching
from sweep.pickled import Given
from sweep.slices import store
from sweep.slices.store import Store
from sweep.spec import Budget, CheckpointPolicy, Mode, Override, SweepSpec
from sweep.spec.from_python import plain
from sweep.spec.sections import LONGEST_NAME, name_from
from sweep.spec.validation import validate
from sweep.version import unsupported
from sweep.views import formatting, lookup, overview
from trainables.checkpoint.opaque import write_files
from trainables.function import saved_by_function
from trainables.trainable import Trainable

if TYPE_CHECKING:
    from pandas import DataFrame

#: Folder of all sweeps, as for the command line.
ROOT = "sweeps"


class SpecKeys(TypedDict, total=False):
    """The keys of a spec as arguments; `sweep.spec.SweepSpec` says what each one means."""

    name: str
    trials: int
    metric: str
    mode: Mode
    score: str | Mapping[str, Any]
    objectives: Mapping[str, Mode]
    constraints: Mapping[str, str]
    config: Mapping[str, Any]
    forbid: Sequence[Any]
    space: Mapping[str, Any] | str | Path
    initial: Sequence[Mapping[str, Any]]
    stop: Mapping[str, Any]
    budget: Mapping[str, Any]
    searcher: str | Mapping[str, Any]
    scheduler: str | Mapping[str, Any]
    seeds: int | str | Mapping[float, int]
    aggregate: str | Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    resources: Mapping[str, Any]
    machine: Mapping[str, Any]
    limits: Mapping[str, Any]
    isolate: Literal["process", "slot"] | None
    deterministic: Mapping[str, Any] | None
    trackers: Sequence[str]
    callbacks: Sequence[str]
    seed: int


class Policy(Protocol):
    """A trained policy with its filters, which acts."""

    def compute_action(self, obs: Any, *, explore: bool = False) -> Any:
        """The action for one observation, both as the environment knows them."""

    def stop(self) -> None:
        """End what it needs; it cannot be used afterwards."""


# ---- starting and going on ----------------------------------------------------------------------


def run(
    trainable: Given | str | None = None,
    *,
    root: str | Path = ROOT,
    jobs: int | None = None,
    pool: str | None = None,
    timeout: float | None = None,
    retry_failed: bool = False,
    strict: bool = False,
    tracking_uri: str | None = None,
    storage: str | None = None,
    checkpoints: str | None = None,
    progress: bool = True,
    **spec: Unpack[SpecKeys],
) -> "Sweep":
    """Run a sweep to its end, or go on with the one of this name if all its settings are the same.

    Args:
        trainable: a function, a subclass of `trainables.Trainable`, or a name such as ``ppo``.
            What no other process can import, as from a script or a notebook, is kept in the
            sweep's folder, signed with your key.
        root: folder of all sweeps.
        jobs: trials at once; None: as many as the processor cores can take.
        pool: ``loky`` (processes), ``inline`` (this process), ``dask@ADDRESS`` or ``ray@ADDRESS``
            (a cluster) or one of your own.
        timeout: seconds after which it saves and stops.
        retry_failed: try failed trials again, as after a mistake was mended.
        strict: refuse to go on with a sweep whose code or libraries have changed.
        tracking_uri: MLflow server instead of ``ROOT/mlflow.db``.
        storage: PostgreSQL server for the ledger instead of a file, as
            ``postgresql+psycopg://HOST/DATABASE``.
        checkpoints: folder in object storage for the checkpoints, such as ``s3://bucket/prefix``.
        progress: show what happens.
        spec: the keys of a spec. Without `name` it is the trainable's, with the time. A `space`
            may be a file, or the name of a shipped one: a whole spec, over which the others go.

    Raises:
        UsageError: an argument cannot work; nothing was written.
        KeyboardInterrupt: Ctrl-C; the sweep is saved.
    """
    if why := unsupported():
        raise UsageError(why)
    _check_numbers(jobs, timeout)
    resolved, text = _prepared(trainable, spec)
    folder = Folder(Path(root).absolute(), resolved.spec.name)
    if folder.ledger.exists():
        _refuse_another(folder, resolved)
        _refuse_elsewhere(folder, tracking_uri, storage)
        more = _total(folder, resolved.spec.trials)
        own = resolved.trainable if _is_of_script(folder) else None
        changed = {"retry_failed": retry_failed, "strict": strict, "checkpoints": checkpoints}
        launch = prepare.prepare_existing(folder, jobs, pool, more, options.say, own, **changed)
        return _driven(launch, timeout, progress)
    for remark in prepare.remarks(resolved):
        options.say(remark)
    launch = prepare.start(
        resolved,
        text,
        folder.root,
        jobs,
        pool,
        tracking_uri,
        options.say,
        storage=storage,
        checkpoints=checkpoints,
    )
    return _driven(launch, timeout, progress)


def resume(
    name: str,
    *,
    root: str | Path = ROOT,
    trials: int | None = None,
    trainable: Given | None = None,
    jobs: int | None = None,
    pool: str | None = None,
    timeout: float | None = None,
    retry_failed: bool = False,
    strict: bool = False,
    space: Mapping[str, Any] | str | Path | None = None,
    metric: str | None = None,
    budget: Mapping[str, float | None] | None = None,
    max_disk: int | str | None = None,
    other_kernel: bool = False,
    checkpoints: str | None = None,
    progress: bool = True,
) -> "Sweep":
    """Go on with a sweep, however it ended; see `run` and `sweep resume --help`.

    Args:
        name: of the sweep.
        root: folder of all sweeps.
        trials: the new total.
        trainable: what a script or a notebook defines now, in place of what is kept. That it has
            changed is recorded, and refused with `strict`.
        jobs: trials at once; None: as before.
        pool: None: as before.
        timeout: seconds after which it saves and stops.
        retry_failed: try failed trials again.
        strict: refuse if code or library versions have changed.
        space: a wider one from now on, or a file with it.
        metric: what trials are compared by from now on.
        budget: keys of the spec's budget that get another value.
        max_disk: another size for all checkpoints, such as ``40GB``.
        other_kernel: go on where the compiled kernel that a trial began with is not built.
        checkpoints: the folder in object storage that they were moved to, or are shared in.
        progress: show what happens.

    Raises:
        UnknownName: there is no such sweep.
        UsageError: an argument cannot work; nothing was written.
    """
    _check_numbers(jobs, timeout, trials)
    folder = folders.find(Path(root).absolute(), name)
    given = None if trainable is None else pickled.class_of(trainable)
    if given is not None and not _is_of_script(folder):
        named = lookup.read_spec(folder)[0].trainable
        problem = f"{name} trains {named}, which is found by its name"
        raise BadConfig("trainable", trainable, "no argument", problem=problem)
    changed = _mapping(budget, "budget")
    Budget().changed(changed, Source())
    size = validate(CheckpointPolicy, {"max_disk": max_disk}, Source().sub_source("checkpoint"))
    launch = prepare.prepare_existing(
        folder,
        jobs,
        pool,
        trials,
        options.say,
        given,
        retry_failed=retry_failed,
        checkpoints=checkpoints,
        strict=strict,
        space=Path(space) if isinstance(space, str | Path) else plain(space, "space"),
        metric=metric,
        budget=changed,
        max_disk=size.max_disk,
        other_kernel=other_kernel,
    )
    return _driven(launch, timeout, progress)


def load(name: str, *, root: str | Path = ROOT) -> "Sweep":
    """A sweep that exists; UnknownName otherwise. Nothing of it is run."""
    return Sweep(folders.find(Path(root).absolute(), name))


def _driven(launch: Launch, timeout: float | None, progress: bool) -> "Sweep":
    """Run the driver; a signal that ended it goes on to whom it was meant for."""
    with contextlib.ExitStack() as until:
        if progress:
            console = Terminal(sys.stdout)
            view = live.make_view(console)
        else:
            opened = until.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            console = Terminal(opened)
            view = live.PlainView(console)
        ended = session.run_driver(launch, view, timeout)
        console.show(tables.summary(train.summary(ended, launch.folder), python=True))
        interrupted = signal.SIGINT if attaching.attach(ended, launch.folder) else ended.signal
    if interrupted is not None:
        signal.raise_signal(interrupted)
    return Sweep(launch.folder)


def _check_numbers(jobs: int | None, timeout: float | None, trials: int | None = None) -> None:
    for place, number in (("jobs", jobs), ("trials", trials)):
        if number is not None and not (type(number) is int and number >= 1):
            raise BadConfig(place, number, "a whole number from 1 on")
    if timeout is not None and not _can_be_waited(timeout):
        longest = f"seconds, more than 0 and at most {threading.TIMEOUT_MAX:.0f}"
        raise BadConfig("timeout", timeout, longest)


def _can_be_waited(seconds: object) -> bool:
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        return False
    return 0 < float(seconds) <= threading.TIMEOUT_MAX


def _mapping(value: object, place: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadConfig(place, value, "a mapping of its keys to their values")
    return dict(value)


def _prepared(trainable: Given | str | None, spec: SpecKeys) -> tuple[Resolved, str]:
    """The spec of the arguments, checked, and its text."""
    keys, found = {}, Gathering()
    for key, value in spec.items():
        with found.one():
            keys[key] = plain(value, key)
    found.check()
    cls: type[Trainable] | None = None
    if trainable is None and not isinstance(keys.get("space"), str):
        allowed = "a function, a class, or a name such as ppo"
        hint = "give the function itself, sweep.run(train, ...), and not what train(...) returns"
        raise BadConfig("trainable", None, allowed, hint)
    if trainable is not None:
        named = trainable if isinstance(trainable, str) else pickled.name_of(trainable)
        keys["trainable"] = named
        if not isinstance(trainable, str):
            cls = pickled.class_of(trainable)
        if "name" not in keys and not isinstance(keys.get("space"), str):
            keys["name"] = _name_at(time.strftime("%Y%m%d-%H%M%S"), named.rpartition(":")[2])
    paths = [*_own_paths(), str(Path.cwd())]
    space = keys.get("space")
    if not isinstance(space, str):
        text = "\n".join(formatting.yaml_lines(keys))
        return prepare.checked(f"{text}\n", "", paths, (), cls)
    path = specs.find(space)
    del keys["space"]
    over = [Override(key, value, f"{key}={value}") for key, value in keys.items()]
    places = [str(path.resolve().parent), *paths]
    name = name_from(path.stem)
    return prepare.checked(
        specs.text_of(path), str(path), places, over, cls, "from Python", name=name
    )


def _name_at(stamp: str, trainable: str) -> str:
    """A name that a sweep may have, from that of its trainable and the time."""
    return f"{name_from(trainable, LONGEST_NAME - len(stamp) - 1)}-{stamp}"


def _own_paths() -> Iterator[str]:
    """The folders from which this process imports and others might not."""
    installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    for place in sys.path:
        path = Path(place).resolve()
        if path.is_dir() and not any(path.is_relative_to(prefix) for prefix in installed):
            yield str(path)


def _is_of_script(folder: Folder) -> bool:
    return pickled.is_of_script(lookup.read_spec(folder)[0].trainable)


def _refuse_another(folder: Folder, resolved: Resolved) -> None:
    """Raises NameTaken where the sweep of this name has other settings than are asked for."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        first = specs.from_json(ledger.spec)
    asked, now = resolved.spec, lookup.read_spec(folder)[0]
    keys = [key for key in SweepSpec.model_fields if key != "trials"]
    other = [
        key
        for key in keys
        if _written(asked, key) not in (_written(first, key), _written(now, key))
    ]
    if other:
        raise NameTaken(
            f"name: the sweep '{folder.name}' exists already in {folder.root}, with another "
            f"{', '.join(other)}; give another name, delete it with `sweep rm "
            f"{folder.in_commands}`, or look at it with sweep.load({folder.name!r})"
        )


def _refuse_elsewhere(folder: Folder, tracking_uri: str | None, storage: str | None) -> None:
    """Raises BadConfig where the sweep is tracked, or its ledger lies, elsewhere than is asked."""
    tracked = None if tracking_uri is None else sync.read_tracking(folder)
    uri = None if tracked is None else tracked.uri
    url = None if storage is None else ledgers.url_of(folder.ledger)
    for place, asked, kept in (("tracking_uri", tracking_uri, uri), ("storage", storage, url)):
        if asked not in (None, kept):
            raise BadConfig(
                place,
                without_password(str(asked)),
                "no argument" if kept is None else f"{without_password(kept)!r}, or no argument",
                "leave it out to go on, or give another name",
                problem=f"the sweep '{folder.name}' exists already in {folder.root}, with another",
            )


def _written(spec: SweepSpec, key: str) -> Any:
    return spec.model_dump(include={key})[key]


def _total(folder: Folder, trials: int) -> int | None:
    """The new total of trials where more are wanted than before."""
    before = lookup.read_history(folder).wanted or lookup.read_spec(folder)[0].trials
    return trials if trials > before else None


# ---- looking ------------------------------------------------------------------------------------


class Sweep:
    """A sweep in its folder: what `load`, `run` and `resume` return."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        row = overview.overview(self._now(), time.time())
        return f"<sweep {self.name}: {row['state']}, {row['done']} of {row['wanted']} trials done>"

    def _repr_html_(self) -> str:
        shown: str = self.results().to_html(index=False)
        return shown

    def _now(self) -> lookup.Sweep:
        return lookup.read(self._folder)

    @property
    def name(self) -> str:
        """Its name."""
        return self._folder.name

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    @property
    def spec(self) -> SweepSpec:
        """Its spec, with the space and the metric that hold now."""
        return lookup.read_spec(self._folder)[0]

    @property
    def status(self) -> str:
        """Its state: ``running``, ``finished``, ``stopped``, ``interrupted`` or ``paused``."""
        return lookup.state(self._folder, lookup.read_history(self._folder)).value

    @property
    def trials(self) -> list["Trial"]:
        """All trials, by number."""
        now = self._now()
        return [Trial(now, trial) for trial in now.history.trials]

    def trial(self, number: int) -> "Trial":
        """One trial; UsageError if there is none of this number."""
        now = self._now()
        return Trial(now, overview.find_trial(now.history, self.name, number))

    def best(self) -> "Trial":
        """The trial whose settings are expected to score best under a new seed.

        UsageError while none has a score.

        With several objectives it is the best of the `front` in the metric.
        """
        now = self._now()
        return Trial(now, overview.best_trial(now.history, self._folder))

    def front(self) -> list["Trial"]:
        """The trials that none is better than in every objective, best in the metric first.

        Where there is one objective these are the best trial, and those expected to be as good.
        """
        now = self._now()
        return [Trial(now, trial) for trial in now.history.front()]

    def results(self) -> "DataFrame":
        """One row per trial, best first, those without a score last.

        Columns ``trial``, ``status``, ``score``, ``expected`` (on a new seed), ``expected_error``
        (its standard error), ``iterations``, ``steps``, ``config.NAME`` for each searched setting,
        the further objectives, ``parent`` and ``reason``. An objective that is called as another
        column stands under ``objectives/NAME``.
        """
        from pandas import DataFrame

        rows = overview.results(self._now())["trials"]
        return DataFrame(
            [_result(row) for row in rows], columns=None if rows else [*_FIRST, *_LAST]
        )

    def curves(self) -> "DataFrame":
        """The metric of every trial at each iteration: one row per trial, seed and iteration.

        Where results were lost with a process there is a column ``unsaved``, true for these.
        """
        from pandas import DataFrame

        now = self._now()
        time_attr, metric = now.history.objective.time_attr, now.spec.metric
        lost = any(trial.lost_results for trial in now.history.trials)
        named = ("trial", "seed_index", "iteration", time_attr, metric, *[UNSAVED] * lost)
        columns = list(dict.fromkeys(named))
        rows = [
            {
                metric: point.value,
                time_attr: point.time,
                "trial": replica.trial,
                "seed_index": replica.index,
                "iteration": point.iteration,
                UNSAVED: replica.has_lost(point.iteration),
            }
            for trial in now.history.trials
            for replica in trial.replicas
            for point in replica.curve
        ]
        return DataFrame(rows, columns=columns)

    def report(self, path: str | Path | None = None) -> Path:
        """Write one HTML file with everything about the sweep; returns where it lies.

        Args:
            path: the file; ``NAME.html`` in the current folder if it is left out.

        Raises:
            StorageError: the disk does not let it be written.
        """
        from sweep.report import page

        written = Path(f"{self.name}.html" if path is None else path)
        page.write(written, page.build(self._now(), time.time()))
        return written

    def export_model(
        self,
        folder: str | Path,
        *,
        trial: str | int = "best",
        checkpoint: str | int = networks.COMPARED,
        formats: Sequence[str] = (),
        episodes: int = networks.EPISODES,
    ) -> dict[str, Any]:
        """Write a model and its card into a folder that runs without this; returns the card.

        Args:
            folder: one that is empty or does not exist yet.
            trial: ``best``, or a trial's number.
            checkpoint: ``compared``, the best network of its seeds in fresh episodes; ``best`` by
                the metric, ``last``, or the iteration that it was saved at.
            formats: ``onnx``, ``torch-export``, ``safetensors`` or ``mlflow``, or several.
            episodes: fresh ones that each network plays; 0: none, and the metric decides.

        Raises:
            UsageError: no such trial or checkpoint, or `folder` is in use.
            TrainableError: the checkpoint cannot be used.
        """
        if not isinstance(episodes, int) or isinstance(episodes, bool) or episodes < 0:
            raise BadConfig("episodes", episodes, "a whole number of at least 0")
        if unknown := [one for one in formats if one not in export.FORMATS]:
            raise BadConfig("formats", unknown[0], ", ".join(export.FORMATS))
        choice = trained.Choice(str(trial), str(checkpoint))
        return export.export_model(self._folder, choice, formats, Path(folder), episodes)

    def suggest(
        self, settings: Mapping[str, Any], *, why: str = "", by: str | None = None, wait: float = 60
    ) -> str:
        """Let the next new trial have certain settings; the searcher proposes the others.

        Args:
            settings: searched parameter → value.
            why: the reason, which the history keeps.
            by: the author; None: the user of this process.
            wait: seconds to wait for the answer of a driver that runs in another process.

        Returns:
            The driver's answer in words. It is empty if there is none yet: the suggestion waits
            for the driver, or for the next `resume`.

        Raises:
            UsageError: the settings do not belong to the space, or all trials are taken.
        """
        given = plain(_mapping(settings, "settings"), "settings")
        answer, _ = control_client.suggest(self._folder, given, why, by, wait)
        return "" if answer is None else answer.text

    def resume(self, **options: Any) -> "Sweep":
        """Go on with it, with the arguments of `sweep.resume`."""
        return resume(self.name, root=self._folder.root, **options)


#: Columns of `Sweep.results`, before and after what a sweep adds.
_FIRST = ("trial", "status", "score", "expected", "expected_error", "iterations", "steps")
_LAST = ("parent", "reason")


def _result(row: overview.Data) -> dict[str, Any]:
    """A trial as a row of `Sweep.results`."""
    first = {key: row[key] for key in _FIRST}
    first |= {f"config.{name}": value for name, value in row["settings"].items()}
    taken = {*first, *_LAST}
    others = {
        f"objectives/{name}" if name in taken else name: value
        for name, value in row.get("objectives", {}).items()
    }
    return first | others | {key: row[key] for key in _LAST}


class Trial:
    """One trial as it was when its sweep was asked for it."""

    def __init__(self, sweep: lookup.Sweep, trial: TrialOfHistory) -> None:
        self._sweep = sweep
        self._trial = trial

    def __repr__(self) -> str:
        said = formatting.settings(self.settings)
        return f"<trial {self.number}: {self.status}, score {self.score}, {said}>"

    @property
    def number(self) -> int:
        """Its number in the sweep."""
        return self._trial.number

    @property
    def status(self) -> str:
        """``COMPLETED``, ``PRUNED``, ``FAILED``, ``RUNNING`` and so on."""
        return self._trial.status.value

    @property
    def score(self) -> float | None:
        """The score by which the trial is compared; None if no result of it counts yet."""
        return self._trial.score

    @property
    def expected(self) -> float | None:
        """The expected score of its settings under a new seed at the end of training."""
        found = self._sweep.history.expected(self._trial)
        return None if found is None else found.value

    @property
    def expected_error(self) -> float | None:
        """The standard error of `expected`; None if there are too few trials to estimate it."""
        found = self._sweep.history.expected(self._trial)
        return None if found is None else found.error

    @property
    def settings(self) -> dict[str, Any]:
        """The searched settings, by name."""
        return dict(self._trial.searched)

    @property
    def config(self) -> dict[str, Any]:
        """All settings that the trainable was given."""
        return dict(self._trial.config)

    @property
    def iterations(self) -> int:
        """The number of iterations that the trial has finished."""
        return self._trial.iteration

    @property
    def reason(self) -> str:
        """Why it has its status."""
        return self._trial.reason

    @property
    def error(self) -> str:
        """The newest traceback; empty: nothing was raised."""
        return self._trial.deciding_replica.error

    def results(self) -> "DataFrame":
        """Everything it reported, one row per iteration; of several seeds, the best one's."""
        from pandas import DataFrame

        rows = lookup.read_results(self._sweep.folder, self._leader)
        first = {"iteration": 0}  # so that it is the first column, and no result is in its place
        return DataFrame([{**first, **r.metrics, "iteration": r.iteration} for r in rows])

    def log(self) -> str:
        """The end of what it printed."""
        return lookup.read_log(self._sweep.folder, self._trial)

    def checkpoint(self, which: str | int = "best") -> "Checkpoint":
        """One of its checkpoints; UsageError if it has none such.

        Args:
            which: ``best`` by the metric, ``last``, or the iteration that it was saved at.
        """
        saved = trained.find_checkpoint(self._leader, str(which), "checkpoint")
        its = store.of(self._sweep.folder).replica(self.number, self._leader.index)
        return Checkpoint(its.path(saved), saved, its)

    def load(self, checkpoint: str | int = "best") -> Trainable:
        """Its trainable as it stood at a checkpoint; `stop()` it when it is of no use any more.

        Where that is gone, as the trial has gone on since this was read, it is chosen again.

        Raises:
            TrainableError: the checkpoint cannot be used.
        """
        now = self._sweep
        return trained.restore(now.folder, now.spec, self._trial, str(checkpoint))

    def load_policy(self, checkpoint: str | int = "best") -> Policy:
        """The policy that it had at a checkpoint, with its filters: ``compute_action(obs)``.

        Raises:
            UsageError: its trainable has no `compute_action`.
        """
        found: Any = self.load(checkpoint)
        if not callable(getattr(found, "compute_action", None)):
            found.stop()
            name = self._sweep.spec.trainable
            raise UsageError(f"{name} has no compute_action(); load() gives the trainable itself")
        policy: Policy = found
        return policy

    @property
    def _leader(self) -> Replica:
        return self._trial.leader


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a trial."""

    path: Path
    """Its file; where checkpoints lie in object storage, it may be there alone."""
    saved: Saved
    """The ledger's entry: iteration, digest, size, and the metric there (``value``)."""
    _store: Store

    @property
    def iteration(self) -> int:
        """The iteration that it was saved at."""
        return self.saved.iteration

    @property
    def value(self) -> float | None:
        """The metric at that iteration."""
        return self.saved.value

    def load(self, folder: str | Path | None = None) -> Any:
        """Return the data that the trainable saved, or `folder`, into which its files are written.

        Raises:
            CheckpointError: it cannot be used, or somebody else signed it.
            UsageError: it holds files, and no folder is given.
        """
        loaded = self._store.read(self.saved)
        kept = saved_by_function(loaded.state["trainable"])
        if not kept["files"]:
            return kept["data"]
        if folder is None:
            problem = "this checkpoint holds files"
            raise BadConfig("folder", folder, "a folder to write them to", problem=problem)
        write_files(Path(folder), kept["files"])
        return Path(folder)
