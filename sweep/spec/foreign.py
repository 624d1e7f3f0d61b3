"""Files of other tools, recognised when given as a spec.

A sweep of W&B has `parameters` together with `method` or `program`; hyperparameters of
rl-baselines3-zoo are a mapping of environments, each with `n_timesteps`, or one of algorithms to
such mappings. They are not accepted as specs: `sweep init --from FILE` converts them.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal

from sweep.core.errors import BadConfig, UsageError
from sweep.spec import yaml_source

#: Program whose file is converted: Weights & Biases, or RL Baselines3 Zoo.
Kind = Literal["wandb", "zoo"]
#: Name of each kind of file in messages.
CALLED: Mapping[Kind, str] = {
    "wandb": "a sweep of W&B",
    "zoo": "a file of hyperparameters of rl-baselines3-zoo",
}
#: Pattern of a line that only files of other tools have.
_FOREIGN_PATTERN = re.compile(r"^(parameters|\s+n_timesteps)\s*:", re.MULTILINE)
#: Pattern of a line that only specs have.
_SPEC_PATTERN = re.compile(r"^(trainable|space)\s*:", re.MULTILINE)


def refuse(text: str, file: str) -> None:
    """Raise UsageError, with the command that converts it, if `text` is a file of another tool.

    Nothing is raised if `file` is empty, the text cannot be read, or a line begins with a spec's
    ``trainable:`` or ``space:``.
    """
    if not file or not _FOREIGN_PATTERN.search(text) or _SPEC_PATTERN.search(text):
        return
    try:
        kind = kind_of(read(text, file))
    except BadConfig:
        return
    if kind is not None:
        raise UsageError(
            f"{file}: is {CALLED[kind]}; `sweep init --from {shlex.quote(file)} FOLDER` "
            f"converts it "
            f"to a spec"
        )


def kind_of(raw: Any) -> Kind | None:
    """Return ``wandb`` or ``zoo`` for the tool whose file has this content; None for no tool.

    W&B's is a mapping with the mapping ``parameters`` and one of ``method``, ``program``,
    ``command``. The zoo's satisfies `is_zoo`, or each of its values does.
    """
    if not isinstance(raw, Mapping) or not raw:
        return None
    if isinstance(raw.get("parameters"), Mapping) and raw.keys() & {"method", "program", "command"}:
        return "wandb"
    if is_zoo(raw) or all(map(is_zoo, raw.values())):
        return "zoo"
    return None


def is_zoo(raw: Any) -> bool:
    """Return whether data maps environments to hyperparameters, as a file of rl-baselines3-zoo.

    All values must be mappings, and at least one must have ``n_timesteps``.
    """
    if not isinstance(raw, Mapping) or not all(isinstance(one, Mapping) for one in raw.values()):
        return False
    return any("n_timesteps" in one for one in raw.values())


def read(text: str, file: str) -> Any:
    """Return the content of another tool's YAML file; anchors, merge keys and tags are allowed.

    Raises BadConfig if it cannot be read, or is larger or nested deeper than a spec may be.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if len(text) > yaml_source.LARGEST_FILE:
        allowed = f"at most {yaml_source.LARGEST_FILE} characters"
        found = f"{len(text)} characters"
        raise BadConfig(file, found, allowed, problem=f"the file has {found}")
    try:
        raw = YAML(typ="safe", pure=True).load(text)
        _count(raw, 0, yaml_source.MOST_NODES)
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise BadConfig(file, reason, problem=f"cannot be read as YAML: {reason}") from error
    return raw


def _count(value: Any, depth: int, allowance: int) -> int:
    """Count the nodes of nested data, and return what is left of `allowance`, a number of nodes.

    Raises ValueError if there are too many, or they nest too deep; `depth` is that of `value`.
    """
    if allowance <= 0 or depth > yaml_source.DEEPEST:
        raise ValueError(f"more than {yaml_source.MOST_NODES} keys and values")
    allowance -= 1
    if isinstance(value, Mapping):
        for inner in value.values():
            allowance = _count(inner, depth + 1, allowance)
    elif isinstance(value, list):
        for inner in value:
            allowance = _count(inner, depth + 1, allowance)
    return allowance
