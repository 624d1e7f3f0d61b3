"""A trial's model in a folder that needs none of this to run, with a card that says what it is.

The trial and its checkpoint are chosen from the history; the trainable is restored from it and
writes its model, checked on the spot. The card is added, and only then does the folder take its
name: it is whole or absent.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.errors import BadConfig, UsageError
from sweep.ledger.folder import Folder, arriving
from sweep.operations.trained import Choice, restored
from sweep.views import formatting, overview
from trainables.errors import TrainableError
from trainables.trainable import Trainable

#: Environments that anybody can make by their id alone.
_PUBLIC_ENV = re.compile(r"[A-Za-z]\w*-v\d+")


def export_model(
    folder: Folder, choice: Choice, formats: Sequence[str], out: Path
) -> dict[str, Any]:
    """Write the model and its card into `out`; returns the card.

    Raises:
        UsageError: no such trial or checkpoint, `out` is in use, or the trainable cannot export.
        TrainableError: the checkpoint cannot be used, or the model is not what was trained.
    """
    _check_free(out)
    with arriving(out) as draft, restored(folder, choice) as found:
        files = _export(found.trainable, formats, draft)
        trial, spec = found.trial, found.spec
        describe = getattr(found.trainable, "describe_model", None)
        card = {
            "sweep": folder.name,
            "trainable": spec.trainable,
            "trial": trial.number,
            "replica": trial.leader.index,
            "seed": found.seed,
            "seeds": len(trial.replicas),
            "metric": spec.metric,
            "mode": spec.mode,
            "score": formatting.finite(trial.score),
            "status": trial.status.value,
            "checkpoint": overview.checkpoint(trial.leader, found.saved),
            "searched": dict(trial.searched),
            "config": trial.config,
            "files": files,
            "model": dict(describe()) if callable(describe) else {},
            "versions": {**found.versions, "written_by": found.header["versions"]},
        }
        (draft / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        (draft / "card.md").write_text("\n".join(_page(card)) + "\n", encoding="utf-8")
    return card


# ---- what is exported -----------------------------------------------------------------------


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
    """How to call the model with nothing but onnxruntime, and gymnasium for an episode."""
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
        *_episode_lines(card, name, port),
        "```",
    ]


def _episode_lines(card: Mapping[str, Any], name: str, port: Mapping[str, Any]) -> list[str]:
    """An episode in the environment, where its id and its plain observations are all it takes."""
    env = card["config"].get("env")
    plain = len(port["shape"]) == 2 and "action" in card["model"]["outputs"]
    if not (plain and isinstance(env, str) and _PUBLIC_ENV.fullmatch(env)):
        return []
    options = "".join(f", {k}={v!r}" for k, v in card["config"].get("env_config", {}).items())
    return [
        "",
        "# one episode",
        "import gymnasium",
        f"env = gymnasium.make({env!r}{options})",
        "observation, _ = env.reset(seed=0)",
        "total, over = 0.0, False",
        "while not over:",
        f'    batch = observation[None].astype("{port["dtype"]}")',
        f'    (actions,) = session.run(["action"], {{"{name}": batch}})',
        "    observation, reward, terminated, truncated, _ = env.step(actions[0])",
        "    total, over = total + float(reward), terminated or truncated",
        'print("return", total)',
    ]
