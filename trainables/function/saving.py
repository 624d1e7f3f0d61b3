"""Finds out from the source of a training function whether its reports have checkpoints."""

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

from trainables.function import objectives
from trainables.function.inspection import TrainingFunction, is_own, module_of, names_in
from trainables.function.thread import report


def never_saves(function: TrainingFunction) -> bool:
    """Return whether it is certain that no report of `function` has a checkpoint.

    Reads the source of the function and of the functions and classes of its module that it names. A
    function that reports in other ways (a second name for `report`, ``**more``) may save, and so
    may one that names something of another module from which `report` can be reached. Of partials,
    methods and callable objects, only objectives of Optuna are looked at; others may save.
    """
    if isinstance(function, FunctionType):
        return _never_saves_itself(function)
    return objectives.is_objective(function) and objectives.never_saves(function)


@functools.cache
def _never_saves_itself(function: FunctionType) -> bool:
    """Return whether it is certain that no report of a plain function has a checkpoint; cached."""
    if objectives.is_objective(function):
        return objectives.never_saves(function)
    return function.__name__ != "<lambda>" and _only_reports(function)


def _only_reports(function: FunctionType) -> bool:
    """Return whether the source of a plain function shows that it reports, but never saves.

    Returns False if the source cannot be read.
    """
    known, calls, homes = {function.__name__: function}, list[ast.Call](), set[str]()
    waiting: list[Any] = [function]
    try:
        while waiting:
            part = waiting.pop()
            tree = ast.parse(textwrap.dedent(inspect.getsource(part)))
            helpers = _third_party_objects(part, function)
            if not _is_plain(tree) or any(map(_imports_report, helpers)):
                return False
            homes.update(map(module_of, helpers))
            calls += (node for node in ast.walk(tree) if _is_call_of_report(node))
            for name, its in _local_definitions(part, function).items():
                if name not in known:
                    known[name] = its
                    waiting.append(its)
    except (OSError, TypeError, SyntaxError):  # no source, or none that stands alone
        return False
    ours = all(_is_ours(call.func, function.__globals__) for call in calls)
    if not (calls and ours) or any(_may_save(call) for call in calls):
        return False
    homes -= sys.stdlib_module_names  # to look through all modules takes a while
    return not homes or _modules_reaching_report().isdisjoint(homes)


def _is_plain(tree: ast.Module) -> bool:
    """Return whether a source only calls `report`, never renames it or passes it on.

    Nothing else may get a ``checkpoint`` argument either.
    """
    nodes = list(ast.walk(tree))
    handed = any(isinstance(node, ast.keyword) and node.arg == "checkpoint" for node in nodes)
    return not handed and sum(map(_is_report, nodes)) == sum(map(_is_call_of_report, nodes))


def _is_call_of_report(node: ast.AST) -> TypeGuard[ast.Call]:
    """Return whether a syntax node is a call of something named ``report``."""
    return isinstance(node, ast.Call) and _is_report(node.func)


def _is_ours(called: ast.expr, names: Mapping[str, Any]) -> bool:
    """Return whether a called expression is the function `report` of this package.

    `names` are the global variables of the function that contains it.
    """
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return getattr(names.get(called.value.id), called.attr, None) is report
    return isinstance(called, ast.Name) and names.get(called.id) is report


def _is_report(node: ast.AST) -> bool:
    """Return whether a syntax node is the name ``report``, or an attribute of that name."""
    word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return word == report.__name__


def _may_save(call: ast.Call) -> bool:
    """Return whether a call of `report` has, or may have (``*``, ``**``), a second argument."""
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    named = any(keyword.arg is None for keyword in call.keywords)  # **more may have one
    return starred or named or len(call.args) > 1


def _local_definitions(part: Any, function: FunctionType) -> dict[str, Any]:
    """Return name → value of the functions and classes of its own module that `part` uses.

    `part` is a function or class that `function` uses, or itself.
    """
    found = {name: function.__globals__.get(name) for name in names_in(part)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, FunctionType | type) and value.__module__ == function.__module__
    }


def _third_party_objects(part: Any, function: FunctionType) -> list[Any]:
    """Return the values of global variables that `part` uses from other modules.

    That is, not from the module of `function`, trainables or sweep.
    """
    named = (function.__globals__.get(name) for name in names_in(part))
    return [one for one in named if not (is_own(at := module_of(one)) or at == function.__module__)]


def _imports_report(helper: Any) -> bool:
    """Return whether a function of another module, or one inside it, uses the name ``report``."""
    return type(helper) is FunctionType and report.__name__ in names_in(helper)


def _modules_reaching_report() -> set[str]:
    """Return the names of imported modules that have `report` of this package as a global.

    Modules that import one of these are included, those of trainables and sweep are not.
    """
    own = sys.modules[report.__module__], sys.modules[__name__.rpartition(".")[0]]
    loaded = {
        name: {
            "report" if one is report or any(one is home for home in own) else module_of(one)
            for one in list(vars(module).values())
            if issubclass(type(one), FunctionType | ModuleType | type)  # asks nothing of lazy ones
        }
        for name, module in list(sys.modules.items())
        if issubclass(type(module), ModuleType) and not is_own(name)
    }
    found, latest = set[str](), {"report", "trainables"}
    while latest:
        latest = {name for name, homes in loaded.items() if homes & latest} - found
        found |= latest
    return found
