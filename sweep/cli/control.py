"""Commands that send a request to a driver, and `mcp`, which lets a language model do so."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from sweep.cli import completion, options


def answer_text(data: dict[str, Any]) -> str:
    """Return the answer of the driver in `data` as a text, or the reason why there is none yet.

    The entry ``state`` is ``done`` if there is an ``answer``, and ``driven`` is true if a driver
    runs.
    """
    from sweep.ledger.folder import root_option
    from trainables.errors import printable

    name = printable(data["name"])
    if data["state"] == "done":
        return f"{name}: {printable(data['answer'])}"
    if data["driven"]:
        return (
            f"{name}: the driver has not answered yet; it carries out the request when it next "
            "reads requests"
        )
    again = f"sweep resume {name}{root_option(data['root'])}"
    return (
        f"{name}: the request was stored, but no driver is running; `{again}` starts one, which "
        "carries it out first"
    )


#: Default seconds to wait for an answer; a driver with the pool inline answers between slices.
PATIENCE_S = 60.0


def _common_options(command: options.F) -> options.F:
    """Add the options ``--wait``, ``--root`` and ``--json``; a decorator."""
    for option in (
        options.json_option,
        options.root_option,
        options.wait_option(PATIENCE_S, "the running sweep's answer"),
    ):
        command = option(command)
    return command


def _make_trials_command(verb: str, text: str) -> click.Command:
    """Return the command `verb` with the help `text`, for the named trials or the whole sweep."""

    @click.command(verb, help=text)
    @completion.name_argument
    @click.argument(
        "trials", nargs=-1, type=click.IntRange(min=0), shell_complete=completion.trials
    )
    @_common_options
    def command(name: str, trials: tuple[int, ...], **given: Any) -> None:
        _request(name, verb, {"trials_named": list(trials)}, given)

    return command


stop = _make_trials_command(
    "stop",
    "End trials, or the whole sweep, at the next checkpoint.\n\nWithout TRIALS the whole sweep "
    "ends, as with Ctrl-C.",
)
pause = _make_trials_command(
    "pause",
    "Pause trials, or the whole sweep, until `sweep unpause`.\n\nTrials pause at their next "
    "checkpoint; without TRIALS the whole sweep pauses.",
)
unpause = _make_trials_command("unpause", "Continue paused trials, or the whole sweep.")


@click.command()
@completion.name_argument
@click.argument("trial", type=click.IntRange(min=0), shell_complete=completion.trials)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A searched setting to change."
)
@click.option(
    "--from-checkpoint", is_flag=True, help="Continue from the trial's newest checkpoint."
)
@_common_options
def clone(
    name: str, trial: int, settings: tuple[str, ...], from_checkpoint: bool, **given: Any
) -> None:
    """Clone a trial with some settings changed.

    The clone does not count towards --trials.
    """
    changed = options.read_once(settings, "--set", "lr=0.001")
    body = {"trials_named": [trial], "settings": changed, "from_checkpoint": from_checkpoint}
    _request(name, "clone", body, given)


@click.command()
@completion.name_argument
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option(
    "--why",
    "reason",
    default="",
    metavar="TEXT",
    help="Reason for the suggestion, recorded in the history.",
)
@_common_options
def suggest(name: str, settings: tuple[str, ...], reason: str, **given: Any) -> None:
    """Suggest settings for the next new trial.

    The searcher proposes the settings that are not given, and learns from the trial as from any
    other. The trial counts towards --trials. Grid values that it displaces go to later trials.
    """
    from sweep.operations import control_client

    suggested = options.read_once(settings, "sweep suggest NAME", "lr=0.001")
    _request(
        name,
        "suggest",
        {"settings": suggested, "reason": reason, "author": control_client.user()},
        given,
    )


@click.command("set")
@completion.name_argument
@click.option(
    "--trials", type=click.IntRange(min=1), metavar="TOTAL", help="New total number of trials."
)
@options.jobs_option
@options.budget_option
@options.max_disk_option
@_common_options
def set_(name: str, trials: int | None, jobs: int | None, **given: Any) -> None:
    """Change the number of (concurrent) trials, or the budget."""
    body = {"trials": trials, "jobs": jobs, **options.read_budget(given)}
    changed = {key: value for key, value in body.items() if value}
    if not changed:
        raise click.UsageError(
            "there is nothing to change; give at least one of --trials, --jobs, --budget and "
            "--max-disk"
        )
    _request(name, "set", changed, given)


def _request(name: str, verb: str, body: dict[str, Any], options_given: dict[str, Any]) -> None:
    """Send the request `verb` with its `body` to the sweep's driver, wait, and print the answer.

    Waits up to the seconds of ``--wait``, and not at all without a driver; then it prints that the
    request is noted. Raises UsageError if the sweep does not exist or refuses the request.
    """
    from sweep.ledger.requests import Verb
    from sweep.operations import control_client

    with options.open_answer(options_given["as_json"]) as answer:
        folder = options.find_sweep(options_given["root"], name)
        done, driven = control_client.ask(folder, Verb(verb), body, options_given["wait"])
        data = {
            "name": name,
            "root": str(folder.root),
            "request": verb,
            "state": "waits" if done is None else "done",
            "driven": driven,
            "answer": None if done is None else done.text,
            "trials": [] if done is None else list(done.trials),
        }
        answer(data, answer_text)


@click.command("mcp", cls=options.SpaceCommand)
@click.argument(
    "spaces", nargs=-1, required=True, metavar="SPACE...", shell_complete=completion.spaces
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    required=True,
    metavar="TOTAL",
    help="Maximum number of trials in all sweeps of the model together, also over restarts of the "
    "server.",
)
@click.option(
    "--budget",
    "budget",
    multiple=True,
    metavar="KEY=NUMBER",
    help="Budget of the model's sweeps: time_s, cpu_hours and timesteps for all sweeps together; "
    "target, patience and settled for each sweep.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="SLOTS",
    help="Number of concurrent trials in the model's sweep (one sweep runs at a time); default: "
    "as many as the cores can take.",
)
@options.root_option
def mcp_(
    spaces: tuple[str, ...], trials: int, budget: tuple[str, ...], jobs: int | None, root: Path
) -> None:
    """Let a language model tune, within the limits given here.

    This server of the Model Context Protocol uses standard input and output, and is started by the
    model's client. The model can start sweeps of the SPACEs, narrow their search spaces, read
    results, suggest settings, and stop its own sweeps.
    """
    from sweep.core.errors import UsageError
    from sweep.operations.agent.permission import Permission

    if find_spec("mcp") is None:
        raise UsageError(
            "mcp: the package mcp is not installed; install it: pip install 'sweep-rl[mcp]'"
        )
    allowed = Permission.of(spaces, root, trials, budget, jobs)
    from sweep.operations.agent import server, tools

    if sys.stdin is not None and sys.stdin.isatty():
        options.say(
            "this command is meant to be started by a language model's client (docs/mcp.md); "
            "Ctrl-C ends it"
        )
    server.serve(tools.Toolbox(allowed))
