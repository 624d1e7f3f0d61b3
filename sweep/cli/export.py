"""Commands that play, export, display or trust a policy: play, export-model, ui, trust."""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import completion, options

checkpoint_option = click.option(
    "--checkpoint",
    default="best",
    metavar="best|last|STEP",
    help="Which checkpoint; default: best.",
)

if TYPE_CHECKING:
    from sweep.ledger.folder import Folder
    from sweep.operations.models.trained import Choice


@click.command("export-model")
@completion.name_argument
@completion.trial_option
@click.option(
    "--checkpoint",
    default="compared",
    metavar="compared|best|last|STEP",
    help="Checkpoint to export; default: compared, the network that is best in fresh episodes, "
    "among the networks of all seeds.",
)
@click.option(
    "--episodes",
    type=click.IntRange(0, 100_000),
    default=20,
    metavar="N",
    help="Number of fresh episodes that each network plays; 0: choose by the metric; default: 20.",
)
@click.option(
    "--format",
    "formats",
    type=click.Choice(["onnx", "torch-export", "safetensors", "mlflow"]),
    multiple=True,
    help="Format of the model; give the option again for several formats; default: onnx.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder to which the model is written.",
)
@click.option(
    "--register",
    metavar="MODEL",
    help="Add the model to the trial's MLflow run, as the next version of MODEL.",
)
@options.sweep_options
def export_model(name: str, root: Path, **given: Any) -> None:
    """Write a trial's model and its model card to a folder.

    A function or class with its own export_model(folder) writes its own files. With --register the
    model is added to the trial's run in MLflow, and --out may be omitted.
    """
    from sweep.cli import trial_tables

    with options.open_answer(given["as_json"]) as answer:
        answer(_export(options.find_sweep(root, name), **given), trial_tables.card)


def _export(
    folder: "Folder",
    trial: str,
    checkpoint: str,
    formats: tuple[str, ...],
    out: Path | None,
    register: str | None,
    episodes: int,
    **_: Any,
) -> dict[str, Any]:
    """Export the model and print progress; register it in MLflow as `register`, if given.

    Returns the card for the answer. Without `out`, the files lie in a temporary folder. If the
    model cannot be registered as it is, `out` is deleted, but not if MLflow fails. Raises click's
    UsageError if both are None.
    """
    from sweep.core.errors import StorageError, SweepError
    from sweep.driver.tracking import sync
    from sweep.operations.models import export
    from sweep.operations.models import register as registering
    from sweep.operations.models.trained import Choice

    if out is None and register is None:
        raise click.UsageError(
            "give --out FOLDER to write the model to a folder, or --register NAME to register it "
            "in MLflow"
        )
    choice = Choice(trial, checkpoint)
    with tempfile.TemporaryDirectory(prefix="sweep-export-") as scratch:
        target = out or Path(scratch) / "model"
        with options.progress() as (show, every_s):
            say = _throttle(show, every_s)
            card = export.export_model(folder, choice, formats, target, episodes, say)
        answered = {"out": None if out is None else str(out)}
        if register is None:
            return {**card, **answered}
        try:
            uri = registering.register(sync.tracker_context(folder), card, target, register)
        except StorageError as error:  # the model was exported, which may have taken long
            kept = "" if out is None else f"; the model is in {out}, so give another --out"
            raise StorageError(f"{error}{kept}") from error
        except SweepError:
            shutil.rmtree(target)  # so that the corrected command can use the folder
            raise
        return {**card, **answered, "registered": uri}


def _throttle(show: Callable[[str], None], every_s: float) -> Callable[[str], None]:
    """Return a function that passes a text to `show` at most every `every_s` seconds from now on.

    Other texts are dropped.
    """
    last = time.monotonic()

    def say(text: str) -> None:
        """Show the text, unless `every_s` seconds have not passed since the previous text."""
        nonlocal last
        if time.monotonic() - last >= every_s:
            last = time.monotonic()
            show(text)

    return say


@click.command()
@click.argument("name", metavar="NAME|FOLDER", shell_complete=completion.names)
@completion.trial_option
@checkpoint_option
@click.option(
    "--episodes",
    type=click.IntRange(1, 100_000),
    default=10,
    metavar="N",
    help="Number of episodes; default: 10.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    metavar="S",
    help="Seed of the episodes: the same seed gives the same episodes; default: 0.",
)
@click.option(
    "--video",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write an MP4 file of each episode.",
)
@click.option("--window", is_flag=True, help="Show the episodes on the screen.")
@options.sweep_options
def play(name: str, root: Path, **given: Any) -> None:
    """Play episodes of a trial's policy, or of an exported one."""
    from sweep.cli import trial_tables
    from sweep.ledger import folder as folders
    from sweep.operations.models import export, trained

    with options.open_answer(given["as_json"]) as answer:
        choice = trained.Choice(given["trial"], given["checkpoint"])
        how = trained.Playing(given["episodes"], given["seed"], given["video"], given["window"])
        if (Path(name) / export.CARD).is_file() and name not in folders.list_sweeps(root):
            _refuse_choice(choice)
            data = export.play(Path(name), how)
        else:
            data = trained.play(options.find_sweep(root, name), choice, how)
        answer(data, trial_tables.played_text)


def _refuse_choice(choice: "Choice") -> None:
    """Raise click's UsageError if another trial or checkpoint than ``best`` was chosen.

    It is for an exported folder, which has one model.
    """
    for option, value in (("--trial", choice.trial), ("--checkpoint", choice.checkpoint)):
        if value != "best":
            raise click.UsageError(
                f"{option} {value}: an exported folder contains only one model; leave {option} out"
            )


@click.command()
@click.argument("name", required=False, shell_complete=completion.names)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=5000, help="Port to serve at; default: 5000."
)
@click.option("--host", default="127.0.0.1", help="Address to serve at; default: this machine's.")
@click.option(
    "--open/--no-open",
    "show",
    default=None,
    help="Open the page in a browser; default: only if there is a screen.",
)
@options.root_option
def ui(name: str | None, port: int, host: str, show: bool | None, root: Path) -> int:
    """Serve the MLflow page of all sweeps, or of one."""
    from sweep.core.errors import without_password
    from sweep.driver.tracking import sync
    from sweep.operations.mlflow import attaching
    from sweep.operations.mlflow.page import Page, may_show
    from sweep.trackers._shared.mlflow_view import AT_FIRST, MORE
    from trainables.errors import printable

    folder = None if name is None else options.find_sweep(root, name)
    attaching.send_for_page(root, name, options.say)
    if folder is not None and (kept := sync.read_tracking(folder)):
        uri = without_password(kept.uri)
        click.echo(printable(f"{name} is recorded at {uri}, in the experiment {folder.name}"))
        return 0
    page = Page(root, name, port, host)
    click.echo(f"{page.url}  (Ctrl-C ends it)")
    if (trials := page.trials) > AT_FIRST:
        options.say(f"of {trials:,} trials, the page begins with {MORE}")
    return page.serve(may_show() if show is None else show)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@options.json_option
def trust(files: tuple[Path, ...], as_json: bool) -> None:
    """Allow checkpoints signed by another user to be restored.

    A trusted checkpoint may run code as you. FILE may also be the card.json of an exported model,
    which can then be played, or the file sweep.postgresql or checkpoints in a sweep's folder; the
    server named there then gets your credentials. Trust applies to files with exactly this content,
    wherever they are, and only to you.
    """
    from sweep.ledger import signed
    from sweep.ledger.folder import CHECKPOINTS
    from sweep.operations.models import export
    from trainables.checkpoint import file as checkpoint_file
    from trainables.checkpoint import signing

    with options.open_answer(as_json) as answer:
        trusted = []
        for file in files:
            if file.suffix == signed.REMOTE or file.name == CHECKPOINTS:
                digest, content = signed.identify(file)
                step = 0
            elif file.name == export.CARD:
                digest, content = export.identify(file)
                step = content["checkpoint"]["iteration"]
            else:
                digest, content = checkpoint_file.identify(file)
                step = content["step"]
            entry: dict[str, Any] = {"file": str(file), "digest": digest, "step": step}
            trusted.append({**entry, "signed_by": content.get("key")})
        signing.trust_checkpoints(entry["digest"] for entry in trusted)
        answer(trusted, _trusted_lines)


def _trusted_lines(trusted: Sequence[dict[str, Any]]) -> str:
    """Return a text with one line for each of the `trusted` files: ``file`` and ``signed_by``."""
    from trainables.errors import printable

    return "\n".join(
        printable(f"trusted: {found['file']}, signed by {found['signed_by'] or 'nobody'}")
        for found in trusted
    )
