"""How a flat dict of settings becomes a frozen, typed model, and every mistake a ConfigError.

Each part of a trainer declares a `Section` beside the code that reads it. People write one flat
dict with the classic names (``lr``, ``num_workers``); `parse` finds the section of each key. Only
`Settings` that are no sections nest, under their own key: ``model: {hidden: [64, 64]}``.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from trainables.errors import ConfigError, nearest

RESERVED_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "callbacks",
            "collect_metrics_timeout",
            "compress_observations",
            "custom_resources_per_worker",
            "extra_python_environs",
            "fake_sampler",
            "horizon",
            "input",
            "input_evaluation",
            "log_level",
            "log_sys_usage",
            "memory",
            "memory_per_worker",
            "min_iter_time_s",
            "monitor",
            "multiagent",
            "no_done_at_end",
            "num_gpus",
            "num_gpus_per_worker",
            "observation_fn",
            "optimizer",
            "output",
            "output_compress_columns",
            "output_max_file_size",
            "postprocess_inputs",
            "preprocessor_pref",
            "remote_env_batch_wait_ms",
            "remote_worker_envs",
            "sample_async",
            "shuffle_buffer_size",
            "soft_horizon",
            "timesteps_per_iteration",
        ),
        "this version has no such feature; remove the key",
    ),
    **dict.fromkeys(
        ("eager", "eager_tracing", "no_eager_on_workers", "tf_session_args"),
        "it switches TensorFlow and everything here runs on torch; remove the key",
    ),
    "object_store_memory": "there is no object store; remove the key",
    "sample_batch_size": "its name is rollout_fragment_length",
    "lambda": "its name is lambda_",
    "batch_steps": "its name is rollout_fragment_length",
    "gpu": "remove the key: training runs on CPUs",
}
"""Names that people know from other trainers, and what to do instead."""

RENAMED_VALUES: Mapping[tuple[str, object], str] = {
    ("batch_mode", "pack_episodes"): "its name is truncate_episodes",
}
"""Values, by their key, that people know from other trainers, and what to do instead."""


class Settings(BaseModel):
    """Settings that never change once made; unknown keys and silent conversions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Section(Settings):
    """Settings of one part whose keys stand flat among those of all others."""


C = TypeVar("C", bound=Settings)


def parse(model: type[C], flat: Mapping[str, Any]) -> C:
    """`flat` as an instance of `model`, each key in its section.

    Raises:
        ConfigError: for the first mistake: an unknown key, a wrong type, a value out of range.
    """
    owners = section_of_key(model)
    grouped: dict[str, Any] = {name: _preset(model, name) for name in _sections(model)}
    for key, value in flat.items():
        section = owners.get(key)
        if section is not None:
            grouped[section][key] = value
        elif key in model.model_fields and key not in _sections(model):
            grouped[key] = value
        else:
            raise _unknown_key(key, value, known_keys(model))
    try:
        return model.model_validate(grouped)
    except ValidationError as error:
        raise _translated(model, error.errors()[0]) from None


def known_keys(model: type[Settings]) -> list[str]:
    """Every key that the flat dict may hold, sorted."""
    sections = _sections(model)
    return sorted([*section_of_key(model), *(k for k in model.model_fields if k not in sections)])


def section_of_key(model: type[Settings]) -> dict[str, str]:
    """Flat key → name of the field of `model` that holds its section."""
    return {key: name for name, section in _sections(model).items() for key in section.model_fields}


def _sections(model: type[Settings]) -> dict[str, type[Section]]:
    fields = {name: field.annotation for name, field in model.model_fields.items()}
    return {
        name: kind
        for name, kind in fields.items()
        if isinstance(kind, type) and issubclass(kind, Section)
    }


def _preset(model: type[Settings], section: str) -> dict[str, Any]:
    """What `model` presets in a section, where it differs from the section's own defaults."""
    preset = model.model_fields[section].default
    if not isinstance(preset, Section):
        return {}
    return {key: getattr(preset, key) for key in preset.model_fields_set}


def _unknown_key(key: object, value: object, known: list[str]) -> ConfigError:
    name = str(key)
    if name in RESERVED_KEYS:
        return ConfigError(name, value, "no such key", RESERVED_KEYS[name])
    hint = nearest(name, known).removeprefix("; ")
    return ConfigError(name, value, "a key that this trainer knows", hint or ", ".join(known))


def _translated(model: type[Settings], error: ErrorDetails) -> ConfigError:
    """The validation error with the user's place: no section names, dots between the parts."""
    path = list(error["loc"])
    if path and path[0] in _sections(model):
        path = path[1:]
    place = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        known = _nested_keys(model, [str(part) for part in path[:-1]])
        hint = nearest(path[-1], known).removeprefix("; ") or ", ".join(known)
        return ConfigError(place, error["input"], "a key that this section knows", hint)
    if error["type"] == "missing":
        return ConfigError(place, None, "a value", "it has no default")
    allowed = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return ConfigError(place, error["input"], allowed, _renamed(place, error["input"]))


def _renamed(place: str, value: object) -> str:
    return RENAMED_VALUES.get((place, value), "") if isinstance(value, str) else ""


def _nested_keys(model: type[Settings], path: list[str]) -> list[str]:
    found: dict[str, Any] = dict(model.model_fields)
    for section in _sections(model).values():
        found.update(section.model_fields)
    for part in path:
        kind = found[part].annotation if part in found else None
        found = (
            dict(kind.model_fields) if isinstance(kind, type) and issubclass(kind, Settings) else {}
        )
    return sorted(found)
