"""How a flat dict of settings becomes a frozen, typed model, and every mistake a ConfigError.

Each part of a trainer declares a `Section` beside the code that reads it. People write one flat
dict with the classic names (``lr``, ``num_workers``); `parse` finds the section of each key. Only
`Settings` that are no sections nest, under their own key: ``model: {hidden: [64, 64]}``.
"""

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trainables.core import legacy_names
from trainables.errors import ConfigError


class Settings(BaseModel):
    """Settings that never change once made; unknown keys and silent conversions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


#: Longest time that a process may be waited for, seconds: more is no number for the kernel.
LONGEST_WAIT_S = 1e6


class Section(Settings):
    """Settings of one part whose keys stand flat among those of all others."""


C = TypeVar("C", bound=Settings)


def parse(model: type[C], flat: Mapping[str, Any]) -> C:
    """`flat` as an instance of `model`, each key in its section; ConfigError for a mistake."""
    sections = _sections(model)
    owners = {key: name for name, section in sections.items() for key in section.model_fields}
    grouped: dict[str, Any] = {name: _preset(model, name) for name in sections}
    for key, given in flat.items():
        value = _plain(given)
        section = owners.get(key)
        if section is not None:
            grouped[section][key] = value
        elif key in model.model_fields and key not in sections:
            grouped[key] = value
        else:
            hint = legacy_names.answer(str(key), known_keys(model))
            raise ConfigError(str(key), value, "a key that this trainer knows", hint)
    try:
        return model.model_validate(grouped)
    except ValidationError as error:
        raise _translated(model, error.errors()) from None


def flatten(settings: Settings) -> dict[str, Any]:
    """The flat dict from which `parse` makes equal settings; every key is in it."""
    sections = _sections(type(settings))
    flat = {key: value for key, value in settings if key not in sections}
    for name in sections:
        flat.update(dict(getattr(settings, name)))
    return flat


class SettingsView(Mapping[str, Any]):
    """Settings as people write them, flat, with every default: to read by key or by attribute.

    ``view["model"]["hidden"]`` is ``view.model.hidden``. It never changes; a deep copy is a plain
    dict, which one may change and make another trainer from.
    """

    __slots__ = ("_flat", "_place")

    def __init__(self, flat: Mapping[str, Any], place: str = "config") -> None:
        object.__setattr__(self, "_flat", dict(flat))
        object.__setattr__(self, "_place", place)

    def __getitem__(self, key: str) -> Any:
        if key not in self._flat:
            raise KeyError(f"{self._place} has no key {key!r}{self._hint(key)}")
        return self._shown(key, self._flat[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._flat)

    def __len__(self) -> int:
        return len(self._flat)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _CHANGING:
            raise self._refusal(name, "a call")
        if name not in self._flat:
            raise AttributeError(f"{self._place} has no key {name!r}{self._hint(name)}")
        return self._shown(name, self._flat[name])

    def __setattr__(self, name: str, value: Any) -> None:
        raise self._refusal(name, value)

    def __delattr__(self, name: str) -> None:
        raise self._refusal(name, "del")

    __setitem__ = __setattr__
    __delitem__ = __delattr__

    def __repr__(self) -> str:
        return repr(self.plain())

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return self.plain()

    def __reduce__(self) -> tuple[Any, ...]:
        return SettingsView, (self._flat, self._place)

    def plain(self) -> dict[str, Any]:
        """All of it as a plain dict, which one may change."""
        return {
            key: value.plain() if isinstance(value, SettingsView) else copy.deepcopy(value)
            for key, value in self.items()
        }

    def _shown(self, key: str, value: Any) -> Any:
        if isinstance(value, Settings):
            value = flatten(value)
        if isinstance(value, Mapping):
            return SettingsView(value, f"{self._place}.{key}")
        return list(value) if isinstance(value, list) else value

    def _hint(self, key: str) -> str:
        hint = legacy_names.answer(key, list(self._flat)) if isinstance(key, str) else ""
        return f"; {hint}" if hint else ""

    def _refusal(self, key: str, value: Any) -> ConfigError:
        return ConfigError(
            f"{self._place}.{key}",
            value,
            "nothing: the settings of a trainer never change",
            "make another trainer with trainer.raw_user_config and what shall be different",
        )


#: What would change a dict.
_CHANGING = frozenset({"update", "pop", "popitem", "clear", "setdefault"})


def defaults(model: type[Settings]) -> dict[str, Any]:
    """Flat key → default, as plain data; keys without a default are absent."""
    sections = _sections(model)
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in sections:
            found.update({**defaults(sections[name]), **_preset(model, name)})
        elif not field.is_required():
            value = field.get_default(call_default_factory=True, validated_data={})
            found[name] = value.model_dump() if isinstance(value, BaseModel) else value
    return found


def override(settings: C, changes: Mapping[str, Any], place: str) -> C:
    """`settings` with other values for some keys; errors name them under `place`."""
    try:
        return parse(type(settings), {**flatten(settings), **changes})
    except ConfigError as error:
        where = f"{place}.{error.place}"
        raise ConfigError(where, error.value, error.allowed, error.hint) from None


def known_keys(model: type[Settings]) -> list[str]:
    """Every key that the flat dict may hold, sorted."""
    return sorted(_fields(model))


def _fields(model: type[Settings]) -> dict[str, FieldInfo]:
    """Flat key → its field."""
    sections = _sections(model)
    fields = {key: field for key, field in model.model_fields.items() if key not in sections}
    for section in sections.values():
        fields.update(section.model_fields)
    return fields


@functools.cache
def _sections(model: type[Settings]) -> dict[str, type[Section]]:
    return {
        name: kind
        for name, field in model.model_fields.items()
        if isinstance(kind := field.annotation, type) and issubclass(kind, Section)
    }


def _preset(model: type[Settings], section: str) -> dict[str, Any]:
    """What `model` presets in a section, where it differs from the section's own defaults."""
    preset = model.model_fields[section].default
    if not isinstance(preset, Section):
        return {}
    return {key: getattr(preset, key) for key in preset.model_fields_set}


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's, however deep they stand: they are what people compute with."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(one) for one in value)
    return value


def _translated(model: type[Settings], errors: Sequence[ErrorDetails]) -> ConfigError:
    """The first error, by the user's path: no section names, dots between the parts.

    Where several types are accepted there is an error for each; they become one message.
    """
    first = errors[0]
    path = _place(model, first)
    place = ".".join(path)
    if first["type"] == "extra_forbidden":
        hint = legacy_names.answer(place, _nested_keys(model, path[:-1]))
        return ConfigError(place, first["input"], "a key that this section knows", hint)
    if first["type"] == "missing":
        return ConfigError(place, None, "a value", "it has no default")
    texts = [one["msg"] for one in errors if _place(model, one) == path]
    allowed = [t.removeprefix("Input should be ").removeprefix("Value error, ") for t in texts]
    hint = legacy_names.value_answer(place, first["input"])
    return ConfigError(place, first["input"], " or ".join(dict.fromkeys(allowed)), hint)


def _place(model: type[Settings], error: ErrorDetails) -> list[str]:
    """The parts of the user's place, without the section and the names of a union's branches."""
    path = list(error["loc"])
    if path and path[0] in _sections(model):
        path = path[1:]
    if error["type"] == "extra_forbidden":
        return [str(part) for part in path]
    kept: list[str] = []
    for part in path:
        known = isinstance(part, int) or not kept or part in _nested_keys(model, kept)
        if known or _is_mapping(model, kept):
            kept.append(str(part))
    return kept


def _is_mapping(model: type[Settings], path: list[str]) -> bool:
    """Whether what stands at `path` is an open mapping, whose keys are the user's own."""
    field = _fields(model).get(path[0]) if len(path) == 1 else None
    return field is not None and get_origin(field.annotation) is dict


def _nested_keys(model: type[Settings], path: list[str]) -> list[str]:
    found = _fields(model)
    for part in path:
        kind = found[part].annotation if part in found else None
        if not (isinstance(kind, type) and issubclass(kind, Settings)):
            return []
        found = kind.model_fields
    return sorted(found)
