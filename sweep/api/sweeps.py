"""Starts, resumes and reads sweeps: `run`, `resume`, `load` and `Sweep`."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from sweep.cli import live, options, tables, train
from sweep.cli.terminal import Terminal
from sweep.core import pickled
from sweep.core.errors import BadConfig, Source, UsageError
from sweep.core.pickled import ScriptTrainable
from sweep.core.version import unsupported
from sweep.driver import session
from sweep.driver.start import prepare
from sweep.driver.start.launch import Launch
from sweep.history.events import UNSAVED
from sweep.ledger import folder as folders
from sweep.ledger.changes import Change
from sweep.ledger.folder import Folder
from sweep.operations import control_client
from sweep.operations.comparison import Comparison
from sweep.operations.mlflow import attaching
from sweep.operations.models import export, networks, trained
from sweep.spec import Budget, CheckpointPolicy, SweepSpec
from sweep.spec.from_python import to_plain_data
from sweep.spec.validation import validate
from sweep.views import lookup, overview

if TYPE_CHECKING:
    from pandas import DataFrame

from sweep.api.arguments import (
    SpecKeys,
    check_numbers,
    is_of_script,
    prepare_spec,
    read_mapping,
    refuse_other_services,
    refuse_other_settings,
)
from sweep.api.trials import FIRST_COLUMNS, LAST_COLUMNS, Trial, result_row

#: Folder of all sweeps, as for the command line.
ROOT = "sweeps"


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

    Blocks until its driver ends. Of a resumed sweep, `trials` may differ: it can only grow.

    Args:
        trainable: a function, a subclass of `trainables.Trainable`, or a name such as ``ppo``. If
            other processes cannot import it, it is saved in the sweep's folder, signed with your
            key.
        root: folder of all sweeps.
        jobs: number of trials at once; None for as many as the processor cores allow, or in a
            resumed sweep for the previous number.
        pool: ``loky`` (processes), ``inline`` (this process), ``dask@ADDRESS`` or ``ray@ADDRESS``
            (a cluster) or your own pool; None for the previous one, or ``loky``.
        timeout: seconds after which the sweep saves and stops.
        retry_failed: True to try the failed trials of a resumed sweep again.
        strict: True to refuse to resume a sweep if its code or libraries have changed.
        tracking_uri: MLflow server instead of ``ROOT/mlflow.db``.
        storage: PostgreSQL server for the ledger instead of a file, for example
            ``postgresql+psycopg://HOST/DATABASE``.
        checkpoints: folder in object storage for the checkpoints, for example
            ``s3://bucket/prefix``.
        progress: True to show the work and print a summary at the end; remarks about the spec go to
            standard error in any case.
        spec: the keys of a spec. The default for `name` is the trainable's name with the time.
            `space` may be a file or the name of a shipped spec, whose keys the other arguments
            replace.

    Raises:
        NameTaken: the sweep of this name has other settings.
        UsageError: an argument is not allowed; nothing was written.
        KeyboardInterrupt: Ctrl-C; the sweep is saved.
    """
    if why := unsupported():
        raise UsageError(why)
    check_numbers(jobs, timeout)
    resolved, text = prepare_spec(trainable, spec)
    folder = Folder(Path(root).absolute(), resolved.spec.name)
    if folder.ledger.exists():
        refuse_other_settings(folder, resolved)
        refuse_other_services(folder, tracking_uri, storage)
        before = lookup.read_history(folder).wanted or lookup.read_spec(folder)[0].trials
        more = resolved.spec.trials if resolved.spec.trials > before else None
        own = resolved.trainable if is_of_script(folder) else None
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
    """Resume a sweep, however it ended, and block until its driver ends; see also `run`.

    Args:
        root: folder of all sweeps.
        trials: the new total number of trials.
        trainable: the current definition in a script or a notebook, which replaces the saved one. A
            change is recorded; with `strict` it is refused.
        jobs: number of trials at once; None for the previous number.
        pool: None for the previous pool.
        timeout: seconds after which the sweep saves and stops.
        retry_failed: True to try failed trials again from their newest checkpoints.
        strict: True to refuse if code or library versions have changed.
        space: the space to search from now on, or a file that contains it.
        metric: name of the result by which trials are compared from now on.
        stop: later ends of trials, such as ``{"timesteps_total": 200000}``.
        budget: keys of the spec's budget with their new values; None removes a limit.
        max_disk: new limit for the size of all checkpoints, for example ``40GB``.
        other_kernel: True to continue if a compiled kernel that a trial used is not available.
        checkpoints: folder in object storage to which the checkpoints were moved or which is
            shared.
        progress: True to show the work and print a summary at the end.

    Raises:
        UnknownName: the sweep does not exist.
        UsageError: an argument is not allowed; nothing was written.
        KeyboardInterrupt: Ctrl-C; the sweep is saved.
    """
    check_numbers(jobs, timeout, trials)
    folder = folders.find(Path(root).absolute(), name)
    given = None if trainable is None else pickled.class_of(trainable)
    if given is not None and not is_of_script(folder):
        named = lookup.read_spec(folder)[0].trainable
        problem = f"the sweep {name} trains {named}, which is imported by its name"
        raise BadConfig("trainable", trainable, hint="leave trainable out", problem=problem)
    changed = to_plain_data(read_mapping(budget, "budget"), "budget")
    Budget().with_changes(changed, Source())
    most = {"max_disk": to_plain_data(max_disk, "max_disk")}
    size = validate(CheckpointPolicy, most, Source().sub_source("checkpoint"))
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
        space=Path(space) if isinstance(space, str | Path) else to_plain_data(space, "space"),
        metric=metric,
        stop=to_plain_data(read_mapping(stop, "stop"), "stop"),
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
        UsageError: several sweeps have different metrics or modes, or one is named twice; or `name`
            is neither a name nor a list of names.
    """
    where = Path(root).absolute()
    if isinstance(name, str):
        return Sweep(folders.find(where, name))
    if not isinstance(name, list | tuple) or not name:
        raise BadConfig("name", name, "the name of a sweep, or a list of names of sweeps")
    return Comparison([folders.find(where, one) for one in name])


def _run_driver(launch: Launch, timeout: float | None, progress: bool) -> "Sweep":
    """Run a sweep's driver for at most `timeout` seconds, and return the sweep.

    With `progress`, its work is shown and a summary printed; otherwise nothing is. Starts sending a
    finished sweep's report and model to MLflow. A signal that ended the driver is raised again at
    the end.
    """
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


class Sweep:
    """An existing sweep, as returned by `load`, `run` and `resume`; each call reads it anew."""

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
        """Folder with the sweep's own files, ``ROOT/NAME``."""
        return self._folder.path

    @property
    def spec(self) -> SweepSpec:
        """Spec of the sweep, with its current space, metric and stopping criteria."""
        return lookup.read_spec(self._folder)[0]

    @property
    def status(self) -> str:
        """State: running, testing, paused, finished, stopped or interrupted.

        A paused sweep has a driver that waits. The driver of a stopped one ended early, in order;
        that of an interrupted one was killed, or has not begun.
        """
        return lookup.state(self._folder, lookup.read_history(self._folder)).value

    @property
    def changes(self) -> list[Change]:
        """Changes of the space and of the stopping criteria since the creation, oldest first."""
        return self._read().changes

    @property
    def trials(self) -> list["Trial"]:
        """All trials, ordered by number."""
        now = self._read()
        return [Trial(now, trial) for trial in now.history.trials]

    def trial(self, number: int) -> "Trial":
        """Return the trial with this number; UsageError if it does not exist."""
        now = self._read()
        return Trial(now, overview.find_trial(now.history, self.name, number))

    def best(self) -> "Trial":
        """Return the trial ranked first, usually by its expected score under a new seed.

        Trials that violate a constraint are behind all others. With several objectives it is the
        trial of `front` with the best metric.

        Raises:
            UsageError: no trial has a score yet.
        """
        now = self._read()
        return Trial(now, overview.best_trial(now.history, self._folder))

    def front(self) -> list["Trial"]:
        """Return the trials that no other trial beats in every objective, best metric first.

        With one objective these are the best trial and those expected to be as good. Trials that
        violate a constraint are left out. The list is empty if none of the others has all scores.
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
            [result_row(row) for row in rows],
            columns=None if rows else [*FIRST_COLUMNS, *LAST_COLUMNS],
        )

    def curves(self) -> "DataFrame":
        """Return the metric of every trial: one row per trial, seed and iteration.

        Columns: ``trial``, ``seed_index`` (from 0), ``iteration``, the result in which the
        scheduler measures training, such as ``timesteps_total``, and the metric. These two have
        their own names. If results were lost with a process, a column ``unsaved`` is true for them.
        Test seeds are left out.
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
        """Write an HTML report about the sweep, replacing an existing file. Returns its path.

        Args:
            path: the file; None for ``NAME.html`` in the current folder.

        Raises:
            StorageError: the file cannot be written, or Plotly is not installed.
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
            formats: any of ``onnx``, ``torch-export``, ``safetensors`` and ``mlflow``; empty for
                the files of the trainable's own `export_model`, or else ``onnx``.
            episodes: fresh episodes that each network plays; 0 to choose by the metric alone.

        Raises:
            UsageError: no such trial, checkpoint or format, `folder` is in use, or the trainable
                cannot export.
            TrainableError: the checkpoint is unusable, or the model differs from the trained one.
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
            wait: longest time to wait for a driver's answer, in seconds; without a driver, the call
                returns at once.

        Returns:
            The driver's answer in words; empty if it is still pending. Then the driver, or the next
            `resume`, handles the suggestion.

        Raises:
            UsageError: the settings do not belong to the space, or no trials are left.
        """
        given = to_plain_data(read_mapping(settings, "settings"), "settings")
        answer, _ = control_client.suggest(self._folder, given, reason, author, wait)
        return "" if answer is None else answer.text

    def resume(self, **options: Any) -> "Sweep":
        """Resume the sweep; blocks until its driver ends.

        `options` are the arguments of `sweep.resume` except `name` and `root`.
        """
        return resume(self.name, root=self._folder.root, **options)
