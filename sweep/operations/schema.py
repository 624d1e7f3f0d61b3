"""Generate the JSON Schema of a spec, with which editors complete and check it.

It combines the models that read a spec, the options of all installed plugins, the settings of all
installed trainables and the language of search spaces. It checks less than `sweep validate`: a file
that it refuses cannot work, but one that it accepts may still fail. It uses draft 7, which every
editor reads, and has no external references.
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

from sweep import schedulers, searchers, trackers
from sweep.core import plugins
from sweep.core.errors import SweepError
from sweep.spec import SweepSpec
from sweep.spec.space import json_schema
from sweep.spec.space.json_schema import Schema, ref
from trainables.core import importing
from trainables.core.settings import Settings, defaults, sections_of
from trainables.trainable import Trainable

#: Name of the schema's file in the folder of a spec.
FILE = "sweep.schema.json"
#: Comment line for the top of a spec, by which editors find the schema in `FILE`.
MODELINE = f"# yaml-language-server: $schema={FILE}\n"
#: Key of a spec that names a plugin with options → the kind of the plugin.
_KINDS: Mapping[str, plugins.Kind[Any]] = {
    "scheduler": schedulers.KIND,
    "searcher": searchers.KIND,
}
#: Schema of a path, which names a plugin of another package.
_PATH = {"type": "string", "pattern": ":"}


def text() -> str:
    """Return the schema of a spec as the text of a file.

    If other packages add plugins, it is generated with them; else it is the file that we ship.
    """
    kinds = (plugins.trainables(), schedulers.KIND, searchers.KIND, trackers.KIND)
    if any(importing.entry_points(kind.package) for kind in kinds):
        return rendered(schema())
    return (resources.files("search_spaces") / FILE).read_text(encoding="utf-8")


def rendered(schema: Schema) -> str:
    """Return a schema as JSON for a file, with one line for each definition."""
    rest = {key: one for key, one in schema.items() if key != "definitions"}
    each = (
        f"{_compact_json(name)}:{_compact_json(one)}" for name, one in schema["definitions"].items()
    )
    lines = ",\n".join(each)
    return _compact_json(rest).removesuffix("}") + f',\n"definitions":{{\n{lines}\n}}}}\n'


def _compact_json(part: Any) -> str:
    """Return `part` as JSON without spaces."""
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"))


def schema(installed: bool = True) -> Schema:
    """Return the JSON Schema of a spec.

    With `installed`, also for the plugins of other packages.
    """
    return _Builder(installed).spec_schema()


class _Generator(GenerateJsonSchema):
    """Pydantic's generator of schemas, without titles and without the docstrings of classes."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore the warning that JSON cannot express a default or a function."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return false: titles only repeat the names of fields."""
        del schema
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        """Return the schema of a model without its docstring."""
        found = super().model_schema(schema)
        found.pop("description", None)  # docstrings of classes are written for programmers
        return found


class _Builder:
    """Builds the schema of a spec from the models of spec, plugins and trainables.

    With `installed`, plugins of other packages are included.
    """

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
        self._generated: dict[str, Schema] = _to_draft_7(found.get("$defs", {}))
        self._names = {model: one["$ref"].rpartition("/")[2] for (model, _), one in refs.items()}

    def spec_schema(self) -> Schema:
        """Return the schema of a spec, with the definitions that it uses.

        It does not require ``name``, nor ``space`` and ``metric`` if a path names the trainable.
        """
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
            "required": [key for key in spec["required"] if key not in _OWN],
            "additionalProperties": False,
            "allOf": [*cases, _NOT_OWN],
            "definitions": self._used_definitions(properties, cases),
        }

    # ---- plugins ------------------------------------------------------------------------------

    def _all(self, kind: "plugins.Kind[Any]") -> Iterator[tuple[str, Any]]:
        """Yield name and class of each plugin of a kind that is a class.

        Functions, and plugins that cannot be imported, have no settings to describe.
        """
        for name in self._names_of(kind):
            # A function, or a plugin whose package is missing, has no settings to describe.
            with contextlib.suppress(SweepError, ImportError):
                yield name, kind.find(name)

    def _names_of(self, kind: "plugins.Kind[Any]") -> list[str]:
        """Return the names of our plugins of a kind, and of installed ones if requested."""
        others = importing.entry_points(kind.package) if self._installed else []
        return list(dict.fromkeys([*plugins.names(kind.package), *others]))

    def _plugins(self, key: str) -> Schema:
        """Return the schema of the key ``scheduler`` or ``searcher``.

        Its value is a name, a path, or a mapping of ``name`` and options. The schemas of the
        options are added to the definitions.
        """
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
            cases.append({"if": _key_equals("name", name), "then": ref(f"{key}.{name}")})
        written = {"type": "object", "properties": {"name": named}, "required": ["name"]}
        return {"anyOf": [{"enum": [*alone, *others]}, _PATH, {**written, "allOf": cases}]}

    # ---- trainables ---------------------------------------------------------------------------

    @staticmethod
    def _config(trainable: type[Trainable]) -> type[Settings]:
        """Return the pydantic model of a trainable's settings."""
        assert trainable.config_class is not None  # noqa: S101 filtered in __init__
        return trainable.config_class

    def _case(self, name: str, trainable: type[Trainable]) -> Schema:
        """Return a rule: if ``trainable`` is `name`, ``config`` and ``space`` have its settings.

        Required settings must be in one of the two. The schemas of the settings are added to the
        definitions.
        """
        settings, required = self._flat_settings(self._config(trainable))
        closed = not trainable.takes_other_settings
        config: Schema = {
            "type": "object",
            "properties": {key: self._define(key, one) for key, one in settings.items()},
            "additionalProperties": not closed,
        }
        named = dict(self._nested_names(settings))
        space = json_schema.space(
            {key: self._parameter(key, one) for key, one in named.items()},
            [rf"{key}\..+" for key, one in settings.items() if _is_open(one)],
            not closed,
        )
        self._definitions[f"config.{name}"], self._definitions[f"space.of.{name}"] = config, space
        consequence: Schema = {
            "properties": {"config": ref(f"config.{name}"), "space": ref(f"space.of.{name}")}
        }
        given = [{"anyOf": [_has_key("config", key), _has_key("space", key)]} for key in required]
        return {
            "if": _key_equals("trainable", name),
            "then": consequence | ({"allOf": given} if given else {}),
        }

    def _flat_settings(self, model: type[Settings]) -> tuple[dict[str, Schema], list[str]]:
        """Return the schema of each setting by its name, and the names of required ones.

        Settings of a section have no prefix. The default is the model's, if JSON can represent it.
        """
        inner = sections_of(model)
        usual, settings, required = defaults(model), {}, []
        for owner in (model, *inner.values()):
            schema = self._model(owner)
            properties = schema.get("properties", {})
            settings.update({key: one for key, one in properties.items() if key not in inner})
            required += [key for key in schema.get("required", []) if key not in inner]
        for key, one in settings.items():
            if "default" in one and _is_plain(usual[key]):
                settings[key] = {**one, "default": usual[key]}
        return settings, required

    def _nested_names(self, settings: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
        """Yield name and schema of each setting that a space may use, nested ones with dots."""
        for key, one in settings.items():
            yield key, one
            if (nested := self._nested(one)) is not None:
                inner = nested.get("properties", {})
                yield from ((f"{key}.{name}", s) for name, s in self._nested_names(inner))

    def _parameter(self, name: str, values: Schema) -> Schema:
        """Return a reference to the schema of the parameter `name` in ``space``.

        `values` is the schema of the setting; the parameter's is added to the definitions.
        """
        described = {key: one for key, one in values.items() if key == "description"}
        plain = json_schema.of_setting(self._define(name, values))
        return self._define(f"space.{name}", described | plain)

    def _nested(self, values: Schema) -> Schema | None:
        """Return the schema of the model that a setting's value is; None if it is no model."""
        for one in [values, *values.get("allOf", []), *values.get("anyOf", [])]:
            if "$ref" in one:
                return self._generated.get(one["$ref"].rpartition("/")[2])
        return None

    def _define(self, name: str, schema: Schema) -> Schema:
        """Add `schema` to the definitions and return a reference to it.

        It is named ``setting.NAME``, or ``setting.NAME.2`` and so on if that has another schema.
        """
        number, wanted = 1, f"setting.{name}"
        while self._definitions.setdefault(wanted, schema) != schema:
            number += 1
            wanted = f"setting.{name}.{number}"
        return ref(wanted)

    # ---- parts --------------------------------------------------------------------------------

    def _model(self, model: type[BaseModel]) -> Schema:
        """Return the schema that pydantic generated for a model."""
        return self._generated[self._names[model]]

    def _used_definitions(self, *parts: Any) -> dict[str, Schema]:
        """Return the definitions that `parts` refer to, directly or through other definitions."""
        known, used = {**self._generated, **self._definitions}, dict[str, Schema]()
        todo = list(_refs(parts))
        while todo:
            if (name := todo.pop()) not in used:
                used[name] = known[name]
                todo += _refs(known[name])
        return dict(sorted(used.items()))


#: Keys that a spec may lack: its file has a name, and an objective of Optuna's the others.
_OWN = ("name", "space", "metric")
#: The keys among them that are needed unless a path names the trainable.
_NOT_OWN: Schema = {
    "if": {"properties": {"trainable": _PATH}, "required": ["trainable"]},
    "else": {"required": ["space", "metric"]},
}


def _key_equals(key: str, value: str) -> Schema:
    """Return a schema that accepts a mapping if its `key` has the value `value`."""
    return {"properties": {key: {"const": value}}, "required": [key]}


def _has_key(key: str, inner: str) -> Schema:
    """Return a schema that accepts a mapping if the mapping under its `key` contains `inner`."""
    return {"properties": {key: {"required": [inner]}}, "required": [key]}


def _is_open(values: Schema) -> bool:
    """Return true if the schema of a setting accepts a mapping with any keys."""
    choices = [values, *values.get("anyOf", [])]
    return any(one.get("type") == "object" and one.get("additionalProperties") for one in choices)


def _is_plain(value: Any) -> bool:
    """Return true if JSON can represent a value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _refs(part: Any) -> Iterator[str]:
    """Yield the names of the definitions that `part` of a schema refers to, repeated ones, too."""
    if isinstance(part, Mapping):
        if isinstance(name := part.get("$ref"), str):
            yield name.removeprefix("#/definitions/")
        part = list(part.values())
    if isinstance(part, list | tuple):
        for one in part:
            yield from _refs(one)


def _to_draft_7(part: Any) -> Any:
    """Convert `part` of a schema to draft 7 of JSON Schema.

    There, ``items`` may be a list of schemas, which replaces ``prefixItems``; and keys next to
    ``$ref`` are ignored, so a ``$ref`` with other keys moves into ``allOf``. `part` stays as it is.
    """
    if isinstance(part, list):
        return [_to_draft_7(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _to_draft_7(one) for key, one in part.items()}
    if isinstance(found.get("prefixItems"), list):
        found["items"] = found.pop("prefixItems")
    if isinstance(found.get("$ref"), str) and len(found) > 1:
        found["allOf"] = [{"$ref": found.pop("$ref")}]
    return found
