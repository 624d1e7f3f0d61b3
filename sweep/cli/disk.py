"""The commands that free disk space: gc, rm."""

import sys
from pathlib import Path
from typing import Any

import click

from sweep.cli import completion, options


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.names)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=3,
    metavar="K",
    help="Best trials that keep their best checkpoint; default: 3.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go; delete nothing.")
@options.sweep_options
def gc(names: tuple[str, ...], keep: int, dry_run: bool, root: Path, as_json: bool) -> None:
    """Delete checkpoints and files that nobody needs any more.

    That is of all sweeps, or of those named. A sweep can be resumed afterwards as before:
    trials that may go on keep what they need.
    """
    from sweep.errors import SweepError
    from sweep.ledger import folder as folders
    from sweep.operations import cleaning
    from trainables.errors import printable

    with options.answering(as_json) as answer:
        freed = []
        for name in names or folders.existing(root):
            try:
                found = options.find_sweep(root, name)
                freed.append(cleaning.clean(found, options.say, keep, dry_run))
            except SweepError as error:
                if names:
                    raise
                options.say(f"{printable(name)} is passed over: {error}")
        if not names:
            freed += cleaning.clean_root(root, dry_run)
        answer([vars(one) for one in freed], lambda rows: _lines(rows, dry_run))


@click.command()
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.names
)
@click.option("--mlflow", is_flag=True, help="Mark their runs deleted in MLflow, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.sweep_options
def rm(names: tuple[str, ...], mlflow: bool, yes: bool, root: Path, as_json: bool) -> None:
    """Delete sweeps with all their checkpoints.

    Their runs stay on the MLflow page unless --mlflow is given; what it marks deleted can be
    restored there until `mlflow gc` deletes it for good.
    """
    from sweep.operations import cleaning

    with options.answering(as_json) as answer:
        found = [options.find_sweep(root, name) for name in dict.fromkeys(names)]
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("no terminal to ask at; --yes deletes without asking")
            listed = ", ".join(folder.name for folder in found)
            click.confirm(f"Delete {listed} with all checkpoints?", abort=True, err=True)
        tracked = [one.name for one in found if one.mlflow.is_file() or one.tracking_uri.exists()]
        removed = [cleaning.remove(folder, mlflow) for folder in found]
        answer([vars(one) for one in removed], lambda rows: _lines(rows, dry_run=False))
        if tracked and not mlflow:
            names_of = ", ".join(tracked)
            options.say(f"what MLflow has of {names_of} stays there; --mlflow deletes it, too")


def _lines(rows: list[dict[str, Any]], dry_run: bool) -> str:
    from sweep.spec.sections import in_words
    from sweep.views.formatting import plural
    from trainables.errors import printable

    verb = "would free" if dry_run else "freed"
    lines = [
        f"{printable(row['name'])}: {verb} {in_words(row['bytes'])} "
        f"({plural(row['checkpoints'], 'checkpoint')}, {plural(row['files'], 'other file')})"
        + ("" if row["runs"] is None else f"; {plural(row['runs'], 'run')} deleted in MLflow")
        for row in rows
    ]
    return "\n".join(lines) or "there is nothing to delete"
