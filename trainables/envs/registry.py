"""Environments that users register by name, and the arguments of their creators.

    register_env("maze", lambda config: Maze(config["size"]))

Names are known in this process. A creator that can be imported is found in child processes by its
dotted path.

The creator's signature decides its arguments. One that needs a single positional argument gets the
whole of env_config, as an `EnvContext`: ``lambda _: gym.make(…)``, ``def __init__(self, cfg)``. Any
other gets env_config as keyword arguments, as in gymnasium; so does one whose parameter is a key of
env_config, or is annotated as a number or a text.
"""

import inspect
import itertools
from collections.abc import Callable, Container, Mapping
from typing import Any

import gymnasium

from trainables.core.importing import entry_point_path, import_path_of
from trainables.core.settings import WrongKey
from trainables.errors import ConfigError, NotImportable, shorten

#: Function of the environment's settings that returns a new environment.
Creator = Callable[..., Any]

#: Group of the entry points with which installed packages name their environments.
GROUP = "trainables.envs"

#: Names of a creator's only parameter that make it get an `EnvContext`, even with a default.
CONTEXT_NAMES = ("env_config", "config", "context")
#: Annotations of parameters that cannot take the whole of env_config.
_SCALARS = (int, float, bool, str, "int", "float", "bool", "str")

#: Kinds of parameters that can be given by position.
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Name → creator.
_creators: dict[str, Creator] = {}


class EnvContext(dict[str, Any]):
    """The dict ``env_config`` that an environment's creator gets, with its place in a trainer.

    Args:
        worker_index: index of the worker, from 0; always 0 without child processes.
        vector_index: index among the worker's environments, from 0.
        remote: True if it runs in a process of its own.
        num_workers: number of child processes that collect.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        worker_index: int = 0,
        vector_index: int = 0,
        remote: bool = False,
        num_workers: int = 0,
    ) -> None:
        super().__init__(env_config)
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.remote = remote
        self.num_workers = num_workers

    def copy_with_overrides(
        self, env_config: Mapping[str, Any] | None = None, **indices: Any
    ) -> "EnvContext":
        """Return a copy with another `env_config` or other attributes; None leaves one as it is.

        `indices` are attribute → value, of `worker_index`, `vector_index`, `remote`, `num_workers`.
        """
        given = {name: value for name, value in indices.items() if value is not None}
        return EnvContext(self if env_config is None else env_config, **{**vars(self), **given})


def register_env(name: str, creator: Creator) -> None:
    """Register a class or function as the environment `name`, which precedes gymnasium's ids.

    This holds in this process, and replaces an earlier registration of the name. Raises ConfigError
    if it is not callable.
    """
    if not callable(creator):
        raise ConfigError(
            f"register_env({name!r}, {shorten(creator)})",
            creator,
            problem="the second argument must be a class or function that makes the environment, "
            f"not of the type {type(creator).__name__}",
        )
    _creators[name] = creator


def find(name: str) -> Creator | None:
    """Return the class or function registered under `name` in this process, or None."""
    return _creators.get(name)


def registered() -> list[str]:
    """Return the names that were registered with `register_env`, sorted."""
    return sorted(_creators)


def to_name(env: Any) -> Any:
    """Convert a value of the setting ``env`` to a string.

    Classes, functions and entry points of installed packages become their dotted path. Without one,
    a class is registered by its name, and a function by a generated name. Other strings stay as
    they are.

    Raises ValueError if it is not a string, class or function, or if two packages declare the name;
    the message says what is expected.
    """
    if isinstance(env, str):
        return env if ":" in env or env in _creators else _installed(env)
    if not callable(env):
        raise ValueError("a class, a registered id, or package.module:Name")  # noqa: TRY004 for pydantic
    path = import_path_of(env)
    if path is not None:
        return path
    name = env.__name__ if isinstance(env, type) else _own_name(env)
    register_env(name, env)
    return name


def _installed(name: str) -> str:
    """Return the path of an environment that an installed package declares as an entry point.

    Ids of gymnasium and other names are returned unchanged. Raises WrongKey if two packages
    declare the name.
    """
    if name in gymnasium.registry:
        return name
    try:
        return entry_point_path(GROUP, name) or name
    except NotImportable as error:
        raise WrongKey((), name, problem=str(error)) from error


def importable_path(name: str) -> str:
    """Return the path by which a child process can import the environment `name`.

    A name that was not registered here is returned unchanged. Raises ConfigError if it was, but
    cannot be imported.
    """
    creator = find(name)
    if creator is None:
        return name
    path = import_path_of(creator)
    if path is None:
        where = f"{creator.__module__}.{getattr(creator, '__qualname__', creator)}"
        hint = (
            f"{where} exists in this process alone; move it to the top level of a module, "
            "or do without child processes (num_workers: 0, remote_worker_envs: false)"
        )
        problem = f"child processes cannot import {shorten(name)}"
        raise ConfigError("env", name, hint=hint, problem=problem)
    return path


def call_creator(creator: Creator, context: EnvContext, **keywords: Any) -> Any:
    """Call an environment's class or function, and return the environment.

    It gets `context`, which is `env_config`, as one dict if `_takes_context` finds a parameter for
    it and `context` has no key of that parameter's name, else as keyword arguments; and `keywords`.
    An exception that it raises may get a note about its one argument.
    """
    takes = _takes_context(creator, keywords)
    name = takes.name if takes else ""
    if takes is None or name in context:
        return creator(**context, **keywords)
    try:
        if takes.kind is inspect.Parameter.POSITIONAL_ONLY:
            return creator(context, **keywords)
        return creator(**{name: context}, **keywords)
    except Exception as error:
        if name not in CONTEXT_NAMES:
            error.add_note(f"its only argument, {name}, is the whole dict env_config")
        raise


def argument_code(creator: Creator, env_config: Mapping[str, Any]) -> str:
    """Return Python code of the arguments with which `call_creator` calls a creator.

    It is one dict, or keyword arguments; "" for the latter if `env_config` is empty.
    """
    takes = _takes_context(creator, ())
    if takes is not None and takes.name not in env_config:
        return repr(dict(env_config))
    return ", ".join(f"{key}={value!r}" for key, value in env_config.items())


def _takes_context(creator: Creator, names: Container[str]) -> inspect.Parameter | None:
    """Return the parameter of a creator that takes the whole `env_config`.

    That is its first, positional parameter: if it is the only one and named as in `CONTEXT_NAMES`,
    or if it alone must be given and is not annotated as a number, bool or text. Parameters in
    `names` are not considered. Returns None if the creator takes keyword arguments.
    """
    try:
        all_ = inspect.signature(creator).parameters.values()
    except (TypeError, ValueError):
        return None
    parameters = [one for one in all_ if one.name not in names]
    if not parameters or parameters[0].kind not in _POSITIONAL:
        return None
    first, *others = parameters
    if not others and first.name in CONTEXT_NAMES:
        return first
    alone = _is_needed(first) and not any(_is_needed(other) for other in others)
    return first if alone and first.annotation not in _SCALARS else None


def _is_needed(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter must be given."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in variable


def _own_name(creator: Creator) -> str:
    """Return the name under which a function is registered, or an unused ``module.name``.

    A number from 2 on follows a name that is taken.
    """
    for name, known in _creators.items():
        if known is creator:
            return name
    base = f"{creator.__module__}.{getattr(creator, '__qualname__', type(creator).__name__)}"
    numbered = (f"{base} {number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([base], numbered) if name not in _creators)
