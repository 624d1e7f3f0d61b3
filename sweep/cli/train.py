"""Commands that create and run sweeps: init, run, resume."""

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import completion, options

if TYPE_CHECKING:
    from sweep.driver.session import RunResult
    from sweep.ledger.folder import Folder
    from sweep.spec import SweepSpec

#: Kind of `sweep init` → file to write → template.
TEMPLATES = {
    "function": {"space.yaml": "space.yaml", "trainer.py": "trainer.py"},
    "ppo": {"space.yaml": "ppo_space.yaml", "environment.py": "environment.py"},
}

log_models_option = click.option(
    "--log-models",
    is_flag=True,
    help="Add the models of all trials to MLflow, not only the best one.",
)
attach_option = click.option(
    "--attach",
    type=click.Choice(["beside", "wait", "later"]),
    envvar="SWEEP_ATTACH",
    help="When MLflow gets the report and the best model. beside: after this command ends "
    "(default); wait: before it ends; later: with `sweep sync`. Also read from the environment "
    "variable SWEEP_ATTACH.",
)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option(
    "--kind",
    type=click.Choice(list(TEMPLATES)),
    default="function",
    help="Your own training function (the default), or PPO on your own environment.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Convert this file: a sweep of W&B, or hyperparameters of rl-baselines3-zoo.",
)
@click.option(
    "--env", metavar="ID", help="With --from: environment to take if the file has several."
)
@click.option(
    "--algorithm",
    metavar="NAME",
    help="With --from: algorithm; default: inferred from the file's name.",
)
def init(folder: Path, kind: str, source: Path | None, **given: Any) -> None:
    """Write a spec and its trainable, ready to run. The sweep is named after FOLDER.

    The spec's JSON Schema, with which editors check and complete the spec, is also written.
    """
    from sweep.operations import schema
    from sweep.spec.sections import name_from

    if source is not None:
        _convert(source, folder, **given)
        return
    files = TEMPLATES[kind]
    if there := sorted(name for name in files if (folder / name).exists()):
        raise click.UsageError(
            f"{folder / there[0]} exists already, so nothing was written; give another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    templates = resources.files("search_spaces") / "templates"
    for name, template in files.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            text = (templates / template).read_text(encoding="utf-8")
            if name == "space.yaml":
                file.write(schema.MODELINE)
            file.write(_fill_template(text, name_from(folder.resolve().name)))
        click.echo(f"wrote {folder / name}")
    _write_schema(folder)
    click.echo(f"try it:  sweep run {shlex.quote(str(folder / 'space.yaml'))}")


def _write_schema(folder: Path) -> None:
    """Write the JSON Schema of specs into a folder, and print its path.

    Does nothing if the folder has the file already.
    """
    from sweep.operations import schema

    with (
        contextlib.suppress(FileExistsError),
        (folder / schema.FILE).open("x", encoding="utf-8") as file,
    ):
        file.write(schema.text())
        click.echo(f"wrote {folder / schema.FILE}")


def _convert(source: Path, folder: Path, env: str | None, algorithm: str | None) -> None:
    """Write ``space.yaml`` for a file of another tool into `folder`; print what is left to do.

    The JSON Schema of specs is written beside it. The new spec is then checked; its mistakes are
    only printed. `env` and `algorithm` are the options ``--env`` and ``--algorithm``. Raises
    UsageError if the file cannot be converted, and click's if ``space.yaml`` exists.
    """
    from sweep import spec as specs
    from sweep.core.errors import UsageError
    from sweep.driver.start import prepare
    from sweep.operations import schema
    from sweep.operations.foreign import conversion
    from sweep.spec.sections import name_from

    path = folder / "space.yaml"
    if path.exists():
        raise click.UsageError(
            f"{path} exists already, so nothing was written; give another folder"
        )
    called = name_from(source.stem if folder == Path() else folder.resolve().name)
    converted = conversion.convert(specs.text_of(source), str(source), called, env, algorithm)
    text = converted.text(source.name)
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(schema.MODELINE + text)
    click.echo(f"wrote {path}")
    _write_schema(folder)
    for note in converted.notes:
        options.say(note)
    try:
        prepare.prepare_text(
            schema.MODELINE + text, str(path), [str(folder.resolve()), str(Path.cwd())]
        )
    except UsageError as error:
        options.say(f"complete the spec before you run it: {error}")
        return
    click.echo(f"try it:  sweep run {shlex.quote(str(path))}")


def _fill_template(template: str, name: str) -> str:
    """Return a template with `name` in place of each word ``mine``.

    As the sweep's name it is quoted if YAML would not read a text.
    """
    is_text = re.fullmatch(r"(?i:(?!(null|true|false)$)[a-z].*)", name)
    written = name if is_text else repr(name)
    return re.sub(
        r"(\nname: )?\bmine\b", lambda found: f"{found[1]}{written}" if found[1] else name, template
    )


@click.command(cls=options.SpaceCommand)
@click.argument("space", shell_complete=completion.spaces)
@options.override_options
@options.jobs_option
@options.root_option
@options.pool_options
@options.timeout_option
@click.option("--dry-run", is_flag=True, help="Show what would be run; write nothing.")
@options.service_options
@log_models_option
@attach_option
@options.json_option
def run(space: str, **given: Any) -> int:
    """Start a sweep. SPACE is a YAML file, or the name of a shipped one such as quickstart."""
    with options.open_answer(given["as_json"]) as answer, _early_workers(space, given) as begin:
        from sweep.cli.live import make_view
        from sweep.cli.terminal import terminal
        from sweep.driver import session
        from sweep.driver.start import prepare
        from sweep.driver.tracking import sync

        with options.announcing_imports(begin) as parsed:
            overrides = options.overrides(given)
            resolved, text = prepare.prepare(space, overrides, parsed, given["root"])
        for remark in prepare.remarks(resolved):
            options.say(remark)
        if given["dry_run"]:
            from sweep import pools
            from sweep.cli import check_tables
            from sweep.operations.rehearsal import validate

            pool = pools.choose_pool(options.pool(given))
            data = validate.preview(resolved, given["jobs"], pool)
            data["prior"] = prepare.prior_remarks(resolved, given["root"])
            answer(data, check_tables.preview)
            return 0
        launch = prepare.start(
            resolved,
            text,
            given["root"],
            given["jobs"],
            options.pool(given),
            given["tracking_uri"],
            options.say,
            storage=given["storage"],
            checkpoints=given["checkpoints"],
        )
        if given["log_models"]:
            sync.want_all_models(launch.folder)
        ended = session.run_driver(launch, make_view(terminal()), given["timeout"])
        return _answer_result(ended, launch.folder, answer, given["attach"])


@contextlib.contextmanager
def _early_workers(
    space: str, options_given: Mapping[str, Any]
) -> Iterator[Callable[["SweepSpec"], None]]:
    """Start the sweep's first worker processes, which import in parallel on the other cores.

    Yields a function to call with the spec: it starts or ends workers until there are as many as
    were requested and fit, and lets them import a built-in trainable; it ends all if trials need
    GPUs. Workers that no pool has taken are killed after the block. Nothing is started for other
    pools than loky, for ``--dry-run``, or if the space does not exist.
    """
    pool = options_given["pool"] or "loky"
    if options_given["dry_run"] or pool != "loky" or not _may_be_space(space):
        yield lambda _spec: None
        return
    from trainables.core.processes import reaping

    reaping.start()  # first, since its own imports take as long as those of a worker's start
    import joblib

    from trainables.core.processes import worker

    asked, cores = options_given["jobs"] or 1, joblib.cpu_count()

    def begin(spec: "SweepSpec") -> None:
        """Start as many workers as the parsed spec can use, before the rest is imported."""
        from sweep.core import plugins
        from sweep.driver import capacity

        count = min(asked, cores, spec.trials, capacity.most_at_once(spec))
        if spec.resources.gpu:  # each worker is started for its own devices
            count = 0
        shipped = plugins.trainables().is_shipped(spec.trainable)
        names = [f"{plugins.trainables().package}.{spec.trainable}"] if shipped else []
        worker.prestart(names, count)

    with worker.prestarted(["sweep.slices.isolated"], min(asked, max(1, cores - 1))):
        yield begin


def _may_be_space(space: str) -> bool:
    """Return true if `space` names a file or a shipped search space.

    A misspelt name is then reported before workers are started.
    """
    shipped = resources.files("search_spaces") / f"{space}.yaml"
    with contextlib.suppress(OSError, ValueError):  # for example a name that is too long
        return Path(space).is_file() or shipped.is_file()
    return False


@click.command()
@completion.name_argument
@click.option(
    "--trials", type=click.IntRange(min=1), metavar="TOTAL", help="New total number of trials."
)
@options.jobs_option
@options.root_option
@options.pool_options
@options.timeout_option
@options.budget_option
@options.max_disk_option
@click.option("--retry-failed", is_flag=True, help="Retry failed trials.")
@click.option(
    "--space",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the space to use from now on: a spec, of which only the key space is read, or "
    "a space alone.",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="Compare trials by another result from now on, including their earlier results.",
)
@click.option(
    "--stop",
    multiple=True,
    metavar="KEY=VALUE",
    help="End trials later from now on, such as at timesteps_total=200000.",
)
@click.option("--strict", is_flag=True, help="Refuse if code or library versions have changed.")
@click.option(
    "--other-kernel",
    is_flag=True,
    help="Continue even if a compiled kernel that a trial used is not available.",
)
@click.option(
    "--checkpoints",
    metavar="URL",
    help="Folder to which the checkpoints were moved or in which they are shared.",
)
@log_models_option
@attach_option
@options.json_option
def resume(name: str, **given: Any) -> int:
    """Resume a sweep, however it ended, with changes if wanted."""
    from sweep.cli.live import make_view
    from sweep.cli.terminal import terminal
    from sweep.driver import session
    from sweep.driver.start import prepare
    from sweep.driver.tracking import sync

    with options.open_answer(given["as_json"]) as answer:
        folder = options.find_sweep(given["root"], name)
        launch = prepare.prepare_existing(
            folder,
            given["jobs"],
            options.pool(given),
            given["trials"],
            options.say,
            retry_failed=given["retry_failed"],
            strict=given["strict"],
            allows_other_kernel=given["other_kernel"],
            space=given["space"],
            metric=given["metric"],
            stop=options.read_stop(given["stop"]),
            checkpoints=given["checkpoints"],
            **options.read_budget(given),
        )
        if given["log_models"]:
            sync.want_all_models(folder)
        ended = session.run_driver(launch, make_view(terminal()), given["timeout"])
        return _answer_result(ended, folder, answer, given["attach"])


def _answer_result(
    result: "RunResult", folder: "Folder", answer: options.Answer, attach: str | None
) -> int:
    """Print the end of a driver, and start sending attachments to MLflow; return the exit code.

    `attach` is the option ``--attach``: ``beside``, ``wait``, ``later`` or None for the default.
    The code is 128 and the signal's number if a signal stopped the driver; 1 if a trial has failed,
    or the sweep has finished without a score; else 0.
    """
    from sweep.cli import tables
    from sweep.history.events import Status
    from sweep.operations.mlflow import attaching

    data = summary(result, folder)
    answer(data, tables.summary)
    attaching.attach(result, folder, attach)
    if result.signal is not None and result.outcome != "finished":
        return 128 + result.signal
    return 1 if result.history.with_status(Status.FAILED) or tables.has_no_score(data) else 0


def summary(result: "RunResult", folder: "Folder") -> dict[str, Any]:
    """Return the data of a driver's end for `tables.summary`; imports the sweep's trainable.

    To the data of `overview.summary` it adds ``root``, fields of `result` (``outcome``,
    ``seconds``, ``trained``, ``unsent``, ``trackers``), and ``exports``, true if the trainable can
    export models.
    """
    from sweep.driver.start import launch
    from sweep.views import overview

    return {
        **overview.summary(result.history, folder.name),
        "root": str(folder.root),
        "outcome": result.outcome,
        "seconds": result.seconds,
        "trained": result.trained,
        "unsent": list(result.unsent),
        "trackers": list(result.trackers),
        "exports": launch.trainable_of(folder).can_export(),
    }
