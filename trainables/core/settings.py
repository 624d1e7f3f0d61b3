"""Settings: `parse` turns a flat dict into a frozen, typed model, and mistakes into ConfigErrors.

Each part of a trainer declares a `Section` beside the code that reads it. Users write one flat dict
with the classic names (``lr``, ``num_workers``); `parse` finds the section of each key. Only
`Settings` that are not sections are nested under their own key: ``model: {hidden: [64, 64]}``.
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
from trainables.errors import ConfigError, ConfigErrors, describe_mistake, nearest


class Settings(BaseModel):
    """Immutable settings that refuse unknown keys, type conversions, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


#: Longest timeout that a setting may have, seconds; the kernel refuses much larger ones.
LONGEST_WAIT_S = 1e6


class Section(Settings):
    """Settings of one part of a trainer, whose keys users write at the top level."""


C = TypeVar("C", bound=Settings)
#: Keys and indices that lead to a setting.
KeyPath = tuple[str | int, ...]


def parse(model: type[C], flat: Mapping[str, Any]) -> C:
    """Make settings of class `model` from a flat dict, which has the keys of all sections together.

    Raises:
        ConfigError: a key is unknown or missing, or a value is refused.
        ConfigErrors: several of them are.
    """
    sections = sections_of(model)
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
            hint = legacy_names.unknown_key_advice(str(key), known_keys(model))
            unknown = "is not a setting of this trainer"
            wrong.append(ConfigError(str(key), value, hint=hint, problem=unknown))
    try:
        made = model.model_validate(grouped)
    except ValidationError as error:
        wrong += [_refusal(found, model) for found in Mistake.all_of(error, model, grouped)]
    if wrong:
        raise wrong[0] if len(wrong) == 1 else ConfigErrors(wrong)
    return made


def flatten(settings: Settings) -> dict[str, Any]:
    """Return settings as one flat dict, with the keys of all sections; `parse` is the inverse.

    Nested settings that are not sections stay objects.
    """
    sections = sections_of(type(settings))
    flat = {key: value for key, value in vars(settings).items() if key not in sections}
    for name in sections:
        flat.update(vars(getattr(settings, name)))
    return flat


class SettingsView(Mapping[str, Any]):
    """A read-only view of settings as users write them, flat and with all defaults.

    ``view["model"]["hidden"]`` is ``view.model.hidden``. A deep copy is a plain dict, which may be
    changed and passed to another trainer.
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
        if name in _MUTATING_METHODS:
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
        """Return a deep copy as a plain dict, which may be changed."""
        return {
            key: value.plain() if isinstance(value, SettingsView) else copy.deepcopy(value)
            for key, value in self.items()
        }

    def _shown(self, key: str, value: Any) -> Any:
        """Return a value as the view shows it: nested settings as a view, a list as a copy."""
        if isinstance(value, Settings):
            value = flatten(value)
        if isinstance(value, Mapping):
            return SettingsView(value, f"{self._place}.{key}")
        return list(value) if isinstance(value, list) else value

    def _hint(self, key: str) -> str:
        """Return ``; advice`` about an unknown key, or an empty string without advice."""
        hint = (
            legacy_names.unknown_key_advice(key, list(self._flat)) if isinstance(key, str) else ""
        )
        return f"; {hint}" if hint else ""

    def _refusal(self, key: str, value: Any) -> ConfigError:
        """Return the error to raise for an attempt to set `key` to `value`."""
        return ConfigError(
            f"{self._place}.{key}",
            value,
            hint="make another trainer with trainer.raw_user_config and the changed settings",
            problem="the settings of a trainer never change",
        )


#: Names of dict methods that would change the dict.
_MUTATING_METHODS = frozenset({"update", "pop", "popitem", "clear", "setdefault"})


def defaults(model: type[Settings]) -> dict[str, Any]:
    """Return key → default of all sections of `model`; keys without a default are left out.

    Defaults that are nested settings become dicts.
    """
    sections = sections_of(model)
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in sections:
            values.update({**defaults(sections[name]), **_preset(model, name)})
        elif not field.is_required():
            value = field.get_default(call_default_factory=True, validated_data={})
            values[name] = value.model_dump() if isinstance(value, BaseModel) else value
    return values


def override(settings: C, changes: Mapping[str, Any], place: str) -> C:
    """Return new settings of the same class in which the flat `changes` replace values.

    Returns `settings` itself if `changes` is empty. Raises ConfigError, which names keys below the
    setting `place`, if a change is not valid.
    """
    if not changes:
        return settings
    try:
        return parse(type(settings), {**flatten(settings), **changes})
    except ConfigError as error:
        raise error.nested_under(place) from None


def known_keys(model: type[Settings]) -> list[str]:
    """Return the keys of all sections of `model`, sorted: those that `parse` accepts."""
    return sorted(_fields(model))


def _fields(model: type[Settings]) -> dict[str, FieldInfo]:
    """Return key → pydantic field of all sections of `model` together."""
    sections = sections_of(model)
    fields = {key: field for key, field in model.model_fields.items() if key not in sections}
    for section in sections.values():
        fields.update(section.model_fields)
    return fields


@functools.cache
def sections_of(model: type[Settings]) -> dict[str, type[Section]]:
    """Return attribute name → class of the sections of `model`; cached."""
    return {
        name: kind
        for name, field in model.model_fields.items()
        if isinstance(kind := field.annotation, type) and issubclass(kind, Section)
    }


def _preset(model: type[Settings], section: str) -> dict[str, Any]:
    """Return key → value of those defaults of `section` that `model` sets differently."""
    preset = model.model_fields[section].default
    if not isinstance(preset, Section):
        return {}
    return {key: getattr(preset, key) for key in preset.model_fields_set}


def _plain(value: Any) -> Any:
    """Return `value` with numpy scalars as Python numbers, also in mappings, lists and tuples."""
    numpy = sys.modules.get("numpy")  # without it there is none of its numbers
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(one) for one in value)
    return value


def _meaning(mistake: "Mistake") -> str:
    """Return the first clause of the description of a missing key, for a hint."""
    model, key = mistake.model, str(mistake.path[-1])
    field = model.model_fields.get(key) if model is not None else None
    words = re.split("[;.] ", (field and field.description) or "a value", maxsplit=1)[0]
    return words[0].lower() + words[1:].rstrip(".")


def _refusal(mistake: "Mistake", model: type[Settings]) -> ConfigError:
    """Return the ConfigError for a mistake in settings, with the dotted key that the user wrote."""
    in_section = mistake.path and mistake.path[0] in sections_of(model)
    place = ".".join(str(part) for part in mistake.path[1 if in_section else 0 :])
    if mistake.kind == "unknown key":
        hint = legacy_names.unknown_key_advice(place, sorted(mistake.allowed_keys))
        return ConfigError(place, mistake.value, hint=hint, problem="is not a known key")
    if mistake.kind == "missing key":
        hint = f"add this key: {_meaning(mistake)}"
        return ConfigError(place, None, hint=hint, problem="is missing")
    hint = legacy_names.refused_value_advice(place, mistake.value) or mistake.hint
    return ConfigError(place, mistake.value, mistake.allowed, hint, mistake.problem)


# -------------------------------------------------------------------------------------------------
# Mistakes in plain data, described by the keys that the user wrote.


class WrongKey(ValueError):
    """A mistake in one key of the value that a validator checks; the validator raises it.

    A plain ValueError, whose text describes the accepted values, is about the value as a whole.

    Args:
        path: keys and indices from the validator's value to the wrong one.
        value: the wrong value.
        allowed: description of the accepted values; empty if `problem` and `hint` say it all.
        hint: advice on what to do next; empty if there is none.
        problem: description of the mistake; by default that the value is not allowed.
    """

    def __init__(
        self, path: KeyPath, value: object, allowed: str = "", hint: str = "", problem: str = ""
    ) -> None:
        self.path = path
        self.value = value
        self.allowed = allowed
        self.hint = hint
        self.problem = problem
        place = ".".join(map(str, path))
        described = describe_mistake(value, allowed, hint, problem)
        super().__init__(f"{place}: {described}" if place else described)

    @classmethod
    def without_effect(cls, key: str, value: object, reason: str) -> "WrongKey":
        """Return the mistake that `key` is set although nothing reads it, as `reason` says.

        The reason follows ``has no effect``, for example ``without use_lstm: true``.
        """
        return cls((key,), value, hint="remove it", problem=f"has no effect {reason}")


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A mistake that a pydantic model finds in plain data."""

    path: KeyPath
    """Keys and indices from the top of the data to the refused value."""
    value: object
    """The refused value."""
    kind: Literal["unknown key", "missing key", "value"]
    """Kind of mistake."""
    allowed: str = ""
    """Description of the accepted values."""
    hint: str = ""
    """Advice that may follow the message; empty if there is none."""
    problem: str = ""
    """Description of the mistake; empty to say that the value is not allowed."""
    model: type[BaseModel] | None = None
    """Model whose key has the mistake, or None if it is not known."""
    cause: BaseException | None = None
    """Exception of our own validator, or None if pydantic refused the value itself."""

    @classmethod
    def all_of(cls, error: ValidationError, model: type[BaseModel], raw: object) -> "list[Mistake]":
        """Return the mistakes that pydantic's `error` reports, one for each place.

        Unknown keys come first. `raw` is the data from which `model` was to be made.
        """
        found = error.errors(include_url=False)
        found.sort(key=lambda one: one["type"] != "extra_forbidden")
        by_path: dict[KeyPath, list[ErrorDetails]] = {}
        for one in found:
            cause = _cause(one)
            below = cause.path if isinstance(cause, WrongKey) else ()
            by_path.setdefault((*_path(one, raw), *below), []).append(one)
        return [cls._joined(path, details, model) for path, details in by_path.items()]

    @classmethod
    def _joined(
        cls, path: KeyPath, details: list[ErrorDetails], model: type[BaseModel]
    ) -> "Mistake":
        """Return one mistake at `path` that joins pydantic's errors for a union's alternatives."""
        first = details[0]
        fields = {"path": path, "value": first["input"], "model": _model_at(model, path[:-1])}
        if first["type"] == "extra_forbidden":
            return cls(kind="unknown key", **fields)
        if first["type"] == "missing":
            return cls(kind="missing key", **fields)
        if isinstance(wrong := _cause(first), WrongKey):
            fields["value"] = wrong.value
            allowed, hint, problem = wrong.allowed, wrong.hint, wrong.problem
            return cls(kind="value", allowed=allowed, hint=hint, problem=problem, **fields)
        texts = dict.fromkeys(map(_allowed, details))
        allowed, hint, cause = " or ".join(texts), _hint(first), _cause(first)
        return cls(kind="value", allowed=allowed, hint=hint, cause=cause, **fields)

    @property
    def allowed_keys(self) -> list[str]:
        """Keys that are allowed at this place; empty if the model is not known."""
        return list(self.model.model_fields) if self.model is not None else []


def _cause(detail: ErrorDetails) -> BaseException | None:
    """Return the exception of our own validator; None if pydantic refused the value itself."""
    cause: BaseException | None = detail.get("ctx", {}).get("error")
    return cause


def _path(detail: ErrorDetails, raw: Any) -> KeyPath:
    """Return the keys and indices in the data `raw` at which pydantic's error `detail` is.

    Pydantic's names for the branches of a union, which are no keys of the data, are left out.
    """
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
    """Return whether `container` has the key or index `part`."""
    if isinstance(part, int):
        return isinstance(container, list | tuple) and part < len(container)
    return isinstance(container, Mapping) and part in container


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """Return the model of the value at `path` in the data of `model`; None if it is not a model."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None or part not in current.model_fields:
            return None
        annotation = current.model_fields[str(part)].annotation
        current = next(filter(_is_model, (annotation, *get_args(annotation))), None)
    return current


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Return whether a type annotation is a pydantic model."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


#: Pydantic's name of a type → its values in messages.
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
}


def _allowed(detail: ErrorDetails) -> str:
    """Return a description of the accepted values, made from the message of pydantic's error."""
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] in ("model_type", "dict_type"):
        return "a mapping, key: value"
    text = re.sub(r"^(Input|Value|String|List|Tuple) should (be|have) ", "", detail["msg"])
    text = re.sub(r"^a valid (\w+)", lambda found: _TYPES.get(found[1], found[0]), text)
    return f"a value {text}" if text.startswith(("greater", "less")) else text


def _hint(detail: ErrorDetails) -> str:
    """Return advice for a value that pydantic refused, such as to drop quotes; may be empty."""
    value = detail["input"]
    if detail["type"] == "literal_error":
        return nearest(value, re.findall(r"'([^']*)'", detail["ctx"]["expected"]))
    if detail["type"] in ("int_type", "float_type") and isinstance(value, str):
        return "a number is written without quotes"
    if detail["type"] == "string_type" and not isinstance(value, list | dict | None):
        return f"text is quoted: '{value}'"
    return ""
