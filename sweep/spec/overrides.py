"""Settings of the command line, which replace those of the spec file.

A path has dots: ``config.lr``, ``scheduler.name``. If a key of the file contains dots itself, as in
the search space, the longest matching key is used.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import BadConfig, KeyPath, Place, Source
from trainables.errors import cut, shorten

#: Maximum number of an option's characters in messages.
LONGEST_SAID = 80
#: Sections whose keys are names with dots or slashes: a new path there is one key.
_FLAT = frozenset({"space", "stop"})
#: Sections that may be a bare name instead of a mapping with that name.
_PLUGINS = frozenset({"searcher", "scheduler"})


@dataclass(frozen=True)
class Override:
    """A new value for one key of a spec, usually from the command line."""

    path: str
    """Dotted path of the key, for example ``config.lr``."""
    value: Any
    """New value, as plain data."""
    typed: str
    """Text that messages show as the setting's origin, for example ``--set config.lr=0.1``."""
    remark: str = ""
    """Remark about the override for the user; usually empty."""

    @classmethod
    def parse(
        cls, text: str, option: str = "--set", example: str = "config.lr=0.001"
    ) -> "Override":
        """Parse ``PATH=VALUE``, whose value is YAML; `option` and `example` are for messages.

        Raises BadConfig if it is not valid; an empty path, part of a path or value is not.
        """
        from sweep.spec import yaml_source  # not at the top: workers read no YAML

        option_text = f"{option} {cut(text, LONGEST_SAID)}"
        path, equals, value = text.partition("=")
        path = path.strip()
        if not equals or not all(path.split(".")):
            hint = f"for example {option} {example}"
            raise BadConfig(option_text, text, "key=value", hint)
        if path.count(".") >= yaml_source.DEEPEST:
            found = f"the path has {path.count('.') + 1} names"
            few = f"at most {yaml_source.DEEPEST}"
            raise BadConfig(option, path, few, place=Place(option_text), problem=found)
        return cls(
            path, yaml_source.read_value(value, option_text, tuple(path.split("."))), option_text
        )

    @classmethod
    def of_option(cls, key: str, value: Any) -> "Override":
        """Return the override for the option ``--KEY VALUE``; `value` is not parsed."""
        return cls(key, value, f"--{key} {cut(str(value), LONGEST_SAID)}")


def apply_overrides(
    raw: Mapping[str, Any], source: Source, overrides: Sequence[str | Override]
) -> tuple[dict[str, Any], Source]:
    """Return a changed copy of the plain data of a spec, and the source with each new key's origin.

    Overrides, each an `Override` or the text after ``--set``, are applied in order. If one replaces
    the name of searcher or scheduler, the former one's options in `raw` are dropped. The remarks of
    the new source are those about that and those of the overrides; earlier ones are lost.

    Raises BadConfig if one of them cannot be read, or leads into something that is not a mapping.
    """
    changed = copy.deepcopy(dict(raw))
    marks = dict(source.marks)
    remarks = []
    for override in overrides:
        given = Override.parse(override) if isinstance(override, str) else override
        path = _set_value(changed, given)
        remarks += [*_drop_options(changed, raw, path), *filter(None, [given.remark])]
        marks = {key: at for key, at in marks.items() if key[: len(path)] != path}
        for end in range(1, len(path) + 1):  # created parents belong to the option too
            marks.setdefault(path[:end], Place(given.typed))
    return changed, Source(source.file, marks, remarks=tuple(remarks))


def _drop_options(changed: dict[str, Any], raw: Mapping[str, Any], path: KeyPath) -> list[str]:
    """Remove a plugin's options from `changed` if an override has changed the plugin's name.

    Only an override at `path` ``("searcher", "name")`` or ``("scheduler", "name")`` counts. Options
    that are no longer as in `raw`, the spec before all overrides, are kept. Returns a remark for
    the user that names the removed options; an empty list if there are none.
    """
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
    return [f"{key}: {plugin['name']} replaces {former}, whose options are ignored: {options}"]


def _set_value(raw: dict[str, Any], override: Override) -> KeyPath:
    """Set a copy of an override's value in `raw`, and return the path of the key that was set.

    Of keys that contain dots, the longest that exists is taken; a new path in ``space`` or ``stop``
    is one key. Mappings that are missing on the way are created, and a bare name of a searcher or
    scheduler becomes ``{"name": name}``. Raises BadConfig if anything else on the way is not a
    mapping.
    """
    path: tuple[str, ...] = ()
    inner: Any = raw
    remaining = override.path.split(".")
    while True:
        if path and path[0] in _PLUGINS and isinstance(inner, str):
            inner = raw[path[0]] = {"name": inner}
        if not isinstance(inner, dict):
            problem = f"{shorten(inner)} is not a mapping, but the option sets a key in it"
            hint = f"set {'.'.join(path)} itself"
            at = Place(override.typed)
            raise BadConfig(".".join(path), inner, hint=hint, place=at, problem=problem)
        key, remaining = _next_key(inner, remaining, flat=path[:1] != () and path[0] in _FLAT)
        path = (*path, key)
        if not remaining:
            inner[key] = copy.deepcopy(override.value)
            return path
        inner = inner.setdefault(key, {})


def _next_key(
    mapping: Mapping[str, Any], remaining: list[str], flat: bool
) -> tuple[str, list[str]]:
    """Return the longest key of `mapping` that begins a dotted path, and the path's other parts.

    `remaining` are the parts of the path. Without such a key, the key is the first part; with
    `flat` all parts joined with dots, which leaves none.
    """
    for end in range(len(remaining), 0, -1):
        if (key := ".".join(remaining[:end])) in mapping:
            return key, remaining[end:]
    return (".".join(remaining), []) if flat else (remaining[0], remaining[1:])
