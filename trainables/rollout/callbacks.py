"""User callbacks, called while a trainer works: a class, or a function per phase.

    class Curriculum(Callbacks):
        def on_episode_end(self, *, worker, episode, error):
            episode.custom_metrics["falls"] = episode.user_data["falls"]

    PPO({"env": "CartPole-v1", "callbacks": "my_package.my_module:Curriculum"})

Methods of a class are given keyword arguments; functions of a dict ``{phase: function}`` are given
one dict with the same entries. The trainer's process and each child that collects have one
callbacks object each, made from the same source.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from trainables.checkpoint.normal_form import normalise
from trainables.core.importing import import_path_of, load_callable
from trainables.core.settings import Section
from trainables.errors import CallbackError, ConfigError, nearest, shorten, type_of

#: A callback that is a function of one dict, as in RLlib.
Function = Callable[[dict[str, Any]], Any]


class CallbacksConfig(Section):
    """Settings that name the user's callbacks."""

    callbacks: Any = Field(
        default=None,
        description="package.module:Class, a subclass of trainables.Callbacks; or a dict, event "
        "(such as on_episode_end) → path of a function that gets one dict (docs/callbacks.md). "
        "null: no callback.",
    )


class Callbacks:
    """Base class of callbacks; every method does nothing.

    An episode has ``episode_id``, ``worker_index``, ``env_index``, ``length``, ``total_reward``,
    ``last_observation`` and ``last_info``, and four dicts to write into: ``user_data`` (anything
    plain), ``custom_metrics`` (name → number), ``hist_data`` (name → list of numbers) and ``media``
    (name → picture, list of pictures or table, for MLflow). The methods ``policy_for(agent)``,
    ``last_action_for(agent)`` and others of `AgentRecords` (`trainables.rollout.episodes`) answer
    questions about its agents.

    A method is given those of a phase's arguments that are among its parameters, by name. Beside
    the ones below, the phases of an episode have ``base_env`` (the worker's environments),
    ``policies`` (name → actor) and ``env_index``.

    A class with state that affects later decisions also defines ``get_state() -> plain data`` and
    ``set_state(state)``; checkpoints then contain this state.

    The methods of an episode are called in evaluations as well, where ``worker.in_evaluation`` is
    True. There each episode has its own callbacks object, in the state of the trainer's object, so
    that neither training nor other episodes depend on it.
    """

    columns: ClassVar[frozenset[str]] = frozenset()
    """Names of additional columns, those of `trainables.rollout.batch.REQUESTABLE`.

    The data of `on_sample_end` and `on_postprocess_traj` have them beside the usual columns.
    """

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        """Act before the first observation of the episode, and before the reset that returns it.

        An environment that calls the trainer has begun the episode already.
        """

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        """Act after the first observation of the episode."""

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        """Act after each step; length, reward, observation and info include that step.

        It is called for the last step, too, but not for one in which the environment failed.
        """

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        """Act after the last step of the episode.

        `error` is the exception of a faulty episode's environment, or None. It is not called for
        episodes that are dropped, by the restore of a checkpoint or as policies change.
        """

    def on_postprocess_traj(
        self,
        *,
        agent_id: str,
        episode: Any,
        pre_batch: dict[str, Any],
        post_batch: dict[str, Any],
        all_pre_batches: dict[str, Any],
    ) -> None:
        """Act in the trainer on one piece of an episode, before it is learnt from or stored.

        A trainer refuses it with several policies, ``data_parallel``, ``fake_sampler``, experience
        that is read from files, and environments that call the trainer.

        Args:
            agent_id: always ``agent0``.
            episode: episode of the piece, as it was when it or the fragment ended.
            pre_batch: column → array (rows, …) as sampled, a copy.
            post_batch: column → array (rows, …); changes written into the arrays are learnt from.
                With advantages it has those and the value targets; with a replay the columns that
                are stored.
            all_pre_batches: ``agent0`` → (the policy that learns, `pre_batch`).
        """

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        """Act, in the worker's process, on the sample that it collected, before it is sent.

        Its ``fragments`` and their arrays may be changed in place. With several agents it has
        ``policy_batches``, policy → sample. With ``fake_sampler`` it is called for the first sample
        only.
        """

    def on_train_result(self, *, trainer: Any, result: dict[str, Any]) -> None:
        """Act, in the trainer's process, on a complete result; changes to `result` are logged."""


#: Argument → its additional name in the dict that functions are given.
CLASSIC_NAMES: Mapping[str, str] = {"base_env": "env", "policies": "policy"}
#: Arguments of callbacks of episodes.
OF_EPISODES = ("worker", "base_env", "policies", "episode", "env_index")
#: Names of all callbacks.
PHASES = tuple(name for name in vars(Callbacks) if name.startswith("on_"))
EPISODE_PHASES = tuple(name for name in PHASES if name.startswith("on_episode_"))
"""Phases of an episode (``on_episode_…``), the only ones that evaluations call as well."""
WHOLE_EPISODE_PHASES = (*EPISODE_PHASES, "on_postprocess_traj")
"""Phases of episodes and ``on_postprocess_traj``, whose callbacks must see an episode from its
beginning."""
PHASE_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(EPISODE_PHASES, OF_EPISODES),
    "on_episode_end": (*OF_EPISODES, "error"),
    "on_postprocess_traj": ("agent_id", "episode", "pre_batch", "post_batch", "all_pre_batches"),
    "on_sample_end": ("worker", "samples"),
    "on_train_result": ("trainer", "result"),
}
"""Phase → names of its arguments."""


class Calls:
    """The user's callbacks in one process: ``calls(phase, **arguments)`` calls those of a phase.

    Creating the object imports the functions, or makes an object of the class.

    Args:
        source: value of the setting ``callbacks``: a class, or phase → function.

    Raises:
        ConfigError: `source` has an unknown phase, names nothing that can be called or no
            `Callbacks` class, or a method needs an argument that its phase does not have.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._functions = _functions(source) if isinstance(source, Mapping) else None
        self._own = None if self._functions is not None else _instance(source)
        self._accepted = {} if self._own is None else _accepted_arguments(self._own)
        """Phase → those of its arguments that the object's method takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the import paths, from which another process makes callbacks of its own."""
        return Calls, (self.portable(),)

    def portable(self) -> Any:
        """Return the source as import paths: one of the class, or phase → path of its function.

        Raises ConfigError if another process cannot import it.
        """
        if isinstance(self._source, Mapping):
            return {phase: _dotted(self._source[phase]) for phase in self._functions or ()}
        return _dotted(self._source)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that the callbacks class requests; empty for functions."""
        return frozenset(getattr(self._own, "columns", ()))

    @property
    def empty(self) -> bool:
        """True if the source is a dict without any function, such as phases that are all None."""
        return self._functions == {}

    def copy_with_state(self, state: Any) -> "Calls":
        """Return new callbacks, with an object of their own, from the same source.

        Their object gets `state`, which `get_state` returned.
        """
        made = Calls(self._source)
        made.set_state(state)
        return made

    def has_functions(self, phase: str) -> bool:
        """Return whether the user has a function or overrides the method of this phase."""
        if self._functions is not None:
            return phase in self._functions
        return getattr(type(self._own), phase, None) is not getattr(Callbacks, phase)

    @property
    def whole_episode_phase(self) -> str:
        """First phase with a callback that must see episodes from their beginning; "" if none."""
        return next((one for one in WHOLE_EPISODE_PHASES if self.has_functions(one)), "")

    def require_no_whole_episodes(self, is_one_object: bool) -> None:
        """Raise ConfigError if a callback must see episodes from their beginning.

        Called for vector environments that reset themselves, whose episodes begin unseen.
        `is_one_object` is True if the environment exists only as a class of many environments, so
        that the advice in the error differs.
        """
        why = "begins its next episodes before a callback can be called"
        phase = self.whole_episode_phase
        if phase and not is_one_object:
            other, undo = f"the callback {phase}", f"remove {phase}"
            place, why = "native_vector_env", f"it {why}"
            raise ConfigError.of_conflict(place, True, other, "false", why, undo)
        if phase:
            problem = f"cannot be used with this environment, whose class {why}"
            hint = (
                "remove it, or give the class AutoresetMode.DISABLED in its metadata and a reset "
                "that knows reset_mask, or make it a class of one environment"
            )
            place, given = f"callbacks.{phase}", shorten(self._source)
            raise ConfigError(place, given, hint=hint, problem=problem)

    def __call__(self, phase: str, **arguments: Any) -> None:
        """Call the phase's function or method, if there is one, with the arguments `arguments`.

        A function is given them as one dict, which has `base_env` also as ``env`` and `policies` as
        ``policy``; a method is given those that it takes. Raises CallbackError if it raised.
        """
        if not self.has_functions(phase):
            return
        try:
            if self._functions is not None:
                named = {
                    CLASSIC_NAMES[n]: one for n, one in arguments.items() if n in CLASSIC_NAMES
                }
                self._functions[phase]({**arguments, **named})
            else:
                read = self._accepted[phase]
                getattr(self._own, phase)(**{name: arguments[name] for name in read})
        except Exception as error:
            raise CallbackError(
                f"callbacks: {self._function_name(phase)} raised in phase {phase}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def get_state(self) -> Any:
        """Return a copy of the state of the user's object, or None if it has no ``get_state``.

        Raises StateError, which names the key, if the state is not plain data.
        """
        getter = getattr(self._own, "get_state", None)
        state = getter() if getter else None
        normalise(state, f"callbacks/{type(self._own).__name__}.get_state()")
        return copy.deepcopy(state)

    def set_state(self, state: Any) -> None:
        """Give the user's object a copy of a state of `get_state`.

        Nothing is done if the state is None or the object has no ``set_state``.
        """
        setter = getattr(self._own, "set_state", None)
        if setter and state is not None:
            setter(copy.deepcopy(state))

    def _function_name(self, phase: str) -> str:
        """Return the path of the phase's function, or of the class that has it, for errors."""
        one = self._source[phase] if self._functions is not None else type(self._own)
        return one if isinstance(one, str) else _name(one)


def make_calls(config: CallbacksConfig) -> Calls | None:
    """Make this process's callbacks from the settings; returns None if they name none.

    Raises ConfigError, as `Calls` does, if they do not name callbacks correctly.
    """
    if config.callbacks is None:
        return None
    calls = Calls(config.callbacks)
    return None if calls.empty else calls


def episode_callbacks(calls: Calls | None) -> Calls | None:
    """Return `calls` if one of its callbacks is of an ``on_episode_…`` phase, or else None."""
    if calls is None or not any(calls.has_functions(phase) for phase in EPISODE_PHASES):
        return None
    return calls


def _functions(source: Mapping[str, Any]) -> dict[str, Function]:
    """Return phase → function from the dict of the setting; phases with None are left out.

    Paths are imported. Raises ConfigError for an unknown phase, or if something cannot be called.
    """
    for phase in source:
        if phase not in PHASES:
            hint = nearest(phase, PHASES).removeprefix("; ")
            hint = hint or f"the known ones are {', '.join(PHASES)}"
            problem = "is not a known callback"
            raise ConfigError(f"callbacks.{phase}", source[phase], hint=hint, problem=problem)
    given = {phase: one for phase, one in source.items() if one is not None}
    return {phase: _callable(f"callbacks.{phase}", one) for phase, one in given.items()}


def _instance(source: Any) -> Callbacks:
    """Call `source`, a class or its path, and return the `Callbacks` object that it makes.

    Raises ConfigError if it cannot be called without arguments, or makes another object.
    """
    make = _callable("callbacks", source)
    allowed = "a class derived from trainables.Callbacks, or a callable that makes one"
    if needed := _needed_arguments(make):
        problem = f"{shorten(source)} needs {', '.join(needed)}, but is called without arguments"
        raise ConfigError("callbacks", source, allowed, problem=problem)
    made = make()
    if not isinstance(made, Callbacks):
        problem = f"{shorten(source)} returned {type_of(made)}"
        raise ConfigError("callbacks", source, allowed, problem=problem)
    return made


def _needed_arguments(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters without a default; empty if the signature is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C have no signature
        return []
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in variable]


def _accepted_arguments(callbacks: Callbacks) -> dict[str, tuple[str, ...]]:
    """Return phase → names of its arguments that the method of `callbacks` takes.

    They are all for a method with ``**kwargs``. Raises ConfigError if a method needs an argument
    that its phase does not have.
    """
    read: dict[str, tuple[str, ...]] = {}
    for phase, given in PHASE_ARGUMENTS.items():
        method = getattr(callbacks, phase)
        parameters = inspect.signature(method).parameters.values()
        if unknown := sorted({*_needed_arguments(method)} - {*given}):
            full = f"{type(callbacks).__name__}.{phase}"
            problem = f"{full} needs {', '.join(unknown)}, which it is not given"
            allowed = f"some of the parameters {', '.join(given)}, or **kwargs"
            raise ConfigError("callbacks", full, allowed, problem=problem)
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
        names = {one.name for one in parameters}
        read[phase] = tuple(name for name in given if takes_all or name in names)
    return read


def _callable(place: str, source: Any) -> Callable[..., Any]:
    """Return `source`, a callable, or import it if it is a path.

    Raises ConfigError, in which `place` names the setting, if it cannot be imported or called.
    """
    if isinstance(source, str):
        return load_callable(place, source, "a class or callable")
    if not callable(source):
        raise ConfigError(place, source, "package.module:Name, or a class or callable")
    made: Callable[..., Any] = source
    return made


def _dotted(source: Any) -> str:
    """Return the import path of `source`; one that is a path already is returned unchanged.

    Raises ConfigError if a child process could not import `source`, as a nested function.
    """
    if isinstance(source, str):
        return source
    path = import_path_of(source)
    if path is None:
        problem = f"child processes cannot import {shorten(source)}"
        hint = (
            "put it at the top of a module and write package.module:Name, or have no children "
            "(num_workers: 0, evaluation_num_workers: 0)"
        )
        raise ConfigError("callbacks", shorten(source), hint=hint, problem=problem)
    return path


def _name(source: Any) -> str:
    """Return ``module:name`` of a class or function, or a shortened text of another object."""
    if not hasattr(source, "__qualname__"):
        return shorten(source)
    return f"{source.__module__}:{source.__qualname__}"
