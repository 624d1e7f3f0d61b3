"""Action masks: the currently valid choices, as the last part of an observation.

An environment gives them in ``info["action_mask"]``, as gymnasium's Taxi does, or in a Dict
observation with the key ``action_mask``, as PettingZoo's games do. Either way the observation
becomes a Dict whose last part is the mask, which is flattened like any other: so fragments, replays
and checkpoints contain it. Networks and filters see the columns before it. A mask has a 0 or a 1
for each choice of each column of an action row.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.calls.contract import EnvContractError
from trainables.envs.spaces.actions import ActionLayout, layout_of
from trainables.errors import ConfigError, EnvError, in_yaml, shorten

Array = NDArray[Any]
#: Place in which an environment gives its masks.
Source = Literal["info", "observation"]
#: Key of a mask.
MASK = "action_mask"


class MaskedObservation(spaces.Dict):
    """The Dict space of an observation whose last part is an action mask of `choices` entries."""

    def __init__(self, parts: Mapping[str, spaces.Space[Any]], choices: int) -> None:
        others = [(key, part) for key, part in parts.items() if key != MASK]
        super().__init__(OrderedDict([*others, (MASK, spaces.MultiBinary(choices))]))
        self.choices = choices


class ActionMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that adds the action mask to observations, as a part of a Dict.

    The mask is 1 for each valid choice. The `source` is ``info`` or ``observation``.

    Raises:
        ConfigError: actions have no choice; or `source` is ``observation``, and observations are
            no Dict of the mask and more.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], source: Source) -> None:
        super().__init__(env)
        layout = layout_of(env.action_space)
        if not layout.choice_columns:
            why = "a mask says which choices are valid, and they have none"
            other = f"the real-valued actions {env.action_space}"
            raise ConfigError.of_conflict(MASK, source, other, "null", why)
        self._in_info = source == "info"
        space = env.observation_space
        parts = getattr(space, "spaces", None) if isinstance(space, spaces.Dict) else None
        if self._in_info:
            parts = {"observation": space}
        elif parts is None or MASK not in parts or len(parts) == 1:
            problem = (
                f"{in_yaml(source)} needs observations that are a Dict with {MASK} and other keys, "
                f"but they are {space}"
            )
            raise ConfigError(MASK, source, hint="set it to info or null", problem=problem)
        self._starts, self._shape = column_starts(layout), (layout.logits,)
        self._length = 0
        self.observation_space = MaskedObservation(parts, layout.logits)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; arguments and results as in gymnasium, the observation with its mask.

        Raises EnvContractError for a missing or invalid mask.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        self._length = 0
        return self.masked(observation, info, is_over=False), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Make one step, as in gymnasium, and add the mask to its observation.

        The mask of a terminated episode may forbid everything. Raises EnvContractError for a
        missing or invalid mask.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._length += 1
        masked = self.masked(observation, info, is_over=bool(terminated))
        return masked, reward, terminated, truncated, info

    def masked(self, observation: Any, info: Any, is_over: bool) -> dict[str, Any]:
        """Return the parts of an observation, with its mask (A,) as int8 under ``action_mask``.

        A mask from `info` is put beside the one part ``observation``. Raises EnvContractError for a
        missing or invalid mask; one that leaves a column of the action without a valid choice is
        invalid unless `is_over`.
        """
        source = info if self._in_info else observation
        given = source.get(MASK) if isinstance(source, Mapping) else None
        mask = None if given is None else _flatten_mask(given)
        if mask is None or mask.shape != self._shape or not ((mask == 0) | (mask == 1)).all():
            raise self._refusal("missing" if given is None else shorten(given))
        if not (is_over or all_columns_choose(mask, self._starts)):
            problem = f"{shorten(given)}, by which a part of the action has no valid choice"
            raise self._refusal(problem)
        parts = {"observation": observation} if self._in_info else observation
        return {**parts, MASK: mask.astype(np.int8)}

    def _refusal(self, problem: str) -> EnvContractError:
        """Return the error for a missing or invalid mask, with the step of the episode."""
        where = f'{"info" if self._in_info else "observation"}["{MASK}"]'
        return EnvContractError(
            f"step {self._length} of its episode: {where} is {problem}; expected {self._shape[0]} "
            "numbers, 1 for each choice that is valid and 0 for the others"
        )


class AgentSpacesEnv(gymnasium.Env[Any, Any]):
    """An environment that has only spaces, those of one agent, so that `ActionMask` can wrap it."""

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def column_starts(layout: ActionLayout) -> Array:
    """Return the index in a mask of each choice column's first choice, (columns of choices,)."""
    sizes = np.array([layout.sizes[column] for column in layout.choice_columns])
    starts: Array = np.cumsum(sizes) - sizes
    return starts


def all_columns_choose(masks: Array, starts: Array) -> bool:
    """Return whether each column of each mask (…, A) has a valid choice.

    `starts` are the columns' first indices, of `column_starts`.
    """
    return bool(np.logical_or.reduceat(masks > 0, starts, axis=-1).all())


def require_valid(rows: Array, layout: ActionLayout) -> None:
    """Raise EnvError if a row's action mask, its last entries, forbids all choices of a column."""
    for index, mask in enumerate(rows[:, -layout.logits :]):
        if not all_columns_choose(mask, column_starts(layout)):
            raise EnvError(
                f"observation {index}: by its {MASK}, {shorten(mask)}, a part of the action has no "
                "valid choice; set at least one number of each part to 1"
            )


def _flatten_mask(mask: Any) -> Array | None:
    """Return a mask, one array or a tuple of one per column, as one array (A,); None for others."""
    try:
        many = isinstance(mask, list | tuple)
        flat: Array = np.hstack(mask) if many else np.ravel(np.asarray(mask))
    except ValueError:
        return None
    return flat if flat.dtype.kind in "biuf" else None
