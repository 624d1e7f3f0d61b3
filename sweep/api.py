"""Start, resume and read sweeps from Python, in a script or a notebook.

    found = sweep.run(train, space={...}, metric="loss", mode="min", trials=20, name="first")
    found.results()                          # a pandas DataFrame, one row per trial, best first
    found.best().settings
    sweep.load("first").resume(trials=30)

It uses the files, checks and driver of the command line, so each can resume the other's sweeps.
Every call reads the ledger again, so the results are current.
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
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Unpack, overload

from sweep import spec as specs
from sweep.cli import live, options, tables, train
from sweep.cli.terminal import Terminal
from sweep.core import pickled
from sweep.core.errors import BadConfig, Gathering, NameTaken, Source, UsageError, without_password
from sweep.core.pickled import ScriptTrainable
from sweep.core.version import unsupported
from sweep.driver import session
from sweep.driver.start import prepare
from sweep.driver.start.creation.resolving import Resolved
from sweep.driver.start.launch import Launch
from sweep.driver.tracking import sync
from sweep.history.events import UNSAVED, Saved
from sweep.history.replica import Replica
from sweep.history.trial import Trial as HistoryTrial
from sweep.ledger import folder as folders
from sweep.ledger import storage as ledgers
from sweep.ledger.changes import Change
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations import control_client
from sweep.operations.comparison import Comparison
from sweep.operations.mlflow import attaching
from sweep.operations.models import export, networks, trained
from sweep.slices import store
from sweep.slices.store import Store
from sweep.spec import Budget, CheckpointPolicy, Mode, Override, SweepSpec
from sweep.spec.from_python import plain
from sweep.spec.sections import LONGEST_NAME, name_from
from sweep.spec.validation import validate
from sweep.views import formatting, lookup, overview
from trainables.checkpoint.opaque import write_files
from trainables.function import saved_by_function
from trainables.trainable import Trainable

if TYPE_CHECKING:
    from pandas import DataFrame

#: Folder of all sweeps, as for the command line.
ROOT = "sweeps"


class SpecKeys(TypedDict, total=False):
    """The keys of a spec as keyword arguments; `sweep.spec.SweepSpec` describes them."""

    name: str
    trials: int
    metric: str
    mode: Mode
    score: str | Mapping[str, Any]
    objectives: Mapping[str, Mode]
    constraints: Mapping[str, str]
    config: Mapping[str, Any]
    """Settings of the trainable that are not searched, by name."""
    forbid: Sequence[Any]
    space: Mapping[str, Any] | str | Path
    initial: Sequence[Mapping[str, Any]]
    stop: Mapping[str, Any]
    """Stopping criteria of each trial: name of a result → value."""
    budget: Mapping[str, Any]
    searcher: str | Mapping[str, Any]
    scheduler: str | Mapping[str, Any]
    seeds: int | str | Mapping[float, int]
    aggregate: str | Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    resources: Mapping[str, Any]
    machine: Mapping[str, Any]
    """Cores, GPUs and other resources of the machine that trials share."""
    limits: Mapping[str, Any]
    isolate: Literal["process", "slot"] | None
    deterministic: Mapping[str, Any] | None
    trackers: Sequence[str]
    callbacks: Sequence[str]
    seed: int


class Policy(Protocol):
    """A trained policy with its filters."""

    def compute_action(self, obs: Any, *, explore: bool = False) -> Any:
        """Return the action for one observation, both in the environment's format."""

    def stop(self) -> None:
        """Release its resources; the policy cannot be used afterwards."""


# ---- starting and resuming ----------------------------------------------------------------------


def run(
    trainable: ScriptTrainable | str | None = None,
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
    """Run a sweep to its end, or resume the sweep of this name if its settings are the same.

    Args:
        trainable: a function, a subclass of `trainables.Trainable`, or a name such as ``ppo``. If
            other processes cannot import it, it is saved in the sweep's folder, signed with your
            key.
        root: folder of all sweeps.
        jobs: number of trials at once; None for as many as the processor cores allow.
        pool: ``loky`` (processes), ``inline`` (this process), ``dask@ADDRESS`` or ``ray@ADDRESS``
            (a cluster) or your own pool.
        timeout: seconds after which the sweep saves and stops.
        strict: True to refuse to resume a sweep if its code or libraries have changed.
        tracking_uri: MLflow server instead of ``ROOT/mlflow.db``.
        storage: PostgreSQL server for the ledger instead of a file, for example
            ``postgresql+psycopg://HOST/DATABASE``.
        checkpoints: folder in object storage for the checkpoints, for example
            ``s3://bucket/prefix``.
        spec: the keys of a spec. The default for `name` is the trainable's name with the time.
            `space` may be a file or the name of a shipped spec, whose keys the other arguments
            replace.

    Raises:
        UsageError: an argument is not allowed; nothing was written.
        KeyboardInterrupt: Ctrl-C; the sweep is saved.
    """
    if why := unsupported():
        raise UsageError(why)
    _check_numbers(jobs, timeout)
    resolved, text = _prepare_spec(trainable, spec)
    folder = Folder(Path(root).absolute(), resolved.spec.name)
    if folder.ledger.exists():
        _refuse_other_settings(folder, resolved)
        _refuse_other_services(folder, tracking_uri, storage)
        before = lookup.read_history(folder).wanted or lookup.read_spec(folder)[0].trials
        more = resolved.spec.trials if resolved.spec.trials > before else None
        own = resolved.trainable if _is_of_script(folder) else None
        changed = {"retry_failed": retry_failed, "strict": strict, "checkpoints": checkpoints}
        launch = prepare.prepare_existing(folder, jobs, pool, more, options.say, own, **changed)
        return _run_driver(launch, timeout, progress)
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
    return _run_driver(launch, timeout, progress)


def resume(
    name: str,
    *,
    root: str | Path = ROOT,
    trials: int | None = None,
    trainable: ScriptTrainable | None = None,
    jobs: int | None = None,
    pool: str | None = None,
    timeout: float | None = None,
    retry_failed: bool = False,
    strict: bool = False,
    space: Mapping[str, Any] | str | Path | None = None,
    metric: str | None = None,
    stop: Mapping[str, Any] | None = None,
    budget: Mapping[str, float | None] | None = None,
    max_disk: int | str | None = None,
    other_kernel: bool = False,
    checkpoints: str | None = None,
    progress: bool = True,
) -> "Sweep":
    """Resume a sweep, however it ended; see also `run`.

    Args:
        root: folder of all sweeps.
        trials: the new total number of trials.
        trainable: the current definition in a script or a notebook, which replaces the saved one. A
            change is recorded; with `strict` it is refused.
        jobs: number of trials at once; None for the previous number.
        pool: None for the previous pool.
        timeout: seconds after which the sweep saves and stops.
        strict: True to refuse if code or library versions have changed.
        space: the space to search from now on, or a file that contains it.
        metric: name of the result by which trials are compared from now on.
        stop: later ends of trials, such as ``{"timesteps_total": 200000}``.
        budget: keys of the spec's budget with their new values.
        max_disk: new limit for the size of all checkpoints, for example ``40GB``.
        other_kernel: True to continue if a compiled kernel that a trial used is not available.
        checkpoints: folder in object storage to which the checkpoints were moved or which is
            shared.

    Raises:
        UnknownName: the sweep does not exist.
        UsageError: an argument is not allowed; nothing was written.
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
        stop=_mapping(stop, "stop"),
        budget=changed,
        max_disk=size.max_disk,
        allows_other_kernel=other_kernel,
    )
    return _run_driver(launch, timeout, progress)


@overload
def load(name: str, *, root: str | Path = ROOT) -> "Sweep": ...


@overload
def load(name: list[str] | tuple[str, ...], *, root: str | Path = ROOT) -> Comparison: ...


def load(
    name: str | list[str] | tuple[str, ...], *, root: str | Path = ROOT
) -> "Sweep | Comparison":
    """Return an existing sweep, or several side by side, without running anything.

    Raises:
        UnknownName: there is no such sweep.
        UsageError: several sweeps have different metrics or modes, or one is named twice.
    """
    where = Path(root).absolute()
    if isinstance(name, str):
        return Sweep(folders.find(where, name))
    if not isinstance(name, list | tuple) or not name:
        raise BadConfig("name", name, "the name of a sweep, or a list of names")
    return Comparison([folders.find(where, one) for one in name])


def _run_driver(launch: Launch, timeout: float | None, progress: bool) -> "Sweep":
    """Run the driver for at most `timeout` seconds; then raise the signal that ended it, if any."""
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
    """Raise BadConfig if a number is out of range; None stands for a number that is not given."""
    for place, number in (("jobs", jobs), ("trials", trials)):
        if number is not None and not (type(number) is int and number >= 1):
            raise BadConfig(place, number, "a whole number from 1 on")
    if timeout is not None and not _is_waitable(timeout):
        longest = f"seconds, more than 0 and at most {threading.TIMEOUT_MAX:.0f}"
        raise BadConfig("timeout", timeout, longest)


def _is_waitable(seconds: object) -> bool:
    """Return true if timers accept this number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        return False
    return 0 < float(seconds) <= threading.TIMEOUT_MAX


def _mapping(value: object, place: str) -> dict[str, Any]:
    """Return a mapping as a dict, empty for None; BadConfig for other values."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadConfig(place, value, "a mapping of its keys to their values")
    return dict(value)


def _prepare_spec(trainable: ScriptTrainable | str | None, spec: SpecKeys) -> tuple[Resolved, str]:
    """Return the checked spec of the arguments, and its text."""
    keys, found = {}, Gathering()
    for key, value in spec.items():
        with found.collect():
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
            stamp, own = time.strftime("%Y%m%d-%H%M%S"), named.rpartition(":")[2]
            keys["name"] = f"{name_from(own, LONGEST_NAME - len(stamp) - 1)}-{stamp}"
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


def _own_paths() -> Iterator[str]:
    """Yield the folders of this process's import path outside Python's installation."""
    installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    for place in sys.path:
        path = Path(place).resolve()
        if path.is_dir() and not any(path.is_relative_to(prefix) for prefix in installed):
            yield str(path)


def _is_of_script(folder: Folder) -> bool:
    """Return true if the sweep's trainable is defined in a script or notebook."""
    return pickled.is_of_script(lookup.read_spec(folder)[0].trainable)


def _refuse_other_settings(folder: Folder, resolved: Resolved) -> None:
    """Raise NameTaken if the existing sweep of this name has other settings."""
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
            f"name: the sweep '{folder.name}' exists already in {folder.root} with another "
            f"{', '.join(other)}; give another name, delete it with `sweep rm "
            f"{folder.in_commands}`, or look at it with sweep.load({folder.name!r})"
        )


def _refuse_other_services(folder: Folder, tracking_uri: str | None, storage: str | None) -> None:
    """Raise BadConfig if the existing sweep uses another MLflow server or ledger."""
    tracked = None if tracking_uri is None else sync.read_tracking(folder)
    uri = None if tracked is None else tracked.uri
    url = None if storage is None else ledgers.url_of(folder.ledger)
    for place, asked, kept in (("tracking_uri", tracking_uri, uri), ("storage", storage, url)):
        if asked not in (None, kept):
            raise BadConfig(
                place,
                without_password(str(asked)),
                "no argument" if kept is None else f"{without_password(kept)!r}, or no argument",
                "leave it out to resume the sweep, or give another name",
                problem=f"the sweep '{folder.name}' exists in {folder.root} with another value",
            )


def _written(spec: SweepSpec, key: str) -> Any:
    """Return one key of a spec as plain data, as a spec file would contain it."""
    return spec.model_dump(include={key})[key]


# ---- reading ------------------------------------------------------------------------------------


class Sweep:
    """A sweep in its folder, as returned by `load`, `run` and `resume`."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        row = overview.overview(self._read(), time.time())
        return f"<sweep {self.name}: {row['state']}, {row['done']} of {row['wanted']} trials done>"

    def _repr_html_(self) -> str:
        """Return the results as an HTML table, for notebooks."""
        shown: str = self.results().to_html(index=False)
        return shown

    def _read(self) -> lookup.Sweep:
        """Read the current state of the sweep."""
        return lookup.read(self._folder)

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self._folder.name

    @property
    def path(self) -> Path:
        """Folder of the sweep."""
        return self._folder.path

    @property
    def spec(self) -> SweepSpec:
        """Spec of the sweep, with its current space and metric."""
        return lookup.read_spec(self._folder)[0]

    @property
    def status(self) -> str:
        """State: ``running``, ``finished``, ``stopped``, ``interrupted`` or ``paused``."""
        return lookup.state(self._folder, lookup.read_history(self._folder)).value

    @property
    def changes(self) -> list[Change]:
        """Changes of the space and of the end of trials since the sweep began, oldest first."""
        return self._read().changes

    @property
    def trials(self) -> list["Trial"]:
        """All trials, ordered by number."""
        now = self._read()
        return [Trial(now, trial) for trial in now.history.trials]

    def trial(self, number: int) -> "Trial":
        """Return one trial; UsageError if it does not exist."""
        now = self._read()
        return Trial(now, overview.find_trial(now.history, self.name, number))

    def best(self) -> "Trial":
        """Return the trial with the best expected score under a new seed.

        With several objectives it is the trial of `front` with the best metric.

        Raises:
            UsageError: no trial has a score yet.
        """
        now = self._read()
        return Trial(now, overview.best_trial(now.history, self._folder))

    def front(self) -> list["Trial"]:
        """Return the trials that no other trial beats in every objective, best metric first.

        With one objective these are the best trial and those expected to be as good.
        """
        now = self._read()
        return [Trial(now, trial) for trial in now.history.front()]

    def results(self) -> "DataFrame":
        """Return one row per trial, best first, those without a score last.

        Columns: ``trial``, ``status``, ``score``, ``expected`` (on a new seed), ``expected_error``
        (its standard error), ``iterations``, ``steps``, ``own_steps`` (without those of the trial
        from whose checkpoint it began), ``config.NAME`` for each searched setting, further
        objectives, ``parent`` and ``reason``. An objective with the name of another column is
        called ``objectives/NAME``.
        """
        from pandas import DataFrame

        rows = overview.results(self._read())["trials"]
        return DataFrame(
            [_result_row(row) for row in rows],
            columns=None if rows else [*_FIRST_COLUMNS, *_LAST_COLUMNS],
        )

    def curves(self) -> "DataFrame":
        """Return the metric of every trial: one row per trial, seed and iteration.

        If results were lost with a process, the column ``unsaved`` is true for them.
        """
        from pandas import DataFrame

        now = self._read()
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
        """Write an HTML report about the sweep. Returns its path.

        Args:
            path: the file; None for ``NAME.html`` in the current folder.

        Raises:
            StorageError: the file cannot be written.
        """
        from sweep.operations.report import page

        written = Path(f"{self.name}.html" if path is None else path)
        page.write(written, page.build(self._read(), time.time()))
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
        """Write a model and its card into a folder that runs without sweep. Returns the card.

        Args:
            folder: a folder that is empty or does not exist yet.
            trial: ``best``, or a trial's number.
            checkpoint: ``compared`` for the best network of the trial's seeds in fresh episodes,
                ``best`` by the metric, ``last``, or the iteration of a checkpoint.
            formats: any of ``onnx``, ``torch-export``, ``safetensors`` and ``mlflow``.
            episodes: fresh episodes that each network plays; 0 to choose by the metric alone.

        Raises:
            UsageError: no such trial or checkpoint, or `folder` is in use.
            TrainableError: the checkpoint is unusable.
        """
        if not isinstance(episodes, int) or isinstance(episodes, bool) or episodes < 0:
            raise BadConfig("episodes", episodes, "a whole number of at least 0")
        if unknown := [one for one in formats if one not in export.FORMATS]:
            raise BadConfig("formats", unknown[0], ", ".join(export.FORMATS))
        choice = trained.Choice(str(trial), str(checkpoint))
        return export.export_model(self._folder, choice, formats, Path(folder), episodes)

    def suggest(
        self,
        settings: Mapping[str, Any],
        *,
        reason: str = "",
        author: str | None = None,
        wait: float = 60,
    ) -> str:
        """Suggest settings for the next new trial; the searcher proposes the other settings.

        Args:
            settings: searched parameter → value.
            reason: the reason, which is recorded in the history.
            author: the author; None for the user of this process.
            wait: seconds to wait for the answer of a driver in another process.

        Returns:
            The driver's answer in words; empty if it is still pending. Then the driver, or the next
            `resume`, handles the suggestion.

        Raises:
            UsageError: the settings do not belong to the space, or no trials are left.
        """
        given = plain(_mapping(settings, "settings"), "settings")
        answer, _ = control_client.suggest(self._folder, given, reason, author, wait)
        return "" if answer is None else answer.text

    def resume(self, **options: Any) -> "Sweep":
        """Resume the sweep, with the arguments of `sweep.resume`."""
        return resume(self.name, root=self._folder.root, **options)


#: Fixed columns of `Sweep.results`, before and after the columns of settings and objectives.
_FIRST_COLUMNS = (
    *("trial", "status", "score", "expected", "expected_error"),
    *("iterations", "steps", "own_steps"),
)
_LAST_COLUMNS = ("parent", "reason")


def _result_row(row: overview.Data) -> dict[str, Any]:
    """Return a trial as a row of `Sweep.results`."""
    first = {key: row[key] for key in _FIRST_COLUMNS}
    first |= {f"config.{name}": value for name, value in row["settings"].items()}
    taken = {*first, *_LAST_COLUMNS}
    others = {
        f"objectives/{name}" if name in taken else name: value
        for name, value in row.get("objectives", {}).items()
    }
    return first | others | {key: row[key] for key in _LAST_COLUMNS}


class Trial:
    """One trial in the state in which it was read."""

    def __init__(self, sweep: lookup.Sweep, trial: HistoryTrial) -> None:
        self._sweep = sweep
        self._trial = trial

    def __repr__(self) -> str:
        said = formatting.settings(self.settings)
        return f"<trial {self.number}: {self.status}, score {self.score}, {said}>"

    @property
    def number(self) -> int:
        """Number of the trial in its sweep."""
        return self._trial.number

    @property
    def status(self) -> str:
        """Status of the trial: ``COMPLETED``, ``PRUNED``, ``FAILED``, ``RUNNING`` and so on."""
        return self._trial.status.value

    @property
    def score(self) -> float | None:
        """Score by which the trial is compared; None if it has none yet."""
        return self._trial.score

    @property
    def expected(self) -> float | None:
        """Expected score of the settings under a new seed at the end of training, or None."""
        found = self._sweep.history.expected(self._trial)
        return None if found is None else found.value

    @property
    def expected_error(self) -> float | None:
        """Standard error of `expected`; None if there are too few trials to estimate it."""
        found = self._sweep.history.expected(self._trial)
        return None if found is None else found.error

    @property
    def settings(self) -> dict[str, Any]:
        """Searched settings by name."""
        return dict(self._trial.searched)

    @property
    def config(self) -> dict[str, Any]:
        """All settings of the trainable by name."""
        return dict(self._trial.config)

    @property
    def iterations(self) -> int:
        """Number of finished iterations."""
        return self._trial.iteration

    @property
    def reason(self) -> str:
        """Reason for the status."""
        return self._trial.reason

    @property
    def error(self) -> str:
        """Newest traceback; empty if there is none."""
        return self._trial.deciding_replica.error

    def results(self) -> "DataFrame":
        """Return all results of the trial's best seed, one row per iteration."""
        from pandas import DataFrame

        rows = lookup.read_results(self._sweep.folder, self._leader)
        first = {"iteration": 0}  # makes it the first column
        return DataFrame([{**first, **r.metrics, "iteration": r.iteration} for r in rows])

    def log(self) -> str:
        """Return the end of what the trial printed."""
        return lookup.read_log(self._sweep.folder, self._trial)

    def checkpoint(self, name: str | int = "best") -> "Checkpoint":
        """Return one of the trial's checkpoints; UsageError if it does not exist.

        Args:
            name: ``best`` by the metric, ``last``, or the iteration of a checkpoint.
        """
        saved = trained.find_checkpoint(self._leader, str(name), "checkpoint")
        its = store.of(self._sweep.folder).replica(self.number, self._leader.index)
        return Checkpoint(its.path(saved), saved, its)

    def load(self, checkpoint: str | int = "best") -> Trainable:
        """Return the trainable in the state of a checkpoint; call its `stop()` after use.

        If the checkpoint was deleted since the trial was read, it is chosen again.

        Raises:
            UsageError: no such checkpoint.
            TrainableError: the checkpoint is unusable.
        """
        now = self._sweep
        return trained.restore(now.folder, now.spec, self._trial, str(checkpoint))

    def load_policy(self, checkpoint: str | int = "best") -> Policy:
        """Return the policy in the state of a checkpoint, with its filters.

        Raises:
            UsageError: no such checkpoint, or the trainable has no `compute_action`.
            TrainableError: the checkpoint is unusable.
        """
        found: Any = self.load(checkpoint)
        if not callable(getattr(found, "compute_action", None)):
            found.stop()
            name = self._sweep.spec.trainable
            raise UsageError(f"{name} has no compute_action(); load() returns the trainable itself")
        policy: Policy = found
        return policy

    @property
    def _leader(self) -> Replica:
        """Replica of the trial's best seed."""
        return self._trial.leader


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a trial."""

    path: Path
    """Path of its file; if checkpoints are in object storage, the file may exist only there."""
    saved: Saved
    """The ledger's entry: iteration, digest, size, and the metric (``value``)."""
    _store: Store
    """Store that contains the checkpoint's file."""

    @property
    def iteration(self) -> int:
        """Iteration at which it was saved."""
        return self.saved.iteration

    @property
    def value(self) -> float | None:
        """Metric at that iteration; None if it was not reported there."""
        return self.saved.value

    def load(self, folder: str | Path | None = None) -> Any:
        """Return the saved data, or write the saved files into `folder` and return it.

        Raises:
            CheckpointError: it is unusable, or another user signed it.
            UsageError: it contains files, and `folder` is None.
        """
        loaded = self._store.read(self.saved)
        kept = saved_by_function(loaded.state["trainable"])
        if not kept["files"]:
            return kept["data"]
        if folder is None:
            problem = "this checkpoint contains files"
            raise BadConfig("folder", folder, "a folder to write them to", problem=problem)
        write_files(Path(folder), kept["files"])
        return Path(folder)
