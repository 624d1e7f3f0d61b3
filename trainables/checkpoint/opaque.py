"""Opaque bytes in a checkpoint: files that a trainable writes, and pickles of classes that opt in.

Pickles can hold any object, for trainables that cannot return plain data, and may run code when
loaded. A class opts in with ``unsafe_pickle = True``. Its checkpoints are signed, and `unpack` gets
only bytes whose signature was verified when the checkpoint was read (`trainables.checkpoint.file`),
for a class that has opted in as well. A folder of files becomes a dict: path in the folder → opaque
bytes.
"""

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables.checkpoint.signing import Opaque
from trainables.errors import StateError, TrainableError, printable, shorten


def pack(data: object, name: str, allowed: bool) -> Any:
    """Return the state entry for what `save_checkpoint` of the class `name` returned.

    That is `data` itself; or a pickle of it if `allowed`, that is, if the class has opted in.
    Raises StateError if it cannot be pickled.
    """
    if not allowed:
        return data
    import cloudpickle

    try:
        return Opaque(cloudpickle.dumps(data))
    except Exception as error:  # a class's own __reduce__ fails in any way
        found = printable(f"a value that cannot be pickled ({type(error).__name__}: {error})")
        raise StateError(name, found, "leave it out of what save_checkpoint() returns") from error


def unpack(packed: Any, name: str, allowed: bool) -> Any:
    """Return the data that was given to `pack`.

    Raises StateError if it is a pickle, and the class `name` has not opted in (`allowed`).
    """
    if not isinstance(packed, Opaque):
        return packed
    if not allowed:
        remedy = f"set {name}.unsafe_pickle = True if the class is to load it"
        raise StateError(name, "a pickle instead of plain data", remedy)
    import cloudpickle

    return cloudpickle.loads(packed.data)


#: Prefix of temporary folders, by which leftovers of a crash are recognised.
TEMPORARY = ".tmp-folder-"


def fresh_path(path: Path) -> Path:
    """Return `path`, or the first of ``path_2``, ``path_3`` … that does not exist."""
    candidates = (path.with_name(f"{path.name}_{n}") if n > 1 else path for n in itertools.count(1))
    return next(one for one in candidates if not one.exists())


@contextlib.contextmanager
def temporary_folder(parent: str | Path | None) -> Iterator[str]:
    """Make a folder inside `parent` that is deleted when the block ends; yields its path.

    With None, it is in the system's folder for temporary files.
    """
    if parent is not None:
        Path(parent).mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=TEMPORARY, dir=parent)
    try:
        yield folder
    finally:
        try:
            os.rmdir(folder)  # noqa: PTH106 most stay empty, and this is the quickest way
        except OSError:
            shutil.rmtree(folder)


def read_files(folder: Path, place: str) -> dict[str, Opaque]:
    """Return path in `folder` → content of all files in it.

    Raises StateError, which names their writer `place`, for a link, a pipe or a device.
    """
    files: dict[str, Opaque] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            remedy = "write regular files, whose bytes are kept"
            raise StateError(place, f"{shorten(name)}, a link, pipe or device,", remedy)
        if path.is_file():
            files[name] = Opaque(path.read_bytes())
    return files


def path_in(folder: str, name: str) -> str:
    """Return the path of `name` in `folder`, or `folder`; TrainableError if it leads out."""
    root = Path(folder).resolve()
    target = (root / name).resolve()
    if not target.is_relative_to(root):
        raise TrainableError(f"{shorten(name)}: a file of a checkpoint must stay inside its folder")
    return str(Path(folder) / name) if name else folder


def write_files(folder: Path, files: Mapping[str, Opaque]) -> None:
    """Write files that `read_files` returned into `folder`; raises as `path_in` does."""
    for name, content in files.items():
        target = Path(path_in(str(folder), name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.data)
