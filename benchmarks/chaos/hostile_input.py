"""Hostile specs and ledgers: each is refused in one line or is valid, without side effects.

    python -m benchmarks.chaos.hostile_input [--out DIR] [--rounds N] [--seed S]

Listed attacks are followed by `FUZZED` specs and `LEDGERS` ledgers per round, which are random
changes of valid ones. Monitored processes read them (`jail`, `hostile_reader`).
"""

from functools import partial
from pathlib import Path

from benchmarks.chaos.hostile_ledgers import change_ledger, sample
from benchmarks.chaos.hostile_specs import change_spec, shipped_specs
from benchmarks.chaos.store_cases import Cases, main
from benchmarks.chaos.strangers import Jail, read_all
from tests.support.hostile_texts import SPECS
from trainables.core import rng

JAIL = Jail("benchmarks.chaos.hostile_reader", memory_mib=200, limit_s=1200.0)
#: Numbers of specs and of ledgers in one round, and of specs for one process.
FUZZED, LEDGERS, BATCH = 2000, 400, 1000


def run(out: Path, rounds: int, seed: int) -> int:
    """Test the list and `rounds` rounds of changed files; return the number of failed cases."""
    cases = Cases(out, "hostile_input")
    cases.run("the list of attacks", partial(read_all, JAIL, SPECS, good=0))
    texts, ledger = shipped_specs(), sample()
    for number in range(rounds):
        for start in range(0, FUZZED, BATCH):
            stream = rng.generator(seed, "specs", number, start)
            specs = {f"{start + i}.yaml": change_spec(stream, texts) for i in range(BATCH)}
            cases.run(
                f"seed {seed} round {number} specs from {start}", partial(read_all, JAIL, specs)
            )
        stream = rng.generator(seed, "ledgers", number)
        ledgers = {f"{i}.db": change_ledger(stream, ledger) for i in range(LEDGERS)}
        cases.run(f"seed {seed} round {number} ledgers", partial(read_all, JAIL, ledgers))
    return cases.close()


if __name__ == "__main__":
    main(run, rounds=5)
