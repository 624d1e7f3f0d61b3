"""A folder of files as a dict, path in the folder → opaque bytes, and back."""

import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainables.errors import TrainableError, shorten
from trainables.signing import Opaque

#: How the names of temporary folders begin, so that what a crash leaves can be recognised.
TEMPORARY = ".tmp-folder-"


def fresh_path(path: Path) -> Path:
    """`path`, or the first of ``path_2``, ``path_3`` … that is not there; nothing is made."""
    candidates = (path.with_name(f"{path.name}_{n}") if n > 1 else path for n in itertools.count(1))
    return next(one for one in candidates if not one.exists())


def temporary_folder(parent: str | Path | None) -> tempfile.TemporaryDirectory[str]:
    """A folder inside `parent` (None: the system's for such) that is deleted when it is left."""
    if parent is None:
        return tempfile.TemporaryDirectory(prefix=TEMPORARY)
    Path(parent).mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=parent)


def read_files(folder: Path) -> dict[str, Opaque]:
    """The regular files under `folder`, by their paths in it; links are left out."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return {p.relative_to(folder).as_posix(): Opaque(p.read_bytes()) for p in files}


def write_files(folder: Path, files: Mapping[str, Opaque]) -> None:
    """Write what `read_files` gave into `folder`; refuses a path that leads out of it."""
    root = folder.resolve()
    for name, content in files.items():
        target = (root / name).resolve()
        if not target.is_relative_to(root):
            raise TrainableError(
                f"{shorten(name)}: a file of a checkpoint must stay inside its folder"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.data)
