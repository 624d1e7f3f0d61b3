"""A stack: places for lanes of one shape, which compute their iterations together on one device.

L places. The state of a lane is stored on the device, and copied to the host by `Stack.take`.
Several stacks compute at the same time, and compile their programs at the same time.
"""

import functools
import os
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np

from trainables.stacks.evaluation import Played, Request, evaluate
from trainables.stacks.lanes import Shape, Tree, iterate

#: Folder of compiled programs, in the user's cache folder.
_CACHE = "sweep-jax"


class Program:
    """A function of arrays that is compiled by its first call, once for all threads.

    Later calls must have arguments of the same shapes and dtypes.

    Args:
        function: the function.
        donated: indices of arguments whose memory the results may take.
    """

    def __init__(self, function: Callable[..., Tree], donated: tuple[int, ...] = ()) -> None:
        self._function = jax.jit(function, donate_argnums=donated)
        self._compiled: Callable[..., Tree] | None = None
        self._compiling = threading.Lock()

    def __call__(self, *arguments: Any) -> Tree:
        """Return the results of the function, after compiling it in the first call.

        Calls in other threads wait for the compilation. Arguments that are donated must not be used
        afterwards.
        """
        with self._compiling:
            if self._compiled is None:
                self._compiled = self._function.lower(*arguments).compile()
        return self._compiled(*arguments)


#: (kind, shape, number of lanes) → program, which stacks share.
_programs: dict[tuple[str, Shape, int], Program] = {}


class Stack:
    """Places on one device for the states of trials that are trained together by one program.

    There are at least `width` places, a multiple of the number of groups. On a CPU there is a group
    per core, at most `width`; each is computed in one thread, its trials one after the other: this
    is fastest for small matrices, and the cost of a trial depends on its own settings only. On
    other devices there is one group, whose trials are computed at once.
    """

    def __init__(self, shape: Shape, width: int) -> None:
        _keep_programs()
        self.shape, self.width = shape, width
        self._at_once = jax.default_backend() != "cpu"
        groups = 1 if self._at_once else min(len(os.sched_getaffinity(0)), width)
        self._group_size = -(-width // groups)
        self._settings: list[Tree] = [None] * groups
        self._lanes: list[Tree] = [None] * groups
        self._fetched: list[dict[str, Tree]] = [{} for _ in range(groups)]
        """For each group, name of a field → its trees of arrays (places, …) on the host.

        They were fetched since the states of the group last changed.
        """
        self._free = set(range(groups * self._group_size))

    @property
    def is_empty(self) -> bool:
        """True if no place is occupied."""
        return len(self._free) == len(self._lanes) * self._group_size

    def reserve(self) -> int | None:
        """Occupy a free place and return its index; None if there is none.

        Places are chosen so that groups have equally many trials.
        """
        if not self._free:
            return None
        place = min(self._free, key=lambda place: divmod(place, self._group_size)[::-1])
        self._free.remove(place)
        return place

    def release(self, place: int) -> None:
        """Free a place for another trial; the state in it stays until then."""
        self._free.add(place)

    def put(self, place: int, settings: Tree, lane: Tree) -> None:
        """Copy a trial's settings and state, trees of arrays, into a place on the device.

        The first call for a group of places allocates the arrays of all of them.
        """
        group, index = divmod(place, self._group_size)
        self._fetched[group].clear()
        if self._lanes[group] is None:
            self._settings[group] = _repeated(settings, self._group_size)
            self._lanes[group] = _repeated(lane, self._group_size)
        self._settings[group] = _put(self._settings[group], index, settings)
        self._lanes[group] = _put(self._lanes[group], index, lane)

    def take(self, place: int, field: str) -> Tree:
        """Return a copy on the host of a field, by name, of the trial's state in a place.

        The field is fetched for all trials of the place's group, and kept until their states
        change.
        """
        group, index = divmod(place, self._group_size)
        fetched = self._fetched[group]
        if field not in fetched:
            fetched[field] = jax.tree.map(np.asarray, getattr(self._lanes[group], field))
        return jax.tree.map(lambda every: np.array(every[index]), fetched[field])

    def by_group(self, inputs: Mapping[int, Tree]) -> dict[int, dict[int, Tree]]:
        """Return inputs by place as group → index in the group → input."""
        found: dict[int, dict[int, Tree]] = {}
        for place, own in inputs.items():
            group, index = divmod(place, self._group_size)
            found.setdefault(group, {})[index] = own
        return found

    def place(self, group: int, index: int) -> int:
        """Return the index of the place that is `index`-th in a group."""
        return group * self._group_size + index

    def step_group(self, group: int, rates: Mapping[int, Tree]) -> Tree:
        """Compute one iteration of those trials of a group that are in `rates`.

        `rates` are index in the group → scheduled settings; the states of other trials do not
        change. Returns the outcomes of all of the group's places (axis 0) as numpy arrays, which
        are zeros for those others.
        """
        every, busy = self._in_lanes(rates)
        self._fetched[group].clear()
        program = self._program("iterate", self.shape, iterate, donated=(1,))
        given = self._settings[group], self._lanes[group], every, busy
        self._lanes[group], outcome = program(*given)
        return jax.tree.map(np.asarray, outcome)

    def evaluate_group(self, shape: Shape, group: int, requests: Mapping[int, Request]) -> Played:
        """Play the evaluations of those trials of a group that are in `requests`.

        `requests` are index in the group → evaluation, `shape` is the shape of the evaluating
        program. Returns the episodes of all of the group's places (axis 0) as numpy arrays, which
        are zeros for places without a request.
        """
        lanes, (every, busy) = self._lanes[group], self._in_lanes(requests)
        program = self._program("evaluate", shape, evaluate)
        given = self._settings[group], lanes.learnt.weights, lanes.seen, every, busy
        played: Played = jax.tree.map(np.asarray, program(*given))
        return played

    def _in_lanes(self, inputs: Mapping[int, Tree]) -> tuple[Tree, Any]:
        """Return inputs, index in the group → tree, stacked along axis 0 for all of its places.

        Also returns flags (places,), True for those that have an input; others get the input of one
        that has. There must be at least one input.
        """
        anyones = next(iter(inputs.values()))
        each = [inputs.get(index, anyones) for index in range(self._group_size)]
        every = jax.tree.map(lambda *columns: np.stack(columns), *each)
        return every, np.array([index in inputs for index in range(self._group_size)])

    def _program(
        self, kind: str, shape: Shape, function: Callable[..., Tree], donated: tuple[int, ...] = ()
    ) -> Program:
        """Return the program that computes `function` for the trials of a group.

        Programs are kept by (kind, shape, size of a group) for all stacks. `donated` are indices of
        arguments whose memory the results may take.
        """
        key = (kind, shape, self._group_size)
        if (found := _programs.get(key)) is not None:
            return found
        made = Program(functools.partial(function, shape, self._at_once), donated)
        return _programs.setdefault(key, made)  # another thread may have been first


def step(rates: Mapping[Stack, Mapping[int, Tree]]) -> dict[Stack, dict[int, Tree]]:
    """Compute one iteration of some trials of each stack; other trials are not changed.

    `rates` are stack → place → scheduled settings of the iteration's rounds. Returns stack → place
    → outcome, as numpy arrays, computed in threads. The first call of a shape compiles its program.
    An error is raised after all threads have ended.
    """
    return _compute({stack: (stack, stack.step_group, own) for stack, own in rates.items()})


def play_evaluations(
    requests: Mapping[tuple[Stack, Shape], Mapping[int, Request]],
) -> dict[tuple[Stack, Shape], dict[int, Played]]:
    """Play the episodes of evaluations, which do not change the trials' states.

    `requests` are (stack, shape of the evaluating program) → place → evaluation. Returns the same
    keys → place → episodes.
    """
    return _compute(
        {
            (stack, shape): (stack, functools.partial(stack.evaluate_group, shape), own)
            for (stack, shape), own in requests.items()
        }
    )


#: Compute a group of a stack, by its index, with inputs by index in the group.
_Compute: TypeAlias = Callable[[int, Mapping[int, Tree]], Tree]
_Key = TypeVar("_Key", bound=Hashable)


def _compute(
    work: Mapping[_Key, tuple[Stack, _Compute, Mapping[int, Tree]]],
) -> dict[_Key, dict[int, Tree]]:
    """Compute (stack, function of a group, inputs by place) of each key in threads.

    Returns key → place → result. The groups of all stacks are computed in as many threads as there
    are processors, the first groups of all stacks first, as the first group of a stack compiles its
    program. If one raises an error, it is raised here after all have ended.
    """
    tasks = [
        (key, group, inputs)
        for key, (stack, _, own) in work.items()
        for group, inputs in stack.by_group(own).items()
    ]
    tasks.sort(key=lambda task: task[1])

    def run(task: tuple[_Key, int, Mapping[int, Tree]]) -> Tree:
        """Compute one group of lanes."""
        key, group, inputs = task
        return work[key][1](group, inputs)

    computing = [_threads().submit(run, task) for task in tasks]
    wait(computing)  # also after an error: its lanes are replaced once this returns
    results = [one.result() for one in computing]
    found: dict[_Key, dict[int, Tree]] = {key: {} for key in work}
    for (key, group, inputs), result in zip(tasks, results, strict=True):
        stack = work[key][0]
        for index in inputs:
            own = jax.tree.map(lambda every, i=index: every[i], result)
            found[key][stack.place(group, index)] = own
    return found


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Return this process's pool of threads that compute groups, one per processor.

    It is made by the first call.
    """
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "stack")


@functools.partial(jax.jit, donate_argnums=(0,))
def _put(every: Any, place: int, entry: Any) -> Any:
    """Return the tree `every` of arrays (L, …) with the arrays of `entry` at index `place`.

    The result takes the memory of `every`, which must not be used afterwards.
    """
    return jax.tree.map(lambda many, own: many.at[place].set(own), every, entry)


def _repeated(tree: Any, count: int) -> Any:
    """Return a tree of arrays as numpy arrays, repeated `count` times along a new axis 0."""
    return jax.tree.map(lambda own: np.repeat(np.asarray(own)[None], count, axis=0), tree)


def _keep_programs() -> None:
    """Let JAX store compiled programs in the user's cache, so that later processes can load them.

    Only programs that took a second or longer to compile are stored. The folder is made if it does
    not exist. It is not used if it cannot be made, or if it belongs to another user or others can
    write to it, because loading a program means running it. Does nothing if JAX already has a cache
    folder.
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
