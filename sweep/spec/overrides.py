"""Settings given on the command line, put over those of the spec file.

A path has dots: ``config.lr``, ``scheduler.name``. Where a key of the file has dots itself, as in
the search space, the longest key that fits is meant.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.errors import At, BadConfig, KeyPath, Source

#: Characters of an option that messages repeat, at most.
LONGEST_SAID = 80
#: Mappings whose keys are names with dots or slashes: what is new there is one key.
_FLAT = frozenset({"space", "stop"})
#: Keys that may hold a bare name instead of a mapping with that name.
_PLUGINS = frozenset({"searcher", "scheduler"})


@dataclass(frozen=True)
class Override:
    """One setting from the command line."""

    path: str
    """The place that it changes, with dots, for example ``config.lr``."""
    value: Any
    said: str
    """The text that the user typed, for messages, for example ``--set config.lr=0.1``."""

    @classmethod
    def parse(
        cls, text: str, option: str = "--set", example: str = "config.lr=0.001"
    ) -> "Override":
        """The override that ``--set text`` means, or another option; its value is read as YAML."""
        from sweep.spec import yaml_source  # with its library: a worker reads no YAML

        said = f"{option} {_brief(text)}"
        path, equals, value = text.partition("=")
        path = path.strip()
        if not equals or not all(path.split(".")):
            hint = f"for example {option} {example}"
            raise BadConfig(option, text, "key=value", hint, at=At(said))
        if path.count(".") >= yaml_source.DEEPEST:
            found = f"{path.count('.') + 1} names with dots between them"
            few = f"at most {yaml_source.DEEPEST}"
            raise BadConfig(option, path, few, at=At(said), problem=found)
        return cls(path, yaml_source.read_value(value, said, tuple(path.split("."))), said)

    @classmethod
    def of_option(cls, key: str, value: Any) -> "Override":
        """The override that ``--key value`` means."""
        return cls(key, value, f"--{key} {_brief(str(value))}")


def _brief(text: str) -> str:
    return text if len(text) <= LONGEST_SAID else text[: LONGEST_SAID - 1] + "…"


def apply_overrides(
    raw: Mapping[str, Any], source: Source, overrides: Sequence[str | Override]
) -> tuple[dict[str, Any], Source]:
    """A changed copy of the spec `raw`, and where everything stands now.

    Overrides, each an `Override` or the text after ``--set``, are applied in their order.

    Raises:
        BadConfig: one of them cannot be read, or leads into something that is no mapping.
    """
    changed = copy.deepcopy(dict(raw))
    marks = dict(source.marks)
    remarks = []
    for override in overrides:
        given = Override.parse(override) if isinstance(override, str) else override
        path = _put(changed, given)
        remarks += _drop_options(changed, raw, path)
        marks = {key: at for key, at in marks.items() if key[: len(path)] != path}
        for end in range(1, len(path) + 1):  # what it created on its way was said here too
            marks.setdefault(path[:end], At(given.said))
    return changed, Source(source.file, marks, remarks=tuple(remarks))


def _drop_options(changed: dict[str, Any], raw: Mapping[str, Any], path: KeyPath) -> list[str]:
    """Forget the file's options of a plugin whose name was changed to another; says which."""
    key = str(path[0])
    before = raw.get(key)
    if key not in _PLUGINS or path[1:] != ("name",) or not isinstance(before, Mapping):
        return []
    plugin, former = changed[key], before.get("name")
    unchanged = [k for k in plugin if k != "name" and k in before and plugin[k] == before[k]]
    if plugin["name"] == former or not unchanged:
        return []
    changed[key] = {k: value for k, value in plugin.items() if k not in unchanged}
    options = ", ".join(unchanged)
    return [f"{key}: {plugin['name']} in place of {former}, whose options do not count: {options}"]


def _put(raw: dict[str, Any], override: Override) -> KeyPath:
    """Set the value in place; returns the path at which it stands."""
    path: tuple[str, ...] = ()
    inner: Any = raw
    rest = override.path.split(".")
    while True:
        if path and path[0] in _PLUGINS and isinstance(inner, str):
            inner = raw[path[0]] = {"name": inner}
        if not isinstance(inner, dict):
            raise BadConfig(
                ".".join(path),
                inner,
                "a mapping, because the option sets a key inside it",
                at=At(override.said),
            )
        key, rest = _next_key(inner, rest, flat=path[:1] != () and path[0] in _FLAT)
        path = (*path, key)
        if not rest:
            inner[key] = copy.deepcopy(override.value)
            return path
        inner = inner.setdefault(key, {})


def _next_key(mapping: Mapping[str, Any], rest: list[str], flat: bool) -> tuple[str, list[str]]:
    """The key of `mapping` that `rest` begins with, and what is left of `rest`."""
    for end in range(len(rest), 0, -1):
        if (key := ".".join(rest[:end])) in mapping:
            return key, rest[end:]
    return (".".join(rest), []) if flat else (rest[0], rest[1:])
