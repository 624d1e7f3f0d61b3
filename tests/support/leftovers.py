"""A function that leaves processes behind, and what finds them wherever they have gone."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from trainables import Trainable, report
from trainables.function import get_checkpoint, get_context

_MARK = "MARKED_BY_TEST"
_SERVER = [sys.executable, "-c", "import signal; signal.pause()"]
#: Becomes an orphan in a session of its own, as what makes itself a daemon.
_DAEMON = ["/bin/sh", "-c", "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!"]


def _leave(logdir: Path | None) -> None:
    """Leave a server, a daemon and a child, and note them in the folder of the trial."""
    server = subprocess.Popen(_SERVER, start_new_session=True)
    daemon = subprocess.run(_DAEMON, capture_output=True, check=True)
    child = multiprocessing.Process(target=signal.pause)
    child.start()
    pids = [server.pid, int(daemon.stdout), child.pid]
    assert logdir is not None
    (logdir / "left.json").write_text(json.dumps(pids))


def leave(config: Mapping[str, Any]) -> None:
    """Leave processes; then report without end, or as often as is asked."""
    _leave(get_context().logdir)
    start = (get_checkpoint() or {"i": 0})["i"]
    for i in range(start + 1, config.get("reports", 1_000_000) + 1):
        time.sleep(0.01)
        report({"value": i * config.get("k", 1.0)}, checkpoint={"i": i})


class Leaves(Trainable):
    """The same as a class."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count, self.most = 0, config.get("reports", 1_000_000)
        _leave(self.context.logdir)

    def step(self) -> dict[str, Any]:
        time.sleep(0.01)
        self.count += 1
        value = self.count * self.config.get("k", 1.0)
        return {"value": value, "done": self.count >= self.most}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


class Marked:
    """All processes that descend from one that was started with `variables`."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self.variables = {_MARK: self._mark}

    def pids(self, but: Collection[int] = ()) -> list[int]:
        """Return those that have not ended, but for some that may stay."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in but:
                with contextlib.suppress(OSError):
                    if f"{_MARK}={self._mark}".encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def commands(self, but: Collection[int] = ()) -> dict[int, str]:
        """Return them with the commands that they run."""
        found = {}
        for pid in self.pids(but):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found[pid] = b" ".join(words).decode(errors="replace")
        return found

    def kill(self, but: Collection[int] = ()) -> None:
        """Kill them."""
        while pids := self.pids(but):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
