"""The commands that only look: ls, status, results, show."""

from pathlib import Path

import click

from sweep.commands import answering, find_sweep, json_option, root_option


@click.command()
@root_option
@json_option
def ls(root: Path, as_json: bool) -> None:
    """List the sweeps."""
    import time

    from sweep.show import look, render, views

    with answering(as_json) as answer:
        sweeps, problems = look.read_all(root)
        for problem in problems:
            click.echo(f"sweep: {problem}", err=True)
        rows = [views.overview(sweep, time.time()) for sweep in sweeps]
        answer(rows, lambda data: render.overviews(data, str(root)))


@click.command()
@click.argument("name")
@click.option("--watch", is_flag=True, help="Redraw every second until the sweep stops.")
@root_option
@json_option
def status(name: str, watch: bool, root: Path, as_json: bool) -> None:
    """Show how far a sweep is."""
    from sweep.show import display, render
    from sweep.show.terminal import terminal

    folder = find_sweep(root, name)
    with answering(as_json) as answer:
        if watch and not as_json:
            display.watch(folder, terminal())
        else:
            answer(display.status_now(folder), render.status)


@click.command()
@click.argument("name")
@root_option
@json_option
def results(name: str, root: Path, as_json: bool) -> None:
    """List all trials, best first."""
    from sweep.show import look, render, views

    with answering(as_json) as answer:
        answer(views.results(look.read(find_sweep(root, name))), render.results)


@click.command()
@click.argument("name")
@click.argument("trial", type=int)
@click.option("--log", is_flag=True, help="Print what the trial printed.")
@root_option
@json_option
def show(name: str, trial: int, log: bool, root: Path, as_json: bool) -> None:
    """Show everything about one trial."""
    from sweep.show import look, render_trial, views

    with answering(as_json) as answer:
        folder = find_sweep(root, name)
        sweep = look.read(folder)
        found = views.find_trial(sweep.history, name, trial)
        if log:
            answer({"log": look.read_log(folder, found)}, render_trial.log)
        else:
            answer(
                views.show(sweep, trial, look.read_results(folder, found.leader)), render_trial.show
            )
