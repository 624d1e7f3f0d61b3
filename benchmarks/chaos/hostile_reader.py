"""A process that reads specs and ledgers from strangers and tells on them; see `hostile_input`.

    python -m benchmarks.chaos.hostile_reader FOLDER MEMORY_MIB    # names on standard input

For each file one line of JSON: what came of it (``refused``, ``good`` or ``fault``), its seconds
of processor time, and what it did that reading never does: an audit hook notes every process,
socket and file that is opened for writing. What its trainable and environment are, a spec may say:
their modules may be imported, if they are installed.
"""

import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.chaos.store_jail import CPU_S, Watch
from sweep import launch, ledger_check, plugins, preparation, schedulers, searchers
from sweep import spec as specs
from sweep.errors import LedgerError, OutsideError, UsageError
from sweep.ledger import Ledger
from trainables.errors import printable

#: Importing reads and compiles; the rest of what `Watch` notes no spec may do.
_IMPORTING = ("import ", "exec ", "compile ", "os.putenv", "os.listdir")
#: Modules whose import does something by itself; of a trainable there only the text is read.
OTHERS = ("this:", "antigravity:", "sweep.cli:", "builtins:")


def look_at(path: Path, watch: Watch) -> dict[str, Any]:
    """Read one file as the commands would."""
    watch.seen.clear()
    began, watch.on, why = time.process_time(), True, ""
    try:
        _read_ledger(path) if path.suffix == ".db" else _read_spec(path)
        what = "good"
    except (UsageError, LedgerError, OutsideError) as error:
        what, why = "refused", str(error)
    except BaseException as error:  # noqa: BLE001 that is what is looked for
        what, why = "fault", f"{type(error).__name__}: {error}"[:500]
    watch.on = False
    seconds = time.process_time() - began
    did = [deed for deed in watch.seen if not deed.startswith(_IMPORTING)]
    return {"file": path.name, "what": what, "s": round(seconds, 3), "why": why, "did": did}


def _read_spec(path: Path) -> None:
    spec = specs.load(path)
    if ":" not in spec.trainable or not spec.trainable.startswith(OTHERS):
        launch.resolve(spec, ())


def _read_ledger(path: Path) -> None:
    """As the commands that only look."""
    for damage in ledger_check.check(path):
        printable(damage.problem)
    with contextlib.closing(Ledger(path)) as ledger:
        launch.read_spec(ledger)
        history = launch.read_history(ledger)
        for trial in history.trials:
            ledger.results(trial.number)


def main() -> None:
    """Look at what standard input names."""
    folder, memory = Path(sys.argv[1]), int(sys.argv[2]) * 2**20
    _warm_up()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    watch = Watch()
    for line in sys.stdin:
        used_s = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used_s + CPU_S, resource.RLIM_INFINITY))
        sys.stdout.write(json.dumps(look_at(folder / line.strip(), watch)) + "\n")
        sys.stdout.flush()
    os._exit(0)  # the libraries' own end under these limits is not what is looked at


def _warm_up() -> None:
    """Import what reading a spec may need, so that no file is what pays for it."""
    printable("\x00")
    for name in plugins.names(schedulers.PACKAGE):
        schedulers.find(name, ())
    for name in plugins.names(searchers.PACKAGE):
        searchers.find(name)
    for space in ("quickstart", "cartpole_ppo"):
        preparation.prepare(space, ())


if __name__ == "__main__":
    main()
