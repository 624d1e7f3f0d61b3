"""Commands that display results: ls, status, results, show, best, explain, report, curves."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import completion, options

if TYPE_CHECKING:
    from sweep.driver.final_evaluation import FinalEvaluation
    from sweep.history.history import History
    from sweep.ledger.folder import Folder
    from sweep.views.lookup import Sweep

#: Smallest time between two reports of a running sweep, in seconds.
WATCH_S = 10.0
#: File of the page of several sweeps, unless another is asked for.
COMPARISON = "comparison.html"
#: Default of `--top`: the best trial and its runner-up.
TESTED = 2


@click.command()
@options.sweep_options
@options.csv_option
def ls(root: Path, as_json: bool, as_csv: bool) -> None:
    """List the sweeps."""
    import time

    from sweep.cli import tables
    from sweep.views import lookup, overview

    with options.open_answer(as_json, as_csv, overview.OVERVIEW) as answer:
        sweeps, problems = lookup.read_all(root)
        for problem in problems:
            click.echo(f"sweep: {problem}", err=True)
        rows = [overview.overview(sweep, time.time()) for sweep in sweeps]
        answer(rows, lambda data: tables.overviews(data, str(root)))


@click.command()
@completion.name_argument
@click.option("--watch", is_flag=True, help="Redraw every second until the sweep stops.")
@options.sweep_options
def status(name: str, watch: bool, root: Path, as_json: bool) -> None:
    """Show the progress of a sweep."""
    from sweep.cli import live, tables
    from sweep.cli.terminal import terminal

    folder = options.find_sweep(root, name)
    with options.open_answer(as_json) as answer:
        if watch and not as_json:
            live.watch(folder, terminal())
        else:
            answer(live.current_status(folder), tables.status)


@click.command()
@completion.names_argument
@options.sweep_options
@options.csv_option
def results(names: tuple[str, ...], root: Path, as_json: bool, as_csv: bool) -> None:
    """List all trials, best first, or compare sweeps.

    If a trial continues another one, as with pbt, its iterations and steps include those of its
    parent until then; `own steps` and budgets do not.

    With several NAMEs, the best trials of these sweeps are shown side by side with their settings.
    """
    from sweep.cli import tables
    from sweep.views import overview

    if len(names) > 1:
        _compare(names, root, as_json, as_csv)
        return
    with options.open_answer(as_json, as_csv, overview.RESULTS) as answer:
        data = overview.results(_read_without_curves(options.find_sweep(root, names[0])))
        answer([_without_config(row) for row in data["trials"]] if as_csv else data, tables.results)


def _compare(names: tuple[str, ...], root: Path, as_json: bool, as_csv: bool) -> None:
    """Print the comparison of several sweeps as a table, JSON or CSV.

    Raises UsageError if they have different metrics or modes, or one is named twice.
    """
    from sweep.cli import tables
    from sweep.views import comparison, lookup

    with options.open_answer(as_json, as_csv, comparison.COLUMNS) as answer:
        folders = [options.find_sweep(root, name) for name in names]
        data = comparison.compare([lookup.read(folder, curves=False) for folder in folders])
        rows = [{k: v for k, v in row.items() if k != "kinds"} for row in data["sweeps"]]
        answer(rows if as_csv else data, tables.comparison)


def _read_without_curves(folder: "Folder") -> "Sweep":
    """Read a sweep without learning curves, and freeze the garbage collector until the end."""
    import gc

    from sweep.views import lookup

    sweep = lookup.read(folder, curves=False)
    gc.freeze()  # none of it becomes garbage, so scanning it again would waste time
    return sweep


def _without_config(row: dict[str, Any]) -> dict[str, Any]:
    """Return a trial's row of results without ``config``, all settings that its trainable got.

    The searched ones stay, under ``settings``.
    """
    return {key: value for key, value in row.items() if key != "config"}


@click.command()
@completion.name_argument
@completion.trial_argument
@click.option("--log", is_flag=True, help="Print the trial's output.")
@options.sweep_options
def show(name: str, trial: str, log: bool, root: Path, as_json: bool) -> None:
    """Show everything about one trial, given as number or best."""
    from sweep.cli import trial_tables
    from sweep.views import lookup, overview

    with options.open_answer(as_json) as answer:
        folder = options.find_sweep(root, name)
        sweep = lookup.read(folder)
        found = overview.asked_trial(sweep.history, folder, trial, "TRIAL")
        if log:
            answer({"log": lookup.read_log(folder, found)}, trial_tables.log)
        else:
            rows = lookup.read_results(folder, found.leader)
            answer(overview.show(sweep, found.number, rows), trial_tables.show)


@click.command()
@completion.name_argument
@click.option(
    "--test-seeds",
    type=click.IntRange(2, 10_000),
    metavar="N",
    help="First retrain the best trials with N new seeds that influenced no decision.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="K",
    help=f"Number of trials to retrain; default: {TESTED}.",
)
@options.jobs_option
@options.pool_options
@options.timeout_option
@options.sweep_options
def best(name: str, **given: Any) -> int:
    """Show the best trial: score, settings, checkpoint.

    The settings are printed as YAML for a spec. With --test-seeds the best trials are first
    retrained with new seeds.
    """
    from sweep.cli import trial_tables
    from sweep.driver.final_evaluation import FinalEvaluation
    from sweep.views import lookup, overview

    with options.open_answer(given["as_json"]) as answer:
        folder = options.find_sweep(given["root"], name)
        code = 0
        if given["test_seeds"] is None:
            _refuse_test_options(given)
        else:
            past = lookup.read_history(folder)
            overview.best_trial(past, folder)  # raises UsageError without a score
            wanted = FinalEvaluation(given["test_seeds"], given["top"] or TESTED)
            code = _run_final_evaluation(folder, wanted, given, past)
        answer(overview.best(_read_without_curves(folder)), trial_tables.best)
    return code


def _refuse_test_options(options_given: dict[str, Any]) -> None:
    """Raise BadConfig if an option was given that needs ``--test-seeds``.

    They are ``--top``, ``--jobs``, ``--pool``, ``--address`` and ``--timeout``.
    """
    from sweep.core.errors import BadConfig

    for option in ("top", "jobs", "pool", "address", "timeout"):
        if options_given[option] is not None:
            hint = f"add the number of test seeds, such as --test-seeds 10, or leave {option} out"
            problem = "has no effect without --test-seeds"
            raise BadConfig(f"--{option}", options_given[option], hint=hint, problem=problem)


def _run_final_evaluation(
    folder: "Folder",
    final_evaluation: "FinalEvaluation",
    options_given: dict[str, Any],
    history: "History",
) -> int:
    """Run the driver of a final evaluation; blocks until it ends.

    By default it has the pool of the search and the number of slots that a user chose for it.
    Shows its progress, and starts sending MLflow's attachments at the end. Returns the exit code:
    128 and the signal's number if a signal stopped it, 1 if a test has failed, else 0.
    """
    from sweep import pools
    from sweep.cli.live import make_view
    from sweep.cli.terminal import terminal
    from sweep.driver import session
    from sweep.driver.start import launch, prepare
    from sweep.history.events import Status
    from sweep.operations.mlflow import attaching
    from sweep.views import lookup

    spec, paths = lookup.read_spec(folder)
    jobs = options_given["jobs"] or (history.jobs if history.jobs_given else None)
    tests = final_evaluation.seeds * final_evaluation.top
    find = functools.partial(launch.trainable_of, folder)
    pool = pools.choose_pool(options.pool(options_given), history.pool)
    slots = prepare.slots(jobs, spec, paths, tests, find, pool)
    begun = launch.Launch(folder, slots, pool, final_evaluation=final_evaluation, say=options.say)
    ended = session.run_driver(begun, make_view(terminal()), options_given["timeout"])
    attaching.attach(ended, folder)
    if ended.signal is not None and ended.outcome != "finished":
        return 128 + ended.signal
    return 1 if ended.history.test_replicas(Status.FAILED) else 0


@click.command()
@completion.name_argument
@completion.trial_argument
@options.sweep_options
def explain(name: str, trial: str, root: Path, as_json: bool) -> None:
    """Explain why a trial was created, paused or stopped.

    Each decision is printed with the numbers that were compared.
    """
    from sweep.cli import trial_tables
    from sweep.views import explanation, lookup, overview

    with options.open_answer(as_json) as answer:
        folder = options.find_sweep(root, name)
        sweep = lookup.read(folder)
        found = overview.asked_trial(sweep.history, folder, trial, "TRIAL")
        data = explanation.explain(sweep, found.number)
        answer(data, trial_tables.explanation)


@click.command("export-schedule")
@completion.name_argument
@completion.trial_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write; default: print the settings.",
)
@options.sweep_options
def export_schedule(name: str, trial: str, out: Path | None, root: Path, as_json: bool) -> None:
    """Write a trial's settings over time, for pbt_replay.

    The settings of its ancestors are included, each with its start.
    """
    from sweep.views import explanation, lookup

    with options.open_answer(as_json) as answer:
        data = explanation.schedule(lookup.read(options.find_sweep(root, name)), trial)
        written = explanation.schedule_yaml(data)
        if out is not None:
            out.write_text(written, encoding="utf-8")
            written = f"{len(data['schedule'])} steps in {out}"
        answer(data, lambda _data: written.rstrip("\n"))


@click.command()
@completion.names_argument
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=options.check_parent,
    metavar="FILE",
    help="File to write; default: ./NAME.html, or ./comparison.html for several sweeps.",
)
@click.option("--watch", is_flag=True, help="Update the file until the sweep stops.")
@click.option(
    "--png",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the charts as PNG files to this folder instead.",
)
@options.root_option
def report(
    names: tuple[str, ...], out: Path | None, watch: bool, png: Path | None, root: Path
) -> None:
    """Write an HTML report: curves, importance, decisions.

    With several NAMEs, the report compares these sweeps: the curves of their best trials, the best
    score after each amount of training, and settings.
    """
    import contextlib

    from sweep.operations.report import page

    if len(names) > 1:
        if watch or png is not None:
            raise click.UsageError(
                f"{'--watch' if watch else '--png'} works with one sweep only; leave it out, "
                "or give one NAME"
            )
        _write_comparison(names, root, out or Path(COMPARISON))
        return
    (name,) = names
    folder = options.find_sweep(root, name)
    if png is not None:
        if watch or out is not None:
            raise click.UsageError(
                "--png writes pictures instead of the page; leave -o and --watch out"
            )
        _write_pictures(folder, png)
        return
    path = out or Path(f"{name}.html")
    sweep, seconds = _write_page(folder, path, watch)
    click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    with contextlib.suppress(KeyboardInterrupt):
        while watch and page.is_driven(sweep):
            _wait_while_driven(folder, max(WATCH_S, 5 * seconds))
            sweep, seconds = _write_page(folder, path, watch)
        return
    _write_page(folder, path, watch=False)  # without automatic reloading


def _write_comparison(names: tuple[str, ...], root: Path, path: Path) -> None:
    """Write the HTML page of several sweeps to `path`, and print the path."""
    import time

    from sweep.operations.report import comparison, page
    from sweep.views import lookup

    folders = [options.find_sweep(root, name) for name in names]
    page.write(path, comparison.build([lookup.read(one) for one in folders], time.time()))
    click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


def _write_pictures(folder: "Folder", target: Path) -> None:
    """Write the report's pictures as PNG files into `target`, and print their paths.

    Pictures that are left out are named on standard error.
    """
    from sweep.operations.report import pictures
    from sweep.views import lookup

    left_out: list[str] = []
    written = pictures.write(lookup.read(folder), target, left_out.append)
    for words in left_out:
        options.say(words)
    for path in written:
        click.echo(f"{path} ({path.stat().st_size / 1e3:.0f} kB)")
    if not written and not left_out:
        click.echo(f"{folder.name} has no results to draw yet")


def _wait_while_driven(folder: "Folder", seconds: float) -> None:
    """Wait for `seconds`, or until no driver runs any more."""
    import time

    from sweep.views import lookup

    until = time.monotonic() + seconds
    while time.monotonic() < until and lookup.is_driven(folder):
        time.sleep(0.5)


@click.command()
@completion.name_argument
@click.option(
    "--top", type=click.IntRange(1, 6), default=6, metavar="K", help="Number of coloured curves."
)
@options.sweep_options
def curves(name: str, top: int, root: Path, as_json: bool) -> None:
    """Draw learning curves in the terminal, best in colour."""
    from dataclasses import asdict

    from sweep.cli import tables
    from sweep.cli.terminal import terminal
    from sweep.operations.report.curves import curves as curves_of
    from sweep.views import lookup

    with options.open_answer(as_json) as answer:
        sweep = lookup.read(options.find_sweep(root, name))
        found, objective = curves_of(sweep, top), sweep.history.objective
        named = {"name": name, "metric": objective.metric, "time_attr": objective.time_attr}
        screen = terminal()
        size = (min(screen.width, 120), screen.height) if screen.is_terminal else (80, 24)
        answer({**named, **asdict(found)}, lambda data: tables.curves(data, found, size))


def _write_page(folder: "Folder", path: Path, watch: bool) -> "tuple[Sweep, float]":
    """Read a sweep and write its report to `path`; return the sweep, and the duration in seconds.

    With `watch`, the page reloads itself in the browser if a driver runs now.
    """
    import time

    from sweep.operations.report import page
    from sweep.views import lookup

    began = time.monotonic()
    sweep = lookup.read(folder)
    reload_s = WATCH_S if watch and page.is_driven(sweep) else 0.0
    page.write(path, page.build(sweep, time.time(), reload_s))
    return sweep, time.monotonic() - began
