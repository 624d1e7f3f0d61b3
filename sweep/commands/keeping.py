"""The commands that hand over what was found: export-model, ui."""

from pathlib import Path
from typing import Any

import click

from sweep.commands import answering, find_sweep, json_option, root_option


@click.command("export-model")
@click.argument("name")
@click.option("--trial", default="best", metavar="best|N", help="Which trial; default: best.")
@click.option(
    "--checkpoint", default="best", metavar="best|last|STEP", help="Which one of it; default: best."
)
@click.option("--format", "form", type=click.Choice(["onnx"]), default="onnx", help="The format.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where to."
)
@root_option
@json_option
def export_model(name: str, root: Path, **given: Any) -> None:
    """Write a trial's model and a card that says what it is into a folder of its own."""
    from sweep import export
    from sweep.show import render_trial

    with answering(given["as_json"]) as answer:
        choice = export.Choice(given["trial"], given["checkpoint"], (given["form"],))
        card = export.export_model(find_sweep(root, name), choice, given["out"])
        answer({**card, "out": str(given["out"])}, render_trial.card)


@click.command()
@click.argument("name", required=False)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, help="Default: 5000.")
@root_option
def ui(name: str | None, port: int, root: Path) -> int:
    """Open the MLflow page of all sweeps, or of one, until Ctrl-C."""
    from sweep import tracking
    from sweep.errors import without_password
    from sweep.show.mlflow_page import Page
    from trainables.errors import printable

    folder = None if name is None else find_sweep(root, name)
    if folder is not None and (kept := tracking.recall(folder)):
        click.echo(printable(f"{name} is recorded at {without_password(kept.uri)}"))
        return 0
    page = Page(root, name, port)
    click.echo(f"{page.url}  (Ctrl-C ends it)")
    return page.serve()
