"""Parameters of a space, those in groups too: a group's name is the beginning of theirs.

model:                                    model.hidden: {choice: …, when: {policy: mlp}}
  when: {policy: mlp}                     model.layers: {randint: …, when: {policy: mlp}}
  hidden: {choice: [[64], [256]]}
  layers: {randint: [1, 3]}

A group is a mapping with a mapping inside, and without a word such as ``uniform`` that would make
it a parameter; ``when`` in it holds for all that it has. What stands below the word ``parameters``
is in the group whatever it is called.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.errors import KeyPath, Source
from trainables.errors import shorten

MOST_PARAMETERS = 1000
_DEEPEST = 16
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Entry:
    """One parameter as it is written."""

    name: str
    """With dots, those of its groups too."""
    path: KeyPath
    """The place in the space."""
    raw: Any
    conditions: tuple[tuple[KeyPath, Any], ...]
    """Path and data of each ``when`` of its groups, outermost first."""


def entries(raw: Mapping[str, Any], words: frozenset[str], where: Source) -> list[Entry]:
    """The parameters of a space in the order of the file; `words` make a mapping a parameter.

    Raises:
        BadSpace: a name cannot work, or there are too many.
    """
    found: dict[str, Entry] = {}
    for entry in _Walk(words, where).below("", (), raw, ()):
        if entry.name in found:
            at = where.at(found[entry.name].path)
            raise where.refuse(
                entry.path, entry.name, "each name once", f"it stands at {at} too; remove one"
            )
        found[entry.name] = entry
        if len(found) > MOST_PARAMETERS:
            raise where.refuse(
                (), f"more than {MOST_PARAMETERS} parameters", f"at most {MOST_PARAMETERS}"
            )
    return list(found.values())


@dataclass(frozen=True)
class _Walk:
    words: frozenset[str]
    where: Source

    def below(
        self,
        prefix: str,
        path: KeyPath,
        raw: Mapping[str, Any],
        conditions: tuple[tuple[KeyPath, Any], ...],
    ) -> Iterator[Entry]:
        """The parameters of a group."""
        if len(path) > _DEEPEST:
            raise self.where.refuse(path[:4], "…", f"at most {_DEEPEST} groups in each other")
        for part, item in raw.items():
            here = (*path, str(part))
            name = self._name(prefix, part, here)
            inner = self._inner(item, here)
            if inner is None:
                yield Entry(name, here, item, conditions)
                continue
            below, members = inner
            more = (((*here, "when"), item["when"]),) if "when" in item else ()
            yield from self.below(f"{name}.", (*here, *below), members, (*conditions, *more))

    def _inner(self, item: Any, path: KeyPath) -> tuple[KeyPath, Mapping[str, Any]] | None:
        """The members of a group and the path to them; None: it is no group."""
        if not isinstance(item, Mapping):
            return None
        if isinstance(item.get("parameters"), Mapping):
            return ("parameters",), self._named(item, path)
        members = {part: inner for part, inner in item.items() if part != "when"}
        holds = any(isinstance(inner, Mapping) for inner in members.values())
        return ((), members) if holds and not self.words & members.keys() else None

    def _named(self, item: Mapping[str, Any], path: KeyPath) -> Mapping[str, Any]:
        for word in item:
            if word not in ("parameters", "when"):
                raise self.where.refuse((*path, word), word, "beside parameters only when")
        members: Mapping[str, Any] = item["parameters"]
        if not members:
            raise self.where.refuse((*path, "parameters"), {}, "one parameter at least")
        return members

    def _name(self, prefix: str, part: object, path: KeyPath) -> str:
        allowed = f"up to {_LONGEST_NAME} letters, digits, _ and -, in parts joined by dots"
        if not isinstance(part, str):
            problem = f"the name {shorten(part)} is not text"
            raise self.where.refuse(path, part, allowed, problem=problem)
        name = prefix + part
        if len(name) > _LONGEST_NAME or not _NAME.fullmatch(part):
            raise self.where.refuse(path, name, allowed)
        return name
