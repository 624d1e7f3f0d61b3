"""kill -9 of the PostgreSQL server that holds the ledger: the driver goes on by itself.

    python -m benchmarks.chaos.kill_server [--out DIR] [--rounds KILLS] [--seed S]

A case is one sweep whose server is killed again and again at instants drawn from a stream: now one
of the processes that serve it, after which the server recovers, now the server's first process,
after which it is started again. No slice may be done again for it, and at the end the oracle
compares the sweep with one whose ledger is a file and that nobody disturbed. A round is one kill.
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
from benchmarks.chaos.kills import KILLS, LATEST_S, Straight, refuse, scratch, straight_sweeps
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.victims import Sweep
from benchmarks.chaos.workload import KINDS
from tests.support.postgres import Server
from trainables.core import rng

_SWEEPS = ("asha", "bohb", "pbt", "seeds", "cmaes", "hyperband")


def run(out: Path, rounds: int, seed: int) -> int:
    """So many kills; returns how many sweeps failed."""
    cases = Cases(out, "kill_server")
    with contextlib.closing(Server()) as server, straight_sweeps() as straight:
        server.start()
        with mock.patch.dict(os.environ, {"PGPASSFILE": str(server.passfile)}):
            for number in itertools.count():
                kills = sum(line.get("kills", 0) for line in cases.done.values())
                if kills >= rounds and number >= len(cases.done):  # what failed is run again
                    break
                kind = _SWEEPS[number % len(_SWEEPS)]
                stream = rng.generator(seed, "kills of the server", number)
                cases.run(f"{kind}, {number}", partial(campaign, kind, server, stream, straight))
    return cases.close()


def campaign(
    kind: str, server: Server, stream: np.random.Generator, straight: Straight
) -> dict[str, float]:
    """Run one sweep while its server is killed, and compare it; returns figures."""
    reference, length = straight(kind)
    with scratch() as root:
        sweep = Sweep(root / "disturbed", KINDS[kind], {"SWEEP_STORAGE": server.database()})
        sweep.start()
        backends, servers, due = 0, 0, 0
        while (left := KILLS - backends - servers) > 0:
            passed = max(due, len(sweep.steps()), 1)
            # Among the steps that are left: it trains on while its server is away.
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
        if (code := sweep.await_rest() or sweep.sync()) != 0:
            raise Failed(f"exit code {code}: {(sweep.root / 'said').read_text()[-500:]}")
        refuse(sweep, [*_disturbed(sweep), *oracle.wrongs(sweep.folder, reference)])
        return {"kills": backends + servers, "backends": backends, "servers": servers}


def _serving(sweep: Sweep, server: Server) -> list[int]:
    """The processes that serve the sweep; none: it has ended."""
    while not (found := server.backends()) and sweep.driver.poll() is None:
        time.sleep(0.003)
    return found


def _disturbed(sweep: Sweep) -> Iterator[str]:
    """Yield the costs of the kills: nothing may be trained again, and nothing printed."""
    slices, steps = oracle.done_again(sweep.steps())
    if slices or steps:
        yield f"{slices} slices and {steps} steps were done again"
    lines = (sweep.root / "said").read_text().splitlines()
    # A slow start tells that it imports; that is no sign of a kill.
    if said := [line for line in lines if not line.startswith("sweep: importing ")]:
        yield f"it said {said[-3:]}"


if __name__ == "__main__":
    main(run, rounds=30)
