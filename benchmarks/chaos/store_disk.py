"""A recorder of disk operations, and every state of the disk that a power cut may leave.

`Recorder` records and executes the operations of a program below a folder. `states` yields the
possible contents of the disk after a power cut, as POSIX allows them:

- The bytes written to a file since its last fsync are on the disk completely, partly, as zeros, or
  not at all.
- Any subset of the creations, renames and deletions of names in a folder since its last fsync has
  reached the disk. A rename is atomic.

States that differ only in temporary files, which no program reads, count as one.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

#: Number of pending operations up to which all subsets are tried. Of more operations, the subsets
#: with or without few of them are tried, and some random ones.
ALL_SUBSETS = 8
#: Number of random subsets.
RANDOM = 40

#: Path of a file below the root → its bytes.
State = Mapping[str, bytes]


@dataclass(frozen=True)
class Op:
    """One operation. Files and folders are identified by numbers; the root is 0."""

    kind: str
    """``create``, ``mkdir``, ``rename``, ``unlink``, ``write``, ``fsync`` or ``mark``."""
    folder: int = -1
    """Folder of the name."""
    name: str = ""
    thing: int = -1
    """File or folder of the operation."""
    old: str = ""
    """Name before a rename."""
    data: bytes = b""
    """Written bytes."""
    mark: Any = None
    """Object of a mark."""


class Recorder:
    """Context manager that records the operations below `root`.

    Args:
        root: an empty folder.
        before: called with the name of each call below the root; the call raises its exceptions.
    """

    def __init__(self, root: Path, before: Callable[[str], None] = lambda _: None) -> None:
        self.root = root
        self.ops: list[Op] = []
        self.before = before
        self._numbers = itertools.count(1)
        self._entries: dict[int, dict[str, int]] = {0: {}}
        self._opened: dict[int, int] = {}
        self._real: dict[str, Callable[..., Any]] = {}

    def mark(self, mark: Any) -> None:
        """Record an object of the program at this moment."""
        self.ops.append(Op("mark", mark=mark))

    def __enter__(self) -> Self:
        calls = {
            "open": self._on_open,
            "write": self._on_write,
            "fsync": self._on_fsync,
            "close": self._on_close,
            "replace": self._on_replace,
            "unlink": self._on_unlink,
            "mkdir": self._on_mkdir,
        }
        for name, call in calls.items():
            self._real[name] = getattr(os, name)
            setattr(os, name, call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name, function in self._real.items():
            setattr(os, name, function)

    # ---- the calls ----------------------------------------------------------------------------

    def _on_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        location = self._locate(path, dir_fd)
        if location is not None and flags & os.O_CREAT:
            self.before("open")
        file: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if self._is_root(path, dir_fd):
            self._opened[file] = 0
        elif location is not None:
            folder, name = location
            if name not in self._entries[folder]:
                self._add_name("create", folder, name)
            self._opened[file] = self._entries[folder][name]
        return file

    def _on_write(self, file: int, data: Any) -> int:
        thing = self._opened.get(file)
        if thing is not None:
            self.before("write")
        count: int = self._real["write"](file, data)
        if thing is not None:
            self.ops.append(Op("write", thing=thing, data=bytes(memoryview(data)[:count])))
        return count

    def _on_fsync(self, file: int) -> None:
        if file in self._opened:
            self.before("fsync")
            self.ops.append(Op("fsync", thing=self._opened[file]))
        # It is not executed, as the state of the real disk does not matter.

    def _on_close(self, file: int) -> None:
        thing = self._opened.pop(file, None)
        self._real["close"](file)
        if thing is not None:
            self.before("close")

    def _on_replace(
        self, old: Any, new: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None
    ) -> None:
        source, target = self._locate(old, src_dir_fd), self._locate(new, dst_dir_fd)
        if source is not None:
            self.before("replace")
        self._real["replace"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if source is not None and target is not None:
            thing = self._entries[source[0]].pop(source[1])
            self._entries[target[0]][target[1]] = thing
            self.ops.append(Op("rename", target[0], target[1], thing, source[1]))

    def _on_unlink(self, path: Any, *, dir_fd: Any = None) -> None:
        location = self._locate(path, dir_fd)
        if location is not None:
            self.before("unlink")
        self._real["unlink"](path, dir_fd=dir_fd)
        if location is not None:
            thing = self._entries[location[0]].pop(location[1])
            self.ops.append(Op("unlink", location[0], location[1], thing))

    def _on_mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        location = self._locate(path, dir_fd)
        if location is not None:
            self.before("mkdir")
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if location is not None:
            self._entries[self._add_name("mkdir", *location)] = {}

    # ---- names --------------------------------------------------------------------------------

    def _add_name(self, kind: str, folder: int, name: str) -> int:
        thing = next(self._numbers)
        self._entries[folder][name] = thing
        self.ops.append(Op(kind, folder, name, thing))
        return thing

    def _is_root(self, path: Any, dir_fd: int | None) -> bool:
        return dir_fd is None and Path(path) == self.root

    def _locate(self, path: Any, dir_fd: int | None) -> tuple[int, str] | None:
        """Return folder and name of a path. Returns None if it is not below the root."""
        if dir_fd is not None:
            return (self._opened[dir_fd], str(path)) if dir_fd in self._opened else None
        if not Path(path).is_relative_to(self.root) or self._is_root(path, None):
            return None
        *above, name = Path(path).relative_to(self.root).parts
        folder = 0
        for part in above:
            if part not in self._entries[folder]:
                return None
            folder = self._entries[folder][part]
        return folder, name


# ---- power cuts -------------------------------------------------------------------------------


@dataclass
class _Disk:
    """The contents that are certainly on the disk, and those that may be."""

    kinds: dict[int, str] = field(default_factory=lambda: {0: "mkdir"})
    durable: dict[int, bytes] = field(default_factory=dict)
    written: dict[int, bytes] = field(default_factory=dict)
    entries: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    pending: list[Op] = field(default_factory=list)

    def apply(self, op: Op) -> None:
        """Apply one operation."""
        if op.kind == "write":
            self.written[op.thing] = self.written.get(op.thing, b"") + op.data
        elif op.kind == "fsync" and self.kinds[op.thing] == "mkdir":
            done = [one for one in self.pending if one.folder == op.thing]
            self.pending = [one for one in self.pending if one.folder != op.thing]
            _apply(done, self.entries)
        elif op.kind == "fsync":
            self.durable[op.thing] = self.written.get(op.thing, b"")
        elif op.kind != "mark":
            if op.kind in ("create", "mkdir"):
                self.kinds[op.thing] = op.kind
                self.entries.setdefault(op.thing, {})
            self.pending.append(op)

    def contents(self, thing: int) -> list[bytes]:
        """Return the possible contents of a file."""
        sure, whole = self.durable.get(thing, b""), self.written.get(thing, b"")
        if sure == whole:
            return [whole]
        rest = len(whole) - len(sure)
        return [whole, sure, sure + whole[len(sure) :][: rest // 2], sure + bytes(rest)]


def _apply(ops: Iterable[Op], entries: dict[int, dict[str, int]]) -> None:
    for op in ops:
        names = entries[op.folder]
        if op.kind == "unlink":
            if names.get(op.name) == op.thing:
                del names[op.name]
            continue
        if names.get(op.old) == op.thing:
            del names[op.old]
        names[op.name] = op.thing


def states(
    ops: Sequence[Op], stream: np.random.Generator, is_read: Callable[[str], bool]
) -> Iterator[tuple[int, State]]:
    """Yield (number of operations, possible contents of the disk), without repetitions.

    States are repeated only after a mark.

    Args:
        stream: random stream, for the choice of subsets.
        is_read: returns whether a program reads files of this name.
    """
    disk = _Disk()
    seen: set[frozenset[tuple[str, bytes]]] = set()
    for count, op in enumerate(ops, 1):
        disk.apply(op)
        if op.kind == "mark":
            seen.clear()
        for state in _states(disk, stream, is_read):
            key = frozenset(state.items())
            if key not in seen:
                seen.add(key)
                yield count, state


def _states(
    disk: _Disk, stream: np.random.Generator, is_read: Callable[[str], bool]
) -> Iterator[State]:
    pending = [op for op in disk.pending if op.kind == "mkdir" or is_read(op.name)]
    for chosen in _subsets(pending, stream):
        entries = {folder: dict(names) for folder, names in disk.entries.items()}
        _apply(chosen, entries)
        files = dict(_walk(disk, entries, 0, ""))
        shown = [path for path in files if is_read(path.rpartition("/")[2])]
        for bodies in itertools.product(*(disk.contents(files[path]) for path in shown)):
            yield dict(zip(shown, bodies, strict=True))


def _subsets(ops: Sequence[Op], stream: np.random.Generator) -> Iterator[list[Op]]:
    """Yield subsets in the order of `ops`: all, or those of few and of most, and random ones."""
    n = len(ops)
    if n <= ALL_SUBSETS:
        picks: Iterable[Sequence[bool]] = itertools.product([False, True], repeat=n)
    else:
        drawn = stream.integers(0, 2, (RANDOM, n)).astype(bool).tolist()
        near = [
            [(i in missing) != most for i in range(n)]
            for most in (True, False)
            for size in (0, 1)
            for missing in itertools.combinations(range(n), size)
        ]
        picks = [*near, *drawn]
    for pick in picks:
        yield [op for op, is_included in zip(ops, pick, strict=True) if is_included]


def _walk(
    disk: _Disk, entries: Mapping[int, Mapping[str, int]], folder: int, path: str
) -> Iterator[tuple[str, int]]:
    for name, thing in entries[folder].items():
        if disk.kinds[thing] == "mkdir":
            yield from _walk(disk, entries, thing, f"{path}{name}/")
        else:
            yield path + name, thing
