"""Reader of hostile specs and ledgers in a `jail`, like the commands; see `hostile_input`.

A spec may name its trainable and environment, so their modules may be imported if they are
installed.
"""

import contextlib
from pathlib import Path

from benchmarks.chaos.jail import Reader, serve
from sweep import schedulers, searchers
from sweep import spec as specs
from sweep.core import plugins
from sweep.core.errors import LedgerError, StorageError, UsageError
from sweep.driver.start import prepare
from sweep.driver.start.creation import resolving
from sweep.ledger.ledger import Ledger
from sweep.operations.upkeep import ledger_check
from sweep.views import reading
from trainables.errors import printable

#: Prefixes of audit events of an import; a spec may cause no others.
_IMPORTING = ("import ", "exec ", "compile ", "os.putenv", "os.listdir")
#: Modules whose import has side effects; of a spec that names one, only the text is read.
WITH_SIDE_EFFECTS = ("this:", "antigravity:", "sweep.cli.main:", "builtins:")


def _read(path: Path) -> None:
    _read_ledger(path) if path.suffix == ".db" else _read_spec(path)


def _read_spec(path: Path) -> None:
    spec = specs.load(path)
    if ":" not in spec.trainable or not spec.trainable.startswith(WITH_SIDE_EFFECTS):
        resolving.resolve(spec, ())


def _read_ledger(path: Path) -> None:
    """Read a ledger like the commands that only read."""
    for damage in ledger_check.check(path):
        printable(damage.problem)
    with contextlib.closing(Ledger(path)) as ledger:
        reading.spec_of(ledger)
        history = reading.history(ledger)
        for trial in history.trials:
            ledger.results(trial.number)


def _warm_up() -> None:
    """Import all modules that reading a spec may need."""
    for name in plugins.names(schedulers.PACKAGE):
        schedulers.find(name, ())
    for name in plugins.names(searchers.PACKAGE):
        searchers.find(name)
    for space in ("quickstart", "cartpole_ppo"):
        prepare.prepare(space, ())


if __name__ == "__main__":
    serve(Reader(_read, (UsageError, LedgerError, StorageError), _IMPORTING), _warm_up)
