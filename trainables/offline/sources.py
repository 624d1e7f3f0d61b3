"""Readers of all kinds of sources of experience, and conversion between kinds of files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.core import rng
from trainables.core.settings import parse
from trainables.envs.exactness import measuring
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError, StoredDataError
from trainables.offline.batches import Batch
from trainables.offline.config import (
    FILES,
    MINARI,
    SAMPLER,
    IOContext,
    is_user_defined,
    make_user_defined,
)
from trainables.offline.following import with_episodes
from trainables.offline.minari_sets import MinariReader, find_set, folder_of, write_set
from trainables.offline.reader import (
    NO_ROW,
    PARQUET,
    FilesReader,
    InputReader,
    JsonReader,
    NotABatch,
    Rows,
    RowsByPolicy,
    Shuffled,
    each_once,
    find_files,
    has_rows,
)
from trainables.offline.tables import ParquetReader, write_json, write_parquet

#: Maximum number of consecutive batches without a row of a user-defined reader.
MOST_WITHOUT_ROWS = 1000


class OwnReader(InputReader):
    """A user-defined reader, whose batches are checked as those of files are; errors name it.

    Its state is that of the user's reader.
    """

    def __init__(self, reader: InputReader, rows: Rows | RowsByPolicy, path: str) -> None:
        self._reader = reader
        self._rows = rows
        self._path = path
        self.get_state = reader.get_state  # type: ignore[method-assign]
        self.set_state = reader.set_state  # type: ignore[method-assign]

    def next(self) -> Batch:
        """Call the user's reader until a batch has a row, and return that, checked.

        Raises StoredDataError if a batch does not fit the spaces, or `MOST_WITHOUT_ROWS` in a row
        have none.
        """
        try:
            for _ in range(MOST_WITHOUT_ROWS):
                if has_rows(batch := self._rows.checked(self._reader.next())):
                    return batch
        except NotABatch as error:
            raise StoredDataError(self._path, str(error)) from None
        found = f"{MOST_WITHOUT_ROWS} consecutive batches have no row: {NO_ROW}"
        raise StoredDataError(self._path, found)


def make_reader(source: str, rows: Rows | RowsByPolicy, context: IOContext) -> InputReader:
    """Make the reader of one source of the setting ``input``; with shuffling if that is set.

    `rows` checks its batches. Raises ConfigError if there is no such source, or a user's class or
    function makes no reader.
    """
    config = context.offline
    reader: InputReader
    if callable(config.input):
        reader = OwnReader(
            make_user_defined("input", config.input, InputReader, context), rows, source
        )
    elif is_user_defined(source):
        reader = OwnReader(make_user_defined("input", source, InputReader, context), rows, source)
    else:
        listed = config.input if source == FILES and isinstance(config.input, list) else source
        reader = files_reader("input", listed, rows)
    if config.shuffle_buffer_size < 2:
        return reader
    stream = rng.generator(context.seed, "input", source)
    return Shuffled(reader, config.shuffle_buffer_size, stream)


def files_reader(place: str, paths: str | Sequence[str], rows: Rows | RowsByPolicy) -> FilesReader:
    """Make the reader of a data set, a folder, a glob or a list of files, by their kind.

    Raises ConfigError, about the setting `place`, if there are no such files, or several policies
    cannot read them.
    """
    minari_set = find_set(place, paths) if isinstance(paths, str) else None
    files = [] if minari_set else find_files(place, paths)
    if isinstance(rows, Rows) and minari_set:
        return MinariReader([minari_set], rows)
    if isinstance(rows, Rows) and files[0].suffix == PARQUET:
        return ParquetReader(files, rows)
    if minari_set or files[0].suffix == PARQUET:
        problem = "with several policies, only JSON files can be read, and these are not JSON"
        hint = "write the experience as JSON, or train one policy"
        raise ConfigError(place, paths, hint=hint, problem=problem)
    return JsonReader(files, rows)


def convert(
    paths: str | Sequence[str], target: str, env: str, env_config: Mapping[str, Any] | None = None
) -> int:
    """Write the experience of one source as another kind of files, and return the number of rows.

    The files have the columns that are learnt from, and the probabilities of actions. Rows whose
    next observation is unknown are left out. The environment is made, for its spaces alone.

    Args:
        paths: as the setting `input`, without ``sampler``, mixtures and user-defined readers.
        target: a file ``NAME.parquet`` or ``NAME.json``, or a data set of Minari:
            ``minari:NAME``, or a new folder. It appears under this name only when it is complete.
        env: environment of the experience, as the setting: it determines the form of rows.
        env_config: keyword arguments of the environment.

    Raises:
        ConfigError: there is nothing to read, the environment cannot be made, or `target` exists or
            is not possible.
        StoredDataError: the source holds no experience, or the disk refuses to write it.
    """
    if paths == SAMPLER:
        problem = f"{SAMPLER} is the environment, not stored experience"
        raise ConfigError("paths", paths, hint="name files or a folder", problem=problem)
    known = parse(EnvironmentConfig, {"env": env, "env_config": dict(env_config or {})})
    rows = Rows(measuring.inspect(known).spaces, keeps_float64=True)
    batches = with_episodes(each_once(files_reader("paths", paths, rows)))
    path = Path(target).expanduser().absolute()
    if target.startswith(MINARI):
        return write_set(
            folder_of("target", target), target.removeprefix(MINARI), batches, rows.spaces
        )
    writers: dict[str, Callable[..., int]] = {PARQUET: write_parquet, ".json": write_json}
    if path.suffix in writers:
        if path.exists():
            hint = "remove it first, or name another target"
            raise ConfigError("target", target, hint=hint, problem=f"{target} exists already")
        return writers[path.suffix](path, batches)
    return write_set(path, path.name, batches, rows.spaces)
