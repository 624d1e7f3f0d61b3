"""Parameters of a space, including those in groups: a group's name is the beginning of theirs.

model:                                    model.hidden: {choice: …, when: {policy: mlp}}
  when: {policy: mlp}                     model.layers: {randint: …, when: {policy: mlp}}
  hidden: {choice: [[64], [256]]}
  layers: {randint: [1, 3]}

A group is a mapping that contains a mapping, and has no keyword such as ``uniform`` that would make
it a parameter; its ``when`` applies to all its members. Members below the key ``parameters`` may
have any name.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import KeyPath, Source
from trainables.errors import shorten

#: Maximum number of parameters of a space.
MOST_PARAMETERS = 1000
#: Maximum number of groups around a parameter.
_DEEPEST = 16
#: Pattern of a dotted name of a parameter.
NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
#: Maximum length of a dotted name, in characters.
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Entry:
    """One parameter as the spec has it, with the conditions of its groups."""

    name: str
    """Dotted name, which begins with the names of its groups."""
    path: KeyPath
    """Path below ``space``, in which each group is a key."""
    raw: Any
    """Plain data that describes the parameter."""
    conditions: tuple[tuple[KeyPath, Any], ...]
    """Path and data of the ``when`` of each of its groups, outermost first."""


def entries(raw: Mapping[str, Any], words: frozenset[str], source: Source) -> list[Entry]:
    """Return all parameters below ``space``, in the order of the file, those of groups included.

    Args:
        raw: the content of the key ``space``.
        words: keywords that make a mapping a parameter.
        source: file and lines of the key, for messages.

    Raises:
        BadSpace: a name is not valid or is repeated, groups are nested too deeply, or there are
            more than `MOST_PARAMETERS` parameters.
    """
    by_name: dict[str, Entry] = {}
    for entry in _Walk(words, source).parameters("", (), raw, ()):
        if entry.name in by_name:
            at = source.locate(by_name[entry.name].path)
            hint, problem = (
                f"it is also defined at {at}; remove one of the two",
                f"{entry.name} is defined twice",
            )
            raise source.refuse(entry.path, entry.name, hint=hint, problem=problem)
        by_name[entry.name] = entry
        if len(by_name) > MOST_PARAMETERS:
            found = f"more than {MOST_PARAMETERS} parameters"
            allowed = f"at most {MOST_PARAMETERS}"
            raise source.refuse((), found, allowed, problem=f"the space has {found}")
    return list(by_name.values())


@dataclass(frozen=True)
class _Walk:
    """A walk through the nested groups of a space."""

    words: frozenset[str]
    """Keywords that make a mapping a parameter and not a group."""
    source: Source
    """Source of the key ``space``, for messages."""

    def parameters(
        self,
        prefix: str,
        path: KeyPath,
        raw: Mapping[str, Any],
        conditions: tuple[tuple[KeyPath, Any], ...],
    ) -> Iterator[Entry]:
        """Yield the parameters below a group, recursively.

        `prefix` is the beginning of their names, `path` that of their paths, and `conditions` are
        those of the groups around. Raises BadSpace if groups are nested too deeply or a name is not
        valid.
        """
        if len(path) > _DEEPEST:
            deep = f"groups are nested too deeply here: at most {_DEEPEST} are allowed"
            raise self.source.refuse(path[:4], "…", problem=deep)
        for part, item in raw.items():
            inner_path = (*path, str(part))
            name = self._name(prefix, part, inner_path)
            inner = self._group_members(item, inner_path)
            if inner is None:
                yield Entry(name, inner_path, item, conditions)
                continue
            below, members = inner
            more = (((*inner_path, "when"), item["when"]),) if "when" in item else ()
            yield from self.parameters(
                f"{name}.", (*inner_path, *below), members, (*conditions, *more)
            )

    def _group_members(self, item: Any, path: KeyPath) -> tuple[KeyPath, Mapping[str, Any]] | None:
        """Return the path from a group to its members, and the members, name → description.

        The path is ``("parameters",)`` or empty. Returns None if `item` is a parameter. Raises
        BadSpace as `_named_members` does.
        """
        if not isinstance(item, Mapping):
            return None
        if isinstance(item.get("parameters"), Mapping):
            return ("parameters",), self._named_members(item, path)
        members = {part: inner for part, inner in item.items() if part != "when"}
        holds = any(isinstance(inner, Mapping) for inner in members.values())
        return ((), members) if holds and not self.words & members.keys() else None

    def _named_members(self, item: Mapping[str, Any], path: KeyPath) -> Mapping[str, Any]:
        """Return the members below a group's key ``parameters``.

        Raises BadSpace if there are none, and for keys next to it except ``when``.
        """
        for word in item:
            if word not in ("parameters", "when"):
                raise self.source.refuse(
                    (*path, word),
                    word,
                    hint=f"move {shorten(word)} under parameters",
                    problem="a group with the key 'parameters' may have only 'when' beside it",
                )
        members: Mapping[str, Any] = item["parameters"]
        if not members:
            hint, problem = "write a parameter in it, or remove it", "the group is empty"
            raise self.source.refuse((*path, "parameters"), {}, hint=hint, problem=problem)
        return members

    def _name(self, prefix: str, part: object, path: KeyPath) -> str:
        """Return the dotted name of a group's member `part`: `prefix` and `part`.

        Raises BadSpace unless `part` is a text of letters, digits, ``_``, ``-`` and dots between
        these, and the name has at most `_LONGEST_NAME` characters.
        """
        allowed = f"up to {_LONGEST_NAME} letters, digits, _ and -, in parts joined by dots"
        if not isinstance(part, str):
            problem = f"the name {shorten(part)} is not text"
            raise self.source.refuse(path, part, allowed, problem=problem)
        name = prefix + part
        if len(name) > _LONGEST_NAME or not NAME.fullmatch(part):
            raise self.source.refuse(path, name, allowed)
        return name
