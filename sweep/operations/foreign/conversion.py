"""Convert files of other tools to specs: sweeps of W&B, hyperparameters of rl-baselines3-zoo.

`zoo` translates the hyperparameters of rl-baselines3-zoo; the spec then searches around the given
learning rate, which is tried first.
"""

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.core.errors import UsageError
from sweep.operations.foreign import zoo
from sweep.spec import foreign
from sweep.spec.from_python import to_plain_data
from sweep.views import formatting
from trainables.errors import printable, shorten

#: Number of trials if the file gives none, and the largest number for a grid.
TRIALS, MOST_TRIALS = 20, 1000
#: Method of W&B → searcher.
_SEARCHERS = {"random": "random", "grid": "grid", "bayes": "tpe"}
#: Goal of W&B → mode of the metric.
_GOALS = {"minimize": "min", "maximize": "max"}
#: Options of W&B's early termination that are counts → their defaults.
_HYPERBAND = {"max_iter": 1, "min_iter": 1, "s": 2, "eta": 3}
#: The largest such count.
_MOST_COUNT = 10**9
#: Keys of W&B that a spec does not need.
_IGNORED_KEYS = frozenset({"project", "entity", "description", "name", "program", "controller"})


@dataclass
class Converted:
    """A spec made from another tool's file, with remarks for the user."""

    keys: dict[str, Any]
    """Top-level keys of the spec, as they are written to YAML."""
    notes: list[str] = field(default_factory=list)
    """Remarks for the user, one sentence each, such as on keys that were not converted."""

    def text(self, file: str) -> str:
        """Return the spec as YAML, with dates as text.

        Comments at its top name the original `file` and give the notes. Raises BadConfig for a
        value that a spec cannot have, such as infinity.
        """
        head = [f"From {file}. Every key: docs/spec.md; spaces: docs/search-space.md.", *self.notes]
        comments = [f"# {printable(line)}" for line in head]
        plain = {key: to_plain_data(value, key) for key, value in self.keys.items()}
        return "\n".join([*comments, "", *formatting.yaml_lines(plain), ""])


def convert(
    text: str, file: str, name: str, env: str | None = None, algorithm: str | None = None
) -> Converted:
    """Convert the text of a W&B sweep or of an rl-baselines3-zoo file to a spec called `name`.

    Args:
        file: name of the file; rl-baselines3-zoo names it after the algorithm.
        env: environment to choose if the file has several.
        algorithm: algorithm of the file; None to take it from the file name.

    Raises:
        UsageError: the format is unknown, or the file has something that sweep does not support.
    """
    raw = foreign.read(text, file)
    kind = foreign.kind_of(raw)
    if kind == "wandb":
        return _convert_wandb(raw, name)
    if kind == "zoo":
        keys, notes = zoo.convert(raw, file, env, algorithm)
        return Converted({"name": name, **keys}, notes)
    called = " nor ".join(foreign.CALLED.values())
    raise UsageError(f"--from: {file} is neither {called}")


def _convert_wandb(raw: Mapping[str, Any], name: str) -> Converted:
    """Convert the content of a W&B sweep file to a spec called `name`.

    Its trainable is `command`, which runs the file's program. The notes say what was assumed or not
    converted.
    """
    parameters, constants = _parameters(raw["parameters"])
    converted = Converted({})
    named = raw.get("metric")
    metric: Mapping[str, Any] = named if isinstance(named, Mapping) else {}
    goal = str(metric.get("goal", "minimize"))
    if "name" not in metric:
        converted.notes.append("The file names no metric; replace loss by the result to optimise.")
    method = str(raw.get("method", "random"))
    converted.keys = {
        "name": name,
        "trials": _trials(raw, parameters, method),
        "trainable": "command",
        "metric": str(metric.get("name", "loss")),
        "mode": _GOALS.get(goal, "min"),
        "config": {**_command(raw, str(metric.get("name", "loss")), converted.notes), **constants},
        "space": parameters,
        "searcher": _SEARCHERS.get(method, "tpe"),
    }
    if early := _early_termination(raw.get("early_terminate"), converted.notes):
        converted.keys["scheduler"] = early
    if isinstance(metric.get("target"), int | float):
        converted.keys["budget"] = {"target": metric["target"]}
    known = {
        *_IGNORED_KEYS,
        "parameters",
        "metric",
        "method",
        "command",
        "run_cap",
        "early_terminate",
    }
    if left := [str(key) for key in raw if key not in known]:
        converted.notes.append(f"Not converted: {', '.join(left)}.")
    return converted


def _parameters(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split W&B's ``parameters`` into those to search, in W&B's format, and name → constant."""
    searched, constants = {}, {}
    for name, given in raw.items():
        fixed = isinstance(given, Mapping) and "value" in given
        if fixed and given.keys() <= {"value", "distribution"}:
            constants[str(name)] = given["value"]
        elif isinstance(given, Mapping):
            searched[str(name)] = dict(given)
        else:
            constants[str(name)] = given
    return searched, constants


def _trials(raw: Mapping[str, Any], parameters: Mapping[str, Any], method: str) -> int:
    """Return the number of trials for a W&B sweep: `run_cap`, the size of the grid, or `TRIALS`.

    The size counts if `method` is ``grid``, with `TRIALS` values for a range, at most `MOST_TRIALS`
    in all. `parameters` are the searched ones.
    """
    cap = raw.get("run_cap")
    if isinstance(cap, int) and cap > 0:
        return cap
    if method != "grid":
        return TRIALS
    lists = (one.get("values") for one in parameters.values())
    sizes = (len(values) if isinstance(values, list) else TRIALS for values in lists)
    return min(math.prod(sizes), MOST_TRIALS)


def _command(raw: Mapping[str, Any], metric: str, notes: list[str]) -> dict[str, Any]:
    """Return the ``config`` of the trainable `command`: its program, and the form of its settings.

    The program is ``command``, a list of words. There is also ``booleans: flag`` or ``settings:
    stdin`` if the file wants settings in this form. Remarks for the user are appended to `notes`;
    `metric` is the result's name in one of them.
    """
    program = str(raw.get("program", "train.py"))
    interpreter = "python" if shutil.which("python") else "python3"
    given = raw.get("command") or ["${interpreter}", "${program}", "${args}"]
    words: list[str] = []
    form: dict[str, Any] = {}
    for word in map(str, given if isinstance(given, list) else [given]):
        if word == "${interpreter}":
            words.append(interpreter)
        elif word == "${program}":
            words.append(program)
        elif word == "${args_no_boolean_flags}":
            form["booleans"] = "flag"
        elif word in ("${args_json}", "${args_json_file}", "${args_no_hyphens}"):
            form["settings"] = "stdin"
            notes.append(f"In place of {word} the settings come as one line of JSON on stdin.")
        elif word not in ("${env}", "${args}", "/usr/bin/env"):
            words.append(word)
    notes.append(
        f"Each line of JSON that the program prints is a result; in Python: "
        f'print(json.dumps({{"{metric}": ...}}), flush=True)'
    )
    return {"command": words, **form}


def _early_termination(raw: Any, notes: list[str]) -> dict[str, Any] | None:
    """Return the key ``scheduler``, ASHA, for W&B's ``early_terminate``; None without a conversion.

    Remarks for the user are appended to `notes`.
    """
    if raw is None:
        return None
    given = raw if isinstance(raw, Mapping) else {}
    counts = {**_HYPERBAND, **{key: given[key] for key in _HYPERBAND if key in given}}
    if given.get("type") != "hyperband" or not all(map(_is_count, counts.values())):
        notes.append(f"Not converted: early_terminate {shorten(raw)}.")
        return None
    eta = counts["eta"]
    if "max_iter" in given:
        longest = counts["max_iter"]
        first = max(1, round(longest / eta ** min(counts["s"], 30)))  # 2 ** 30 > _MOST_COUNT
    else:
        first = counts["min_iter"]
        longest = first * eta**5
        notes.append(f"A trial ends after {longest} results, its last rung (scheduler.max_t).")
    return {
        "name": "asha",
        "type": "stopping",
        "grace_period": first,
        "max_t": longest,
        "reduction_factor": eta,
    }


def _is_count(value: object) -> bool:
    """Return whether a value is a whole number from 1 to `_MOST_COUNT`."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_COUNT
