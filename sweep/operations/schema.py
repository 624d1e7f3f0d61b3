"""JSON Schema of a spec, for editors: completion, hovers and mistakes while it is written.

It is made from the models that read a spec, from the options of every plugin and the settings of
every trainable that is installed, and from the words of search spaces. It says less than `sweep
validate`: a file that it refuses cannot work, and one that it accepts may not work either. It is
of draft 7, which every editor reads, and refers to nothing outside itself.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaWarningKind,
    models_json_schema,
)
from pydantic_core import core_schema

from sweep import plugins, schedulers, searchers, trackers
from sweep.errors import SweepError
from sweep.space import json_schema
from sweep.space.json_schema import Schema, ref
from sweep.spec import SweepSpec
from trainables.core import importing
from trainables.core.settings import Settings, defaults, sections_of
from trainables.trainable import Trainable

#: Name of the file that stands beside a spec.
FILE = "sweep.schema.json"
#: Key of a spec that names a plugin with options → the kind of the plugin.
_KINDS: Mapping[str, plugins.Kind[Any]] = {
    "scheduler": schedulers.KIND,
    "searcher": searchers.KIND,
}
#: Pattern of the paths that name a plugin of somebody else's.
_PATH = {"type": "string", "pattern": ":"}


def modeline(file: str = FILE) -> str:
    """Return the first line of a spec, by which editors find the schema in `file`."""
    return f"# yaml-language-server: $schema={file}\n"


def text() -> str:
    """Return the schema of a spec as the text of a file, with what other packages add."""
    kinds = (plugins.trainables(), schedulers.KIND, searchers.KIND, trackers.KIND)
    if any(importing.entry_points(kind.package) for kind in kinds):
        return rendered(schema())
    return (resources.files("search_spaces") / FILE).read_text(encoding="utf-8")


def rendered(whole: Schema) -> str:
    """Return a schema as the text of a file, in which each definition has a line."""
    rest = {key: one for key, one in whole.items() if key != "definitions"}
    each = (f"{_written(name)}:{_written(one)}" for name, one in whole["definitions"].items())
    lines = ",\n".join(each)
    return _written(rest).removesuffix("}") + f',\n"definitions":{{\n{lines}\n}}}}\n'


def _written(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"))


def schema(installed: bool = True) -> Schema:
    """Return the schema of a spec.

    Args:
        installed: True to include what other packages add by their entry points.
    """
    return _Builder(installed).whole()


class _Generator(GenerateJsonSchema):
    """Generator of schemas without titles, which repeat names, and docstrings of classes."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore what JSON cannot express: functions as values and defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        found = super().model_schema(schema)
        found.pop("description", None)  # the docstring of a class is for who reads the code
        return found


class _Builder:
    def __init__(self, installed: bool) -> None:
        self._installed = installed
        self._definitions = json_schema.definitions()
        self._trainables = {
            name: found
            for name, found in self._all(plugins.trainables())
            if found.config_class is not None
        }
        self._options: dict[str, dict[str, type[BaseModel]]] = {
            key: {name: found.Options for name, found in self._all(kind)}
            for key, kind in _KINDS.items()
        }
        models: list[type[BaseModel]] = [SweepSpec]
        for options in self._options.values():
            models += options.values()
        for trainable in self._trainables.values():
            models += [self._config(trainable), *sections_of(self._config(trainable)).values()]
        refs, found = models_json_schema(
            [(model, "validation") for model in dict.fromkeys(models)],
            ref_template="#/definitions/{model}",
            schema_generator=_Generator,
        )
        self._generated: dict[str, Schema] = _older(found.get("$defs", {}))
        self._names = {model: one["$ref"].rpartition("/")[2] for (model, _), one in refs.items()}

    def whole(self) -> Schema:
        """Return the schema of a spec."""
        spec = self._model(SweepSpec)
        properties = dict(spec["properties"])
        for key in self._options:
            properties[key] = {"description": properties[key]["description"], **self._plugins(key)}
        properties["trackers"] = {
            **properties["trackers"],
            "items": {"anyOf": [{"enum": self._names_of(trackers.KIND)}, _PATH]},
        }
        properties["trainable"] |= {
            "anyOf": [{"enum": self._names_of(plugins.trainables())}, _PATH]
        }
        condition = ref(json_schema.WHEN)
        properties["forbid"] |= {"items": condition}
        properties["initial"] |= {"items": {"type": "object"}}
        properties["space"] = {
            "description": properties["space"]["description"],
            **json_schema.space(),
        }
        cases = [self._case(name, found) for name, found in self._trainables.items()]
        return {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "A sweep",
            "type": "object",
            "properties": properties,
            "required": [key for key in spec["required"] if key != "name"],
            "additionalProperties": False,
            "allOf": cases,
            "definitions": self._used(properties, cases),
        }

    # ---- plugins ------------------------------------------------------------------------------

    def _all(self, kind: "plugins.Kind[Any]") -> Iterator[tuple[str, Any]]:
        """Yield name and class of each plugin of a kind that can be imported."""
        for name in self._names_of(kind):
            # One whose own package is missing, or a function, has no settings to describe.
            with contextlib.suppress(SweepError, ImportError):
                yield name, kind.find(name)

    def _names_of(self, kind: "plugins.Kind[Any]") -> list[str]:
        others = importing.entry_points(kind.package) if self._installed else []
        return list(dict.fromkeys([*plugins.names(kind.package), *others]))

    def _plugins(self, key: str) -> Schema:
        """Return the schema of a key that names a plugin with its options."""
        options = self._options[key]
        needed = {name: self._model(model).get("required", []) for name, model in options.items()}
        others = [name for name in self._names_of(_KINDS[key]) if name not in options]
        alone = [name for name in options if not needed[name]]
        named = {"anyOf": [{"enum": [*options, *others]}, _PATH]}
        cases = []
        for name, model in options.items():
            found = self._model(model)
            self._definitions[f"{key}.{name}"] = {
                **{k: v for k, v in found.items() if k in ("type", "required")},
                "properties": {"name": {}, **found.get("properties", {})},
                "additionalProperties": False,
            }
            cases.append({"if": _is("name", name), "then": ref(f"{key}.{name}")})
        written = {"type": "object", "properties": {"name": named}, "required": ["name"]}
        return {"anyOf": [{"enum": [*alone, *others]}, _PATH, {**written, "allOf": cases}]}

    # ---- trainables ---------------------------------------------------------------------------

    @staticmethod
    def _config(trainable: type[Trainable]) -> type[Settings]:
        assert trainable.config_class is not None  # noqa: S101 others are not asked for
        return trainable.config_class

    def _case(self, name: str, trainable: type[Trainable]) -> Schema:
        """Return what holds of the keys ``config`` and ``space`` where `name` is trained."""
        settings, required = self._flat(self._config(trainable))
        closed = not trainable.takes_other_settings
        config: Schema = {
            "type": "object",
            "properties": {key: self._shared(key, one) for key, one in settings.items()},
            "additionalProperties": not closed,
        }
        named = dict(self._names_below(settings))
        space = json_schema.space(
            {key: self._parameter(key, one) for key, one in named.items()},
            [rf"{key}\..+" for key, one in settings.items() if _is_open(one)],
            not closed,
        )
        self._definitions[f"config.{name}"], self._definitions[f"space.of.{name}"] = config, space
        then: Schema = {
            "properties": {"config": ref(f"config.{name}"), "space": ref(f"space.of.{name}")}
        }
        given = [{"anyOf": [_has("config", key), _has("space", key)]} for key in required]
        return {"if": _is("trainable", name), "then": then | ({"allOf": given} if given else {})}

    def _flat(self, model: type[Settings]) -> tuple[dict[str, Schema], list[str]]:
        """Return the settings as a person writes them: key → schema; and those that are needed."""
        inner = sections_of(model)
        usual, found, required = defaults(model), {}, []
        for owner in (model, *inner.values()):
            schema = self._model(owner)
            properties = schema.get("properties", {})
            found.update({key: one for key, one in properties.items() if key not in inner})
            required += [key for key in schema.get("required", []) if key not in inner]
        for key, one in found.items():
            if "default" in one and _is_plain(usual[key]):
                found[key] = {**one, "default": usual[key]}
        return found, required

    def _names_below(self, settings: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
        """Yield the names that a space may use: settings, and those inside of them with dots."""
        for key, one in settings.items():
            yield key, one
            if (nested := self._nested(one)) is not None:
                inner = nested.get("properties", {})
                yield from ((f"{key}.{name}", s) for name, s in self._names_below(inner))

    def _parameter(self, name: str, values: Schema) -> Schema:
        """Return the schema of the parameter by which a space gives a setting."""
        described = {key: one for key, one in values.items() if key == "description"}
        plain = json_schema.of_setting(self._shared(name, values))
        return self._shared(f"space.{name}", described | plain)

    def _nested(self, values: Schema) -> Schema | None:
        """Return the schema of the model that a setting is, or None if it is none."""
        for one in [values, *values.get("allOf", []), *values.get("anyOf", [])]:
            if "$ref" in one:
                return self._generated.get(one["$ref"].rpartition("/")[2])
        return None

    def _shared(self, name: str, schema: Schema) -> Schema:
        """Return a reference to a definition that is `schema`, with a name like `name`."""
        number, wanted = 1, f"setting.{name}"
        while self._definitions.setdefault(wanted, schema) != schema:
            number += 1
            wanted = f"setting.{name}.{number}"
        return ref(wanted)

    # ---- parts --------------------------------------------------------------------------------

    def _model(self, model: type[BaseModel]) -> Schema:
        return self._generated[self._names[model]]

    def _used(self, *parts: Any) -> dict[str, Schema]:
        """Return the definitions that are referred to, also by each other."""
        known, found = {**self._generated, **self._definitions}, dict[str, Schema]()
        todo = list(_refs(parts))
        while todo:
            if (name := todo.pop()) not in found:
                found[name] = known[name]
                todo += _refs(known[name])
        return dict(sorted(found.items()))


def _is(key: str, value: str) -> Schema:
    return {"properties": {key: {"const": value}}, "required": [key]}


def _has(key: str, inner: str) -> Schema:
    return {"properties": {key: {"required": [inner]}}, "required": [key]}


def _is_open(values: Schema) -> bool:
    """Return whether a setting may be a mapping with any keys."""
    choices = [values, *values.get("anyOf", [])]
    return any(one.get("type") == "object" and one.get("additionalProperties") for one in choices)


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _refs(part: Any) -> Iterator[str]:
    """Yield the names of the definitions that `part` refers to."""
    if isinstance(part, Mapping):
        if isinstance(name := part.get("$ref"), str):
            yield name.removeprefix("#/definitions/")
        part = list(part.values())
    if isinstance(part, list | tuple):
        for one in part:
            yield from _refs(one)


def _older(part: Any) -> Any:
    """Return `part` in the words of draft 7.

    There a list of schemas of a list's items is called ``items``, and nothing beside a reference
    counts.
    """
    if isinstance(part, list):
        return [_older(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _older(one) for key, one in part.items()}
    if isinstance(found.get("prefixItems"), list):
        found["items"] = found.pop("prefixItems")
    if isinstance(found.get("$ref"), str) and len(found) > 1:
        found["allOf"] = [{"$ref": found.pop("$ref")}]
    return found
