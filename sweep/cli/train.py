"""The commands that train: run, resume."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import options

if TYPE_CHECKING:
    from sweep.driver.session import RunResult
    from sweep.ledger.folder import Folder


@click.command()
@click.argument("space")
@options.override_options
@options.jobs_option
@options.root_option
@options.pool_option
@options.timeout_option
@click.option("--dry-run", is_flag=True, help="Show what would be run; write nothing.")
@click.option("--tracking-uri", metavar="URI", help="MLflow server instead of ROOT/mlflow.db.")
@options.json_option
def run(space: str, **given: Any) -> int:
    """Start a sweep. SPACE is a YAML file, or the name of a shipped one such as quickstart."""
    from sweep.cli.live import make_view
    from sweep.cli.terminal import terminal
    from sweep.driver import prepare, session

    with options.answering(given["as_json"]) as answer:
        resolved, text = prepare.prepare(space, options.overrides(given))
        for warning in prepare.endless(resolved):
            options.say(f"warning: {warning}")
        if given["dry_run"]:
            from sweep.cli import check_tables
            from sweep.operations import validate

            data = validate.preview(resolved, given["jobs"])
            data["warm_start"] = prepare.taken_over(resolved, given["root"])
            answer(data, check_tables.preview)
            return 0
        launch = prepare.start(
            resolved,
            text,
            given["root"],
            given["jobs"],
            given["pool"],
            given["tracking_uri"],
            options.say,
        )
        ended = session.run_driver(launch, make_view(terminal()), given["timeout"])
        return _report(ended, launch.folder, answer)


@click.command()
@click.argument("name")
@click.option("--trials", type=click.IntRange(min=1), metavar="TOTAL", help="The new total.")
@options.jobs_option
@options.root_option
@options.pool_option
@options.timeout_option
@options.budget_option
@options.max_disk_option
@click.option("--retry-failed", is_flag=True, help="Try failed trials again.")
@click.option(
    "--space",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A wider search space from now on: the key space of a spec, or a space alone.",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="Compare trials by another result from now on, also by what they have reported so far.",
)
@click.option("--strict", is_flag=True, help="Refuse if code or library versions have changed.")
@options.json_option
def resume(name: str, **given: Any) -> int:
    """Go on with a sweep, however it ended; with --trials, add trials to it."""
    from sweep.cli.live import make_view
    from sweep.cli.terminal import terminal
    from sweep.driver import prepare, session

    with options.answering(given["as_json"]) as answer:
        folder = options.find_sweep(given["root"], name)
        launch = prepare.again(
            folder,
            given["jobs"],
            given["pool"],
            given["trials"],
            options.say,
            retry_failed=given["retry_failed"],
            strict=given["strict"],
            space=given["space"],
            metric=given["metric"],
            **options.read_budget(given),
        )
        ended = session.run_driver(launch, make_view(terminal()), given["timeout"])
        return _report(ended, folder, answer)


def _report(ended: "RunResult", folder: "Folder", answer: options.Answer) -> int:
    """Answer how it ended; returns the exit code."""
    from sweep.cli import tables
    from sweep.history.events import Status

    answer(summary(ended, folder), tables.summary)
    if ended.signal is not None and ended.how != "finished":
        return 128 + ended.signal
    return 1 if ended.history.of(Status.FAILED) else 0


def summary(ended: "RunResult", folder: "Folder") -> dict[str, Any]:
    """How a driver ended, as `sweep.cli.tables.summary` shows it."""
    from sweep.driver import launch
    from sweep.views import lookup, overview

    return {
        **overview.summary(ended.history, folder.name),
        "root": str(folder.root),
        "how": ended.how,
        "seconds": ended.seconds,
        "unsent": list(ended.unsent),
        "trackers": list(lookup.read_spec(folder)[0].trackers),
        "exports": launch.trainable_of(folder).can_export(),
    }
