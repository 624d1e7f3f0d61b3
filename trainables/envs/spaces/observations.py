"""Observations of every kind as rows of one array.

A policy sees one of two forms: a vector (D,) of float32, or an image (H, W, C) of uint8 or float32.
A vector stays as it is (`NoPreprocessor`) and is reshaped when rows are taken; so does an image (H,
W, C), and one of another layout is transposed (`ImagePreprocessor`). Everything else is flattened,
in the space's own order: choices one-hot, bits and numbers as they are, pixels divided by the
largest that their bounds allow (`images`). N environments.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.core.importing import load_callable
from trainables.envs.spaces.images import (
    PLACE,
    ImagePreprocessor,
    ImageSettings,
    choose_view,
    is_image,
    part_divisor,
    row_dtype,
)
from trainables.envs.spaces.leaves import count_choices, inner, named_leaves
from trainables.errors import ConfigError, EnvError, NotFiniteError, type_of

Array = NDArray[Any]
#: A function that writes an observation into a vector (D,).
Write = Callable[[Any, Array], None]
#: A function that reads an observation from a vector (D,).
Read = Callable[[Array], Any]
#: Spaces that can be flattened.
Leaf = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
#: Largest number of choices of a leaf, each of which is one feature.
MOST_FEATURES = 2**20
#: Space class → name of its preprocessor in RLlib.
NAMES: Mapping[type[spaces.Space[Any]], str] = {
    spaces.Dict: "DictFlatteningPreprocessor",
    spaces.Tuple: "TupleFlatteningPreprocessor",
}


class NoPreprocessor:
    """A preprocessor that leaves observations as they are.

    Raises ConfigError unless it is a Box.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        if not isinstance(space, spaces.Box):
            name = NAMES.get(type(space), "FlatteningPreprocessor")
            other = f"{type(space).__name__} observations"
            why = f"policies read a Box, and only the {name} converts these to one"
            raise ConfigError.of_conflict(
                "preprocessor_pref", None, other, "deepmind or rllib", why
            )
        self.observation_space = space

    def __call__(self, observation: Any) -> Array:
        """Return the observation as an array (*O): itself if it is one, not a copy."""
        return np.asarray(observation)

    def invert(self, row: Array) -> Array:
        """Return an array in the shape (*O) and dtype of the environment's observations."""
        space = self.observation_space
        return row.reshape(space.shape).astype(space.dtype)


class FlatteningPreprocessor:
    """A preprocessor that writes all parts of a nested or discrete space into one vector (D,).

    Choices are one-hot, and images are divided by their largest bound (`part_divisor`). It is of
    float32, or of float64 if float32 would round a number (`is_wide`).

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box, or a Tuple or Dict of these.

    Raises:
        ConfigError: a part of it is none of these, or has too many choices.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        _check_leaves(space)
        self.space = space
        self._write, self._read, self._size = _plan(space, 0)
        wide = any(map(is_wide, named_leaves(space, "observation").values()))
        self._dtype: type[np.floating[Any]] = np.float64 if wide else np.float32
        self.observation_space = spaces.Box(-np.inf, np.inf, (self._size,), self._dtype)

    def __call__(self, observation: Any) -> NDArray[np.floating[Any]]:
        """Return a new vector (D,); raises EnvError if the observation does not fit."""
        row: NDArray[np.floating[Any]] = np.zeros(self._size, self._dtype)
        try:
            self._write(observation, row)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise EnvError(
                f"the observation {observation!r} is not in {self.space} "
                f"({type(error).__name__}: {error})"
            ) from error
        return row

    def invert(self, row: Array) -> Any:
        """Return the observation that the vector `row` (D,) was made from, up to rounding."""
        return self._read(row)


class OwnPreprocessor(Protocol):
    """Protocol of a user's preprocessor: an object made from the environment's observation space.

    It must not keep anything between two calls.
    """

    observation_space: spaces.Box
    """Space of the arrays that the preprocessor returns."""

    def __call__(self, observation: Any) -> Any:
        """Return an observation as an array of `observation_space`."""


def load_preprocessor(path: str, space: spaces.Space[Any]) -> OwnPreprocessor:
    """Make the user's preprocessor at `path` for a space, and try it on a sample of the space.

    Imports it. Raises ConfigError if it cannot be made, or if its output is not finite or does not
    have the shape of its own `observation_space`, a Box.
    """
    place, name = "model.custom_preprocessor", path.partition(":")[2]
    make: Any = load_callable(place, path, "a class of preprocessors, or a function that makes one")
    sampled = copy.deepcopy(space)  # the space's own stream stays where it is
    sampled.seed(0)
    try:
        preprocessor = make(space)
        shown = preprocessor.observation_space
        given = np.asarray(preprocessor(sampled.sample()))
    except Exception as error:
        raised = f"{name}({space}) raised {type(error).__name__}: {error}".splitlines()[0]
        allowed = (
            "a class or function that takes a space, and returns an object with an "
            "observation_space that can be called with an observation"
        )
        raise ConfigError(place, path, allowed, problem=raised) from error
    if not isinstance(shown, spaces.Box):
        problem = f"the observation_space of {name} is {shown}"
        raise ConfigError(place, path, "a gymnasium.spaces.Box", problem=problem)
    if given.shape != shown.shape:
        problem = f"{name} returned an array of shape {given.shape} for a sample of {space}"
        allowed = f"the shape {shown.shape}, as its observation_space says"
        raise ConfigError(place, path, allowed, problem=problem)
    if not np.isfinite(given).all():
        problem = f"{name} returned NaN or infinity for a sample of {space}"
        raise ConfigError(place, path, "finite numbers", problem=problem)
    return cast("OwnPreprocessor", preprocessor)


def make_preprocessor(
    space: spaces.Space[Any], settings: ImageSettings
) -> tuple[NoPreprocessor | ImagePreprocessor | FlatteningPreprocessor, str]:
    """Return the preprocessor that a space needs, and a warning if another may have been meant.

    Images are transposed unless they are (H, W, C); Boxes that are no images stay as they are,
    except that those with three axes or pixels are flattened, as all other spaces are. The warning
    may be empty.

    Raises:
        ConfigError: the settings ask for an image where there is none, or leave its layout open; or
            no network reads a part of the space.
    """
    if not isinstance(space, spaces.Box):
        if settings.layout not in (None, "flat"):
            other = f"{type(space).__name__} observations"
            why = "such observations are flattened, including images in them"
            raise ConfigError.of_conflict(PLACE, settings.layout, other, "null or flat", why)
        return FlatteningPreprocessor(space), ""
    seen = choose_view(space, settings)
    if seen.axes:
        is_laid_out = seen.axes == "HWC"
        return NoPreprocessor(space) if is_laid_out else ImagePreprocessor(space, seen), ""
    flat = is_image(space) or part_divisor(space) != 1.0
    return (FlatteningPreprocessor if flat else NoPreprocessor)(space), seen.note


def is_wide(space: spaces.Space[Any]) -> bool:
    """Return whether a space is a Box that is no image, and float32 rounds its dtype's numbers."""
    if not isinstance(space, spaces.Box) or is_image(space):
        return False
    return not np.can_cast(np.dtype(space.dtype), np.float32)


class Rows:
    """Converts observations (N, *O) to new rows (N, D) of float32, or to images (N, H, W, C).

    `name` is the source of observations in errors. With `exact`, rows are float64 if float32 cannot
    hold the space's numbers.
    """

    def __init__(self, space: spaces.Box, name: str, exact: bool = False) -> None:
        self._name = name
        wide = exact and is_wide(space)
        self.dtype = np.dtype(np.float64) if wide else row_dtype(space)
        self._size = int(np.prod(space.shape))
        self._image = space.shape if is_image(space) else None

    def __call__(self, observations: Array, check: bool = True) -> Array:
        """Return observations (N, *O) as new rows (N, D), or images (N, H, W, C).

        Without `check` they may be NaN or infinite.

        Raises:
            EnvError: they have another number of features.
            NotFiniteError: there is NaN or infinity.
        """
        if self._image is not None:
            images = np.array(observations, dtype=self.dtype)
            if images.shape[1:] != self._image:
                raise self._other_size(observations)
            if check and self.dtype == np.float32:
                require_finite(images, f"{self._name}, environment", "observation")
            return images
        flat = np.array(observations, dtype=self.dtype)
        if flat.ndim != 2:
            flat = flat.reshape(len(observations), -1)
        if flat.shape[1] != self._size:
            raise self._other_size(observations)
        if check:
            require_finite(flat, f"{self._name}, environment", "observation")
        return flat

    def _other_size(self, observations: Array) -> EnvError:
        """Return the error for observations with another number of features than the space has."""
        return EnvError(
            f"{self._name}: an observation has the shape {np.shape(observations)[1:]}; "
            f"expected {self._size} numbers, as the observation space promises"
        )


def require_finite(values: Array, rows: str, subject: str) -> None:
    """Raise NotFiniteError for the first row of `values` (N, …) that has NaN or infinity.

    The message is ``{rows} {index}: {subject} … is not finite``.
    """
    finite = np.isfinite(values)
    if np.count_nonzero(finite) != finite.size:  # the cheapest way to ask, in every tick
        row = int(np.argwhere(~finite)[0][0])
        shown = f"of shape {values.shape[1:]}" if values.ndim > 2 else values[row]  # in one line
        raise NotFiniteError.of_environment(f"{rows} {row}: {subject} {shown} is not finite")


def _check_leaves(space: spaces.Space[Any]) -> None:
    """Raise ConfigError for a part of a space that no network reads, or too many features."""
    for name, leaf in named_leaves(space, "observation").items():
        if not isinstance(leaf, Leaf):
            raise ConfigError(
                "env",
                str(leaf),
                "Box, Discrete, MultiDiscrete or MultiBinary, alone or in a Tuple or Dict",
                "wrap the environment so that this part is left out "
                "(gymnasium.wrappers.FilterObservation) or becomes numbers (minigrid's "
                "FlatObsWrapper), and give the function that returns it: env: "
                "package.module:function",
                f"{name} is {type_of(leaf)}, which policies cannot read",
            )
        chosen = isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete)
        if chosen and count_choices(leaf) > MOST_FEATURES:
            raise ConfigError(
                "env",
                str(leaf),
                f"at most {MOST_FEATURES}",
                "give it as numbers or digits instead, a Box or a MultiDiscrete, in a "
                "gymnasium.ObservationWrapper",
                f"{name} is {leaf}, with {count_choices(leaf)} choices, for each of which a policy "
                "reads one number",
            )


def _plan(space: spaces.Space[Any], first: int) -> tuple[Write, Read, int]:
    """Return a function that writes an observation of `space` into a vector, and one that reads it.

    They use the features from `first` on; the third value is the index of the feature after the
    last. The writer expects zeros, and may raise for a value outside the space.
    """
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return _plan_parts(space, first)
    if isinstance(space, spaces.Discrete):
        return _plan_choice(space, first)
    if isinstance(space, spaces.MultiDiscrete):
        return _plan_choices(space, first)
    numbers = cast("spaces.Box | spaces.MultiBinary", space)  # others have been refused
    return _plan_numbers(numbers, first)


def _plan_parts(space: spaces.Tuple[Any] | spaces.Dict, first: int) -> tuple[Write, Read, int]:
    """Return writer, reader and next feature, as `_plan`, for a Tuple or Dict."""
    named = isinstance(space, spaces.Dict)
    parts: list[tuple[Any, Write, Read]] = []
    for key, part in inner(space):
        part_write, part_read, first = _plan(part, first)
        parts.append((key, part_write, part_read))

    def write(observation: Any, out: Array) -> None:
        """Write each part of the observation into its columns of the row `out` (D,)."""
        for key, part, _ in parts:
            part(observation[key], out)

    def read(row: Array) -> Any:
        """Return the observation, a dict or tuple, that a row (D,) stands for."""
        found = {key: part(row) for key, _, part in parts}
        return found if named else tuple(found.values())

    return write, read, first


def _plan_choice(space: spaces.Discrete, first: int) -> tuple[Write, Read, int]:
    """Return writer, reader and next feature, as `_plan`, for a Discrete: one-hot."""
    n, start = int(space.n), int(space.start)

    def write(observation: Any, out: Array) -> None:
        """Write 1 into the choice's column of the zero row `out` (D,)."""
        choice = int(observation) - start
        if not 0 <= choice < n:
            raise ValueError(f"{observation} is not a choice of {space}")
        out[first + choice] = 1.0

    return write, lambda row: np.int64(np.argmax(row[first : first + n]) + start), first + n


def _plan_choices(space: spaces.MultiDiscrete, first: int) -> tuple[Write, Read, int]:
    """Return writer, reader and next feature, as `_plan`, for a MultiDiscrete: each one-hot."""
    nvec, start = space.nvec.reshape(-1), space.start.reshape(-1)
    offsets = first + np.concatenate([[0], np.cumsum(nvec)[:-1]])
    last = first + int(nvec.sum())

    def write(observation: Any, out: Array) -> None:
        """Write 1 into the column of each choice of the zero row `out` (D,)."""
        choices = np.asarray(observation).reshape(-1) - start
        if (choices < 0).any() or (choices >= nvec).any():
            raise ValueError(f"{observation} is not a choice of {space}")
        out[offsets + choices] = 1.0

    def read(row: Array) -> Array:
        """Return the choices that a row (D,) stands for."""
        spans = zip(offsets, offsets + nvec, strict=True)
        best = np.array([np.argmax(row[low:high]) for low, high in spans])
        return (best + start).reshape(space.shape).astype(space.dtype)

    return write, read, last


def _plan_numbers(space: spaces.Box | spaces.MultiBinary, first: int) -> tuple[Write, Read, int]:
    """Return writer, reader and next feature, as `_plan`, for a Box or MultiBinary.

    The features are its numbers, scaled if they are pixels.
    """
    size = int(np.prod(space.shape))
    last = first + size
    part, flat = slice(first, last), (size,)
    scale = part_divisor(space)

    def write(observation: Any, out: Array) -> None:
        """Write the numbers, divided by `scale`, into their columns of the row `out` (D,)."""
        numbers = np.asarray(observation, dtype=out.dtype)
        out[part] = numbers if numbers.shape == flat else numbers.reshape(size)
        if scale != 1.0:
            out[part] /= scale

    def read(row: Array) -> Array:
        """Return the numbers that a row (D,) stands for, in the space's shape and type."""
        numbers = row[part] * scale
        whole = space.dtype is not None and space.dtype.kind in "iub"
        return (np.rint(numbers) if whole else numbers).reshape(space.shape).astype(space.dtype)

    return write, read, last
