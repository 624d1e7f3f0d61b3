"""The command that says which trial is best, and whether it is: best."""

from typing import TYPE_CHECKING, Any

import click

from sweep.commands import (
    answering,
    find_sweep,
    jobs_option,
    json_option,
    pool_option,
    root_option,
    say,
    timeout_option,
)

if TYPE_CHECKING:
    from sweep.exam import Exam
    from sweep.folder import Folder
    from sweep.history import History

#: Trials that are tested unless `--top` says another number: the best, and whom it must beat.
TOP = 2


@click.command()
@click.argument("name")
@click.option(
    "--test-seeds",
    type=click.IntRange(2, 10_000),
    metavar="N",
    help="First train the best trials from the beginning under N seeds that no decision has seen.",
)
@click.option(
    "--top", type=click.IntRange(min=1), metavar="K", help=f"How many of them; default: {TOP}."
)
@jobs_option
@pool_option
@timeout_option
@root_option
@json_option
def best(name: str, **given: Any) -> int:
    """Show the best trial: score, settings as YAML, checkpoint, and what test seeds say of it."""
    from sweep.exam import Exam
    from sweep.show import look, render_trial, views

    with answering(given["as_json"]) as answer:
        folder = find_sweep(given["root"], name)
        code = 0
        if given["test_seeds"] is None:
            _refuse_without_tests(given)
        else:
            past = look.read_history(folder)
            views.best_trial(past, name)
            code = _test(folder, Exam(given["test_seeds"], given["top"] or TOP), given, past)
        answer(views.best(look.read(folder)), render_trial.best)
    return code


def _refuse_without_tests(given: dict[str, Any]) -> None:
    from sweep.errors import BadConfig

    for option in ("top", "jobs", "pool", "timeout"):
        if given[option] is not None:
            hint = "or say under how many seeds: --test-seeds 10"
            problem = f"{given[option]} is about test seeds, and none are asked for"
            raise BadConfig(f"--{option}", given[option], "no such option", hint, problem=problem)


def _test(folder: "Folder", exam: "Exam", given: dict[str, Any], past: "History") -> int:
    """Run the exam, with what the search was run with; returns the exit code."""
    from sweep import pools, preparation, session
    from sweep.events import Status
    from sweep.launch import Launch
    from sweep.show import look
    from sweep.show.display import make_view
    from sweep.show.terminal import terminal

    spec, paths = look.read_spec(folder)
    jobs = given["jobs"] or (past.jobs if past.jobs_given else None)
    slots = preparation.slots(jobs, spec, paths, exam.seeds * exam.top)
    pool = pools.again(given["pool"], past.pool)
    launch = Launch(folder, slots, pool, exam=exam, say=say)
    order = session.Order(launch, given["timeout"])
    ended = session.conduct(order, make_view(terminal()))
    if ended.signal is not None and ended.how != "finished":
        return 128 + ended.signal
    return 1 if ended.history.tests(Status.FAILED) else 0
