"""kill -9 of the PostgreSQL server of the ledger: the driver continues by itself.

    python -m benchmarks.chaos.kill_server [--out DIR] [--rounds KILLS] [--seed S]

A case is one sweep whose server is killed repeatedly at random instants: either one of the
processes that serve the sweep, after which the server recovers, or the server's first process,
after which it is restarted. No slice may be repeated. At the end the oracle compares the sweep with
an undisturbed one whose ledger is a file. A round is one kill.
"""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.chaos import oracle
from benchmarks.chaos.kills import (
    KILLS,
    LATEST_S,
    Undisturbed,
    raise_if_wrong,
    temporary_folder,
    undisturbed_sweeps,
)
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.victims import Sweep
from benchmarks.chaos.workload import KINDS
from tests.support.postgres import Server
from trainables.core import rng

_SWEEPS = ("asha", "bohb", "pbt", "seeds", "cmaes", "hyperband")


def run(out: Path, rounds: int, seed: int) -> int:
    """Make `rounds` kills; return the number of failed sweeps."""
    cases = Cases(out, "kill_server")
    with contextlib.closing(Server()) as server, undisturbed_sweeps() as undisturbed:
        server.start()
        with mock.patch.dict(os.environ, {"PGPASSFILE": str(server.passfile)}):
            for number in itertools.count():
                kills = sum(line.get("kills", 0) for line in cases.done.values())
                if kills >= rounds and number >= len(cases.done):  # failed cases are run again
                    break
                kind = _SWEEPS[number % len(_SWEEPS)]
                stream = rng.generator(seed, "kills of the server", number)
                cases.run(f"{kind}, {number}", partial(campaign, kind, server, stream, undisturbed))
    return cases.close()


def campaign(
    kind: str, server: Server, stream: np.random.Generator, undisturbed: Undisturbed
) -> dict[str, float]:
    """Run one sweep while its server is killed, and compare it; return its figures."""
    reference, length = undisturbed(kind)
    with temporary_folder() as root:
        sweep = Sweep(root / "disturbed", KINDS[kind], {"SWEEP_STORAGE": server.database()})
        sweep.start()
        backends, servers, due = 0, 0, 0
        while (left := KILLS - backends - servers) > 0:
            passed = max(due, len(sweep.steps()), 1)
            # One of the remaining steps; the sweep trains while its server is down.
            due = passed + int(stream.integers(0, max((length - passed) // (left + 1), 1)))
            if not sweep.await_steps(due):
                break
            time.sleep(float(stream.uniform(0.0, LATEST_S)))
            if stream.random() < 0.5:
                server.stop(signal.SIGKILL)
                server.start()
                servers += 1
            elif serving := _serving(sweep, server):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(serving[int(stream.integers(len(serving)))], signal.SIGKILL)
                server.await_answer()
                backends += 1
        if (code := sweep.await_end() or sweep.sync()) != 0:
            raise Failed(f"exit code {code}: {(sweep.root / 'said').read_text()[-500:]}")
        raise_if_wrong(sweep, [*_errors_of_kills(sweep), *oracle.errors(sweep.folder, reference)])
        return {"kills": backends + servers, "backends": backends, "servers": servers}


def _serving(sweep: Sweep, server: Server) -> list[int]:
    """Return the processes that serve the sweep; empty if it has ended."""
    while not (backends := server.backends()) and sweep.driver.poll() is None:
        time.sleep(0.003)
    return backends


def _errors_of_kills(sweep: Sweep) -> Iterator[str]:
    """Yield errors: repeated work, and printed lines."""
    slices, steps = oracle.count_repeated(sweep.steps())
    if slices or steps:
        yield f"{slices} slices and {steps} steps were repeated"
    lines = (sweep.root / "output").read_text().splitlines()
    # A slow start prints that it imports; this has other causes.
    if printed := [line for line in lines if not line.startswith("sweep: importing ")]:
        yield f"it printed {printed[-3:]}"


if __name__ == "__main__":
    main(run, rounds=30)
