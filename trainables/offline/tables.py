"""Parquet files: tables with the columns of a batch, read as numbers only, and written.

A row group is a batch. A column holds numbers, or lists of equal length in each row (of lists, for
images). Anything else, such as bytes that may be pickled or extension types, is refused. The module
needs pyarrow: ``pip install 'sweep-rl[offline]'``.
"""

import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from trainables.errors import ConfigError, StoredDataError, shorten
from trainables.offline.batches import Array, Columns
from trainables.offline.reader import READABLE, FilesReader, NotABatch, Rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Maximum size of a row group, as its file says, in bytes.
MAX_BYTES = 2**30
#: Minimum number of rows of a written group; only the last one may have fewer.
GROUP = 2000
#: Maximum number of axes of a column.
MOST_DIMENSIONS = 8
#: Command that installs the packages that are needed.
EXTRA = "pip install 'sweep-rl[offline]'"


def require_package(package: str, place: str, value: object) -> None:
    """Raise ConfigError, about the setting `place`, if an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        problem = f"{shorten(value)} needs the package {package}, which is not installed"
        raise ConfigError(place, value, hint=f"install it: {EXTRA}", problem=problem)


class ParquetReader(FilesReader):
    """A reader of Parquet files; each row group is a batch."""

    unit = "row groups"

    def __init__(self, files: Sequence[Path], rows: Rows) -> None:
        super().__init__(files, rows)
        require_package("pyarrow", "input", str(files[0]))
        self._open: tuple[Path, pq.ParquetFile] | None = None

    def take(self, path: Path) -> Columns | None:
        """Return the next row group as a checked batch; None at the end of the file.

        Moves the position. Raises NotABatch if the row group is too large, damaged or no batch,
        StoredDataError if the file is no complete Parquet file.
        """
        import pyarrow as pa

        file, group = self._open_file(path), self._offset
        if group >= file.num_row_groups:
            return None
        self._offset += 1
        self._line += 1
        if (size := file.metadata.row_group(group).total_byte_size) > MAX_BYTES:
            raise NotABatch(
                f"the row group has {size} bytes, but at most {MAX_BYTES} are read; write smaller "
                "row groups"
            )
        names = file.schema_arrow.names
        try:
            table = file.read_row_group(group, [name for name in names if name in READABLE])
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise NotABatch(f"the row group cannot be read ({first_line(error)})") from None
        read = {name: numeric_column(name, table.column(name)) for name in table.column_names}
        return self._rows.checked({name: read.get(name, ()) for name in names})

    def size(self, path: Path) -> int:
        """Return the number of row groups in a file; StoredDataError if it is not complete."""
        return int(self._open_file(path).num_row_groups)

    def _open_file(self, path: Path) -> "pq.ParquetFile":
        """Return the opened file, which is kept open until another one is asked for.

        Raises StoredDataError if it is not a complete Parquet file.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._open is None or self._open[0] != path:
            try:
                self._open = path, pq.ParquetFile(path, page_checksum_verification=True)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise StoredDataError(
                    path, f"this is not a complete Parquet file ({first_line(error)})"
                ) from None
        return self._open[1]


def numeric_column(name: str, column: "pa.ChunkedArray") -> Array:
    """Return a column of a table, of numbers, booleans or lists of these, as an array (R, …).

    Raises NotABatch if the column holds anything else, missing values or lists of several lengths.
    """
    import pyarrow as pa

    array, shape = column.combine_chunks(), [len(column)]
    while _is_list(array.type) and len(shape) <= MOST_DIMENSIONS:
        lengths = set(array.value_lengths().to_pylist())
        if len(lengths) > 1 or None in lengths:
            raise NotABatch(
                f"the rows of column {name} have different shapes, but need the same one"
            )
        shape.append(lengths.pop() if lengths else 0)
        array = array.flatten()
    of = array.type
    if not (pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of)):
        raise NotABatch(f"the column {name} holds {str(of)[:60]}, which are not numbers")
    if array.null_count:
        raise NotABatch(f"the column {name} has {array.null_count} missing values")
    return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(shape)


def _is_list(kind: "pa.DataType") -> bool:
    """Return whether an Arrow type is one of lists."""
    import pyarrow as pa

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(one(kind) for one in lists)


def write_parquet(path: Path, batches: Iterable[Columns]) -> int:
    """Write all batches to a Parquet file, and return the number of rows.

    The file appears only when it is complete, and replaces another one. The derived column
    ``has_next`` is left out. Batches are joined to row groups of at least `GROUP` rows.

    Raises StoredDataError if the disk refuses it, or batches have different columns, ConfigError if
    pyarrow is not installed.
    """
    require_package("pyarrow", "target", str(path))
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 0
    with whole_or_absent(path) as file, ExitStack() as ending:
        for columns in _regroup(path, batches):
            table = pa.table({name: _arrow(column) for name, column in columns.items()})
            if not count:
                checked = {"compression": "zstd", "write_page_checksum": True}
                writer = ending.enter_context(pq.ParquetWriter(file, table.schema, **checked))
            writer.write_table(table, row_group_size=len(table))
            count += len(table)
    return count


def write_json(path: Path, batches: Iterable[Columns]) -> int:
    """Write a line for each batch in RLlib's form, and return the number of rows.

    The file appears only when it is complete, and replaces another one. The derived column
    ``has_next`` is left out. Raises StoredDataError if the disk refuses it.
    """
    count = 0
    with whole_or_absent(path) as file:
        for batch in batches:
            columns = {name: one.tolist() for name, one in batch.items() if name != "has_next"}
            file.write(f"{json.dumps({'type': 'SampleBatch', **columns})}\n".encode())
            count += len(batch["obs"])
    return count


@contextmanager
def whole_or_absent(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file, which gets the name `path` when the block ends without an error.

    It is flushed to the disk first, and replaces a file of that name. After an error it is removed.
    Raises StoredDataError if the disk refuses it.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise StoredDataError(path, f"cannot be written ({first_line(error)})") from error
    finally:
        part.unlink(missing_ok=True)


def _regroup(path: Path, batches: Iterable[Columns]) -> Iterator[Columns]:
    """Yield batches joined to groups of at least `GROUP` rows, of which the last may have fewer.

    The column ``has_next`` is left out. Raises StoredDataError, about `path`, if batches have
    different columns.
    """
    waiting: list[Columns] = []
    for batch in batches:
        columns = {name: one for name, one in batch.items() if name != "has_next"}
        if waiting and columns.keys() != waiting[0].keys():
            odd = sorted(columns.keys() ^ waiting[0].keys())
            problem = f"the column {odd[0]} is in some batches, but not in others"
            raise StoredDataError(path, problem, "give all batches the same columns")
        waiting.append(columns)
        if sum(len(one["obs"]) for one in waiting) >= GROUP:
            yield {name: np.concatenate([one[name] for one in waiting]) for name in columns}
            waiting = [{name: one[:0] for name, one in columns.items()}]
    if sum(len(one["obs"]) for one in waiting):
        yield {name: np.concatenate([one[name] for one in waiting]) for name in waiting[0]}


def _arrow(column: Array) -> "pa.Array":
    """Return a column (R, …) as pyarrow's array, nested lists for more than one dimension."""
    import pyarrow as pa

    made = pa.array(np.ascontiguousarray(column).reshape(-1))
    for width in column.shape[:0:-1]:
        made = pa.FixedSizeListArray.from_arrays(made, width)
    return made


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name, at most 200 characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
