"""Plain data checked by pydantic models, each mistake answered as one `BadConfig`.

A validator of ours raises ``ValueError`` with the text of what is allowed.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sweep.errors import BadConfig, KeyPath, Source
from trainables.core.settings import Mistake
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
    """The model of `raw`; BadConfig if that is something else.

    `source` is seen from where `raw` stands, and is the context of the model's validators, too.
    """
    try:
        return model.model_validate(raw, context={"source": source})
    except ValidationError as error:
        raise _refusal(Mistake.of(error, model, raw), source) from None


def _refusal(mistake: Mistake, source: Source) -> BadConfig:
    path = mistake.path
    if mistake.kind == "unknown key":
        return _unknown_key(path, mistake.known, source)
    if mistake.kind == "missing key":
        return source.refuse(path, None, _meaning(mistake.around, path), problem="is missing")
    return source.refuse(path, mistake.value, mistake.allowed, mistake.hint)


def _unknown_key(path: KeyPath, known: Sequence[str], source: Source) -> BadConfig:
    key = str(path[-1])
    ours = _ELSEWHERE.get(key)
    hint = f"here it is called '{ours}'" if ours in known else nearest(key, known)
    allowed = f"one of {', '.join(known)}"
    return source.refuse(path, key, allowed, hint, problem=f"{shorten(key)} is not a known key")


def _meaning(around: type[BaseModel] | None, path: KeyPath) -> str:
    field = around.model_fields.get(str(path[-1])) if around is not None and path else None
    if field is None or not field.description:
        return "a value"
    return field.description[0].lower() + field.description[1:].rstrip(".")
