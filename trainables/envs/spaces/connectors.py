"""Connectors between an environment and a policy: one list of named steps, used wherever it acts.

Rollouts, evaluations, `compute_action` and the exported file all use `Connectors`:

    preprocessor → rows → user's connectors → filter → previous action, reward → policy
    policy → user's connectors → unsquash → clip → unflatten → the environment

The first and the last step act at each environment by itself (`EnvConnector`), all others on the
rows of many at once. Steps have no state. A step may carry a row of numbers from one observation to
the next, which is zero when an episode begins. The caller that steps the environment keeps this row
with the policy's recurrent state. So every checkpoint contains the row, and calling a step twice
changes nothing.

Shapes: N environments, D numbers of an observation, K columns of an action, L numbers that all
steps carry.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from trainables.core.importing import load_callable
from trainables.envs.calls.contract import EnvChecker
from trainables.envs.spaces.actions import ActionAdapter, layout_of, row_of, row_space, unflattener
from trainables.envs.spaces.images import DEFAULT_IMAGE_SETTINGS, ImageSettings, is_image, row_dtype
from trainables.envs.spaces.observations import (
    NoPreprocessor,
    Rows,
    is_wide,
    load_preprocessor,
    make_preprocessor,
)
from trainables.errors import ConfigError, nearest, shorten, type_of

Array = NDArray[Any]
#: A step as the settings name it: a path or a name of `KNOWN`, alone or with its arguments.
Named = str | Mapping[str, Mapping[str, Any]]
OwnSpaces = tuple[spaces.Space[Any], spaces.Space[Any]]
"""Observation space and action space of an environment itself, before any conversion."""
#: Name of the setting.
PLACE = "connectors"
UNFLATTEN = "Unflatten"
"""Name of the step that makes a Tuple or Dict action of a row, in lists and timings."""


class EnvConnector:
    """The two conversions at one environment, in its process: preprocess, and unflatten actions.

    Observations become arrays, and rows become Tuple or Dict actions. It is called before the
    environment's next step, since an environment may overwrite its observations.

    Args:
        observation_space: that of the environment itself.
        action_space: that of the environment itself.
        preprocessor: path of a user's preprocessor, or None.
        settings: settings that decide how images are read.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        preprocessor: str | None = None,
        settings: ImageSettings = DEFAULT_IMAGE_SETTINGS,
    ) -> None:
        self.own_spaces: OwnSpaces = (observation_space, action_space)
        self._own = load_preprocessor(preprocessor, observation_space) if preprocessor else None
        given = observation_space if self._own is None else self._own.observation_space
        self._preprocess, self.note = make_preprocessor(given, settings)
        """Preprocessor, and a warning about its choice or an empty string."""
        self._unflatten = unflattener(action_space)
        self.observes = preprocessor is not None or not isinstance(self._preprocess, NoPreprocessor)
        """True if observations are transformed."""
        self.acts = isinstance(action_space, spaces.Tuple | spaces.Dict)
        """True if actions are transformed."""
        self.observation_space: spaces.Space[Any] = self._preprocess.observation_space
        """Space of what `observe` returns."""
        self.action_space = row_space(action_space) if self.acts else action_space
        """Space of what `act` takes."""
        self.name = type(self._own if preprocessor else self._preprocess).__name__
        """Name of the first step: the class of the user's preprocessor, or of the one chosen."""
        self.depth = self.observes + self.acts
        """Number of conversions, 0 to 2: the environment's wrappers are counted from it in names of
        their random streams."""
        self._checker = EnvChecker(given)
        self._observing = self._acting = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Name of a conversion → total time, seconds; one that changes nothing is absent."""
        observing = {self.name: self._observing} if self.observes else {}
        return {**observing, UNFLATTEN: self._acting} if self.acts else observing

    def observe(self, observation: Any) -> Any:
        """Return an observation of the environment as an array, by the preprocessor.

        It may be the environment's own array, not a copy. Its time is added to `seconds`. A
        preprocessor that flattens or transposes raises EnvError if the observation does not fit,
        and a user's one EnvContractError for its output; otherwise nothing is checked.
        """
        began = perf_counter()
        if self._own is not None:
            observation = self._own(observation)
            if not self._checker.fits(observation):
                observation = self._checker.convert(observation, self.name)
        seen = self._preprocess(observation)
        self._observing += perf_counter() - began
        return seen

    def act(self, row: Any) -> Any:
        """Return the action, in the environment's form, of one row (K,).

        An action that is no Tuple or Dict is returned unchanged. Its time is added to `seconds`.
        """
        began = perf_counter()
        action = self._unflatten(row)
        self._acting += perf_counter() - began
        return action

    def act_all(self, rows: Array) -> Any:
        """Return the actions of rows (N, K) as a vector environment takes them.

        For a Tuple or Dict they are a tuple or dict of arrays (N, …).
        """
        space, own = self.own_spaces[1], [self.act(row) for row in rows]
        batched: Any = create_empty_array(space, len(own))
        return concatenate(space, own, batched)

    def row(self, action: Any) -> Any:
        """Return the row (K,) of an action in the environment's form: the inverse of `act`.

        An action that is no Tuple or Dict is returned unchanged.
        """
        if not self.acts:
            return action
        return row_of(self.own_spaces[1], action).astype(self.action_space.dtype)

    def observe_all(self, observations: Iterable[Any]) -> Array:
        """Return N observations of environments as one new array (N, *O), by the preprocessor."""
        # Copied: a preprocessor may write into the same array again and again.
        return np.stack([np.array(self.observe(one)) for one in observations])

    def invert(self, row: Array) -> Any:
        """Return an observation from which the preprocessor would make this array.

        A preprocessor of the user's own needs a method `invert` for this.
        """
        made = self._preprocess.invert(row)
        own: Any = self._own
        return made if own is None else own.invert(made)


class Connector:
    """One step of the conversions between environment and policy, for all N environments at once.

    Users derive their own class and override what they need. A step must treat each row by itself,
    and must not keep anything between two calls.

    Args:
        observation_space: space of the rows that it gets.
    """

    memory_size = 0
    """Count of numbers, per environment, that the step carries from one observation to the next."""

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space

    def observe(self, rows: Array, memory: Array) -> tuple[Array, Array]:
        """Return rows (N, *S) for the next step, and the new carried numbers (N, M).

        `memory` (N, M) are the carried numbers, zeros at the start of an episode; it must not
        change. By default both are returned unchanged.
        """
        return rows, memory

    def act(self, actions: Array) -> Array:
        """Return actions (N, …) as the next step on their way to the environments takes them.

        By default they are returned unchanged.
        """
        return actions

    def after_actions(self, memory: Array, actions: Array) -> Array:
        """Return the carried numbers (N, M) after these actions (N, …) of the policy.

        The actions are clipped if the settings say so. By default the numbers do not change.
        """
        return memory

    def after_rewards(self, memory: Array, rewards: Array) -> Array:
        """Return the carried numbers (N, M) after the rewards (N,) of the latest actions.

        By default they do not change.
        """
        return memory


class FrameStack(Connector):
    """A step that makes one row of the latest observations of an episode, oldest first.

    Before an episode's first observation there are zeros. Vectors become longer, images deeper.
    `frames` is the number of observations in a row.
    """

    def __init__(
        self, observation_space: spaces.Box, action_space: spaces.Space[Any], frames: int = 4
    ) -> None:
        super().__init__(_stacked(observation_space, frames), action_space)
        self.is_wide = is_wide(observation_space)
        """True if numbers are carried as a high and a low float32 part, exact to 48 bits."""
        parts = 2 if self.is_wide else 1
        self.memory_size = parts * (frames - 1) * int(np.prod(observation_space.shape))

    def observe(self, rows: Array, memory: Array) -> tuple[Array, Array]:
        """Return stacked rows (N, …, frames · D), and the new carried numbers (N, M)."""
        if self.is_wide:
            high, low = np.split(memory.astype(rows.dtype), 2, axis=1)
            memory = high + low
        before = memory.reshape(len(rows), *rows.shape[1:-1], -1).astype(rows.dtype)
        stacked = np.concatenate([before, rows], axis=-1)
        following = stacked[..., rows.shape[-1] :].reshape(len(rows), -1)
        high = following.astype(np.float32)
        if self.is_wide:
            return stacked, np.concatenate([high, (following - high).astype(np.float32)], axis=1)
        return stacked, high


def _stacked(box: spaces.Box, frames: int) -> spaces.Box:
    """Return the space of `frames` stacked observations; ValueError for less than 2."""
    if frames < 2:
        raise ValueError(f"frames is {frames}; expected at least 2")
    # Zeros stand there before an episode's first, whatever the bounds.
    low = np.concatenate([np.minimum(box.low, 0)] * frames, axis=-1)
    high = np.concatenate([np.maximum(box.high, 0)] * frames, axis=-1)
    stacked: spaces.Box = spaces.Box(low, high, dtype=box.dtype.type)
    return stacked


class PreviousAction(Connector):
    """A step that puts the policy's last action before each observation.

    Choices are one-hot, numbers are the policy's own. When an episode begins all columns are 0: the
    first choice, and the middle of a normalised interval.
    """

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Space[Any]) -> None:
        layout = layout_of(action_space)
        super().__init__(
            _extended_space("action", observation_space, layout.head_size), action_space
        )
        self.memory_size = len(layout.sizes)
        widths = np.array([size or 1 for size in layout.sizes])
        self._first = np.cumsum(widths) - widths
        self._width = layout.head_size
        self._choices, self._reals = list(layout.choice_columns), list(layout.real_columns)

    def observe(self, rows: Array, memory: Array) -> tuple[Array, Array]:
        """Return rows (N, A + D), the last action before the rows (N, D); and memory (N, K)."""
        seen = np.zeros((len(rows), self._width), dtype=rows.dtype)
        chosen = self._first[self._choices] + memory[:, self._choices].astype(np.int64)
        seen[np.arange(len(rows))[:, None], chosen] = 1.0
        seen[:, self._first[self._reals]] = memory[:, self._reals]
        return np.concatenate([seen, rows], axis=1), memory

    def after_actions(self, memory: Array, actions: Array) -> Array:
        """Return the actions (N, …) as float32, the new carried numbers (N, K)."""
        return actions.reshape(memory.shape).astype(np.float32)


class PreviousReward(Connector):
    """A step that puts the sum of rewards since the last action before each observation."""

    memory_size = 1

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Space[Any]) -> None:
        super().__init__(_extended_space("reward", observation_space, 1), action_space)

    def observe(self, rows: Array, memory: Array) -> tuple[Array, Array]:
        """Return rows (N, 1 + D), the rewards before the rows (N, D); and the memory (N, 1)."""
        return np.concatenate([memory.astype(rows.dtype), rows], axis=1), memory

    def after_actions(self, memory: Array, actions: Array) -> Array:
        """Return zeros (N, 1): the new action has no reward yet."""
        return np.zeros_like(memory)

    def after_rewards(self, memory: Array, rewards: Array) -> Array:
        """Return the memory (N, 1) with rewards (N,) added: several may come per action."""
        return memory + np.asarray(rewards, dtype=np.float32)[:, None]


def _extended_space(part: str, box: spaces.Box, numbers: int) -> spaces.Box:
    """Return the space of rows with `numbers` more numbers before an observation of `box`.

    Raises ConfigError, about ``lstm_use_prev_`` and `part`, for an image.
    """
    if is_image(box):
        other = f"image observations, here of shape {box.shape}"
        why = f"an image has no place for the previous {part}"
        raise ConfigError.of_conflict(f"model.lstm_use_prev_{part}", True, other, "false", why)
    return spaces.Box(-np.inf, np.inf, (numbers + int(np.prod(box.shape)),), np.float32)


#: Name → connector that the settings may name without a path.
KNOWN: Mapping[str, type[Connector]] = {"FrameStack": FrameStack}
#: Connectors that the settings ``lstm_use_prev_…`` switch on.
PREVIOUS = (PreviousAction, PreviousReward)


def make_named(
    named: Sequence[Named], box: spaces.Box, action_space: spaces.Space[Any]
) -> list[Connector]:
    """Make the connectors that the setting ``connectors`` names, each tried on a row of zeros.

    Each gets the observation space of the one before, the first one `box`. Raises ConfigError if
    one cannot be made, or its output does not fit its space.
    """
    connectors: list[Connector] = []
    for one in named:
        path, arguments = (one, {}) if isinstance(one, str) else next(iter(one.items()))
        known = KNOWN.get(path)
        if known is None and ":" not in path:
            allowed = f"{', '.join(KNOWN)} or package.module:Name"
            hint = nearest(path, KNOWN).removeprefix("; ")
            problem = f"there is no connector {shorten(path)}"
            raise ConfigError(PLACE, path, allowed, hint, problem)
        source: Any = known or load_callable(
            PLACE, path, "a class derived from trainables.Connector"
        )
        connectors.append(_make_and_try(path, source, arguments, box, action_space))
        box = connectors[-1].observation_space
    return connectors


def _make_and_try(
    path: str,
    source: Callable[..., Any],
    arguments: Mapping[str, Any],
    box: spaces.Box,
    action_space: spaces.Space[Any],
) -> Connector:
    """Call `source` with the spaces and `arguments`; try the connector on a row of zeros.

    Raises ConfigError, which names `path`, if it cannot be made, or its output does not fit its
    space.
    """
    row = np.zeros((1, *row_shape(box)), dtype=row_dtype(box))
    allowed = "a class derived from trainables.Connector"
    try:
        made: object = source(box, action_space, **arguments)
        connector = made if isinstance(made, Connector) else Connector(box, action_space)
        memory = np.zeros((1, connector.memory_size), dtype=np.float32)
        observed, following = connector.observe(row, memory)
    except Exception as error:
        raised = f"{type(error).__name__}: {error}".splitlines()[0]
        problem = f"{path} raised {raised} when it was tried with the environment's spaces"
        raise ConfigError(PLACE, path, problem=problem) from error
    if made is not connector:
        problem = f"{path} returned {type_of(made)}"
        raise ConfigError(PLACE, path, allowed, problem=problem)
    shown = row_shape(connector.observation_space)
    if observed.shape != (1, *shown) or following.shape != memory.shape:
        problem = (
            f"observe() of {path} returned for one row an observation of shape {observed.shape} "
            f"and a memory of shape {following.shape}"
        )
        allowed = (
            f"the shapes {(1, *shown)} and {memory.shape}, as its observation_space and "
            "memory_size say"
        )
        raise ConfigError(PLACE, path, allowed, problem=problem)
    return connector


def row_shape(box: spaces.Box) -> tuple[int, ...]:
    """Return the shape of one row for a policy: (D,), or (H, W, C) for an image."""
    return box.shape if is_image(box) else (int(np.prod(box.shape)),)


class Spaces(Protocol):
    """Protocol of an environment's spaces, which `trainables.envs.make.EnvSpaces` fulfils."""

    @property
    def observation(self) -> spaces.Box:
        """Space of the preprocessor's output."""

    @property
    def action(self) -> spaces.Space[Any]:
        """Action space of the environment itself."""

    def at_env(self) -> EnvConnector:
        """Return a new object that converts observations and actions at one environment."""

    def make_steps(self) -> tuple[list[Connector], list[Connector]]:
        """Return new connectors: users' ones, before the filter, and those after the filter."""


class Filtering(Protocol):
    """Protocol of an observation filter, which normalises rows by running statistics."""

    def __call__(self, x: Array, update: bool = True) -> Array:
        """Return normalised rows (N, *S).

        With `update`, the rows are added to the statistics first.
        """


S = TypeVar("S", bound="Connectors")


class Connectors:
    """The whole list of conversions between environments and one policy, filter included.

    Args:
        spaces_: the spaces at its ends.
        name: name of the source of observations, for errors.
        observation_filter: shared with its owner, who synchronises it.
        clip: True to clip actions to the action space's bounds.
        normalize: True to spread the policy's numbers from -1 to 1 over those bounds.
        exact: True to keep rows in float64 if the filter needs numbers that float32 would round.
    """

    def __init__(
        self,
        spaces_: Spaces,
        name: str,
        observation_filter: Filtering,
        clip: bool,
        normalize: bool,
        exact: bool = False,
    ) -> None:
        self._of, self._name = spaces_, name
        self.filter, self.clip, self.normalize = observation_filter, clip, normalize
        self.exact = exact
        self.rows = Rows(spaces_.observation, name, exact)
        """Converts observations (N, *O) to checked rows."""
        self.before, self._behind = spaces_.make_steps()
        self.steps: tuple[Connector, ...] = (*self.before, *self._behind)
        """Connectors that take rows, besides filter, unsquash and clip; usually none."""
        self.adapter = ActionAdapter(spaces_.action, clip, normalize)
        """Converts rows to actions as the environment takes them."""
        self._acting = [one for one in self.steps if type(one).act is not Connector.act]
        ends = np.cumsum([0, *(one.memory_size for one in self.steps)]).tolist()
        self.parts: dict[Connector, slice] = {
            one: slice(*ends[i : i + 2]) for i, one in enumerate(self.steps) if one.memory_size
        }
        """Connector → its columns of the carried numbers (N, L)."""
        self.memory_size: int = ends[-1]
        """Count of carried numbers, L."""
        box = self.before[-1].observation_space if self.before else spaces_.observation
        self._given_size = int(np.prod(box.shape))
        #: Count of columns before those that the filter gets.
        self._added = sum(one.observation_space.shape[0] for one in self._behind[-1:])
        self._added -= self._given_size if self._behind else 0
        wide = self.is_exact and not is_image(box)
        self.given_dtype = np.dtype(np.float64) if wide else row_dtype(box)
        """Dtype of the filter's input."""
        self.seconds = dict.fromkeys(self.names, 0.0)
        """Class name of a connector that takes rows → total time of its `observe`, seconds."""

    @cached_property
    def at_env(self) -> EnvConnector:
        """Object for the conversions at one environment, for callers that have no environment."""
        return self._of.at_env()

    def clipping(self: S, clip: bool) -> S:
        """Return a copy of this list, with the same filter, that clips actions if `clip`."""
        return type(self)(self._of, self._name, self.filter, clip, self.normalize, self.exact)

    @property
    def names(self) -> list[str]:
        """Class names of the steps that act on rows."""
        return [type(one).__name__ for one in self.steps]

    def described(self) -> list[str]:
        """Return the names of all steps, from environment to policy and back, for the log."""
        sent = ["unsquash"] * (self.adapter.spread is not None) + ["clip"] * self.clip
        sent += [UNFLATTEN] * self.at_env.acts
        before, behind = ([type(one).__name__ for one in s] for s in (self.before, self._behind))
        own = [type(one).__name__ for one in self._acting]
        filtered = [type(self.filter).__name__]
        return [self.at_env.name, "rows", *before, *filtered, *behind, "policy", *own, *sent]

    @property
    def is_exact(self) -> bool:
        """True if rows are kept in float64 for the filter."""
        return self.row_dtype == np.float64

    @property
    def row_dtype(self) -> np.dtype[Any]:
        """Dtype of the rows before the filter."""
        return self.rows.dtype

    def initial(self, count: int) -> Array:
        """Return the carried numbers at the start of `count` episodes: zeros (count, L)."""
        return np.zeros((count, self.memory_size), dtype=np.float32)

    def observe(
        self, rows: Array, carried: Array, counted: bool | NDArray[np.bool_] = False
    ) -> tuple[Array, Array]:
        """Convert rows to the networks' input (N, *S).

        Return it with the new carried numbers (N, L).

        `rows` are output of `self.rows`; `carried` (N, L) are the numbers from the previous call,
        and stay as they are. Rows that are `counted` (one bool or (N,)) are added to the filter's
        statistics. The steps' times are added to `seconds`.
        """
        following = carried.copy() if self.parts else carried
        rows = self._run_steps(self.before, rows, carried, following)
        rows = self._filter(rows, counted)
        return self._run_steps(self._behind, rows, carried, following), following

    def observe_both(
        self, rows: Array, carried: Array, counted: bool | NDArray[np.bool_] = False
    ) -> tuple[Array, Array, Array]:
        """Return the networks' input (N, *S), the same without the filter, and new carried numbers.

        The unfiltered rows are of `given_dtype`, for a replay; `filtered_rows` filters them later.
        `rows` are output of `self.rows`, `carried` (N, L) the numbers from the previous call. Rows
        that are `counted` (one bool or (N,)) are added to the filter's statistics.
        """
        following = carried.copy() if self.parts else carried
        rows = self._run_steps(self.before, rows, carried, following)
        seen = self._filter(rows, counted)
        seen = self._run_steps(self._behind, seen, carried, following)
        return seen, self._run_steps(self._behind, rows, carried, following), following

    def unfiltered_rows(self, rows: Array, carried: Array) -> Array:
        """Return rows (N, *S) after all steps but the filter; its statistics do not change.

        Takes output of `self.rows`, and the carried numbers (N, L).
        """
        following = carried.copy() if self.parts else carried
        rows = self._run_steps(self.before, rows, carried, following)
        return self._run_steps(self._behind, rows, carried, following)

    def filtered_rows(self, rows: Array) -> Array:
        """Return the networks' input for unfiltered rows (B, *S), by the present statistics.

        Columns that steps after the filter have added are not filtered. The filter's statistics do
        not change.
        """
        if not self._added:
            return self._filter(rows, False)
        added, rows = rows[:, : self._added], rows[:, self._added :]
        return np.concatenate([added.astype(np.float32), self._filter(rows, False)], axis=1)

    def _filter(self, rows: Array, counted: bool | NDArray[np.bool_]) -> Array:
        """Return rows (N, *S) after the filter, in float32; images of bytes stay so without one.

        Rows that are `counted` (one bool or (N,)) are added to its statistics first.
        """
        if counted is True or counted is False:
            rows = self.filter(rows, update=counted)
        else:
            if counted.any():
                self.filter(rows[counted])
            rows = self.filter(rows, update=False)
        return rows.astype(np.float32) if rows.dtype == np.float64 else rows

    def _run_steps(
        self, steps: Sequence[Connector], rows: Array, carried: Array, following: Array
    ) -> Array:
        """Return rows (N, *S) after `steps`; write the steps' new carried numbers into `following`.

        `carried` and `following` are (N, L). The steps' times are added to `seconds`.
        """
        for one in steps:
            began = perf_counter()
            part = self.parts.get(one, slice(0, 0))
            rows, following[:, part] = one.observe(rows, carried[:, part])
            self.seconds[type(one).__name__] += perf_counter() - began
        return rows

    def send(self, actions: Array) -> Array:
        """Return the policy's actions (N, …) in the environments' form.

        They pass users' connectors, then are spread and clipped as the settings say. Tuple and Dict
        actions are still rows (N, K).
        """
        for one in self._acting:
            actions = one.act(actions)
        return self.adapter(actions)

    def after_actions(self, carried: Array, actions: Array) -> Array:
        """Return the carried numbers (N, L) after actions (N, …) in the policy's form.

        It is a new array, or `carried` itself if no step carries a number.
        """
        if not self.parts:
            return carried
        bounded, following = self.adapter.bounded(actions), carried.copy()
        for one, part in self.parts.items():
            following[:, part] = one.after_actions(carried[:, part], bounded)
        return following

    def after_rewards(self, carried: Array, rewards: Array) -> Array:
        """Return the steps' carried numbers (N, L), updated with the environments' rewards (N,).

        Carried numbers are state from step to step, such as the previous reward. Returns a new
        array, or `carried` itself if no step carries a number.
        """
        if not self.parts:
            return carried
        following = carried.copy()
        for one, part in self.parts.items():
            following[:, part] = one.after_rewards(carried[:, part], rewards)
        return following

    def part(self, kind: type[Connector]) -> slice | None:
        """Return the columns of the carried numbers that belong to the first step of class `kind`.

        Returns None if there is no such step, or it carries no numbers.
        """
        return next((part for one, part in self.parts.items() if type(one) is kind), None)

    def previous(self, carried: Array, action: Any, reward: float | None) -> Array:
        """Return carried numbers (L,) in which the last action and the last reward are replaced.

        Both are in the environment's form; None leaves one as it is. For `compute_action`.
        """
        carried = carried.copy()
        acted, rewarded = self.part(PreviousAction), self.part(PreviousReward)
        if acted is not None and action is not None:
            row = row_of(self._of.action, action).astype(np.float64)
            carried[acted] = self.adapter.inverse(row)
        if rewarded is not None and reward is not None:
            carried[rewarded] = reward
        return carried
