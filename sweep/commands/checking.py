"""The commands that try something out and keep nothing of it: validate, check-env."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from sweep.commands import (
    answering,
    jobs_option,
    json_option,
    override_options,
    overrides,
    root_option,
    say,
    waitable,
)

#: Seconds between two lines about what goes on; on a terminal, one line is redrawn.
_EVERY_S, _REDRAWN_EVERY_S = 2.0, 0.5


@click.command()
@click.argument("space")
@override_options
@jobs_option
@click.option(
    "--for",
    "longest_s",
    type=click.FloatRange(min=0, min_open=True),
    callback=waitable,
    default=60.0,
    metavar="SECONDS",
    help="How long the trainable may be tried out; what was not tried by then is named, "
    "and is no error; default: 60.",
)
@root_option
@json_option
def validate(space: str, **given: Any) -> None:
    """Check a spec, show what it would run and cost, and try its trainable out."""
    from sweep import preparation
    from sweep.show import preview, render_preview

    with answering(given["as_json"]) as answer:
        prepared = preparation.prepare(space, overrides(given))
        warmed = preparation.taken_over(prepared, given["root"])
        with _telling() as (tell, every_s):
            seen = preview.validation(prepared, given["jobs"], given["longest_s"], tell, every_s)
        answer({**seen, "warm_start": warmed}, render_preview.preview)


@contextlib.contextmanager
def _telling() -> Iterator[tuple[Callable[[str], None], float]]:
    """What tells a person on standard error what goes on, and how often, seconds.

    One line that is redrawn on a terminal, a line from time to time elsewhere.
    """
    from rich.text import Text

    from sweep.show.terminal import Terminal
    from trainables.errors import printable

    console = Terminal(sys.stderr)
    if not console.live:
        yield lambda text: say(printable(text)), _EVERY_S
        return
    with console.status("") as status:
        yield lambda text: status.update(Text(printable(text))), _REDRAWN_EVERY_S


@click.command("check-env")
@click.argument("env")
@click.option("--env-config", metavar="YAML", help="What it is made with, such as '{g: 9.0}'.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=2000,
    metavar="N",
    help="Steps of each measure of speed; default: 2000.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    metavar="S",
    help="Seconds that one call of it may take; default: 60.",
)
@json_option
def check_env(env: str, **given: Any) -> None:
    """Measure an environment: spaces, speed, faults, and what a checkpoint can hold of it."""
    from sweep import plugins
    from sweep.show import render_env
    from trainables import env_check

    with answering(given["as_json"]) as answer:
        plugins.add_paths([str(Path.cwd())])
        config = _read(given["env_config"])
        answer(env_check.check(env, config, given["steps"], given["timeout"]), render_env.report)


def _read(text: str | None) -> dict[str, Any]:
    from sweep.errors import At, BadConfig
    from sweep.spec import yaml_source

    said = f"--env-config {text}"
    value = {} if text is None else yaml_source.read_value(text, said, ("env_config",))
    if not isinstance(value, dict):
        raise BadConfig("--env-config", value, "a mapping", "for example '{g: 9.0}'", at=At(said))
    return value
