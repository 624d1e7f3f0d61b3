"""Data sets of Minari: recorded episodes of gymnasium environments, read and written.

A data set is given by name, ``minari:NAME``, among those on this machine, or as a folder. An
episode is a batch. Metadata are checked before Minari sees them: for a set without spaces it would
make the environment that the set names, which runs code. The module needs minari and pyarrow:
``pip install 'sweep-rl[offline]'``.
"""

import importlib.util
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces as gym_spaces

from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError, StoredDataError
from trainables.offline.batches import Array, Columns
from trainables.offline.config import MINARI
from trainables.offline.following import REMEDY, is_followed_by, pieces
from trainables.offline.reader import FilesReader, NotABatch, Rows
from trainables.offline.tables import first_line, require_package

if TYPE_CHECKING:
    from minari.dataset.minari_storage import MinariStorage

#: Name of a data set's file with its description.
METADATA = "metadata.json"
#: Maximum size of the metadata, bytes.
MOST_METADATA = 64 * 2**20
#: Pattern of a data set's name.
NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
#: Exceptions that Minari raises for a damaged set.
BROKEN = (
    *(ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, OSError),
    *(NotImplementedError, OverflowError, RecursionError, StopIteration, MemoryError),
)


def find_set(place: str, source: str) -> Path | None:
    """Return the folder of a Minari data set's episodes; None if `source` names no data set.

    `source` is ``minari:NAME``, or a path: of the set, or of its folder ``data``.

    Raises ConfigError, about the setting `place`, if the named set is not on this machine, the name
    is not valid, or Minari is not installed.
    """
    if not source.startswith(MINARI):
        path = Path(source).expanduser()
        folder = next((one for one in (path, path / "data") if (one / METADATA).is_file()), None)
    else:
        folder = folder_of(place, source) / "data"
        if not (folder / METADATA).is_file():
            problem = f"there is no data set in {folder.parent}"
            hint = f"download a published one with `minari download {source.removeprefix(MINARI)}`"
            raise ConfigError(place, source, hint=hint, problem=problem)
    if folder is not None:
        require_package("minari", place, source)
    return folder


def folder_of(place: str, source: str) -> Path:
    """Return the folder in which Minari keeps the set ``minari:NAME``; it may not exist.

    Raises ConfigError, about the setting `place`, if that is not a name, or Minari is not
    installed.
    """
    name = source.removeprefix(MINARI)
    if not NAME.fullmatch(name):
        raise ConfigError(place, source, "minari: followed by a name such as D4RL/pen/human-v2")
    require_package("minari", place, source)
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(name))


class MinariReader(FilesReader):
    """A reader of Minari's data sets; each episode is a batch."""

    unit = "episodes"

    _rows: Rows
    """Checks that columns have the form of the environment's rows."""

    def __init__(self, files: Sequence[Path], rows: Rows) -> None:
        super().__init__(files, rows)
        self._open: tuple[Path, MinariStorage, int] | None = None

    def take(self, path: Path) -> Columns | None:
        """Return the next episode as a checked batch, and move the position; None after the last.

        Raises NotABatch if the episode is damaged or does not fit, StoredDataError if the whole set
        is damaged.
        """
        storage, count = self._open_set(path)
        if (number := self._offset) >= count:
            return None
        self._offset += 1
        self._line += 1
        try:
            (episode,) = storage.get_episodes([number])
            (said,) = storage.get_episode_metadata([number])
            columns, steps = self._columns(episode, number), said["total_steps"]
        except BROKEN as error:
            raise NotABatch(
                f"this episode cannot be read ({type(error).__name__}: {first_line(error)})"
            ) from None
        if (found := len(columns["rewards"])) != steps:
            raise NotABatch(f"this episode has {found} steps, but its metadata says {steps}")
        return self._rows.checked(columns)

    def size(self, path: Path) -> int:
        """Return the number of episodes in a set; StoredDataError if it is damaged."""
        return self._open_set(path)[1]

    def _columns(self, episode: Mapping[str, Any], number: int) -> dict[str, Array]:
        """Return the columns, name → (steps, …), of an `episode` as Minari returns it.

        Choices count from 0; `number` is its ``eps_id``. Raises any exception if it is damaged.
        """
        spaces, rewards = self._rows.spaces, np.asarray(episode["rewards"])
        observations = self._observations(episode["observations"], len(rewards) + 1)
        actions = np.asarray(episode["actions"])
        if isinstance(spaces.action, gym_spaces.Discrete | gym_spaces.MultiDiscrete):
            actions = actions - spaces.action.start
        if not spaces.layout.scalar:
            actions = actions.reshape(len(rewards), -1)
        return {
            "obs": observations[:-1],
            "new_obs": observations[1:],
            "actions": actions,
            "rewards": rewards,
            "terminateds": np.asarray(episode["terminations"]),
            "truncateds": np.asarray(episode["truncations"]),
            "t": np.arange(len(rewards)),
            "eps_id": np.full(len(rewards), number),
        }

    def _observations(self, observations: Any, count: int) -> Array:
        """Return an episode's observations as arrays (count, …), as a policy sees them.

        Those that are stored in the environment's own form are preprocessed.
        """
        spaces = self._rows.spaces
        at_env = spaces.at_env()
        shapes: set[Any] = set()
        if spaces.preprocessor_path is None:
            shapes = {spaces.observation_shape, spaces.raw.shape}
        if at_env.observes:
            shapes -= {spaces.raw.shape}
        if (
            isinstance(observations, np.ndarray)
            and observations.ndim > 1
            and observations.shape[1:] in shapes
        ):
            return observations
        return at_env.observe_all(_item_at(observations, i) for i in range(count))

    def _open_set(self, path: Path) -> "tuple[MinariStorage, int]":
        """Open a data set, unless it is the one opened last; return it and its number of episodes.

        Raises StoredDataError if it is damaged.
        """
        if self._open is None or self._open[0] != path:
            said = read_metadata(path)
            from minari.dataset.minari_storage import MinariStorage

            try:
                self._open = path, MinariStorage.read(path), said["total_episodes"]
            except (*BROKEN, ImportError) as error:
                raise StoredDataError(
                    path, f"this is not a Minari data set ({first_line(error)})"
                ) from None
        return self._open[1:]


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a data set, after checks that Minari can read it without running code.

    Raises StoredDataError if they are missing, lack spaces or the number of episodes, name an
    unknown format, or belong to an HDF5 file with links.
    """
    file = path / METADATA
    try:
        if file.stat().st_size > MOST_METADATA:
            raise StoredDataError(
                file, f"the metadata has more than {MOST_METADATA} bytes, the most that is read"
            )
        description = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StoredDataError(
            file, f"this is not the description of a data set ({first_line(error)})"
        ) from None
    if not isinstance(description, dict) or description.get("data_format") not in (
        "arrow",
        "parquet",
        "hdf5",
    ):
        raise StoredDataError(
            file, "this is not the description of a data set, because its data_format is unknown"
        )
    for key in ("observation_space", "action_space"):
        if not isinstance(description.get(key), str):
            hint = "write the data set with this key"
            raise StoredDataError(file, f"the key {key} is missing", hint)
    if type(description.get("total_episodes")) is not int or description["total_episodes"] < 1:
        raise StoredDataError(file, "total_episodes is missing or less than 1")
    if description["data_format"] == "hdf5":
        _check_hdf5(path / "main_data.hdf5")
    return description


def _check_hdf5(path: Path) -> None:
    """Raise StoredDataError if an HDF5 file has any links, which might lead to other files.

    Also if it is no such file, is nested too deeply, or h5py is not installed.
    """
    if importlib.util.find_spec("h5py") is None:
        raise StoredDataError(
            path,
            "this is an HDF5 file, for which h5py is not installed",
            "install it: pip install h5py",
        )
    import h5py

    def check(group: Any, depth: int) -> None:
        """Raise StoredDataError if a group, at any depth, refers to data outside the file."""
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink) or depth > MOST_DEPTH:
                raise StoredDataError(
                    path,
                    f"{name!r:.60} is a link, or is nested in more than {MOST_DEPTH} groups",
                    "store the data itself, in fewer groups",
                )
            item = group[name]
            if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
                raise StoredDataError(
                    path,
                    f"the data of {name!r:.60} are in other files, which are not read",
                    "store the data in this file",
                )
            if isinstance(item, h5py.Group):
                check(item, depth + 1)

    try:
        with h5py.File(path, "r") as file:
            check(file, 0)
    except BROKEN as error:
        raise StoredDataError(path, f"this is not an HDF5 file ({first_line(error)})") from None


#: Maximum depth of nested groups of an episode.
MOST_DEPTH = 12


def _item_at(arrays: Any, i: int) -> Any:
    """Return the i-th item of arrays in nested dicts and tuples."""
    if isinstance(arrays, Mapping):
        return {name: _item_at(one, i) for name, one in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(_item_at(one, i) for one in arrays)
    return arrays[i]


# -------------------------------------------------------------------------------------------------
# Writing.


def write_set(folder: Path, name: str, batches: Iterable[Columns], spaces: EnvSpaces) -> int:
    """Write all batches as a new Minari data set in `folder`, and return the number of rows.

    Rows that follow each other are an episode, whose last row is truncated unless it is terminated.
    The folder appears only when it is complete. `name` is the set's name in its metadata.

    Raises:
        ConfigError: the folder exists, Minari is not installed, or it does not support the actions.
        StoredDataError: batches do not show the ends of episodes, or the disk refuses the files.
    """
    if folder.exists():
        hint = "remove it first, or name another target"
        raise ConfigError("target", str(folder), hint=hint, problem=f"{folder} exists already")
    require_package("minari", "target", str(folder))
    from minari import __version__
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    written_space, taken = _written_space(spaces), spaces.action
    if not isinstance(taken, gym_spaces.Discrete | gym_spaces.MultiDiscrete | gym_spaces.Box):
        problem = f"a data set of Minari cannot hold the actions {taken}"
        hint = "name a *.parquet file as target"
        raise ConfigError("target", str(folder), hint=hint, problem=problem)
    start = getattr(taken, "start", 0)
    part, count = folder.with_name(f".{folder.name}.part"), 0
    shutil.rmtree(part, ignore_errors=True)
    try:
        (part / "data").mkdir(parents=True)
        storage = MinariStorage.new(
            part / "data", written_space, taken, data_format="parquet", jpeg_encoding=False
        )
        storage.update_metadata({"dataset_id": name, "minari_version": __version__})
        for run in episode_stretches(folder, batches):
            rows = len(run["rewards"])
            states = _as_given(spaces, np.concatenate([run["obs"], run["new_obs"][-1:]]))
            ends = np.arange(rows) == rows - 1
            episode = EpisodeBuffer(
                observations=states.reshape(rows + 1, *written_space.shape).astype(
                    written_space.dtype
                ),
                actions=(run["actions"].reshape(rows, *(taken.shape or ())) + start).astype(
                    taken.dtype
                ),
                rewards=run["rewards"],
                terminations=run["terminateds"],
                truncations=ends & ~run["terminateds"],
            )
            storage.update_episodes([episode])
            count += rows
        part.replace(folder)
    except OSError as error:
        raise StoredDataError(folder, f"cannot be written ({first_line(error)})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return count


def _written_space(spaces: EnvSpaces) -> gym_spaces.Box:
    """Return the observation space of a written data set: the environment's own if it is a Box.

    Otherwise, or with a user's preprocessor, it is the preprocessor's.
    """
    raw = spaces.raw
    if type(raw) is gym_spaces.Box and spaces.preprocessor_path is None:
        return raw
    own = spaces.observation
    return gym_spaces.Box(own.low, own.high, own.shape, own.dtype)


def _as_given(spaces: EnvSpaces, rows: Array) -> Array:
    """Return images (R, *O) in the environment's layout; other rows unchanged."""
    at_env = spaces.at_env()
    is_plain = isinstance(spaces.raw, gym_spaces.Box) and spaces.preprocessor_path is None
    if not is_plain or not at_env.observes:
        return rows
    return np.stack([at_env.invert(row) for row in rows])


def episode_stretches(path: Path, batches: Iterable[Columns]) -> Iterator[Columns]:
    """Yield all rows of batches, each once, as stretches in which each row leads to the next one.

    A stretch may come from several batches, which must have ``eps_id``, as after `with_episodes`.
    It has the columns ``obs``, ``new_obs``, ``actions``, ``rewards`` and ``terminateds``. Those
    without an end come last. Raises StoredDataError, about `path`, if batches lack other columns
    that episodes need.
    """
    waiting: dict[int, list[Columns]] = {}
    for batch in batches:
        if "has_next" not in batch or "rewards" not in batch:
            raise StoredDataError(
                path,
                "the column terminateds or rewards is missing, and episodes need both",
                "write both columns",
            )
        if "new_obs" not in batch:
            raise StoredDataError(
                path, "the column new_obs is missing, and episodes need it", REMEDY
            )
        for piece in pieces(batch):
            before = waiting.pop(int(piece["eps_id"][0]), [])
            if before and not is_followed_by(before[-1], piece):
                yield _join(before)
                before = []
            before.append(piece)
            if piece["terminateds"][-1] or piece["truncateds"][-1]:
                yield _join(before)
            else:
                waiting[int(piece["eps_id"][0])] = before
    for rest in waiting.values():
        yield _join(rest)


def _join(parts: Sequence[Columns]) -> Columns:
    """Return one batch of several pieces, with the five columns that an episode needs."""
    names = ("obs", "new_obs", "actions", "rewards", "terminateds")
    return {name: np.concatenate([one[name] for one in parts]) for name in names}
