"""Environments that people register by name, and what the creator of one is given.

    register_env("maze", lambda config: Maze(config["size"]))

Names live in this process. A creator that can be imported is found again in child processes by its
dotted path.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from trainables.errors import ConfigError

Creator = Callable[..., Any]

#: A creator whose one parameter has such a name is given an `EnvContext`.
CONTEXT_NAMES = ("env_config", "config", "context")

_creators: dict[str, Creator] = {}


class EnvContext(dict[str, Any]):
    """The environment's settings, and where in a trainer the environment stands.

    Args:
        env_config: the settings; the context is a dict of them.
        worker_index: which worker, from 0; without child processes the only one is 0.
        vector_index: which of the worker's environments, from 0.
        remote: whether it runs in a process of its own.
        num_workers: child processes that collect.
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
        self,
        env_config: Mapping[str, Any] | None = None,
        worker_index: int | None = None,
        vector_index: int | None = None,
        remote: bool | None = None,
        num_workers: int | None = None,
    ) -> "EnvContext":
        """The same context but for what is given."""
        return EnvContext(
            self if env_config is None else env_config,
            self.worker_index if worker_index is None else worker_index,
            self.vector_index if vector_index is None else vector_index,
            self.remote if remote is None else remote,
            self.num_workers if num_workers is None else num_workers,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A dict would leave the places behind on its way to another process."""
        places = (self.worker_index, self.vector_index, self.remote, self.num_workers)
        return EnvContext, (dict(self), *places)


def register_env(name: str, creator: Creator) -> None:
    """Let ``env: name`` mean what `creator` makes; looked up before gymnasium's own ids.

    Args:
        name: what settings say.
        creator: a class or callable; one with a single parameter named ``env_config``, ``config``
            or ``context`` gets an `EnvContext`, any other one env_config as keyword arguments.
    """
    if not callable(creator):
        raise ConfigError("env", name, "a name with a class or callable", f"{creator!r} is neither")
    _creators[name] = creator


def find(name: str) -> Creator | None:
    """What was registered under `name`."""
    return _creators.get(name)


def registered() -> list[str]:
    """The names, sorted."""
    return sorted(_creators)


def named(env: Any) -> Any:
    """The setting ``env`` as a string: a class by its dotted path, or registered by its name.

    Raises:
        ValueError: neither a string nor a class; the message says what is expected.
    """
    if isinstance(env, str):
        return env
    if not isinstance(env, type):
        raise ValueError("a class, a registered id, or package.module:Name")  # noqa: TRY004 pydantic
    path = _dotted(env)
    if path is not None:
        return path
    register_env(env.__name__, env)
    return env.__name__


def portable(name: str) -> str:
    """What a child process can find `name` by.

    Raises:
        ConfigError: it was registered with a creator that only this process knows.
    """
    creator = find(name)
    if creator is None:
        return name
    path = _dotted(creator)
    if path is None:
        where = f"{creator.__module__}.{getattr(creator, '__qualname__', creator)}"
        raise ConfigError(
            "env",
            name,
            "an environment that child processes can import",
            f"{where} exists in this process alone; move it to the top level of a module, "
            "or do without child processes (num_workers: 0, remote_worker_envs: false)",
        )
    return path


def call(creator: Creator, context: EnvContext, **more: Any) -> Any:
    """What `creator` makes, given the context or its settings as keyword arguments."""
    name = _context_name(creator)
    if name is not None and name not in context:
        return creator(context, **more)
    return creator(**context, **more)


def _context_name(creator: Creator) -> str | None:
    try:
        parameters = list(inspect.signature(creator).parameters.values())
    except (TypeError, ValueError):
        return None
    if len(parameters) != 1 or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return None
    return parameters[0].name if parameters[0].name in CONTEXT_NAMES else None


def _dotted(creator: Any) -> str | None:
    """``package.module:Name`` if that leads to `creator` in any process."""
    module, name = getattr(creator, "__module__", None), getattr(creator, "__qualname__", "")
    if module in (None, "__main__") or "." in name or "<" in name:
        return None
    found = getattr(importlib.import_module(module), name, None)
    return f"{module}:{name}" if found is creator else None
