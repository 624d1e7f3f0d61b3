"""Export a trial's model into a folder that runs without sweep, with a card that describes it.

The trainable is restored from a checkpoint and writes its model, which is checked at once. The
folder gets its final name after the card is written, so it is complete or absent. The card is
signed, because its settings may name code.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core import plugins
from sweep.core.errors import BadConfig, UsageError
from sweep.history.seeds import replica_name
from sweep.ledger.folder import Folder, create_atomically
from sweep.operations.models import networks, register
from sweep.operations.models.trained import Choice, Playing
from sweep.views import formatting, overview
from trainables.checkpoint import signing
from trainables.errors import TrainableError
from trainables.trainable import Trainable

#: Values of `--format`; the last one is MLflow's folder, which contains the first one.
FORMATS = ("onnx", "torch-export", "safetensors", "mlflow")
#: Name of the file that describes an exported model.
CARD = "card.json"
#: Ids of environments that `gymnasium.make` creates.
_PUBLIC_ENV = re.compile(r"([\w.]+:)?[A-Za-z][\w-]*-v\d+")


def export_model(
    folder: Folder,
    choice: Choice,
    formats: Sequence[str],
    target: Path,
    episodes: int = networks.EPISODES,
    say: networks.Say = lambda _: None,
) -> dict[str, Any]:
    """Write the files of a trial's model, and the card that describes it, into the folder `target`.

    The card is ``card.json``, signed with the user's key if there is one, and for people
    ``card.md``. The folder is complete or does not appear. Returns the card's content without the
    signature.

    Args:
        choice: trial and checkpoint; `networks.COMPARED` takes the best network of its seeds.
        formats: members of `FORMATS`; empty for the trainable's own files, or else onnx.
        target: a folder that is empty or does not exist yet.
        episodes: fresh episodes that each network plays; 0 to choose by the metric alone.
        say: called with a message for each network that plays.

    Raises:
        UsageError: no such trial or checkpoint, `target` is in use, or the trainable cannot export.
        TrainableError: the checkpoint is unusable, or the model differs from the trained one.
    """
    _check_free(target)
    with (
        create_atomically(target) as draft,
        networks.restore_chosen(folder, choice, episodes, say) as (restored, played),
    ):
        describe = getattr(restored.trainable, "describe_model", None)
        described = dict(describe()) if callable(describe) else {}
        files = _export(restored.trainable, formats, draft, described)
        trial, spec = restored.trial, restored.spec
        card = {
            "sweep": folder.name,
            "trainable": spec.trainable,
            "trial": trial.number,
            "seed_index": restored.replica.index,
            "seed": restored.seed,
            "seeds": len(trial.replicas),
            "metric": spec.metric,
            "mode": spec.mode,
            "score": formatting.finite(trial.score),
            "status": trial.status.value,
            "checkpoint": overview.checkpoint(restored.replica, restored.saved),
            "played": played,
            "searched": dict(trial.searched),
            "config": trial.config,
            "files": files,
            "sha256": {name: _digest(draft / name) for name in _list_files(draft)},
            "model": described,
            "versions": {**restored.versions, "written_by": restored.header["versions"]},
        }
        trust = signing.user_trust_if_possible()
        signed = json.loads(json.dumps(card))
        signed = signed if trust is None else signing.sign(signed, trust)
        (draft / CARD).write_text(json.dumps(signed, indent=2) + "\n", encoding="utf-8")
        given = spec.space.nest(dict(trial.searched), spec.config)
        page = _card_page(card, given)
        (draft / "card.md").write_text("\n".join(page) + "\n", encoding="utf-8")
    return card


# ---- writing the model ----------------------------------------------------------------------


def _export(
    trainable: Trainable, formats: Sequence[str], draft: Path, described: Mapping[str, Any]
) -> dict[str, str]:
    """Write the model files into the folder `draft`.

    `described` is the result of `Trainer.describe_model`, which MLflow's format needs. Raises
    UsageError if the trainable cannot be exported in one of `formats`, or its export failed.

    Returns:
        Format → file, relative to the folder; for a trainable's own files, name → name.
    """
    try:
        if trainable.has_own_export():
            return _export_own(trainable, formats, draft)
        wanted = list(formats) or ["onnx"]
        as_mlflow_model = "mlflow" in wanted
        plain = dict.fromkeys("onnx" if name == "mlflow" else name for name in wanted)
        paths = trainable.export_model(list(plain), draft)
    except NotImplementedError as error:
        raise UsageError(f"export-model: {error}") from error
    except TrainableError as error:
        raise UsageError(f"export-model: the model was not exported: {error}") from error
    if as_mlflow_model:
        register.save(draft / "model", Path(paths["onnx"]), described)
        paths["mlflow"] = str(draft / "model")
        if "onnx" not in wanted:
            Path(paths.pop("onnx")).unlink()
    root = draft.resolve()
    return {name: Path(p).resolve().relative_to(root).as_posix() for name, p in paths.items()}


def _export_own(trainable: Trainable, formats: Sequence[str], draft: Path) -> dict[str, str]:
    """Let the trainable write its own files into `draft`.

    Returns each file's name as key and as value. Raises BadConfig if `formats` are requested,
    UsageError if the trainable raised an error, wrote no file, or wrote one with a card's name.
    """
    name = type(trainable).__name__
    if formats:
        problem = f"{name} has its own export_model(folder), which chooses the format itself"
        given = ", ".join(formats)
        raise BadConfig("--format", given, hint="leave --format out", problem=problem)
    try:
        trainable.write_own_export(draft)
    except Exception as error:  # a person's code may raise anything
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"export-model: export_model(folder) of {name} raised {why}") from error
    if not (written := _list_files(draft)):
        raise UsageError(
            f"export-model: export_model(folder) of {name} wrote no file into the folder; "
            "let it write at least one"
        )
    if taken := {CARD, "card.md"} & set(written):
        raise UsageError(
            f"export-model: export_model(folder) of {name} wrote {min(taken)}, a name that "
            "sweep uses for its card; use another file name"
        )
    return {name: name for name in written}


def _list_files(folder: Path) -> list[str]:
    """Return the paths of all files in a folder, relative to it, sorted."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path.relative_to(folder).as_posix() for path in files]


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- playing an exported model --------------------------------------------------------------


def play(folder: Path, playing: Playing) -> dict[str, Any]:
    """Play fresh episodes of an exported model in the environment of its card.

    The card's trainable is imported, also from the working directory. The keys of the result are
    ``name`` (of the sweep), ``trial``, ``metric``, ``score``, ``iteration`` (of the checkpoint),
    ``format`` and those of `Playing.summary`.

    Raises:
        UsageError: the folder holds no policy, the model does not match the card, or the trainable
            cannot play it.
        UntrustedCheckpoint: another person exported it, and its settings may name code.
    """
    digest, card = identify(folder / CARD)
    trust = signing.user_trust()
    if digest not in trust.digests:
        signing.check(card, trust, folder / CARD)
    form = next((form for form in FORMATS if form in card["files"]), None)
    if form is None:
        raise UsageError(
            f"play: {folder}: contains only the trainable's own files, which sweep cannot play"
        )
    file = register.onnx_file(card, folder) if form == "mlflow" else folder / card["files"][form]
    name = file.relative_to(folder).as_posix()
    try:
        changed = _digest(file) != card["sha256"].get(name)
    except OSError as error:
        raise UsageError(f"play: {file}: {error.strerror}") from error
    if changed:
        raise UsageError(f"play: {file}: this file does not match its card; export the model again")
    found = plugins.find_trainable(card["trainable"], [str(Path.cwd())])
    try:
        played = found.play_exported(
            file, card, playing.episodes, playing.seed, playing.video, playing.window
        )
    except NotImplementedError as error:
        raise UsageError(f"play: {error}") from error
    about = {key: card[key] for key in ("trial", "metric", "score")}
    return {
        "name": card["sweep"],
        **about,
        "iteration": card["checkpoint"]["iteration"],
        "format": form,
        **playing.summary(played),
    }


def identify(card: Path) -> tuple[str, dict[str, Any]]:
    """Return the SHA-256 of a card's file, and its content; UsageError if it is no card of ours."""
    try:
        content = card.read_bytes()
        card_data = dict(json.loads(content))
        if not {"files", "sha256", "checkpoint", "trainable"} <= card_data.keys():
            raise UsageError(
                f"{card}: was not written by this version of export-model; export the model again"
            )
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{card}: is not the card of an exported model") from error
    return hashlib.sha256(content).hexdigest(), card_data


# ---- the folder -----------------------------------------------------------------------------


def _check_free(out: Path) -> None:
    """Raise BadConfig if something other than an empty folder exists at the path `out`.

    It is raised, too, if the path cannot be read.
    """
    free = "a folder that is empty or does not exist yet"
    try:
        in_use = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:  # for example a name that is too long
        raise BadConfig("--out", str(out), free, error.strerror or "") from error
    if in_use:
        raise BadConfig("--out", str(out), free, problem=f"'{out}' exists already")


# ---- the card -------------------------------------------------------------------------------


#: Setting that sweep chooses → explanation of its values.
_CHOSEN: Mapping[str, str] = {
    "native_vector_env": "true: a worker stepped its environments as one vector environment",
    "normalize_actions": "true: actions were scaled from [-1, 1] to the bounds of the action space",
    "learner": "code that computed the gradients: torch, fused (in numpy) or compiled (in C)",
    "schedule_timesteps": "length of linear schedules, in environment steps",
    "classic_results": "true: results also have the names of RLlib's classic stack",
}


def _card_page(card: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return a model's card as lines of Markdown, with instructions for its use.

    `given` are the settings as the spec and the search set them.
    """
    score = formatting.number(card["score"])
    saved = card["checkpoint"]
    return [
        f"# {card['trainable']}, trial {card['trial']} of {card['sweep']}",
        "",
        f"- score of the trial: {score} ({card['metric']}, {card['mode']})",
        f"- seed: {card['seed']} (trial {replica_name(card['trial'], card['seed_index'])})",
        f"- checkpoint: iteration {saved['iteration']}, {card['metric']} there "
        f"{formatting.number(saved['value'])}, SHA-256 `{saved['digest']}`",
        *(f"- {line}" for line in formatting.describe_play(card["played"])),
        f"- files: {', '.join(f'`{file}`' for file in card['files'].values())}",
        *(
            f"- {name}: {version}"
            for name, version in card["versions"].items()
            if isinstance(version, str)
        ),
        "",
        *_network_lines(card["played"]),
        "## Settings",
        "",
        "```yaml",
        *_settings_lines(card["config"], given),
        "```",
        *_model_lines(card["model"]),
        *_usage_lines(card),
    ]


def _settings_lines(config: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return a trial's settings as lines of YAML: those in `given`, then those that sweep chose.

    The latter are not in `given` or ``auto`` there.
    """
    chosen = {key: value for key, value in config.items() if given.get(key, "auto") == "auto"}
    lines = formatting.yaml_lines({k: v for k, v in config.items() if k not in chosen})
    if chosen:
        lines += ["", "# The spec does not set these; sweep chose their values for the training."]
    for key, value in chosen.items():
        lines += [f"# {_CHOSEN[key]}"] if key in _CHOSEN else []
        lines += formatting.yaml_lines({key: value})
    return lines


def _network_lines(played: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a Markdown section about the compared networks; none without any."""
    if not played["compared"]:
        return
    yield from ("## Networks compared", "")
    yield "| seed | iteration | episodes | mean | ± | spread |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in played["compared"]:
        figures = [row.get(key) for key in ("mean", "error", "deviation")]
        cells = [row["name"], row["iteration"], row.get("episodes", row.get("not_played"))]
        cells += [formatting.number(figure) for figure in figures]
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def _model_lines(model: Mapping[str, Any]) -> list[str]:
    """Return two Markdown lists with data type and shape of the model's inputs and outputs.

    One that `model` does not describe is left out, with its heading.
    """
    lines = []
    for title in ("inputs", "outputs"):
        ports = model.get(title, {})
        if ports:
            lines += ["", f"## {title.capitalize()}", ""]
            lines += [
                f"- `{name}`: {port['dtype']} {port['shape']}" for name, port in ports.items()
            ]
    return lines


#: Format → Python code that defines ``policy``, from inputs by name to outputs by name.
_LOADING: Mapping[str, tuple[str, ...]] = {
    "onnx": (
        "import onnxruntime",
        "",
        'session = onnxruntime.InferenceSession("{file}")',
        "",
        "",
        "def policy(inputs):",
        "    names = [output.name for output in session.get_outputs()]",
        "    return dict(zip(names, session.run(None, inputs)))",
    ),
    "safetensors": (
        "from policy import load  # policy.py is in the same folder",
        "",
        'policy = load("{file}")',
    ),
    "torch-export": (
        "import torch",
        "",
        'program = torch.export.load("{file}").module()',
        "",
        "",
        "def policy(inputs):",
        "    with torch.no_grad():",
        "        outputs = program({{name: torch.from_numpy(x) for name, x in inputs.items()}})",
        "    return {{name: x.numpy() for name, x in outputs.items()}}",
    ),
    "mlflow": (
        "import mlflow",
        "",
        'policy = mlflow.pyfunc.load_model("{file}").predict',
    ),
}


def _usage_lines(card: Mapping[str, Any]) -> list[str]:
    """Return Markdown lines with a Python program that plays the exported model without sweep.

    Returns an empty list if the model has no known format or no description.
    """
    form = next((form for form in FORMATS if form in card["files"]), None)
    if form is None or not card["model"]:
        return []
    loading = (line.format(file=card["files"][form]) for line in _LOADING[form])
    program = ["import numpy", *loading, "", "", *_episode_lines(card)]
    return ["", "## Use", "", "```python", *program, "```"]


def _episode_lines(card: Mapping[str, Any]) -> list[str]:
    """Return lines of Python code that play 3 episodes with a function ``policy``."""
    inputs = card["model"]["inputs"]
    states = [name for name in inputs if "_in_" in name or name.startswith("prev_")]
    lines = []
    if states:
        first = [f'"{s}": {_initial_value_code(inputs[s])}' for s in states]
        lines = ["    state = {" + ", ".join(first) + "}  # what it remembers"]
    given = ["        inputs = {"]
    for name, port in inputs.items():
        if name not in states:
            read = _input_code(port.get("path", ()), card["config"].get("action_mask") == "info")
            array = f'numpy.asarray({read}, "{port["dtype"]}")[None]'
            given.append(f"            {name!r}: {array},")
    given.append("        }" + (" | state" if states else ""))
    after = [f"{s!r}: {_next_value_code(s)}" for s in states]
    action = _action_code(card["model"]["action_space"], "action")
    return [
        *_env_lines(card["config"]),
        "for seed in range(3):",
        "    observation, info = env.reset(seed=seed)",
        *lines,
        "    total, over = 0.0, False",
        "    while not over:",
        *given,
        "        outputs = policy(inputs)",
        f"        action = {action}",
        "        observation, reward, terminated, truncated, info = env.step(action)",
        *(["        state = {" + ", ".join(after) + "}"] if states else []),
        "        total, over = total + float(reward), terminated or truncated",
        '    print("return", total)',
    ]


def _initial_value_code(port: Mapping[str, Any]) -> str:
    """Return Python code for a recurrent input's value at the start of an episode.

    `port` describes the input: its data type, shape and perhaps its first value; without that, the
    value is zeros.
    """
    if "first" in port:
        return f'numpy.array([{port["first"]}], "{port["dtype"]}")'
    return f'numpy.zeros({(1, *port["shape"][1:])}, "{port["dtype"]}")'


def _next_value_code(state: str) -> str:
    """Return Python code that computes the next value of the recurrent input `state`."""
    if state == "prev_reward":
        return 'numpy.array([reward], "float32")'
    return f'outputs["{state.replace("_in_", "_out_").removeprefix("prev_")}"]'


def _input_code(path: Sequence[Any], masked: bool) -> str:
    """Return Python code that takes one input of the model from ``observation`` or ``info``.

    `path` has the keys from the observation to the input. `masked` is true if the infos contain the
    action mask; then the observation lacks the first key of each path, and ``action_mask`` is read
    from ``info``.
    """
    if masked and path[0] == "action_mask":
        return "numpy.hstack(info['action_mask'])"  # a tuple if there are several columns
    return "observation" + "".join(f"[{key!r}]" for key in path[masked:])


def _action_code(space: Mapping[str, Any], name: str) -> str:
    """Return Python code that builds an action of the space from the model's outputs.

    `space` is the description of the action space, `name` the output of this part of it.
    """
    if space["kind"] == "Dict":
        parts = (
            f"{key!r}: {_action_code(one, f'{name}.{key}')}" for key, one in space["spaces"].items()
        )
        return "{" + ", ".join(parts) + "}"
    if space["kind"] == "Tuple":
        parts = (f"{_action_code(one, f'{name}.{i}')}, " for i, one in enumerate(space["spaces"]))
        return "(" + "".join(parts).rstrip() + ")"
    return f"outputs[{name!r}][0]"


def _env_lines(config: Mapping[str, Any]) -> list[str]:
    """Return lines of Python code that create the trial's environment.

    It is a ``...`` for an environment that only sweep can create.
    """
    env, options = str(config.get("env")), config.get("env_config") or {}
    if _PUBLIC_ENV.fullmatch(env):
        given = "".join(f", {key}={value!r}" for key, value in options.items())
        return ["import gymnasium", "", f"env = gymnasium.make({env!r}{given})"]
    module, _, name = env.partition(":")
    creator = getattr(sys.modules.get(module), name, None) if name.isidentifier() else None
    if callable(creator):
        from trainables.envs import registry  # imports gymnasium, which few commands need

        made = f"{name}({registry.argument_code(creator, options)})"
        return [f"from {module} import {name}", "", f"env = {made}"]
    return [f"env = ...  # {env} as it was trained in; `sweep play` of this folder makes it"]
