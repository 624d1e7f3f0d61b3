"""The command that tells what was decided, and why: explain."""

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
