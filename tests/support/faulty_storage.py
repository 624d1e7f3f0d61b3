"""A storage of fsspec's in this process's memory that fails when it is asked to."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

#: Given the operation and the path, before and after it is done; may raise.
Fault = Callable[[str, str], None]


class FaultyStorage(MemoryFileSystem):  # type: ignore[misc]
    """``faulty://``: each operation is shown to the faults first, and again when it is done."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    faults: ClassVar[tuple[Fault, Fault]] = (lambda *_: None, lambda *_: None)
    """Before and after an operation."""
    cut: ClassVar[int | None] = None
    """Bytes after which a file that is put ends, with no error."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("faulty://", "memory://")))

    def put_file(self, lpath: str, rpath: str, **more: Any) -> None:
        self.faults[0]("put", rpath)
        self.pipe_file(rpath, Path(lpath).read_bytes()[: self.cut])
        self.faults[1]("put", rpath)

    def get_file(self, rpath: str, lpath: str, **more: Any) -> None:
        self.faults[0]("get", rpath)
        super().get_file(rpath, lpath, **more)
        self.faults[1]("get", lpath)

    def find(self, path: str, *arguments: Any, **more: Any) -> Any:
        self.faults[0]("list", path)
        return super().find(path, *arguments, **more)

    def rm(self, path: Any, *arguments: Any, **more: Any) -> None:
        self.faults[0]("delete", str(path))
        super().rm(path, *arguments, **more)


fsspec.register_implementation("faulty", FaultyStorage, clobber=True)


@contextlib.contextmanager
def failing(before: Fault | None = None, after: Fault | None = None) -> Iterator[None]:
    """While it is entered, operations fail so."""
    was = FaultyStorage.faults
    FaultyStorage.faults = (before or was[0], after or was[1])
    try:
        yield
    finally:
        FaultyStorage.faults = was


def times(count: int, error: Exception, operation: str = "") -> Fault:
    """A fault that raises `error` the first `count` times."""
    left = count

    def fault(done: str, _path: str) -> None:
        nonlocal left
        if left and done.startswith(operation):
            left -= 1
            raise error

    return fault
