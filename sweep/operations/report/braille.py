"""Curves as characters of two by four dots, so a terminal of 80 columns has a width of 160.

picture = draw(curves, 72, 18)
picture.rows       # rows of cells: a character, and the index of the topmost curve there
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sweep.operations.report.curves import Curve

#: Bit of each dot of a braille character, by column and row (Unicode, chapter 21.1).
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800

#: Character of a drawing, and the index of its curve; None without a curve.
Cell = tuple[str, int | None]


@dataclass(frozen=True)
class Picture:
    """A drawing of curves in characters, with the ends of both axes."""

    rows: list[list[Cell]]
    """Lines of the drawing, top first; a cell is a character and the index of its topmost curve or
    None."""
    times: tuple[float, float]
    """Least and greatest time, which are the ends of the horizontal axis; 0 and 1 if no points."""
    values: tuple[float, float]
    """Least and greatest value, which are the ends of the vertical axis; 0 and 1 if no points."""


def draw(curves: Sequence[Curve], width: int, height: int) -> Picture:
    """Return a drawing of curves on `width` by `height` characters; later ones are on top."""
    points = [point for curve in curves for point in curve.points]
    times, values = _ends([t for t, _ in points]), _ends([v for _, v in points])
    bits = [[0] * width for _ in range(height)]
    owners: list[list[int | None]] = [[None] * width for _ in range(height)]
    for index, curve in enumerate(curves):
        dots = [
            (_place(time, times, 2 * width), 4 * height - 1 - _place(value, values, 4 * height))
            for time, value in curve.points
        ]
        for x, y in _line(dots):
            bits[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
            owners[y // 4][x // 2] = index
    rows = [
        [(chr(_BLANK + bit) if bit else " ", owner) for bit, owner in zip(*row, strict=True)]
        for row in zip(bits, owners, strict=True)
    ]
    return Picture(rows, times, values)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return minimum and maximum of some values; 0 and 1 if there are none."""
    return min(values, default=0.0), max(values, default=1.0)


def _place(value: float, ends: tuple[float, float], count: int) -> int:
    """Return the index from 0 to `count` - 1 of a value's dot on an axis with these ends.

    It is the middle one if both ends are equal.
    """
    low, high = ends[0] / 2, ends[1] / 2  # the difference may overflow
    if high <= low:
        return count // 2
    share = (value / 2 - low) / (high - low)
    return min(count - 1, max(0, round(share * (count - 1))))


def _line(dots: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the column and row of each dot on the straight lines between successive dots."""
    yield from dots[:1]
    for (x, y), (to_x, to_y) in pairwise(dots):
        steps = max(abs(to_x - x), abs(to_y - y))
        for step in range(1, steps + 1):
            yield x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)
