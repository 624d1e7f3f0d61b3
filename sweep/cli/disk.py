"""Commands that free disk space: gc, rm."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import completion, options

if TYPE_CHECKING:
    from sweep.ledger.folder import Folder
    from sweep.operations.upkeep import cleaning


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.names)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=3,
    metavar="K",
    help="Number of best trials that keep their best checkpoint; default: 3.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted; delete nothing.")
@click.option(
    "--mlflow",
    is_flag=True,
    help="Also mark those runs in ROOT/mlflow.db as deleted whose sweep or trial no longer exists.",
)
@click.option("--yes", is_flag=True, help="With --mlflow: do not ask for confirmation.")
@options.sweep_options
def gc(names: tuple[str, ...], keep: int, root: Path, as_json: bool, **given: bool) -> None:
    """Delete checkpoints and files that are no longer needed.

    Without names, this is done for all sweeps. Each sweep can still be resumed afterwards, since
    trials that may continue keep what they need.
    """
    dry_run, mlflow = given["dry_run"], given["mlflow"]
    if mlflow and names:
        raise click.UsageError(
            "--mlflow applies to all sweeps in the root folder; leave the names out"
        )
    if mlflow and not (dry_run or given["yes"] or sys.stdin.isatty()):
        raise click.UsageError(
            "there is no terminal on which to ask for confirmation; give --yes to delete "
            "without asking"
        )
    from sweep.core.errors import SweepError
    from sweep.ledger import folder as folders
    from sweep.operations.upkeep import cleaning
    from trainables.errors import printable

    with options.open_answer(as_json) as answer:
        freed = []
        for name in names or folders.list_sweeps(root):
            try:
                found = options.find_sweep(root, name)
                freed.append(cleaning.clean(found, options.say, keep, dry_run))
            except SweepError as error:
                if names:
                    raise
                options.say(f"{printable(name)} was skipped: {error}")
        if not names:
            freed += cleaning.clean_root(root, options.say, dry_run)
        if mlflow:
            freed += _delete_orphaned(root, dry_run, given["yes"])
        answer([vars(one) for one in freed], lambda rows: _freed_lines(rows, dry_run))


def _delete_orphaned(root: Path, dry_run: bool, yes: bool) -> "list[cleaning.Freed]":
    """Ask the user, then mark runs and models of the root's MLflow file as deleted.

    They are those that belong to no sweep of `root`. With `yes` nobody is asked; with `dry_run`
    nobody is asked, and runs are only counted. Returns an entry for each experiment with such runs;
    none if the user declines.
    """
    from sweep.operations.upkeep import cleaning
    from sweep.views.formatting import plural
    from trainables.errors import printable

    orphans = cleaning.orphaned(root)
    if dry_run:
        return [cleaning.Freed(one.name, 0, 0, 0, len(one.runs)) for one in orphans]
    if orphans and not yes:
        for one in orphans:
            what = f"{plural(len(one.runs), 'run')}, {plural(len(one.models), 'model')}"
            options.say(
                printable(
                    f"{one.name} is no longer on this disk, but MLflow still has {what} of it"
                )
            )
        if not click.confirm("Mark them as deleted in MLflow?", err=True):
            return []
    return list(cleaning.delete_orphaned(root, orphans))


@click.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.names
)
@click.option("--mlflow", is_flag=True, help="Also mark their runs as deleted in MLflow.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.sweep_options
def rm(names: tuple[str, ...], mlflow: bool, yes: bool, root: Path, as_json: bool) -> None:
    """Delete sweeps with all their checkpoints.

    Their runs stay on the MLflow page unless --mlflow is given. Deleted runs can be restored there
    until `mlflow gc` deletes them for good.
    """
    from sweep.operations.upkeep import cleaning

    with options.open_answer(as_json) as answer:
        folders = [options.find_sweep(root, name) for name in dict.fromkeys(names)]
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError(
                    "there is no terminal on which to ask for confirmation; give --yes to "
                    "delete without asking"
                )
            listed = ", ".join(folder.name for folder in folders)
            click.confirm(f"Delete {listed} with all checkpoints?", abort=True, err=True)
        for folder in folders:  # check all sweeps before the first one is deleted
            cleaning.check_removable(folder)
        tracked = [folder.name for folder in folders if _is_in_mlflow(folder)]
        removed = [cleaning.remove(folder, mlflow) for folder in folders]
        answer([vars(one) for one in removed], lambda rows: _freed_lines(rows, dry_run=False))
        if tracked and not mlflow:
            names_of = ", ".join(tracked)
            options.say(
                f"the MLflow runs of {names_of} were kept; give --mlflow to delete them too"
            )


def _is_in_mlflow(folder: "Folder") -> bool:
    """Return true if MLflow may have runs of the sweep, by its files and its spec.

    Without files of MLflow it returns False; with them and an unreadable spec, true.
    """
    from sweep.core.errors import SweepError
    from sweep.views import lookup

    if not (folder.mlflow.is_file() or folder.tracking_uri.exists()):
        return False
    try:
        return "mlflow" in lookup.read_spec(folder)[0].trackers
    except SweepError:  # the spec is unreadable
        return True


def _freed_lines(rows: list[dict[str, Any]], dry_run: bool) -> str:
    """Return a text about deleted files, or with `dry_run` those to delete: one line per row.

    A row has the fields of `cleaning.Freed` for one sweep, leftover folder or MLflow experiment.
    """
    from sweep.spec.sections import size_text
    from sweep.views.formatting import plural
    from trainables.errors import printable

    verb, deleted = ("would free", "to delete") if dry_run else ("freed", "deleted")
    lines = [
        f"{printable(row['name'])}: {verb} {size_text(row['bytes'])} "
        f"({plural(row['checkpoints'], 'checkpoint')}, {plural(row['files'], 'other file')})"
        + ("" if row["runs"] is None else f"; {plural(row['runs'], 'run')} {deleted} in MLflow")
        for row in rows
    ]
    return "\n".join(lines) or "there is nothing to delete"
