"""The commands that ask a running sweep for something: stop, pause, unpause, clone, set."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sweep.cli.options import (
    answering,
    budget_option,
    find_sweep,
    jobs_option,
    json_option,
    max_disk_option,
    read_budget,
    root_option,
    wait_option,
)

if TYPE_CHECKING:
    from rich.text import Text

    from sweep.ledger.requests import Verb


# -------------------------------------------------------------------------------------------------
# What became of a request to a sweep's driver, in a line.


def answer_text(data: dict[str, Any]) -> "Text":
    """The driver's answer, or what the request waits for."""
    from rich.text import Text

    from trainables.errors import printable

    name = printable(data["name"])
    if data["state"] == "done":
        return Text(f"{name}: {printable(data['answer'])}")
    if data["driven"]:
        return Text(f"{name}: the driver has not answered yet; it will when it next looks")
    return Text(f"{name}: no driver runs; `sweep resume {name}` begins with this")


F = TypeVar("F", bound=Callable[..., Any])

#: Seconds that a driver is given to answer: one in its own process looks after each slice only.
PATIENCE_S = 60.0


def _common(command: F) -> F:
    for option in (
        json_option,
        root_option,
        wait_option(PATIENCE_S, "the driver's answer"),
    ):
        command = option(command)
    return command


trials_argument = click.argument("trials", nargs=-1, type=click.IntRange(min=0))


@click.command()
@click.argument("name")
@trials_argument
@_common
def stop(name: str, trials: tuple[int, ...], **given: Any) -> None:
    """End trials at their next checkpoint; without TRIALS the whole sweep, as Ctrl-C does."""
    from sweep.ledger.requests import Verb

    _ask(name, Verb.STOP, {"trials_named": list(trials)}, given)


@click.command()
@click.argument("name")
@trials_argument
@_common
def pause(name: str, trials: tuple[int, ...], **given: Any) -> None:
    """Pause trials at their next checkpoint, until `sweep unpause`; without TRIALS the sweep."""
    from sweep.ledger.requests import Verb

    _ask(name, Verb.PAUSE, {"trials_named": list(trials)}, given)


@click.command()
@click.argument("name")
@trials_argument
@_common
def unpause(name: str, trials: tuple[int, ...], **given: Any) -> None:
    """Let paused trials go on; without TRIALS the whole sweep."""
    from sweep.ledger.requests import Verb

    _ask(name, Verb.UNPAUSE, {"trials_named": list(trials)}, given)


@click.command()
@click.argument("name")
@click.argument("trial", type=click.IntRange(min=0))
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A searched setting to change."
)
@click.option(
    "--from-checkpoint", is_flag=True, help="Go on from the trial's newest checkpoint, not anew."
)
@_common
def clone(
    name: str, trial: int, settings: tuple[str, ...], from_checkpoint: bool, **given: Any
) -> None:
    """Make a trial with the settings of TRIAL, some of them changed; it counts for no --trials."""
    from sweep.ledger.requests import Verb
    from sweep.spec import Override

    changed = {override.path: override.value for override in map(Override.parse, settings)}
    body = {"trials_named": [trial], "settings": changed, "from_checkpoint": from_checkpoint}
    _ask(name, Verb.CLONE, body, given)


@click.command("set")
@click.argument("name")
@click.option("--trials", type=click.IntRange(min=1), metavar="TOTAL", help="The new total.")
@jobs_option
@budget_option
@max_disk_option
@_common
def set_(name: str, trials: int | None, jobs: int | None, **given: Any) -> None:
    """Change how many trials there shall be, how many run at once, or what they may cost."""
    from sweep.ledger.requests import Verb

    body = {"trials": trials, "jobs": jobs, **read_budget(given)}
    changed = {key: value for key, value in body.items() if value}
    if not changed:
        raise click.UsageError("nothing to set; give --trials, --jobs, --budget or --max-disk")
    _ask(name, Verb.SET, changed, given)


def _ask(name: str, verb: "Verb", body: dict[str, Any], given: dict[str, Any]) -> None:
    from sweep.operations import control_client

    with answering(given["as_json"]) as answer:
        asked = control_client.ask(find_sweep(given["root"], name), verb, body, given["wait"])
        done = asked.answer
        data = {
            "name": name,
            "request": verb.value,
            "state": "waits" if done is None else "done",
            "driven": asked.driven,
            "answer": None if done is None else done.text,
            "trials": [] if done is None else list(done.trials),
        }
        answer(data, answer_text)
