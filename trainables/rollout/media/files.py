"""Pictures, videos and tables that callbacks put into an episode: checks, and files of the trial.

For each name an iteration keeps the item of its last finished episode that has one. Size and number
are bounded: the items of an episode, the bytes of an item and the files of a trial. An iteration
that is repeated after a restore writes the same files again.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.errors import CallbackError, shorten
from trainables.rollout.media.video import SUFFIX, VideoFile, is_installed

FOLDER = "media"
"""Subfolder of the trial's folder that has the files."""
#: Pattern of the name of a picture, video or table.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
MOST_NAMES = 8
"""Maximum number of items of an episode."""
MOST_BYTES = 16 * 2**20
"""Maximum size of a picture, of all pictures of a video, and of a table as text, bytes."""
MOST_FILES = 200
"""Maximum number of files of a trial; later ones are not written."""
#: Pictures per second of a video.
FRAMES_PER_SECOND = 30.0

logger = logging.getLogger(__name__)


def checked(media: Mapping[str, Any]) -> dict[str, Any]:
    """Check what a callback wrote into `Episode.media`; return name → item as array or table.

    An item is a picture (H, W, 3) or a video (T, H, W, 3), both uint8, or a table: column → cells.

    Raises:
        CallbackError: an item is something else or above `MOST_BYTES`, its name has other
            characters than ASCII letters, digits, - and _, or there are more than `MOST_NAMES`.
    """
    if len(media) > MOST_NAMES:
        raise CallbackError(
            f"media: {len(media)} names are too many; an episode has at most {MOST_NAMES}"
        )
    return {name: _check_item(name, one) for name, one in media.items()}


def _check_item(name: str, item: Any) -> Any:
    """Return a copy of an item: an array of uint8, or a table as plain data, column → cells.

    Raises CallbackError if its name, kind or size is not allowed.
    """
    place = f"media[{name!r}]"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CallbackError(
            f"{place}: this name is not allowed; expected at most 60 letters, digits, - and _"
        )
    if isinstance(item, Mapping):
        return _table(place, item)
    try:
        pictures = np.asarray(item)
    except ValueError:  # of several shapes
        pictures = np.zeros(0)
    shown = pictures.dtype == np.uint8 and pictures.ndim in (3, 4) and pictures.shape[-1] == 3
    if not shown or not pictures.size:
        raise CallbackError(
            f"{place}: {shorten(item)} is neither a picture (H, W, 3) of uint8, nor a list of such "
            "pictures of one size, nor a table as a dict of columns"
        )
    _require_small(place, pictures.nbytes)
    return np.array(pictures)


def _table(place: str, table: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """Return a table, column → cells, as plain data.

    Names become text, and numpy numbers Python's. Raises CallbackError, in which `place` names the
    table, unless it has a column, all columns are lists of one length, each cell is a number, text,
    bool or None, and its JSON text is at most `MOST_BYTES` long.
    """
    try:
        columns = {str(name): list(cells) for name, cells in table.items()}
    except TypeError:
        raise CallbackError(f"{place}: the columns of a table must be lists of cells") from None
    if len({len(cells) for cells in columns.values()}) != 1:
        raise CallbackError(f"{place}: a table needs columns, all of one length")
    plain = {name: [_cell(place, one) for one in cells] for name, cells in columns.items()}
    _require_small(place, len(json.dumps(plain)))
    return plain


def _cell(place: str, value: Any) -> Any:
    """Return a cell as plain data; numpy numbers become Python's.

    Raises CallbackError, in which `place` names the table, unless it is a number, text or None.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | bool | int | float):
        raise CallbackError(f"{place}: {shorten(value)} is neither a number nor text")
    return value


def _require_small(place: str, size: int) -> None:
    """Raise CallbackError, in which `place` names the item, if `size` exceeds `MOST_BYTES`."""
    if size > MOST_BYTES:
        raise CallbackError(f"{place}: it has {size} bytes, but at most {MOST_BYTES} are kept")


def write(media: Mapping[str, Any], folder: Path, iteration: int, part: str = "") -> dict[str, str]:
    """Write checked items as files (PNG, MP4, JSON), and return name → file name in `folder`.

    Creates the folder, and replaces files of the same names. If these files and those of earlier
    iterations would be more than `MOST_FILES`, it writes nothing, logs a warning, and returns an
    empty dict.

    Args:
        media: items as `checked` returns them.
        iteration: number of the iteration, the beginning of each file's name.
        part: text between iteration and name, such as ``evaluation-``.

    Raises:
        CallbackError: videos cannot be written because PyAV is missing.
    """
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    before = sum(name[:6].isdigit() and int(name[:6]) < iteration for name in names)
    if before + len(media) > MOST_FILES:
        logger.warning("media: only the first %d files of a trial are kept", MOST_FILES)
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    return {name: _write(folder / f"{iteration:06d}-{part}{name}", m) for name, m in media.items()}


def _write(path: Path, item: dict[str, list[Any]] | NDArray[np.uint8]) -> str:
    """Write a table as JSON, a picture as PNG or a video as MP4; return the file's name.

    A table is column → cells, a picture (H, W, 3), a video (T, H, W, 3). `path` gets the suffix of
    the kind, and the file its name once it is complete. Raises CallbackError for a video without
    PyAV.
    """
    draft = path.with_name(f"{path.name}.part")
    if isinstance(item, Mapping):
        path = path.with_name(f"{path.name}.json")
        table = {"columns": list(item), "data": list(zip(*item.values(), strict=True))}
        draft.write_text(json.dumps(table), encoding="utf-8")
    elif item.ndim == 3:
        from matplotlib import image

        path = path.with_name(f"{path.name}.png")
        image.imsave(draft, item, format="png")
    else:
        if not is_installed():
            raise CallbackError(
                "media: a video needs PyAV, which is not installed; install it: pip install "
                "'sweep-rl[video]'"
            )
        path = path.with_name(f"{path.name}{SUFFIX}")
        video = VideoFile(path, FRAMES_PER_SECOND)
        for picture in item:
            video.add(picture)
        video.close()
        return path.name
    draft.replace(path)
    return path.name


def latest(episodes: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return name → item, each of the last episode that has an item of this name.

    `episodes` are the items of each episode, name → item, or None.
    """
    return {name: one for media in episodes for name, one in (media or {}).items()}


def with_files(
    result: dict[str, Any], folder: Callable[[], Path], iteration: int
) -> dict[str, Any]:
    """Write the media of an iteration's result as files; return the result with their names.

    ``media`` of the result, its ``evaluation`` and its ``evaluation_at_start`` become name → file
    name, and are left out if no file was written. The given dict does not change. `folder` returns
    the folder for the files; it is called only if there are media. Raises CallbackError for a video
    if PyAV is missing.
    """
    for key in ("evaluation_at_start", "evaluation", ""):
        held = result.get(key, {}) if key else result
        if "media" in held:
            part = f"{key.replace('_', '-')}-" if key else ""
            files = write(held["media"], folder(), iteration, part)
            rest = {name: one for name, one in held.items() if name != "media"}
            held = {**rest, **({"media": files} if files else {})}
            result = {**result, key: held} if key else held
    return result
