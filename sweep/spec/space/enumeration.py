"""The points of a finite space by index, each once, without invalid or forbidden ones.

    points = Points(space)
    points.count                         number of points
    points.at_index(index)               one of them, 0 ≤ index < count

Parameters that others need change more slowly than these. Points are not stored: for a parameter on
which no condition depends only its number of values matters, and of the others only those values
are remembered that a later condition uses.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any

from sweep.spec.space import Settings, Space
from sweep.spec.space.domains import choice_key
from sweep.spec.space.parameters import Derived, Fixed

#: Maximum number of combinations of values used by conditions.
MOST_STATES = 50_000


@dataclass
class _Node:
    """A state of the enumeration: the values of the first parameters that matter later."""

    values: dict[str, Any]
    """Name → value of each earlier parameter that a later condition uses."""
    edges: list["_Edge"] = field(default_factory=list)
    """Values that the next parameter can have in this state."""
    count: int = 0
    """Number of ways to complete a point from this state on."""


@dataclass(frozen=True)
class _Edge:
    """One value of the next parameter, or several that lead to the same state."""

    value: Any
    """Value of the parameter, or one of the equivalent ones."""
    times: int
    """Number of the parameter's values that this edge stands for."""
    node: _Node
    """State that the value leads to."""


class Points:
    """All points of a space in a fixed order; pinned parameters have one value each.

    Raises:
        BadSpace: the space is infinite, or conditions use too many combinations.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._deciding_names = _deciding_names(space)
        self._names = [n for n in _order(space) if n in space.searched or n in self._deciding_names]
        self._last_use = self._find_last_uses()
        for name in space.searched:
            domain = space.domain_of(name)
            if name not in space.pinned and domain.size() is None:
                raise space.source.refuse(
                    space.parameters[name].path,
                    domain.describe(),
                    hint="give it a step, or choose another searcher",
                    problem=f"the parameter has infinitely many values ({domain.describe()}), but "
                    "this searcher tries every point",
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
        """Number of points."""
        return self._root.count

    def at_index(self, index: int) -> Settings:
        """Return the point at an index, from 0; IndexError if it is negative or beyond the last.

        Raises BadSpace if an expression that no condition uses has no value there.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"point {index} of {self.count}")
        proposed = self._walk(index)
        return self._space.resolve(lambda name, _domain: proposed[name])

    def _walk(self, index: int) -> dict[str, Any]:
        """Return name → value at the point with this index, of the parameters that are enumerated.

        Inactive ones are left out.
        """
        node, proposed = self._root, {}
        for name in self._names:
            for edge in node.edges:
                if index < edge.times * edge.node.count:
                    break
                index -= edge.times * edge.node.count
            if edge.times > 1:
                number, index = divmod(index, edge.node.count)
                proposed[name] = self._space.domain_of(name).at_index(number)
            elif edge.value is not _ABSENT:
                proposed[name] = edge.value
            node = edge.node
        return proposed

    # ---- counting ---------------------------------------------------------------------------

    def _forward(self) -> list[list[_Node]]:
        """Build and return the lists of states before each parameter and, as the last, at the end.

        The states have edges to those that may follow. Raises BadSpace if there are more than
        `MOST_STATES` edges.
        """
        layers, states = [[self._root]], 0
        for position, name in enumerate(self._names):
            following: dict[str, _Node] = {}
            for node in layers[-1]:
                node.edges = self._edges(position, name, node, following)
                states += len(node.edges)
                if states > MOST_STATES:
                    raise self._space.source.refuse(
                        self._space.parameters[name].path,
                        f"more than {MOST_STATES} combinations",
                        hint="let conditions depend on parameters with fewer values",
                        problem=f"the space's conditions have more than {MOST_STATES} "
                        "combinations, too many for this searcher, which tries all of them",
                    )
            layers.append(list(following.values()))
        return layers

    def _edges(
        self, position: int, name: str, node: _Node, following: dict[str, _Node]
    ) -> list[_Edge]:
        """Return the edges from a state, one for each of `_alternatives` that is not forbidden.

        `name` is the next parameter and `position` its index. The states that the edges lead to are
        added to `following`, by their values in JSON; equal ones become one.
        """
        edges = []
        for value, times in self._alternatives(name, node.values):
            values = node.values if value is _ABSENT else {**node.values, name: value}
            if any(clause.holds(values) for clause in self._clauses_by_position[position]):
                continue
            kept = {n: v for n, v in values.items() if self._last_use.get(n, -1) > position}
            key = choice_key(kept)
            edges.append(_Edge(value, times, following.setdefault(key, _Node(kept))))
        return edges

    def _alternatives(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, int]]:
        """Return (value, number of equivalent values) for a parameter after those in `values`.

        Values that no condition uses are equivalent. An inactive parameter has the value `_ABSENT`.
        """
        if not self._space.is_active(name, values):
            return [(_ABSENT, 1)]
        match self._space.parameters[name].role:
            case Derived() as derived:
                return [(self._space.derive(name, derived, values), 1)]
            case Fixed(value):
                return [(value, 1)]
            case domain if name in self._space.pinned:
                return [(self._space.pinned[name], 1)]
            case domain if name not in self._deciding_names:
                return [(domain.at_index(0), domain.size() or 0)]
            case domain:
                count = min(domain.size() or 0, MOST_STATES + 1)
                return [(domain.at_index(index), 1) for index in range(count)]

    @cached_property
    def _clauses_by_position(self) -> list[list[Any]]:
        """List for each index in `_names`: the clauses of ``forbid`` whose last parameter it is."""
        found: list[list[Any]] = [[] for _ in self._names]
        for clause in self._space.forbidden:
            found[max(self._names.index(name) for name in clause.names)].append(clause)
        return found

    def _find_last_uses(self) -> dict[str, int]:
        """Return name → index in `_names` of the last parameter at which its value is needed.

        That parameter depends on it, or is the last one of a ``forbid`` clause with it. Names that
        nothing needs are left out.
        """
        last: dict[str, int] = {}
        for position, name in enumerate(self._names):
            for needed in self._space.parameters[name].needs:
                last[needed] = position
        for position, clauses in enumerate(self._clauses_by_position):
            for clause in clauses:
                for name in clause.names:
                    last[name] = max(last.get(name, -1), position)
        return last


#: Value of a parameter that is inactive.
_ABSENT = object()


def _order(space: Space) -> list[str]:
    """Return all names, each after those that it needs, and as soon after them as possible.

    So few values must be remembered at a time. Otherwise the order is that of the file.
    """
    positions = {name: position for position, name in enumerate(space.parameters)}
    sorter = TopologicalSorter({name: space.parameters[name].needs for name in positions})
    sorter.prepare()
    ready: list[tuple[bool, int, str]] = []
    ordered: list[str] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            alone = not space.parameters[name].needs
            heapq.heappush(ready, (alone, positions[name], name))
        ordered.append(heapq.heappop(ready)[-1])
        sorter.done(ordered[-1])
    return ordered


def _deciding_names(space: Space) -> set[str]:
    """Return the parameters that conditions use, and those that these need in turn.

    Conditions are those of parameters and of forbidden combinations.
    """
    asked = [n for p in space.parameters.values() for c in p.when for n in c.names]
    asked += [name for clause in space.forbidden for name in clause.names]
    names: set[str] = set()
    while asked:
        name = asked.pop()
        if name not in names:
            names.add(name)
            asked += space.parameters[name].needs
    return names
