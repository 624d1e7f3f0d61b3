"""Opaque bytes in a checkpoint: files a trainable writes, and pickles of classes that opt in.

Pickles hold anything, for trainables that cannot return plain data, and run code when loaded. A
class opts in with ``unsafe_pickle = True``. Its checkpoints are signed, and `unpack` is reached
only with bytes whose signature was verified when the checkpoint was read
(`trainables.checkpoint.file`), for a class that has opted in as well. A folder of files is a dict:
path in the folder → opaque bytes.
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
    """Return the entry of the state for the return value of `save_checkpoint` of the class `name`.

    That is plain data; anything, as a pickle, if the class has opted in (`allowed`).

    Raises:
        StateError: it cannot be pickled.
    """
    if not allowed:
        return data
    import cloudpickle

    try:
        return Opaque(cloudpickle.dumps(data))
    except Exception as error:  # a class's own __reduce__ fails in any way
        found = printable(f"what cannot be pickled ({type(error).__name__}: {error})")
        raise StateError(name, found, "leave it out of what save_checkpoint() returns") from error


def unpack(kept: Any, name: str, allowed: bool) -> Any:
    """Return the value given to `pack`; StateError for a pickle unless the class has opted in."""
    if not isinstance(kept, Opaque):
        return kept
    if not allowed:
        remedy = f"set {name}.unsafe_pickle = True if the class is to load it"
        raise StateError(name, "a pickle in the place of plain data", remedy)
    import cloudpickle

    return cloudpickle.loads(kept.data)


#: How the names of temporary folders begin, so that what a crash leaves can be recognised.
TEMPORARY = ".tmp-folder-"


def fresh_path(path: Path) -> Path:
    """`path`, or the first of ``path_2``, ``path_3`` … that is not there; nothing is made."""
    candidates = (path.with_name(f"{path.name}_{n}") if n > 1 else path for n in itertools.count(1))
    return next(one for one in candidates if not one.exists())


@contextlib.contextmanager
def temporary_folder(parent: str | Path | None) -> Iterator[str]:
    """A folder inside `parent` (None: the system's for such) that is deleted when it is left."""
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
    """The files under `folder`, by their paths in it; errors name `place` as their writer.

    Raises:
        StateError: a link, a pipe or a device is among them.
    """
    found: dict[str, Opaque] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            remedy = "write regular files, whose bytes are kept"
            raise StateError(place, f"{shorten(name)}, a link, pipe or device,", remedy)
        if path.is_file():
            found[name] = Opaque(path.read_bytes())
    return found


def path_in(folder: str, name: str) -> str:
    """The path of what has this name in a folder, which it may not lead out of; "": the folder."""
    root = Path(folder).resolve()
    target = (root / name).resolve()
    if not target.is_relative_to(root):
        raise TrainableError(f"{shorten(name)}: a file of a checkpoint must stay inside its folder")
    return str(Path(folder) / name) if name else folder


def write_files(folder: Path, files: Mapping[str, Opaque]) -> None:
    """Write what `read_files` gave into `folder`; refuses a path that leads out of it."""
    for name, content in files.items():
        target = Path(path_in(str(folder), name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.data)
