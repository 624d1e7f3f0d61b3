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
from trainables.errors import StateError, TrainableError, printable, shorten, type_of


def pack(data: object, name: str, allowed: bool) -> Any:
    """Return the entry in a state for what `save_checkpoint` of the class `name` returned.

    That is `data` itself; if the class has opted in to pickles (`allowed`), `Opaque` bytes with a
    pickle of `data`. Raises StateError if it cannot be pickled.
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
    """Return the data from which `pack` has made a state's entry; loading a pickle runs its code.

    Raises StateError if it is a pickle, but the class `name` has not opted in to pickles
    (`allowed`).
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
    """Return the first of `path`, ``path_2``, ``path_3`` … that does not exist."""
    candidates = (path.with_name(f"{path.name}_{n}") if n > 1 else path for n in itertools.count(1))
    return next(one for one in candidates if not one.exists())


@contextlib.contextmanager
def temporary_folder(parent: str | Path | None) -> Iterator[str]:
    """Make a folder inside `parent`, yield its path, and delete it when the block ends.

    `parent` is made if it does not exist. With None, it is the system's folder for temporary files.
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
    """Read all files in `folder` and its subfolders; return relative path → content.

    Raises StateError for a link, a pipe or a device; `place` names the class that wrote it.
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
    """Return the path of the file `name` in `folder`, or `folder` itself for an empty name.

    Raises TrainableError if the path leads out of the folder, as with ``..``.
    """
    root = Path(folder).resolve()
    target = (root / name).resolve()
    if not target.is_relative_to(root):
        raise TrainableError(f"{shorten(name)}: a file of a checkpoint must stay inside its folder")
    return str(Path(folder) / name) if name else folder


def write_files(folder: Path, files: Mapping[str, object]) -> None:
    """Write files into `folder`, given as relative path → content, as `read_files` returned them.

    Raises TrainableError if a path leads out of the folder, or a content is not `Opaque`: anything
    else may come from a checkpoint that nobody has signed, and loading files may run code.
    """
    for name, content in files.items():
        if not isinstance(content, Opaque):
            found = f"{shorten(name)}: {type_of(content)} in place of a file's bytes"
            raise TrainableError(f"{found}; use a checkpoint that sweep has written")
        target = Path(path_in(str(folder), name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.data)
