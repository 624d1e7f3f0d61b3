"""A process that reads checkpoints from strangers and tells on them; see `store_hostile`.

    python -m benchmarks.chaos.store_jail FOLDER MEMORY_MIB    # names of files on standard input

For each file one line of JSON: what came of it (``refused``, ``data`` or ``fault``), its seconds of
processor time, and what it did that plain data never does. An audit hook notes every import,
compilation, process, socket and file that is opened for writing.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from trainables import checkpoint_file
from trainables.errors import CheckpointError, printable
from trainables.state import pack

#: Seconds of processor time that one file may take before the process ends.
CPU_S = 10
_HARMFUL = ("exec", "compile", "import", "pickle.", "os.", "subprocess.", "socket.", "shutil.")
_HARMLESS = ("os.listdir", "os.scandir")


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


def look_at(path: Path, watch: Watch) -> dict[str, Any]:
    """Read one file as a slice would."""
    watch.seen.clear()
    began, watch.on, why = time.process_time(), True, ""
    try:
        state = checkpoint_file.read(path).state
        what = "data"
    except CheckpointError as error:
        what, why = "refused", f"{type(error).__name__}: {error.reason}"
    except BaseException as error:  # noqa: BLE001 that is what is looked for
        what, why = "fault", f"{type(error).__name__}: {error}"
    watch.on = False
    if what == "data":
        pack(state)  # raises, and ends the process, if it is anything but data
    seconds = time.process_time() - began
    return {"file": path.name, "what": what, "s": round(seconds, 3), "why": why, "did": watch.seen}


def main() -> None:
    """Look at what standard input names."""
    folder, memory = Path(sys.argv[1]), int(sys.argv[2]) * 2**20
    import psutil  # noqa: F401 so that no file is what imports it
    import torch  # noqa: F401

    printable("\x00")  # imports a codec

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    watch = Watch()
    for line in sys.stdin:
        used_s = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used_s + CPU_S, resource.RLIM_INFINITY))
        sys.stdout.write(json.dumps(look_at(folder / line.strip(), watch)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
