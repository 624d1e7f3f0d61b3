"""The parts of a space that an objective of Optuna's defines by its `suggest_…` calls.

Optuna learns them while trials run. Here they are found before the sweep is created, in a process
that runs the objective with many values up to its last suggestion, and stored in its spec. So
searchers see the whole space from the first trial on, and a resumed sweep has the same one.
"""

import contextlib
import itertools
import linecache
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from typing import Any

from sweep.core import pickled, plugins
from sweep.core.errors import UsageError
from sweep.spec import Override, SweepSpec
from sweep.spec.space import Fixed
from trainables.core.processes import worker
from trainables.function import FunctionTrainable, objectives
from trainables.function.exploration import Exploration, explore
from trainables.trainable import Trainable

#: Limit of the time to explore an objective, in seconds; more time for a call that hangs.
LONGEST_S, HANGING_S = 20.0, 20.0
#: Largest number of parameters in one inferred condition.
_MOST_PARENTS = 2


def is_objective(trainable: type[Trainable]) -> bool:
    """Return whether a trainable is a function written for Optuna."""
    return issubclass(trainable, FunctionTrainable) and objectives.is_objective(trainable.function)


def overrides(spec: SweepSpec, trainable: type[Trainable], paths: Sequence[str]) -> list[Override]:
    """Return overrides for what an objective defines and the spec lacks: parameters, metric name.

    The objective is run many times in a process of its own.

    Args:
        spec: the spec; what its ``space`` and ``config`` have is left as it is.
        trainable: the objective.
        paths: folders in which modules are searched after all installed packages.

    Raises:
        UsageError: the objective raised an error before its first suggestion, makes no suggestion
            although the spec has no space, asks for one name with several ranges, ends its process,
            or hangs.
    """
    function = pickled.pickled_object(trainable)
    name = objectives.name_of(function)
    roles = {key: one.role for key, one in spec.space.parameters.items()}
    fixed = {key: role.value for key, role in roles.items() if isinstance(role, Fixed)}
    config = spec.space.nest(fixed, spec.config)
    exploration = _explore(function, config, frozenset(roles), paths, name)
    if exploration.problem:
        raise UsageError(f"space: {exploration.problem}")
    errors = [run.error for run in exploration.runs if run.error]
    if len(errors) == len(exploration.runs) and not exploration.suggestions:
        raise UsageError(f"trainable: {name} raised {errors[0]}")
    if not exploration.suggestions and ("space",) not in spec.source.marks:
        raise UsageError(
            f"space: the spec has no space, and {name} calls no suggest_… method; write a "
            "space: in the spec"
        )
    added = [
        Override(f"space.{key}", _entry(key, exploration), f"the suggest_… calls of {name}")
        for key in exploration.suggestions
        if key not in roles
    ]
    if added and not exploration.is_finished:
        added[0] = replace(added[0], remark=_unfinished_remark(name, len(exploration.runs)))
    if ("metric",) not in spec.source.marks:
        added.append(Override("metric", "value", f"the value that {name} returns"))
    return added


def _unfinished_remark(name: str, runs: int) -> str:
    """Return the remark that exploring the objective `name` took too long, after `runs` runs."""
    return (
        f"space: {name} was run for {LONGEST_S:.0f} s ({runs} "
        f"time{'' if runs == 1 else 's'}) to find the parameters that it suggests; a trial "
        "that suggests others will fail, so add these to space"
    )


def _entry(name: str, exploration: Exploration) -> Any:
    """Return a parameter as it is written below ``space``, with the condition for its use."""
    entry = exploration.suggestions[name].entry
    when = _condition(name, exploration)
    if not when:
        return entry
    # A bare value has no place for a condition.
    return {**(entry if isinstance(entry, Mapping) else {"choice": [entry]}), "when": when}


def _condition(name: str, exploration: Exploration) -> dict[str, list[Any]]:
    """Return parameter → values on which the objective calls ``suggest_…`` with `name`.

    It is the shortest condition that agrees with all runs. It is empty if `name` is always
    suggested, or if no such condition is certain: then trials have a value of it that they may not
    use.
    """
    using = [run.values for run in exploration.runs if name in run.values]
    runs_without = [
        run.values for run in exploration.runs if run.is_whole and name not in run.values
    ]
    if not runs_without:
        return {}
    able = {
        key: [value for value in few if any(_is_equal(v.get(key), value) for v in using)]
        for key in _earlier_names(name, using)
        if (few := exploration.suggestions[key].values(objectives.FEW)) is not None
        if len(exploration.tried_values(key)) == len(few)
    }
    for count in range(1, _MOST_PARENTS + 1):
        for keys in itertools.combinations(able, count):
            wanted = {key: able[key] for key in keys}
            if not any(_holds(wanted, values) for values in runs_without):
                return wanted
    return {}


def _earlier_names(name: str, using: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names that each of the runs in `using` (name → value) asked for before `name`."""
    earlier = [list(itertools.takewhile(lambda key: key != name, values)) for values in using]
    return [key for key in earlier[0] if all(key in one for one in earlier)]


def _holds(condition: Mapping[str, list[Any]], values: Mapping[str, Any]) -> bool:
    """Return whether a run's `values` fulfil a condition, a mapping of parameter to its values."""
    return all(
        key in values and any(_is_equal(values[key], one) for one in some)
        for key, some in condition.items()
    )


def _is_equal(one: object, other: object) -> bool:
    """Return whether two values have one `repr`, so that they are equal and of one type."""
    return repr(one) == repr(other)


# ---- the process that runs the objective --------------------------------------------------------


def _explore(
    function: object,
    config: Mapping[str, Any],
    fixed_names: frozenset[str],
    paths: Sequence[str],
    name: str,
) -> Exploration:
    """Run an objective with many values in a process of its own; return the calls that it made.

    Blocks for up to `LONGEST_S` seconds, or `HANGING_S` longer if a run hangs. `fixed_names` are
    parameters that the spec's space has, `config` its fixed settings, `paths` folders in which
    modules are searched, and `name` is the objective's. Raises UsageError if the objective cannot
    be pickled, or the process ends or hangs.
    """
    import cloudpickle

    try:
        data = cloudpickle.dumps(function)
    except Exception as error:  # the sweep's creation says more
        why = f"cannot be sent to another process ({type(error).__name__}: {error})"
        todo = "create what it needs inside the function"
        raise UsageError(f"trainable: {name} {why}; {todo}") from error
    executor = worker.start({})
    try:
        with worker.submitting():
            waiting = executor.submit(
                _serve, data, dict(config), fixed_names, paths, _source_lines(function)
            )
        exploration: Exploration = waiting.result(LONGEST_S + HANGING_S)
    except (TimeoutError, BrokenExecutor) as error:
        ended = "its process died" if isinstance(error, BrokenExecutor) else "it hangs"
        raise UsageError(
            f"space: {name} was run to find its parameters, but {ended}; write the "
            "parameters of its suggest_… calls in the spec's space"
        ) from error
    finally:
        worker.end(executor)
    return exploration


def _source_lines(function: Any) -> tuple[str, list[str]]:
    """Return path and lines of the file with a function's source; empty ones if there is none.

    They are from Python's cache of lines, since a notebook's source is not on the disk.
    """
    code = getattr(objectives.plain_function(function), "__code__", None)
    file = getattr(code, "co_filename", "")
    return file, linecache.getlines(file) if file else []


def _serve(
    data: bytes,
    config: Mapping[str, Any],
    fixed_names: frozenset[str],
    paths: Sequence[str],
    source: tuple[str, list[str]],
) -> Exploration:
    """Explore a pickled objective in the child process, and return the calls that it made.

    From now on the process's output is dropped, and W&B is disabled. `paths` are appended to
    `sys.path`. `source` has path and lines of its file, which need not exist here.
    """
    import cloudpickle

    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    os.environ["WANDB_MODE"] = "disabled"  # each run would be one of a trial
    plugins.add_paths(paths)
    file, lines = source
    if lines:
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return explore(cloudpickle.loads(data), config, LONGEST_S, fixed_names)
