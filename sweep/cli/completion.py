"""Shell completion: commands, options, sweeps and their trials."""

from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

#: Shell → class of its completion script.
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


def names(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Complete the name of a sweep: those below ``--root`` that start with `prefix`.

    Names that were given already are left out.
    """
    from sweep.ledger import folder

    taken = context.params.get("names") or ()
    found = [name for name in folder.list_sweeps(_root(context)) if name not in taken]
    return [name for name in found if name.startswith(prefix)]


def trials(context: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Complete the number of a trial: those with a folder in the sweep that start with `prefix`.

    They are sorted as numbers. The list is empty if the command line has no sweep yet.
    """
    lie = _root(context) / (context.params.get("name") or "") / "trials"
    found = {path.name.partition(".")[0] for path in lie.glob("[0-9]*")}
    numbers = sorted(filter(str.isdecimal, found), key=int)
    return [number for number in numbers if number.startswith(prefix)]


def spaces(
    _context: click.Context, _parameter: click.Parameter, prefix: str
) -> list[CompletionItem]:
    """Complete a search space: shipped ones and files of this folder that start with `prefix`.

    If no shipped one does, the shell completes files instead.
    """
    from sweep import spec

    found = [name for name in spec.shipped() if name.startswith(prefix)]
    if not found:
        return [CompletionItem(prefix, type="file")]
    # bash completes either words or files, so the files are added as words
    beside = (f"{path.name}/" if path.is_dir() else path.name for path in sorted(Path().iterdir()))
    found += [name for name in beside if name.startswith(prefix) and _is_plain(name)]
    return [CompletionItem(name) for name in found]


def _is_plain(name: str) -> bool:
    """Return true if a file's name is printable, without spaces, and not hidden."""
    return not name.startswith(".") and name.isprintable() and " " not in name


def _root(context: click.Context) -> Path:
    """Return the value of ``--root``, or its default while a command is being completed."""
    return Path(context.params.get("root") or "sweeps")


name_argument = click.argument("name", shell_complete=names)
names_argument = click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", shell_complete=names
)
trial_argument = click.argument("trial", shell_complete=trials)
trial_option = click.option(
    "--trial",
    default="best",
    metavar="best|N",
    help="Trial to use; default: best.",
    shell_complete=trials,
)


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for completion in a shell.

    \b
    bash   echo 'eval "$(sweep completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(sweep completion zsh)"' >> ~/.zshrc
    fish   sweep completion fish > ~/.config/fish/completions/sweep.fish
    """  # noqa: D301 (click reads the character that \b means)
    click.echo(_SHELLS[shell](context.find_root().command, {}, "sweep", "_SWEEP_COMPLETE").source())
