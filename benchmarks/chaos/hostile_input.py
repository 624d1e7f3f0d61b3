"""Specs and ledgers from strangers: each is refused in one line, or good; nothing else happens.

    python -m benchmarks.chaos.hostile_input [--out DIR] [--rounds N] [--seed S]

The listed attacks first, then `FUZZED` specs and `LEDGERS` ledgers per round, made by chance from
good ones. They are read in processes that are watched (`jail`, `hostile_reader`).
"""

from functools import partial
from pathlib import Path

from benchmarks.chaos.hostile_ledgers import broken, sample
from benchmarks.chaos.hostile_specs import fuzzed, shipped
from benchmarks.chaos.store_cases import Cases, main
from benchmarks.chaos.strangers import Jail, survived
from tests.support.hostile_texts import SPECS
from trainables.core import rng

JAIL = Jail("benchmarks.chaos.hostile_reader", memory_mib=200, limit_s=1200.0)
#: Specs and ledgers of one round, and of one process.
FUZZED, LEDGERS, BATCH = 2000, 400, 1000


def run(out: Path, rounds: int, seed: int) -> int:
    """The list, and so many rounds of changed files; returns how many cases failed."""
    cases = Cases(out, "hostile_input")
    cases.run("the list of attacks", partial(survived, JAIL, SPECS, good=0))
    texts, ledger = shipped(), sample()
    for number in range(rounds):
        for start in range(0, FUZZED, BATCH):
            stream = rng.generator(seed, "specs", number, start)
            made = {f"{start + i}.yaml": fuzzed(stream, texts) for i in range(BATCH)}
            cases.run(
                f"seed {seed} round {number} specs from {start}", partial(survived, JAIL, made)
            )
        stream = rng.generator(seed, "ledgers", number)
        ledgers = {f"{i}.db": broken(stream, ledger) for i in range(LEDGERS)}
        cases.run(f"seed {seed} round {number} ledgers", partial(survived, JAIL, ledgers))
    return cases.close()


if __name__ == "__main__":
    main(run, rounds=5)
