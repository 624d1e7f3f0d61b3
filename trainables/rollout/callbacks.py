"""Callbacks of a person, called while a trainer works: a class, or a function per phase.

    class Curriculum(Callbacks):
        def on_episode_end(self, *, worker, episode, error):
            episode.custom_metrics["falls"] = episode.user_data["falls"]

    PPO({"env": "CartPole-v1", "callbacks": "my_package.my_module:Curriculum"})

Methods of a class are given keyword arguments; the functions of a dict ``{phase: function}`` are
given one dict of the same facts. There is one object in the trainer's process and one in each child
that collects, made from the same source.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from trainables.checkpoint.normal_form import normalise
from trainables.core.importing import load, path_to
from trainables.core.settings import Section
from trainables.errors import CallbackError, ConfigError, nearest, shorten

Function = Callable[[dict[str, Any]], Any]


class CallbacksConfig(Section):
    """Settings of the callbacks while the trainer works."""

    callbacks: Any = Field(
        default=None,
        description="package.module:Class of a trainables.Callbacks, or a dict phase → path of a "
        "function that is given one dict; null, for all or for one phase: none.",
    )


class Callbacks:
    """Base class of callbacks; every method does nothing.

    An episode has ``episode_id``, ``worker_index``, ``env_index``, ``length``, ``total_reward``,
    ``last_observation`` and ``last_info``, and four dicts to write into: ``user_data`` (anything
    plain), ``custom_metrics`` (name → number), ``hist_data`` (name → list of numbers) and ``media``
    (name → picture, list of pictures or table, for MLflow). It is asked about its agents by
    ``policy_for(agent)``, ``last_action_for(agent)`` and the other methods of
    `trainables.rollout.agent_records.AgentRecords`.

    A method is given those of a phase's facts that it has parameters for, by their names. Beside
    the ones below, the phases of an episode have ``base_env`` (the worker's environments),
    ``policies`` (name → what acts) and ``env_index``.

    A class that keeps something of its own which decides what it does later also defines
    ``get_state() -> plain data`` and ``set_state(state)``; it then stands in the checkpoints.

    The methods of an episode are called in evaluations as well, where ``worker.in_evaluation`` is
    True. There each episode has an object of its own, in the state of the trainer's: its numbers
    depend on no other episode, and training not on them.
    """

    columns: ClassVar[frozenset[str]] = frozenset()
    """Of samples, beside those that each has: names of `trainables.rollout.batch.REQUESTABLE`, for
    `on_sample_end` and `on_postprocess_traj`."""

    def on_episode_created(self, *, worker: Any, episode: Any) -> None:
        """Before the environment is reset for the episode."""

    def on_episode_start(self, *, worker: Any, episode: Any) -> None:
        """After the first observation."""

    def on_episode_step(self, *, worker: Any, episode: Any) -> None:
        """After each step has been counted: length, reward, observation and info are the step's."""

    def on_episode_end(self, *, worker: Any, episode: Any, error: Exception | None) -> None:
        """After the last step; `error` is what the environment of a faulty episode raised."""

    def on_postprocess_traj(
        self,
        *,
        agent_id: str,
        episode: Any,
        pre_batch: dict[str, Any],
        post_batch: dict[str, Any],
        all_pre_batches: dict[str, Any],
    ) -> None:
        """In the trainer, after the advantages of a piece of one episode have been computed.

        Args:
            agent_id: always ``agent0``.
            episode: the piece's; as it stood at the end of the fragment.
            pre_batch: column → array (rows, …) as sampled, a copy.
            post_batch: column → array (rows, …); what is written into them is learnt.
            all_pre_batches: agent → (policy, its pre_batch).
        """

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        """A worker has collected; `samples.fragments` may be written into before they are sent."""

    def on_train_result(self, *, trainer: Any, result: dict[str, Any]) -> None:
        """A result is complete and not yet logged; what is changed in it is what is logged."""


#: Fact → its other name in the one dict that functions are given.
CLASSIC_NAMES: Mapping[str, str] = {"base_env": "env", "policies": "policy"}
OF_EPISODES = ("worker", "base_env", "policies", "episode", "env_index")
PHASES = tuple(name for name in vars(Callbacks) if name.startswith("on_"))
EPISODE_PHASES = tuple(name for name in PHASES if name.startswith("on_episode_"))
"""The phases that an evaluation calls, too."""
FOLLOWING = (*EPISODE_PHASES, "on_postprocess_traj")
"""The phases that need each episode of a worker from its beginning."""
FACTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(EPISODE_PHASES, OF_EPISODES),
    "on_episode_end": (*OF_EPISODES, "error"),
    "on_postprocess_traj": ("agent_id", "episode", "pre_batch", "post_batch", "all_pre_batches"),
    "on_sample_end": ("worker", "samples"),
    "on_train_result": ("trainer", "result"),
}
"""Phase → what it is called with."""


class Calls:
    """The callbacks of one process, called by phase; ConfigError for what cannot be called."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._functions = _functions(source) if isinstance(source, Mapping) else None
        self._own = None if self._functions is not None else _instance(source)
        self._read = {} if self._own is None else _facts_read(self._own)
        """Phase → those of its facts that the object's method has parameters for."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes its own from the dotted paths."""
        return Calls, (self.portable(),)

    def portable(self) -> Any:
        """The source in dotted paths; ConfigError for what another process cannot import."""
        if isinstance(self._source, Mapping):
            return {phase: _dotted(self._source[phase]) for phase in self._functions or ()}
        return _dotted(self._source)

    @property
    def columns(self) -> frozenset[str]:
        """That a class asks for."""
        return frozenset(getattr(self._own, "columns", ()))

    @property
    def empty(self) -> bool:
        """True if no phase has a function."""
        return self._functions == {}

    def another(self, state: Any) -> "Calls":
        """One from the same source with an object of its own, in this state of `get_state`."""
        made = Calls(self._source)
        made.set_state(state)
        return made

    def wants(self, phase: str) -> bool:
        """Return whether there is anything to call; if not, nothing has to be prepared."""
        if self._functions is not None:
            return phase in self._functions
        return getattr(type(self._own), phase, None) is not getattr(Callbacks, phase)

    @property
    def follow_episodes(self) -> str:
        """The first phase that needs each episode from its beginning; empty: there is none."""
        return next((one for one in FOLLOWING if self.wants(one)), "")

    def require_not_following(self, is_one_object: bool) -> None:
        """Raise ConfigError if a phase needs each episode from its beginning.

        It is asked of environments that restart by themselves, so that nobody sees them begin.
        `is_one_object`: their class can only step them together.
        """
        why = "begins its next episodes before a callback can be called"
        phase = self.follow_episodes
        if phase and not is_one_object:
            raise ConfigError("native_vector_env", True, f"false with {phase}", f"this one {why}")
        if phase:
            allowed = "absent with an environment that restarts by itself"
            hint = (
                f"its class {why}; with AutoresetMode.DISABLED in its metadata and a reset that "
                "knows reset_mask, or as a class of one environment, it can be had"
            )
            raise ConfigError(f"callbacks.{phase}", shorten(self._source), allowed, hint)

    def __call__(self, phase: str, **facts: Any) -> None:
        """Call the phase's function, if there is one; CallbackError if it raised."""
        if not self.wants(phase):
            return
        try:
            if self._functions is not None:
                named = {CLASSIC_NAMES[n]: one for n, one in facts.items() if n in CLASSIC_NAMES}
                self._functions[phase]({**facts, **named})
            else:
                read = self._read[phase]
                getattr(self._own, phase)(**{name: facts[name] for name in read})
        except Exception as error:
            raise CallbackError(
                f"callbacks: {self._named(phase)} raised in phase {phase}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def get_state(self) -> Any:
        """Return the user class's state, or None; StateError, by key, if it is no plain data."""
        getter = getattr(self._own, "get_state", None)
        state = getter() if getter else None
        normalise(state, f"callbacks/{type(self._own).__name__}.get_state()")
        return copy.deepcopy(state)

    def set_state(self, state: Any) -> None:
        """Take back what `get_state` gave."""
        setter = getattr(self._own, "set_state", None)
        if setter and state is not None:
            setter(copy.deepcopy(state))

    def _named(self, phase: str) -> str:
        one = self._source[phase] if self._functions is not None else type(self._own)
        return one if isinstance(one, str) else _name(one)


def make_calls(config: CallbacksConfig) -> Calls | None:
    """The callbacks of this process; None where there are none, which costs nothing."""
    if config.callbacks is None:
        return None
    calls = Calls(config.callbacks)
    return None if calls.empty else calls


def of_episodes(calls: Calls | None) -> Calls | None:
    """The callbacks if any of them is called in an episode; None otherwise."""
    if calls is None or not any(calls.wants(phase) for phase in EPISODE_PHASES):
        return None
    return calls


def _functions(source: Mapping[str, Any]) -> dict[str, Function]:
    for phase in source:
        if phase not in PHASES:
            hint = nearest(phase, PHASES).removeprefix("; ") or ", ".join(PHASES)
            raise ConfigError(f"callbacks.{phase}", source[phase], "one of the phases", hint)
    given = {phase: one for phase, one in source.items() if one is not None}
    return {phase: _callable(f"callbacks.{phase}", one) for phase, one in given.items()}


def _instance(source: Any) -> Callbacks:
    made = _callable("callbacks", source)()
    if not isinstance(made, Callbacks):
        allowed = "a class derived from trainables.Callbacks, or a callable that makes one"
        raise ConfigError("callbacks", source, allowed, f"it made a {type(made).__name__}")
    return made


def _facts_read(own: Callbacks) -> dict[str, tuple[str, ...]]:
    """Return phase → those of its facts that the method takes.

    Raises:
        ConfigError: a method needs what no phase of its name has.
    """
    read: dict[str, tuple[str, ...]] = {}
    for phase, given in FACTS.items():
        parameters = inspect.signature(getattr(own, phase)).parameters.values()
        needed = {
            one.name
            for one in parameters
            if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        }
        if unknown := sorted(needed - set(given)):
            method = f"{type(own).__name__}.{phase}"
            hint = f"{method} needs {', '.join(unknown)}"
            raise ConfigError("callbacks", method, f"parameters {', '.join(given)}", hint)
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
        names = {one.name for one in parameters}
        read[phase] = tuple(name for name in given if takes_all or name in names)
    return read


def _callable(place: str, source: Any) -> Callable[..., Any]:
    if isinstance(source, str):
        return load(place, source, "a class or callable")
    if not callable(source):
        raise ConfigError(place, source, "package.module:Name, or a class or callable")
    made: Callable[..., Any] = source
    return made


def _dotted(source: Any) -> str:
    if isinstance(source, str):
        return source
    path = path_to(source)
    if path is None:
        allowed = "something that a child process can import"
        hint = (
            "put it at the top of a module and write package.module:Name, or have no children "
            "(num_workers: 0, evaluation_num_workers: 0)"
        )
        raise ConfigError("callbacks", shorten(source), allowed, hint)
    return path


def _name(source: Any) -> str:
    if not hasattr(source, "__qualname__"):
        return shorten(source)
    return f"{source.__module__}:{source.__qualname__}"
