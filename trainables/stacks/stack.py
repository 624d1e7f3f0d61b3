"""A stack: places of one shape, whose lanes make their iterations together on one device.

L places. What a place holds lies on the device, and is fetched when somebody takes it.
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

from trainables.stacks.lanes import Shape, Tree, iterate

#: The folder of compiled programs, in the user's folder of caches.
_CACHE = "sweep-jax"


class Stack:
    """L places, at least `width`, for lanes of one shape.

    On a CPU the places are dealt to as many threads as there are processors, and each thread
    computes its lanes one after the other: small products of matrices are fastest so, and a lane
    costs what its own settings ask for. On other devices all lanes are computed at once.
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
        """Of each group the fields of all its lanes as they are now, in memory of this process."""
        self._threads = ThreadPoolExecutor(groups, "stack") if groups > 1 else None
        self._free = list(range(groups * self._group_size))[::-1]
        self._compiling = threading.Lock()
        self._compiled: Callable[..., tuple[Tree, Tree]] | None = None
        self._put = jax.jit(_with_place, donate_argnums=(0,))

    def reserve(self) -> int | None:
        """Return a place that nobody has. Returns None if there is none."""
        return self._free.pop() if self._free else None

    def release(self, place: int) -> None:
        """Give a place back."""
        self._free.append(place)

    def put(self, place: int, settings: Tree, lane: Tree) -> None:
        """Let a lane stand in a place."""
        group, index = divmod(place, self._group_size)
        self._fetched[group].clear()
        if self._lanes[group] is None:
            self._settings[group] = _repeated(settings, self._group_size)
            self._lanes[group] = _repeated(lane, self._group_size)
        self._settings[group] = self._put(self._settings[group], index, settings)
        self._lanes[group] = self._put(self._lanes[group], index, lane)

    def take(self, place: int, field: str) -> Tree:
        """Return a field of what a place holds, as arrays in memory of this process."""
        group, index = divmod(place, self._group_size)
        fetched = self._fetched[group]
        if field not in fetched:
            fetched[field] = jax.tree.map(np.asarray, getattr(self._lanes[group], field))
        return jax.tree.map(lambda every: np.array(every[index]), fetched[field])

    def step(self, rates: Mapping[int, Tree]) -> dict[int, Tree]:
        """Let lanes make an iteration; the other ones stay as they are.

        Args:
            rates: place → the settings of this iteration's rounds.

        Returns:
            Place → what its lane reports.
        """
        by_group: dict[int, dict[int, Tree]] = {}
        for place, own in rates.items():
            group, index = divmod(place, self._group_size)
            by_group.setdefault(group, {})[index] = own
        groups = list(by_group)
        made = self._for_each(lambda group: self._step_group(group, by_group[group]), groups)
        return {
            group * self._group_size + index: jax.tree.map(lambda all_, i=index: all_[i], outcome)
            for group, outcome in zip(groups, made, strict=True)
            for index in by_group[group]
        }

    def _for_each(self, function: Callable[[int], Tree], groups: Sequence[int]) -> Iterable[Tree]:
        if self._threads is None or len(groups) < 2:
            return [function(group) for group in groups]
        return list(self._threads.map(function, groups))

    def _step_group(self, group: int, rates: Mapping[int, Tree]) -> Tree:
        anyones = next(iter(rates.values()))
        each = [rates.get(index, anyones) for index in range(self._group_size)]
        every = jax.tree.map(lambda *columns: np.stack(columns), *each)
        busy = np.array([index in rates for index in range(self._group_size)])
        self._fetched[group].clear()
        given = self._settings[group], self._lanes[group], every, busy
        self._lanes[group], outcome = self._program(*given)(*given)
        return jax.tree.map(np.asarray, outcome)

    def _program(self, *given: Any) -> Callable[..., tuple[Tree, Tree]]:
        """Return the compiled program, which is the same for all groups."""
        with self._compiling:
            if self._compiled is None:
                made = functools.partial(iterate, self.shape, self._at_once)
                self._compiled = jax.jit(made, donate_argnums=(1,)).lower(*given).compile()
            return self._compiled


def _with_place(every: Any, place: int, one: Any) -> Any:
    return jax.tree.map(lambda many, own: many.at[place].set(own), every, one)


def _repeated(one: Any, count: int) -> Any:
    return jax.tree.map(lambda own: np.repeat(np.asarray(own)[None], count, axis=0), one)


def _keep_programs() -> None:
    """Keep compiled programs in the user's cache, so that the next process need not compile them.

    Nothing is kept where JAX was given a folder already, or where others may write into this one:
    who loads a program runs it.
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
