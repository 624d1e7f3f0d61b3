"""Plain data checked by pydantic models; all mistakes are raised together as `BadConfig`.

A validator of ours raises ``ValueError`` with the text of what is allowed, or, if it is wrapped by
`refusing`, a `BadConfig` that says where in its value the mistake is.
"""

import difflib
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sweep.core.errors import BadConfig, Gathering, KeyPath, Source
from trainables.core.settings import Mistake
from trainables.errors import nearest, shorten

M = TypeVar("M", bound=BaseModel)

#: Other tools' names of our keys → our names.
_OTHER_NAMES = {
    "num_samples": "trials",
    "n_trials": "trials",
    "run_cap": "trials",
    "replicas": "seeds",
    "repeat": "seeds",
    "n_seeds": "seeds",
    "racing": "seeds",
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
}


class _Refused(ValueError):
    """A BadConfig in the form of a ValueError, so that pydantic continues with the other fields."""

    def __init__(self, error: BadConfig) -> None:
        super().__init__(str(error))
        self.error = error


def refusing(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pydantic validator that calls `read`, which may raise BadConfig.

    The error is passed to pydantic as a ValueError, so that other fields are checked still.
    """

    @functools.wraps(read)
    def reading(*arguments: Any) -> Any:
        """Call `read`; raise its BadConfig as an error that pydantic passes on."""
        try:
            return read(*arguments)
        except BadConfig as error:
            raise _Refused(error) from error

    return reading


def validate(model: type[M], raw: Any, source: Source, refused: Collection[str] = ()) -> M:
    """Check the plain data `raw` by a pydantic model, and return an instance of the model.

    `source` has the line of each key for messages; `refused` are keys that were removed from `raw`.
    The model's validators get both as the context ``{"source": …, "refused": …}``. Raises BadConfig
    with all mistakes.
    """
    try:
        return model.model_validate(raw, context={"source": source, "refused": refused})
    except ValidationError as error:
        found = Gathering()
        _gather(Mistake.all_of(error, model, raw), source, found)
        found.check()
        raise


def _gather(mistakes: Sequence[Mistake], source: Source, gathering: Gathering) -> None:
    """Add a BadConfig for each of pydantic's mistakes to `gathering`, with its top-level key.

    A missing key is left out if an unknown key seems to mean it.
    """
    meant = {meant for mistake in mistakes if (meant := _meant_path(mistake)) is not None}
    for mistake in mistakes:
        if mistake.kind == "missing key" and mistake.path in meant:
            continue  # it is there under another name
        key = str((*source.prefix, *mistake.path, "")[0])
        gathering.add(_refusal(mistake, source), key)


def _refusal(mistake: Mistake, source: Source) -> BadConfig:
    """Return the BadConfig for one of pydantic's mistakes.

    If a `refusing` validator raised one, that is returned.
    """
    path = mistake.path
    if isinstance(mistake.cause, _Refused):
        return mistake.cause.error
    if mistake.kind == "unknown key":
        return _unknown_key(path, mistake.allowed_keys, source)
    if mistake.kind == "missing key":
        hint = f"add this key: {_meaning(mistake.model, path)}"
        return source.refuse(path, None, hint=hint, problem="is missing")
    return source.refuse(
        path, mistake.value, mistake.allowed, mistake.hint, problem=mistake.problem
    )


def _meant_path(mistake: Mistake) -> KeyPath | None:
    """Return the path of the known key that an unknown key seems to mean.

    It is the key to which another tool's name for the setting corresponds, else the most similar
    key. Returns None if no key is similar, or if the mistake is not an unknown key.
    """
    if mistake.kind != "unknown key":
        return None
    key, known = str(mistake.path[-1]), mistake.allowed_keys
    ours = _OTHER_NAMES.get(key, "")
    close = [ours] if ours in known else difflib.get_close_matches(key, known, n=1)
    return (*mistake.path[:-1], *close) if close else None


def _unknown_key(path: KeyPath, known_keys: Sequence[str], source: Source) -> BadConfig:
    """Return the BadConfig for an unknown key at `path`.

    It suggests the one of `known_keys` that means what the key does in another tool, else the most
    similar one.
    """
    key = str(path[-1])
    ours = _OTHER_NAMES.get(key)
    hint = f"sweep calls it '{ours}'" if ours in known_keys else nearest(key, known_keys)
    allowed = f"one of {', '.join(known_keys)}"
    return source.refuse(path, key, allowed, hint, problem=f"{shorten(key)} is not a known key")


def _meaning(model: type[BaseModel] | None, path: KeyPath) -> str:
    """Return the description of the key at `path` in its model, as a part of a sentence.

    It begins with a small letter and has no period at the end. Without a description it is ``a
    value``.
    """
    field = model.model_fields.get(str(path[-1])) if model is not None and path else None
    if field is None or not field.description:
        return "a value"
    return field.description[0].lower() + field.description[1:].rstrip(".")
