"""A trial's model in a folder that needs none of this to run, with a card that says what it is.

The trial and its checkpoint are chosen from the history; the trainable is restored from it and
writes its model, checked on the spot. The card is added, and only then does the folder take its
name: it is whole or absent.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.driver import launch
from sweep.errors import BadConfig, UsageError
from sweep.history.events import Saved
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import seed_of
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder, arriving
from sweep.ledger.ledger import Ledger
from sweep.spec import SweepSpec
from sweep.views import formatting, overview, reading
from trainables.checkpoint import file as checkpoint_file
from trainables.errors import TrainableError
from trainables.trainable import Trainable, TrialContext


@dataclass(frozen=True)
class Choice:
    """Which model is wanted."""

    trial: str = "best"
    """``best``, or a trial's number."""
    checkpoint: str = "best"
    """``best`` by the metric, ``last``, or the iteration that one was saved at."""
    formats: tuple[str, ...] = ("onnx",)


def export_model(folder: Folder, choice: Choice, out: Path) -> dict[str, Any]:
    """Write the model and its card into `out`; returns the card.

    Raises:
        UsageError: no such trial or checkpoint, `out` is in use, or the trainable cannot export.
        TrainableError: the checkpoint cannot be used, or the model is not what was trained.
    """
    _check_free(out)
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history = reading.history(ledger)
        spec = reading.spec_of(ledger)
        provenance = ledger.provenance
    trial = _find_trial(history, folder.name, choice.trial)
    replica = trial.leader
    saved = find_checkpoint(replica, choice.checkpoint)
    with arriving(out) as draft, _restored(folder, spec, trial, saved) as (trainable, header):
        files = _export(trainable, choice.formats, draft)
        card = {
            "sweep": folder.name,
            "trainable": spec.trainable,
            "trial": trial.number,
            "replica": replica.index,
            "seed": seed_of(spec.seed, trial.number, replica.index),
            "seeds": len(trial.replicas),
            "metric": spec.metric,
            "mode": spec.mode,
            "score": formatting.finite(trial.score),
            "status": trial.status.value,
            "checkpoint": overview.checkpoint(replica, saved),
            "searched": dict(trial.searched),
            "config": trial.config,
            "files": files,
            "model": _describe(trainable),
            "versions": {**provenance["versions"], "written_by": header["versions"]},
        }
        (draft / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        (draft / "card.md").write_text("\n".join(_page(card)) + "\n", encoding="utf-8")
    return card


# ---- what is exported -----------------------------------------------------------------------


def _find_trial(history: History, name: str, wanted: str) -> Trial:
    trial, front = overview.asked_trial(history, name, wanted), overview.front(history)
    if wanted == "best" and front is not None:
        numbers = ", ".join(map(str, front)) or "none yet"
        allowed = f"a trial's number, as there are several objectives; the front: {numbers}"
        raise BadConfig("--trial", wanted, allowed)
    return trial


def find_checkpoint(replica: Replica, wanted: str) -> Saved:
    """The checkpoint that ``--checkpoint`` asks for; see `Choice`."""
    kept = {saved.iteration: saved for saved in replica.checkpoints.values()}
    newest, best = replica.newest, replica.best_checkpoint
    if newest is None or best is None:
        raise UsageError(f"trial {replica.trial}: has no checkpoint")
    if wanted in ("best", "last"):
        return best if wanted == "best" else newest
    if wanted.isdecimal() and int(wanted) in kept:
        return kept[int(wanted)]
    iterations = ", ".join(str(iteration) for iteration in sorted(kept))
    raise BadConfig(
        "--checkpoint", wanted, f"best, last, or an iteration that is kept: {iterations}"
    )


@contextlib.contextmanager
def _restored(
    folder: Folder, spec: SweepSpec, trial: Trial, saved: Saved
) -> Iterator[tuple[Trainable, Mapping[str, Any]]]:
    with tempfile.TemporaryDirectory(prefix="sweep-export-") as scratch:
        trainable, header = restore(folder, spec, trial, saved, Path(scratch))
        try:
            yield trainable, header
        finally:
            trainable.stop()


def restore(
    folder: Folder, spec: SweepSpec, trial: Trial, saved: Saved, logdir: Path | None = None
) -> tuple[Trainable, Mapping[str, Any]]:
    """A trial's trainable as it stood at a checkpoint of its leader, and the checkpoint's header.

    Raises:
        TrainableError: the checkpoint cannot be used.
    """
    replica = trial.leader
    cls = launch.trainable_of(folder)
    lies = folder.trial(trial.number, replica.index)
    loaded = checkpoint_file.read(lies / saved.file, saved.digest)
    seed = seed_of(spec.seed, trial.number, replica.index)
    remembered = loaded.state.get("remembered", {})
    context = TrialContext(seed, replica.name, replica.name, logdir, remembered=remembered)
    trainable = cls(trial.config, context)
    try:
        trainable.set_state(loaded.state)
    except BaseException:
        trainable.stop()
        raise
    return trainable, loaded.header


def _export(trainable: Trainable, formats: Sequence[str], draft: Path) -> dict[str, str]:
    """Format → file, relative to the folder."""
    try:
        paths = trainable.export_model(formats, draft)
    except NotImplementedError as error:
        raise UsageError(f"export-model: {error}") from error
    except TrainableError as error:
        raise UsageError(f"export-model: the model was not exported: {error}") from error
    root = draft.resolve()
    return {name: Path(p).resolve().relative_to(root).as_posix() for name, p in paths.items()}


def _describe(trainable: Trainable) -> dict[str, Any]:
    describe = getattr(trainable, "describe_model", None)
    return dict(describe()) if callable(describe) else {}


# ---- the folder -----------------------------------------------------------------------------


def _check_free(out: Path) -> None:
    free = "a folder that is empty or does not exist yet"
    try:
        in_use = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:  # no name that a folder could have
        raise BadConfig("--out", str(out), free, error.strerror or "") from error
    if in_use:
        raise BadConfig("--out", str(out), free, problem=f"'{out}' is in use")


# ---- the card -------------------------------------------------------------------------------


def _page(card: Mapping[str, Any]) -> list[str]:
    score = formatting.number(card["score"])
    saved = card["checkpoint"]
    return [
        f"# {card['trainable']}, trial {card['trial']} of {card['sweep']}",
        "",
        f"- score of the trial: {score} ({card['metric']}, {card['mode']})",
        f"- seed: {card['seed']} (replica {card['replica']}, the best of {card['seeds']})",
        f"- checkpoint: iteration {saved['iteration']}, {card['metric']} there "
        f"{formatting.number(saved['value'])}, SHA-256 `{saved['digest']}`",
        f"- files: {', '.join(f'`{file}`' for file in card['files'].values())}",
        *(
            f"- {name}: {version}"
            for name, version in card["versions"].items()
            if isinstance(version, str)
        ),
        "",
        "## Settings",
        "",
        "```yaml",
        *formatting.yaml_lines(card["config"]),
        "```",
        *_model_lines(card["model"]),
        *_usage_lines(card),
    ]


def _model_lines(model: Mapping[str, Any]) -> list[str]:
    lines = []
    for title in ("inputs", "outputs"):
        ports = model.get(title, {})
        if ports:
            lines += ["", f"## {title.capitalize()}", ""]
            lines += [
                f"- `{name}`: {port['dtype']} {port['shape']}" for name, port in ports.items()
            ]
    return lines


def _usage_lines(card: Mapping[str, Any]) -> list[str]:
    """How to call the model with nothing but onnxruntime."""
    inputs = card["model"].get("inputs", {})
    if "onnx" not in card["files"] or len(inputs) != 1:
        return []
    ((name, port),) = inputs.items()
    shape = [1 if isinstance(size, str) else size for size in port["shape"]]
    return [
        "",
        "## Use",
        "",
        "```python",
        "import numpy, onnxruntime",
        f'session = onnxruntime.InferenceSession("{card["files"]["onnx"]}")',
        f'{name} = numpy.zeros({shape}, dtype="{port["dtype"]}")',
        f'outputs = session.run(None, {{"{name}": {name}}})',
        "print(dict(zip([o.name for o in session.get_outputs()], outputs)))",
        "```",
    ]
