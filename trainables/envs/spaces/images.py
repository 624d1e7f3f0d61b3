"""Images among observations: which ones they are, their layout and their scale.

A policy sees an image as (H, W, C), whatever the environment's layout: H x W pixels of C channels.
F frames of it are further channels, the oldest first. Shape, dtype and bounds of a Box together
decide whether it is an image (`view`); if they leave it open, ``model.image_layout`` decides. Its
numbers are divided by the largest that its bounds allow, so that they lie between 0 and 1, or
between -1 and 1: bytes from 0 to 255 are divided by 255, and planes of 0 and 1 stay as they are.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.errors import ConfigError, EnvError

Array = NDArray[Any]
#: Order of an image's axes in the setting ``model.image_layout``; ``flat`` for no image.
Layout = Literal["channels_last", "channels_first", "flat"]
#: Name of the setting.
PLACE = "model.image_layout"
#: Sides of an image, pixels. Images are convolved from the first on; a Box with two axes of at
#: least the second is an image whatever its bounds.
SMALL_SIDE, LARGE_SIDE = 8, 36
#: Largest bound of an image's numbers, that of 16 bits. Larger ones are not scaled.
LARGEST_NUMBER = 2.0**16 - 1
#: (number of axes, layout) → the axes: frames, height, width and channels.
_AXES: dict[tuple[int, Layout], str] = {
    (2, "channels_last"): "HW",
    (2, "channels_first"): "HW",
    (3, "channels_last"): "HWC",
    (3, "channels_first"): "CHW",
    (4, "channels_last"): "FHWC",
    (4, "channels_first"): "FCHW",
}


@dataclass(frozen=True)
class ImageSettings:
    """The settings of the key ``model`` that decide how images are read."""

    layout: Layout | None = None
    """Value of the setting ``model.image_layout``; None if it is not set."""
    convolved: bool | None = None
    """True if ``model.conv_filters`` names convolutions, False if it names none; None if not
    set."""


#: The default settings.
DEFAULT_IMAGE_SETTINGS = ImageSettings()


@dataclass(frozen=True)
class View:
    """A policy's view of a Box: an image (H, W, C), or a vector of its numbers."""

    axes: str = ""
    """The Box's axes in its own order, in letters F (frames), H, W and C; empty if the Box is no
    image."""
    note: str = ""
    """Warning for a user who may have meant an image; else empty."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that a policy sees, (H, W, C), for the Box's shape.

        Frames count as channels. Without an image, the shape is returned unchanged.
        """
        if not self.axes:
            return shape
        size = dict(zip(self.axes, shape, strict=True))
        return size["H"], size["W"], size.get("C", 1) * size.get("F", 1)

    @property
    def order(self) -> tuple[int, ...]:
        """Indices of the Box's axes in the order height, width, frames, channels; to transpose."""
        return tuple(self.axes.index(one) for one in "HWFC" if one in self.axes)


def choose_view(box: spaces.Box, settings: ImageSettings) -> View:
    """Decide whether a policy sees a Box as an image, from its shape, dtype, bounds and settings.

    If it is read as a vector but may be an image, the result has a `note`.

    Raises:
        ConfigError: the shape does not show which axis the channels are, or the settings ask for an
            image where there is none.
    """
    axes = len(box.shape)
    if settings.layout is not None and settings.layout != "flat":
        if (named := _AXES.get((axes, settings.layout))) is None:
            other, why = f"observations of shape {box.shape}", "an image has two to four axes"
            raise ConfigError.of_conflict(PLACE, settings.layout, other, "null or flat", why)
        return View(named)
    if settings.layout == "flat" or not 2 <= axes <= 4:
        return View()
    layout, sides = _guess_layout(box.shape)
    is_wide = min(sides) >= SMALL_SIDE
    is_asked = settings.convolved is True and (is_wide or axes > 2)
    if not (is_asked or _is_sure(box, sides)):
        is_open = settings.convolved is None and is_wide
        likely = axes > 2 or _is_bounded(box) or min(sides) >= LARGE_SIDE
        return View(note=_note(box, layout) if is_open and likely else "")
    if layout is not None:
        is_seen = axes == 3 or is_wide or is_asked  # others are not worth their axes
        return View(_AXES[axes, layout] if is_seen else "")
    if is_wide and settings.convolved is not False:
        problem = (
            f"is not set, and the shape {box.shape} of the observations does not show which axis "
            "has the channels"
        )
        hint = "set it to channels_last or channels_first, or to flat if these are not images"
        raise ConfigError(PLACE, None, hint=hint, problem=problem)
    return View(_AXES[axes, "channels_last"] if axes == 3 else "")


def is_image(space: spaces.Space[Any]) -> bool:
    """Return whether rows of this space are images (H, W, C), that is, have three axes."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def row_dtype(box: spaces.Box) -> np.dtype[Any]:
    """Return the dtype of rows for a policy: uint8 for an image of bytes or bits, else float32."""
    whole = is_image(box) and box.dtype in (np.uint8, np.bool_)
    return np.dtype(np.uint8 if whole else np.float32)


def divisor(box: spaces.Box) -> float:
    """Return the number by which networks divide an image's values, to be at most 1.

    It is the largest bound; 1 for vectors, and for bounds of 0 or too large.
    """
    return _largest(box) if is_image(box) else 1.0


def part_divisor(space: spaces.Space[Any]) -> float:
    """Return the number that divides the entries of a Box, or a part of a space, in a vector.

    It is the largest bound of what is surely an image; 1 for anything else.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) < 2:
        return 1.0
    return _largest(space) if _is_sure(space, _guess_layout(space.shape)[1]) else 1.0


def is_bytes(space: spaces.Space[Any]) -> bool:
    """Return whether a space is a Box of bytes with at least two axes, as pixels have."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1


class ImagePreprocessor:
    """A preprocessor that transposes an image to (H, W, C), with frames as further channels."""

    def __init__(self, box: spaces.Box, view: View) -> None:
        self._box, self._order, self._shape = box, view.order, view.shape(box.shape)
        low, high = self._transposed(box.low), self._transposed(box.high)
        self.observation_space: spaces.Box = spaces.Box(low, high, dtype=box.dtype.type)

    def __call__(self, observation: Any) -> Array:
        """Return an image of the environment as a new array (H, W, C).

        Raises EnvError for another shape than the environment's space has.
        """
        given = np.asarray(observation)
        if given.shape != self._box.shape:
            raise EnvError(
                f"an observation has the shape {given.shape}; expected {self._box.shape}, as the "
                "observation space promises"
            )
        return self._transposed(given)

    def invert(self, row: Array) -> Array:
        """Return a copy of an array (H, W, C) in the axes and the dtype of the environment."""
        apart = [self._box.shape[axis] for axis in self._order]
        back = np.argsort(self._order)
        turned: Array = row.reshape(apart).transpose(back)
        return np.ascontiguousarray(turned).astype(self._box.dtype)

    def _transposed(self, image: Array) -> Array:
        """Return a transposed copy of `image` as (H, W, C)."""
        return np.array(image.transpose(self._order), order="C").reshape(self._shape)


def _guess_layout(shape: tuple[int, ...]) -> tuple[Layout | None, tuple[int, ...]]:
    """Guess the layout of an image from its shape; return it with the lengths of the two sides.

    The channels are the last axis of three if it is the shortest and below `LARGE_SIDE`, or the
    first one if it is at most half of the others and of `LARGE_SIDE`; or the only axis that differs
    from two equal ones. If both or neither hold, the layout is None and the sides are the longest
    axes. A first axis of four is ignored; two axes are both sides, and other numbers of axes give
    None.
    """
    if len(shape) == 2:
        return "channels_last", shape
    longest = tuple(sorted(shape)[-2:])
    if len(shape) not in (3, 4):
        return None, longest
    first, middle, last = shape[-3:]
    is_last = last < min(first, middle, LARGE_SIDE) or first == middle
    is_first = first <= min(middle, last, LARGE_SIDE) // 2 or middle == last
    if is_last == is_first:
        return None, longest
    return ("channels_last", (first, middle)) if is_last else ("channels_first", (middle, last))


def _is_sure(box: spaces.Box, sides: tuple[int, ...]) -> bool:
    """Return whether dtype, bounds or lengths of `sides` leave no doubt that these are pixels."""
    if box.dtype == np.uint8:
        return True
    flat = len(box.shape) == 2
    if min(sides) >= LARGE_SIDE:
        return not flat or bool(np.isfinite(box.low).all() and np.isfinite(box.high).all())
    return min(sides) >= SMALL_SIDE and not flat and _is_bounded(box)


def _is_bounded(box: spaces.Box) -> bool:
    """Return whether the bounds are those of pixels: 0 to 1, 0 to 255 or, of integers, less."""
    if not box.low.size:
        return False
    low, high = float(np.min(box.low)), float(np.max(box.high))
    if low != 0.0 or np.any(box.low) or np.any(box.high != box.high.flat[0]):
        return False
    return high in (1.0, 255.0) or (box.dtype.kind in "iub" and 0.0 < high <= 255.0)


def scale_warning(box: spaces.Box) -> str:
    """Return a warning about an image whose bounds are too large to scale it by; else empty."""
    if not is_image(box) or _bound(box) <= LARGEST_NUMBER:
        return ""
    what = f"images of shape {box.shape} have bounds beyond {LARGEST_NUMBER:.0f}, so their numbers"
    return f"{what} are not scaled: give the space the bounds that they have, or set a filter"


def _largest(box: spaces.Box) -> float:
    """Return the largest absolute bound as a divisor; 1 if it is 0 or beyond `LARGEST_NUMBER`."""
    largest = _bound(box)
    return largest if 0.0 < largest <= LARGEST_NUMBER else 1.0


def _bound(box: spaces.Box) -> float:
    """Return the largest absolute value among all bounds of a Box; it may be infinite."""
    bounds = np.concatenate([box.low, box.high], axis=None).astype(np.float64)
    return float(np.abs(bounds).max(initial=0.0))


def _note(box: spaces.Box, layout: Layout | None) -> str:
    """Return the warning that a Box is read as a vector, for a user who may have meant an image.

    It recommends `layout`, or both if that is None.
    """
    named = layout or "channels_last or channels_first"
    what = f"observations of shape {box.shape} and type {box.dtype} are read as a vector of numbers"
    return f"{what}: set {PLACE} to {named} if they are an image, or to flat if they are not"
