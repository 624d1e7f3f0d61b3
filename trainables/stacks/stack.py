"""A stack: places for lanes of one shape, which compute their iterations together on one device.

L places. The state of a lane is stored on the device, and copied to the host by `Stack.take`.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trainables.stacks.evaluation import Played, Request, evaluate
from trainables.stacks.lanes import Shape, Tree, iterate

#: Folder of compiled programs, in the user's cache folder.
_CACHE = "sweep-jax"
#: (shape, L) → the program that evaluates, which stacks of several shapes share.
_evaluating: dict[tuple[Shape, int], Callable[..., Played]] = {}
_compiling_evaluation = threading.Lock()


class Stack:
    """A stack of L places, at least `width`, for lanes of one shape.

    On a CPU the places are distributed over as many threads as there are cores, and each thread
    computes its lanes one after the other: this is fastest for small matrices, and the cost of a
    lane depends on its own settings only. On other devices all lanes are computed at once.
    """

    def __init__(self, shape: Shape, width: int) -> None:
        _keep_programs()
        self.shape = shape
        self._at_once = jax.default_backend() != "cpu"
        groups = 1 if self._at_once else min(len(os.sched_getaffinity(0)), width)
        self._group_size = -(-width // groups)
        self._settings: list[Tree] = [None] * groups
        self._lanes: list[Tree] = [None] * groups
        self._fetched: list[dict[str, Tree]] = [{} for _ in range(groups)]
        """For each group, fields of its lanes copied to the host since the last change."""
        self._threads = ThreadPoolExecutor(groups, "stack") if groups > 1 else None
        self._free = list(range(groups * self._group_size))[::-1]
        self._compiling = threading.Lock()
        self._compiled: Callable[..., tuple[Tree, Tree]] | None = None
        self._put = jax.jit(_with_place, donate_argnums=(0,))

    def reserve(self) -> int | None:
        """Return a free place and occupy it. Returns None if there is none."""
        return self._free.pop() if self._free else None

    def release(self, place: int) -> None:
        """Free a place."""
        self._free.append(place)

    def put(self, place: int, settings: Tree, lane: Tree) -> None:
        """Put a lane and its settings into a place."""
        group, index = divmod(place, self._group_size)
        self._fetched[group].clear()
        if self._lanes[group] is None:
            self._settings[group] = _repeated(settings, self._group_size)
            self._lanes[group] = _repeated(lane, self._group_size)
        self._settings[group] = self._put(self._settings[group], index, settings)
        self._lanes[group] = self._put(self._lanes[group], index, lane)

    def take(self, place: int, field: str) -> Tree:
        """Return a copy of a field of the lane in a place, as arrays on the host."""
        group, index = divmod(place, self._group_size)
        fetched = self._fetched[group]
        if field not in fetched:
            fetched[field] = jax.tree.map(np.asarray, getattr(self._lanes[group], field))
        return jax.tree.map(lambda every: np.array(every[index]), fetched[field])

    def step(self, rates: Mapping[int, Tree]) -> dict[int, Tree]:
        """Compute one iteration of some lanes; the other lanes are not changed.

        `rates` are place → scheduled settings of the iteration's rounds. Returns place → report.
        """
        return self._by_place(self._step_group, rates)

    def evaluate(self, shape: Shape, requests: Mapping[int, Request]) -> dict[int, Played]:
        """Play the episodes of evaluations, which do not change the lanes.

        `shape` is that of the evaluating program, `requests` are place → evaluation. Returns
        place → episodes.
        """
        return self._by_place(functools.partial(self._evaluate_group, shape), requests)

    def _by_place(
        self, compute: Callable[[int, Mapping[int, Tree]], Tree], inputs: Mapping[int, Tree]
    ) -> dict[int, Tree]:
        """Call `compute` with each group and its inputs by index; return place → result.

        The groups are computed in parallel if there are threads; each returns the results of all
        its lanes.
        """
        by_group: dict[int, dict[int, Tree]] = {}
        for place, own in inputs.items():
            group, index = divmod(place, self._group_size)
            by_group.setdefault(group, {})[index] = own
        groups = list(by_group)
        made = self._for_each(lambda group: compute(group, by_group[group]), groups)
        return {
            group * self._group_size + index: jax.tree.map(lambda all_, i=index: all_[i], outcome)
            for group, outcome in zip(groups, made, strict=True)
            for index in by_group[group]
        }

    def _for_each(self, function: Callable[[int], Tree], groups: Sequence[int]) -> Iterable[Tree]:
        """Call a function with each group, in parallel if there are threads; return the results."""
        if self._threads is None or len(groups) < 2:
            return [function(group) for group in groups]
        return list(self._threads.map(function, groups))

    def _step_group(self, group: int, rates: Mapping[int, Tree]) -> Tree:
        """Compute one iteration of a group's busy lanes; return the reports of all its lanes."""
        every, busy = self._in_lanes(rates)
        self._fetched[group].clear()
        given = self._settings[group], self._lanes[group], every, busy
        self._lanes[group], outcome = self._program(*given)(*given)
        return jax.tree.map(np.asarray, outcome)

    def _evaluate_group(self, shape: Shape, group: int, requests: Mapping[int, Request]) -> Played:
        """Play the evaluations of a group's busy lanes; return the episodes of all its lanes."""
        lanes, (every, busy) = self._lanes[group], self._in_lanes(requests)
        given = self._settings[group], lanes.learnt.weights, lanes.seen, every, busy
        with _compiling_evaluation:
            program = _evaluating.get((shape, self._group_size))
            if program is None:
                made = functools.partial(evaluate, shape, self._at_once)
                program = jax.jit(made).lower(*given).compile()
                _evaluating[shape, self._group_size] = program
        played: Played = jax.tree.map(np.asarray, program(*given))
        return played

    def _in_lanes(self, inputs: Mapping[int, Tree]) -> tuple[Tree, Any]:
        """Return inputs by index as arrays (L, …), and flags (L,) of the lanes that have some."""
        anyones = next(iter(inputs.values()))
        each = [inputs.get(index, anyones) for index in range(self._group_size)]
        every = jax.tree.map(lambda *columns: np.stack(columns), *each)
        return every, np.array([index in inputs for index in range(self._group_size)])

    def _program(self, *arguments: Any) -> Callable[..., tuple[Tree, Tree]]:
        """Return the compiled program, which is the same for all groups."""
        with self._compiling:
            if self._compiled is None:
                made = functools.partial(iterate, self.shape, self._at_once)
                self._compiled = jax.jit(made, donate_argnums=(1,)).lower(*arguments).compile()
            return self._compiled


def _with_place(every: Any, place: int, entry: Any) -> Any:
    """Return the tree `every` of arrays (L, …) with the arrays of `entry` at index `place`."""
    return jax.tree.map(lambda many, own: many.at[place].set(own), every, entry)


def _repeated(tree: Any, count: int) -> Any:
    """Return a tree of arrays repeated `count` times along a new axis 0."""
    return jax.tree.map(lambda own: np.repeat(np.asarray(own)[None], count, axis=0), tree)


def _keep_programs() -> None:
    """Let JAX store compiled programs in the user's cache, so that later processes can load them.

    Does nothing if JAX already has a cache folder, or if other users can write to this one, because
    loading a program means running it.
    """
    if jax.config.jax_compilation_cache_dir is not None:
        return
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / _CACHE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
    except (OSError, RuntimeError):
        return
    if about.st_uid == os.getuid() and not about.st_mode & 0o022:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
