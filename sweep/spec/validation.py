"""Plain data checked by pydantic models, each mistake answered as one `BadConfig`.

A validator of ours raises ``ValueError`` with the text of what is allowed.
"""

import re
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sweep.errors import BadConfig, KeyPath, Source
from trainables.errors import nearest, shorten

M = TypeVar("M", bound=BaseModel)

#: What other tools call our keys.
_ELSEWHERE = {
    "num_samples": "trials",
    "n_trials": "trials",
    "run_cap": "trials",
    "direction": "mode",
    "goal": "mode",
    "objective": "metric",
    "search_alg": "searcher",
    "sampler": "searcher",
    "method": "searcher",
    "pruner": "scheduler",
    "early_terminate": "scheduler",
    "param_space": "space",
    "parameters": "space",
    "search_space": "space",
    "params": "space",
    "resources_per_trial": "resources",
    "checkpoint_config": "checkpoint",
    "failure_config": "limits",
    "num_to_keep": "keep_last",
    "checkpoint_frequency": "every",
    "points_to_evaluate": "initial",
    "enqueue": "initial",
    "forbidden": "forbid",
    "also": "objectives",
}


def validate(model: type[M], raw: Any, source: Source) -> M:
    """The model of `raw`.

    Args:
        model: what is expected.
        raw: plain data.
        source: seen from where `raw` stands; also the context of the model's validators.

    Raises:
        BadConfig: `raw` is not what `model` expects.
    """
    try:
        return model.model_validate(raw, context={"source": source})
    except ValidationError as error:
        raise _refusal(error, model, raw, source) from None


def _refusal(error: ValidationError, model: type[BaseModel], raw: Any, source: Source) -> BadConfig:
    found = error.errors(include_url=False)
    unknown = [detail for detail in found if detail["type"] == "extra_forbidden"]
    first = (unknown or found)[0]
    path = _path(first, raw)
    around = model if len(path) < 2 else _model_at(model, path[:-1])
    if first["type"] == "extra_forbidden":
        return _unknown_key(path, around, source)
    if first["type"] == "missing":
        return source.refuse(path, None, _meaning(around, path), problem="is missing")
    texts = [_allowed(detail) for detail in found if _path(detail, raw) == path]
    value = first["input"]
    return source.refuse(path, value, " or ".join(dict.fromkeys(texts)), _hint(first))


def _path(detail: ErrorDetails, raw: Any) -> KeyPath:
    """Where the mistake is: pydantic's path without the names of a union's branches."""
    path: KeyPath = ()
    inner = raw
    for part in detail["loc"]:
        if _has(inner, part):
            inner = inner[part]
        elif not (detail["type"] == "missing" and part == detail["loc"][-1]):
            continue
        path = (*path, part)
    return path


def _has(container: Any, part: str | int) -> bool:
    if isinstance(part, int):
        return isinstance(container, list | tuple) and part < len(container)
    return isinstance(container, Mapping) and part in container


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """The model that stands at `path` below `model`."""
    found: type[BaseModel] | None = model
    for part in path:
        if found is None or part not in found.model_fields:
            return None
        found = _model_in(found.model_fields[str(part)].annotation)
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation such as ``Limits | None``."""
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _unknown_key(path: KeyPath, around: type[BaseModel] | None, source: Source) -> BadConfig:
    key = str(path[-1])
    known = list(around.model_fields) if around is not None else []
    ours = _ELSEWHERE.get(key)
    hint = f"here it is called '{ours}'" if ours in known else nearest(key, known)
    allowed = f"one of {', '.join(known)}"
    return source.refuse(path, key, allowed, hint, problem=f"{shorten(key)} is not a known key")


def _meaning(around: type[BaseModel] | None, path: KeyPath) -> str:
    field = around.model_fields.get(str(path[-1])) if around is not None and path else None
    if field is None or not field.description:
        return "a value"
    return field.description[0].lower() + field.description[1:].rstrip(".")


def _allowed(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] in ("model_type", "dict_type"):
        return "a mapping, key: value"
    text = re.sub(r"^(Input|Value|String|List|Tuple) should (be|have) ", "", detail["msg"])
    return f"a value {text}" if text.startswith(("greater", "less")) else text


def _hint(detail: ErrorDetails) -> str:
    value = detail["input"]
    if detail["type"] == "literal_error":
        return nearest(value, re.findall(r"'([^']*)'", detail["ctx"]["expected"]))
    if detail["type"] in ("int_type", "float_type") and isinstance(value, str):
        return "a number is written without quotes"
    if detail["type"] == "string_type" and not isinstance(value, list | dict | None):
        return f"text is quoted: '{value}'"
    return ""
