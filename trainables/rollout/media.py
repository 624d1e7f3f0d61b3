"""Pictures, videos and tables that callbacks put into an episode: checked, then files of the trial.

Of each name an iteration keeps what the last episode has that ended in it. What is kept is bounded:
an episode has few of them, each of a bounded size, and a trial a bounded number of files. An
iteration that is run again after a restore writes the same files again.
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
from trainables.rollout.video import SUFFIX, VideoFile, is_installed

FOLDER = "media"
"""In the trial's own."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
MOST_NAMES = 8
"""Of an episode."""
MOST_BYTES = 16 * 2**20
"""Of a picture, of all pictures of a video, of a table as text."""
MOST_FILES = 200
"""Of a trial; later ones are left out."""
FRAMES_PER_SECOND = 30.0

logger = logging.getLogger(__name__)


def checked(media: Mapping[str, Any]) -> dict[str, Any]:
    """Name → a picture (H, W, 3), a video (T, H, W, 3), both uint8, or a table: column → cells.

    Raises:
        CallbackError: something else, or more than is kept; it names the key.
    """
    if len(media) > MOST_NAMES:
        raise CallbackError(f"media: {len(media)} names; an episode has at most {MOST_NAMES}")
    return {name: _checked(name, one) for name, one in media.items()}


def _checked(name: str, one: Any) -> Any:
    where = f"media[{name!r}]"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CallbackError(f"{where}: a name has letters, digits, - and _ alone, at most 60")
    if isinstance(one, Mapping):
        return _table(where, one)
    try:
        pictures = np.asarray(one)
    except ValueError:  # of several shapes
        pictures = np.zeros(0)
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4) or pictures.shape[-1] != 3:
        raise CallbackError(
            f"{where}: {shorten(one)} is no picture (H, W, 3) of uint8, no list of such pictures "
            "of one size, and no table as a dict of columns"
        )
    _require_small(where, pictures.nbytes)
    return np.array(pictures)


def _table(where: str, table: Mapping[Any, Any]) -> dict[str, list[Any]]:
    columns = {str(name): list(cells) for name, cells in table.items()}
    if len({len(cells) for cells in columns.values()}) != 1:
        raise CallbackError(f"{where}: a table needs columns, all of one length")
    plain = {name: [_cell(where, one) for one in cells] for name, cells in columns.items()}
    _require_small(where, len(json.dumps(plain)))
    return plain


def _cell(where: str, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | bool | int | float):
        raise CallbackError(f"{where}: {shorten(value)} is no number and no text")
    return value


def _require_small(where: str, size: int) -> None:
    if size > MOST_BYTES:
        raise CallbackError(f"{where}: {size} bytes; at most {MOST_BYTES} are kept")


def write(media: Mapping[str, Any], folder: Path, iteration: int, part: str = "") -> dict[str, str]:
    """Write what `checked` gave; returns name → file in the folder, of those that are kept.

    `part` stands before the names of files: what of the iteration it is.

    Raises:
        CallbackError: there is nothing to write videos with.
    """
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    before = sum(name[:6].isdigit() and int(name[:6]) < iteration for name in names)
    if before + len(media) > MOST_FILES:
        logger.warning("media: %d files are kept of a trial, and no later ones", MOST_FILES)
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    return {name: _write(folder / f"{iteration:06d}-{part}{name}", m) for name, m in media.items()}


def _write(path: Path, one: dict[str, list[Any]] | NDArray[np.uint8]) -> str:
    draft = path.with_name(f"{path.name}.part")
    if isinstance(one, Mapping):
        path = path.with_name(f"{path.name}.json")
        table = {"columns": list(one), "data": list(zip(*one.values(), strict=True))}
        draft.write_text(json.dumps(table), encoding="utf-8")
    elif one.ndim == 3:
        from matplotlib import image

        path = path.with_name(f"{path.name}.png")
        image.imsave(draft, one, format="png")
    else:
        if not is_installed():
            raise CallbackError("media: a video needs pip install 'sweep-rl[video]'")
        path = path.with_name(f"{path.name}{SUFFIX}")
        video = VideoFile(path, FRAMES_PER_SECOND)
        for picture in one:
            video.add(picture)
        video.close()
        return path.name
    draft.replace(path)
    return path.name


def latest(episodes: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Name → what the last of these episodes' media has by it."""
    return {name: one for media in episodes for name, one in (media or {}).items()}


def with_files(
    result: dict[str, Any], folder: Callable[[], Path], iteration: int
) -> dict[str, Any]:
    """A result that names files, which are written, where it holds media.

    `folder` is asked only then: a trainer that writes nothing has none.
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
