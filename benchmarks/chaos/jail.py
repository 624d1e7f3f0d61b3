"""A process with limited memory and time that reads hostile files and reports side effects.

    python -m <a module that calls `serve`> FOLDER MEMORY_MIB    # names of files on standard input

For each file the process prints one line of JSON: the result (``refused``, ``good`` or ``fault``)
with its reason, the seconds of CPU time, and the side effects. An audit hook records imports,
compilations, processes, sockets and files that are opened for writing.
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

#: Seconds of CPU time for one file after which the process ends.
CPU_S = 10
#: Prefixes of audit events that are side effects, and exceptions from them.
_HARMFUL = ("exec", "compile", "import", "pickle.", "os.", "subprocess.", "socket.", "shutil.")
_HARMLESS = ("os.listdir", "os.scandir")


@dataclass(frozen=True)
class Reader:
    """Reader of one kind of file."""

    read: Callable[[Path], Any]
    """Reads a file."""
    refusals: tuple[type[Exception], ...]
    """Exceptions with which `read` refuses a file."""
    harmless: tuple[str, ...] = ()
    """Prefixes of side effects that are allowed."""
    check: Callable[[Any], object] = lambda _result: None
    """Checks the result of `read`; an exception ends the process."""


class Monitor:
    """Recorder of side effects while `on` is True."""

    def __init__(self) -> None:
        self.on = False
        self.effects: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 0o3
        if writes or (event.startswith(_HARMFUL) and event not in _HARMLESS):
            self.effects.append(f"{event} {arguments!r}"[:200])


def serve(reader: Reader, warm_up: Callable[[], object]) -> None:
    """Read the files that standard input names, and print a line for each.

    Args:
        warm_up: called first, to import modules.
    """
    folder, memory = Path(sys.argv[1]), int(sys.argv[2]) * 2**20
    printable("\x00")  # imports a codec
    warm_up()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    monitor = Monitor()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that the output of imported modules is not an answer
    for line in sys.stdin:
        used_s = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used_s + CPU_S, resource.RLIM_INFINITY))
        answers.write(json.dumps(_read(folder / line.strip(), reader, monitor)) + "\n")
        answers.flush()
    os._exit(0)  # the exit of libraries may fail under these limits


def _read(path: Path, reader: Reader, monitor: Monitor) -> dict[str, Any]:
    monitor.effects.clear()
    data, reason = None, ""
    began, monitor.on = time.process_time(), True
    try:
        data = reader.read(path)
        result = "good"
    except reader.refusals as error:
        result, reason = "refused", str(error)
    except BaseException as error:  # noqa: BLE001 each other exception is a fault
        result, reason = "fault", f"{type(error).__name__}: {error}"[:500]
    monitor.on = False
    seconds = round(time.process_time() - began, 3)
    if result == "good":
        reader.check(data)
    effects = [one for one in monitor.effects if not one.startswith(reader.harmless)]
    return {
        "file": path.name,
        "result": result,
        "s": seconds,
        "reason": reason,
        "effects": effects,
    }
