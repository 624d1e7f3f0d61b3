"""The commands that tell what was decided: explain, export-schedule."""

from pathlib import Path

import click

from sweep.commands import answering, find_sweep, json_option, root_option


@click.command()
@click.argument("name")
@click.argument("trial", type=int)
@root_option
@json_option
def explain(name: str, trial: int, root: Path, as_json: bool) -> None:
    """Tell why a trial was paused, promoted, stopped or bred, with the numbers compared."""
    from sweep.show import explanation, look, render_explanation

    with answering(as_json) as answer:
        data = explanation.explain(look.read(find_sweep(root, name)), trial)
        answer(data, render_explanation.explanation)


@click.command("export-schedule")
@click.argument("name")
@click.option("--trial", default="best", metavar="best|N", help="Which trial; default: best.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Where to write it.")
@root_option
@json_option
def export_schedule(name: str, trial: str, out: Path | None, root: Path, as_json: bool) -> None:
    """Write the settings of a trial's ancestors and when each began, for pbt_replay."""
    from rich.text import Text

    from sweep.show import lineage, look

    with answering(as_json) as answer:
        data = lineage.schedule(look.read(find_sweep(root, name)), trial)
        written = lineage.text(data)
        if out is not None:
            out.write_text(written, encoding="utf-8")
            written = f"{len(data['schedule'])} steps in {out}"
        answer(data, lambda _data: Text(written.rstrip("\n")))
