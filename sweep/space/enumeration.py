"""The points of a finite space by index, each once, with its conditions and without the forbidden.

    points = Points(space)
    points.count                         how many there are
    points.nth(index)                    one of them, 0 ≤ index < count

Parameters that others need change slower than these. Nothing is listed: of a parameter on which no
condition depends only its number of values counts, and of the others only those values are
remembered that a later condition asks for.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

from sweep.space import Settings, Space
from sweep.space.domains import choice_key
from sweep.space.parameters import Derived, Fixed

#: Combinations of values that conditions ask for, at most.
MOST_STATES = 50_000


@dataclass
class _Node:
    """The state after the parameters before a certain one are settled."""

    values: dict[str, Any]
    """Of the parameters that a later condition asks for."""
    edges: list["_Edge"] = field(default_factory=list)
    count: int = 0
    """Points that begin like this."""


@dataclass(frozen=True)
class _Edge:
    """One value of a parameter, or `times` of them that all lead to the same."""

    value: Any
    times: int
    node: _Node


class Points:
    """The points of a space, whose pinned parameters have one value each.

    Raises:
        BadSpace: it is infinite, or conditions ask for too many combinations.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._deciding = _deciding(space)
        self._names = [n for n in _order(space) if n in space.searched or n in self._deciding]
        self._last_use = self._find_last_uses()
        for name in space.searched:
            domain = space.role(name)
            if name not in space.pinned and domain.size() is None:
                raise space.where.refuse(
                    space.parameters[name].path,
                    domain.describe(),
                    "a finite number of values, since every point is visited",
                    "give it a step, or choose another searcher",
                )
        self._root = _Node({})
        layers = self._forward()
        for node in layers[-1]:
            node.count = 1
        for layer in reversed(layers[:-1]):
            for node in layer:
                node.count = sum(edge.times * edge.node.count for edge in node.edges)

    @property
    def count(self) -> int:
        """The number of points."""
        return self._root.count

    def nth(self, index: int) -> Settings:
        """The point of index `index`, from 0."""
        if not 0 <= index < self.count:
            raise IndexError(f"point {index} of {self.count}")
        proposed = self._walk(index)
        return self._space.resolve(lambda name, _domain: proposed[name])

    def _walk(self, index: int) -> dict[str, Any]:
        node, proposed = self._root, {}
        for name in self._names:
            for edge in node.edges:
                if index < edge.times * edge.node.count:
                    break
                index -= edge.times * edge.node.count
            if edge.times > 1:
                number, index = divmod(index, edge.node.count)
                proposed[name] = self._space.role(name).nth(number)
            elif edge.value is not _ABSENT:
                proposed[name] = edge.value
            node = edge.node
        return proposed

    # ---- counting ---------------------------------------------------------------------------

    def _forward(self) -> list[list[_Node]]:
        """The nodes before each parameter; each is linked to those that may follow."""
        layers, states = [[self._root]], 0
        for position, name in enumerate(self._names):
            following: dict[str, _Node] = {}
            for node in layers[-1]:
                node.edges = self._edges(position, name, node, following)
                states += len(node.edges)
                if states > MOST_STATES:
                    raise self._space.where.refuse(
                        self._space.parameters[name].path,
                        f"more than {MOST_STATES} combinations",
                        "a space whose conditions can be enumerated",
                        "let them depend on parameters with fewer values",
                    )
            layers.append(list(following.values()))
        return layers

    def _edges(
        self, position: int, name: str, node: _Node, following: dict[str, _Node]
    ) -> list[_Edge]:
        edges = []
        for value, times in self._alternatives(name, node.values):
            values = node.values if value is _ABSENT else {**node.values, name: value}
            if any(clause.holds(values) for clause in self._decided[position]):
                continue
            kept = {n: v for n, v in values.items() if self._last_use.get(n, -1) > position}
            key = choice_key(kept)
            edges.append(_Edge(value, times, following.setdefault(key, _Node(kept))))
        return edges

    def _alternatives(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, int]]:
        """Return the values of `name` with counts; values that nothing asks for count as one."""
        if not self._space.is_active(name, values):
            return [(_ABSENT, 1)]
        match self._space.parameters[name].role:
            case Derived() as derived:
                return [(self._space.derive(name, derived, values), 1)]
            case Fixed(value):
                return [(value, 1)]
            case domain if name in self._space.pinned:
                return [(self._space.pinned[name], 1)]
            case domain if name not in self._deciding:
                return [(domain.nth(0), domain.size() or 0)]
            case domain:
                count = min(domain.size() or 0, MOST_STATES + 1)
                return [(domain.nth(index), 1) for index in range(count)]

    @cached_property
    def _decided(self) -> list[list[Any]]:
        """The clauses of ``forbid`` that can be judged once a parameter is settled, for each."""
        found: list[list[Any]] = [[] for _ in self._names]
        for clause in self._space.forbidden:
            found[max(self._names.index(name) for name in clause.names)].append(clause)
        return found

    def _find_last_uses(self) -> dict[str, int]:
        """Name → position of the last parameter or clause that asks for its value."""
        last: dict[str, int] = {}
        for position, name in enumerate(self._names):
            for needed in self._space.parameters[name].needs:
                last[needed] = position
        for position, clauses in enumerate(self._decided):
            for clause in clauses:
                for name in clause.names:
                    last[name] = max(last.get(name, -1), position)
        return last


_ABSENT = object()


def _order(space: Space) -> list[str]:
    """All names, each after those that it needs and as soon after them as can be.

    So what they need is soon forgotten.
    """
    positions = {name: position for position, name in enumerate(space.parameters)}
    sorter = TopologicalSorter({name: space.parameters[name].needs for name in positions})
    sorter.prepare()
    ready: list[tuple[bool, int, str]] = []
    found: list[str] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            alone = not space.parameters[name].needs
            heapq.heappush(ready, (alone, positions[name], name))
        found.append(heapq.heappop(ready)[-1])
        sorter.done(found[-1])
    return found


def _deciding(space: Space) -> set[str]:
    """The parameters whose values conditions ask for, and those from which these derive."""
    asked = [n for p in space.parameters.values() for c in p.when for n in c.names]
    asked += [name for clause in space.forbidden for name in clause.names]
    found: set[str] = set()
    while asked:
        name = asked.pop()
        if name not in found:
            found.add(name)
            asked += space.parameters[name].needs
    return found
