"""A process of limited memory and time that reads files from strangers and tells on them.

    python -m <a module that calls `serve`> FOLDER MEMORY_MIB    # names of files on standard input

For each file one line of JSON: what came of it (``refused``, ``good`` or ``fault``) and why, its
seconds of processor time, and what it did that reading never does: an audit hook notes every
import, compilation, process, socket and file that is opened for writing.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.errors import printable

#: Seconds of processor time that one file may take before the process ends.
CPU_S = 10
_HARMFUL = ("exec", "compile", "import", "pickle.", "os.", "subprocess.", "socket.", "shutil.")
_HARMLESS = ("os.listdir", "os.scandir")


@dataclass(frozen=True)
class Reader:
    """The reader of one kind of file."""

    read: Callable[[Path], Any]
    refusals: tuple[type[Exception], ...]
    """Exceptions that refuse a file."""
    harmless: tuple[str, ...] = ()
    """Beginnings of deeds that reading such a file may do."""
    prove: Callable[[Any], object] = lambda _read: None
    """Raises, and ends the process, if what was read is not what it must be."""


class Watch:
    """Notes what plain data never does, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 0o3
        if writes or (event.startswith(_HARMFUL) and event not in _HARMLESS):
            self.seen.append(f"{event} {arguments!r}"[:200])


def serve(reader: Reader, warm_up: Callable[[], object]) -> None:
    """Read what standard input names; `warm_up` first does what no single file shall pay for."""
    folder, memory = Path(sys.argv[1]), int(sys.argv[2]) * 2**20
    printable("\x00")  # imports a codec
    warm_up()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    watch = Watch()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a module that a file names may print: that is no answer
    for line in sys.stdin:
        used_s = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used_s + CPU_S, resource.RLIM_INFINITY))
        answers.write(json.dumps(_look_at(folder / line.strip(), reader, watch)) + "\n")
        answers.flush()
    os._exit(0)  # the libraries' own end under these limits is not what is looked at


def _look_at(path: Path, reader: Reader, watch: Watch) -> dict[str, Any]:
    watch.seen.clear()
    found, why = None, ""
    began, watch.on = time.process_time(), True
    try:
        found = reader.read(path)
        what = "good"
    except reader.refusals as error:
        what, why = "refused", str(error)
    except BaseException as error:  # noqa: BLE001 that is what is looked for
        what, why = "fault", f"{type(error).__name__}: {error}"[:500]
    watch.on = False
    seconds = round(time.process_time() - began, 3)
    if what == "good":
        reader.prove(found)
    did = [deed for deed in watch.seen if not deed.startswith(reader.harmless)]
    return {"file": path.name, "what": what, "s": seconds, "why": why, "did": did}
