"""Settings: a flat dict becomes a frozen, typed model, and every mistake a ConfigError.

Each part of a trainer declares a `Section` beside the code that reads it. People write one flat
dict with the classic names (``lr``, ``num_workers``); `parse` finds the section of each key. Only
`Settings` that are no sections nest, under their own key: ``model: {hidden: [64, 64]}``.
"""

import copy
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trainables.core import legacy_names
from trainables.errors import ConfigError, ConfigErrors, nearest


class Settings(BaseModel):
    """Settings that never change once made; unknown keys and silent conversions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


#: Longest time that a process may be waited for, seconds: more is no number for the kernel.
LONGEST_WAIT_S = 1e6


class Section(Settings):
    """Settings of one part whose keys stand flat among those of all others."""


C = TypeVar("C", bound=Settings)
KeyPath = tuple[str | int, ...]


def parse(model: type[C], flat: Mapping[str, Any]) -> C:
    """`flat` as an instance of `model`, each key in its section; ConfigError for mistakes."""
    sections = _sections(model)
    owners = {key: name for name, section in sections.items() for key in section.model_fields}
    grouped: dict[str, Any] = {name: _preset(model, name) for name in sections}
    wrong: list[ConfigError] = []
    for key, given in flat.items():
        value = _plain(given)
        section = owners.get(key)
        if section is not None:
            grouped[section][key] = value
        elif key in model.model_fields and key not in sections:
            grouped[key] = value
        else:
            hint = legacy_names.answer(str(key), known_keys(model))
            wrong.append(ConfigError(str(key), value, "a key that this trainer knows", hint))
    try:
        made = model.model_validate(grouped)
    except ValidationError as error:
        wrong += [_refusal(found, model) for found in Mistake.all_of(error, model, grouped)]
    if wrong:
        raise wrong[0] if len(wrong) == 1 else ConfigErrors(wrong)
    return made


def flatten(settings: Settings) -> dict[str, Any]:
    """The flat dict from which `parse` makes equal settings; every key is in it."""
    sections = _sections(type(settings))
    flat = {key: value for key, value in vars(settings).items() if key not in sections}
    for name in sections:
        flat.update(vars(getattr(settings, name)))
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
    if not changes:
        return settings
    try:
        return parse(type(settings), {**flatten(settings), **changes})
    except ConfigError as error:
        raise error.below(place) from None


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
    """Return the presets of `model` in a section that differ from the section's own defaults."""
    preset = model.model_fields[section].default
    if not isinstance(preset, Section):
        return {}
    return {key: getattr(preset, key) for key in preset.model_fields_set}


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's, however deep they stand: they are what people compute with."""
    numpy = sys.modules.get("numpy")  # without it there is none of its numbers
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(one) for one in value)
    return value


def _refusal(mistake: "Mistake", model: type[Settings]) -> ConfigError:
    """A mistake at the person's place: no section names, dots between the parts."""
    in_section = mistake.path and mistake.path[0] in _sections(model)
    place = ".".join(str(part) for part in mistake.path[1 if in_section else 0 :])
    if mistake.kind == "unknown key":
        hint = legacy_names.answer(place, sorted(mistake.known))
        return ConfigError(place, mistake.value, "a key that this section knows", hint)
    if mistake.kind == "missing key":
        return ConfigError(place, None, "a value", "it has no default")
    hint = legacy_names.value_answer(place, mistake.value) or mistake.hint
    return ConfigError(place, mistake.value, mistake.allowed, hint.removeprefix("; "))


# -------------------------------------------------------------------------------------------------
# What is wrong with plain data, in the words of the person who wrote it.


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A mistake that a model finds in plain data."""

    path: KeyPath
    """The place in the data, without the names of a union's branches."""
    value: object
    kind: Literal["unknown key", "missing key", "value"]
    allowed: str = ""
    """The values that would be accepted instead."""
    hint: str = ""
    around: type[BaseModel] | None = None
    """The model in which the key stands, if it is known."""
    cause: BaseException | None = None
    """The exception of the validator of the value, if that was one of ours."""

    @classmethod
    def all_of(cls, error: ValidationError, model: type[BaseModel], raw: object) -> "list[Mistake]":
        """The mistakes that `error` reports, one for each place; an unknown key goes before others.

        `raw` is what `model` was to be made from.
        """
        found = error.errors(include_url=False)
        found.sort(key=lambda one: one["type"] != "extra_forbidden")
        by_path: dict[KeyPath, list[ErrorDetails]] = {}
        for one in found:
            by_path.setdefault(_path(one, raw), []).append(one)
        return [cls._at(path, details, model) for path, details in by_path.items()]

    @classmethod
    def _at(cls, path: KeyPath, details: list[ErrorDetails], model: type[BaseModel]) -> "Mistake":
        first = details[0]
        about = {"path": path, "value": first["input"], "around": _model_at(model, path[:-1])}
        if first["type"] == "extra_forbidden":
            return cls(kind="unknown key", **about)
        if first["type"] == "missing":
            return cls(kind="missing key", **about)
        texts = dict.fromkeys(map(_allowed, details))
        cause = first.get("ctx", {}).get("error")
        return cls(
            kind="value", allowed=" or ".join(texts), hint=_hint(first), cause=cause, **about
        )

    @property
    def known(self) -> list[str]:
        """The keys that may stand where this one does."""
        return list(self.around.model_fields) if self.around is not None else []


def _path(detail: ErrorDetails, raw: Any) -> KeyPath:
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
        annotation = found.model_fields[str(part)].annotation
        found = next(filter(_is_model, (annotation, *get_args(annotation))), None)
    return found


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


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
